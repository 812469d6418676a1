"""Finds near duplicates among sequences of symbols, by the shingles that they share.

    flags = ...                                   # (N, splits): exact duplicates are set already
    mark(flags, splits)                           # "Jaccard similarity of shingles >= 0.8"; near ones are set too

All sequences are compared by shingles of 12 symbols. One change in the middle spoils as many shingles as they are wide,
so that of two sequences below 119 steps which differ by one symbol these leave a similarity below 0.8. So sequences
below 200 steps are near duplicates as well where one symbol in 30 is changed, or one where there are fewer (an edit
distance); narrower shingles say which pairs may be (NARROW).

Where symbols are few or mostly the same, chance alone makes such pairs. How many it makes is measured: halves of
unrelated sequences are joined to new ones, by which whatever two sequences have in common beyond what their halves have
is lost.

    a b c d | e f g h                 a b c d | o p q r
    k l m n | o p q r       ->        k l m n | e f g h

Such pairs count only where there are TIMES as many examples of them in the data as among joined halves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from levelfield.data.minhash import jaccard, pairs_within, signatures
from levelfield.spec import Examples, Progress, no_progress

SIMILAR = 0.8  # Jaccard similarity
SHORT = 200  # steps below which few changes make a near duplicate
NARROW = ((12, SHORT), (5, SHORT), (3, 50))  # symbols of a shingle, and the steps below which it names pairs of them
ALIKE = 0.4  # share of equal values of two signatures from which short sequences are compared
CHANGED = 30  # symbols of a short sequence to one of them that may be changed
DRAWS = 8  # how often halves are joined anew
TIMES = 10  # how many times more examples must be found in the data than among joined halves
LEAST = 3  # examples, as a single pair may be chance where joined halves have none
BAND = 4  # values of a signature that two candidates share
NEIGHBOURS = 32  # how many examples before it a candidate is compared with in a band, which thousands may share
CANDIDATES = 2_000_000  # pairs that share a band, beyond which no further neighbours are taken
PAIRS = "pairs that may be near duplicates"  # whose search is shown
MEASURED = 200_000  # the most pairs that are compared shingle by shingle


class _Part(NamedTuple):
    """Some sequences end to end: x, (total,), and where each begins and the last one ends, (N + 1,)."""

    x: np.ndarray
    ends: np.ndarray

    def sequence(self, at: int) -> np.ndarray:
        return np.asarray(self.x[self.ends[at] : self.ends[at + 1]])


class _Similar(NamedTuple):
    """Pairs of similar sequences, (M, 2), and whether they were told by their signatures alone."""

    pairs: np.ndarray
    estimated: bool


def mark(flags: np.ndarray, splits: Mapping[str, Examples], progress: Progress = no_progress) -> str:
    """Sets flags[i, s] where example i has a near duplicate in the split at place s; returns what near means.

    flags: (N, splits), of the examples of all splits end to end.
    """
    pairs, measure = near_pairs(flags, splits, progress)
    _set(flags, _owner(splits), pairs)
    return measure


def near_pairs(
    exact: np.ndarray, splits: Mapping[str, Examples], progress: Progress = no_progress
) -> tuple[np.ndarray, str]:
    """Returns pairs of near duplicates, (M, 2), by their places among the examples of all splits, and what near means.
    Exact duplicates may be among them. exact: their flags, (N, splits)."""
    parts = [_Part(examples.x, examples.offsets[:: examples.documents]) for examples in splits.values()]
    flags, owner = exact.copy(), _owner(splits)
    wide = _similar(parts, progress)
    _set(flags, owner, wide.pairs)
    measure = f"Jaccard similarity of shingles >= {SIMILAR}"
    measure += ", estimated from signatures as very many are similar" if wide.estimated else ""
    steps = np.concatenate([np.diff(part.ends) for part in parts])
    numbers, again = np.flatnonzero(steps < SHORT), flags.copy()
    short = _gathered(parts, numbers)
    changed = numbers[_hardly_changed(short, progress)]
    _set(again, owner, changed)
    new = int((again & ~flags).any(1).sum())
    if new < LEAST or TIMES * _by_chance(short, new, progress) > new:
        return wide.pairs, measure
    measure += f", or below {SHORT} steps one symbol in {CHANGED} changed, and at least one"
    return np.concatenate([wide.pairs, changed]), measure


def _owner(splits: Mapping[str, Examples]) -> np.ndarray:
    """Returns the place of the split of each example, (N,)."""
    return np.repeat(np.arange(len(splits)), [len(examples) for examples in splits.values()])


def _set(flags: np.ndarray, owner: np.ndarray, pairs: np.ndarray) -> None:
    first, second = pairs.T
    flags[first, owner[second]] = flags[second, owner[first]] = True


def _gathered(parts: Sequence[_Part], numbers: np.ndarray) -> _Part:
    """Returns the sequences of these numbers, which go on from part to part, as one part."""
    firsts = np.cumsum([0, *(len(part.ends) - 1 for part in parts)])
    which = np.searchsorted(firsts, numbers, side="right") - 1
    return _joined([parts[p].sequence(n - firsts[p]) for n, p in zip(numbers, which, strict=True)])


def _joined(rows: Sequence[np.ndarray]) -> _Part:
    ends = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return _Part(np.concatenate(rows) if rows else np.zeros(0, np.uint8), ends)


def _hardly_changed(short: _Part, progress: Progress) -> np.ndarray:
    """Returns the pairs of sequences of which one is the other but for one symbol in CHANGED, (M, 2)."""
    steps, found = np.diff(short.ends), [np.empty((0, 2), np.int64)]
    for width, below in NARROW:
        numbers = np.flatnonzero(steps < below)
        part = _gathered([short], numbers)
        signed = signatures(part.x, part.ends, width)
        others = np.random.default_rng(0).permutation(len(signed))
        if not len(signed) or np.mean(signed == signed[others]) > ALIKE / 2:
            continue  # unrelated sequences have so many shingles of this width in common that these tell none apart
        pairs, agreement = candidates(signed, ALIKE, progress)
        pairs = pairs[np.argsort(-agreement, kind="stable")[:MEASURED]]
        most = np.maximum(1, steps[numbers[pairs]].max(1, initial=0) // CHANGED)
        found.append(numbers[pairs[pairs_within(part.x, part.ends, pairs, most)]])
    return np.concatenate(found)


def _by_chance(short: _Part, new: int, progress: Progress) -> float:
    """Returns how many sequences have a similar one by chance, as a mean over DRAWS, or over fewer where these are too
    many for `new` to count."""
    rng, found = np.random.default_rng(0), 0
    for draw in range(DRAWS):
        progress("pairs that chance makes", draw, DRAWS)
        found += len(np.unique(_hardly_changed(_crossed(short, rng), progress)))
        if TIMES * found > DRAWS * new:
            break
    progress("pairs that chance makes", DRAWS, DRAWS)
    return found / DRAWS


def _crossed(part: _Part, rng: np.random.Generator) -> _Part:
    """Joins the first half of each sequence to the second half of another of nearly its length."""
    lengths = np.diff(part.ends)
    order = np.lexsort((rng.random(len(lengths)), lengths))
    return _joined(
        [
            np.concatenate([part.sequence(a)[: lengths[a] // 2], part.sequence(b)[lengths[b] // 2 :]])
            for a, b in zip(order, np.roll(order, 1), strict=True)
        ]
    )


def _similar(parts: Sequence[_Part], progress: Progress) -> _Similar:
    """Returns the pairs among the sequences of all parts that share enough of the widest shingles."""
    signed = []
    for done, part in enumerate(parts):
        progress("signatures", done, len(parts))
        signed.append(signatures(np.asarray(part.x), part.ends))
    progress("signatures", len(parts), len(parts))
    pairs, agreement = candidates(np.concatenate(signed), progress=progress)
    if len(pairs) > MEASURED:
        return _Similar(pairs[agreement >= SIMILAR], estimated=True)
    of = [(part, at) for part in parts for at in range(len(part.ends) - 1)]
    near = np.zeros(len(pairs), bool)
    for done, (i, j) in enumerate(pairs.tolist()):
        one, other = (part.sequence(at) for part, at in (of[i], of[j]))
        near[done] = jaccard(one, other) >= SIMILAR
        if done % 1000 == 0:
            progress("near duplicates", done, len(pairs))
    progress("near duplicates", len(pairs), len(pairs))
    return _Similar(pairs[near], estimated=False)


def candidates(
    signature: np.ndarray, least: float = SIMILAR - 0.2, progress: Progress = no_progress
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of examples that may be near duplicates, (M, 2), and their shares of equal values, (M,).

    signature: (N, BINS). A pair shares a band and agrees in at least this share of values. In a band,
    an example is paired with the ones before it, nearest first, up to NEIGHBOURS or until CANDIDATES are reached: in
    tasks of mostly one filler symbol nearly all examples share bands.
    """
    progress(PAIRS, 0, NEIGHBOURS)
    bands = [np.ascontiguousarray(signature[:, at : at + BAND]) for at in range(0, signature.shape[1], BAND)]
    keys = [band.view(f"V{band.itemsize * BAND}")[:, 0] for band in bands]
    orders = [np.argsort(key, kind="stable") for key in keys]
    count = len(signature)
    found: list[np.ndarray] = [np.empty(0, np.int64)]  # pairs i < j as i * count + j
    for gap in range(1, NEIGHBOURS + 1):
        progress(PAIRS, gap - 1, NEIGHBOURS)
        for key, order in zip(keys, orders, strict=True):
            ranked = key[order]
            same = np.flatnonzero(ranked[gap:] == ranked[:-gap])
            a, b = order[same], order[same + gap]
            found.append(np.minimum(a, b) * count + np.maximum(a, b))
        if sum(map(len, found)) > CANDIDATES or not any(map(len, found[-len(keys) :])):
            break
    progress(PAIRS, NEIGHBOURS, NEIGHBOURS)
    pairs = np.stack(np.divmod(np.unique(np.concatenate(found)), max(count, 1)), 1)
    parts = np.array_split(pairs, 64)
    agreement = np.concatenate([np.mean(signature[p[:, 0]] == signature[p[:, 1]], axis=1) for p in parts])
    close = agreement >= least
    return pairs[close], agreement[close]
