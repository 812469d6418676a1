"""Pulse: the heart rate in a generated electrocardiogram and photoplethysmogram (regression).

    One channel has a spike at every beat, the other a wave that follows it; both have breathing and noise.

The distance of beats tells the rate, and no statistic of single samples does: spikes and waves are as wide as that
distance in proportion, so that they fill the same share of samples at every rate, and heights, breathing, noise and
phase are independent of it. The width of one beat tells it too, to whoever sees a few samples at once: windows of five,
pooled over the whole sequence, are enough. Single beats come early or late. The task stands in for BIDMC where there
are no official files, and shows within a minute whether a model learns a regression. No paper prints results on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from levelfield.spec import (
    DRAW_ORDER,
    Examples,
    Progress,
    Signal,
    SplitName,
    Task,
    UserError,
    Values,
    derive_seed,
    no_progress,
)

RATE = 25  # samples per second
LOWEST, HIGHEST = 45.0, 120.0  # beats per minute


@dataclass(frozen=True)
class Pulse(Task):
    """Heart rate from generated signals.

    seconds: length of each sequence, at 25 samples per second. noise: its standard deviation, relative to the height of
    a spike. jitter: standard deviation of a beat's time, as a share of the distance of beats. train, val, test:
    sequences.
    """

    seconds: int = 16
    noise: float = 0.1
    jitter: float = 0.03
    train: int = 20_000
    val: int = 1_000
    test: int = 2_000
    seed: int = 0

    name: ClassVar[str] = "pulse"
    version: ClassVar[int] = 1
    padded: ClassVar[bool] = False
    source: ClassVar[str] = "generated; the two channels of BIDMC (Pimentel et al. 2016) with a rate that is known"
    split_rule: ClassVar[str] = "drawn independently, each split from its own seed"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seconds < 4:
            raise UserError(f"Pulse needs three beats at {LOWEST:g} a minute: take 4 or more seconds.")
        if not (self.noise >= 0 and 0 <= self.jitter < 0.2):
            raise UserError("Pulse needs noise of 0 or more, and jitter of 0 or more and below 0.2.")
        if min(self.train, self.val, self.test) < 2:
            raise UserError("Pulse needs at least two sequences in each of train, val and test.")

    @property
    def input(self) -> Signal:
        return Signal(2, shift=(0.0, 0.0), scale=(0.5, 0.5))

    @property
    def output(self) -> Values:
        """The rate, 45 to 120 per minute, scaled to -1 to 1."""
        return Values(1)

    @property
    def max_length(self) -> int:
        return self.seconds * RATE

    @property
    def chance(self) -> float:
        return 0.0

    def at_length(self, length: int, examples: int | None = None) -> Pulse:
        """Returns the task with as many whole seconds as `length` steps hold. Raises UserError for fewer than four."""
        counts = {} if examples is None else {"train": examples, "val": examples, "test": examples}
        return replace(self, seconds=length // RATE, **counts)

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        splits: dict[SplitName, Examples] = {}
        counts: dict[SplitName, int] = {"train": self.train, "val": self.val, "test": self.test}
        for split in DRAW_ORDER:
            count = counts[split]
            rng = np.random.default_rng(derive_seed(self.seed, "pulse", split, self.seconds, self.noise, self.jitter))
            rate = rng.uniform(LOWEST, HIGHEST, count)
            x = np.stack([self._sequence(rng, value) for value in rate])
            y = (2 * (rate - LOWEST) / (HIGHEST - LOWEST) - 1).astype(np.float32)
            slices = {"rate": np.where(rate < 70, "slow", np.where(rate < 95, "middle", "fast"))}
            splits[split] = Examples.of_equal_length(x, y[:, None], slices)
            progress(f"pulse: {split}", count, count)
        return splits

    def _sequence(self, rng: np.random.Generator, rate: float) -> np.ndarray:
        """Draws a sequence, (T, 2) float32: a wave of blood volume and a spike of voltage at each beat."""
        time = np.arange(self.max_length) / RATE
        apart = 60 / rate
        beats = np.arange(-2, self.seconds / apart + 2) + rng.uniform()
        beats = beats + rng.normal(0, self.jitter, len(beats))
        since = time[:, None] / apart - beats  # time since each beat, in beats
        spike = rng.uniform(0.7, 1.3) * np.exp(-np.square(since / rng.uniform(0.06, 0.1))).sum(1)
        wave = rng.uniform(0.3, 0.6) * np.exp(-np.square((since - 0.3) / rng.uniform(0.15, 0.25))).sum(1)
        breath = rng.uniform(0.1, 0.3) * np.sin(2 * np.pi * (time * rng.uniform(0.15, 0.4) + rng.uniform()))
        noise = self.noise * rng.normal(size=(len(time), 2))
        return (np.stack([wave + breath, spike + breath / 3], axis=1) + noise).astype(np.float32)


TASKS: dict[str, Task] = {"pulse": Pulse()}
EXAMPLES: tuple[Task, ...] = (Pulse(seconds=4, train=40, val=10, test=20), Pulse(6, noise=0.3, train=20, val=8, test=8))
