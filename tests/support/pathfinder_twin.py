"""The public Pathfinder generator's rules written out from its description, one image at a time, nothing tabulated.

    image = twin_image(parameters(32, "easy"), np.random.default_rng(0))      # (32, 32) uint8
    moved((8, 2), np.pi / 2, 4)                                               # (12, 3): up, though it goes down only

It shares the numbers of an image (`Parameters`) with levelfield's generator and not a line of code. About 15 ms an
easy image of 32 x 32 pixels, 200 ms a hard one.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from PIL import Image, ImageDraw

from levelfield.tasks._pathfinder.settings import Parameters

Point = tuple[int, int]  # row, column
LANCZOS = Image.Resampling.LANCZOS


class DeadEnd(Exception):
    """Raised where a contour cannot be continued."""


def moved(at: Point, angle: float, distance: int) -> Point:
    """The pixel to which a step leads, rounded up after the step is added to the coordinates."""
    return math.ceil(at[0] + distance * math.sin(angle)), math.ceil(at[1] + distance * math.cos(angle))


def reversed_(angle: float) -> float:
    return angle + np.pi if angle < 0 else angle - np.pi


def ends_around(pivot: Point, radius: int, size: int) -> list[Point]:
    """Pixels that an arc of `radius` around a pivot passes, within the image."""
    turns = np.arange(0, 360, 360 / (2 * radius * np.pi)) * np.pi / 180
    y, x = pivot[0] + radius * np.sin(turns), pivot[1] + radius * np.cos(turns)
    inside = (y >= 0) & (y < size) & (x >= 0) & (x < size)
    return sorted(set(zip(y[inside].astype(int).tolist(), x[inside].astype(int).tolist(), strict=True)))


@cache
def stroke(p: Parameters, margin: int, angle: float) -> tuple[np.ndarray, np.ndarray]:
    """A stroke from the centre and its mask, squares of 0 to 1."""
    reach, scale = p.length + math.ceil(p.thickness) + margin, p.antialias
    middle, side = reach * scale, 2 * reach + 1
    y, x = moved((middle, middle), angle, p.length * scale)
    large = Image.new("F", (2 * middle + 1, 2 * middle + 1), 0)
    ImageDraw.Draw(large).line([(middle, middle), (x, y)], fill=255, width=round(p.thickness * scale))
    drawn = np.array(large)
    pair = drawn, grown(drawn, disc(margin * scale))
    one, two = (np.array(Image.fromarray(i.astype(np.uint8)).resize((side, side), LANCZOS)) / 255 for i in pair)
    return one, two


@cache
def disc(radius: int) -> tuple[Point, ...]:
    span = range(-radius, radius + 1)
    return tuple((y, x) for y in span for x in span if y * y + x * x <= radius * radius)


def grown(image: np.ndarray, offsets: tuple[Point, ...]) -> np.ndarray:
    """The largest value at any of the offsets from a pixel; -1 where all of them lie outside the image."""
    far, n = max(max(abs(y), abs(x)) for y, x in offsets), len(image)
    padded = np.pad(image.astype(float), far, constant_values=-1)
    return np.max([padded[far + y : far + y + n, far + x : far + x + n] for y, x in offsets], axis=0)


def placed(size: int, stamp: np.ndarray, at: Point) -> np.ndarray:
    """A stamp around a pixel of an empty image, cut at the edges."""
    reach = len(stamp) // 2
    image = np.zeros((size + 2 * reach, size + 2 * reach))
    image[at[0] : at[0] + 2 * reach + 1, at[1] : at[1] + 2 * reach + 1] = stamp
    return image[reach : reach + size, reach : reach + size]


class Chain:
    """A contour that grows: its picture, the mask of its newest paddle, its first and newest end."""

    def __init__(self, p: Parameters, margin: int, start: Point, angle: float, contrast: float) -> None:
        self.p, self.margin, self.contrast, self.heading = p, margin, contrast, angle
        head = moved(start, angle, p.length)
        self.pivot = moved(head, reversed_(angle), p.length + margin)
        if not all(0 <= v < p.size for v in (*head, *self.pivot)):
            raise DeadEnd
        self.first = self.last = start
        line, mask = stroke(p, margin, angle)
        self.image, self.newest = contrast * placed(p.size, line, start), placed(p.size, mask, start)

    def extend(self, mask: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """One paddle more; the mask with the paddle before it. Raises DeadEnd."""
        p, margin = self.p, self.margin
        pivot = moved(self.pivot, self.heading, p.length + 2 * margin)
        ends = ends_around(pivot, p.length + margin, p.size)
        headings = [math.atan2(y - pivot[0], x - pivot[1]) for y, x in ends]
        crowded = grown(mask, disc(margin))
        weights = []
        for end, heading in zip(ends, headings, strict=True):
            turn = abs(heading - self.heading)
            turn = min(min(turn, 2 * np.pi - turn) * p.continuity, np.pi / 2)
            weights.append((1 - crowded[end]) * math.cos(turn) ** 2)
        if sum(weights) < 1e-4:
            raise DeadEnd
        for _ in range(p.paddle_retrials + 1):
            k = rng.choice(len(ends), p=np.array(weights) / sum(weights))
            line, room = (placed(p.size, s, ends[k]) for s in stroke(p, margin, reversed_(headings[k])))
            if (mask + room).max() < 1.8 - 1e-9:
                mask = np.maximum(mask, self.newest)
                self.image = np.maximum(self.image, self.contrast * line)
                self.newest, self.last, self.pivot, self.heading = room, ends[k], pivot, headings[k]
                return mask
        raise DeadEnd


def free_start(
    p: Parameters, margin: int, mask: np.ndarray, frame: int, angle: float, rng: np.random.Generator
) -> Point:
    """A pixel where a first paddle has room, `frame` pixels from the edges. Raises DeadEnd.

    The room is a paddle's mask, one pixel off its place; a corner of the image that it cannot reach spoils all.
    """
    box, square = p.length + margin, np.ones_like(mask)
    square[frame : p.size - frame, frame : p.size - frame] = mask[frame : p.size - frame, frame : p.size - frame]
    y, x = np.nonzero(stroke(p, margin, angle)[1] == 1)
    y, x = (v - len(stroke(p, margin, angle)[1]) // 2 + 1 for v in (y, x))
    near = (abs(y) <= box) & (abs(x) <= box)
    room = grown(square, tuple(zip(y[near].tolist(), x[near].tolist(), strict=True)))
    free = np.argwhere(room <= 0.3)
    if room.min() < 0 or len(free) == 0:
        raise DeadEnd
    row, column = free[rng.integers(len(free))].tolist()
    return row, column


def turn(rng: np.random.Generator) -> float:
    return float(rng.integers(-180, 180) * np.pi / 180)


def two_contours(p: Parameters, margin: int, rng: np.random.Generator) -> tuple[list[Chain], np.ndarray]:
    """Two contours in one image, and the mask of what they cover. Raises DeadEnd."""
    mask = np.ones((p.size, p.size))
    mask[p.padding : -p.padding, p.padding : -p.padding] = 0
    angle = turn(rng)
    first = Chain(p, margin, free_start(p, margin, mask, 2 * p.seed_distance, angle, rng), angle, p.contour_contrast)
    chains = [first]
    for _ in range(p.paddle_retrials + 1):
        angle, around = turn(rng), float(rng.integers(0, 360) * np.pi / 180)
        y = round(first.first[0] + p.seed_distance * math.sin(around))
        x = round(first.first[1] + p.seed_distance * math.cos(around))
        try:
            chains.append(Chain(p, margin, (y, x), angle, p.contour_contrast))
            break
        except DeadEnd:
            continue
    if len(chains) == 1:
        raise DeadEnd
    for _ in range(p.contour - 1):
        for chain in chains:
            mask = chain.extend(mask, rng)
    return chains, np.maximum(mask, chains[1].newest)


def distractor(p: Parameters, margin: int, mask: np.ndarray, rng: np.random.Generator) -> tuple[Chain, np.ndarray]:
    """A distractor contour, and the mask with it. Raises DeadEnd."""
    if (mask <= 0.3).mean() < 0.01:
        raise DeadEnd
    for _ in range(p.paddle_retrials + 1):
        angle = turn(rng)
        start = free_start(p, margin, mask, 1, angle, rng)
        try:
            chain = Chain(p, margin, start, angle, p.distractor_contrast)
        except DeadEnd:
            continue
        for _ in range(p.distractor - 1):
            mask = chain.extend(mask, rng)
        return chain, np.maximum(mask, chain.newest)
    raise DeadEnd


def marker(p: Parameters, at: Point) -> np.ndarray:
    rows, columns = (np.arange(p.size * p.antialias) - v * p.antialias for v in at)
    circle = (rows[:, None] ** 2 + columns[None, :] ** 2 <= (p.radius * p.antialias) ** 2) * np.uint8(255)
    return np.array(Image.fromarray(circle).resize((p.size, p.size), LANCZOS)) / 255


def twin_image(p: Parameters, rng: np.random.Generator) -> np.ndarray:
    """The image: (size, size) uint8."""
    margin = int(rng.choice(p.margins))
    while True:
        try:
            chains, mask = two_contours(p, margin, rng)
            break
        except DeadEnd:
            continue
    image = np.maximum(chains[0].image, chains[1].image)
    for _ in range(p.distractors):
        for _ in range(p.contour_retrials + 1):
            try:
                chain, mask = distractor(p, margin, mask, rng)
                image = np.maximum(image, chain.image)
                break
            except DeadEnd:
                continue
    origin = rng.integers(2)
    for at in (chains[origin].first, chains[rng.integers(2)].last):
        image = np.maximum(image, marker(p, at))
    return (image * (255 / image.max()) + 0.5).astype(np.uint8)
