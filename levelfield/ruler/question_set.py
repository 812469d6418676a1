"""Defines what a set of questions beside RULER's has to say: how it is built, scored and guessed.

A set is one file in `levelfield.ruler.beyond`: a frozen dataclass that subclasses `QuestionSet`, and its builder. With
a line in that folder's `BEYOND` it has RULER's exact lengths, store, baselines, report and command line.
"""

from __future__ import annotations

import re
import string
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Protocol

import numpy as np

from levelfield.ruler.prompt.fit import PromptDraft
from levelfield.ruler.prompt.setting import Setting

CONTROL = re.compile(r"[\x00-\x1f]")
NAME = re.compile(r"\d[\d,.]*\d|\d|[A-Z][\w-]+(?: [A-Z][\w-]+)*")
"""What has the form of a short answer to a question: a number, or a capitalised name."""


@dataclass(frozen=True)
class Score:
    """Shares in [0, 1] of the references found."""

    match: float
    strict: float


class Builder(Protocol):
    """Drafts samples of one task at one length."""

    def draft(self, index: int, room: int) -> PromptDraft:
        """Drafts sample `index`, of at most `room` tokens."""
        ...


class QuestionSet(ABC):
    """A task beside RULER's thirteen.

    Subclasses are frozen dataclasses, whose fields, none of them called `kind`, are stored with each answer.
    """

    answer_tokens: ClassVar[int]
    whole: ClassVar[bool] = False
    """Whether its prompts have the lengths that they have, and are neither filled nor cut."""
    sliced_by: ClassVar[tuple[str, ...]] = ()
    """Columns of its samples by which scores have rows of their own."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The task's name in flags, rows and stored answers."""

    def version(self, flavour: str) -> int:
        """Goes up when some of the task's samples change."""
        return 1

    @abstractmethod
    def builder(self, setting: Setting) -> Builder:
        """Returns what builds the samples of one length."""

    @abstractmethod
    def answer(self, rng: np.random.Generator) -> str:
        """Draws a right answer as a model might write it, from which its budget of tokens is set."""

    @abstractmethod
    def score(self, prediction: str, references: Sequence[str]) -> Score:
        """Returns both scores of one prediction."""

    def other_scores(self, prediction: str, references: Sequence[str]) -> dict[str, float]:
        """Returns further scores of one prediction, in [0, 1], by their metric in rows: none unless a set has some.

        They are of the answer as it was generated, which ends early where both scores of `score` are settled.
        """
        return {}

    @abstractmethod
    def candidates(self, text: str) -> list[str]:
        """Lists what has the form of an answer in the context of a whole prompt, in order, with repetitions."""

    def guess(self, text: str, count: int, rng: np.random.Generator) -> str:
        """Draws `count` different candidates of a whole prompt, all equally likely."""
        found = list(dict.fromkeys(_candidates(self, text)))
        return ", ".join(found[i] for i in rng.permutation(len(found))[:count])

    def copy_last(self, text: str, count: int) -> str:
        """Takes the last `count` different candidates of a whole prompt."""
        return ", ".join(list(dict.fromkeys(reversed(_candidates(self, text))))[:count])

    def is_final(self, text: str) -> bool:
        """Whether `text`, generated so far, already has the scores of every longer answer. False if uncertain."""
        return False


@lru_cache(maxsize=1)  # both baselines read the same prompt, one after the other
def _candidates(task: QuestionSet, text: str) -> Sequence[str]:
    return task.candidates(text)


def clean(prediction: str) -> str:
    """Cleans a prediction as RULER does before scoring it: control characters become line ends."""
    return CONTROL.sub("\n", prediction.strip()).strip()


def first_line(prediction: str) -> str:
    """Returns the first line of a cleaned prediction."""
    return clean(prediction).partition("\n")[0]


def has_first_line(text: str) -> bool:
    """Whether nothing that may follow can change the first line of this beginning of an answer."""
    return "\n" in CONTROL.sub("\n", text.lstrip()).lstrip()


def normalised(answer: str) -> str:
    """Normalises an answer as SQuAD does: lower case, without punctuation and articles, single spaces."""
    plain = "".join(c for c in answer.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", plain).split())


def names_in(text: str, known: Collection[str]) -> list[str]:
    """Lists the known names in a text as whole words, letter case aside, in order, as they are written in `known`."""
    written = {name.lower(): name for name in known}
    longest_first = sorted(map(re.escape, written), key=len, reverse=True)
    found = re.findall(rf"(?<!\w)(?:{'|'.join(longest_first)})(?!\w)", text.lower())
    return [written[name] for name in found]


def exactly(prediction: str, references: Sequence[str], known: Collection[str], asides: int = 0) -> Score:
    """Scores an answer of one or several of the known names, in any order, by the first line of the prediction.

    match: they are there, and at most `asides` others: as many as stand in the question, which an answer may repeat.
    strict: they are the first ones there.
    """
    found, wanted = list(dict.fromkeys(names_in(first_line(prediction), known))), set(references)
    match = wanted <= set(found) and len(found) <= len(wanted) + asides
    return Score(float(match), float(set(found[: len(wanted)]) == wanted))
