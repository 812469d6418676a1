"""Draws the units of the package in layers, from their imports, and writes the same layers into docs/architecture.md.

    python docs/scripts/architecture.py           # writes docs/figures/architecture.svg and the list of layers
    python docs/scripts/architecture.py --check   # exit 1 if the list of layers or the picture is out of date

A unit is a module or folder directly inside `levelfield/`. It stands one layer below the lowest unit that imports it,
or lower where that layer is full, so every arrow points downwards:

    cli  ->  engine  ->  run  ->  train  ->  objectives  ->  model  ->  ops
"""

from __future__ import annotations

import hashlib
import re
import sys
import textwrap
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(DOCS.parent / "tests" / "support"))

from imports import sources, table, unit  # noqa: E402  (the same reading of the source that the tests use)

PAGE = DOCS / "architecture.md"
FIGURE = DOCS / "figures" / "architecture.svg"
LAYERS = re.compile(r"<!-- layers -->.*?<!-- end -->", re.DOTALL)
HIDDEN = ("__init__", "__main__", "_version")  # three files of a few lines that every package has
Graph = Mapping[str, frozenset[str]]

GROUPS = {
    "add one file here": ("#dff0d8", ("tasks", "mixers", "probes", "studies", "recipes", "published")),
    "trains and measures": ("#dbe9f6", ("run", "train", "evaluate", "objectives", "protocols", "model", "runs", "ops")),
    "language models of others": ("#fde3cf", ("pretrained", "ruler", "longcontext", "tokenizer")),
    "everything else": ("#eeeeee", ()),
}
WIDTH, BOX, ROOM, STEP = 10.0, 1.54, 1.665, 0.82  # of the figure, a box, a box with its margin, a layer; in inches
TALL = 0.56  # a box
MOST = 6  # boxes in a layer
BASE = "spec"  # the unit at the bottom, which nearly all import; no arrows are drawn to it


def imports() -> Graph:
    """Which units each unit imports, typing imports included."""
    found: dict[str, set[str]] = {}
    for source in sources():
        mine = found.setdefault(source.unit, set())
        mine |= {unit(i.module) for i in source.imports if i.module.split(".")[0] == "levelfield"} - {source.unit}
    return {name: frozenset(mine) - set(HIDDEN) for name, mine in found.items() if name not in HIDDEN}


def importers(graph: Graph) -> Graph:
    return {name: frozenset(other for other, mine in graph.items() if name in mine) for name in graph}


def layers(graph: Graph) -> list[list[str]]:
    """From top to bottom: each unit as high as its importers allow, in alphabetical order."""
    users = importers(graph)
    depth: dict[str, int] = {}

    def place(name: str) -> int:
        if name not in depth:
            depth[name] = 1 + max((place(user) for user in users[name]), default=-1)
        return depth[name]

    rows: list[list[str]] = [[] for _ in range(1 + max(place(name) for name in graph))]
    for name in sorted(graph):
        rows[depth[name]].append(name)
    for row, below in pairwise(rows):
        free = [name for name in row if not graph[name] & set(below)]
        for name in free[: max(0, len(row) - MOST)]:
            row.remove(name)
            below.append(name)
    return rows


def direct(graph: Graph) -> Graph:
    """The imports that are not implied by others: `cli` imports `train` only because `run` does."""

    def below(name: str) -> set[str]:
        return set(graph[name]).union(*(below(other) for other in graph[name]))

    return {name: mine - set().union(*(below(other) for other in mine)) for name, mine in graph.items()}


def listed(graph: Graph) -> str:
    """The layers as text, the top layer first."""
    lines = (", ".join(f"`{name}`" for name in row) for row in layers(graph))
    return "<!-- layers -->\n\n" + "\n".join(f"{n}. {line}" for n, line in enumerate(lines, 1)) + "\n\n<!-- end -->"


def stamp(graph: Graph) -> str:
    """A fingerprint of the arrows. It stands in the picture, so that a test can tell whether the picture is current."""
    arrows = sorted(f"{name}->{other}" for name, mine in direct(graph).items() for other in mine)
    return f"arrows {hashlib.sha256(' '.join(arrows).encode()).hexdigest()[:16]}"


def filled(text: str) -> str:
    """The page with its list of layers made anew."""
    return LAYERS.sub(lambda _: listed(imports()), text)


