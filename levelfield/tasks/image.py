"""Image: classify a CIFAR-10 picture from its 1,024 gray values, row after row (the Image task of Long Range Arena).

    task = Image()                       # gray values as a continuous signal, (raw - 122.6) / 61, as in amos2025
    task = Image(tokenised=True)         # as 256 symbols, as in miralles2025 and, with another gray, Long Range Arena
    task = Image(train=15_000, test=5_000)   # the first part of the set, for copies that have no more
    task = Image(side=8)                 # 64 steps: each the mean of 4 x 4 pixels, for machines without a GPU

Whether a model reads numbers or symbols changes the task: symbols have no order, so a model must learn that 17 and 18
are similar. The papers disagree: amos2025 uses numbers, Tay et al. (2021) and miralles2025 use symbols. `tokenised`
chooses. The gray is Pillow's. Long Range Arena's is TensorFlow's, which is one level darker for a quarter of colours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from levelfield.spec import (
    Archive,
    Examples,
    Input,
    Label,
    Progress,
    Signal,
    SplitName,
    Task,
    Tokens,
    UserError,
    no_progress,
)
from levelfield.tasks._images import cifar
from levelfield.tasks._images.augment import WORDS, augment

if TYPE_CHECKING:
    from torch import Generator, Tensor


def luma(pixels: np.ndarray) -> np.ndarray:
    """Converts RGB, (..., 3) uint8, to gray, (...) uint8: ITU-R 601 luma in the integers of Pillow's convert("L")."""
    weights = np.array([19595, 38470, 7471], np.int32)  # 0.299, 0.587, 0.114 times 2**16
    return ((pixels.astype(np.int32) @ weights + 2**15) >> 16).astype(np.uint8)


SIDES = (8, 16, 32)


def pooled(gray: np.ndarray, side: int) -> np.ndarray:
    """Means of square blocks, rounded half up. gray: (N, 1024) uint8 -> (N, side * side) uint8."""
    block = cifar.SIDE // side
    sums = gray.reshape(-1, side, block, side, block).sum((2, 4), dtype=np.uint16)  # at most 16 * 255
    return ((2 * sums + block**2) // (2 * block**2)).astype(np.uint8).reshape(-1, side * side)


@dataclass(frozen=True)
class Image(Task):
    """CIFAR-10 in gray, 1,024 steps, ten classes; with a `side` of 16 or 8, pictures pooled to 256 or 64 steps.

    The augmentation is the policy of miralles2025 section 3, applied to the gray picture. The original applies it to
    the colour picture and converts to gray afterwards, but the arrays of a task hold what a model reads, which has no
    colour. With the same random numbers the results differ by 2.8 gray levels on average, while two draws of the policy
    differ by 78. Equalize (4.9) and solarize (3.6) differ most. docs/image.md has the table.
    """

    version: ClassVar[int] = 1
    padded: ClassVar[bool] = False
    source: ClassVar[str] = cifar.SOURCE
    licence: ClassVar[str] = cifar.LICENCE
    split_rule: ClassVar[str] = cifar.SPLIT_RULE
    archives: ClassVar[tuple[Archive, ...]] = cifar.OFFICIAL

    tokenised: bool = False
    train: int = cifar.TRAIN  # the first n official train pictures are used, a tenth of them for val
    test: int = cifar.TEST
    side: int = field(default=cifar.SIDE, metadata={"added": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        cifar.check_counts(self.train, self.test)
        if self.side not in SIDES:
            raise UserError(f"Image has a side of {', '.join(map(str, SIDES))} pixels, not {self.side}.")

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "image" if self.side == cifar.SIDE else f"image{self.side}"

    @property
    def input(self) -> Input:
        return Tokens(256) if self.tokenised else Signal(1, shift=(122.6,), scale=(61.0,), levels=256)

    @property
    def output(self) -> Label:
        return Label(len(cifar.CLASSES))

    @property
    def max_length(self) -> int:
        return self.side**2

    @property
    def chance(self) -> float:
        return 1 / len(cifar.CLASSES)

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        def convert(pixels: np.ndarray) -> np.ndarray:
            gray = pooled(luma(pixels), self.side)
            return gray if self.tokenised else gray[..., None]

        return cifar.splits(
            sources, task=self.name, train=self.train, test=self.test, convert=convert, progress=progress
        )

    def augment(self, x: Tensor, lengths: Tensor, generator: Generator) -> Tensor:
        """Augments x, (B, T) or (B, T, 1) gray values 0..255. All sequences have full length: no padding."""
        return augment(x, generator)

    @property
    def augmentation(self) -> str:
        return WORDS + " Applied to the gray picture, where the colour operation does nothing."


TASKS: dict[str, Task] = {
    "image": Image(),
    "image_tokens": Image(tokenised=True),
    "image_15k": Image(train=15_000, test=5_000),
    "image8": Image(side=8),
    "image16": Image(side=16),
}
EXAMPLES: tuple[Task, ...] = (
    Image(train=100, test=40),
    Image(tokenised=True, train=50, test=20),
    Image(train=50, test=20, side=8),
)
