"""A task and a mixer small enough to train in a second, for tests of everything around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Generator, Tensor, nn

from levelfield.data.batches import Batch
from levelfield.model import Network
from levelfield.objectives.base import BatchPart, Trainable
from levelfield.spec import (
    Duration,
    Examples,
    Input,
    Label,
    MixerConfig,
    Model,
    Output,
    Progress,
    Recipe,
    Signal,
    SplitName,
    Task,
    Tokens,
    no_progress,
)
from levelfield.train import part_losses


@dataclass(frozen=True)
class FirstSymbol(Task):
    """The label is the first symbol of a ragged sequence (or the sign of the first value, for continuous input)."""

    name: ClassVar[str] = "first_symbol"
    version: ClassVar[int] = 1
    source: ClassVar[str] = "made here"
    split_rule: ClassVar[str] = "drawn one after the other"
    classes: int = 4
    length: int = 12
    train: int = 256
    held_out: int = 64
    continuous: bool = False
    seed: int = 0

    @property
    def input(self) -> Input:
        return Signal(1, (4.0,), (4.0,), levels=8) if self.continuous else Tokens(8)

    @property
    def output(self) -> Output:
        return Label(self.classes)

    @property
    def max_length(self) -> int:
        return self.length

    @property
    def chance(self) -> float:
        return 1 / self.classes

    @property
    def augmentation(self) -> str:
        return "every symbol after the first is replaced by 7"

    def augment(self, x: Tensor, lengths: Tensor, generator: Generator) -> Tensor:
        real = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        real[:, 0] = False
        return torch.where(real, torch.full_like(x, 7), x)

    def at_length(self, length: int, examples: int | None = None) -> Task:
        return replace(self, length=length, train=examples or self.train, held_out=examples or self.held_out)

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        rng = np.random.default_rng(self.seed)
        return {
            "train": self._draw(rng, self.train),
            "val": self._draw(rng, self.held_out),
            "test": self._draw(rng, self.held_out),
        }

    def _draw(self, rng: np.random.Generator, count: int) -> Examples:
        sequences = [rng.integers(0, 8, rng.integers(2, self.length + 1), dtype=np.uint8) for _ in range(count)]
        for sequence in sequences:
            sequence[0] = rng.integers(0, self.classes)
        y = np.array([s[0] for s in sequences], dtype=np.int64)
        slices = {"length": np.array([len(s) // 4 for s in sequences])}
        return Examples.of_sequences([s[:, None] for s in sequences] if self.continuous else sequences, y, slices)


@dataclass(frozen=True)
class RunningMean(MixerConfig):
    """The mean of all steps so far (or of all steps), then a linear map with dropout."""

    label: ClassVar[str] = "mean"
    paper: ClassVar[str] = "made here"
    dropout: float = 0.0

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        return _Mean(width, causal, self.dropout, generator)

    def state_size(self, width: int, length: int) -> int:
        return width + 1


class _Mean(nn.Module):
    def __init__(self, width: int, causal: bool, dropout: float, generator: Generator) -> None:
        super().__init__()
        self.causal = causal
        self.weight = nn.Parameter(torch.randn(width, width, generator=generator) / width**0.5)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x if mask is None else x * mask.unsqueeze(-1)
        if self.causal:
            mean = x.cumsum(1) / torch.arange(1, x.shape[1] + 1, device=x.device)[:, None]
        else:
            count = x.shape[1] if mask is None else mask.sum(1)[:, None, None]
            mean = (x.sum(1, keepdim=True) / count).expand_as(x)
        return self.dropout(mean) @ self.weight


def recipe(steps: int = 30, batch: int = 16, lr: float = 1e-2) -> Recipe:
    return Recipe(
        lr=lr,
        weight_decay=0.01,
        batch=batch,
        budget=Duration(steps, "steps"),
        warmup=Duration(2, "steps"),
        schedule="cosine",
        clip=1.0,
        validate_every=Duration(10, "steps"),
    )


MODEL = Model(mixers=(RunningMean(),), depth=2, width=16)


@dataclass(frozen=True)
class SameSymbol(Task):
    """Two documents, each one symbol over and over; the label is whether it is the same. Lengths are ragged."""

    name: ClassVar[str] = "same_symbol"
    version: ClassVar[int] = 1
    source: ClassVar[str] = "made here"
    split_rule: ClassVar[str] = "drawn one after the other"
    documents: ClassVar[int] = 2
    length: int = 12
    train: int = 256
    held_out: int = 64
    seed: int = 0

    @property
    def input(self) -> Input:
        return Tokens(4)

    @property
    def output(self) -> Output:
        return Label(2)

    @property
    def max_length(self) -> int:
        return self.length

    @property
    def chance(self) -> float:
        return 0.5

    def at_length(self, length: int, examples: int | None = None) -> Task:
        return replace(self, length=length, train=examples or self.train, held_out=examples or self.held_out)

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        rng = np.random.default_rng(self.seed)
        counts: dict[SplitName, int] = {"train": self.train, "val": self.held_out, "test": self.held_out}
        return {split: self._draw(rng, count) for split, count in counts.items()}

    def _draw(self, rng: np.random.Generator, count: int) -> Examples:
        y, first = rng.integers(0, 2, count), rng.integers(0, 4, count)
        second = (first + (1 - y) * rng.integers(1, 4, count)) % 4
        symbols = np.stack([first, second], 1).ravel()
        sequences = [np.full(rng.integers(1, self.length + 1), symbol, np.uint8) for symbol in symbols]
        return Examples.of_sequences(sequences, y, {"symbol": first}, documents=2)


def training_loss(
    net: Network, batch: Batch, objective: Trainable, spec: Input, generator: Generator, shares: Sequence[float] = ()
) -> Tensor:
    """Returns the scalar that training minimises for a whole batch. shares: as of `Batches.share`; all 1 if empty."""
    part = BatchPart(batch, objective.model_input(batch, spec, generator), shares)
    return part_losses(net, part, objective, spec).sum()
