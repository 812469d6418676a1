"""Paints the strokes that the search placed, and the two markers, into gray images, in compiled code.

paint_images(tables, size, chains, paddles, contrasts, markers, images)      # fills images; releases the GIL
"""

from __future__ import annotations

import numpy as np

from levelfield.tasks._pathfinder.search import compiled
from levelfield.tasks._pathfinder.strokes import Tables


@compiled
def _brightest(t: Tables, chains: np.ndarray, paddles: np.ndarray, contrasts: np.ndarray) -> float:
    """Returns the largest product of contrast and intensity in an image; a marker has 1."""
    high = 1.0
    for c in range(len(contrasts)):
        for m in range(paddles[c]):
            first = t.line_at[chains[c, m, 2], 0]  # its largest value comes first
            high = max(high, t.lines[first, 1] / 255.0 * contrasts[c])
    return high


@compiled
def _shades(contrast: float, high: float) -> np.ndarray:
    """Returns the gray level of each stroke value, (256,) uint8, computed and rounded in the order of the reference."""
    shades = np.empty(256, np.uint8)
    for v in range(256):
        shades[v] = np.uint8(np.int64((v / 255.0 * contrast) * (255.0 / high) + 0.5))
    return shades


@compiled
def _stamp(canvas: np.ndarray, pixels: np.ndarray, begin: int, end: int, at: int, shades: np.ndarray) -> None:
    for i in range(begin, end):
        j = at + pixels[i, 0]
        canvas[j] = max(canvas[j], shades[pixels[i, 1]])


@compiled
def paint_images(
    t: Tables,
    size: int,
    chains: np.ndarray,
    paddles: np.ndarray,
    contrasts: np.ndarray,
    markers: np.ndarray,
    images: np.ndarray,
) -> None:
    """Paints one image per row of chains.

    chains: (n, c, paddles, 3) int64, row and column of the end that a stroke is placed by, and its direction. paddles:
    (n, c) int64, how many of them exist. contrasts: (c,) float64. markers: (n, 4) int64. images: (n, size * size)
    uint8, is filled. Where strokes overlap, the brighter one is seen. The brightest possible pixel becomes 255.
    """
    canvas = np.zeros(t.width * t.width, np.uint8)
    for n in range(len(images)):
        canvas.fill(0)
        high = _brightest(t, chains[n], paddles[n], contrasts)
        for c in range(len(contrasts)):
            shades = _shades(contrasts[c], high)
            for m in range(paddles[n, c]):
                y, x, direction = chains[n, c, m]
                at = (y + t.pad) * t.width + x + t.pad
                _stamp(canvas, t.lines, t.line_at[direction, 0], t.line_at[direction, 1], at, shades)
        shades = _shades(1.0, high)
        for i in range(0, 4, 2):
            at = (markers[n, i] + t.pad) * t.width + markers[n, i + 1] + t.pad
            _stamp(canvas, t.marker, 0, len(t.marker), at, shades)
        for y in range(size):
            at = (y + t.pad) * t.width + t.pad
            for x in range(size):
                images[n, y * size + x] = canvas[at + x]
