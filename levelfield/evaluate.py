"""Evaluates a network on a split, which gives one score per example; there is no other loop that scores.

scores = evaluate(net, split, Classify(), task.input, batch=64, seed=0)
scores.mean, scores.stderr
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Generator, Tensor

from levelfield.data.batches import Batch, ModelInput, SplitOnDevice
from levelfield.objectives import Scores, Trainable, default_objective
from levelfield.rng import generator
from levelfield.spec import Examples, Input, Row, Task
from levelfield.spec.groups import design_effect, independent
from levelfield.spec.study import unit_of

if TYPE_CHECKING:
    from levelfield.model import Network

NUMBERS = 1 << 26  # of a layer's output for the batches of `label_scores`, at most: 256 MiB in float32


@dataclass(frozen=True)
class SplitScores:
    """The scores of a split, in its order.

    values: (N,); weights: (N,), the steps scored in each example (1 for a label); sound: (N,) bool, False where an
    output was NaN or infinite. groups: (N,), the number of each example's group; None where each stands by itself.
    """

    values: np.ndarray
    weights: np.ndarray
    sound: np.ndarray
    groups: np.ndarray | None = None

    @property
    def mean(self) -> float:
        """The weighted mean; NaN where nothing was scored, or no output was sound: such a model has no score, where one
        that is never right has a score of 0. Of some outputs that are not sound, each counts as wrong."""
        scored = self.weights.any() and self.sound.any()
        return float(np.average(self.values, weights=self.weights)) if scored else math.nan

    @property
    def stderr(self) -> float:
        """The standard error of the mean over examples, or over their groups; NaN for fewer than two examples."""
        if len(self.values) < 2 or not self.weights.any():
            return math.nan
        share = self.weights / self.weights.sum()
        with np.errstate(invalid="ignore"):  # squares of infinite errors
            alone = np.sum(share**2 * (self.values - self.mean) ** 2) * len(share) / (len(share) - 1)
        return float(np.sqrt(alone * self.design_effect))

    @property
    def design_effect(self) -> float:
        """How many times as many examples it takes, as they come in groups, as of independent ones; 1 or more."""
        if self.groups is None or not self.weights.any():
            return 1.0
        with np.errstate(invalid="ignore"):
            return design_effect(self.weights / self.weights.sum() * (self.values - self.mean), self.groups)

    @property
    def independent(self) -> float:
        """The number of independent examples that they count as in an interval, by their groups: at most all."""
        if self.groups is None or not math.isfinite(self.mean):
            return float(len(self.values))
        return independent(self.values, self.groups, self.weights)

    @property
    def counted(self) -> Row:
        """How many examples there are, as a part of a row; where they come in groups, also how many they count as."""
        count = len(self.values)
        return Row(n=count) if self.groups is None else Row(n=count, n_effective=self.independent)

    @property
    def fault(self) -> str:
        """The status of what cannot be ranked.

        It is "diverged" where an output was NaN or infinite, "undefined" where nothing was scored, and "" where all is
        well.
        """
        if not self.sound.all():
            return "diverged"
        return "" if math.isfinite(self.mean) else "undefined"

    def part(self, here: np.ndarray) -> SplitScores:
        """The scores of the examples where `here`, (N,) bool, is True."""
        groups = None if self.groups is None else self.groups[here]
        return SplitScores(self.values[here], self.weights[here], self.sound[here], groups)


@torch.no_grad()
def evaluate(
    net: Network,
    split: SplitOnDevice,
    objective: Trainable,
    spec: Input,
    *,
    batch: int,
    seed: int,
    turn: tuple[int, int] = (0, 1),
) -> SplitScores:
    """Scores every example once, in eval mode, shortest first so that batches carry little padding.

    Masks are drawn from (seed, batch), so two evaluations of one split hide the same steps. turn: (k, n) scores the
    batches k, k + n, k + 2 n and so on alone, and gives 0 to all other examples. Where these are fewer than for k = 0,
    the first batch is computed once more, for nothing: processes among which a network is sharded compute together.
    """
    ranked = torch.from_numpy(np.argsort(split.examples.longest, kind="stable"))
    values, weights, sound = np.zeros(len(split)), np.zeros(len(split)), np.ones(len(split), bool)
    batches = list(enumerate(ranked.split(batch)))
    own = batches[turn[0] :: turn[1]]
    with _in_eval_mode(net):
        for number, indices in own + batches[: len(batches[:: turn[1]]) - len(own)]:
            scores = validation_scores(net, split.gather(indices), objective, spec, generator(seed, "evaluate", number))
            if number % turn[1] != turn[0]:
                continue
            values[indices.numpy()] = scores.values.cpu().numpy()
            weights[indices.numpy()] = scores.weights.cpu().numpy()
            sound[indices.numpy()] = scores.sound.cpu().numpy()
    return SplitScores(values, weights, sound)


@contextmanager
def _in_eval_mode(net: torch.nn.Module) -> Iterator[None]:
    """Puts a network into eval mode meanwhile, and back also where an error ends it."""
    was_training = net.training
    net.eval()
    try:
        yield
    finally:
        net.train(was_training)


def validation_scores(net: Network, batch: Batch, objective: Trainable, spec: Input, generator: Generator) -> Scores:
    """The scores, (B,), of the part that selects checkpoints, the first, on its own input (clean for a label)."""
    scored = objective.parts[0]
    shown = scored.model_input(batch, spec, generator)
    return scored.score(_outputs(net, scored.key, batch, shown), batch, shown, spec)


def _outputs(net: Network, head: str, batch: Batch, shown: ModelInput) -> Tensor:
    """Returns the outputs of a head, (B, outputs), or one at each step, for a batch as the model is shown it."""
    return net.head(head, net.hidden_states(shown.x, batch.mask, shown.masked), batch.mask)


def label_scores(net: Network, task: Task, examples: Examples, batch: int = 64) -> SplitScores:
    """Scores the task's own output (its label or value) on the device where the network lies. examples: its test.

    batch: examples at once; fewer where so many would be more than NUMBERS in every layer.
    """
    split = SplitOnDevice(examples, next(net.parameters()).device)
    at_once = _fitting(net, split, batch)
    scores = evaluate(net, split, default_objective(task), task.input, batch=at_once, seed=0)
    return replace(scores, groups=task.test_groups)


def _fitting(net: Network, split: SplitOnDevice, batch: int) -> int:
    """Returns how many examples make at most NUMBERS in a layer's output; no more than `batch`, and one at least."""
    fit = NUMBERS // max(1, split.longest * split.examples.documents * net.model.width)
    return max(1, min(batch, fit))


@torch.no_grad()
def label_outputs(net: Network, task: Task, examples: Examples, batch: int = 32) -> Tensor:
    """Returns what `label_scores` would score, the outputs of the head, (N, outputs) on the CPU, as the split is
    ordered. batch: as there."""
    split = SplitOnDevice(examples, next(net.parameters()).device)
    scored, made = default_objective(task).parts[0], []
    with _in_eval_mode(net):
        for indices in torch.arange(len(split)).split(_fitting(net, split, batch)):
            given = split.gather(indices)
            shown = scored.model_input(given, task.input, generator(0, "evaluate"))
            made.append(_outputs(net, scored.key, given, shown).cpu())
    return torch.cat(made)


def score_row(task: Task, scores: SplitScores, at: str) -> Row:
    """The test score as a row of results; it has no standard error where there is none.

    at: the location that the row names.
    """
    metric = default_objective(task).metric
    row = Row(metric=metric, unit=unit_of(metric), at=at, split="test", value=scores.mean)
    row |= Row(status=scores.fault or "ok") | scores.counted
    return row | Row(stderr=scores.stderr) if math.isfinite(scores.stderr) else row
