"""A protocol: phases of training, each an objective and a recipe."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from levelfield.spec.errors import UserError
from levelfield.spec.recipe import Recipe

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Objective(ABC):
    """What a phase optimises. Interpreted by `objectives.py`; the values themselves need no torch."""

    @property
    def direction(self) -> str | None:
        """The word causal where the model must be so; None where either will do."""
        return None


@dataclass(frozen=True)
class Head:
    """An output of the network: `outputs` numbers for the pooled documents of an example, or for every step."""

    name: str
    outputs: int
    per: Literal["sequence", "step"]
    documents: int = 1


@dataclass(frozen=True)
class Phase:
    """An objective, a recipe, and where the weights start: fresh, or the previous phase's trunk under a new head."""

    objective: Objective
    recipe: Recipe
    start: Literal["fresh", "previous"] = "fresh"
    augment: bool = False
    # Of the training split: the beginning of one stratified order for all seeds, so that subsets nest.
    fraction: float = field(default=1.0, metadata={"version": 2})

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise UserError(
                f"A phase cannot train on fraction={self.fraction} of the data: give more than 0, at most 1."
            )


@dataclass(frozen=True)
class Protocol:
    """A tuple of phases; () means: evaluate as given. The last phase's objective is the one that is scored.

    `weights` names a safetensors file that the first phase (or the evaluation) starts from, with its SHA-256,
    which alone of the two is part of the run's id.
    """

    name: str
    phases: tuple[Phase, ...]
    weights: str | None = field(default=None, metadata={"identity": False})
    weights_sha256: str | None = None

    @property
    def causal(self) -> bool:
        """Whether some phase needs a causal model."""
        return any(p.objective.direction == "causal" for p in self.phases)
