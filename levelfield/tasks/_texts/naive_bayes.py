"""Computes the accuracy of naive Bayes on the words of a text, a baseline without a sequence model.

    letters = lookup(bytes(range(256)).decode("latin-1"))       # symbol -> letter, lower-cased; 0 between words
    accuracies(train, test, letters)                            # on IMDb 0.833 by words, 0.868 by words and word pairs

Words are maximal runs of letters, digits and apostrophes, and a document counts a word once. This is multinomial naive
Bayes with binary counts and add-one smoothing (Wang and Manning 2012, Baselines and Bigrams, section 2.1). Words and
pairs of neighbouring words are hashed into 2^22 buckets each, so no loop runs over them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from levelfield.spec import Examples

BITS = 22
BLOCK = 1 << 17  # symbols at a time
LONGEST = 64  # letters of a word whose position matters
_DRAWN = np.random.default_rng(2012).integers(0, 2**63, LONGEST + 2, dtype=np.uint64) * 2 + 1
POWERS, LEFT, SPREAD = (
    _DRAWN[:-2],
    _DRAWN[-2:-1],
    _DRAWN[-1:],
)  # factors of a letter by its position, of a pair's first word, and of a hash


def lookup(alphabet: str) -> np.ndarray:
    """Numbers letters, digits and apostrophes, upper and lower case alike; 0 for the rest: (len(alphabet),) uint64."""
    codes = [ord(c.lower()) if c.isalnum() or c == "'" else 0 for c in alphabet]
    return np.array(codes, np.uint64)


def accuracies(train: Examples, test: Examples, letters: np.ndarray) -> tuple[float, float]:
    """Fits to train, and returns the accuracies on test by words and by words with word pairs. Labels are 0 or 1."""
    # The buckets of words, and those of pairs, of each label.
    seen: list[tuple[list[np.ndarray], list[np.ndarray]]] = [([], []), ([], [])]
    for documents, features in _blocks(train, letters):
        labels = train.y[documents]
        for kind, (owners, buckets) in enumerate(features):
            for label in (0, 1):
                seen[kind][label].append(buckets[labels[owners] == label])
    counts = 1.0 + np.array([[np.bincount(np.concatenate(b), minlength=1 << BITS) for b in kind] for kind in seen])
    totals = counts.sum(2)
    ratios = np.log(counts[:, 1]) - np.log(counts[:, 0])
    odds = np.log(totals[:, 1] / totals[:, 0]), np.log(totals[:, 1].sum() / totals[:, 0].sum())
    right = np.zeros(2)
    for documents, features in _blocks(test, letters):
        size = len(documents)
        sums = [np.bincount(o, ratios[kind][b], minlength=size) for kind, (o, b) in enumerate(features)]
        sizes = [np.bincount(o, minlength=size) for o, _ in features]
        prior = np.log((np.sum(train.y == 1) + 1) / (np.sum(train.y == 0) + 1))
        words = prior + sums[0] - sizes[0] * odds[0][0]
        both = prior + sums[0] + sums[1] - (sizes[0] + sizes[1]) * odds[1]
        right += [np.sum((score > 0) == test.y[documents]) for score in (words, both)]
    return float(right[0] / len(test)), float(right[1] / len(test))


Features = tuple[np.ndarray, np.ndarray]  # of a block: index of the document in it, bucket


def _blocks(examples: Examples, letters: np.ndarray) -> Iterator[tuple[np.ndarray, tuple[Features, Features]]]:
    """Yields blocks of whole documents: their indices, the words in them, and the pairs of words."""
    first = 0
    while first < len(examples):
        after = int(np.searchsorted(examples.offsets, examples.offsets[first] + BLOCK, side="right")) - 1
        after = max(after, first + 1)
        owners, hashes = _hashes(examples, first, after, letters)
        neighbours = owners[1:] == owners[:-1]
        pairs = (hashes[:-1] * LEFT + hashes[1:])[neighbours]
        yield np.arange(first, after), (_once(owners, hashes), _once(owners[1:][neighbours], pairs))
        first = after


def _once(owners: np.ndarray, hashes: np.ndarray) -> Features:
    """Keeps each bucket once per document."""
    buckets = (hashes * SPREAD >> np.uint64(64 - BITS)).astype(np.int64)
    keys = np.sort(owners << BITS | buckets)  # np.unique would hash these, ten times slower
    distinct = keys[np.diff(keys, prepend=-1) > 0]
    return distinct >> BITS, distinct & ((1 << BITS) - 1)


def _hashes(examples: Examples, first: int, after: int, letters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns document, counted from `first`, and hash of every word of documents first..after-1, in order.

    A hash is the sum of the word's letters times POWERS. Symbols between words are 0 and add nothing.
    """
    offsets = examples.offsets[first : after + 1] - examples.offsets[first]
    codes = letters[examples.x[examples.offsets[first] : examples.offsets[after]]]
    begins = codes > 0
    begins[1:] &= codes[:-1] == 0
    heads = offsets[:-1][np.diff(offsets) > 0]
    begins[heads] = codes[heads] > 0  # a word ends with its document
    at = np.flatnonzero(begins)
    if not len(at):
        return np.zeros(0, np.int64), np.zeros(0, np.uint64)
    place = np.arange(at[0], len(codes)) - np.repeat(at, np.diff(at, append=len(codes)))
    hashes = np.add.reduceat(codes[at[0] :] * POWERS[np.minimum(place, LONGEST - 1)], at - at[0])
    return np.searchsorted(offsets, at, side="right") - 1, hashes
