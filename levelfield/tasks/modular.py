"""Modular counting: at every step, the sum of all digits so far, modulo their number.

    modulus 5:    3 4 0 2 1   ->   3 2 2 4 0

The states form a cycle. Unless the modulus is a power of two, a linear recurrence that counts at all lengths in finite
precision needs products of transitions with complex eigenvalues (Grazzi et al. 2024, theorem 2). Real decays have none,
and neither has a Householder step that is repeated. Two different ones are a rotation, whether they follow each other
in time or within one step (Siems et al. 2025).

This is the counting of that theorem. The modular arithmetic on which Delétang et al. and Grazzi et al. compare models
is another task: it has +, - and * between its digits, and asks once, at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from levelfield.spec import Task, UserError
from levelfield.tasks._state_tracking import GroupWords

MOST = 1_000


@dataclass(frozen=True)
class Modular(GroupWords):
    """The sum of every prefix of random digits.

    modulus: the number of digits and of answers, 2 to 1,000; 2 is the task parity. length: digits. asked: how many of
    the last steps have a label; None is all. train, val, test: sequences.
    """

    modulus: int = 5

    name: ClassVar[str] = "modular"
    source: ClassVar[str] = "generated; after Grazzi et al. 2024 (arXiv:2411.12537) and Delétang et al. 2023"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.modulus <= MOST:
            raise UserError(f"Modular counts modulo 2 to {MOST:,}, not {self.modulus:,}.")

    @property
    def settings(self) -> tuple[object, ...]:
        return (self.modulus,)

    @property
    def table(self) -> np.ndarray:
        digits = np.arange(self.modulus)
        return (digits[:, None] + digits) % self.modulus

    def answers(self, x: np.ndarray) -> np.ndarray:
        """Adds the digits up, and only then divides."""
        return np.cumsum(x, axis=1) % self.modulus


TASKS: dict[str, Task] = {"modular": Modular()}
EXAMPLES: tuple[Task, ...] = (
    Modular(10, train=60, val=20, test=20),
    Modular(9, asked=3, train=40, val=10, test=10, seed=1, modulus=300),
)
