"""The numbers that make one Pathfinder image: one frozen value for each size and difficulty.

32 to 256 pixels follow the Long Range Arena's builder (`lra_benchmarks/data/pathfinder.py`: the listed changes to the
defaults of the generator it names, github.com/drewlinsley/pathfinder). 16 pixels is levelfield's own: the 32-pixel
strokes with contours short enough to fit and ends kept apart, for quick experiments; no paper prints results on it.

    parameters(32, "hard").contour      # 14 paddles in each of the two long contours
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from levelfield.spec import UserError

Difficulty = Literal["easy", "intermediate", "hard"]
DIFFICULTIES: tuple[Difficulty, ...] = ("easy", "intermediate", "hard")
SIZES: tuple[int, ...] = (16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Parameters:
    """Lengths in pixels, contour lengths in paddles (a paddle is one stroke of the dashed contours)."""

    size: int
    contour: int  # paddles in each of the two long contours
    distractor: int  # paddles in each distractor
    distractors: int  # how many distractors are tried; those that find no room are left out
    padding: int  # frame that no paddle enters
    seed_distance: int  # between the first paddles of the two contours; also half their distance to the frame
    length: int  # of a paddle
    thickness: float  # of a paddle
    margins: tuple[int, ...]  # free space around a paddle; one is drawn for each image
    radius: float  # of the two markers
    continuity: float  # larger bends less: the turn times this must stay below 90 degrees
    contour_contrast: float  # brightness of the long contours; a marker has 1.0
    distractor_contrast: float
    antialias: int = 2  # strokes are drawn this much larger, then reduced
    paddle_retrials: int = 2
    contour_retrials: int = 4
    apart: bool = False  # the long contours' last paddles keep their distance; in the reference they may touch


def parameters(size: int, difficulty: Difficulty) -> Parameters:
    """Raises UserError on a size or difficulty that does not exist."""
    if size not in SIZES:
        raise UserError(f"Pathfinder has no size {size}: choose one of {', '.join(map(str, SIZES))}.")
    if difficulty not in DIFFICULTIES:
        raise UserError(f"Pathfinder has no difficulty '{difficulty}': choose easy, intermediate or hard.")
    contour = (3, 4, 5)[DIFFICULTIES.index(difficulty)] if size == 16 else (6, 9, 14)[DIFFICULTIES.index(difficulty)]
    distractor = max(1, contour // 3)
    if size == 16:
        return Parameters(16, contour, distractor, 4 // distractor, 1, 3, 2, 0.5, (1,), 1.5, 1.0, 1.5, 2.0, apart=True)
    if size == 32:
        return Parameters(32, contour, distractor, 20 // distractor, 1, 7, 2, 0.5, (1,), 1.5, 1.0, 1.5, 2.0)
    if size == 64:
        return Parameters(64, contour, distractor, 22 // distractor, 1, 12, 5, 1.0, (1,), 2.5, 1.8, 0.8, 0.8)
    if size == 128:
        return Parameters(128, contour, distractor, 35 // distractor, 1, 20, 5, 1.5, (2, 3), 3.0, 1.8, 0.9, 0.9)
    return Parameters(256, contour, distractor, 30 // distractor, 22, 27, 5, 2.0, (3,), 5.0, 1.8, 1.0, 1.0)
