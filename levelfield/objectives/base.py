"""What every objective can do: the head that it needs, what a model sees of a batch, its loss and its score. And what
parts of a batch count, so that their losses add up to that of the whole.

    class Classify(Trainable): ...

Letters: B examples of a batch, T steps, N examples of a split.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from torch import Generator, Tensor

from levelfield.data.batches import Batch, ModelInput, by_length, encode
from levelfield.spec.io_types import Input, Output
from levelfield.spec.protocol import Head, Objective

if TYPE_CHECKING:
    from levelfield.spec.examples import Examples


@dataclass(frozen=True)
class Scores:
    """One number for each example, and its weight: values (B,), weights (B,). Their weighted mean is the score.

    sound: (B,) bool, False where a scored output is NaN or infinite, which is never right and has no finite error.
    """

    values: Tensor
    weights: Tensor
    sound: Tensor


class Trainable(Objective):
    """An objective that can be trained: what every one below implements.

    outputs: (B, outputs) of a head per sequence, (B * documents, T, outputs) where steps are answered.
    """

    key: str
    metric: str

    @property
    def parts(self) -> tuple[Trainable, ...]:
        return (self,)

    @property
    def weights(self) -> tuple[float, ...]:
        return (1.0,) * len(self.parts)

    @property
    def masks_inputs(self) -> bool:
        return False

    @abstractmethod
    def head(self, spec: Input, output: Output) -> Head:
        """The head that the objective needs. Raises UserError where the objective does not fit the task."""

    def units(self, examples: Examples) -> np.ndarray:
        """What the loss is a mean over, counted in each example: (N,), all ones where that is examples."""
        return np.ones(len(examples))

    def model_input(self, batch: Batch, spec: Input, generator: Generator) -> ModelInput:
        """The clean input, unless an objective hides some of it."""
        return ModelInput(encode(batch.raw, batch.mask, spec))

    def counted(self, batch: Batch, shown: ModelInput) -> Tensor | int:
        """How many numbers the loss of this batch is a mean over, a scalar; examples, unless an objective says."""
        return len(batch.y)

    @abstractmethod
    def loss(self, outputs: Tensor, batch: Batch, shown: ModelInput, spec: Input) -> Tensor:
        """The mean loss over the batch, a scalar."""

    @abstractmethod
    def score(self, outputs: Tensor, batch: Batch, shown: ModelInput, spec: Input) -> Scores:
        """The score of each example, (B,)."""


class BatchPart(NamedTuple):
    """Some examples of a batch, what the network sees of them, and what the mean loss of each objective counts."""

    batch: Batch
    shown: ModelInput
    counts: Sequence[float | Tensor] = ()  # 1 each where it is left out


def within(
    some: Batch,
    seen: ModelInput,
    totals: Sequence[int | Tensor],
    shares: Sequence[float | Tensor],
    objective: Trainable,
) -> list[float | Tensor]:
    """Returns what some examples count for each objective.

    totals: what it counts, a number or a scalar, in all those examples that count `shares`.
    """
    return [
        share * each.counted(some, seen) / (total if isinstance(total, int) else total.clamp(min=1))
        for each, total, share in zip(objective.parts, totals, shares, strict=True)
    ]


def lengths_apart(part: BatchPart, objective: Trainable) -> list[BatchPart]:
    """Returns a part for each length in a part, without padding."""
    batch, shown, shares = part
    if batch.mask is None:
        return [part]
    totals = [each.counted(batch, shown) for each in objective.parts]
    return [
        BatchPart(some, seen, within(some, seen, totals, shares, objective)) for some, seen in by_length(batch, shown)
    ]
