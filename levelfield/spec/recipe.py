"""The numbers of one training phase, durations with their unit, and a search among such numbers.

Recipe(lr=1e-3, weight_decay=0.01, batch=32, budget=Duration(20, "epochs"), warmup=Duration(500, "steps"), ...)
Search(trials=6, lr=(0.1, 10))
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from levelfield.spec.errors import UserError, check_literals
from levelfield.spec.identity import derive_seed

Unit = Literal["steps", "examples", "tokens", "epochs", "flops"]


@dataclass(frozen=True)
class Duration:
    """How long, with its unit; `resolve` turns it into optimizer steps, once.

    Raises UserError below 0, and for an unknown unit.
    """

    value: float
    unit: Unit

    def __post_init__(self) -> None:
        check_literals(self)
        if not 0 <= self.value < math.inf:
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
        return max(0, math.ceil(round(self.value / per_step, 9)))

    def __str__(self) -> str:
        return f"{self.value:g} {self.unit}"


@dataclass(frozen=True)
class Recipe:
    """The numbers of one phase. `source` cites where they are printed; `assumed` names the fields nobody printed.

    `schedule`: after `warmup`, constant; linear or cosine to 0 at the end; or "plateau", which multiplies the rate by
    0.2, down to 1e-7, when the mean training loss of an epoch has not improved for more than `plateau_patience` epochs,
    and by 0.1 for the last tenth of training (miralles2025 appendix A.2). `clip` is the gradient norm, None for none.
    `patience` ends training after so many validations without a better score; with `cuts`, the constant rate is cut to
    a fifth first, that many times, so that a phase ends where neither the rate nor a smaller one improves it. A score
    is better for the patience if it is above the last better one by more than `least_gain`: among noisy scores, the
    best of many creeps up for ever. Before `patience_after`, validations without a better score do not count.
    `enough` is a validation score at which training ends, since nothing is left to learn.
    Raises UserError for an unknown schedule, a batch that is no whole number of 1 or more, a learning rate or a `clip`
    that is not a finite number above 0, a weight decay that is not finite and 0 or more, betas that are not at least 0
    and below 1, a patience below 1, cuts without a patience or of a schedule that falls by itself, a `least_gain` below
    0 or without a patience, and an `enough` that is not finite.
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
    # True: batches of like lengths, each of about `batch` examples' steps (`batches.Buckets`)
    bucketed: bool = field(default=False, metadata={"version": 2})
    source: str = ""
    assumed: tuple[str, ...] = ()
    tuning_trials: int = 1
    cuts: int = field(default=0, metadata={"added": True})
    patience_after: Duration | None = field(default=None, metadata={"added": True})
    least_gain: float = field(default=0.0, metadata={"added": True})  # in the unit of the score, such as 0.005 of 1
    enough: float | None = field(default=None, metadata={"added": True})

    def __post_init__(self) -> None:
        check_literals(self)
        self._check_steps()
        self._check_ends()

    @property
    def may_end_early(self) -> bool:
        """Whether validation may end training before the budget is spent."""
        return self.patience is not None or self.enough is not None

    def _check_steps(self) -> None:
        """Raises UserError for numbers by which no step, or a step away from the goal, would be taken."""
        if not isinstance(self.batch, int):
            raise UserError(f"A recipe with batch={self.batch} cannot be: give a whole number of examples.")
        if self.batch < 1:
            raise UserError(f"A recipe with batch={self.batch} trains on nothing: give 1 or more.")
        if not 0 < self.lr < math.inf:
            raise UserError(f"A recipe with lr={self.lr} cannot train: give a finite learning rate above 0.")
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise UserError(
                f"A recipe with clip={self.clip} turns or stops the gradient: give a finite norm above 0, or None."
            )
        if not 0 <= self.weight_decay < math.inf:
            raise UserError(f"A recipe with weight_decay={self.weight_decay} cannot be: give a finite 0 or more.")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(f"A recipe with betas={self.betas} cannot average: give two numbers from 0 to below 1.")

    def _check_ends(self) -> None:
        """Raises UserError for numbers by which training would never end, or end before it begins."""
        if self.patience is not None and self.patience < 1:
            raise UserError(f"A recipe with patience={self.patience} has none: give 1 or more validations, or None.")
        if self.cuts < 0 or (self.cuts and (self.patience is None or self.schedule != "constant")):
            raise UserError(f"A recipe with cuts={self.cuts} needs a patience and schedule='constant'.")
        if not 0 <= self.least_gain < math.inf or (self.least_gain and self.patience is None):
            raise UserError(
                f"A recipe with least_gain={self.least_gain} needs a patience, and a finite gain of 0 or more."
            )
        if self.enough is not None and not math.isfinite(self.enough):
            raise UserError(f"A recipe with enough={self.enough} has it never or always: give a finite one, such as 1.")


MOST_TRIALS = 1_000


@dataclass(frozen=True)
class Search:
    """Recipes to try for every arm: its own, and `trials` - 1 that are the same changes of it in every arm.

    `lr` and `weight_decay` are the ranges of factors by which the arm's own rates are multiplied, in every phase alike.
    Each range is cut, in logarithms, into `trials` equal parts, and their middles are tried, except the one nearest to
    1, whose place the arm's own recipe takes. Which decay goes with which rate is drawn once for all arms. Parameters
    whose rate or decay a mixer fixes (`ParamRule`) keep it. With `share` below 1, a trial trains for that share of
    every phase's budget, where whole trials would cost more than the runs that use what they find. Raises UserError for
    a search that tries nothing.
    """

    trials: int
    lr: tuple[float, float] = (0.1, 10.0)
    weight_decay: tuple[float, float] = (1.0, 1.0)
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.trials < 2:
            raise UserError(f"A search of {self.trials} trials has nothing to choose from: give 2 or more.")
        if self.trials > MOST_TRIALS:
            raise UserError(f"A search of {self.trials:,} trials would take too long: give {MOST_TRIALS:,} or fewer.")
        if not 0 < self.share <= 1:
            raise UserError(f"A search with share={self.share} trains its trials for no time or too long: give 0 to 1.")
        for name, (low, high) in {"lr": self.lr, "weight_decay": self.weight_decay}.items():
            if not 0 < low <= high < math.inf:
                raise UserError(f"{name}=({low}, {high}) is no range of factors: give two above 0, the lower first.")
        if self.lr[0] == self.lr[1] and self.weight_decay[0] == self.weight_decay[1]:
            raise UserError("A search whose ranges are one factor each tries one recipe: widen lr or weight_decay.")

    def factors(self) -> list[tuple[float, float]]:
        """What to multiply lr and weight_decay by, trial by trial; the first leaves both as they are."""
        import numpy as np

        parts = (np.arange(self.trials) + 0.5) / self.trials
        middles = [low * (high / low) ** parts for low, high in (self.lr, self.weight_decay)]
        rates, decays = (np.delete(each, np.abs(np.log(each)).round(9).argmin()) for each in middles)
        order = np.random.default_rng(derive_seed(0, "search")).permutation(len(decays))
        return [(1.0, 1.0), *((float(a), float(b)) for a, b in zip(rates, decays[order], strict=True))]
