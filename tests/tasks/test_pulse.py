"""Pulse: the rate is in the distance of beats, and in no statistic of single samples."""

from __future__ import annotations

import numpy as np
import pytest

from levelfield.spec import UserError
from levelfield.tasks.pulse import RATE, Pulse


def rate(spikes: np.ndarray) -> float:
    """Beats per minute of a second channel without noise, (T,): spikes are the maxima above a third of the highest."""
    inner = spikes[1:-1]
    peaks = 1 + np.flatnonzero((inner > spikes[:-2]) & (inner >= spikes[2:]) & (inner > spikes.max() / 3))
    return 60 * RATE * (len(peaks) - 1) / (peaks[-1] - peaks[0])


def test_counting_spikes_gives_the_target() -> None:
    test = Pulse(seconds=32, noise=0.0, jitter=0.0, train=2, val=2, test=60).build(None)["test"]
    counted = np.array([rate(test.sequence(i)[:, 1]) for i in range(len(test))])
    np.testing.assert_allclose(2 * (counted - 45) / 75 - 1, test.y[:, 0], atol=0.03)


def test_no_moment_of_the_signal_gives_the_target_away() -> None:
    """A linear map of ends, means, deviations and quantiles explains next to nothing of the rate."""
    train = Pulse(train=1_500, val=2, test=2).build(None)["train"]
    x = train.x.reshape(len(train), -1, 2).astype(float)
    parts = [x[:, 0], x[:, -1], x.mean(1), x.std(1), *np.quantile(x, [0.1, 0.5, 0.9], axis=1), np.ones((len(x), 1))]
    table = np.concatenate(parts, axis=1)
    left = train.y[:, 0] - table @ np.linalg.lstsq(table, train.y[:, 0], rcond=None)[0]
    assert left.var() > 0.95 * train.y.var()


def test_other_lengths_are_whole_seconds() -> None:
    assert Pulse().at_length(260, examples=5).max_length == 250
    with pytest.raises(UserError, match="4 or more seconds"):
        Pulse().at_length(80)
    with pytest.raises(UserError, match="jitter"):
        Pulse(jitter=0.5)
    with pytest.raises(UserError, match="at least two"):
        Pulse(test=1)
