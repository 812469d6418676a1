"""Reads a server's replies: the answer, the reasoning before it, and the server's own counts of tokens.

    read({"choices": [{"message": {"content": "<think>Well.</think> 7319284"}, "finish_reason": "stop"}]})
    # Reply(text=" 7319284", reasoning="Well.", finish="stop", ...)

Servers put reasoning in a field of its own (vLLM, SGLang, llama.cpp, DeepSeek: `reasoning_content`; others:
`reasoning`), in parts of the answer (Mistral) or in the text between <think> and </think>. Only the answer is scored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from levelfield.longcontext.predictions import FILTERED, MOST_TOKENS

BEGUN, CLOSED = "<think>", "</think>"
HALF = re.compile(r"[\ud800-\udfff]")
GIVEN_UP = ("abort", "error")
"""How SGLang, vLLM and OpenRouter end an answer that they gave up in the middle."""


EMPTY = ("length", FILTERED)
"""How an answer ends that may have no text: the model was still thinking, or a filter took its answer away."""


CALLS = ("tool_calls", "function_call")
"""Fields of a whole reply that calls a function in place of an answer, which is an empty one."""
THINKING = ("thinking", "reasoning")
"""Types of the parts of an answer that are none of its text."""


class BrokenReply(Exception):
    """Raised for a reply without an answer in it, such as one that was cut off."""


@dataclass(frozen=True)
class Reply:
    """An answer, and what the server says of it. Counts that it does not give are None.

    prompt, made, thought: tokens of the prompt, of all that was generated, and of the reasoning in it. finish: why
    generation ended: "stop", "length" or a server's own word; "" where it does not say. closed: whether a thought ends
    in the text, though it may be empty. unopened: whether the text had not opened it, so that the prompt had.
    """

    text: str
    reasoning: str = ""
    finish: str = ""
    prompt: int | None = None
    made: int | None = None
    thought: int | None = None
    closed: bool = False
    unopened: bool = False


def read(found: Any) -> Reply:
    """Reads the body of a reply of either endpoint. Raises BrokenReply where it has no answer."""
    choice = _choice(found)
    if choice.get("finish_reason") in GIVEN_UP:
        raise BrokenReply("an answer that the server gave up")
    message = choice.get("message")
    text = message.get("content") if isinstance(message, Mapping) else choice.get("text")
    reasoning = ""
    if isinstance(message, Mapping):
        reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    if isinstance(reasoning, list | Mapping):
        reasoning = "".join(_joined(reasoning if isinstance(reasoning, list) else [reasoning]))
    if isinstance(text, list):
        text, thought = _joined(text)
        reasoning = reasoning or thought
    if text is None and isinstance(message, Mapping):
        text = message.get("refusal") or ("" if any(message.get(name) for name in CALLS) else None)
    if text is None and (reasoning or choice.get("finish_reason") in EMPTY):
        text = ""
    if not isinstance(text, str) or not isinstance(reasoning, str):
        raise BrokenReply("a reply without a text")
    given = whole(text)
    inline, text = parted(given)
    usage = found.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    details = usage.get("completion_tokens_details")
    return Reply(
        text=text,
        reasoning=whole(reasoning) or inline,
        finish=whole(str(choice.get("finish_reason") or "")),
        prompt=_count(usage, "prompt_tokens"),
        made=_count(usage, "completion_tokens"),
        closed=CLOSED in given,
        unopened=unopened(given),
        thought=_count(details if isinstance(details, Mapping) else {}, "reasoning_tokens"),
    )


def _joined(parts: Sequence[Any]) -> tuple[str, str]:
    """Joins the parts of an answer, as Mistral sends them: its text, and the reasoning in it."""
    said, thought = "", ""
    for part in parts:
        kind = str(part.get("type")) if isinstance(part, Mapping) else ""
        inner = part.get(kind, part.get("text")) if isinstance(part, Mapping) else part
        text = "".join(_joined(inner)) if isinstance(inner, list) else inner if isinstance(inner, str) else ""
        said, thought = (said, thought + text) if kind in THINKING else (said + text, thought)
    return said, thought


def whole(text: str) -> str:
    """Returns a text in which half a character, as a server leaves it that cuts between two bytes, is replaced.

    JSON can hold one half of a surrogate pair, and no encoding of text can.
    """
    return HALF.sub("\ufffd", text)


def _choice(found: Any) -> Mapping[str, Any]:
    choices = found.get("choices") if isinstance(found, Mapping) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise BrokenReply("a reply without an answer")
    return choices[0]


def _count(usage: Mapping[str, Any], name: str) -> int | None:
    """Reads a count of tokens; None for anything that cannot be one."""
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS else None


def opens_thought(template_end: str) -> bool:
    """Returns whether a template ends with the beginning of a thought, which the model then only closes."""
    return template_end.rstrip().endswith(BEGUN)


def unopened(text: str) -> bool:
    """Returns whether a text closes a thought that it did not open, so that its prompt had."""
    return CLOSED in text and not text.lstrip().startswith(BEGUN)


def parted(text: str) -> tuple[str, str]:
    """Parts a text into the reasoning between <think> and </think> and the answer after it.

    The opening mark may be missing, since some templates put it into the prompt. Without the closing mark the model
    never came to an answer.
    """
    thought, closed, answer = text.partition(CLOSED)
    if not closed and not text.lstrip().startswith(BEGUN):
        return "", text
    return thought.lstrip().removeprefix(BEGUN).strip(), answer
