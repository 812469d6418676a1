"""Pathfinder: are the two markers in this picture the ends of one dashed contour? Row by row, pixel by pixel.

                .  - -   o                   Two long contours, short distractors, two markers (o).
              -        - /  .  -             Label 1: both markers end the same contour; 0: they do not.
            o    _  -  o    -     -
                                             32 x 32 pixels (1,024 steps) is `pathfinder`, 128 x 128 (16,384) `pathx`,
                                             256 x 256 (65,536) `pathx256`.

    Pathfinder(size=32, difficulty="hard").build(None)["train"]     # draws 160,000 images, about a minute of one core

`origin="official"` reads the files of Long Range Arena. "generated" draws new images with the same algorithm and
parameters, because the release is no longer easy to find and its generator no longer runs. docs/pathfinder.md shows
them.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from levelfield.spec import (
    SPLITS,
    Archive,
    Examples,
    Input,
    Label,
    Output,
    Progress,
    Signal,
    SplitName,
    Task,
    Tokens,
    UserError,
    derive_seed,
    no_progress,
)
from levelfield.tasks._pathfinder import draw as drawing
from levelfield.tasks._pathfinder import release
from levelfield.tasks._pathfinder.settings import DIFFICULTIES, SIZES, Difficulty, parameters

if TYPE_CHECKING:
    from torch import Generator, Tensor

NAMES = {16: "pathfinder16", 32: "pathfinder", 64: "pathfinder64", 128: "pathx", 256: "pathx256"}
IN_MEMORY = 1 << 30  # bytes of pixels; a larger split is built in an unnamed temporary file


@dataclass(frozen=True)
class Pathfinder(Task):
    """Binary classification of gray images, flattened row by row.

    difficulty: paddles in a long contour, 14 (hard), 9 or 6. sets: "three" trains on all three difficulties, `train`
    images of each, with validation and test on hard (miralles2025, section 3). tokenised: 256 unordered symbols (as in
    Long Range Arena) instead of one number per pixel in [-1, 1] (amos2025 and most others). origin: "official" splits
    the release 80/10/10; train, val and test are then upper limits.
    """

    size: int = 32
    difficulty: Difficulty = "hard"
    sets: Literal["one", "three"] = "one"
    train: int = 160_000
    val: int = 20_000
    test: int = 20_000
    seed: int = 0
    origin: Literal["generated", "official"] = "generated"
    tokenised: bool = False

    padded: ClassVar[bool] = False
    version: ClassVar[int] = 2
    source: ClassVar[str] = (
        "Linsley et al. 2018 (arXiv:1805.08315) and Kim et al. 2020; Tay et al. 2021 (Long Range Arena, Apache 2.0)\n"
        "generated: drawn by levelfield with the Arena's parameters for github.com/drewlinsley/pathfinder (MIT)"
    )
    licence: ClassVar[str] = "https://spdx.org/licenses/Apache-2.0"
    split_rule: ClassVar[str] = (
        "generated: each split has its own seeds, and no image is drawn twice; official: 80/10/10 of each set by a "
        "permutation of the metadata's order seeded with `seed`; with three sets, validation and test are hard only "
        "and the easy and intermediate images of their shares are dropped"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        parameters(self.size, self.difficulty)
        if self.sets == "three" and self.difficulty != "hard":
            raise UserError("sets='three' validates and tests on the hard set: leave difficulty at 'hard'.")
        if min(self.train, self.val, self.test) < 1:
            raise UserError("Pathfinder needs at least one image in each of train, val and test.")
        if self.origin == "official" and self.size == 16:
            raise UserError("There is no official Pathfinder of size 16: choose origin='generated'.")

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return NAMES[self.size]

    @property
    def archives(self) -> tuple[Archive, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return release.RELEASE if self.origin == "official" else ()

    @property
    def input(self) -> Input:
        return Tokens(256) if self.tokenised else Signal(1, shift=(127.5,), scale=(127.5,), levels=256)

    @property
    def output(self) -> Output:
        return Label(2)

    @property
    def max_length(self) -> int:
        return self.size * self.size

    @property
    def chance(self) -> float:
        return 0.5

    def at_length(self, length: int, examples: int | None = None) -> Task:
        """Returns another image size. Raises UserError unless `length` is its number of pixels."""
        size = math.isqrt(max(length, 0))
        if size * size != length or size not in SIZES:
            lengths = ", ".join(str(s * s) for s in SIZES)
            raise UserError(f"{self.name} has square images: choose one of the lengths {lengths}, not {length}.")
        task = replace(self, size=size)
        return task if examples is None else replace(task, train=examples, val=examples, test=examples)

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        if self.origin == "official":
            return self._read(release.find_release(sources, self.size, self._parts("train"), progress), progress)
        return self._draw(progress)

    def _parts(self, split: SplitName) -> tuple[Difficulty, ...]:
        """Returns the sets that a split consists of, the hard one last."""
        return DIFFICULTIES if split == "train" and self.sets == "three" else (self.difficulty,)

    def _draw(self, progress: Progress) -> dict[SplitName, Examples]:
        seen: set[int] = set()
        splits: dict[SplitName, Examples] = {}
        counts = {"train": self.train, "val": self.val, "test": self.test}
        for split in SPLITS:
            parts, count = self._parts(split), counts[split]
            images = _pixels(count * len(parts), self.max_length)
            facts = [
                drawing.fill(
                    parameters(self.size, part), block, self.seed, f"{split} {part}", seen=seen, progress=progress
                )
                for part, block in zip(parts, images.reshape(len(parts), count, -1), strict=True)
            ]
            distance = np.concatenate([f.distance for f in facts]) // (self.size / 8) * (self.size / 8)
            turning = np.concatenate([f.turning for f in facts]) // 90 * 90
            slices = {"distance": distance.astype(np.int16), "turning": turning.astype(np.int16)}
            splits[split] = self._examples(images, [f.labels for f in facts], parts, slices)
        return splits

    def _read(self, root: Path, progress: Progress) -> dict[SplitName, Examples]:
        chosen: dict[SplitName, list[tuple[Difficulty, list[release.Listed]]]] = {split: [] for split in SPLITS}
        for part in self._parts("train"):
            listed = release.list_images(root, part)
            order = np.random.default_rng(derive_seed(self.seed, "split", part)).permutation(len(listed))
            ends = {"train": len(listed) * 8 // 10, "val": len(listed) * 9 // 10, "test": len(listed)}
            begin, limits = 0, {"train": self.train, "val": self.val, "test": self.test}
            for split in SPLITS:
                if part in self._parts(split):
                    end = min(ends[split], begin + limits[split])
                    chosen[split].append((part, [listed[i] for i in order[begin:end]]))
                begin = ends[split]
        splits: dict[SplitName, Examples] = {}
        for split, parts in chosen.items():
            if not all(files for _, files in parts):
                raise UserError(f"{root} holds too few images for a {split} split: unpack the whole release.")
            images = _pixels(sum(len(files) for _, files in parts), self.max_length)
            labels, begin = [], 0
            for part, files in parts:
                into = images[begin : begin + len(files)]
                labels.append(release.read_images(files, into, f"{split} {part}", progress))
                begin += len(files)
            splits[split] = self._examples(images, labels, tuple(part for part, _ in parts), {})
        return splits

    def _examples(
        self, images: np.ndarray, labels: list[np.ndarray], parts: tuple[Difficulty, ...], slices: dict[str, np.ndarray]
    ) -> Examples:
        """Builds the examples of a split. images: (n, size * size) uint8, set after set. labels: one array per set."""
        counts = [len(y) for y in labels]
        lengths = [parameters(self.size, part).contour for part in parts]
        columns = {"difficulty": np.repeat(parts, counts), "contour": np.repeat(lengths, counts).astype(np.int16)}
        x = images if self.tokenised else images[:, :, None]
        return Examples.of_equal_length(x, np.concatenate(labels), columns | slices)

    @property
    def augmentation(self) -> str | None:
        return "a random one of the square's 8 symmetries (flips and quarter turns) per image"

    def augment(self, x: Tensor, lengths: Tensor, generator: Generator) -> Tensor:
        """Applies a random one of the 8 symmetries of a square. x: (B, T) or (B, T, 1)."""
        import torch

        image = x.reshape(len(x), self.size, self.size)
        toss = torch.rand(3, len(x), 1, 1, generator=generator, device=generator.device).to(x.device) < 0.5
        image = torch.where(toss[0], image.flip(1), image)
        image = torch.where(toss[1], image.flip(2), image)
        image = torch.where(toss[2], image.transpose(1, 2), image)
        return image.reshape(x.shape)

    def hits(self, train: Examples, test: Examples) -> dict[str, np.ndarray]:
        """Answers the label prior, and the commonest label at each distance of the markers (generated images only).

        Values are (tests,) bool: which examples are answered correctly.
        """
        found = super().hits(train, test)
        if "distance" in train.slices:
            votes: dict[int, float] = {}
            for value in np.unique(train.slices["distance"]):
                votes[int(value)] = float(np.mean(train.y[train.slices["distance"] == value]) >= 0.5)
            guess = np.array([votes.get(int(v), 1.0) for v in test.slices["distance"]])
            found["marker_distance"] = guess == test.y
        return found


def _pixels(count: int, length: int) -> np.ndarray:
    """Allocates (count, length) uint8.

    A large array is mapped from an unnamed file in the system's temporary folder (TMPDIR), which vanishes with it, so
    that memory stays bounded. Raises UserError where that folder has no room.
    """
    size = count * length
    if size <= IN_MEMORY:
        return np.empty((count, length), np.uint8)
    room = shutil.disk_usage(tempfile.gettempdir()).free
    if room < size:
        missing = f"{size / 1e9:.1f} GB are needed to build {count} images and {room / 1e9:.1f} GB are free"
        raise UserError(f"{missing} in {tempfile.gettempdir()}: set TMPDIR to a folder with more room.")
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, np.uint8, "w+", shape=(count, length))


TASKS: dict[str, Task] = {
    "pathfinder": Pathfinder(),
    "pathfinder16": Pathfinder(size=16),
    "pathfinder64": Pathfinder(size=64),
    "pathx": Pathfinder(size=128),
    "pathx256": Pathfinder(size=256),
    "pathfinder_official": Pathfinder(origin="official"),
    "pathfinder64_official": Pathfinder(size=64, origin="official"),
    "pathx_official": Pathfinder(size=128, origin="official"),
    "pathx256_official": Pathfinder(size=256, origin="official"),
}
EXAMPLES: tuple[Task, ...] = (
    Pathfinder(size=16, train=48, val=16, test=16),
    Pathfinder(size=32, sets="three", train=16, val=16, test=16),
    Pathfinder(size=32, difficulty="easy", train=32, val=16, test=16, tokenised=True),
)
