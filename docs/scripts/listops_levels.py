"""Puts the scores that papers print on ListOps beside those of readers of its outermost levels.

    python docs/scripts/listops_levels.py           # draws docs/figures/listops-levels.png

The rows are made by `benchmarks/listops_levels.py`. `told` is the text of docs/tasks.md, which `tables.py` writes.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from levelfield import published
from levelfield.report import style
from levelfield.spec import Row

ROOT = Path(__file__).resolve().parents[2]
CSV, PNG = ROOT / "results" / "listops-levels.csv", ROOT / "docs" / "figures" / "listops-levels.png"
TEST = 2_000  # expressions of the benchmark's test split
NORMAL = 1.96  # standard errors of a 95 % interval
COLUMNS = {
    "Transformers\nfrom scratch": ("scratch", True),
    "S4 and others\nfrom scratch": ("scratch", False),
    "self-\npretrained": ("spt_", None),
    "enriched": ("enriched", None),
}
"""The columns of the figure: how a printed protocol begins, and whether the model is a Transformer."""
SHADES = tuple(style.colours(["attention", "s4", "conv", "dlr"]).values())
NAMED = 5  # levels whose lines are named, the last one besides; those between lie too close
OTHERS = {"s4": "S4", "s5": "S5", "mega": "Mega", "spade": "SPADE", "gmlp": "gMLP", "conv": "kernel"}
NAMES = OTHERS | {
    "transformer": "Transformer",
    "transformer_rotary": "rotary",
    "transformer_sinusoidal": "sinusoidal",
    "transformer_learned": "learned positions",
    "linear_transformer": "Linear Transformer",
    "local_attention": "local attention",
    "pythia_70m_random": "Pythia's shape",
    "bigbird": "BigBird",
}


class Printed(NamedTuple):
    """A printed accuracy, in percent."""

    value: float
    model: str
    protocol: str
    at: str

    @property
    def name(self) -> str:
        kernel = self.at.replace("kernel_size=", " ")
        return f"{NAMES.get(self.model, self.model.title())}{kernel}"


@cache
def printed() -> list[Printed]:
    """Returns the printed accuracies, the least first. One that two papers print is one."""
    rows = [row for key in ("amos2025", "miralles2025") for row in published.rows(key)]
    wanted = [row for row in rows if row.get("task") == "listops" and row.get("metric") == "accuracy"]
    made = (Printed(row["value"], *_named(row)) for row in wanted if "value" in row)
    return sorted(set(made))


def _named(row: Row) -> tuple[str, str, str]:
    return row.get("model", ""), row.get("protocol", ""), row.get("at", "")


@cache
def measured() -> dict[tuple[int, str], tuple[float, int]]:
    """Returns percent right and how many whole expressions, by levels and the operator at the root, "" for any."""
    with CSV.open(newline="") as file:
        rows = list(csv.DictReader(file))
    whole = [row for row in rows if not row["tokens"]]
    return {(int(row["levels"]), row["root"]): (100 * float(row["value"]), int(row["n"])) for row in whole}


def first_tokens() -> dict[int, float]:
    """Returns percent right of a reader of one level of so many tokens, the first ones."""
    with CSV.open(newline="") as file:
        return {int(row["tokens"]): 100 * float(row["value"]) for row in csv.DictReader(file) if row["tokens"]}


def beyond_one() -> tuple[Printed, float, float]:
    """Returns the highest printed score, and a 95 % interval of the points that it is from one level's."""
    (one, count), best = measured()[1, ""], printed()[-1]
    error = NORMAL * math.sqrt(best.value * (100 - best.value) / TEST + one * (100 - one) / count)
    return best, best.value - one - error, best.value - one + error


def headline() -> str:
    """Returns a question and its answer for the first page, with a link as from docs."""
    best, low, _ = beyond_one()
    assert low <= 0, "say who is above one level"
    return (
        "**How many levels do scores on ListOps take?** A rule that reads [one level](tasks.md#listops) of the "
        f"benchmark's nested expressions scores {measured()[1, ''][0]:.0f} %. No score that these papers print, up to "
        f"{best.name}'s {best.value:g} %, is shown to be above that."
    )


