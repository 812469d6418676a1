"""Says how questions are put to a server, and writes its requests.

    way = Way("chat", system="Answer briefly.")
    way.label("base")                        # "chat-71c0e2": a name for answers that may be averaged
    way.body("NAME", sample, wrapping)       # {"model": "NAME", "messages": [...], "max_tokens": 128, ...}

RULER gives a model the beginning of its answer. `text` and `ids` are continued by the server, so that beginning stands
at the end of the prompt, as in levelfield's own evaluation. In a chat it stands at the end of the question (`chat`, as
RULER asks hosted models) or in an assistant's message that the server continues, as a field of the request says
(`chat-prefix`; vLLM, SGLang and llama.cpp) or one of the message (`chat-marked-prefix`; DeepSeek and Mistral). These
are different questions: answers to them are stored under different labels and never averaged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from levelfield.longcontext.served.replies import Reply
from levelfield.ruler import Sample

By = Literal["text", "ids", "chat", "chat-prefix", "chat-marked-prefix"]
SENTENCES: dict[By, str] = {
    "text": "completions of text",
    "ids": "completions of token ids",
    "chat": "chat, the beginning of the answer at the end of the question",
    "chat-prefix": "chat, the beginning of the answer as an assistant's message to be continued",
    "chat-marked-prefix": "chat, the beginning of the answer as an assistant's message that is marked as a prefix",
}
Field = Literal["max_tokens", "max_completion_tokens"]
"""A field of a request that says how much may be written."""
WRITTEN: tuple[Field, ...] = get_args(Field)
PLACEHOLDER = ("", "\n")
"""Stands for a chat template that only the server knows: text before the task and after it."""


class Wrapping(NamedTuple):
    """The text that stands before the task and after it, and the name of this template."""

    name: str
    before: str
    after: str

    @property
    def around(self) -> tuple[str, str]:
        return self.before, self.after

    def parted(self, text: str) -> tuple[str, str]:
        """Parts a prompt into the task and the beginning of the answer, which the template's end separates."""
        task, _, beginning = text.removeprefix(self.before).rpartition(self.after)
        return task, beginning


