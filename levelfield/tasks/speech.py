"""Speech: which of 35 words is spoken, from one second of raw sound, 16,000 samples (Speech Commands v0.02).

    task = Speech()                       # the papers': 84,843 / 9,981 / 11,005 clips, standardised step by step
    task = Speech(steps=2_000)            # the band below 1 kHz at 2 kHz, for a CPU; no paper prints it

Clips are prepared as in amos2025's code, which follows S4's (`src/dataloaders/datasets/sc.py` in not-from-scratch):
samples are divided by 2^15, a shorter clip is padded with zeros, and the result is (x - mean) / (std + 1e-5), with the
mean and deviation of each of the 16,000 steps over the training clips. Clips begin and end quietly, so this amplifies
their ends more than `clip`, the standardisation of each clip by itself. If the audio reader of that code already scales
to [-1, 1], as newer ones do, it divides by 2^15 twice; then 1e-5 exceeds the deviation, and its models read values
several times smaller. Here it is done once. Values are stored as 16-bit floats, which are within 0.05 % of the exact
ones.

Printed numbers (table 3) are for a causal and a bidirectional model. This is a property of the model, not of the task.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from levelfield.spec import SPLITS, Archive, Examples, Label, Progress, Signal, SplitName, Task, UserError, no_progress
from levelfield.tasks._speech import files

PAGE = "https://www.tensorflow.org/datasets/catalog/speech_commands"
NAMES = {16_000: "speech", 4_000: "speech_4k", 2_000: "speech_2k"}
STYLES = {"step": "", "clip": "_clip", "none": "_plain"}
FULL_SCALE = 2.0**15
EPS = 1e-5
IN_MEMORY = 1 << 30  # bytes; a larger split is built in an unnamed temporary file
ROWS = 64  # clips that are processed at a time
LARGEST = float(np.finfo(np.float16).max)


@dataclass(frozen=True)
class Speech(Task):
    """One second of one word.

    Prepared, the whole set takes 3.4 GB (0.42 GB with 2,000 steps). A split of more than 1 GB needs as much room in the
    system's temporary folder while it is made.

    steps: 16,000 samples, or a fraction 1/n of them after a low-pass filter. standardise: each step over the training
    clips (the papers'), each clip by itself, or none but the division by 2^15. train, val, test: clips; where fewer
    than in the release, the first by the SHA-1 of their names.
    """

    steps: int = files.RATE
    standardise: Literal["step", "clip", "none"] = "step"
    train: int = 84_843
    val: int = 9_981
    test: int = 11_005

    version: ClassVar[int] = 1
    padded: ClassVar[bool] = False
    source: ClassVar[str] = (
        "Warden 2018, Speech Commands (arXiv 1804.03209), version 0.02. Licence: Creative Commons BY 4.0."
    )
    licence: ClassVar[str] = "https://spdx.org/licenses/CC-BY-4.0"
    split_rule: ClassVar[str] = (
        "validation_list.txt and testing_list.txt of the release, the other clips train; where both lists are absent, "
        "by the hash of the speaker in the release's README, which agrees with them. No speaker is in two splits. "
        "_background_noise_ is left out"
    )
    archives: ClassVar[tuple[Archive, ...]] = (
        Archive(
            files.ARCHIVE,
            (
                f"http://download.tensorflow.org/data/{files.ARCHIVE}",
                f"https://storage.googleapis.com/download.tensorflow.org/data/{files.ARCHIVE}",
            ),
            sha256="af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
            md5="6b74f3901214cb2c2934e98196829835",
            bytes=2_428_923_189,
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps not in NAMES:
            raise UserError(f"Speech has {', '.join(f'{n:,}' for n in NAMES)} steps, not {self.steps:,}.")
        if min(self.train, self.val, self.test) < 1:
            raise UserError("Speech needs at least one clip in each of train, val and test.")
        if self.standardise == "step" and self.train < 2:
            raise UserError("Speech standardises each step over the training clips: take two or more.")

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return NAMES[self.steps] + STYLES[self.standardise]

    @property
    def input(self) -> Signal:
        return Signal(1, shift=(0.0,), scale=(FULL_SCALE if self.standardise == "none" else 1.0,))

    @property
    def output(self) -> Label:
        return Label(len(files.WORDS))

    @property
    def max_length(self) -> int:
        return self.steps

    @property
    def chance(self) -> float:
        return 1 / len(files.WORDS)

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        at = files.find(sources, self.name, PAGE)
        names = self._chosen(files.survey(at, progress), at)
        sound, lengths = self._read(at, names, progress)
        if self.standardise == "step":
            mean, scale = step_statistics(sound["train"])
            sound = {split: _as_floats(x, mean, scale) for split, x in sound.items()}
        elif self.standardise == "clip":
            sound = {split: _as_floats(x) for split, x in sound.items()}
        known = {files.speaker(name) for name in names["train"]}
        splits: dict[SplitName, Examples] = {}
        for split in SPLITS:
            slices = _slices(names[split], lengths[split], known)
            labels = np.array([files.WORDS.index(word) for word in slices["word"]], np.int64)
            splits[split] = Examples.of_equal_length(sound[split][..., None], labels, slices)
        return splits

    def _chosen(self, found: files.Survey, at: Path) -> dict[SplitName, tuple[str, ...]]:
        counts: dict[SplitName, int] = {"train": self.train, "val": self.val, "test": self.test}
        have = {split: len(found.names[split]) for split in SPLITS}
        if any(have[split] < counts[split] for split in SPLITS):
            wanted = ", ".join(f"{have[split]:,} of {counts[split]:,} {split}" for split in SPLITS)
            given = ", ".join(f"{split}={have[split]}" for split in SPLITS)
            part = f", or take a part with Speech({given})" if min(have.values()) >= 1 < have["train"] else ""
            raise UserError(f"{at} holds {wanted} clips: get the whole release{part}.")
        return {split: found.names[split][: counts[split]] for split in SPLITS}

    def _read(
        self, at: Path, names: Mapping[SplitName, tuple[str, ...]], progress: Progress
    ) -> tuple[dict[SplitName, np.ndarray], dict[SplitName, np.ndarray]]:
        """Reads the sound of each split, (clips, steps) int16, and the number of samples of each clip, (clips,)."""
        place: dict[str, tuple[SplitName, int]] = {n: (s, i) for s in SPLITS for i, n in enumerate(names[s])}
        sound: dict[SplitName, np.ndarray] = {split: _room(len(names[split]), self.steps) for split in SPLITS}
        lengths: dict[SplitName, np.ndarray] = {split: np.zeros(len(names[split]), np.int64) for split in SPLITS}
        held: list[tuple[str, np.ndarray]] = []

        def put() -> None:
            whole = np.zeros((len(held), files.RATE), np.int16)
            for row, (_, samples) in zip(whole, held):
                row[: len(samples)] = samples[: files.RATE]
            for (name, samples), row in zip(held, _at_rate(whole, files.RATE // self.steps)):
                split, index = place[name]
                sound[split][index], lengths[split][index] = row, len(samples)
            held.clear()

        for done, clip in enumerate(files.clips(at, place), start=1):
            held.append(clip)
            if len(held) == ROWS or done == len(place):
                put()
                progress(f"reading clips of {at.name}", done, len(place))
        return sound, lengths


def step_statistics(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Computes mean, and standard deviation + 1e-5, of each step of x / 2^15: (T,) float64 each. x: (N, T) int16.

    The variance is the sum of squares over N - 1.
    """
    total, squares = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    for at in range(0, len(x), ROWS):
        block = x[at : at + ROWS].astype(np.int64)
        total += block.sum(0)
        squares += np.square(block).sum(0)
    variance = (squares - total**2 / len(x)) / (len(x) - 1)
    return total / len(x) / FULL_SCALE, np.sqrt(np.maximum(variance, 0)) / FULL_SCALE + EPS


def _as_floats(x: np.ndarray, mean: np.ndarray | None = None, scale: np.ndarray | None = None) -> np.ndarray:
    """Standardises x, (N, T) int16, into float16 in the same memory.

    mean, scale: (T,), the statistics of each step; None standardises each clip by itself.
    """
    out = x.view(np.float16)
    for at in range(0, len(x), ROWS):
        block = x[at : at + ROWS] / FULL_SCALE
        if mean is None or scale is None:
            values = (block - block.mean(1, keepdims=True)) / (block.std(1, ddof=1, keepdims=True) + EPS)
        else:
            values = (block - mean) / scale
        out[at : at + ROWS] = np.clip(values, -LARGEST, LARGEST)
    return out


def _at_rate(x: np.ndarray, factor: int) -> np.ndarray:
    """Reduces the sampling rate: (N, T) int16 -> (N, T / factor) int16."""
    if factor == 1:
        return x
    from levelfield.tasks._speech.decimate import decimate

    return np.rint(decimate(x, factor)).clip(-FULL_SCALE, FULL_SCALE - 1).astype(np.int16)


def _slices(names: tuple[str, ...], lengths: np.ndarray, known: set[str]) -> dict[str, np.ndarray]:
    """Returns the slices, (N,) each: word, its kind, whether the clip was padded, whether its speaker is in train."""
    words = np.array([name.split("/")[0] for name in names])
    kind = np.where(np.isin(words, files.COMMANDS), "command", np.where(np.isin(words, files.DIGITS), "digit", "other"))
    heard = np.array([files.speaker(name) in known for name in names])
    return {
        "word": words,
        "kind": kind,
        "clip": np.where(lengths < files.RATE, "padded", "whole"),
        "speaker": np.where(heard, "in training", "new"),
    }


def _room(count: int, steps: int) -> np.ndarray:
    """Allocates (count, steps) int16.

    A large array is mapped from an unnamed file in the system's temporary folder (TMPDIR), which vanishes with it, so
    that memory stays bounded. Raises UserError where that folder has no room.
    """
    size = 2 * count * steps
    if size <= IN_MEMORY:
        return np.empty((count, steps), np.int16)
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < size:
        missing = f"{size / 1e9:.1f} GB are needed for {count:,} clips and {free / 1e9:.1f} GB are free"
        raise UserError(f"{missing} in {tempfile.gettempdir()}: set TMPDIR to a folder with more room.")
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, np.int16, "w+", shape=(count, steps))


TASKS: dict[str, Task] = {
    "speech": Speech(),
    "speech_clip": Speech(standardise="clip"),
    "speech_plain": Speech(standardise="none"),
    "speech_4k": Speech(steps=4_000),
    "speech_2k": Speech(steps=2_000),
    "speech_part": Speech(steps=2_000, train=564, val=90, test=130),
}
EXAMPLES: tuple[Task, ...] = (Speech(steps=2_000, train=80, val=20, test=40),)
