"""Finds exact and near duplicates within a split and across splits.

    found = search(task.input, splits)
    found.exact["train+test"]       # 123: sequences that are in both
    found.near["test in train"]     # test examples that have a near duplicate in train

Exact duplicates have the same values, by 128-bit hash, and are near ones too. Other near duplicates reach the threshold
of a measure that depends on the kind of input. Symbols: a Jaccard similarity of shingles of at least 0.8, and of short
sequences so few changes as chance does not explain (`shingled.py`). Square pictures of bytes: a correlation of at least
0.97 between their 8 x 8 means, every channel centred. Other signals: a correlation of at least 0.95, or more where
steps are so few that unrelated ones reach that by chance (`correlated.py`).

What can be missed: no exact duplicate, and no picture among the first 60,000 of a split. Of signals, some where there
are too many to rank them by all their values; `correlated.py` says how often. Of sequences of symbols, a pair at the
threshold that shares no band of its signatures, which is less than one in 10,000; and a pair with more than 32 others
between them in every band that they share, as in tasks of mostly one filler symbol. A band that holds anything of what
sets the two apart from the rest is enough.

On the first 15,000 train and 5,000 test pictures of CIFAR-10 the measure names 33 test pictures. 17 of them are among
the 51 that people judged to be of one scene there (Barz and Denzler 2020, Do we train on test data?, J. Imaging 6(6)),
who found 3.3 % of all test pictures by the features of a network; most others are of one scene as well. So the count is
about a third of the truth.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, combinations_with_replacement

import numpy as np

from levelfield.data import correlated
from levelfield.spec import SPLITS, Examples, Input, Progress, SplitName, Task, Tokens, no_progress


@dataclass(frozen=True)
class Duplicates:
    """Counts of duplicates; the fields are stored under these names.

    exact: "train" -> examples that repeat an earlier one; "train+test" -> different sequences that are in both.
    documents: the same for single inputs, where an example has several. near: "test in train" -> examples of test with
    a near duplicate in train. conflicts: sequences that come with different targets. measure: what near means.
    unjudged: examples with too few steps to tell a near duplicate from chance. leaked: whether each test example has an
    exact or near duplicate in train, (N,) bool, which is not stored.
    """

    exact: Mapping[str, int]
    documents: Mapping[str, int]
    near: Mapping[str, int]
    conflicts: int
    measure: str
    unjudged: int = 0
    leaked: np.ndarray = field(default_factory=lambda: np.zeros(0, bool), compare=False, repr=False)


def of_task(task: Task, splits: Mapping[SplitName, Examples], progress: Progress = no_progress) -> Duplicates:
    """Searches a task's arrays for duplicates, in such forms of them as the task has for it."""
    splits = task.apart or splits
    folded: dict[SplitName, Examples] = {
        split: texts for split in SPLITS if (texts := task.folded(splits[split])) is not None
    }
    return search(task.input, splits, progress, folded=folded or None)


def search(
    kind: Input,
    arrays: Mapping[SplitName, Examples],
    progress: Progress = no_progress,
    *,
    folded: Mapping[SplitName, Examples] | None = None,
) -> Duplicates:
    """Counts everything. folded: the splits as `Task.folded` has them, in which near duplicates are looked for.

    It takes about 20 s of one core for 60,000 colour pictures of 32 x 32, as for 100,000 sequences of 1,000 symbols.
    """
    splits: dict[str, Examples] = {split: arrays[split] for split in SPLITS}
    keys = {split: hashed(examples, examples.documents) for split, examples in splits.items()}
    pairs = splits["train"].documents > 1
    single: dict[str, np.ndarray] = {s: hashed(e, 1) for s, e in splits.items()} if pairs else {}
    flags = _equal(list(keys.values()))
    if folded:
        flags |= _equal([hashed(folded[split], folded[split].documents) for split in SPLITS])
    if isinstance(kind, Tokens):
        from levelfield.data import shingled  # which compiles, and half a second is spared where nothing does

        texts: dict[str, Examples] = {split: folded[split] for split in SPLITS} if folded else splits
        measure, unjudged = shingled.mark(flags, texts, progress), 0
        measure += ", whatever capitals and blanks a text has" if folded else ""
    else:
        measure, unjudged = correlated.mark(flags, splits, progress)
    near = _counts(flags, {split: len(examples) for split, examples in splits.items()})
    conflicts, leaked = _conflicts(splits, keys), flags[len(flags) - len(splits["test"]) :, 0]
    return Duplicates(repeats(keys), repeats(single), near, conflicts, measure, unjudged=unjudged, leaked=leaked)