@dataclass(frozen=True)
class Way:
    """How questions are put to a server.

    system: the system prompt of a chat; "" for none. temperature: 0 takes the likeliest token, as RULER does. thinking:
    tokens that a model may think in addition to those of its answer. more: further fields of each request, as JSON, of
    which null leaves one out. earlier: whether labels are those of earlier versions (`as_stored`). budget_field: where
    requests say how much may be written.
    """

    by: By = "text"
    system: str = ""
    temperature: float = 0.0
    thinking: int = 0
    more: str = ""
    earlier: bool = False
    budget_field: Field = "max_tokens"

    def __post_init__(self) -> None:
        object.__setattr__(self, "temperature", float(self.temperature))  # as 1 and 1.0 would have different labels

    @property
    def chat(self) -> bool:
        return self.by.startswith("chat")

    @property
    def prefixed(self) -> bool:
        """Whether the beginning of the answer is a message of its own."""
        return self.chat and self.by != "chat"

    @property
    def endpoint(self) -> str:
        return "chat/completions" if self.chat else "completions"

    @property
    def variables(self) -> dict[str, Any]:
        """The names that `more` gives the chat template to read, such as `enable_thinking`."""
        return json.loads(self.more).get("chat_template_kwargs", {}) if self.more else {}

    def most(self, budget: int) -> int:
        """Returns how many tokens a request lets the model write, for an answer of a budget."""
        return budget + self.thinking

    def label(self, template: str) -> str:
        """Names the answers that may be averaged: the template, the way, and a hash of settings other than the usual.

        `template` is left out for a chat whose template only the server knows.
        """
        return "-".join(part for part in (template, self.by, self._hashed) if part)

    def as_stored(self, labels: Iterable[str]) -> Way:
        """Returns this way with the labels that it had before they depended on requests alone, where answers have one.

        labels: of stored answers. They had a hash of `more` as it was written, and of a temperature that was not sent.
        """
        earlier = replace(self, earlier=True)
        known = {label.rpartition("-")[2] for label in labels}
        return earlier if earlier._hashed in known and self._hashed not in known else self

    @property
    def _hashed(self) -> str:
        rest = (self.system, *self._sampling)
        if self.earlier:
            rest = (self.system, self.temperature, self.thinking, self.more)
        if self.budget_field != Way.budget_field:
            rest = (*rest, self.budget_field)
        usual = rest == ("", *Way(self.by)._sampling)
        return "" if usual else hashlib.sha256(json.dumps(rest).encode()).hexdigest()[:6]

    @property
    def _sampling(self) -> tuple[float | None, int, str]:
        """The temperature, None for the server's own; the tokens to think; and the other fields in a fixed order."""
        fields = json.loads(self.more) if self.more else {}
        temperature = fields.pop("temperature", self.temperature)
        return temperature, self.thinking, json.dumps(fields, sort_keys=True) if fields else ""

    def sentence(self, template: str, asked: str = "") -> str:
        """Says for the rows how questions were put. asked: by what, where not by one of the ways of servers."""
        wrapped = f"template {template}" if template else "the server's own template, which lengths leave out"
        found = [asked or SENTENCES[self.by], wrapped]
        if self.system:
            left_out = "" if template else ", which lengths leave out, too"
            found.append(f"system prompt {json.dumps(self.system)}{left_out}")
        temperature, _, more = self._sampling
        found.append("the server's own temperature" if temperature is None else f"temperature {temperature:g}")
        if self.thinking:
            found.append(f"{self.thinking} tokens to think")
        if self.budget_field != Way.budget_field:
            found.append(f"budgets as {self.budget_field}")
        if more:
            found.append(f"with {more}")
        return ", ".join(found)

    def body(self, model: str, sample: Sample, wrapping: Wrapping, bos_ids: Sequence[int] = ()) -> dict[str, Any]:
        """Writes the request of one question. bos_ids: ids to put before those of the prompt where it is sent as ids.

        A server puts its own before a text, so a BOS that the template begins with must not be in `wrapping` then.
        """
        asked: dict[str, Any] = {"model": model, self.budget_field: self.most(sample.answer_tokens)}
        asked |= {"temperature": self.temperature}
        if self.chat:
            asked |= {"messages": self._messages(*wrapping.parted(sample.text))}
            if self.by == "chat-prefix":
                asked |= {"continue_final_message": True, "add_generation_prompt": False}
        else:
            asked |= {"prompt": with_bos(bos_ids, sample.ids) if self.by == "ids" else sample.text}
        asked |= json.loads(self.more) if self.more else {}
        return {name: value for name, value in asked.items() if value is not None}

    def continued(self, body: Mapping[str, Any], reply: Reply) -> Reply:
        """Returns what was written after the beginning of the answer, which llama.cpp and Mistral repeat."""
        if not self.prefixed:
            return reply
        return replace(reply, text=reply.text.removeprefix(body["messages"][-1]["content"]))

    def _messages(self, task: str, beginning: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = [{"role": "system", "content": self.system}] if self.system else []
        if not self.prefixed:
            return [*found, {"role": "user", "content": task + beginning}]
        mark = {"prefix": True} if self.by == "chat-marked-prefix" else {}
        begun = {"role": "assistant", "content": beginning.strip(), **mark}
        return [*found, {"role": "user", "content": task}, begun]

    def key(self, sample: Sample, label: str) -> str:
        """Hashes what the model reads, and how, under which the answer is stored."""
        return hashlib.sha256(f"{sample.key} {label}".encode()).hexdigest()[:24]


def most_tokens(fields: Mapping[str, Any]) -> int:
    """Returns how many tokens a request lets the model write; 0 where its fields do not say."""
    limits = [fields.get(name) for name in WRITTEN]
    return max((each for each in limits if isinstance(each, int)), default=0)


def with_bos(bos_ids: Sequence[int], ids: np.ndarray) -> list[int]:
    """Puts BOS ids before the (n,) ids of a prompt. Those that the prompt begins with are not repeated."""
    found = ids.tolist()
    repeated = next((n for n in range(len(bos_ids), 0, -1) if list(bos_ids[-n:]) == found[:n]), 0)
    return [*bos_ids[: len(bos_ids) - repeated], *found]
