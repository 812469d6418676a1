"""Defines the parameters of Pathfinder images, for each size and difficulty.

Those for 32 to 256 pixels are the ones of Long Range Arena (`lra_benchmarks/data/pathfinder.py`, which lists changes to
the defaults of github.com/drewlinsley/pathfinder). The size of 16 pixels is levelfield's own, for quick experiments:
the strokes of 32 pixels, with contours short enough to fit and their ends kept apart. No paper prints results on it.

    parameters(32, "hard").contour      # 14 paddles in each of the two long contours
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from levelfield.spec import UserError

Difficulty = Literal["easy", "intermediate", "hard"]
DIFFICULTIES: tuple[Difficulty, ...] = ("easy", "intermediate", "hard")


@dataclass(frozen=True)
class Parameters:
    """The parameters of an image. Lengths are in pixels, those of contours in paddles (strokes of a dashed contour)."""

    size: int
    contour: int  # paddles in each of the two long contours
    distractor: int  # paddles in each distractor
    distractors: int  # how many are tried; a distractor that finds no room is left out
    padding: int  # width of a frame without paddles
    seed_distance: int  # between the first paddles of the two contours; also half their distance to the frame
    length: int  # of a paddle
    thickness: float  # of a paddle
    margins: tuple[int, ...]  # free space around a paddle; one is drawn for each image
    radius: float  # of the two markers
    continuity: float  # larger values bend less: the turn times this must stay below 90 degrees
    contour_contrast: float  # brightness of the long contours; a marker has 1.0
    distractor_contrast: float
    antialias: int = 2  # strokes are drawn larger by this factor, then reduced
    paddle_retrials: int = 2
    contour_retrials: int = 4
    apart: bool = False  # whether the ends of the long contours keep their distance; in the reference they may touch


_SMALL = Parameters(
    size=32,
    contour=14,
    distractor=4,
    distractors=5,
    padding=1,
    seed_distance=7,
    length=2,
    thickness=0.5,
    margins=(1,),
    radius=1.5,
    continuity=1.0,
    contour_contrast=1.5,  # the Arena's paddle contrast 0.75 times its contour contrast 2
    distractor_contrast=2.0,
)
_BIG = replace(_SMALL, length=5, continuity=1.8)  # the generator's own paddle length

_SIZES: dict[int, Parameters] = {
    16: replace(_SMALL, size=16, seed_distance=3, apart=True),
    32: _SMALL,
    64: replace(
        _BIG, size=64, seed_distance=12, thickness=1.0, radius=2.5, contour_contrast=0.8, distractor_contrast=0.8
    ),
    128: replace(
        _BIG,
        size=128,
        seed_distance=20,
        thickness=1.5,
        margins=(2, 3),
        radius=3.0,
        contour_contrast=0.9,
        distractor_contrast=0.9,
    ),
    256: replace(
        _BIG,
        size=256,
        padding=22,
        seed_distance=27,
        thickness=2.0,
        margins=(3,),
        radius=5.0,
        contour_contrast=1.0,
        distractor_contrast=1.0,
    ),
}
SIZES = tuple(_SIZES)
_CONTOUR: dict[Difficulty, int] = {"easy": 6, "intermediate": 9, "hard": 14}
_SHORT: dict[Difficulty, int] = {"easy": 3, "intermediate": 4, "hard": 5}  # at 16 pixels
_DISTRACTING = {16: 4, 32: 20, 64: 22, 128: 35, 256: 30}  # paddles of all distractors together, at most


def parameters(size: int, difficulty: Difficulty) -> Parameters:
    """Returns the parameters of a size and difficulty. Raises UserError for one that does not exist."""
    if size not in SIZES:
        raise UserError(f"Pathfinder has no size {size}: choose one of {', '.join(map(str, SIZES))}.")
    if difficulty not in DIFFICULTIES:
        raise UserError(f"Pathfinder has no difficulty '{difficulty}': choose easy, intermediate or hard.")
    contour = (_SHORT if size == 16 else _CONTOUR)[difficulty]
    distractor = max(1, contour // 3)
    many = _DISTRACTING[size] // distractor
    return replace(_SIZES[size], contour=contour, distractor=distractor, distractors=many)
