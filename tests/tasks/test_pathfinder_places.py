"""Where Pathfinder's paddles lie: beside the public generator's images, and beside its rules written out naively."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pathfinder_eyes import images_of
from pathfinder_twin import ends_around, moved, reversed_, twin_image

from levelfield.tasks._pathfinder.draw import draw, seeds
from levelfield.tasks._pathfinder.settings import Difficulty, parameters

SEEDS = seeds(0, "tests", 1000)


@pytest.mark.data
@pytest.mark.parametrize(("difficulty", "tolerance"), [("easy", 0.04), ("hard", 0.015)])
def test_pixels_are_distributed_as_the_reference_images(
    difficulty: Difficulty, tolerance: float, reference: dict[Difficulty, np.ndarray]
) -> None:
    """Mean and spread within `tolerance` (about three standard errors of 100 and 800 images); gray levels within
    0.01 by Kolmogorov's distance, so that a rounding by one level does not count; the same places are bright."""
    theirs, ours = reference[difficulty], images_of(draw(parameters(32, difficulty), SEEDS))
    assert abs(ours.mean() / theirs.mean() - 1) < tolerance
    assert abs(ours.std() / theirs.std() - 1) < tolerance
    levels = [np.bincount(x.ravel(), minlength=256).cumsum() / x.size for x in (ours, theirs)]
    assert np.abs(levels[0] - levels[1]).max() < 0.01
    assert np.corrcoef(ours.mean(0).ravel(), theirs.mean(0).ravel())[0, 1] > (0.97 if difficulty == "hard" else 0.9)
    rows = [np.quantile((x > 100).sum((1, 2)), [0.1, 0.5, 0.9]) for x in (ours, theirs)]
    assert np.abs(rows[0] / rows[1] - 1).max() < 0.06


def farthest(theirs: np.ndarray, ours: np.ndarray) -> float:
    """How many standard errors the share of bright pixels differs by in a column or a row, at most."""
    worst = 0.0
    for axis in (1, 2):
        a, b = ((images > 60).mean(axis) for images in (theirs, ours))
        spread = np.sqrt(a.var(0) / len(a) + b.var(0) / len(b) + 1e-12)
        worst = max(worst, float(np.max(np.abs(a.mean(0) - b.mean(0)) / spread)))
    return worst


@pytest.mark.data
def test_every_column_and_row_is_as_full_as_in_the_reference_images(reference: dict[Difficulty, np.ndarray]) -> None:
    """Of 64; pixels as well. Steps rounded around the image's centre are 8 standard errors off in column 2."""
    theirs, ours = reference["hard"], images_of(draw(parameters(32, "hard"), seeds(0, "places", 4000)))
    assert farthest(theirs, ours) < 4
    a, b = (theirs > 60).mean(0), (ours > 60).mean(0)
    errors = (a - b) / np.sqrt(b * (1 - b) * (1 / len(theirs) + 1 / len(ours)) + 1e-12)
    assert np.abs(errors[b > 0]).max() < 4.5
    assert abs(b[:, 2].mean() / a[:, 2].mean() - 1) < 0.05  # 0.178 and 0.179, where the centre's rounding gives 0.213


@pytest.mark.slow
@pytest.mark.parametrize(("size", "difficulty", "count"), [(16, "easy", 2000), (32, "easy", 800), (64, "easy", 300)])
def test_every_column_and_row_is_as_full_as_in_a_naive_generators_images(
    size: int, difficulty: Difficulty, count: int
) -> None:
    p, rng = replace(parameters(size, difficulty), apart=False), np.random.default_rng(0)
    theirs = np.stack([twin_image(p, rng) for _ in range(count)])
    ours = images_of(draw(p, seeds(0, "places", 10 * count)))
    assert farthest(theirs, ours) < 4
    assert abs(ours.mean() / theirs.mean() - 1) < 0.03


def test_the_naive_generator_draws_the_same_kind_of_images() -> None:
    p, rng = parameters(32, "easy"), np.random.default_rng(1)
    theirs, ours = np.stack([twin_image(p, rng) for _ in range(60)]), images_of(draw(p, SEEDS))
    assert abs(ours.mean() / theirs.mean() - 1) < 0.06
    assert farthest(theirs, ours) < 5


@pytest.mark.parametrize(("size", "difficulty"), [(16, "hard"), (32, "hard"), (64, "easy")])
def test_every_paddle_follows_from_the_one_before_by_the_references_rounding(size: int, difficulty: Difficulty) -> None:
    """All chains are walked again with steps rounded up at the coordinate where they are taken: each end lies on the
    arc around the pivot, and the stroke runs back along the line from the pivot. At columns 2 and 3 a vertical step
    moves by a pixel, which a step rounded anywhere else does not."""
    p = parameters(size, difficulty)
    margin, d = p.margins[0], draw(p, SEEDS[:300])
    walked = 0
    for i in range(300):
        for chain in (d.strokes[i, c, :n] for c, n in enumerate(d.paddles[i]) if n):
            delta = chain[:, 2:] - chain[:, :2]
            angles = np.arctan2(delta[:, 0], delta[:, 1])
            start, heading = (
                chain[0, :2].astype(int).tolist(),
                (round(np.rad2deg(angles[0]) + 180) % 360 - 180) * np.pi / 180,
            )
            pivot = moved(moved(start, heading, p.length), reversed_(heading), p.length + margin)
            for end, angle in zip(chain[1:, :2].astype(int).tolist(), angles[1:], strict=True):
                pivot = moved(pivot, heading, p.length + 2 * margin)
                assert tuple(end) in ends_around(pivot, p.length + margin, size)
                heading = np.arctan2(end[0] - pivot[0], end[1] - pivot[1])
                assert abs(np.angle(np.exp(1j * (angle - reversed_(heading))))) < 1e-9
                walked += 1
    assert walked > 1000


def test_a_vertical_step_moves_sideways_in_the_first_columns_only() -> None:
    """4 cos(pi / 2) is 2.4e-16: the sum with 2 or 3 keeps it, with 4 loses it; 4 sin(pi) is lost from 8 on."""
    assert [moved((8, x), np.pi / 2, 4) for x in (2, 3, 4, 17)] == [(12, 3), (12, 4), (12, 4), (12, 17)]
    assert [moved((y, 8), np.pi, 4) for y in (2, 7, 8, 17)] == [(3, 4), (8, 4), (8, 4), (17, 4)]


@pytest.fixture(scope="module")
def reference(test_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Difficulty, np.ndarray]:
    """100 easy and 800 hard images made by the repaired public generator."""
    from levelfield.tasks._pathfinder.release import list_images, read_images

    root = unpacked(test_data, tmp_path_factory.mktemp("release"))
    images: dict[Difficulty, np.ndarray] = {}
    for difficulty in ("easy", "hard"):
        listed = list_images(root, difficulty)
        images[difficulty] = np.empty((len(listed), 1024), np.uint8)
        read_images(listed, images[difficulty], difficulty)
    return {k: v.reshape(-1, 32, 32) for k, v in images.items()}


def unpacked(test_data: Path, into: Path) -> Path:
    import tarfile

    with tarfile.open(test_data / "pathfinder32" / "pathfinder32.tar.xz") as archive:
        archive.extractall(into, filter="data")
    return into / "pathfinder32"
