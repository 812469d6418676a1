"""The examination of a task tells how far its arrays are while it builds them, and ends that before it says more; and
equal examples are equal, whatever type holds them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from levelfield.data import duplicates
from levelfield.data.audit.facts import leaked
from levelfield.data.findings import examine
from levelfield.spec import Examples, Progress, Signal, SplitName, Tokens
from levelfield.tasks.listops import ListOps


def test_both_builds_tell_how_far_they_are_and_nothing_is_said_meanwhile() -> None:
    opened, closed = 0, 0
    told: list[set[tuple[str, int]]] = []

    @contextmanager
    def shown() -> Iterator[Progress]:
        nonlocal opened, closed
        opened += 1
        told.append(set())
        yield lambda what, done, total: told[-1].add((what, done)) if done == total else None
        closed += 1

    task = ListOps(minimum=10, length=60, max_depth=4, train=60, val=20, test=20)
    for _, fault in examine(task, None, shown):
        assert not fault and opened == closed
    ends = {("drawing test expressions", 20), ("drawing val expressions", 20), ("drawing train expressions", 60)}
    assert len(told) == 2 and ends <= told[0] == told[1]


@pytest.mark.parametrize("types", [(np.int64, np.int32), (np.uint8, np.uint16), (np.uint8, np.float32)])
@pytest.mark.parametrize("most", [200, 1_000])
def test_equal_examples_are_duplicates_whatever_types_hold_them_in_two_splits(
    types: tuple[type[np.generic], type[np.generic]], most: int
) -> None:
    """As where a folder has train/x.npy of other whole numbers than test/x.npy."""
    x = np.random.default_rng(0).integers(min(most, np.iinfo(types[0]).max), size=(12, 40))
    one, other = types
    splits: dict[SplitName, Examples] = {
        "train": Examples.of_sequences(list(x[:9].astype(one)), np.arange(9)),
        "val": Examples.of_sequences(list(x[9:].astype(one)), np.arange(3)),
        "test": Examples.of_sequences(list(x[:4].astype(other)), np.arange(4, dtype=np.int32)),
    }
    signal = other is np.float32
    if signal:
        splits = {name: Examples(each.x[:, None], each.offsets, each.y) for name, each in splits.items()}
    found = duplicates.search(Signal(1, (0.0,), (1.0,)) if signal else Tokens(most), splits)
    assert found.exact["train+test"] == 4 and found.exact["val+test"] == 0
    assert found.conflicts == 0 and leaked(splits) == 1.0


def test_a_number_and_the_bytes_that_hold_it_are_two_examples() -> None:
    bytes_of_it = np.frombuffer(np.float64(1.5).tobytes(), np.uint8)
    first, second = (Examples.of_sequences([row], np.zeros(1)) for row in (np.array([1.5]), bytes_of_it))
    assert duplicates.hashed(first, 1)[0] != duplicates.hashed(second, 1)[0]
