"""Words over a group of permutations: at every step, the product of all elements so far.

    S3:   (1 0 2)  (0 2 1)  (1 0 2)   ->   102  201  210         first x1, then x2, then x3, applied to 0 1 2

Which groups a model follows at any length tells what it can compute. S3, A4 and S4 are solvable; A5 and S5 are not, and
their word problem is complete for NC1 (Barrington 1989). Attention and recurrences with diagonal transitions are in
TC0, so they cannot follow these unless TC0 = NC1, however large (Merrill et al. 2024, "The Illusion of State", whose
task this is). Symbols are all elements of the group, so that answers are uniform at every step; or a few that generate
it, which is learnt sooner.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, permutations
from math import factorial
from typing import ClassVar, Literal, get_args

import numpy as np

from levelfield.spec import Task
from levelfield.tasks._state_tracking import GroupWords

Group = Literal["S3", "A4", "S4", "A5", "S5"]
GROUPS: tuple[Group, ...] = get_args(Group)


@dataclass(frozen=True)
class Words(GroupWords):
    """The product of every prefix of random elements.

    group: all (S) or all even (A) permutations of 3 to 5 places; they are numbered in lexical order, so that 0 is the
    neutral one. generators: symbols are the neutral element and two that generate the group: an exchange of places 0
    and 1 (S) or a cycle of places 0, 1 and 2 (A), and a cycle of all places, or for A4 of places 1, 2 and 3. length:
    elements. asked: how many of the last steps have a label; None is all. train, val, test: sequences.
    """

    group: Group = "S3"
    generators: bool = field(default=False, metadata={"added": True})

    source: ClassVar[str] = "generated; after Merrill et al. 2024 (arXiv:2404.08819)"

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "words" if self.group == "S3" else f"words_{self.group.lower()}"

    @property
    def settings(self) -> tuple[object, ...]:
        return (self.group, "generators") if self.generators else (self.group,)

    @property
    def alphabet(self) -> np.ndarray:
        return _generators(self.group) if self.generators else super().alphabet

    @property
    def order(self) -> int:
        return factorial(int(self.group[1])) // (2 if self.group[0] == "A" else 1)  # at once, which the table is not

    @property
    def table(self) -> np.ndarray:
        return _table(self.group)

    def answers(self, x: np.ndarray) -> np.ndarray:
        """Moves the places themselves, step by step, and looks up which permutation has come out."""
        known = elements(self.group)
        base = known.shape[1] ** np.arange(known.shape[1])
        number = np.full(int((known @ base).max()) + 1, -1)
        number[known @ base] = np.arange(len(known))
        places = np.tile(np.arange(known.shape[1]), (len(x), 1))
        y = np.empty(x.shape, np.int64)
        for symbol, column in zip(x.T, y.T, strict=True):
            places = np.take_along_axis(known[self.alphabet[symbol]], places, axis=1)
            column[:] = number[places @ base]
        return y


def elements(group: Group) -> np.ndarray:
    """Returns the permutations of a group in lexical order: (elements, places); row g maps place i to g[i]."""
    every = list(permutations(range(int(group[1]))))
    even = [g for g in every if sum(g[i] > g[j] for i, j in combinations(range(len(g)), 2)) % 2 == 0]
    return np.array(even if group[0] == "A" else every)


def _generators(group: Group) -> np.ndarray:
    """Returns the numbers of the neutral element and of two that generate the group: (3,)."""
    places = int(group[1])
    first = (1, 0, *range(2, places)) if group[0] == "S" else (1, 2, 0, *range(3, places))
    around = (0, 2, 3, 1) if group == "A4" else (*range(1, places), 0)
    known = elements(group).tolist()
    return np.array([0, known.index(list(first)), known.index(list(around))])


@cache
def _table(group: Group) -> np.ndarray:
    """Returns the number of "first a, then b" at row a and column b: (elements, elements)."""
    known = elements(group)
    number = {tuple(g): i for i, g in enumerate(known.tolist())}
    table = np.array([[number[tuple(b[a].tolist())] for b in known] for a in known])
    table.setflags(write=False)
    return table


TASKS: dict[str, Task] = {task.name: task for task in (Words(group=group) for group in GROUPS)}
EXAMPLES: tuple[Task, ...] = (
    Words(8, train=60, val=20, test=20),
    Words(6, asked=2, train=60, val=20, test=20, seed=3, group="A5"),
    Words(14, train=60, val=20, test=20, group="A5", generators=True),
)
