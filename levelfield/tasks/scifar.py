"""SCifar: classify a CIFAR-10 picture from its 1,024 RGB pixels, row after row (sequential CIFAR).

    task = SCifar()
    task.input            # Signal(channels=3, ...): standardised by channel, with the statistics of the train pictures

The input is that of amos2025 table 3 and the S4 papers. A masked or causal objective regresses the three channels (L1
in amos2025). `levels` is None, because classification over 256 levels is for one channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from levelfield.spec import Archive, Examples, Label, Progress, Signal, SplitName, Task, no_progress
from levelfield.tasks._images import cifar
from levelfield.tasks._images.augment import WORDS, augment

if TYPE_CHECKING:
    from torch import Generator, Tensor

MEAN = (0.4914, 0.4822, 0.4465)  # of the 50,000 train pictures, in units of 255
DEVIATION = (0.247, 0.243, 0.261)


@dataclass(frozen=True)
class SCifar(Task):
    """CIFAR-10 in colour, 1,024 steps of three channels, ten classes."""

    name: ClassVar[str] = "scifar"
    version: ClassVar[int] = 1
    padded: ClassVar[bool] = False
    source: ClassVar[str] = cifar.SOURCE
    licence: ClassVar[str] = cifar.LICENCE
    split_rule: ClassVar[str] = cifar.SPLIT_RULE
    archives: ClassVar[tuple[Archive, ...]] = cifar.OFFICIAL

    train: int = cifar.TRAIN  # the first n official train pictures are used, a tenth of them for val
    test: int = cifar.TEST

    def __post_init__(self) -> None:
        super().__post_init__()
        cifar.check_counts(self.train, self.test)

    @property
    def input(self) -> Signal:
        return Signal(3, shift=tuple(255 * m for m in MEAN), scale=tuple(255 * d for d in DEVIATION))

    @property
    def output(self) -> Label:
        return Label(len(cifar.CLASSES))

    @property
    def max_length(self) -> int:
        return cifar.PIXELS

    @property
    def chance(self) -> float:
        return 1 / len(cifar.CLASSES)

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        return cifar.splits(
            sources, task=self.name, train=self.train, test=self.test, convert=lambda pixels: pixels, progress=progress
        )

    def augment(self, x: Tensor, lengths: Tensor, generator: Generator) -> Tensor:
        """Augments x, (B, 1024, 3) RGB values 0..255. All sequences have full length: no padding."""
        return augment(x, generator)

    @property
    def augmentation(self) -> str:
        return WORDS


TASKS: dict[str, Task] = {"scifar": SCifar(), "scifar_15k": SCifar(train=15_000, test=5_000)}
EXAMPLES: tuple[Task, ...] = (SCifar(train=100, test=40),)
