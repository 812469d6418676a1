"""Sets how every figure looks: one colour per architecture, one order, and nothing that is not data.

    with canvas() as plt:
        figure, axes = plt.subplots(...)
    svg, png = render(figure, "gap")

Colours are Okabe and Ito's, which readers with any colour vision tell apart, darkened where they would fade on white.
Text stays text in SVG. Greys carry names that `inline` turns into the page's own colours, so one drawing suits a light
page, a dark one and paper. matplotlib's settings change only inside `canvas`.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#26282b"  # text
FAINT = "#75787d"  # secondary text and reference lines
GRID = "#dddfe2"
PAPER = "#fefefe"

# What a model's label begins with fixes its colour; others take what is left, in the order they appear.
COLOURS: Mapping[str, str] = {
    "attention": "#0072b2",
    "transformer": "#0072b2",
    "s4": "#d55e00",
    "dlr": "#b8679b",
    "conv": "#009e73",
    "gmlp": "#c08a00",
}
SPARE = ("#6a4fc0", "#8a5a44", "#4c9a2a", "#a3203a", "#737600", "#0f5a63", "#4a4c52", "#4a9fd8")
DASHES: tuple[Any, ...] = ("-", (0, (4, 2)), (0, (1, 1.3)), (0, (6, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "D", "^", "v", "P", "X")
SHAPES, OPEN, FILLED = MARKERS[:5], "○□◇△▽", "●■◆▲▼"
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "figure.facecolor": PAPER,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": False,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "figure.max_open_warning": 0,
}
CLEAR: Mapping[str, Any] = {"bbox": {"facecolor": PAPER, "edgecolor": "none", "pad": 0.6}}  # text that no line crosses
WIDTH = 8.4  # inches: a README's column


def colours(models: Sequence[str]) -> dict[str, str]:
    """Label -> colour. A family's colour goes to its first member; every model of a figure gets its own, and where that
    takes more colours than there are, all variants of a model share one."""
    chosen: dict[str, str] = {}
    called = names(models)
    for name in called.values():
        family = next((c for start, c in COLOURS.items() if name.lower().startswith(start)), None)
        spare = [c for c in (*SPARE, *COLOURS.values()) if c not in chosen.values()] or [FAINT]
        if name not in chosen:
            chosen[name] = family if family and family not in chosen.values() else spare[0]
    return {label: chosen[name] for label, name in called.items()}


def names(models: Sequence[str]) -> dict[str, str]:
    """Label -> what stands in a figure's legend: the label, or its model alone where variants share a colour."""
    shared = len(set(models)) > len({*COLOURS.values(), *SPARE})
    return {label: label.partition(" (")[0] if shared else label for label in models}


def pair(models: Sequence[str]) -> dict[str, str]:
    """Label -> colour of one model or two, in the two colours that are furthest apart to all eyes."""
    return dict(zip(models, ("#0072b2", "#d55e00"), strict=False))


@dataclass(frozen=True)
class Look:
    """The look of one arm: a colour for its model, dashes for a line and strength for a bar by its protocol."""

    colour: str
    dashes: Any
    alpha: float


def looks(names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Look]:
    """(model, protocol) -> look. The first protocol is drawn solid as a line and pale as a bar."""
    shade = colours(list(dict.fromkeys(model for model, _ in names)))
    rank = {protocol: i for i, protocol in enumerate(dict.fromkeys(protocol for _, protocol in names))}
    strength = {0: 0.9 if len(rank) == 1 else 0.4}
    return {n: Look(shade[n[0]], DASHES[rank[n[1]] % len(DASHES)], strength.get(rank[n[1]], 0.9)) for n in names}


@dataclass(frozen=True)
class Mark:
    """The mark of a protocol: a shape of matplotlib, whether it is filled, and the same as a letter of a legend."""

    shape: str
    filled: bool
    letter: str

    def face(self, shade: str) -> str:
        """Returns the colour inside a mark whose outline has that shade."""
        return shade if self.filled else PAPER


def marks(protocols: Sequence[str]) -> dict[str, Mark]:
    """Returns protocol -> mark, in their order: open where training is from scratch, filled for all others."""
    found: dict[str, Mark] = {}
    for protocol in protocols:
        filled = not protocol.startswith("scratch")
        place = sum(mark.filled == filled for mark in found.values()) % len(SHAPES)
        found[protocol] = Mark(SHAPES[place], filled, (OPEN, FILLED)[filled][place])
    return found


