"""Signals become symbols by levels of the training split, before rules that count symbols read them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from toy_audits import Known

from levelfield.data.audit.features import Vocabulary, level_edges
from levelfield.data.audit.shallow import PROBES, score
from levelfield.spec import Examples, Label, Signal


def test_a_signal_is_cut_into_levels_that_are_equally_full() -> None:
    x = np.random.default_rng(0).exponential(size=(4_000, 1))
    task = replace(Known(), rule="first")
    object.__setattr__(task, "train", 1)  # any task: only its input is asked

    class Wave(Known):
        input = Signal(1, (0.0,), (1.0,))  # pyright: ignore[reportAssignmentType,reportIncompatibleMethodOverride]

    split = Examples.of_equal_length(x[:, None], np.zeros(4_000))
    codes = Vocabulary.of(Wave(), split).codes(split)
    assert np.bincount(codes).tolist() == [250] * 16


def test_levels_are_found_wherever_in_a_sequence_the_values_are() -> None:
    """Of 200,000 sequences of 20 steps one step in 20 is looked at: at equal distances, always the first of each."""
    x = np.zeros((200_000, 20, 1), np.float32)
    x[:, 1:] = np.random.default_rng(0).random((200_000, 19, 1), np.float32)
    split = Examples.of_equal_length(x, np.zeros(200_000))

    class Wave(Known):
        input = Signal(1, (0.0,), (1.0,))  # pyright: ignore[reportAssignmentType,reportIncompatibleMethodOverride]

    codes = Vocabulary.of(Wave(), split).codes(split).reshape(-1, 20)
    assert np.unique(codes[:, 0]).size == 1 and np.bincount(codes[:, 1:].ravel())[1:].min() > 0.9 * codes.size / 16


def test_a_value_that_fills_a_level_is_one_and_the_others_share_the_rest() -> None:
    rng = np.random.default_rng(0)
    events = np.where(rng.random(4_000) < 0.9, 0.0, rng.normal(size=4_000))
    codes = np.searchsorted(level_edges(events, 16), events, side="right")
    assert set(codes[events == 0]).isdisjoint(codes[events != 0])
    counts = np.bincount(codes[events != 0])
    assert 15 <= np.count_nonzero(counts) <= 16 and counts.max() < 1.2 * (events != 0).sum() / 15
    few = rng.choice([0.0, 1.0, 5.0], 4_000, p=[0.95, 0.04, 0.01])
    assert np.unique(np.searchsorted(level_edges(few, 2), few, side="right")[few > 0]).size == 1, (
        "three values, two levels"
    )
    assert np.unique(np.searchsorted(level_edges(few, 3), few, side="right")).size == 3
    smooth = rng.normal(size=4_000)
    assert level_edges(smooth, 16) == pytest.approx(np.quantile(smooth, np.arange(1, 16) / 16))


def test_symbols_that_are_channels_of_zeros_and_ones_are_read() -> None:
    """Eight channels of which one is on: each is off in seven steps of eight, so that plain quantiles are all zero."""
    symbols = np.random.default_rng(0).integers(8, size=(900, 12))
    parts = {"train": slice(0, 600), "val": slice(600, 700), "test": slice(700, 900)}
    splits = {name: Examples.of_equal_length(np.eye(8)[symbols[p]], symbols[p, 0]) for name, p in parts.items()}

    class OneHot(Known):
        input = Signal(8, (0.0,) * 8, (1.0,) * 8)  # pyright: ignore[reportAssignmentType,reportIncompatibleMethodOverride]
        output = Label(8)  # pyright: ignore[reportAssignmentType,reportIncompatibleMethodOverride]

    assert score(OneHot(), splits, PROBES["first 1"]).test.mean() == 1.0  # pyright: ignore[reportArgumentType]
    assert score(OneHot(), splits, PROBES["length"]).test.mean() < 0.3  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("channel", [0, 7, 8, 11])
def test_each_of_many_channels_is_read(channel: int) -> None:
    x = np.random.default_rng(0).normal(size=(1_200, 6, 12))
    y = (x[:, 0, channel] > 0).astype(np.int64)
    parts = {"train": slice(0, 800), "val": slice(800, 900), "test": slice(900, 1_200)}
    splits = {name: Examples.of_equal_length(x[p], y[p]) for name, p in parts.items()}

    class Many(Known):
        input = Signal(12, (0.0,) * 12, (1.0,) * 12)  # pyright: ignore[reportAssignmentType,reportIncompatibleMethodOverride]

    assert score(Many(), splits, PROBES["first 1"]).test.mean() > 0.85  # pyright: ignore[reportArgumentType]
    assert score(Many(), splits, PROBES["last 1"]).test.mean() < 0.6  # pyright: ignore[reportArgumentType]
    assert score(Many(), splits, PROBES["length"]).test.mean() < 0.6  # pyright: ignore[reportArgumentType]