def hashed(examples: Examples, documents: int) -> np.ndarray:
    """The hash of each example's values and of where its inputs end: (N,) of 16 bytes, the same for any type of x."""
    values, offsets, steps = np.asarray(examples.x), examples.offsets[::documents], examples.lengths
    out = np.empty(len(offsets) - 1, "V16")
    for i in range(len(out)):
        state = hashlib.blake2b(steps[i * documents : (i + 1) * documents - 1].tobytes(), digest_size=16)
        state.update(_content(values[offsets[i] : offsets[i + 1]]))
        out[i] = np.void(state.digest())
    return out


def _content(values: np.ndarray) -> bytes:
    """Returns what equal values have in common, whatever type holds them: a byte each where that is enough."""
    if values.dtype == np.uint8:
        return b"small" + values.tobytes()
    with np.errstate(invalid="ignore"):
        small = values.astype(np.uint8)
    if np.array_equal(small, values):
        return b"small" + small.tobytes()
    return b"wide" + (values.astype(np.float64) + 0.0).tobytes()  # -0.0 is 0.0


def repeats(keys: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Counts repeated keys within each split, and keys that each pair of splits shares."""
    sets = {split: set(found.tolist()) for split, found in keys.items()}
    within = {split: len(found) - len(sets[split]) for split, found in keys.items()}
    return within | {f"{a}+{b}": len(sets[a] & sets[b]) for a, b in combinations(keys, 2)}


def _conflicts(splits: Mapping[str, Examples], keys: Mapping[str, np.ndarray]) -> int:
    """Counts the keys that come with different targets, in whichever split."""
    _, which = np.unique(np.concatenate([keys[split] for split in splits]), return_inverse=True)
    targets = np.concatenate([_targets(examples) for examples in splits.values()])
    _, target = np.unique(targets, axis=0, return_inverse=True)
    pairs = np.unique(which * len(targets) + target.reshape(-1))
    return int((np.bincount(pairs // len(targets)) > 1).sum())


def _targets(examples: Examples) -> np.ndarray:
    """Returns what is the same for equal targets alone, a row for each example."""
    if examples.stepwise:
        keys = hashed(replace(examples, x=np.asarray(examples.y)), examples.documents)
        return keys.view(np.int64).reshape(-1, 2)
    return np.asarray(examples.y).reshape(len(examples), -1)


# Near duplicates. The examples of all splits are numbered end to end; flags, (N, splits), say whether an example has
# one in a split.


def _counts(flags: np.ndarray, sizes: Mapping[str, int]) -> dict[str, int]:
    ends = np.cumsum(list(sizes.values()))
    order = combinations_with_replacement(enumerate(sizes), 2)
    return {f"{b} in {a}": int(flags[ends[j] - sizes[b] : ends[j], i].sum()) for (i, a), (j, b) in order}


def _equal(keys: Sequence[np.ndarray]) -> np.ndarray:
    """The flags of exact duplicates, (N, splits), from the keys of each split's examples."""
    owner = np.repeat(np.arange(len(keys)), [len(found) for found in keys])
    unique, which = np.unique(np.concatenate(keys), return_inverse=True)
    counts = np.zeros((len(unique), len(keys)), np.int64)
    np.add.at(counts, (which, owner), 1)
    counts = counts[which]
    counts[np.arange(len(owner)), owner] -= 1  # itself
    return counts > 0
