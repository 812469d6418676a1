"""Defines what a phase optimises: a head, what the model sees of a batch, a loss and a score.

    Classify()                     a label per sequence
    ClassifySet()                  any number of labels per sequence
    Regress()                      numbers per sequence
    ClassifySteps()                a label at each step that asks for one
    Masked(ratio=0.5)              hide steps, predict them (denoising)
    Causal()                       predict the next step
    Sum((Classify(), Masked(ratio=0.3, random=1/3, scope="all")))     several heads on one forward pass

Masked and causal losses follow amos2025 as its code does it (all selected steps are hidden, none kept; one mask for all
channels of a step); the sum follows miralles2025, section 3 and appendix A.4. Letters: B examples, T steps, C channels
of the input, N examples of a split, P scored places.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from levelfield.data.batches import Batch, ModelInput, encode
from levelfield.objectives.base import Scores, Trainable
from levelfield.objectives.label_sets import ClassifySet
from levelfield.spec.errors import UserError
from levelfield.spec.io_types import Input, Label, LabelSet, Output, StepLabels, TaskForm, Tokens, Unlabelled, Values
from levelfield.spec.protocol import Head

if TYPE_CHECKING:
    from levelfield.spec.examples import Examples


@dataclass(frozen=True)
class Classify(Trainable):
    """Cross-entropy of one label per sequence; scored by accuracy."""

    key = "label"
    metric = "accuracy"

    def head(self, spec: Input, output: Output) -> Head:
        if not isinstance(output, Label):
            raise UserError("Classify needs a task with labels; use Regress for values.")
        return Head(self.key, output.classes, "sequence")

    def loss(self, outputs: Tensor, batch: Batch, shown: ModelInput, spec: Input) -> Tensor:
        return F.cross_entropy(outputs.float(), batch.y.long())

    def score(self, outputs: Tensor, batch: Batch, shown: ModelInput, spec: Input) -> Scores:
        sound = outputs.isfinite().all(-1)
        right = ((outputs.argmax(-1) == batch.y) & sound).double()
        return Scores(right, torch.ones_like(right), sound)


@dataclass(frozen=True)
class Regress(Trainable):
    """Mean squared error of real values per sequence; scored by the negative squared error."""

    key = "value"
    metric = "negative_mse"

    def head(self, spec: Input, output: Output) -> Head:
        if not isinstance(output, Values):
            raise UserError("Regress needs a task with values; use Classify for labels.")
        return Head(self.key, output.dims, "sequence")

    def loss(self, outputs: Tensor, batch: Batch, shown: ModelInput, spec: Input) -> Tensor:
        return F.mse_loss(outputs.float(), batch.y.float().view_as(outputs))

    def score(self, outputs: Tensor, batch: Batch, shown: ModelInput, spec: Input) -> Scores:
        error = (outputs.double() - batch.y.double().view_as(outputs)).square().mean(-1)
        return Scores(-error, torch.ones_like(error), outputs.isfinite().all(-1))


@dataclass(frozen=True)
class ClassifySteps(Trainable):
    """Cross-entropy over the steps that ask for a label; scored by accuracy over them."""

    key = "steps"
    metric = "accuracy"

    def head(self, spec: Input, output: Output) -> Head:
        if not isinstance(output, StepLabels):
            raise UserError("ClassifySteps needs a task with a label at each step; use Classify for one per sequence.")
        return Head(self.key, output.classes, "decoded" if output.pooled else "step")

    def units(self, examples: Examples) -> np.ndarray:
        """The steps that ask for a label, (N,)."""
        return np.diff(np.concatenate([[0], np.cumsum(examples.y >= 0)])[examples.offsets])

    def counted(self, batch: Batch, shown: ModelInput) -> Tensor:
        """The steps that ask for a label, a scalar."""
        return (batch.y >= 0).sum()

    def loss(self, outputs: Tensor, batch: Batch, shown: ModelInput, spec: Input) -> Tensor:
        asked = batch.y >= 0
        if not outputs.is_cpu:
            losses = F.cross_entropy(outputs.float().movedim(-1, 1), batch.y.long().clamp(min=0), reduction="none")
            return mean_where(losses, asked)
        if not asked.any():
            return outputs.float().sum() * 0.0
        return F.cross_entropy(outputs[asked].float(), batch.y[asked].long())

    def score(self, outputs: Tensor, batch: Batch, shown: ModelInput, spec: Input) -> Scores:
        asked = batch.y >= 0
        finite = outputs.isfinite().all(-1)
        right = ((outputs.argmax(-1) == batch.y) & asked & finite).double().sum(1)
        weights = asked.double().sum(1)
        return Scores(right / weights.clamp(min=1), weights, (finite | ~asked).all(1))


@dataclass(frozen=True)
class StepObjective(Trainable):
    """What Masked and Causal share: they predict symbols (loss "ce") or normalised values (loss "l1") of steps."""

    loss_kind: Literal["ce", "l1"] = "ce"

    ahead: ClassVar[int] = 0  # how many steps after an output its target lies

    @property
    def metric(self) -> str:  # type: ignore[override]
        return "step_accuracy" if self.loss_kind == "ce" else "negative_mae"

    def head(self, spec: Input, output: Output) -> Head:
        if isinstance(spec, Tokens):
            if self.loss_kind == "l1":
                raise UserError("An l1 loss needs a task with continuous input; use loss_kind='ce' for tokens.")
            return Head(self.key, spec.symbols, "step")
        if self.loss_kind == "l1":
            return Head(self.key, spec.channels, "step")
        if spec.levels is None:
            raise UserError("A ce loss needs an input of tokens or with levels; use loss_kind='l1' for other values.")
        return Head(self.key, spec.channels * spec.levels, "step")

    def units(self, examples: Examples) -> np.ndarray:
        """The steps of each example, (N,), of which any may be scored."""
        return examples.sizes

    @abstractmethod
    def scored(self, batch: Batch, shown: ModelInput) -> Tensor:
        """The steps whose outputs are scored, (S, T) bool."""

    def counted(self, batch: Batch, shown: ModelInput) -> Tensor:
        """The steps that are scored, a scalar."""
        return self.scored(batch, shown).sum()

    def targets(self, outputs: Tensor, batch: Batch, shown: ModelInput) -> tuple[Tensor, Tensor, Tensor]:
        """The P places that are scored: their outputs (P, K), raw targets (P[, C]) and sequences (P,)."""
        sequence, step = self.scored(batch, shown).nonzero(as_tuple=True)
        return outputs[sequence, step], batch.raw[sequence, step + self.ahead], sequence

    def loss(self, outputs: Tensor, batch: Batch, shown: ModelInput, spec: Input) -> Tensor:
        if not outputs.is_cpu:
            return mean_where(self.everywhere(outputs, batch, spec), self.scored(batch, shown))
        picked, raw, _ = self.targets(outputs, batch, shown)
        if not len(raw):
            return outputs.float().sum() * 0.0
        if self.loss_kind == "l1":
            return (picked.float() - _values(raw, spec)).abs().mean()
        return F.cross_entropy(_by_level(picked.float(), raw).flatten(0, -2), raw.long().flatten())

    def everywhere(self, outputs: Tensor, batch: Batch, spec: Input) -> Tensor:
        """The losses of all steps, (S, T); those of steps that are not scored mean nothing."""
        picked, raw = outputs.float().flatten(0, 1), batch.raw.roll(-self.ahead, 1).flatten(0, 1)
        if self.loss_kind == "l1":
            return (picked - _values(raw, spec)).abs().mean(-1).view(outputs.shape[:2])
        levels = _by_level(picked, raw).movedim(-1, 1)
        losses = F.cross_entropy(levels, raw.long().view(len(raw), -1), reduction="none")
        return losses.mean(-1).view(outputs.shape[:2])

    def score(self, outputs: Tensor, batch: Batch, shown: ModelInput, spec: Input) -> Scores:
        picked, raw, sequence = self.targets(outputs, batch, shown)
        finite = picked.isfinite().all(-1)
        if self.loss_kind == "ce":
            guess = _by_level(picked, raw).argmax(-1)
            good = ((guess == raw.reshape(guess.shape)) & finite[:, None]).double().mean(1)
        else:
            good = -(picked - _values(raw, spec)).abs().double().mean(1)
        example = sequence // batch.documents
        total = torch.zeros(len(batch.y), dtype=torch.double, device=raw.device).index_add_(0, example, good)
        weights = torch.zeros_like(total).index_add_(0, example, torch.ones_like(good))
        broken = torch.zeros_like(total).index_add_(0, example, (~finite).double())
        return Scores(total / weights.clamp(min=1), weights, broken == 0)


@dataclass(frozen=True)
class Masked(StepObjective):
    """Hides a share of the steps and predicts them.

    ratio: chance of each step to be selected, in (0, 1). block: steps are selected in aligned runs of this many.
    random: share of the selected steps that show a uniformly drawn id (specials included) instead of the mask symbol;
    tokens only. scope: the loss is a mean over "hidden" steps, or over "all" real ones (as in miralles2025's code).
    """

    ratio: float = 0.15
    block: int = 1
    random: float = 0.0
    scope: Literal["hidden", "all"] = "hidden"

    key = "denoise"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.ratio < 1 or not 0 <= self.random <= 1 or self.block < 1:
            raise UserError("Masked needs 0 < ratio < 1, 0 <= random <= 1 and block >= 1.")

    @property
    def masks_inputs(self) -> bool:
        return True

    def model_input(self, batch: Batch, spec: Input, generator: Generator) -> ModelInput:
        x = encode(batch.raw, batch.mask, spec)
        size, length = batch.raw.shape[:2]
        drawn = _uniform((size, -(-length // self.block)), generator, x.device)
        masked = (drawn < self.ratio).repeat_interleave(self.block, 1)[:, :length]
        masked = masked if batch.mask is None else masked & batch.mask
        if not isinstance(spec, Tokens):
            return ModelInput(x * ~masked.unsqueeze(-1), masked)
        shown = x.masked_fill(masked, Tokens.MASK)
        if self.random:
            noise = (_uniform(x.shape, generator, x.device) * spec.vocabulary).long()
            shown = torch.where(masked & (_uniform(x.shape, generator, x.device) < self.random), noise, shown)
        return ModelInput(shown, masked)

    def scored(self, batch: Batch, shown: ModelInput) -> Tensor:
        assert shown.masked is not None
        everywhere = batch.mask if batch.mask is not None else torch.ones_like(shown.masked)
        return everywhere if self.scope == "all" else shown.masked


@dataclass(frozen=True)
class Causal(StepObjective):
    """Predicts step t + 1 from steps 0 to t, for every t that has a next step. Needs a causal model."""

    key = "next"
    ahead: ClassVar[int] = 1

    @property
    def direction(self) -> str | None:
        return "causal"

    def units(self, examples: Examples) -> np.ndarray:
        """The steps of each example that have a next one, (N,)."""
        return (examples.lengths - 1).reshape(-1, examples.documents).sum(1)

    def scored(self, batch: Batch, shown: ModelInput) -> Tensor:
        return torch.arange(batch.raw.shape[1], device=batch.raw.device) < batch.lengths[:, None] - 1


@dataclass(frozen=True)
class Sum(Trainable):
    """Trains several objectives on one forward pass, weighted; the first one is scored, on clean input.

    In training all parts see the input of the part that hides steps (at most one may).
    """

    of: tuple[Trainable, ...]
    by: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.of:
            raise UserError("Sum takes one objective or more, the first of which is scored.")
        if sum(p.masks_inputs for p in self.of) > 1 or len({p.key for p in self.of}) < len(self.of):
            raise UserError("Sum takes objectives of different kinds, at most one of which hides steps.")
        if self.by and len(self.by) != len(self.of):
            raise UserError("Sum needs one weight per objective, or none.")

    @property
    def parts(self) -> tuple[Trainable, ...]:
        return self.of

    @property
    def weights(self) -> tuple[float, ...]:
        return self.by or (1.0,) * len(self.of)

    @property
    def key(self) -> str:  # type: ignore[override]
        return self.of[0].key

    @property
    def metric(self) -> str:  # type: ignore[override]
        return self.of[0].metric

    @property
    def masks_inputs(self) -> bool:
        return any(p.masks_inputs for p in self.of)

    @property
    def direction(self) -> str | None:
        return next((p.direction for p in self.of if p.direction), None)

    def head(self, spec: Input, output: Output) -> Head:
        return self.of[0].head(spec, output)

    def model_input(self, batch: Batch, spec: Input, generator: Generator) -> ModelInput:
        hiding = next((p for p in self.of if p.masks_inputs), self.of[0])
        return hiding.model_input(batch, spec, generator)

    def loss(self, outputs: Tensor, batch: Batch, shown: ModelInput, spec: Input) -> Tensor:
        return self.of[0].loss(outputs, batch, shown, spec)

    def score(self, outputs: Tensor, batch: Batch, shown: ModelInput, spec: Input) -> Scores:
        return self.of[0].score(outputs, batch, shown, spec)


def heads(objective: Trainable, task: TaskForm) -> tuple[Head, ...]:
    """Returns one head for each part of the objective."""
    return tuple(replace(part.head(task.input, task.output), documents=task.documents) for part in objective.parts)


def default_objective(task: TaskForm) -> Trainable:
    """The objective by which a task is scored."""
    match task.output:
        case Label():
            return Classify()
        case LabelSet():
            return ClassifySet()
        case Values():
            return Regress()
        case StepLabels():
            return ClassifySteps()
        case Unlabelled():
            return Causal()


def mean_where(losses: Tensor, here: Tensor) -> Tensor:
    """Returns the mean of the (S, T) losses where the (S, T) mask `here` is True, and 0 where it is True nowhere.

    It fills with zeros instead of indexing by the mask, since a GPU would have to wait for the size of what is indexed.
    """
    return torch.where(here, losses, 0.0).sum() / here.sum().clamp(min=1)


def _uniform(shape: Sequence[int], generator: Generator, device: torch.device) -> Tensor:
    """Uniform draws in [0, 1) of this shape, made on the CPU so that a GPU run hides the same steps."""
    return torch.rand(tuple(shape), generator=generator).to(device)


def _values(raw: Tensor, spec: Input) -> Tensor:
    """Normalised values (P, C) of raw ones, (P,) or (P, C)."""
    return encode(raw[:, None], None, spec).squeeze(1)


def _by_level(outputs: Tensor, raw: Tensor) -> Tensor:
    """Outputs (P, C * levels) as (P, C, levels), or (P, symbols) as (P, 1, symbols)."""
    return outputs.unflatten(-1, (1 if raw.dim() == 1 else raw.shape[1], -1))
