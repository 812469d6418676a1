"""Draws an audit: scores by window beside what sees everything, and what rules without a sequence model have.

draw(found)      # {"windows": Figure, "rules": Figure}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from levelfield.report import style
from levelfield.report.audit.reading import Number, Reading
from levelfield.report.audit.shares import DISORDERED, FREE, RULE, WINDOW
from levelfield.report.audit.terms import rule_words
from levelfield.report.line_ends import End, end_labels
from levelfield.report.plots import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHORT = {"within": "shuffled within {}", "across": "blocks of {} shuffled", "window": "windows of {} steps"}
BAR = 0.27  # inches of a bar
CLOSE = 0.4  # of the axis, within which the words of two lines would meet


def draw(found: Reading) -> dict[str, Figure]:
    """Returns the figures that the rows allow, by name."""
    drawn = {"windows": windows(found), "rules": rules(found)}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _shown(found: Reading) -> tuple[float, str]:
    """Returns the factor of scores on axes, and what they are called."""
    if found.in_percent:
        return 100.0, f"test {found.metric} (%)"
    return 1.0, f"test {found.metric.replace('_', ' ')}"


def windows(found: Reading) -> Figure | None:
    """Accuracy by the steps that a model sees; level lines for what sees everything and for guessing."""
    bounded = [number for number in found.scores.values() if number.kind == WINDOW]
    if not bounded:
        return None
    factor, label = _shown(found)
    xs = [float(number.place) for number in bounded]
    with style.canvas() as make:
        figure, (axes,) = style.panels(make, 1, 3.4, columns=1)
        colour = style.COLOURS["conv"]
        axes.fill_between(
            xs, [factor * n.low for n in bounded], [factor * n.high for n in bounded], color=colour, alpha=0.15, lw=0
        )
        axes.plot(xs, [factor * n.value for n in bounded], "-", color=colour)
        for x, number in zip(xs, bounded, strict=True):
            axes.plot(x, factor * number.value, "o", color=colour, markersize=5, url=style.url(number.anchor))
        ends = [End(factor * bounded[-1].value, "windows", colour, xs[-1])]
        others = {name: n for name, n in found.scores.items() if n.kind in (FREE, DISORDERED)}
        shades = style.colours(list(others))
        for name, number in others.items():
            dashes = "-" if number.kind == FREE else (0, (4, 2))
            url = style.url(number.anchor)
            axes.axhline(factor * number.value, color=shades[name], linewidth=1.3, linestyle=dashes, url=url)
            ends.append(End(factor * number.value, order_words(name), shades[name]))
        axes.axhline(factor * found.guessing, color=style.FAINT, linestyle=":", linewidth=1)
        ends.append(End(factor * found.guessing, "guessing", style.FAINT))
        axes.set_xscale("log", base=2)
        axes.set_xticks(xs, [f"{x:g}" for x in xs])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("steps that the model sees in all")
        axes.set_ylabel(label)
        end_labels(axes, ends)
        drawn = style.render(figure, "audit-windows")
    said = ", ".join(f"{n.place} steps {factor * n.value:.3g}" for n in bounded)
    free = ", ".join(f"{order_words(name)} {factor * n.value:.3g}" for name, n in others.items())
    return Figure(
        *drawn, f"{label} by window: {said}. Seeing everything: {free}. Guessing {factor * found.guessing:.3g}."
    )


def order_words(name: str) -> str:
    """Returns what an arm is called in figures: "within8" is "shuffled within 8"."""
    if name == "unordered":
        return "all steps shuffled"
    for start, words in SHORT.items():
        if name.startswith(start):
            return words.format(name[len(start) :])
    return name


def rules(found: Reading) -> Figure | None:
    """A bar with its interval for every rule, and lines for guessing and for the best model of all."""
    answers = [(rule_words(name), number) for name, number in found.scores.items() if number.kind == RULE]
    if not answers:
        return None
    factor, label = _shown(found)
    best = found.scores[found.reference]
    with style.canvas() as make:
        figure, (axes,) = style.panels(make, 1, 0.9 + BAR * len(answers), columns=1)
        _bars(axes, answers, factor, found.guessing)
        axes.set_xlabel(label)
        low, high = axes.get_xlim()
        called = rule_words(found.reference) if best.kind == RULE else order_words(found.reference)
        beside = factor * abs(best.value - found.guessing) < CLOSE * (high - low)
        for value, words, up in ((found.guessing, "guessing", 3), (best.value, f"best: {called}", 14 if beside else 3)):
            axes.axvline(factor * value, color=style.FAINT, linestyle=":", linewidth=1.1)
            axes.annotate(
                words, (factor * value, 1), xycoords=("data", "axes fraction"), xytext=(0, up),
                textcoords="offset points", ha="center", va="bottom", fontsize=8, color=style.FAINT,
            )  # fmt: skip
        drawn = style.render(figure, "audit-rules")
    said = ", ".join(f"{words} {factor * number.value:.3g}" for words, number in answers)
    return Figure(*drawn, f"{label} of rules without a sequence model: {said}.")


def _bars(axes: Axes, answers: Sequence[tuple[str, Number]], factor: float, floor: float) -> None:
    colour = style.SPARE[0]
    for place, (_, number) in enumerate(answers):
        axes.barh(place, factor * (number.value - floor), left=factor * floor, height=0.62, color=colour, alpha=0.45)
        axes.plot([factor * number.low, factor * number.high], [place, place], color=colour, linewidth=1.6)
        axes.plot(factor * number.value, place, "o", color=colour, markersize=4.5, url=style.url(number.anchor))
    axes.set_yticks(range(len(answers)), [words for words, _ in answers])
    axes.set_ylim(len(answers) - 0.5, -0.5)
