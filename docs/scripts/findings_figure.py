"""Draws the answers to three papers in one figure, of which every title is computed from the findings.

    draw({"amos2025_small": found, ...})       # the picture as PNG bytes
    caption({"amos2025_small": found, ...})    # the same in two sentences, for those who do not see it

A reader who sees this figure alone has to get the answer, not the claim: differences stand around zero with the
intervals that the verdicts use, shares name the score that they are shares of, and models are asked in the haystack
that decides. New rows change the marks and the titles; nothing here has to be changed for them.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, NamedTuple

import findings_shown as shown

from levelfield.report import style

if TYPE_CHECKING:
    from findings_subjects import Answer
    from matplotlib.axes import Axes

MODELS = {
    "transformer_rotary": "Transformer", "s4": "S4", "rotary": "rotary", "alibi": "ALiBi", "mamba2": "Mamba-2",
    "no-positions": "no positions", "mamba2+attention": "Mamba-2 + attention", "rwkv6": "RWKV-6", "griffin": "Griffin",
    "rglru": "RG-LRU", "gmlp": "gMLP", "random-positions": "random positions",
}  # fmt: skip
OVER_SCRATCH, EQUAL_STEPS, THIRD = "#d55e00", "#0072b2", "#009e73"  # Okabe and Ito's: any eye tells them apart
FAMILIES = {"attention": EQUAL_STEPS, "recurrence": OVER_SCRATCH, "attention and recurrence": THIRD}
WIDE, HEIGHT = 11.4, 5.2  # inches, so that the smallest letters are ten pixels high where a README is 900 wide
LEFT = ((0.013, 0.28), (0.36, 0.25), (0.673, 0.185))  # where axes begin, and their width, in parts of the figure
TOP, BOTTOM = 0.985, 0.24
LINE, SMALL_LINE = 0.0415, 0.0302  # heights
LETTERS, SMALL_LETTERS = 39, 52  # that fit above a panel in one line


def draw(answers: Mapping[str, Answer | None]) -> bytes:
    """Returns the picture. answers: by study, those of `PANELS`; a panel without one says so."""
    heads = {study: _wrapped(PANELS[study].head(found)) for study, found in answers.items() if found}
    below = [TOP - LINE * (1 + len(title)) - SMALL_LINE * len(small) - 0.02 for title, small in heads.values()]
    tall = min(below, default=TOP) - BOTTOM
    with style.canvas() as make:
        figure, axes = style.panels(make, len(PANELS), height=HEIGHT, columns=len(PANELS), width=WIDE)
        figure.set_layout_engine("none")  # so that labels, which differ in length, do not narrow the axes
        for panel, (left, wide), (study, content) in zip(axes, LEFT, PANELS.items(), strict=True):
            panel.set_position((left, BOTTOM, wide, tall))
            found = answers.get(study)
            if found is None:
                panel.set_axis_off()
                panel.text(0.5, 0.5, "no results yet", ha="center", transform=panel.transAxes)
                continue
            content.draw(panel, found)
            title, small = ("\n".join(lines) for lines in heads[study])
            figure.text(left, TOP, content.claim, va="top", fontsize=8.5, color=style.FAINT)
            figure.text(left, TOP - LINE, title, va="top", fontsize=10.5, weight="bold", linespacing=1.25)
            under = TOP - LINE * (1 + len(heads[study][0])) - 0.004
            figure.text(left, under, small, va="top", fontsize=8.5, linespacing=1.3)
        return style.render(figure, "findings")[1]


def _wrapped(head: shown.Head) -> tuple[list[str], list[str]]:
    return textwrap.wrap(head.title, LETTERS), [s for text in head.lines for s in textwrap.wrap(text, SMALL_LETTERS)]


def caption(answers: Mapping[str, Answer | None]) -> str:
    """Returns the answers from left to right, and then what marks, bars and bands are, at which lengths."""
    found = {study: answer for study, answer in answers.items() if answer}
    heads = [PANELS[study].head(answer) for study, answer in found.items()]
    seeds = [count for head in heads for count in head.seeds]
    places = ("on the left", "in the middle", "on the right")
    others = [f"{place} {head.marks}" for head, place in zip(heads, places, strict=False) if head.marks != "means"]
    marks = ", ".join(["means", *others])
    notes = "".join(f" {head.note}" for head in heads if head.note)
    lengths = " and ".join(f"{shown.longest(answer)}" for answer in found.values()).replace(
        " and ", ", ", len(found) - 2
    )
    return (
        f"{'. '.join(head.title for head in heads)}. Marks are {marks} of {shown.counted(seeds)}. From left to right, "
        f"sequences have at most {lengths} steps. Bars are 95 % intervals of one difference each; bands go from the "
        f"lowest to the highest seed.{notes}"
    )


def embedded(page: str, text: str) -> str:
    """Returns a page whose picture of the findings has that text in place of its own."""
    return re.sub(r"!\[[^\]]*\](?=\([^)]*figures/findings\.png\))", lambda _: f"![{text}]", page)


def _draw_lifts(axes: Axes, found: Answer) -> None:
    """Draws a forest plot: two differences a row, and the printed one as a hollow mark."""
    made = shown.lifts(found)
    rows = list(dict.fromkeys((lift.model, lift.task) for lift in made))
    axes.axvline(0, color=style.FAINT, linewidth=0.9, zorder=0.5)
    for lift in made:
        place = rows.index((lift.model, lift.task)) + (0.22 if lift.longer else 0.0)
        shade, span = (EQUAL_STEPS, "s") if lift.longer else (OVER_SCRATCH, "o"), lift.contrast.span()
        if span is not None:
            axes.plot([span.low, span.high], [place, place], color=shade[0], linewidth=1.8)
        axes.plot(lift.contrast.value, place, shade[1], color=shade[0], markersize=5.5)
        if lift.printed is not None:
            axes.plot(lift.printed, place, "D", mfc=style.PAPER, mec=style.INK, mew=1.2, markersize=5.5)
    for place, (model, task) in enumerate(rows):
        seeds = [len(arm.values) for lift in made if (lift.model, lift.task) == (model, task) for arm in lift.arms]
        name = f"{MODELS.get(model, model)}, {shown.TASKS.get(task, task)} ({shown.counted(seeds)})"
        axes.text(
            0, place - 0.31, name, transform=axes.get_yaxis_transform(), va="center", zorder=1,
            fontsize=9.5 if len(rows) < 5 else 8, bbox={"facecolor": style.PAPER, "edgecolor": "none", "pad": 1},
        )  # fmt: skip
    axes.set_ylim(len(rows) - 0.55, -0.55)
    axes.set_yticks([])
    axes.locator_params(axis="x", nbins=6, integer=True)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("points that self-pretraining adds")
    _key(axes, [("o-", OVER_SCRATCH, "compared with training from scratch"),
                ("s-", EQUAL_STEPS, "the same, with as many steps allowed"),
                ("D", "", "printed over scratch, for larger models")])  # fmt: skip


def _draw_shares(axes: Axes, found: Answer) -> None:
    """Draws a line a task, hollow where it is proved that nothing can be learnt; seeing everything stands apart."""
    key, made = [], shown.shares(found)
    finite = sorted({place for share in made.values() for place in share.places if place < shown.ALL})
    beyond = 2.2 * finite[-1]
    for share, shade, form in zip(made.values(), FAMILIES.values(), style.MARKERS, strict=False):
        xs = [min(place, beyond) for place in share.places]
        means = [fmean(values) for values in share.places.values()]
        axes.plot(xs[:-1], means[:-1], color=shade)
        axes.plot(xs[-2:], means[-2:], ":", color=shade)
        axes.fill_between(xs, *_ends(share.places.values()), color=shade, alpha=0.16, lw=0)
        for place, x, mean in zip(share.places, xs, means, strict=True):
            hollow = place <= share.proved
            axes.plot(x, mean, form, mec=shade, mfc=style.PAPER if hollow else shade, mew=1.4, markersize=6)
        key.append((f"{form}-", shade, f"{share.name}: 0 is {share.floor:.0f} % right, 100 is {share.best:.0f} %"))
    if any(share.proved for share in made.values()):
        key.append(("s", "", "hollow: proved to be no better than guessing"))
    whole = {MODELS.get(share.whole, share.whole) for share in made.values()}
    _doubling(axes, [*finite, beyond], [*(f"{place:.0f}" for place in finite), "all"])
    axes.set_ylim(-6, 108)
    axes.set_xlabel(f"steps that a feature sees ({', '.join(whole)}: all)")
    axes.set_ylabel("% of the gain over guessing")
    _key(axes, key)


def _doubling(axes: Axes, places: Sequence[float], names: Sequence[str]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(places, names)
    axes.set_xticks([], minor=True)


def _draw_recall(axes: Axes, found: Answer) -> None:
    """Draws a line a model in the colour of its family."""
    made, kinds = shown.recall(found), shown.families(found)
    ends, used = [], Counter()
    for model, arms in made.cells.items():
        kind = kinds[model]
        xs = [length / made.trained for length in sorted(arms)]
        values = [arms[length].values for length in sorted(arms)]
        middles = [median(scores) for scores in values]
        form = style.MARKERS[used[kind] % len(style.MARKERS)]
        used[kind] += 1
        axes.fill_between(xs, *_ends(values), color=FAMILIES[kind], alpha=0.1, lw=0)
        axes.plot(xs, middles, f"{form}-", color=FAMILIES[kind], markersize=5, linewidth=1.5)
        ends.append((xs[-1], middles[-1], MODELS.get(model, model), FAMILIES[kind]))
    lengths = sorted(made.floors)
    guesses = [made.floors[length] for length in lengths]
    axes.plot([length / made.trained for length in lengths], guesses, color=style.FAINT, linestyle=":", linewidth=1.2)
    axes.axvline(1, color=style.FAINT, linestyle=":", linewidth=1.2)
    ticks = sorted({length / made.trained for arms in made.cells.values() for length in arms})
    _doubling(axes, ticks, [f"{tick:g}" for tick in ticks])
    axes.set_ylim(0, 103)
    axes.set_xlabel(f"times the {made.trained} words of training")
    axes.set_ylabel("needles found (%)")
    _name_ends(axes, ends)
    _key(axes, [("-", FAMILIES[kind], kind) for kind in FAMILIES] + [(":", "", "dotted: guessing; trained length")])


def _name_ends(axes: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Writes names beside the ends of lines, moved apart where they would overlap, and joined to them."""
    heights = style.spread_apart([y for _, y, _, _ in ends], 6.6)
    lift = max(0.0, 2.0 - min(heights))
    for (x, y, name, shade), height in zip(ends, heights, strict=True):
        axes.annotate(
            name, (x, y), xytext=(1.1, height + lift), textcoords=axes.get_yaxis_transform(), va="center",
            fontsize=9, color=shade, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": shade, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 4,
                        "relpos": (0, 0.5)},
        )  # fmt: skip


