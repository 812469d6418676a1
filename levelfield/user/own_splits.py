"""Divides a user's rows into train, val and test: as files or a column say, and by a recorded rule where they do not.

    carve(keys, shares={"test": 0.2}, seed=0)
    completed(given, keys, shares, seed=0)    # what is given stays; where there is no val, a share of train becomes it

Rows with one key, which is their group or else the content of their input, stay together, so that no group, such as a
patient, is on both sides, or without groups no duplicate. Keys are ordered by a hash of the seed and the key, and the
first of them are taken until the share is reached: the same rows give the same splits on every machine.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from levelfield.spec import SPLITS, UserError


def carve(keys: Sequence[bytes], shares: Mapping[str, float], seed: int, group: str = "") -> np.ndarray:
    """Returns the split of each row, (N,) text: those of `shares`, in their order, and "train" for the rest.

    group: the column that keys are of, "" for inputs. Each split is at least one key, and train keeps one. Raises
    UserError where there are too few different keys.
    """
    sizes = Counter(keys)
    wanted = [name for name, share in shares.items() if share > 0]
    if len(sizes) <= len(wanted) and group:
        raise UserError(
            f"{len(wanted) + 1} splits need as many groups, and the column {group} has {len(sizes)} for them: name "
            "one with more with --group, leave --group out, or name the splits with --split."
        )
    if len(sizes) <= len(wanted):
        raise UserError(
            f"{len(wanted) + 1} splits need as many different inputs, and the rows have {len(sizes)}: give more "
            "rows, name the splits with --split, or raise --longest where inputs differ only after it."
        )
    left = deque(sorted(sizes, key=lambda key: hashlib.sha256(b"%d/" % seed + key).digest()))
    chosen: dict[bytes, str] = {}
    for place, name in enumerate(wanted):
        taken, spared = 0, len(wanted) - place  # a key for each later split, and one for train
        while len(left) > spared and (taken == 0 or taken + 0.5 < shares[name] * len(keys)):
            key = left.popleft()
            chosen[key] = name
            taken += sizes[key]
    return np.array([chosen.get(key, "train") for key in keys])


def completed(
    given: np.ndarray, keys: Sequence[bytes], shares: Mapping[str, float], seed: int, group: str = ""
) -> np.ndarray:
    """Returns the split of each row where some splits are given, (N,) text: missing ones are carved from train.

    Raises UserError where nothing is given as train.
    """
    given = given.copy()
    if not (given == "train").any():
        raise UserError("No row is for training: call a split 'train'.")
    lacking = {name: share for name, share in shares.items() if not (given == name).any()}
    if lacking:
        at = np.flatnonzero(given == "train")
        given[at] = carve([keys[i] for i in at.tolist()], lacking, seed, group)
    return given


def shared(split: Sequence[str], groups: Sequence[str]) -> dict[str, int]:
    """Counts groups with rows in both of two splits: {"train+test": 3, ...}. A row of the group "" has none."""
    of = {name: {g for g, s in zip(groups, split, strict=True) if g and s == name} for name in SPLITS}
    return {f"{a}+{b}": len(of[a] & of[b]) for a, b in combinations(SPLITS, 2)}
