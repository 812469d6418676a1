"""Defines a protocol: phases of training, each an objective and a recipe.

Protocol("spt_masked", (Phase(Masked(ratio=0.15), pretraining), Phase(Classify(), finetuning, start="previous")))
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from levelfield.spec.errors import UserError, check_literals
from levelfield.spec.identity import OwnCode
from levelfield.spec.model import Model
from levelfield.spec.recipe import Recipe

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Objective(ABC, OwnCode):
    """What a phase optimises. `objectives` implements the kinds there are; this base needs no torch."""

    def __post_init__(self) -> None:
        check_literals(self)

    @property
    def direction(self) -> str | None:
        """Whether the model must be "causal"; None where it need not be."""
        return None


@dataclass(frozen=True)
class Head:
    """An output of the network: `outputs` numbers for the pooled documents of an example, or for every step."""

    name: str
    outputs: int
    per: Literal["sequence", "step", "decoded"]  # decoded: for every step, from the pooled state of the sequence
    documents: int = 1

    def __post_init__(self) -> None:
        check_literals(self)


@dataclass(frozen=True)
class Phase:
    """An objective, a recipe, and where the weights start: fresh, from the previous phase's trunk under a new head, or
    from the whole of it, where both have one objective. length: of its sequences, where not the task's own."""

    objective: Objective
    recipe: Recipe
    start: Literal["fresh", "previous", "whole"] = "fresh"
    augment: bool = False
    # The share of the training split: the beginning of one stratified order for all seeds, so that subsets nest.
    fraction: float = field(default=1.0, metadata={"version": 2})
    length: int | None = field(default=None, metadata={"added": True})

    def __post_init__(self) -> None:
        check_literals(self)
        if not 0 < self.fraction <= 1:
            raise UserError(f"A phase cannot train on {self.fraction} of the data: give more than 0, at most 1.")


@dataclass(frozen=True)
class ForeignWeights(ABC):
    """Weights that others published. name: of the folder of their files. address: of that folder on the web. files: the
    name and the SHA-256 of each.
    """

    name: str
    address: str = field(metadata={"identity": False})
    files: tuple[tuple[str, str], ...]

    @abstractmethod
    def trunk(self, folder: Path, model: Model) -> Mapping[str, Tensor]:
        """Returns the weights of `model` but for its heads. Raises UserError for files that are not of that model."""


@dataclass(frozen=True)
class Protocol:
    """A tuple of phases, of which the last one's objective is scored; without phases, the model is evaluated as given.

    `weights` names a safetensors file that the first phase, or the evaluation, starts from. Of its name and its SHA-256
    only the latter is part of the run's id. `foreign` stands in its place for weights that others trained.
    """

    name: str
    phases: tuple[Phase, ...]
    weights: str | None = field(default=None, metadata={"identity": False})
    weights_sha256: str | None = None
    foreign: ForeignWeights | None = field(default=None, metadata={"added": True})

    @property
    def causal(self) -> bool:
        """Whether any phase needs a causal model."""
        return any(p.objective.direction == "causal" for p in self.phases)

    def at_rates(self, lr: float = 1.0, weight_decay: float = 1.0, trials: int = 1) -> Protocol:
        """Returns the protocol with its rates multiplied in every phase. trials: how many recipes were tried."""

        def tuned(recipe: Recipe) -> Recipe:
            decay = weight_decay * recipe.weight_decay
            return replace(recipe, lr=lr * recipe.lr, weight_decay=decay, tuning_trials=trials)

        return replace(self, phases=tuple(replace(phase, recipe=tuned(phase.recipe)) for phase in self.phases))