def columns(graph: Graph, rows: list[list[str]]) -> dict[str, float]:
    """The middle of each box: near the boxes it is joined to, and apart from its neighbours."""
    links, users = direct(graph), importers(direct(graph))
    at = {name: WIDTH * (i + 0.5) / len(row) for row in rows for i, name in enumerate(row)}
    for turn in range(200):
        for row in rows if turn % 2 else reversed(rows):
            near = {name: [at[other] for other in sorted((*links[name], *users[name]))] or [at[name]] for name in row}
            wanted = {name: sum(places) / len(places) for name, places in near.items()}
            at.update(_apart(wanted))
    return at


def _apart(wanted: Mapping[str, float]) -> dict[str, float]:
    """The wanted places, in their order, moved until no two are closer than ROOM and none is outside."""
    names = sorted(wanted, key=lambda name: (wanted[name], name))
    found = [wanted[name] for name in names]
    for _ in range(100):
        for i in range(len(found) - 1):
            short = ROOM - (found[i + 1] - found[i])
            if short > 0:
                found[i], found[i + 1] = found[i] - short / 2, found[i + 1] + short / 2
        found = [min(max(x, ROOM * (i + 0.5)), WIDTH - ROOM * (len(found) - i - 0.5)) for i, x in enumerate(found)]
    return dict(zip(names, found, strict=True))


def colour(name: str) -> str:
    return next((shade for shade, names in GROUPS.values() if name in names), GROUPS["everything else"][0])


def draw(graph: Graph, target: Path) -> None:
    """Boxes in layers, an arrow for each direct import; BASE is a bar under all of them."""
    import matplotlib
    from matplotlib import pyplot
    from matplotlib.patches import FancyArrowPatch, Patch

    matplotlib.rcParams.update({"svg.hashsalt": "levelfield", "font.family": "DejaVu Sans"})
    rows = layers(graph)
    at = columns(graph, rows)
    top = {name: -STEP * number for number, row in enumerate(rows) for name in row}
    figure = pyplot.figure(figsize=(WIDTH, STEP * len(rows) + 0.3), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(0.18 - STEP * len(rows), 0.42))
    axes.axis("off")
    style = {"arrowstyle": "-|>", "mutation_scale": 9, "color": "#6f6f6f", "linewidth": 0.9, "zorder": 1}
    for name, mine in direct(graph).items():
        for other in sorted(mine - {BASE}):
            start, end = (at[name], top[name] - TALL), (at[other], top[other] + 0.02)
            axes.add_patch(FancyArrowPatch(start, end, shrinkA=0, shrinkB=0, **style))
    without = " and ".join(sorted(name for name in graph if BASE not in graph[name] and name != BASE))
    for name in graph:
        _box(axes, name, at[name], top[name], f"; imported by every unit but {without}" if name == BASE else "")
    handles = [Patch(facecolor=shade, edgecolor="#555555", label=label) for label, (shade, _) in GROUPS.items()]
    axes.legend(handles=handles, loc="upper center", ncols=4, frameon=False, fontsize=9.5, bbox_to_anchor=(0.5, 1.01))
    figure.savefig(target, metadata={"Date": None, "Description": stamp(graph)})
    pyplot.close(figure)


def _box(axes: Any, name: str, middle: float, top: float, more: str) -> None:
    """A unit: its name, and what it holds as the table in CONTRIBUTING.md says."""
    from matplotlib.patches import FancyBboxPatch

    wide = WIDTH - 0.2 if name == BASE else BOX
    middle = WIDTH / 2 if name == BASE else middle
    look = {"facecolor": colour(name), "edgecolor": "#555555", "linewidth": 0.8, "zorder": 2}
    shape = "round,pad=0,rounding_size=0.06"
    axes.add_patch(FancyBboxPatch((middle - wide / 2, top - TALL), wide, TALL, boxstyle=shape, **look))
    words = {"ha": "center", "va": "top", "zorder": 3}
    axes.text(middle, top - 0.06, name, fontsize=11, weight="bold", **words)
    holds = table()[name].holds.replace("`", "").split(";")[0]
    about = "\n".join(textwrap.wrap(holds + more, int(wide * 16)))
    axes.text(middle, top - 0.26, about, fontsize=7.6, linespacing=1.1, **words)


if __name__ == "__main__":
    before = PAGE.read_text()
    after = filled(before)
    if "--check" in sys.argv:
        old = before != after or stamp(imports()) not in FIGURE.read_text()
        sys.exit(old and "The picture of the layers is out of date: run python docs/scripts/architecture.py")
    PAGE.write_text(after)
    draw(imports(), FIGURE)
