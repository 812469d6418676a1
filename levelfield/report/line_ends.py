"""Names lines of a figure where they end.

ends = [End(71.0, "attention", "#0b5ea8", 256), End(70.0, "s4", "#a35200", 512)]
end_labels(axes, ends)          # beside the panel, one below the other, each joined to its line
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from levelfield.report import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class End(NamedTuple):
    """The end of a line and the name beside it. x: None at the end of the axis."""

    y: float
    text: str
    colour: str
    x: float | None = None


def end_labels(axes: Axes, ends: Sequence[End], x: float | None = None) -> None:
    """Names at the right end of their lines, or to the left of their marks at x: moved apart where they would overlap,
    and then joined to the ends of their lines."""
    from matplotlib.transforms import offset_copy

    low, high = axes.get_ylim()
    gap = 0.062 * (high - low)
    heights = style.spread_apart([end.y for end in ends], gap, low + gap / 2)
    figure, last = axes.get_figure(root=True), max((end.x for end in ends if end.x is not None), default=None)
    moved = [abs(height - end.y) > gap / 2 or end.x not in (None, last) for end, height in zip(ends, heights)]
    away = -8 if x is not None else 16 if any(moved) else 4
    along = axes.get_yaxis_transform() if x is None else axes.transData  # x of the axes, y of the data
    text = offset_copy(along, figure, x=away, units="points")
    for end, height, joined in zip(ends, heights, moved, strict=True):
        here = (1.0 if x is None else x, height)
        axes.text(
            *here, style.short(end.text), transform=text, ha="left" if x is None else "right", va="center",
            fontsize=8.5, color=end.colour,
        )  # fmt: skip
        if joined and x is None:
            start = ((1.0, end.y), along) if end.x is None else ((end.x, end.y), axes.transData)
            axes.annotate(
                "", here, xycoords=offset_copy(along, figure, x=away - 2, units="points"), xytext=start[0],
                textcoords=start[1], annotation_clip=False, zorder=0.8,
                arrowprops={"arrowstyle": "-", "color": end.colour, "linewidth": 0.6, "alpha": 0.6,
                            "shrinkA": 3, "shrinkB": 0},
            )  # fmt: skip