def _key(axes: Axes, entries: Sequence[tuple[str, str, str]]) -> None:
    """Explains marks below the panel: each a format, its colour ("" for a hollow mark in ink) and words."""
    from matplotlib.lines import Line2D

    handles = []
    for form, shade, _ in entries:
        dashes: Any
        dashes, marker = form.strip("osD^v") or "none", form.strip("-:") or "none"
        handles.append(
            Line2D([], [], color=shade or style.INK, linestyle=dashes, marker=marker, markersize=5.5,
                   mfc=shade or style.PAPER, linewidth=1.8 if shade else 1.2)
        )  # fmt: skip
    axes.legend(
        handles, [words for _, _, words in entries], loc="upper left", bbox_to_anchor=(0, -0.21), fontsize=9,
        handlelength=1.6, labelspacing=0.35, borderaxespad=0, borderpad=0,
    )  # fmt: skip


def _ends(values: Iterable[Sequence[float]]) -> tuple[list[float], list[float]]:
    found = list(values)
    return [min(seeds) for seeds in found], [max(seeds) for seeds in found]


class Panel(NamedTuple):
    """What the paper claims, in a few words, what stands above our answer, and how that is drawn."""

    claim: str
    head: Callable[[Answer], shown.Head]
    draw: Callable[[Axes, Answer], None]


PANELS: Mapping[str, Panel] = {
    "amos2025_small": Panel("Claim (amos2025): self-pretraining lifts Transformers.", shown.lift_head, _draw_lifts),
    "miralles2025_small": Panel("Claim (miralles2025): a short range is enough.", shown.share_head, _draw_shares),
    "huang2024_small": Panel(
        "Claim (huang2024): all fail beyond their training length.", shown.recall_head, _draw_recall
    ),
}
"""By the study whose findings they show, left to right."""
