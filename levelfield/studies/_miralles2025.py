"""Shares what the studies of miralles2025 ask: how much of what can be learnt is had from a short range?

    claims(rows, nearly=0.9)              bounded convolutions against a model that sees everything
    claims(rows, nearly=0.9, widest=11)   those of kernels up to 11 against whatever sees more

A share is one of the gain over guessing: of a score, guessing alone may be half.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from levelfield.report.decisions import AtMost, Contrast, Seeds, difference, some
from levelfield.report.part_rules import beside_parts
from levelfield.report.scatter import Scatter
from levelfield.report.verdicts import Claim, Table, percent_of
from levelfield.spec import Row

EVERYTHING = "all"
"""The place of a model that sees the whole sequence."""


def claims(
    rows: Sequence[Row], nearly: float, widest: float = math.inf, proved: Sequence[str] = ()
) -> dict[str, Claim]:
    """Asks of every task whether the best kernel of at most `widest` steps has `nearly` all of the gain over guessing.

    Best is best on validation, over the seeds that all have, and so is what it is held against, of all that sees more.
    Printed numbers have no validation score. Then the question is whether any kernel has, at the price of asking often,
    of what the model that sees most gains. Nothing can be said where either has not learnt the task, as training may be
    why. proved: tasks of which it is proved that no short kernel can learn them; there it can be found to have less.
    """
    table, validated = Table.of(rows, axis="kernel"), _validation_scores(rows)
    return {name: _claim(name, table, validated, _Limits(nearly, widest, name in proved)) for name in table.tasks}


Validated = Mapping[tuple[str, str], Mapping[int, float]]
"""Task and kernel -> seed -> validation score, NaN of a run that has none or has lost its test score."""


def _validation_scores(rows: Sequence[Row]) -> Validated:
    """Returns the validation scores of all runs."""
    shares = [row for row in rows if row.get("metric") == "accuracy"]
    scored = {row.get("run"): row.get("value", math.nan) for row in shares if row.get("split") == "val"}
    found: dict[tuple[str, str], dict[int, float]] = {}
    for row in shares:
        axis, _, kernel = row.get("at", "").partition("=")
        if axis == "kernel" and row.get("run") in scored:
            value = scored[row.get("run")] if math.isfinite(row.get("value", math.nan)) else math.nan
            found.setdefault((row.get("task", ""), kernel), {})[row.get("seed", 0)] = value
    return found


def _means(name: str, places: Iterable[str], validated: Validated) -> tuple[dict[str, float], str]:
    """Returns the mean validation score of each place over the seeds that all have, and which seeds are lost, in a
    sentence; {} where no seed is left, or none of them was ever validated.

    A place that has lost its worst seed would be the best, and one that counts it as nothing the worst.
    """
    scored = {
        place: {seed: value for seed, value in seeds.items() if math.isfinite(value)}
        for (task, place), seeds in validated.items()
        if task == name
    }
    every = {seed for seeds in scored.values() for seed in seeds}
    common = sorted(every.intersection(*(scored.get(place, {}) for place in places)))
    lost = {place: sorted(every.difference(scored[place])) for place in sorted(scored, key=_steps)}
    told = [f"{_seeds(seeds)} of {_words(place)}" for place, seeds in lost.items() if seeds]
    by = f"kernels were chosen by {_seeds(common)}" if common else "no kernel could be chosen on validation"
    means = {place: fmean(scored[place][seed] for seed in common) for place in places} if common else {}
    return means, f" Without a score: {', '.join(told)}; {by}." if told else ""


def _seeds(numbers: Sequence[int]) -> str:
    """Returns "seed 0", or "seeds 0, 1 and 2"."""
    *others, last = map(str, numbers)
    return f"seeds {', '.join(others)} and {last}" if others else f"seed {last}"


def _steps(place: str) -> float:
    """Steps that a layer sees."""
    return math.inf if place == EVERYTHING else int(place)


class _Limits(NamedTuple):
    """The share that is nearly all, the widest kernel that is short, and whether that is proved to be too short."""

    nearly: float
    widest: float
    proved: bool


def _claim(name: str, table: Table, validated: Validated, limits: _Limits) -> Claim:
    """Asks of one task."""
    nearly, widest, proved = limits
    keys = {key.place: key for key in table.cells if key.task == name}
    short = [place for place in keys if place != EVERYTHING and _steps(place) <= widest]
    wide = sorted((place for place in keys if place not in short), key=_steps, reverse=True)
    if not short or not wide:
        return Claim(None, f"On {name} the bounded or the unbounded model is missing.")
    guessing, chosen = table.guessing(name), short
    means, lost = _means(name, keys, validated)
    if means:
        chosen, wide = [max(short, key=means.__getitem__)], [max(wide, key=means.__getitem__)]
    best = max(chosen, key=lambda place: table.cells[keys[place]].mean)
    own, other = table.cells[keys[best]], table.cells[keys[wide[0]]]
    words = {best: f"kernel {best}", wide[0]: _words(wide[0])}
    facts = f"On {name}, kernel {best} scores {own}, {words[wide[0]]} {other}, guessing {guessing}.{lost}"
    beside = beside_parts(table, name, {words[best]: own, words[wide[0]]: other})
    unable = [place for place in (best, wide[0]) if not table.learnt(keys[place])]
    if wide[0] in unable or (unable and not proved):
        return Claim(None, f"{facts} There {_unable([words[place] for place in unable], name, table)}.{beside}")
    asked = [_gain(table.cells[keys[place]], other, (nearly, guessing.mean), table.scatter(name)) for place in chosen]
    gained = percent_of(difference(own, guessing), difference(other, guessing))
    scored = percent_of(Contrast(((1.0, own),)), Contrast(((1.0, other),)))
    parts = f" That is {gained} of the gain over guessing, and {scored} of the score."
    question = asked[0] if len(asked) == 1 else some(asked)
    return Claim(AtMost(question) if unable else question, facts + parts + beside)


def _words(place: str) -> str:
    return "the unbounded model" if place == EVERYTHING else f"kernel {place}"


def _unable(who: Sequence[str], name: str, table: Table) -> str:
    return f"{' and '.join(who)} cannot be shown to beat the best simple rule, {table.rule(name)}"


def _gain(bounded: Seeds, free: Seeds, share: tuple[float, float], scatter: Scatter) -> Contrast:
    """Asks whether (bounded - floor) is above nearly * (free - floor). share: nearly and floor."""
    nearly, floor = share
    return Contrast(((1.0, bounded), (-nearly, free)), (1 - nearly) * floor, scatter)
