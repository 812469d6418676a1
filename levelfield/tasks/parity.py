"""Parity: at every step, whether the number of ones so far is odd.

    1 0 1 1 0   ->   1 1 0 1 1

One bit of state suffices, yet it must flip at every one, however many there are. Hahn (2020) shows that attention of a
fixed size cannot do so at all lengths. Grazzi et al. (2024, theorem 1) show that in finite precision no linear
recurrence can if its transitions have positive eigenvalues alone, as diagonal ones with decays between 0 and 1 have. An
eigenvalue that the input makes negative suffices.

The code of Grazzi et al. (github.com/automl/unlocking_state_tracking) asks once, at the end of sequences of many
lengths; here every step is asked, as in words over groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from levelfield.spec import Task
from levelfield.tasks._state_tracking import GroupWords


@dataclass(frozen=True)
class Parity(GroupWords):
    """The parity of every prefix of random bits.

    length: bits. asked: how many of the last steps have a label; None is all. train, val, test: sequences.
    """

    name: ClassVar[str] = "parity"
    source: ClassVar[str] = "generated; after Hahn 2020 (arXiv:1906.06755) and Grazzi et al. 2024 (arXiv:2411.12537)"

    @property
    def table(self) -> np.ndarray:
        return np.array([[0, 1], [1, 0]])

    def answers(self, x: np.ndarray) -> np.ndarray:
        """Counts the ones."""
        return np.cumsum(x, axis=1) % 2


TASKS: dict[str, Task] = {"parity": Parity()}
EXAMPLES: tuple[Task, ...] = (
    Parity(16, train=60, val=20, test=20),
    Parity(13, asked=4, train=40, val=10, test=10, seed=2),
)
