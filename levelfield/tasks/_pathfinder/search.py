"""Places the two long contours, the distractors and the markers of an image, in compiled code.

The algorithm is that of the public generator (github.com/drewlinsley/pathfinder, `snakes2.py`; Linsley et al. 2018,
arXiv:1805.08315), rewritten. A try places two first paddles, then extends both contours in turn by paddles that touch
no earlier one, and starts again at a dead end. The distribution is the same, and only how it is sampled differs:
strokes come from tables, candidates are sampled by rejection instead of weighing all of them, and first directions that
can never succeed are not tried.

    find_chains(tables, plan, seeds, labels, markers, chains, counts)      # fills the last four; releases the GIL
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from levelfield.jit import compiled
from levelfield.jit.splitmix import STEP, mix
from levelfield.tasks._pathfinder.strokes import DEGREES, Tables

SOLID = 459  # two masks collide where their values sum to 1.8 x 255 or more
BUSY = 77  # mask values from 0.3 x 255 on mean that a pixel is occupied
GUESSES = 6  # rejected candidates before all of them are weighed


_mix = compiled(mix)


class Plan(NamedTuple):
    """The fields of `Parameters` that the compiled code reads."""

    size: int
    contour: int
    distractor: int
    distractors: int
    padding: int
    paddle_retrials: int
    contour_retrials: int
    apart: bool


@compiled
def _next(state: np.ndarray) -> np.uint64:
    """The next 64 random bits of SplitMix64; state: (1,) uint64, which moves on."""
    state[0] += STEP
    return _mix(state[0])


@compiled
def _below(state: np.ndarray, bound: int) -> Any:
    """Draws a uniform integer in 0..bound-1, for bounds far below 2^32."""
    return np.int64(((_next(state) >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@compiled
def _uniform(state: np.ndarray) -> Any:
    return np.float64(_next(state) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@compiled
def _crowding(disc: np.ndarray, mask: np.ndarray, at: int) -> Any:
    """Returns the largest mask value, 0..255, within the margin of a pixel."""
    worst = 0
    for i in range(len(disc)):
        v = np.int64(mask[at + disc[i]])
        if v > worst:
            worst = v
            if worst == 255:
                break
    return worst


@compiled
def _collides(masks: np.ndarray, begin: int, end: int, mask: np.ndarray, at: int) -> bool:
    for i in range(begin, end):  # noqa: SIM110 (a generator costs more here)
        if np.int64(mask[at + masks[i, 0]]) + np.int64(masks[i, 1]) >= SOLID:
            return True
    return False


@compiled
def _occupy(masks: np.ndarray, begin: int, end: int, mask: np.ndarray, at: int) -> None:
    for i in range(begin, end):
        j = at + masks[i, 0]
        mask[j] = max(mask[j], np.uint8(masks[i, 1]))


@compiled
def _copy(source: np.ndarray, target: np.ndarray) -> None:
    for i in range(len(source)):
        target[i] = source[i]


@compiled
def _inside(size: int, y: int, x: int) -> bool:
    return y >= 0 and x >= 0 and y < size and x < size


@compiled
def _flat(t: Tables, y: int, x: int) -> int:
    return (y + t.pad) * t.width + x + t.pad


@compiled
def _moved(at: int, step: float) -> Any:
    """Returns the pixel that a step leads to. As in the reference, the sum is rounded up, not the step."""
    return np.int64(np.ceil(at + step))


@compiled
def _weigh_all(t: Tables, size: int, state: np.ndarray, mask: np.ndarray, y: int, x: int, leaving: int) -> int:
    """Draws a ring position in proportion to its weight times its free space; -1 where all are blocked."""
    choices = t.choices[leaving]
    cumulated = np.empty(choices)
    total, before = 0.0, 0.0
    for j in range(choices):
        k = t.order[leaving, j]
        ny, nx = y + t.ring[k, 0], x + t.ring[k, 1]
        if _inside(size, ny, nx):
            free = 255 - _crowding(t.disc, mask, _flat(t, ny, nx))
            total += (t.weight[leaving, j] - before) * free / 255.0
        before = t.weight[leaving, j]
        cumulated[j] = total
    if total < 1e-4:
        return -1
    u = _uniform(state) * total
    for j in range(choices):
        if u < cumulated[j]:
            return t.order[leaving, j]
    return -1


@compiled
def _candidate(t: Tables, size: int, state: np.ndarray, mask: np.ndarray, y: int, x: int, leaving: int) -> int:
    """Draws a ring position around pivot (y, x), distributed as in `_weigh_all`, by rejection; -1 at a dead end."""
    total = t.weight[leaving, t.choices[leaving] - 1]
    for _ in range(GUESSES):
        u = _uniform(state) * total
        j = 0
        while t.weight[leaving, j] <= u:
            j += 1
        k = t.order[leaving, j]
        ny, nx = y + t.ring[k, 0], x + t.ring[k, 1]
        if _inside(size, ny, nx):
            worst = _crowding(t.disc, mask, _flat(t, ny, nx))
            if worst == 0 or (worst < 255 and _uniform(state) * 255 >= worst):
                return k
    return _weigh_all(t, size, state, mask, y, x, leaving)


@compiled
def _extend(
    t: Tables, plan: Plan, state: np.ndarray, mask: np.ndarray, chain: np.ndarray, n: int, tip: np.ndarray
) -> bool:
    """Adds paddle n to a chain of n paddles; returns False at a dead end.

    chain: (paddles, 3) int64, row and column of the end that a stroke is placed by, and its direction. tip: (3,) int64,
    row and column of the pivot, and the direction in which the chain leaves it. The previous paddle is added to the
    mask; the new one is not.
    """
    leaving = tip[2]
    y, x = _moved(tip[0], t.leave[leaving, 0]), _moved(tip[1], t.leave[leaving, 1])
    for _ in range(plan.paddle_retrials + 1):
        k = _candidate(t, plan.size, state, mask, y, x, leaving)
        if k < 0:
            return False
        ny, nx, d = y + t.ring[k, 0], x + t.ring[k, 1], DEGREES + k
        if not _collides(t.masks, t.mask_at[d, 0], t.mask_at[d, 1], mask, _flat(t, ny, nx)):
            _settle(t, mask, chain[n - 1])
            chain[n, 0], chain[n, 1], chain[n, 2] = ny, nx, d
            tip[0], tip[1], tip[2] = y, x, d
            return True
    return False


@compiled
def _settle(t: Tables, mask: np.ndarray, paddle: np.ndarray) -> None:
    """Adds a paddle and its margin to the mask."""
    d = paddle[2]
    _occupy(t.masks, t.mask_at[d, 0], t.mask_at[d, 2], mask, _flat(t, paddle[0], paddle[1]))


@compiled
def _start(first: np.ndarray, size: int, y: int, x: int, direction: int, chain: np.ndarray, tip: np.ndarray) -> bool:
    """Places a first paddle; returns False where its other end or its pivot is outside the image."""
    hy, hx = _moved(y, first[direction, 0]), _moved(x, first[direction, 1])
    py, px = _moved(hy, first[direction, 2]), _moved(hx, first[direction, 3])
    if not (_inside(size, hy, hx) and _inside(size, py, px)):
        return False
    chain[0, 0], chain[0, 1], chain[0, 2] = y, x, direction
    tip[0], tip[1], tip[2] = py, px, direction
    return True


@compiled
def _two_starts(t: Tables, plan: Plan, state: np.ndarray, chains: np.ndarray, tips: np.ndarray) -> bool:
    """Places the first paddles of both contours: one around the centre, the other `seed_distance` from it.

    Both directions are random. Returns False where there is no room.
    """
    i = _below(state, len(t.central))
    y = t.central[i, 1] + _below(state, t.central[i, 2])
    x = t.central[i, 3] + _below(state, t.central[i, 4])
    if not _start(t.first, plan.size, y, x, t.central[i, 0], chains[0], tips[0]):
        return False
    for _ in range(plan.paddle_retrials + 1):
        direction = _below(state, DEGREES)
        turn = _below(state, 360)
        y2, x2 = np.int64(np.rint(y + t.beside[turn, 0])), np.int64(np.rint(x + t.beside[turn, 1]))
        if _start(t.first, plan.size, y2, x2, direction, chains[1], tips[1]):
            return True
    return False


@compiled
def _two_contours(
    t: Tables, plan: Plan, state: np.ndarray, frame: np.ndarray, mask: np.ndarray, chains: np.ndarray, tips: np.ndarray
) -> int:
    """Places both contours, and returns the number of tries.

    As in the reference, the last paddle of the first contour is not added to the mask, unless the plan keeps the ends
    apart.
    """
    tries = 0
    going = False
    while not going:
        tries += 1
        _copy(frame, mask)
        going = _two_starts(t, plan, state, chains, tips)
        turn = 2
        while going and turn < 2 * plan.contour:
            going = _extend(t, plan, state, mask, chains[turn % 2], turn // 2, tips[turn % 2])
            turn += 1
            if plan.apart and turn == 2 * plan.contour - 1:
                _settle(t, mask, chains[0, plan.contour - 1])
    _settle(t, mask, chains[1, plan.contour - 1])
    return tries


@compiled
def _fits(probes: np.ndarray, begin: int, end: int, mask: np.ndarray, at: int) -> bool:
    for i in range(begin, end):  # noqa: SIM110 (a generator costs more here)
        if mask[at + probes[i]] >= BUSY:
            return False
    return True


@compiled
def _free_place(t: Tables, size: int, state: np.ndarray, mask: np.ndarray, direction: int) -> tuple[Any, Any]:
    """Draws a pixel uniformly from those where a first paddle has room; (-1, -1) where there is none."""
    begin, end = t.probe_at[direction, 0], t.probe_at[direction, 1]
    for _ in range(40):
        y, x = _below(state, size), _below(state, size)
        if _fits(t.probes, begin, end, mask, _flat(t, y, x)):
            return y, x
    found = np.empty(size * size, np.int32)
    n = 0
    for p in range(size * size):
        if _fits(t.probes, begin, end, mask, _flat(t, p // size, p % size)):
            found[n] = p
            n += 1
    if n == 0:
        return -1, -1
    pick = np.int64(found[_below(state, n)])
    return pick // size, pick % size


@compiled
def _start_anywhere(
    t: Tables, plan: Plan, state: np.ndarray, mask: np.ndarray, chain: np.ndarray, tip: np.ndarray
) -> bool:
    for _ in range(plan.paddle_retrials + 1):
        direction = _below(state, DEGREES)
        if t.probe_at[direction, 2] == 0:
            return False
        y, x = _free_place(t, plan.size, state, mask, direction)
        if y < 0:
            return False
        if _start(t.first, plan.size, y, x, direction, chain, tip):
            return True
    return False


@compiled
def _distractor(
    t: Tables, plan: Plan, state: np.ndarray, kept: np.ndarray, mask: np.ndarray, chain: np.ndarray, tip: np.ndarray
) -> bool:
    """Tries to place one distractor, and returns whether it succeeded.

    `mask` equals `kept` before and after the call. Both contain the distractor if it succeeded.
    """
    if not _start_anywhere(t, plan, state, mask, chain, tip):
        return False
    n = 1
    while n < plan.distractor and _extend(t, plan, state, mask, chain, n, tip):
        n += 1
    done = n == plan.distractor
    if done:
        _settle(t, mask, chain[n - 1])
    for m in range(n):
        at = _flat(t, chain[m, 0], chain[m, 1])
        for i in range(t.mask_at[chain[m, 2], 0], t.mask_at[chain[m, 2], 2]):
            j = at + t.masks[i, 0]
            if done:
                kept[j] = mask[j]
            else:
                mask[j] = kept[j]
    return done


@compiled
def _is_full(t: Tables, size: int, mask: np.ndarray) -> bool:
    """Whether less than 1 % of the pixels are free."""
    free = 0
    for y in range(size):
        at = _flat(t, y, 0)
        for x in range(size):
            free += mask[at + x] < BUSY
        if free >= 0.01 * size * size:
            return False
    return True


@compiled
def _add_distractors(
    t: Tables, plan: Plan, state: np.ndarray, kept: np.ndarray, mask: np.ndarray, chains: np.ndarray, tip: np.ndarray
) -> int:
    """Places distractors into chains, (distractors, paddles, 3), and returns how many found room."""
    drawn = 0
    for _ in range(plan.distractors):
        for _ in range(plan.contour_retrials + 1):
            if _is_full(t, plan.size, kept):
                return drawn
            if _distractor(t, plan, state, kept, mask, chains[drawn], tip):
                drawn += 1
                break
    return drawn


@compiled
def find_chains(
    t: Tables,
    plan: Plan,
    seeds: np.ndarray,
    labels: np.ndarray,
    markers: np.ndarray,
    chains: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Places everything in one image per seed, (n,) uint64, and fills the other arrays.

    labels: (n,) int64, 1 where both markers are on one contour. markers: (n, 4) int64, row and column of the first and
    of the second. chains: (n, 2 + distractors, paddles, 3) int64, the two long contours first, as in `_extend`. counts:
    (n, 3) int64: tries, distractors that found room, and the contour at which the first marker is.
    """
    frame = np.zeros(t.width * t.width, np.uint8)
    for y in range(plan.size):
        for x in range(plan.size):
            if not _inside(plan.size - 2 * plan.padding, y - plan.padding, x - plan.padding):
                frame[_flat(t, y, x)] = 255
    mask, kept = frame.copy(), frame.copy()
    tips = np.zeros((2, 3), np.int64)
    state = np.zeros(1, np.uint64)
    for n in range(len(seeds)):
        state[0] = seeds[n]
        labels[n] = _below(state, 2)
        counts[n, 0] = _two_contours(t, plan, state, frame, mask, chains[n, :2], tips)
        _copy(mask, kept)
        counts[n, 1] = _add_distractors(t, plan, state, kept, mask, chains[n, 2:], tips[0])
        first = _below(state, 2)
        last = first if labels[n] == 1 else 1 - first
        counts[n, 2] = first
        for i in range(2):
            markers[n, i] = chains[n, first, 0, i]
            markers[n, 2 + i] = chains[n, last, plan.contour - 1, i]
