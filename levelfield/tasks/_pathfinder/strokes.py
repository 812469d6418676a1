"""Draws every stroke that a Pathfinder image can contain once, so that the search only looks pixels up.

The first paddle of a contour has one of 360 directions. A later one has one of a few dozen, the pixels of a ring around
the current end. Each direction has a stroke (its pixels and gray values) and a mask (the stroke dilated by the margin).
Both are offsets into an image with rows of `width` pixels, of which `pad` on every side make bounds checks needless.

    tables = make_tables(parameters(32, "hard"), margin=1)
    begin, _, end = tables.mask_at[360]      # tables.masks[begin:end]: pixels of the first ring direction's mask

Steps along a contour are float64 and not rounded, because the reference rounds up after it has added the coordinate:
4 cos(pi / 2) is 2.4e-16, which moves a vertical contour by a pixel at column 2 and vanishes in rounding at column 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from levelfield.tasks._pathfinder.settings import Parameters

COLLIDES = 204  # smaller mask values never collide: two masks collide where they sum to 1.8 x 255
DEGREES = 360  # directions of a first paddle; ring direction k has index DEGREES + k


class Tables(NamedTuple):
    """The tables that the compiled search reads, for D directions: index 0..359 is index - 180 degrees, then K of a
    ring.

    A paddle is placed by one of its ends. Offsets are relative to that pixel in an image with rows of `width`.
    """

    width: int
    pad: int
    masks: np.ndarray  # (pixels, 2) int32: offset and value 1..255 of every direction's mask, largest values first
    mask_at: np.ndarray  # (D, 3) int32: where a direction's pixels begin, where they stop colliding, where they end
    lines: np.ndarray  # (pixels, 2) int32: the same for the strokes
    line_at: np.ndarray  # (D, 2) int32
    probes: np.ndarray  # (pixels,) int32: offsets that must be free for a first paddle
    probe_at: np.ndarray  # (360, 3) int32: begin, end, 1 where the reference search can find room at all
    central: np.ndarray  # (usable, 5) int32: a contour's first direction; first row, rows, first column, columns
    first: np.ndarray  # (360, 4) float64: from a first paddle's outer end to its other end, and on to the first pivot
    beside: np.ndarray  # (360, 2) float64: from the first contour's outer end to the second's, by degrees
    leave: np.ndarray  # (D, 2) float64: from one pivot to the next
    choices: np.ndarray  # (D,) int32: how many ring positions continue
    ring: np.ndarray  # (K, 2) int32: ends a paddle can have around a pivot
    order: np.ndarray  # (D, K) int32: ring positions, likeliest continuation first
    weight: np.ndarray  # (D, K) float64: their weights, cumulated in that order
    disc: np.ndarray  # (pixels,) int32: offsets of the margin around an end
    marker: np.ndarray  # (pixels, 2) int32: offset and value


@lru_cache(maxsize=32)
def make_tables(p: Parameters, margin: int) -> Tables:
    """Draws the strokes and makes the tables, in about 50 ms. It needs Pillow."""
    reach = p.length + math.ceil(p.thickness) + margin
    pad = reach + 1
    width = p.size + 2 * pad
    ring, headings = _ring(p.length + margin)
    strokes = stroke_angles(p, margin)
    degrees = strokes[:DEGREES]
    drawn = [_draw(p, margin, angle, reach) for angle in strokes]
    masks, mask_at = _sparse([mask for _, mask in drawn], width)
    solid = [a + np.count_nonzero(masks[a:b, 1] >= COLLIDES) for a, b in mask_at]
    lines, line_at = _sparse([line for line, _ in drawn], width)
    probes = [_probe([mask for _, mask in drawn][d], p.length + margin) for d in range(DEGREES)]
    probe_ends = np.cumsum([0, *(len(q) for q in probes)])
    heads = _steps(degrees, p.length)
    pivots = _steps([_opposite(a) for a in degrees], p.length + margin)
    leaving = np.concatenate([degrees, headings])
    order, weight, choices = _continuations(leaving, headings, p.continuity)
    flat = np.array([width, 1])
    return Tables(
        width=width,
        pad=pad,
        masks=masks,
        mask_at=_int32(np.stack([mask_at[:, 0], solid, mask_at[:, 1]], axis=1)),
        lines=lines,
        line_at=line_at,
        probes=_int32(np.concatenate(probes) @ flat),
        probe_at=_int32(np.stack([probe_ends[:-1], probe_ends[1:], [_reaches_corners(q) for q in probes]], axis=1)),
        central=_central(p, probes),
        first=np.concatenate([heads, pivots], axis=1),
        beside=_steps(_degrees(0, 360), p.seed_distance),
        leave=_steps(leaving, p.length + 2 * margin),
        choices=_int32(choices),
        ring=_int32(ring),
        order=_int32(order),
        weight=weight,
        disc=_int32(_disc(margin) @ flat),
        marker=_sparse([_marker(p)], width)[0],
    )


def stroke_angles(p: Parameters, margin: int) -> np.ndarray:
    """Returns the angle of each stroke from the end that it is placed by: (D,) radians, with rows growing downwards."""
    _, headings = _ring(p.length + margin)
    return np.concatenate([_degrees(-180, 180), [_opposite(a) for a in headings]])


def _degrees(low: int, high: int) -> np.ndarray:
    """Converts degrees to radians, rounded as in the reference; `np.deg2rad` differs in the last bit."""
    return np.arange(low, high) * np.pi / 180


def _int32(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=np.int32)


def _opposite(angle: float) -> float:
    return angle + math.pi if angle < 0 else angle - math.pi


def _steps(angles: Iterable[float], distance: int) -> np.ndarray:
    """Returns the steps of length `distance`, down and right: (n, 2) float64.

    Sines are those of the C library, so that they have the same bits on every machine.
    """
    return np.array([(float(distance) * math.sin(a), float(distance) * math.cos(a)) for a in angles])


def _ring(radius: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pixels at `radius` around a point, one per pixel of arc: (K, 2) displacements, (K,) directions."""
    turns = np.deg2rad(np.arange(0, 360, 360 / (2 * radius * np.pi)))
    at = np.stack([radius * np.sin(turns), radius * np.cos(turns)], axis=1)
    pixels = np.unique(np.floor(1000 + at).astype(np.int64) - 1000, axis=0)
    return pixels, np.arctan2(pixels[:, 0], pixels[:, 1])


