"""Defines RULER's 13 tasks as values, so that a sweep is a comprehension over them, and finds tasks by name.

    RULER                                             # the 13, in the order of the papers' tables
    named("niah_multikey_3")                          # Needle(haystack="needles", key="uuid", value="uuid")
    sweep(haystacks=("essay",), depths=(0, 0.5, 1))   # needles at chosen depths, any subset of the grid

A task says what is hidden and asked. The length, the tokenizer, the chat template and the variant of RULER (`flavour`)
are arguments of `generate`. `version(flavour)` goes up when some of a task's samples change, which tells answers to
older samples apart. Source: Hsieh et al. 2024 (RULER), table 2 and appendix B.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar, Literal, get_args

from levelfield.ruler.beyond import BEYOND
from levelfield.ruler.official import OFFICIAL
from levelfield.ruler.question_set import QuestionSet
from levelfield.spec import UserError, closest

HaystackName = Literal["essay", "noise", "needles"]
Kind = Literal["word", "number", "uuid"]
Dataset = Literal["squad", "hotpot"]


@dataclass(frozen=True)
class Needle:
    """Sentences "One of the special magic numbers for {key} is: {value}." in a haystack; values are asked by key."""

    answer_tokens: ClassVar[int] = 128
    haystack: HaystackName = "essay"
    key: Kind = "word"
    value: Kind = "number"
    keys: int = 1  # different keys in the text; never fewer than are asked for
    values: int = 1  # needles, and answers, per key
    queries: int = 1  # keys asked for at once
    depth: float | None = None  # of all needles, in [0, 1]; None draws each place

    def __post_init__(self) -> None:
        for field, allowed in (("haystack", HaystackName), ("key", Kind), ("value", Kind)):
            if (given := getattr(self, field)) not in get_args(allowed):
                raise UserError(f"A needle's {field} cannot be '{given}': {closest(str(given), get_args(allowed))}")
        if min(self.keys, self.values, self.queries) < 1:
            raise UserError("A needle task needs at least one key, one value and one query: give numbers from 1.")
        if self.depth is not None and not 0 <= self.depth <= 1:
            raise UserError(f"A needle's depth is a share of the haystack, from 0 to 1, not {self.depth}.")

    @property
    def name(self) -> str:
        """RULER's name where it is one of the eight, otherwise what it is made of; `@` and the depth where fixed."""
        plain = replace(self, depth=None)
        known = next((name for name, task in _NEEDLES.items() if task == plain), None)
        counts = "".join(f"_{n}{what}" for what, n in self._counts().items() if n > 1)
        name = known or f"niah_{self.haystack}_{self.key}_{self.value}{counts}"
        return name if self.depth is None else f"{name}@{self.depth:g}"

    def version(self, flavour: str) -> int:
        return 2 if self.haystack == "needles" and flavour == "sound" else 1  # lines drawn anew in every sample

    def _counts(self) -> dict[str, int]:
        return {"keys": self.keys, "values": self.values, "queries": self.queries}


@dataclass(frozen=True)
class Tracking:
    """Assignments VAR A = 12345, VAR B = VAR A, ... in noise, after an example: which variables have the value?"""

    answer_tokens: ClassVar[int] = 30
    name: ClassVar[str] = "vt"
    hops: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.hops <= 25:
            raise UserError(f"A chain has 1 to 25 hops, not {self.hops}.")

    def version(self, flavour: str) -> int:
        # 2: no blank line before a statement at line 0; 3: an example of as many lines as in the fork
        return 3 if flavour == "paper" else 2


@dataclass(frozen=True)
class CommonWords:
    """A numbered list, after a solved example: which ten words appear ten times as often as the others?"""

    answer_tokens: ClassVar[int] = 120
    name: ClassVar[str] = "cwe"
    common: int = 10

    def version(self, flavour: str) -> int:
        return 2 if flavour == "sound" else 1  # no answer is part of another word, or stands in the example


@dataclass(frozen=True)
class FrequentWords:
    """A coded text whose word counts follow a zeta distribution: the three most frequent words after the dots."""

    answer_tokens: ClassVar[int] = 50
    name: ClassVar[str] = "fwe"
    alpha: float = 2.0

    def __post_init__(self) -> None:
        if self.alpha <= 1:
            raise UserError(f"The zeta distribution needs an exponent over 1, not {self.alpha}.")

    def version(self, flavour: str) -> int:
        return 2 if flavour == "paper" else 1  # prompts may fill the whole length also where they are tokenised whole


@dataclass(frozen=True)
class Questions:
    """A question about one of many documents, or about two of them (HotpotQA)."""

    answer_tokens: ClassVar[int] = 32
    dataset: Dataset = "squad"

    def __post_init__(self) -> None:
        if self.dataset not in get_args(Dataset):
            raise UserError(f"There is no question set '{self.dataset}': {closest(self.dataset, get_args(Dataset))}")

    @property
    def name(self) -> str:
        return {"squad": "qa_1", "hotpot": "qa_2"}[self.dataset]

    def version(self, flavour: str) -> int:
        return 2 if flavour == "sound" else 1  # an index has one question at all lengths at which that fits


RulerTask = Needle | Tracking | CommonWords | FrequentWords | Questions | QuestionSet

_NEEDLES: dict[str, Needle] = {
    "niah_single_1": Needle(haystack="noise"),
    "niah_single_2": Needle(),
    "niah_single_3": Needle(value="uuid"),
    "niah_multikey_1": Needle(keys=4),
    "niah_multikey_2": Needle(haystack="needles"),
    "niah_multikey_3": Needle(haystack="needles", key="uuid", value="uuid"),
    "niah_multivalue": Needle(values=4),
    "niah_multiquery": Needle(queries=4),
}
RULER: tuple[RulerTask, ...] = (
    *_NEEDLES.values(),
    Tracking(),
    CommonWords(),
    FrequentWords(),
    Questions("squad"),
    Questions("hotpot"),
)


def named(name: str) -> RulerTask:
    """Returns one of the 13 by RULER's name, or one of `BEYOND` or `OFFICIAL`. Raises UserError."""
    known = {task.name: task for task in (*RULER, *BEYOND, *OFFICIAL)}
    if name not in known:
        raise UserError(f"RULER has no task '{name}': {closest(name, list(known))}")
    return known[name]


def sweep(
    haystacks: Iterable[HaystackName] = ("essay", "noise", "needles"),
    keys: Iterable[Kind] = ("word",),
    values: Iterable[Kind] = ("number", "uuid"),
    depths: Iterable[float | None] = (None,),
) -> tuple[Needle, ...]:
    """Returns single needles over the grid; huang2024's tables 2 to 4 have essay, noise x number, uuid x 0, 0.5, 1."""
    return tuple(Needle(h, k, v, depth=d) for h, k, v, d in product(haystacks, keys, values, depths))
