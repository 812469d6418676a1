"""Counts what can be told of a sequence without reading it in order: its length, its ends, its symbols and n-grams.

    of = Vocabulary.of(task, splits["train"])                  # signals become levels, by the training split
    found = of.features(partial(ngrams, n=3), split)           # Features: example, bucket and number of each 3-gram

A feature is a bucket number below BUCKETS, the hash of what was found, so that no dictionary has to be kept. An example
of several documents has the features of each, in buckets of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from levelfield.jit.splitmix import STEP as SPREAD  # an odd number with bits set all over
from levelfield.spec import Examples, Signal, Task, derive_seed

BITS = 17
BUCKETS = 1 << BITS
LEVELS = 256  # of channels that are read together
CHANNELS = 8  # that are read together, at most


class Features(NamedTuple):
    """What is found in N examples: example, bucket below BUCKETS and how often, for each finding, (M,) each."""

    example: np.ndarray
    bucket: np.ndarray
    times: np.ndarray

    def of(self, chosen: np.ndarray) -> Features:
        """Returns what is found in some of the examples, which are numbered anew. chosen: (N,) bool."""
        here, number = chosen[self.example], np.cumsum(chosen) - 1
        return Features(number[self.example[here]], self.bucket[here], self.times[here])


@dataclass(frozen=True)
class Vocabulary:
    """How the values at a step become one number: symbols as they are, channels by levels of the training split.

    edges: of each channel, the least value of every level but the first, (levels - 1,); None for symbols.
    """

    edges: tuple[np.ndarray, ...] | None

    @staticmethod
    def of(task: Task, train: Examples) -> Vocabulary:
        """Returns the numbering. Of more than CHANNELS channels each has two levels."""
        if not isinstance(task.input, Signal):
            return Vocabulary(None)
        levels = max(2, min(16, math.floor(LEVELS ** (1 / task.input.channels))))
        every = max(1, len(train.x) * max(1, task.input.channels // CHANNELS) // 200_000)
        sample = np.asarray(train.x[_one_of(every, len(train.x))], np.float64)
        return Vocabulary(tuple(level_edges(channel, levels) for channel in sample.T))

    def codes(self, examples: Examples, first: int = 0) -> np.ndarray:
        """Returns a number for every step, (total,) int64, of CHANNELS channels from the first one on."""
        if self.edges is None:
            return np.asarray(examples.x, np.int64)
        found = np.zeros(len(examples.x), np.int64)
        for channel, edges in enumerate(self.edges[first : first + CHANNELS], first):
            found = found * (len(edges) + 1) + np.searchsorted(edges, np.asarray(examples.x[:, channel]), side="right")
        return found

    def features(self, probe: Probe, examples: Examples) -> Features:
        """Returns what a probe counts in the codes of a split: of very many channels, in those of each CHANNELS."""
        groups = range(0, len(self.edges or ()), CHANNELS) or range(1)
        found = [probe(self.codes(examples, first), examples) for first in (groups[:1] if probe is lengths else groups)]
        if len(found) == 1:
            return found[0]
        buckets = [_hash(each.bucket, each.bucket, number) for number, each in enumerate(found)]
        keys = np.concatenate([each.example << BITS | bucket for each, bucket in zip(found, buckets, strict=True)])
        keys, place = np.unique(keys, return_inverse=True)
        times = np.bincount(place, np.concatenate([each.times for each in found])).astype(np.int64)
        return Features(keys >> BITS, keys & (BUCKETS - 1), times)


def _one_of(every: int, count: int) -> np.ndarray:
    """Returns a place drawn from each run of `every` of `count` places, (count / every,) int64. Equal distances could
    share a factor with the steps of a sequence, and would always meet the same few of these."""
    rng, first = np.random.default_rng(derive_seed(0, "levels")), np.arange(0, count, every)
    return np.minimum(first + rng.integers(every, size=len(first)), count - 1)


def level_edges(values: np.ndarray, levels: int) -> np.ndarray:
    """Returns the least value of every level but the first, increasing, for about so many levels.

    Of no more different values than levels each is a level. Of others, a value that fills a level alone, such as the
    zeros of events that are rare, is one, and the rest are divided into equally frequent levels. values: (M,).
    """
    different, counts = np.unique(values, return_counts=True)
    if len(different) <= levels:
        return different[1:]
    alone = different[counts * levels >= len(values)]
    rest = values[~np.isin(values, alone)]
    parts = max(2, levels - len(alone))
    edges = np.quantile(rest, np.arange(1, parts) / parts)
    return np.unique(np.concatenate([edges, alone, np.nextafter(alone, math.inf)]))


Probe = Callable[[np.ndarray, Examples], Features]
"""What is counted in the codes of a split, (total,)."""


def lengths(codes: np.ndarray, examples: Examples) -> Features:
    """The length of each document, alone and rounded to 32 and to 4 parts of an octave."""
    found = examples.lengths.astype(np.float64)
    kinds = [found, np.floor(32 * np.log2(found)), np.floor(4 * np.log2(found))]
    owner = np.arange(len(found))
    hashes = [_hash(owner % examples.documents, kind.astype(np.int64), number) for number, kind in enumerate(kinds)]
    return _collected(np.tile(owner // examples.documents, 3), np.concatenate(hashes))


def ends(codes: np.ndarray, examples: Examples, steps: int) -> Features:
    """The symbol at each of the first `steps` steps, or of the last -`steps`, with its place."""
    place = places(examples, from_end=steps < 0)
    return _placed(codes, examples, place, place < abs(steps))


def positions(codes: np.ndarray, examples: Examples) -> Features:
    """The symbol at each step, with its place: what position-wise marginals know."""
    place = places(examples, from_end=False)
    return _placed(codes, examples, place, np.ones(len(place), bool))


def ngrams(codes: np.ndarray, examples: Examples, n: int) -> Features:
    """All runs of n successive symbols, without their places."""
    if len(codes) < n:
        return _collected(np.zeros(0, np.int64), np.zeros(0, np.int64))
    hashed = np.zeros(len(codes) - n + 1, np.uint64)
    for at in range(n):
        hashed = (hashed * SPREAD) + codes[at : len(codes) - n + 1 + at].astype(np.uint64) + np.uint64(1)
    sequence = np.repeat(np.arange(len(examples.lengths)), examples.lengths)
    whole = sequence[: len(hashed)] == sequence[n - 1 :]  # a run ends with its document
    sequence = sequence[: len(hashed)][whole]
    buckets = _hash(sequence % examples.documents, hashed[whole].view(np.int64), n)
    return _collected(sequence // examples.documents, buckets)


def places(examples: Examples, from_end: bool) -> np.ndarray:
    """Returns the place of every step in its document, (total,), from 0 on."""
    before = np.repeat(examples.offsets[:-1], examples.lengths)
    if not from_end:
        return np.arange(len(before)) - before
    return np.repeat(examples.offsets[1:], examples.lengths) - 1 - np.arange(len(before))


def _placed(codes: np.ndarray, examples: Examples, place: np.ndarray, here: np.ndarray) -> Features:
    sequence = np.repeat(np.arange(len(examples.lengths)), examples.lengths)[here]
    buckets = _hash(sequence % examples.documents, codes[here], place[here])
    return _collected(sequence // examples.documents, buckets)


def _hash(document: np.ndarray, first: np.ndarray, second: np.ndarray | int) -> np.ndarray:
    """Mixes three numbers into a bucket, (M,) int64."""
    mixed = first.astype(np.uint64) * SPREAD + np.asarray(second).astype(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * SPREAD + document.astype(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * SPREAD
    return (mixed >> np.uint64(64 - BITS)).astype(np.int64)


def _collected(example: np.ndarray, bucket: np.ndarray) -> Features:
    """Joins what an example has several times."""
    keys, counts = np.unique(example.astype(np.int64) << BITS | bucket, return_counts=True)
    return Features(keys >> BITS, keys & (BUCKETS - 1), counts)
