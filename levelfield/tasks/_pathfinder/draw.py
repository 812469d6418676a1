"""Many Pathfinder images at once: one seed per image, blocks of images on every core, the same bytes on any number.

drawing = draw(parameters(32, "hard"), seeds(0, "train", 8))
drawing.images     # (8, 1024) uint8
drawing.labels     # (8,), 1 where the two markers end one contour
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from levelfield.jit.splitmix import STEP, mix
from levelfield.spec import Progress, derive_seed, no_progress
from levelfield.tasks._pathfinder.settings import Parameters


@dataclass(frozen=True)
class Drawing:
    """n images and the strokes they were drawn from; positions are (row, column) in pixels."""

    images: np.ndarray  # (n, size * size) uint8
    labels: np.ndarray  # (n,) int64
    markers: np.ndarray  # (n, 4) float64: the first marker and the second
    strokes: np.ndarray  # (n, 2 + distractors, contour, 4) float64: both ends of every paddle, the long contours first
    paddles: np.ndarray  # (n, 2 + distractors) int64: paddles in each of them, 0 where a distractor found no room
    marked: np.ndarray  # (n,) int64: which long contour, 0 or 1, begins at the first marker
    tries: np.ndarray  # (n,) int64: starts until both contours were complete


def seeds(seed: int, purpose: str, count: int, first: int = 0) -> np.ndarray:
    """(count,) uint64: image i of a purpose has the same seed however many are drawn; no two streams overlap."""
    index = np.arange(first, first + count, dtype=np.uint64)
    return mix(np.uint64(derive_seed(seed, "pathfinder", purpose)) + index * STEP)


def draw(p: Parameters, seeds: np.ndarray) -> Drawing:
    """Images of the given seeds, on one core."""
    n = len(seeds)
    chosen = _margins(p, seeds)
    chains = 2 + p.distractors
    drawing = Drawing(
        images=np.empty((n, p.size * p.size), np.uint8),
        labels=np.empty(n, np.int64),
        markers=np.empty((n, 4)),
        strokes=np.zeros((n, chains, p.contour, 4)),
        paddles=np.zeros((n, chains), np.int64),
        marked=np.empty(n, np.int64),
        tries=np.empty(n, np.int64),
    )
    for margin in p.margins:
        _draw_margin(p, margin, seeds, np.flatnonzero(chosen == margin), drawing)
    return drawing


def _margins(p: Parameters, seeds: np.ndarray) -> np.ndarray:
    """The margin of each image, drawn apart from what the search draws from the same seed."""
    return np.array(p.margins)[((mix(~seeds) >> np.uint64(33)) % np.uint64(len(p.margins))).astype(np.int64)]


def _draw_margin(p: Parameters, margin: int, seeds: np.ndarray, at: np.ndarray, into: Drawing) -> None:
    """Fills the rows `at` of a drawing."""
    from levelfield.tasks._pathfinder.paint import paint_images
    from levelfield.tasks._pathfinder.search import Plan, find_chains
    from levelfield.tasks._pathfinder.strokes import make_tables, stroke_angles

    n = len(at)
    plan = Plan(*(getattr(p, field) for field in Plan._fields))
    images, labels = np.empty((n, p.size * p.size), np.uint8), np.empty(n, np.int64)
    markers, counts = np.empty((n, 4), np.int64), np.empty((n, 3), np.int64)
    chains = np.zeros((n, 2 + p.distractors, p.contour, 3), np.int64)
    tables = make_tables(p, margin)
    find_chains(tables, plan, seeds[at], labels, markers, chains, counts)
    paddles = np.where(np.arange(2 + p.distractors) < 2 + counts[:, 1:2], p.distractor, 0)
    paddles[:, :2] = p.contour
    contrasts = np.repeat([p.contour_contrast, p.distractor_contrast], [2, p.distractors])
    paint_images(tables, p.size, chains, paddles, contrasts, markers, images)
    angles = stroke_angles(p, margin)[chains[..., 2]]
    along = p.length * np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    into.images[at], into.labels[at], into.markers[at] = images, labels, markers
    into.strokes[at] = np.concatenate([chains[..., :2], chains[..., :2] + along], axis=-1)
    into.paddles[at], into.tries[at], into.marked[at] = paddles, counts[:, 0], counts[:, 2]


def turning(drawing: Drawing) -> np.ndarray:
    """(n,) degrees: the sum of all turns, left or right, along the contour that begins at the first marker."""
    marked = drawing.strokes[np.arange(len(drawing.labels)), drawing.marked]
    delta = marked[..., 2:] - marked[..., :2]
    delta[:, 1:] *= -1  # a later paddle is placed by its far end, the first by its outer end
    headings = np.arctan2(delta[..., 0], delta[..., 1])
    turns = np.abs(np.diff(headings, axis=1))
    return np.rad2deg(np.minimum(turns, 2 * np.pi - turns).sum(1))


@dataclass
class Facts:
    """What is kept of each image beside its pixels: one row per image of a split."""

    labels: np.ndarray  # (n,) int64
    distance: np.ndarray  # (n,) float64, pixels between the markers
    turning: np.ndarray  # (n,) float64, degrees
    hashes: np.ndarray  # (n,) uint64 of the pixels

    @staticmethod
    def empty(count: int) -> Facts:
        return Facts(np.empty(count, np.int64), np.empty(count), np.empty(count), np.empty(count, np.uint64))

    def fill(self, at: np.ndarray | slice, drawing: Drawing) -> None:
        markers = drawing.markers
        self.labels[at] = drawing.labels
        self.distance[at] = np.hypot(markers[:, 0] - markers[:, 2], markers[:, 1] - markers[:, 3])
        self.turning[at] = turning(drawing)
        digests = b"".join(hashlib.blake2b(image, digest_size=8).digest() for image in drawing.images)
        self.hashes[at] = np.frombuffer(digests, np.uint64)


def fill(
    p: Parameters, images: np.ndarray, seed: int, purpose: str, seen: set[int], progress: Progress = no_progress,
    workers: int | None = None,
) -> Facts:  # fmt: skip
    """Draws `images`, (n, size * size) uint8, in place, none of them equal to another or to one in `seen`.

    Blocks go to `workers` threads (all cores by default), so memory beyond `images` stays at a few megabytes. Images
    that repeat an earlier one are drawn again from further seeds; their hashes are added to `seen`.
    """
    count = len(images)
    facts = Facts.empty(count)
    block = 16 if p.size > 64 else 128

    def work(first: int) -> int:
        part = draw(p, seeds(seed, purpose, min(block, count - first), first))
        images[first : first + block] = part.images
        facts.fill(slice(first, first + block), part)
        return len(part.labels)

    done = 0
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        for size in pool.map(work, range(0, count, block)):
            done += size
            progress(f"drawing {purpose}", done, count)
    further = count
    for at in _repeated(facts.hashes, seen):
        while True:
            part = draw(p, seeds(seed, purpose, 1, further))
            further += 1
            facts.fill(slice(at, at + 1), part)
            if int(facts.hashes[at]) not in seen:
                break
        images[at] = part.images[0]
        seen.add(int(facts.hashes[at]))
    return facts


def _repeated(hashes: np.ndarray, seen: set[int]) -> Iterator[int]:
    """Positions whose hash is in `seen` or earlier; all hashes are in `seen` before the first is given."""
    repeated = []
    for at, value in enumerate(hashes.tolist()):
        if value in seen:
            repeated.append(at)
        seen.add(value)
    yield from repeated
