"""Finds exact and near duplicates within a split and across splits.

    found = search(task.input, splits)
    found.exact["train+test"]       # 123: sequences that are in both
    found.near["test in train"]     # test examples that have a near duplicate in train

Exact duplicates have the same values, by 128-bit hash. Near duplicates reach the threshold of a measure that depends on
the kind of input. Symbols: a Jaccard similarity of shingles of at least 0.8 (`minhash.py`). Square pictures of bytes: a
correlation of at least 0.97 between their 8 x 8 means, every channel centred. Other signals: a correlation of at least
0.95. An exact duplicate is a near one too. Every counted pair has been measured; a pair at the threshold is missed once
in 10,000, since candidates must share a band of their signatures, or be similar in a coarse projection.

On the first 15,000 train and 5,000 test pictures of CIFAR-10 the measure names 33 test pictures. 17 of them are among
the 51 that people judged to be of one scene there (Barz and Denzler 2020, Do we train on test data?, J. Imaging 6(6)),
who found 3.3 % of all test pictures by the features of a network; most others are of one scene as well. So the count is
about a third of the truth.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement

import numpy as np

from levelfield.spec import SPLITS, Examples, Input, Progress, SplitName, Tokens, no_progress

SIMILAR = 0.8  # Jaccard similarity of sequences of symbols
PICTURES = 0.97  # correlation of 8 x 8 means
SIGNALS = 0.95  # correlation
GRID = 8
PROJECTED = 64  # dimensions of a coarse projection of signals, which gives correlations to about 1/8
BAND = 4  # values of a signature that two candidates share
NEIGHBOURS = 32  # how many examples before it a candidate is compared with in a band, which thousands may share
CANDIDATES = 2_000_000  # pairs that share a band, beyond which no further neighbours are taken
MEASURED = 200_000  # the most pairs that are compared shingle by shingle
LIMIT = 60_000  # the most pictures or signals of a split that are searched for near duplicates


@dataclass(frozen=True)
class Duplicates:
    """Counts of duplicates; the fields are stored under these names.

    exact: "train" -> examples that repeat an earlier one; "train+test" -> different sequences that are in both.
    documents: the same for single inputs, where an example has several. near: "test in train" -> examples of test with
    a near duplicate in train. conflicts: sequences that come with different targets. measure: what near means.
    """

    exact: Mapping[str, int]
    documents: Mapping[str, int]
    near: Mapping[str, int]
    conflicts: int
    measure: str


def search(kind: Input, arrays: Mapping[SplitName, Examples], progress: Progress = no_progress) -> Duplicates:
    """Counts everything.

    It takes about 20 s of one core for 60,000 colour pictures of 32 x 32, as for 100,000 sequences of 1,000 symbols.
    """
    splits: dict[str, Examples] = {split: arrays[split] for split in SPLITS}
    keys = {split: hashed(examples, examples.documents) for split, examples in splits.items()}
    pairs = splits["train"].documents > 1
    single: dict[str, np.ndarray] = {s: hashed(e, 1) for s, e in splits.items()} if pairs else {}
    if isinstance(kind, Tokens):
        near, measure = _near_symbols(splits, progress)
    else:
        near, measure = _near_signals(splits, progress)
    return Duplicates(repeats(keys), repeats(single), near, _conflicts(splits, keys), measure)


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


def _flags(pairs: Sequence[tuple[int, int]], sizes: Mapping[str, int]) -> np.ndarray:
    owner = np.repeat(np.arange(len(sizes)), list(sizes.values()))
    flags = np.zeros((len(owner), len(sizes)), bool)
    for i, j in pairs:
        flags[i, owner[j]] = flags[j, owner[i]] = True
    return flags


def _near_symbols(splits: Mapping[str, Examples], progress: Progress) -> tuple[dict[str, int], str]:
    from levelfield.data.minhash import jaccard, signatures

    ends = {split: examples.offsets[:: examples.documents] for split, examples in splits.items()}
    parts = []
    for done, (split, examples) in enumerate(splits.items()):
        progress("signatures", done, len(splits))
        parts.append(signatures(np.asarray(examples.x), ends[split]))
    progress("signatures", len(splits), len(splits))
    of = [(split, i) for split in splits for i in range(len(splits[split]))]

    def sequence(number: int) -> np.ndarray:
        split, i = of[number]
        return np.asarray(splits[split].x[ends[split][i] : ends[split][i + 1]])

    sizes = {split: len(examples) for split, examples in splits.items()}
    pairs, agreement = candidates(np.concatenate(parts))
    measure = f"Jaccard similarity of shingles >= {SIMILAR}"
    if len(pairs) > MEASURED:
        kept = pairs[agreement >= SIMILAR].tolist()
        return _counts(_flags(kept, sizes), sizes), f"{measure}, estimated from signatures as very many are similar"
    kept = []
    for done, (i, j) in enumerate(pairs.tolist()):
        if jaccard(sequence(i), sequence(j)) >= SIMILAR:
            kept.append((i, j))
        if done % 1000 == 0:
            progress("near duplicates", done, len(pairs))
    return _counts(_flags(kept, sizes), sizes), measure


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


def _near_signals(splits: Mapping[str, Examples], progress: Progress) -> tuple[dict[str, int], str]:
    used = {split: min(len(examples), LIMIT) for split, examples in splits.items()}
    side = _side(splits)
    if side:
        views = np.concatenate([_small(examples, used[split], side) for split, examples in splits.items()])
        flags = _similar_pictures(views, used, progress)
        measure = f"correlation of {GRID} x {GRID} means >= {PICTURES}"
    else:
        views = np.concatenate([_projected(examples, used[split]) for split, examples in splits.items()])
        of = [(splits[split], i) for split in splits for i in range(used[split])]
        rough = _rough(views, SIGNALS - 0.3, progress)
        flags = _flags([(i, j) for i, j in rough if _correlation(*of[i], *of[j]) >= SIGNALS], used)
        measure = f"correlation >= {SIGNALS}"
    cut = any(used[split] < len(examples) for split, examples in splits.items())
    return _counts(flags, used), measure + (f", of the first {LIMIT:,} examples of a split" if cut else "")


def _side(splits: Mapping[str, Examples]) -> int:
    """The side of square pictures of bytes; 0 where the sequences are none."""
    lengths = np.unique(np.concatenate([examples.lengths for examples in splits.values()]))
    side = math.isqrt(int(lengths[0]))
    picture = len(lengths) == 1 and side * side == lengths[0] and side % GRID == 0
    return side if picture and all(examples.x.dtype == np.uint8 for examples in splits.values()) else 0


def _small(examples: Examples, count: int, side: int) -> np.ndarray:
    """Block means of pictures, each channel centred: (count, GRID * GRID * channels) float32 of unit length."""
    step = side // GRID
    out = np.empty((count, GRID * GRID * examples.x.shape[1]), np.float32)
    for first in range(0, count, 1024):
        last = min(first + 1024, count)
        block = examples.x[first * side * side : last * side * side].astype(np.float32)
        means = block.reshape(last - first, GRID, step, GRID, step, -1).mean((2, 4))
        out[first:last] = (means - means.mean((1, 2), keepdims=True)).reshape(last - first, -1)
    return _unit(out)


def _projected(examples: Examples, count: int) -> np.ndarray:
    """A random projection of each standardised signal: (count, PROJECTED) float32 of unit length."""
    longest = int(examples.lengths.max())
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((longest, examples.x.shape[1], PROJECTED), np.float32)
    rows = [np.tensordot(_standard(examples, i), matrix[: examples.lengths[i]], 2) for i in range(count)]
    return _unit(np.stack(rows))


def _standard(examples: Examples, index: int) -> np.ndarray:
    """A sequence as (T, C) float32, each channel centred and all of unit length."""
    x = np.asarray(examples.sequence(index), np.float32)
    x = x - x.mean(0)
    return x / max(float(np.linalg.norm(x)), 1e-12)


def _correlation(a: Examples, i: int, b: Examples, j: int) -> float:
    left, right = _standard(a, i), _standard(b, j)
    return float((left * right).sum()) if left.shape == right.shape else 0.0


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def _similar_pictures(views: np.ndarray, sizes: Mapping[str, int], progress: Progress) -> np.ndarray:
    """The flags of pictures, (N, splits), from all pairs of rows; any number of them may be similar."""
    owner = np.repeat(np.arange(len(sizes)), list(sizes.values()))
    flags = np.zeros((len(views), len(sizes)), bool)
    for first, hits in _blocks(views, PICTURES, progress):
        rows, columns = owner[first : first + len(hits)], owner[first:]
        for split in range(len(sizes)):
            flags[first : first + len(hits), split] |= hits[:, columns == split].any(1)
            flags[first:, split] |= hits[rows == split].any(0)
    return flags


def _rough(views: np.ndarray, least: float, progress: Progress) -> Iterator[tuple[int, int]]:
    """Pairs i < j of rows whose product is at least `least`; of one i no more than its first NEIGHBOURS."""
    for first, hits in _blocks(views, least, progress):
        for i in np.flatnonzero(hits.any(1)).tolist():
            for j in np.flatnonzero(hits[i, i + 1 :])[:NEIGHBOURS].tolist():
                yield first + i, first + i + 1 + j


def _blocks(views: np.ndarray, least: float, progress: Progress) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (first, hits), 512 rows at a time: which rows from `first` on each of them is similar to, itself aside."""
    for first in range(0, len(views), 512):
        hits = views[first : first + 512] @ views[first:].T >= least
        np.fill_diagonal(hits, False)
        yield first, hits
        progress("near duplicates", min(first + 512, len(views)), len(views))
