"""Finds exact and near duplicates within a split and across splits.

    found = search(task.input, splits)
    found.exact["train+test"]       # 123: sequences that are in both
    found.near["test in train"]     # test examples that have a near duplicate in train

Exact duplicates have the same values, by 128-bit hash, and are near ones too. Other near duplicates reach the threshold
of a measure that depends on the kind of input. Symbols: a Jaccard similarity of shingles of at least 0.8
(`minhash.py`). Square pictures of bytes: a correlation of at least 0.97 between their 8 x 8 means, every channel
centred. Other signals: a correlation of at least 0.95, or more where steps are so few that unrelated ones reach that by
chance (`correlated.py`).

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
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement

import numpy as np

from levelfield.data import correlated
from levelfield.spec import SPLITS, Examples, Input, Progress, SplitName, Tokens, no_progress

SIMILAR = 0.8  # Jaccard similarity of sequences of symbols
BAND = 4  # values of a signature that two candidates share
NEIGHBOURS = 32  # how many examples before it a candidate is compared with in a band, which thousands may share
CANDIDATES = 2_000_000  # pairs that share a band, beyond which no further neighbours are taken
MEASURED = 200_000  # the most pairs that are compared shingle by shingle


@dataclass(frozen=True)
class Duplicates:
    """Counts of duplicates; the fields are stored under these names.

    exact: "train" -> examples that repeat an earlier one; "train+test" -> different sequences that are in both.
    documents: the same for single inputs, where an example has several. near: "test in train" -> examples of test with
    a near duplicate in train. conflicts: sequences that come with different targets. measure: what near means.
    unjudged: examples with too few steps to tell a near duplicate from chance.
    """

    exact: Mapping[str, int]
    documents: Mapping[str, int]
    near: Mapping[str, int]
    conflicts: int
    measure: str
    unjudged: int = 0


def search(kind: Input, arrays: Mapping[SplitName, Examples], progress: Progress = no_progress) -> Duplicates:
    """Counts everything.

    It takes about 20 s of one core for 60,000 colour pictures of 32 x 32, as for 100,000 sequences of 1,000 symbols.
    """
    splits: dict[str, Examples] = {split: arrays[split] for split in SPLITS}
    keys = {split: hashed(examples, examples.documents) for split, examples in splits.items()}
    pairs = splits["train"].documents > 1
    single: dict[str, np.ndarray] = {s: hashed(e, 1) for s, e in splits.items()} if pairs else {}
    flags = _equal(list(keys.values()))
    if isinstance(kind, Tokens):
        measure, unjudged = _mark_symbols(flags, splits, progress), 0
    else:
        measure, unjudged = correlated.mark(flags, splits, progress)
    near = _counts(flags, {split: len(examples) for split, examples in splits.items()})
    return Duplicates(repeats(keys), repeats(single), near, _conflicts(splits, keys), measure, unjudged=unjudged)


def hashed(examples: Examples, documents: int) -> np.ndarray:
    """The hash of each example's values and of where its inputs end: (N,) of 16 bytes."""
    values, offsets = examples.x, examples.offsets[::documents]
    out = np.empty(len(offsets) - 1, "V16")
    for i in range(len(out)):
        lengths = examples.lengths[i * documents : (i + 1) * documents - 1].tobytes()
        content = np.ascontiguousarray(values[offsets[i] : offsets[i + 1]]).data
        state = hashlib.blake2b(lengths, digest_size=16)
        state.update(content)
        out[i] = np.void(state.digest())
    return out


def repeats(keys: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Counts repeated keys within each split, and keys that each pair of splits shares."""
    sets = {split: set(found.tolist()) for split, found in keys.items()}
    within = {split: len(found) - len(sets[split]) for split, found in keys.items()}
    return within | {f"{a}+{b}": len(sets[a] & sets[b]) for a, b in combinations(keys, 2)}


def _conflicts(splits: Mapping[str, Examples], keys: Mapping[str, np.ndarray]) -> int:
    targets: dict[bytes, set[bytes]] = {}
    for split, examples in splits.items():
        for i, key in enumerate(keys[split].tolist()):
            targets.setdefault(key, set()).add(_target(examples, i))
    return sum(len(found) > 1 for found in targets.values())


def _target(examples: Examples, index: int) -> bytes:
    if not examples.stepwise:
        return examples.y[index].tobytes()
    first, end = examples.offsets[index * examples.documents], examples.offsets[(index + 1) * examples.documents]
    return examples.y[first:end].tobytes()


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


def _mark_symbols(flags: np.ndarray, splits: Mapping[str, Examples], progress: Progress) -> str:
    """Sets the flags of sequences of symbols; returns what near means."""
    from levelfield.data.minhash import jaccard, signatures

    ends = {split: examples.offsets[:: examples.documents] for split, examples in splits.items()}
    parts = []
    for done, (split, examples) in enumerate(splits.items()):
        progress("signatures", done, len(splits))
        parts.append(signatures(np.asarray(examples.x), ends[split]))
    progress("signatures", len(splits), len(splits))
    of = [(split, i) for split in splits for i in range(len(splits[split]))]
    owner = np.repeat(np.arange(len(splits)), [len(examples) for examples in splits.values()])

    def sequence(number: int) -> np.ndarray:
        split, i = of[number]
        return np.asarray(splits[split].x[ends[split][i] : ends[split][i + 1]])

    pairs, agreement = candidates(np.concatenate(parts))
    measure = f"Jaccard similarity of shingles >= {SIMILAR}"
    estimated = len(pairs) > MEASURED
    for done, (i, j) in enumerate(pairs.tolist()):
        near = agreement[done] >= SIMILAR if estimated else jaccard(sequence(i), sequence(j)) >= SIMILAR
        if near:
            flags[i, owner[j]] = flags[j, owner[i]] = True
        if done % 1000 == 0:
            progress("near duplicates", done, len(pairs))
    return f"{measure}, estimated from signatures as very many are similar" if estimated else measure


def candidates(signature: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of examples that may be near duplicates, (M, 2), and their shares of equal values, (M,).

    signature: (N, BINS). A pair shares a band and agrees in nearly as many values as a near duplicate does. In a band,
    an example is paired with the ones before it, nearest first, up to NEIGHBOURS or until CANDIDATES are reached: in
    tasks of mostly one filler symbol nearly all examples share bands.
    """
    bands = [np.ascontiguousarray(signature[:, at : at + BAND]) for at in range(0, signature.shape[1], BAND)]
    keys = [band.view(f"V{band.itemsize * BAND}")[:, 0] for band in bands]
    orders = [np.argsort(key, kind="stable") for key in keys]
    count = len(signature)
    found: list[np.ndarray] = [np.empty(0, np.int64)]  # pairs i < j as i * count + j
    for gap in range(1, NEIGHBOURS + 1):
        for key, order in zip(keys, orders, strict=True):
            ranked = key[order]
            same = np.flatnonzero(ranked[gap:] == ranked[:-gap])
            a, b = order[same], order[same + gap]
            found.append(np.minimum(a, b) * count + np.maximum(a, b))
        if sum(map(len, found)) > CANDIDATES or not any(map(len, found[-len(keys) :])):
            break
    pairs = np.stack(np.divmod(np.unique(np.concatenate(found)), max(count, 1)), 1)
    parts = np.array_split(pairs, 64)
    agreement = np.concatenate([np.mean(signature[p[:, 0]] == signature[p[:, 1]], axis=1) for p in parts])
    close = agreement >= SIMILAR - 0.2
    return pairs[close], agreement[close]
