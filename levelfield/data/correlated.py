"""Finds near duplicates among signals and among pictures, by correlation.

    flags = ...                                   # (N, splits): exact duplicates are set already
    mark(flags, splits)                           # Marked("correlation >= 0.95", 0); near duplicates are set too

Square pictures of bytes are compared by their 8 x 8 means, all with all, so that none is missed. Other signals are
compared where they have the same length. All are ranked against all, by themselves where that takes no more than
MULTIPLICATIONS, as among 10,000 signals of 1,000 values, and else by a random projection. Of each split the best
NEIGHBOURS are then measured, best first, until one is a near duplicate. So time and memory are bounded whatever the
signals are, and every one that is counted has been measured.

Nothing is missed where signals are ranked by themselves. A projection to 64 numbers, the fewest, puts a pair at the
threshold below what is measured less than once in 10,000. It can also rank NEIGHBOURS others above a near duplicate,
where that many are nearly as similar; what `mark` returns says of how many examples not all was measured. Measured by
forcing projections on 4,000 signals and 400 others, any two of which correlate by about 0.93: 331 of the 400 have a
near duplicate in the 4,000, and 67 of these were missed with 64 numbers, 40 with 128, none without a projection. Of
400 copies with noise of a tenth of the signal none was missed with 64.

Unrelated signals of few steps correlate by chance: of 1,000 of four steps each, nearly all have another that they
correlate with by 0.95. So the threshold is higher for them (`threshold`), and where it would have to be above HIGHEST
signals are not compared. This supposes that the steps of unrelated signals are independent; smooth ones correlate more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from levelfield.spec import Examples, Progress, no_progress

PICTURES = 0.97  # correlation of 8 x 8 means
SIGNALS = 0.95  # correlation, where steps are many
HIGHEST = 0.999  # correlation that may be asked for where they are few
CHANCE = 0.01  # that any two of the signals reach the threshold where all are unrelated
GRID = 8
LIMIT = 60_000  # the most pictures or signals of a split that are searched for near duplicates
NEIGHBOURS = 32  # how many of a split an example is measured against
MULTIPLICATIONS = 1e11  # of ranking the signals of one length: some 5 s of a core
VALUES = 2**24  # numbers of an array of signals or of a projection: 64 MiB, of which a few are held at a time
FEWEST, MOST = 64, 4096  # dimensions of a projection
ROWS = 512  # that are compared with all others at a time


class Marked(NamedTuple):
    """What near means, in words, and how many examples have too few steps for it, so that they were not compared."""

    measure: str
    unjudged: int


def mark(flags: np.ndarray, splits: Mapping[str, Examples], progress: Progress = no_progress) -> Marked:
    """Sets flags[i, s] where example i has a near duplicate in the split at place s; returns what near means.

    flags: (N, splits), of the examples of all splits end to end. Where one is set already nothing is compared.
    """
    used = {split: min(len(examples), LIMIT) for split, examples in splits.items()}
    firsts = np.cumsum([0, *map(len, splits.values())])
    kept = np.concatenate([first + np.arange(count) for first, count in zip(firsts, used.values(), strict=False)])
    searched, unjudged = flags[kept], 0
    if side := _side(splits):
        views = np.concatenate([_small(examples, used[split], side) for split, examples in splits.items()])
        searched |= _similar_pictures(views, used, progress)
        measure = f"correlation of {GRID} x {GRID} means >= {PICTURES}"
    else:
        capped, highest, unjudged = _mark_signals(searched, splits, used, progress)
        measure = f"correlation >= {SIGNALS}"
        measure += f", up to {highest:.4f} where steps are few" if highest > SIGNALS else ""
        measure += (
            f"; of {capped:,} examples only the {NEIGHBOURS} likeliest of a split were measured" if capped else ""
        )
        measure += f"; {unjudged:,} with too few steps to tell it from chance were not compared" if unjudged else ""
    flags[kept] = searched
    measure += f", of the first {LIMIT:,} examples of a split" if len(kept) < len(flags) else ""
    return Marked(measure, unjudged)


def near_pairs(examples: Examples, progress: Progress = no_progress) -> Iterator[np.ndarray]:
    """Yields pairs of near duplicates, (M, 2), a block of examples at a time: all of pictures and of signals that are
    ranked by all their values, and of others those among the NEIGHBOURS likeliest of each."""
    splits, count = {"all": examples}, len(examples)
    if side := _side(splits):
        yield from _all_pairs(_small(examples, count, side), np.arange(count), PICTURES, progress)
        return
    for group in _of_one_length(splits, {"all": count}):
        if group[0].least > HIGHEST:
            continue
        (part,), least, whole = _ranked(group)
        yield from _all_pairs(part.views, part.numbers, part.least, progress) if whole else _likeliest(part, least)


def _all_pairs(views: np.ndarray, numbers: np.ndarray, least: float, progress: Progress) -> Iterator[np.ndarray]:
    """Yields pairs of which the products of views reach the least. views: (n, d). numbers: of the examples, (n,)."""
    size = max(1, min(ROWS, VALUES // max(1, len(views))))
    for first in range(0, len(views), size):
        a, b = np.nonzero(np.triu(views[first : first + size] @ views[first:].T >= least, 1))
        yield numbers[first + np.stack([a, b], 1)]
        progress("near duplicates", min(first + size, len(views)), len(views))


def _likeliest(part: _Part, least: float) -> Iterator[np.ndarray]:
    """Yields pairs of near duplicates among the likeliest, which are measured. least: rank of what is."""
    for first in range(0, len(part.views), ROWS):
        product = part.views[first : first + ROWS] @ part.views.T
        product[np.arange(len(product)), first + np.arange(len(product))] = -1
        best = _best(product)
        rows, ranks = np.nonzero(np.take_along_axis(product, best, 1) >= least)
        if len(rows):
            places, partners = first + rows, best[rows, ranks]
            near = part.correlations(places, part, partners) >= part.least
            yield np.stack([part.numbers[places[near]], part.numbers[partners[near]]], 1)


def threshold(freedom: int, count: int) -> float:
    """Returns the correlation that makes two signals near duplicates, at least SIGNALS; 1.0 where none does.

    Where `count` signals of independent steps are unrelated, any two of them reach it with a probability of at most
    CHANCE. freedom: numbers in a signal that are free once each channel is centred, (T - 1) * C. Unit vectors of so
    many numbers, in any direction alike, have a product of c or more with a probability of at most
    (1 - c^2)^((freedom - 1) / 2) / 2, since a cap of a sphere is no larger, and there are fewer than count^2 / 2 pairs.
    """
    if freedom < 2:
        return 1.0
    return max(SIGNALS, math.sqrt(max(0.0, 1 - (4 * CHANCE / count**2) ** (2 / (freedom - 1)))))


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


# Pictures.


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


def _similar_pictures(views: np.ndarray, sizes: Mapping[str, int], progress: Progress) -> np.ndarray:
    """The flags of pictures, (N, splits), from all pairs of rows; any number of them may be similar."""
    owner = np.repeat(np.arange(len(sizes)), list(sizes.values()))
    flags = np.zeros((len(views), len(sizes)), bool)
    for first in range(0, len(views), ROWS):
        hits = views[first : first + ROWS] @ views[first:].T >= PICTURES
        np.fill_diagonal(hits, False)
        rows, columns = owner[first : first + len(hits)], owner[first:]
        for split in range(len(sizes)):
            flags[first : first + len(hits), split] |= hits[:, columns == split].any(1)
            flags[first:, split] |= hits[rows == split].any(0)
        progress("near duplicates", min(first + ROWS, len(views)), len(views))
    return flags


# Signals.


class _Part(NamedTuple):
    """Signals of one length in one split. split: its place; numbers: (n,), of its signals among all that are searched;
    starts: (n,), where they begin in x; least: the correlation of near duplicates; views: (n, d) of unit length, by
    which they are ranked."""

    split: int
    numbers: np.ndarray
    x: np.ndarray
    starts: np.ndarray
    length: int
    least: float
    views: np.ndarray = np.empty((0, 0), np.float32)

    def standard(self, places: np.ndarray) -> np.ndarray:
        """Signals, each channel centred and all of unit length: (n, T * C) float32."""
        x = np.stack([self.x[at : at + self.length] for at in self.starts[places].tolist()]).astype(np.float32)
        return _unit((x - x.mean(1, dtype=np.float64, keepdims=True).astype(np.float32)).reshape(len(x), -1))

    def blocks(self, places: np.ndarray) -> list[np.ndarray]:
        """Cuts places into as many at a time as VALUES allow."""
        size = max(1, VALUES // max(1, self.length * self.x.shape[1]))
        return [places[first : first + size] for first in range(0, len(places), size)]

    def correlations(self, places: np.ndarray, other: _Part, partners: np.ndarray) -> np.ndarray:
        """Correlates each signal with its partner in the other part: (n,)."""
        blocks = zip(self.blocks(places), self.blocks(partners), strict=True)
        return np.concatenate([(self.standard(a) * other.standard(b)).sum(1) for a, b in blocks])


def _mark_signals(
    flags: np.ndarray, splits: Mapping[str, Examples], used: Mapping[str, int], progress: Progress
) -> tuple[int, float, int]:
    """Sets the flags of signals; returns of how many not all was measured that might have been a near duplicate, the
    highest threshold, and how many have too few steps for any."""
    capped, done, highest, unjudged = np.zeros_like(flags), 0, SIGNALS, 0
    for group in _of_one_length(splits, used):
        if (least := group[0].least) > HIGHEST:
            unjudged += sum(len(part.numbers) for part in group)
            continue
        highest = max(highest, least)
        parts, rank, _ = _ranked(group)
        for rows in parts:
            for first in range(0, len(rows.numbers), ROWS):
                places = np.arange(first, min(first + ROWS, len(rows.numbers)))
                for columns in parts:
                    _compare(rows, places, columns, rank, (flags, capped))
                done += len(places)
                progress("near duplicates", done, len(flags))
    progress("near duplicates", len(flags), len(flags))
    return int((capped & ~flags).any(1).sum()), highest, unjudged


def _of_one_length(splits: Mapping[str, Examples], used: Mapping[str, int]) -> Iterator[list[_Part]]:
    """Yields the signals of each length that several have, a part for each split that has some."""
    ends = [e.offsets[:: e.documents][: used[split] + 1] for split, e in splits.items()]
    arrays = [e.x.reshape(len(e.x), -1) for e in splits.values()]
    lengths = np.concatenate([np.diff(each) for each in ends])
    starts = np.concatenate([each[:-1] for each in ends])
    firsts = np.cumsum([0, *used.values()])
    order = np.argsort(lengths, kind="stable")
    for numbers in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        length, cuts = int(lengths[numbers[0]]), np.searchsorted(numbers, firsts)
        if len(numbers) > 1 and length:
            least = threshold((length - 1) * arrays[0].shape[1], firsts[-1])
            mine = [numbers[cuts[split] : cuts[split + 1]] for split in range(len(used))]
            yield [
                _Part(split=split, numbers=each, x=arrays[split], starts=starts[each], length=length, least=least)
                for split, each in enumerate(mine)
                if len(each)
            ]


def _ranked(group: Sequence[_Part]) -> tuple[list[_Part], float, bool]:
    """Returns the parts of one length with what they are ranked by, the rank below which nothing is measured, and
    whether that is all values of a signal."""
    count, values = sum(len(part.numbers) for part in group), group[0].length * group[0].x.shape[1]
    size = _dimensions(count, values)
    whole = size == values
    matrix = None if whole else np.random.default_rng(0).standard_normal((values, size), np.float32)
    return [part._replace(views=_views(part, matrix)) for part in group], _least(group[0].least, size, whole), whole


def _dimensions(count: int, values: int) -> int:
    """How many numbers stand for a signal in the ranking of so many: all its values, where time and memory allow."""
    if count * values <= VALUES and count**2 * values <= MULTIPLICATIONS:
        return values
    return min(values, int(min(max(FEWEST, min(MULTIPLICATIONS / count**2, VALUES / values)), MOST)))


def _least(least: float, size: int, exact: bool) -> float:
    """The rank below which nothing is measured: four standard deviations of a projected correlation (Fisher 1921)."""
    return least - 1e-4 if exact else math.tanh(math.atanh(least) - 4 / math.sqrt(size - 3))


def _views(part: _Part, matrix: np.ndarray | None) -> np.ndarray:
    rows = (part.standard(places) for places in part.blocks(np.arange(len(part.numbers))))
    return np.concatenate([each if matrix is None else _unit(each @ matrix) for each in rows])


def _compare(
    rows: _Part, places: np.ndarray, columns: _Part, least: float, marks: tuple[np.ndarray, np.ndarray]
) -> None:
    """Sets the flags of a block of rows that have a near duplicate among columns, and where the search was cut off."""
    flags, capped = marks
    places = places[~flags[rows.numbers[places], columns.split]]
    product = rows.views[places] @ columns.views.T
    if rows is columns:
        product[np.arange(len(places)), places] = -1
    likely = (product >= least).sum(1)
    places, product, likely = places[likely > 0], product[likely > 0], likely[likely > 0]
    best, found = _best(product), np.zeros(len(places), bool)
    for rank in range(best.shape[1]):
        left = np.flatnonzero(~found & (likely > rank))
        if not len(left):
            break
        partners = best[left, rank]
        near = rows.correlations(places[left], columns, partners) >= rows.least
        found[left] = near
        flags[columns.numbers[partners[near]], rows.split] = True
    flags[rows.numbers[places[found]], columns.split] = True
    capped[rows.numbers[places], columns.split] = ~found & (likely > NEIGHBOURS)


def _best(product: np.ndarray) -> np.ndarray:
    """The columns of the largest values of each row, largest first: (rows, at most NEIGHBOURS)."""
    top = min(NEIGHBOURS, product.shape[1])
    best = np.argpartition(-product, top - 1, axis=1)[:, :top]
    return np.take_along_axis(best, np.argsort(-np.take_along_axis(product, best, 1), axis=1, kind="stable"), 1)
