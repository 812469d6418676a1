"""Equal inputs with different targets are counted, whatever targets are, as a dictionary of them would have it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from levelfield.data.duplicates import hashed, search
from levelfield.spec import Examples, SplitName, Tokens

RNG = np.random.default_rng(0)
LENGTH = 6
KINDS: dict[str, Callable[[int], np.ndarray]] = {
    "labels": lambda count: RNG.integers(0, 2, count),
    "sets of labels": lambda count: RNG.integers(0, 2, (count, 3)).astype(np.uint8),
    "numbers": lambda count: RNG.integers(0, 2, (count, 1)) / 3,
    "steps": lambda count: RNG.integers(-1, 1, count * LENGTH),
}


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_with_several_targets_are_counted_whatever_targets_are(kind: str) -> None:
    splits: dict[SplitName, Examples] = {}
    for split, count in (("train", 60), ("val", 9), ("test", 20)):
        x = RNG.integers(0, 2, (count, LENGTH)).astype(np.uint8)  # 64 different ones
        splits[split] = Examples(x.ravel(), np.arange(count + 1) * LENGTH, KINDS[kind](count), stepwise=kind == "steps")
    targets: dict[tuple[int, ...], set[tuple[float, ...]]] = {}
    for examples in splits.values():
        y = np.asarray(examples.y).reshape(len(examples), -1)
        for at, row in enumerate(y.tolist()):
            targets.setdefault(tuple(examples.sequence(at).tolist()), set()).add(tuple(row))
    several = sum(len(found) > 1 for found in targets.values())
    assert search(Tokens(2), splits).conflicts == several > 0


def test_equal_values_have_one_hash_whatever_type_holds_them() -> None:
    rows = RNG.integers(0, 256, (40, LENGTH))
    of = [Examples.of_equal_length(rows.astype(kind), rows[:, 0]) for kind in (np.uint8, np.int64, np.float32, ">u2")]
    assert len({hashed(examples, 1).tobytes() for examples in of}) == 1
    other = Examples.of_equal_length(rows + 256, rows[:, 0])
    assert hashed(other, 1).tobytes() != hashed(of[0], 1).tobytes()
    zeros = [Examples.of_equal_length(np.array([[[zero], [-1.5]]], np.float32), np.zeros(1)) for zero in (0.0, -0.0)]
    assert hashed(zeros[0], 1).tobytes() == hashed(zeros[1], 1).tobytes(), "0.0 and -0.0 are equal"