def _continuations(leaving: np.ndarray, headings: np.ndarray, continuity: float) -> tuple[np.ndarray, ...]:
    """Sorts ring positions by falling weight cos^2(continuity x turn), which is 0 from 90 degrees on.

    leaving: (D,), headings: (K,), both in radians. Returns the order (D, K), the cumulative weights (D, K), and the
    number of positions with a weight above 0 (D,).
    """
    turn = np.abs(headings[None, :] - leaving[:, None])
    turn = np.minimum(turn, 2 * np.pi - turn)
    weight = np.cos(np.minimum(turn * continuity, 0.5 * np.pi)) ** 2
    weight[weight < 1e-12] = 0.0
    order = np.argsort(-weight, axis=1, kind="stable")
    cumulated = np.cumsum(np.take_along_axis(weight, order, axis=1), axis=1)
    return order, cumulated, np.count_nonzero(weight, axis=1)


def _disc(radius: int) -> np.ndarray:
    """Returns the displacements no longer than `radius`, nearest first: (pixels, 2)."""
    span = np.arange(-radius, radius + 1)
    points = np.array([(y, x) for y in span for x in span if y * y + x * x <= radius * radius])
    return points[np.argsort((points**2).sum(1), kind="stable")]


def _draw(p: Parameters, margin: int, angle: float, reach: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws a stroke from the centre in direction `angle`, and its mask: (2 reach + 1, 2 reach + 1) uint8 each."""
    from PIL import Image, ImageDraw

    scale, side = p.antialias, 2 * reach + 1
    centre = reach * scale
    y, x = np.ceil(centre + _steps([angle], p.length * scale)[0]).astype(int).tolist()
    canvas = Image.new("L", (2 * centre + 1, 2 * centre + 1), 0)
    ends = [(centre, centre), (x, y)]
    ImageDraw.Draw(canvas).line(ends, fill=255, width=round(p.thickness * scale))
    large = np.asarray(canvas)
    grown = Image.fromarray(_grow(large, margin * scale))
    small = [np.array(image.resize((side, side), Image.Resampling.LANCZOS)) for image in (canvas, grown)]
    return small[0], small[1]


def _grow(image: np.ndarray, radius: int) -> np.ndarray:
    """Dilates an image: each pixel becomes the largest within `radius`. (n, n) uint8 -> the same shape."""
    n = len(image)
    padded = np.pad(image, radius)
    views = [padded[radius + y : radius + y + n, radius + x : radius + x + n] for y, x in _disc(radius)]
    return np.maximum.reduce(views)


def _sparse(stamps: list[np.ndarray], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Collects the non-zero pixels of square stamps of odd size.

    Returns offset from the centre and value of each pixel, (pixels, 2), and where each stamp begins and ends, (n, 2).
    """
    pixels = []
    for stamp in stamps:
        y, x = np.nonzero(stamp)
        value = stamp[y, x].astype(np.int64)
        offset = (y - len(stamp) // 2) * width + x - len(stamp) // 2
        pixels.append(np.stack([offset, value], axis=1)[np.argsort(-value, kind="stable")])
    ends = np.cumsum([0, *map(len, pixels)])
    return _int32(np.concatenate(pixels)), _int32(np.stack([ends[:-1], ends[1:]], axis=1))


def _probe(mask: np.ndarray, box: int) -> np.ndarray:
    """Returns the displacements that must be free around a first paddle's outer end, (n, 2): those of its solid mask.

    As in the reference, they are cut to a square of `box` pixels in every direction, one pixel off the centre.
    """
    points = np.argwhere(mask == 255) - len(mask) // 2 + 1
    return points[(np.abs(points) <= box).all(1)]


def _reaches_corners(probe: np.ndarray) -> bool:
    """Whether every corner of an image has a probe pixel inside the image.

    The reference dilates the occupied area with OpenCV, and finds no room at all where a corner is reached by no mask
    pixel. Such directions never start a contour there, so they do not here either: the distribution is the same.
    """
    y, x = probe[:, 0], probe[:, 1]
    return all(((sy * y >= 0) & (sx * x >= 0)).any() for sy in (-1, 1) for sx in (-1, 1))


def _central(p: Parameters, probes: list[np.ndarray]) -> np.ndarray:
    """Returns the directions in which a long contour can start, with the rectangle for its outer end: (usable, 5)."""
    low, high = 2 * p.seed_distance, p.size - 2 * p.seed_distance
    rows = []
    for direction, probe in enumerate(probes):
        (y, x), (bottom, right) = low - probe.min(0), high - probe.max(0)
        if _reaches_corners(probe) and bottom > y and right > x:
            rows.append((direction, y, bottom - y, x, right - x))
    return _int32(np.array(rows))


def _marker(p: Parameters) -> np.ndarray:
    """Draws a filled circle, reduced as the strokes are: a square of odd size, uint8."""
    from PIL import Image

    reach = math.ceil(p.radius) + 4
    side = 2 * reach + 1
    span = np.arange(side * p.antialias) - reach * p.antialias
    circle = (span[:, None] ** 2 + span[None, :] ** 2 <= (p.radius * p.antialias) ** 2).astype(np.uint8) * 255
    return np.array(Image.fromarray(circle).resize((side, side), Image.Resampling.LANCZOS))
