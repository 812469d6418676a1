"""Ways to see a Pathfinder image without its generator's knowledge. Used by the tests of Pathfinder.

linked(strokes, markers)             # 1 where good continuation leads from one marker to the other
bridged(image, markers, reach=4)     # the same from pixels: do bright pixels, grown by `reach`, connect the markers?
"""

from __future__ import annotations

import numpy as np

from levelfield.tasks._pathfinder.draw import Drawing


def images_of(drawing: Drawing) -> np.ndarray:
    """The images: (n, size, size) uint8."""
    size = int(np.sqrt(drawing.images.shape[1]))
    return drawing.images.reshape(-1, size, size)


def linked(strokes: np.ndarray, markers: np.ndarray) -> int:
    """Whether the markers lie on one contour, as 1 or 0. Two ends are joined where each best continues the other.

    strokes: (n, 4), both ends of each in any order; markers: (4,). The best continuation is near, and along the
    direction of both strokes.
    """
    count = len(strokes)
    ends = strokes.reshape(2 * count, 2)
    other = strokes.reshape(count, 2, 2)[:, ::-1].reshape(2 * count, 2)
    outward = (ends - other) / np.linalg.norm(ends - other, axis=1, keepdims=True)
    gap = ends[None] - ends[:, None]
    far = np.linalg.norm(gap, axis=-1)
    straight = gap / np.maximum(far, 1e-9)[..., None]
    aimed = np.minimum((straight * outward[:, None]).sum(-1), -(straight * outward[None]).sum(-1))
    cost = far + 2 * (1 + outward @ outward.T) - aimed
    owner = np.arange(2 * count) // 2
    cost[owner[:, None] == owner] = np.inf
    best = cost.argmin(1)
    group = np.arange(count)
    for i in np.flatnonzero(best[best] == np.arange(2 * count)):
        group[group == group[best[i] // 2]] = group[i // 2]
    first, last = (group[np.linalg.norm(ends - m, axis=1).argmin() // 2] for m in (markers[:2], markers[2:]))
    return int(first == last)


def _disc(radius: float, offset: float = 0.0) -> list[tuple[int, int]]:
    span = range(-int(radius) - 1, int(radius) + 2)
    return [(y, x) for y in span for x in span if np.hypot(y + offset, x + offset) <= radius]


def _shifted(image: np.ndarray, disc: list[tuple[int, int]]) -> list[np.ndarray]:
    """One copy of the image per displacement, False beyond its edges."""
    n, pad = len(image), max(abs(v) for point in disc for v in point)
    padded = np.pad(image, pad)
    return [padded[pad + y : pad + y + n, pad + x : pad + x + n] for y, x in disc]


def bridged(image: np.ndarray, markers: np.ndarray, reach: float) -> bool:
    """Whether a flood from the first marker over bright pixels grown by `reach` arrives at the second."""
    open_ = np.logical_or.reduce(_shifted(image > 60, _disc(reach)))
    start, goal = (tuple(int(v) for v in m) for m in markers.reshape(2, 2))
    reached, front = {start}, [start]
    while front:
        y, x = front.pop()
        for near in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
            if min(near) >= 0 and max(near) < len(image) and open_[near] and near not in reached:
                reached.add(near)
                front.append(near)
    return goal in reached


def marker_places(image: np.ndarray, radius: float, level: float) -> list[np.ndarray]:
    """Centres of filled circles: pixels all of whose surroundings are at least `level`, in clusters.

    A marker's centre is the corner of a pixel's upper left quarter, hence the offset.
    """
    core = np.logical_and.reduce(_shifted(image >= level, _disc(radius - 0.4, offset=0.25)))
    points = [np.array(p) for p in np.argwhere(core)]
    clusters: list[list[np.ndarray]] = []
    for point in points:
        touching = [c for c in clusters if any(np.abs(point - q).max() <= 2 for q in c)]
        clusters = [c for c in clusters if not any(c is t for t in touching)]
        clusters.append([point, *(q for c in touching for q in c)])
    return [np.mean(c, axis=0) for c in clusters]
