"""Defines a sample: the token ids of a prompt, its reference answers, and columns to slice scores by.

sample = next(generate(named("niah_single_2"), 4096, Bytes()))
sample.ids                   # (n,) int32, n <= sample.length - sample.answer_tokens, but for fwe in `paper`
sample.references            # ("7319284",)
sample.depths                # (0.42,): the share of the haystack before the needle
sample.text                  # the prompt as text, joined on first use
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

QUESTION = re.compile(r"\n(?=What (?:is|are) |Question: |Operation: )")
"""Where the questions of RULER's tasks, and of those beyond it, begin."""
LETTERS, END = 300, 4000  # of a question; of the end of a prompt that is searched for one


class PromptPart(Protocol):
    """Part of a prompt whose text is written only when asked for."""

    def text(self) -> str: ...


FILE = "file"
"""The column of samples with a hash of the user's file that they are made of."""


@dataclass(frozen=True, eq=False)
class Sample:
    """One prompt of one task. It ends with the beginning of the answer, which the model continues."""

    task: str  # name of the task's configuration
    index: int  # which sample of the seed
    length: int  # tokens, of the prompt and of what may be generated
    answer_tokens: int  # how many the model may generate
    ids: np.ndarray  # (n,) int32
    references: tuple[str, ...]
    depths: tuple[float, ...]  # in [0, 1]: of every needle asked for, in the order of the references; () without any
    flavour: str
    template: str
    tokenizer: str
    seed: int
    slices: tuple[tuple[str, str | int | float], ...] = ()  # more columns: haystack, key, value, documents, ...
    parts: tuple[str | PromptPart, ...] = field(default=(), repr=False)
    thinking: int = 0  # how many tokens the model may generate in addition, before its answer
    think_open: bool = False  # whether the prompt opens a thought, which has to be closed before the answer

    @cached_property
    def text(self) -> str:
        """The prompt as text; `tokenizer.encode(text)` is `ids`."""
        return "".join(part if isinstance(part, str) else part.text() for part in self.parts)

    @property
    def question(self) -> str:
        """What is asked, as `question_in` finds it, without joining the whole text where its end is enough."""
        tail = ""
        for part in reversed(self.parts):
            tail = (part if isinstance(part, str) else part.text()) + tail
            if (found := question_in(tail)) or len(tail) > END:
                return found
        return ""

    def forget_text(self) -> None:
        """Frees the joined text, which takes as much memory as all else; it is joined again when it is asked for."""
        vars(self).pop("text", None)

    @cached_property
    def key(self) -> str:
        """A hash of what the model reads and is scored by, under which predictions are stored."""
        content = hashlib.sha256(np.ascontiguousarray(self.ids, np.int32).tobytes())
        content.update("\0".join((self.task, self.tokenizer, str(self.answer_tokens), *self.references)).encode())
        if self.thinking:
            content.update(f"\0{self.thinking} to think".encode())
        return content.hexdigest()[:24]


def question_in(prompt: str) -> str:
    """Finds the question at the end of a prompt, with the beginning of the answer: one line; "" where there is none."""
    begins = [found.end() for found in QUESTION.finditer(prompt)]
    return " ".join(prompt[begins[-1] :].split())[:LETTERS] if begins else ""