def protocol_legend(figure: Figure, names: Sequence[tuple[str, str]]) -> None:
    """Shows above the panels which dashes are which protocol, where there are several."""
    from matplotlib.lines import Line2D

    first = {protocol: look for (_, protocol), look in reversed(looks(names).items())}
    protocols = list(dict.fromkeys(protocol for _, protocol in names))
    if len(protocols) > 1:
        handles = [Line2D([], [], color=FAINT, linewidth=1.6, linestyle=first[p].dashes) for p in protocols]
        legend(figure, handles, protocols)


def legend(figure: Figure, handles: Sequence[Any], names: Sequence[str]) -> None:
    """Above the panels, in as many columns as have room."""
    texts = [short(name, 34) for name in names]
    columns = max(1, min(len(texts), int(96 // (max(map(len, texts), default=1) + 5))))
    figure.legend(
        handles, texts, loc="outside upper left", ncols=columns, handlelength=1.8, columnspacing=1.4, fontsize=8.5
    )


@contextmanager
def canvas() -> Iterator[Any]:
    """Our settings, and nobody else's: yields the class of figures, so pyplot's global state is never touched."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SETTINGS):
        yield Figure


def panels(make: Any, count: int, height: float, columns: int = 3, width: float = WIDTH) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels in rows of at most `columns`; `height` is that of one row, in inches."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = make(figsize=(width, height * rows))
    grid = figure.subplots(rows, columns, squeeze=False)
    flat = list(grid.flat)
    for unused in flat[count:]:
        unused.set_visible(False)
    return figure, flat[:count]


def short(text: object, most: int = 30) -> str:
    """A label that leaves room for the data: the middle of a long one is left out."""
    whole = str(text)
    half = (most - 1) // 2
    return whole if len(whole) <= most else f"{whole[: most - 1 - half]}…{whole[-half:]}"


def spread_apart(positions: Sequence[float], gap: float, lowest: float = -math.inf) -> list[float]:
    """Label positions at least `gap` apart, in the given order of height, moved as little as needed; none below
    `lowest`."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    placed = [positions[i] for i in order]
    for _ in range(200):
        moved = False
        for low, high in zip(range(len(placed) - 1), range(1, len(placed)), strict=True):
            lack = gap - (placed[high] - placed[low])
            if lack > 1e-9:
                placed[low] -= lack / 2
                placed[high] += lack / 2
                moved = True
        if not moved:
            break
    placed = [max(value, lowest + gap * place) for place, value in enumerate(placed)]
    result = [0.0] * len(positions)
    for index, value in zip(order, placed, strict=True):
        result[index] = value
    return result


PAGE = "../report.html#"
DOTS = 200  # per inch of a PNG


def url(anchor: str) -> str | None:
    """Returns where a mark of a figure leads: to a list of the page beside the folder of figures; None for ""."""
    return PAGE + anchor if anchor else None


def led(svg: str) -> list[str]:
    """Returns the anchors to which the marks of a figure lead."""
    return re.findall(f'xlink:href="{re.escape(PAGE)}([^"]+)"', svg)


def render(figure: Figure, name: str) -> tuple[str, bytes]:
    """(SVG text, PNG bytes), the same for the same data."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    # The canvases' own writers draw once; savefig would draw everything twice to find out the layout again.
    with matplotlib.rc_context({**SETTINGS, "svg.hashsalt": name}):
        svg, png = io.StringIO(), io.BytesIO()
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        FigureCanvasSVG(figure).print_svg(svg, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
        figure.set_dpi(DOTS)
        FigureCanvasAgg(figure).print_png(png, metadata={"Software": None})
    return svg.getvalue(), png.getvalue()


def inline(svg: str, label: str) -> str:
    """The drawing as an element of a page: no prolog, no unused ids, greys as the page's own colours.

    Links lead within the page, and the Tab key passes them by: the tables lead to the same lists.
    """
    from html import escape

    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    used = set(re.findall(r'(?:href="#|url\(#)([\w.-]+)', svg))
    svg = re.sub(r' id="([\w.-]+)"', lambda m: m.group(0) if m.group(1) in used else "", svg)
    for colour, name in ((INK, "ink"), (FAINT, "faint"), (GRID, "grid"), (PAPER, "paper")):
        svg = svg.replace(colour, f"var(--{name})")
    for colour in {*COLOURS.values(), *SPARE}:
        svg = svg.replace(colour, f"var(--c{colour[1:]}, {colour})")
    svg = svg.replace(f'xlink:href="{PAGE}', 'tabindex="-1" xlink:href="#').replace(' target="_blank"', "")
    size = re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', svg)
    if size:
        pixels = round(float(size.group(1)) * 96 / 72)
        svg = svg.replace(size.group(0), f'style="width:{pixels}px"', 1)
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(label, quote=True)}"', 1)