def brief() -> str:
    """Returns one sentence for other pages."""
    best, low, high = beyond_one()
    shown = f"Of the {len(printed())} scores that the two papers print, none is shown to be above that"
    assert low <= 0, "say who is above one level"
    return (
        f"A rule that reads one level of arguments has {measured()[1, ''][0]:.1f} % on the benchmark's own ListOps. "
        f"{shown}: the highest, {best.name}'s {best.value:g} %, is {low:+.1f} to {high:+.1f} points from it (95 % "
        "interval)."
    )


def told() -> Iterator[str]:
    """Yields lines of Markdown: a table by levels, and whether any printed score is shown to be above one level."""
    found = measured()
    levels = sorted({level for level, _ in found})
    roots = [root for level, root in found if level == 0]
    last = max(level for level in levels if any(each.value >= found[level, ""][0] for each in printed()))
    head = ["levels of arguments read", *(root or "all" for root in roots), "printed scores up to the next"]
    yield f"| {' | '.join(head)} |"
    yield "|--:" * (len(roots) + 1) + "|:--|"
    for level in levels:
        low, high = found[level, ""][0], found.get((level + 1, ""), (math.inf, 0))[0]
        here = [each for each in reversed(printed()) if low <= each.value < high]
        named = ", ".join(f"{each.name} {each.value:g}" for each in here) if level == last else f"{len(here)} scores"
        yield f"| {level} | {' | '.join(f'{found[level, root][0]:.1f}' for root in roots)} | {named if here else '–'} |"
    above = [each for each in printed() if each.value > found[1, ""][0]]
    best, low, high = beyond_one()
    yield ""
    yield (
        f"{len(above)} of {len(printed())} printed scores are above one level. The highest, {best.name}'s "
        f"{best.value:g} % of {TEST:,} expressions, is {best.value - found[1, ''][0]:+.1f} points from it, with a 95 % "
        f"interval of {low:+.1f} to {high:+.1f} for the noise of test expressions."
    )
    yield ""
    yield f"| tokens of which one level is read | {' | '.join(f'the first {tokens:,}' for tokens in first_tokens())} |"
    yield "|---" * (1 + len(first_tokens())) + "|"
    yield f"| right | {' | '.join(f'{score:.1f}' for score in first_tokens().values())} |"


def draw() -> bytes:
    """Returns a PNG: a line for each number of levels, and a dot for each printed score."""
    ladder = {level: score for (level, root), (score, _) in measured().items() if not root}
    with style.canvas() as make:
        figure, (axes,) = style.panels(make, 1, 5.4, columns=1)
        beside = {"xycoords": ("axes fraction", "data"), "xytext": (5, 0), "textcoords": "offset points"}
        for levels, score in ladder.items():
            axes.axhline(score, color=style.FAINT, lw=1.1 if levels < 2 else 0.7, ls="-" if levels < 2 else (0, (4, 2)))
            if levels < NAMED or levels == max(ladder):
                axes.annotate(f"{_reader(levels, max(ladder))}: {score:.1f}", (1, score), va="center", size=8, **beside)
        for place, (protocol, transformer) in enumerate(COLUMNS.values()):
            chosen = [
                each
                for each in printed()
                if each.protocol.startswith(protocol) and transformer in (None, each.model not in OTHERS)
            ]
            values = [each.value for each in chosen]
            axes.plot([place] * len(values), values, "o", ms=4.5, color=SHADES[place], zorder=4)
            for each, height in zip(chosen, style.spread_apart(values, 2.4), strict=True):
                axes.plot([place, place + 0.1], [each.value, height], color=style.FAINT, lw=0.4, zorder=2)
                text = f"{each.name} {each.value:g}"
                axes.text(place + 0.11, height, text, va="center", fontsize=6.8, zorder=5, **style.CLEAR)
        axes.set_xticks(range(len(COLUMNS)), list(COLUMNS))
        axes.set_xlim(-0.3, len(COLUMNS) - 0.25)
        axes.set_ylim(12, 102)
        axes.set_ylabel("ListOps, 501 to 1,999 tokens: accuracy (%)")
        axes.grid(visible=False)
        return style.render(figure, "listops-levels")[1]


def _reader(levels: int, most: int) -> str:
    if levels in (0, most):
        return "everything" if levels else "the operator at the root"
    return f"{levels} level{'s' * (levels > 1)} of arguments"


if __name__ == "__main__":
    PNG.write_bytes(draw())
