"""Draws docs/figures/pathfinder.png: one row per size and difficulty, connected samples left and others right.

python docs/figures/pathfinder.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from levelfield.tasks._pathfinder.draw import draw, seeds
from levelfield.tasks._pathfinder.settings import Difficulty, parameters

ROWS: tuple[tuple[int, Difficulty], ...] = (
    (16, "hard"), (32, "easy"), (32, "intermediate"), (32, "hard"), (64, "hard"), (128, "hard"), (256, "hard"),
)  # fmt: skip
EACH = 4  # columns of either label


def main() -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(ROWS), 2 * EACH, figsize=(2 * EACH * 1.3, len(ROWS) * 1.34))
    for row, (size, difficulty) in zip(axes, ROWS, strict=True):
        drawing = draw(parameters(size, difficulty), seeds(1, f"figure {size} {difficulty}", 40))
        chosen = [*np.flatnonzero(drawing.labels == 1)[:EACH], *np.flatnonzero(drawing.labels == 0)[:EACH]]
        for axis, index in zip(row, chosen, strict=True):
            axis.imshow(drawing.images[index].reshape(size, size), cmap="gray", vmin=0, vmax=255)
            axis.set_xticks([])
            axis.set_yticks([])
        row[0].set_ylabel(f"{size} px\n{difficulty}", fontsize=9)
    for axis, title in zip(axes[0], ["label 1"] * EACH + ["label 0"] * EACH, strict=True):
        axis.set_title(title, fontsize=9)
    figure.subplots_adjust(left=0.075, right=0.995, top=0.965, bottom=0.005, wspace=0.04, hspace=0.04)
    target = Path(__file__).with_suffix(".png")
    figure.savefig(target, dpi=130)
    print(target)


if __name__ == "__main__":
    main()
