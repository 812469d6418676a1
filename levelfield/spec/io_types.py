"""Declares what goes into a model and what comes out of it: the kinds of input and output of a task.

    Tokens(symbols=256)                     bytes
    Signal(channels=1, shift=(0.0,), scale=(1.0,))     a waveform
    Label(classes=10)                       one class per sequence
    LabelSet(classes=20)                    any number of 20 labels per sequence

Letters in shapes: B batch, T length, C channels, N examples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol


@dataclass(frozen=True)
class Tokens:
    """Discrete input. On disk a symbol is 0..symbols-1; a model sees ids `symbol + OFFSET`, (B, T) int64."""

    symbols: int
    PAD: ClassVar[int] = 0
    MASK: ClassVar[int] = 1
    OFFSET: ClassVar[int] = 2

    @property
    def vocabulary(self) -> int:
        return self.symbols + self.OFFSET


@dataclass(frozen=True)
class Signal:
    """Continuous input. On disk raw values; a model sees `(raw - shift) / scale` per channel, (B, T, C) float32.

    `levels` is the number of distinct raw values where the raw values are integers 0..levels-1 (256 gray levels), so
    that a masked or causal objective can be a classification over them; None where there are none.
    """

    channels: int
    shift: tuple[float, ...]
    scale: tuple[float, ...]
    levels: int | None = None


@dataclass(frozen=True)
class Label:
    """One class per sequence: targets (B,) int64 in 0..classes-1, outputs (B, classes) logits."""

    classes: int


@dataclass(frozen=True)
class LabelSet:
    """Any number of labels per sequence: targets (B, classes) of 0 and 1, outputs (B, classes) logits."""

    classes: int


@dataclass(frozen=True)
class Values:
    """Real numbers per sequence: targets (B, dims) float32, outputs the same."""

    dims: int


@dataclass(frozen=True)
class StepLabels:
    """One class at each marked step: targets (B, T) int64 in 0..classes-1, -1 where nothing is asked; outputs
    (B, T, classes). `Examples.y` then lies along `Examples.x`, (total,), with -1 at unasked steps."""

    classes: int
    pooled: bool = False  # whether one pooled state of a sequence answers at all its steps, and not each its own


@dataclass(frozen=True)
class Unlabelled:
    """Nothing but sequences, for pretraining: `Examples.y` is zeros (N,), and the next step is what is scored."""


Input = Tokens | Signal
Output = Label | LabelSet | Values | StepLabels | Unlabelled


class TaskForm(Protocol):
    """The form of a task's examples: all that an objective, and so the training loop, knows of a `Task`."""

    documents: ClassVar[int]  # sequences in an example

    @property
    def input(self) -> Input: ...

    @property
    def output(self) -> Output: ...
