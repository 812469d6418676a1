"""The numbers of one training phase, and durations with their unit.

Recipe(lr=1e-3, weight_decay=0.01, batch=32, budget=Duration(20, "epochs"), warmup=Duration(500, "steps"), ...)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from levelfield.identity import UserError

Unit = Literal["steps", "examples", "tokens", "epochs", "flops"]


@dataclass(frozen=True)
class Duration:
    """How long, with its unit; `resolve` turns it into optimizer steps, once. Raises UserError below 0."""

    value: float
    unit: Unit

    def __post_init__(self) -> None:
        if not 0 <= self.value < np.inf:
            raise UserError(f"A duration of {self} cannot be: give 0 or more.")

    def resolve(self, *, batch: int, examples: int, tokens_per_example: float, flops_per_step: float = 0.0) -> int:
        """Steps, rounded up; `examples` is the size of the training split. FLOPs are those of forward and backward."""
        per_step = {
            "steps": 1.0,
            "examples": batch,
            "tokens": batch * tokens_per_example,
            "epochs": batch / examples,
            "flops": flops_per_step,
        }[self.unit]
        if per_step <= 0:
            raise UserError(f"A duration of {self} cannot be resolved to steps here: its cost per step is unknown.")
        return max(0, int(np.ceil(round(self.value / per_step, 9))))

    def __str__(self) -> str:
        return f"{self.value:g} {self.unit}"


@dataclass(frozen=True)
class Recipe:
    """The numbers of one phase. `source` cites where they are printed; `assumed` names the fields nobody printed.

    `schedule`: after `warmup`, constant; linear or cosine to 0 at the end; or "plateau", which multiplies the rate by
    0.2 when the mean training loss of an epoch has not improved for `plateau_patience` epochs and by 0.1 for the last
    tenth of training (miralles2025 appendix A.2). `clip` is the gradient norm, None for no clipping.
    Raises UserError for a batch below 1 and a learning rate that is not a finite number above 0.
    """

    lr: float
    weight_decay: float
    batch: int
    budget: Duration
    warmup: Duration
    schedule: Literal["constant", "linear", "cosine", "plateau"]
    clip: float | None
    validate_every: Duration
    patience: int | None = None  # stop after this many validations without a better score
    plateau_patience: int = 3
    betas: tuple[float, float] = (0.9, 0.999)
    decay_all: bool = False  # True: biases, norms and embeddings decay too
    bucketed: bool = False  # True: batches of like lengths, each of about `batch` examples' steps (`batches.Buckets`)
    source: str = ""
    assumed: tuple[str, ...] = ()
    tuning_trials: int = 1

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise UserError(f"A recipe with batch={self.batch} trains on nothing: give 1 or more.")
        if not 0 < self.lr < np.inf:
            raise UserError(f"A recipe with lr={self.lr} cannot train: give a finite learning rate above 0.")
