"""Compiles the search for near duplicates among sequences of symbols: shingles and their signatures.

A shingle is `width` successive symbols, as one hash; there are WIDTH of them where nothing else is said. Two sequences
are as similar as their sets of shingles: the Jaccard similarity, which is the number of shared shingles over the number
of all (Broder 1997, On the resemblance and containment of documents).

    a b c d e f   ->   {abcd, bcde, cdef}     at a width of 4

A signature is BINS minima by one permutation hashing: each shingle falls into one bin, and a bin that stays empty takes
another's minimum (Shrivastava 2017, Optimal densification for fast and accurate minwise hashing). Two signatures agree
in a bin with a probability that is the Jaccard similarity.
"""

from __future__ import annotations

import numpy as np

from levelfield.jit import compiled
from levelfield.jit.splitmix import STEP, mix

WIDTH = 12  # symbols; two or three words of English
BINS = 128

_BASE = STEP  # of the rolling hash: any odd number with bits set all over would do
_EMPTY = np.uint32(0xFFFFFFFF)

_mix = compiled(mix)


@compiled
def shingles(x: np.ndarray, width: int = WIDTH) -> np.ndarray:
    """The hash of every shingle of x: (T,) integers, as (max(T - width, 0) + 1,) uint64.

    Where T is shorter than a shingle, there is one hash, of all of it.
    """
    width = min(len(x), width)
    leaving = np.uint64(1)
    for _ in range(width):
        leaving *= _BASE
    out = np.empty(len(x) - width + 1, np.uint64)
    rolling = np.uint64(0)
    for at in range(len(x)):
        rolling = rolling * _BASE + np.uint64(x[at]) + np.uint64(1)
        if at >= width:
            rolling -= leaving * (np.uint64(x[at - width]) + np.uint64(1))
        if at >= width - 1:
            out[at - width + 1] = _mix(rolling)
    return out


@compiled
def signatures(x: np.ndarray, offsets: np.ndarray, width: int = WIDTH) -> np.ndarray:
    """The signatures of N sequences, (N, BINS) uint32; x: (total,), offsets: (N + 1,)."""
    out = np.full((len(offsets) - 1, BINS), _EMPTY, np.uint32)
    for row in range(len(out)):
        for value in shingles(x[offsets[row] : offsets[row + 1]], width):
            place = np.int64(value % np.uint64(BINS))
            low = np.uint32(value >> np.uint64(32))
            if low < out[row, place]:
                out[row, place] = low
        _fill(out[row])
    return out


@compiled
def _fill(signature: np.ndarray) -> None:
    """Gives every empty bin the minimum of the first full bin on a pseudorandom path that starts at it."""
    full = signature != _EMPTY
    for place in range(BINS):
        step = np.uint64(place)
        at = place
        while not full[at]:
            step = _mix(step + STEP)
            at = np.int64(step % np.uint64(BINS))
        signature[place] = signature[at]


@compiled
def jaccard(a: np.ndarray, b: np.ndarray) -> float:
    """The shared shingles of two sequences over all their shingles; a, b: (T,) symbols of each."""
    left, right = np.unique(shingles(a)), np.unique(shingles(b))
    i = j = shared = 0
    while i < len(left) and j < len(right):
        if left[i] == right[j]:
            shared += 1
            i += 1
            j += 1
        elif left[i] < right[j]:
            i += 1
        else:
            j += 1
    return shared / (len(left) + len(right) - shared)


@compiled
def edits_within(a: np.ndarray, b: np.ndarray, most: int) -> bool:
    """Whether at most so many symbols have to be replaced, left out or put in to make one sequence the other (the
    distance of Levenshtein 1966, of which only the numbers up to `most` are worked out); a, b: (T,) symbols of each."""
    if abs(len(a) - len(b)) > most:
        return False
    last = np.arange(len(b) + 1)
    for i in range(1, len(a) + 1):
        row = np.full(len(b) + 1, most + 1)
        if i <= most:
            row[0] = i
        for j in range(max(1, i - most), min(len(b), i + most) + 1):
            replaced = last[j - 1] + (1 if a[i - 1] != b[j - 1] else 0)
            row[j] = min(replaced, last[j] + 1, row[j - 1] + 1)
        last = row
    return last[len(b)] <= most


@compiled
def pairs_within(x: np.ndarray, ends: np.ndarray, pairs: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Whether the sequences of each pair, (M, 2), are within as many edits as `most` says of it, (M,); x: (total,),
    ends: (N + 1,) of N sequences end to end."""
    near = np.zeros(len(pairs), np.bool_)
    for pair in range(len(pairs)):
        i, j = pairs[pair]
        near[pair] = edits_within(x[ends[i] : ends[i + 1]], x[ends[j] : ends[j + 1]], most[pair])
    return near
