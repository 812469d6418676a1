"""Draws many Pathfinder images, in blocks on all cores; every image has a seed of its own.

    drawing = draw(parameters(32, "hard"), seeds(0, "train", 8))
    drawing.images     # (8, 1024) uint8
    drawing.labels     # (8,), 1 where the two markers are the ends of one contour

The images are the same to the byte on any number of cores.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from levelfield.jit.splitmix import STEP, mix
from levelfield.spec import Progress, derive_seed, no_progress
from levelfield.tasks._pathfinder.settings import Parameters


@dataclass(frozen=True)
class Drawing:
    """The images and the strokes that they were drawn from; positions are (row, column) in pixels."""

    images: np.ndarray  # (n, size * size) uint8
    labels: np.ndarray  # (n,) int64
    markers: np.ndarray  # (n, 4) float64: positions of the first and the second marker
    strokes: np.ndarray  # (n, 2 + distractors, contour, 4) float64: the ends of every paddle, long contours first
    paddles: np.ndarray  # (n, 2 + distractors) int64: paddles in each chain, 0 where a distractor found no room
    marked: np.ndarray  # (n,) int64: the long contour, 0 or 1, that begins at the first marker
    tries: np.ndarray  # (n,) int64: tries until both contours were complete


def seeds(seed: int, purpose: str, count: int, first: int = 0) -> np.ndarray:
    """(count,) uint64: image i of a purpose has the same seed however many are drawn; no two streams overlap."""
    index = np.arange(first, first + count, dtype=np.uint64)
    return mix(np.uint64(derive_seed(seed, "pathfinder", purpose)) + index * STEP)


def draw(p: Parameters, seeds: np.ndarray) -> Drawing:
    """Draws the images of these seeds, (n,) uint64, on one core."""
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
    """Draws the margin of each image, (n,), independently of what the search draws from the same seed."""
    return np.array(p.margins)[((mix(~seeds) >> np.uint64(33)) % np.uint64(len(p.margins))).astype(np.int64)]


def _draw_margin(p: Parameters, margin: int, seeds: np.ndarray, at: np.ndarray, into: Drawing) -> None:
    """Draws the images with one margin, into the rows `at` of a drawing."""
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
    """Returns the sum of all turns, left or right, along the contour that begins at the first marker: (n,) degrees."""
    marked = drawing.strokes[np.arange(len(drawing.labels)), drawing.marked]
    delta = marked[..., 2:] - marked[..., :2]
    delta[:, 1:] *= -1  # the first paddle is stored from its outer end, later ones from their far end
    headings = np.arctan2(delta[..., 0], delta[..., 1])
    turns = np.abs(np.diff(headings, axis=1))
    return np.rad2deg(np.minimum(turns, 2 * np.pi - turns).sum(1))


@dataclass
class Facts:
    """What is kept of each image of a split beside its pixels."""

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
    """Draws `images`, (n, size * size) uint8, in place, all different from each other and from those in `seen`.

    Blocks go to `workers` threads (all cores by default) and take a few megabytes beside `images`. An image that
    repeats an earlier one is drawn again from further seeds. The hashes of the images are added to `seen`.
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


def _repeated(hashes: np.ndarray, seen: set[int]) -> list[int]:
    """Returns the positions whose hash occurs earlier or in `seen`, after it has added all hashes to `seen`."""
    repeated = []
    for at, value in enumerate(hashes.tolist()):
        if value in seen:
            repeated.append(at)
        seen.add(value)
    return repeated
