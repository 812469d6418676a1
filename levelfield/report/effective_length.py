"""Says up to which length a model's scores hold: its effective length, by RULER's rule and by a stricter one.

    lines(rows)       # ["Effective length by RULER's rule ...: 16384.", "By ours ...: 8192."]

RULER calls the longest length effective at which the average of its 13 tasks is at least 85.6, the score of Llama-2-7B
at 4K. That average is of samples, so near the bar it goes above or below by chance, and a model may pass at a length
after failing at a shorter one. Ours is the longest length at which the lower end of the average's 95 % interval is at
least as high, there and at every shorter length that was asked. Averages are of the same tasks at all lengths: lengths
at which some of these were not asked are left out, and named. Source: Hsieh et al. 2024, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from levelfield.report.against_printed import pairs
from levelfield.report.intervals import wilson
from levelfield.report.links import marked
from levelfield.report.stats import independent
from levelfield.spec import Row

BAR = 85.6
NEEDLES = ("single_1", "single_2", "single_3", "multikey_1", "multikey_2", "multikey_3", "multivalue", "multiquery")
TASKS = (*(f"niah_{name}" for name in NEEDLES), "vt", "cwe", "fwe", "qa_1", "qa_2")
Cells = Mapping[str, tuple[float, float]]
"""Scores from 0 to 1 with the number of independent answers that tell as much, by task."""


def lines(rows: Sequence[Row], anchor: str = "") -> list[str]:
    """Returns a sentence for each rule, and one that names the lengths which are left out; [] where no task of RULER
    was asked. RULER's rule needs all 13 tasks: without them its sentence names those that are missing.

    anchor: where a page lists the averages, to which the lengths lead.
    """
    asked = _of_ruler(rows)
    kept = of_ruler(asked)
    common = list(next(iter(kept.values()), {}))
    if not common:
        return []
    what = f"its {len(TASKS)} tasks" if len(common) == len(TASKS) else f"{len(common)} of its {len(TASKS)} tasks"
    ours = (
        f"Effective length by ours (the lower end of the 95 % interval of the average of {what} is at least {BAR}, "
        f"there and at every shorter length): {marked(named(holding(kept), kept, asked), anchor)}."
    )
    left = [said] if (said := left_out(asked)) else []
    if len(common) < len(TASKS):
        missing = ", ".join(task for task in TASKS if task not in common)
        theirs = f"not known. RULER's rule needs all {len(TASKS)} tasks; missing: {missing}"
        return [f"Effective length by RULER's rule: {theirs}.", ours, *left]
    theirs = f"Effective length by RULER's rule (the average of its {len(TASKS)} tasks is at least {BAR})"
    return [f"{theirs}: {marked(named(reaching(kept), kept, asked), anchor)}.", ours, *left]


def both(rows: Sequence[Row]) -> tuple[str, str] | None:
    """Returns the effective length by RULER's rule and by ours, in words; None where no task of RULER was asked."""
    asked = _of_ruler(rows)
    kept = of_ruler(asked)
    common = next(iter(kept.values()), {})
    if not common:
        return None
    whole = len(common) == len(TASKS)
    theirs = named(reaching(kept), kept, asked) if whole else f"needs all {len(TASKS)} tasks"
    return theirs, named(holding(kept), kept, asked)


def _of_ruler(rows: Sequence[Row]) -> dict[int, dict[str, tuple[float, float]]]:
    """Returns the cells of RULER's tasks, in their order, at lengths that have any."""
    cells = cells_of(rows, every=True)
    found = {n: {task: cells[n][task] for task in TASKS if task in cells[n]} for n in sorted(cells)}
    return {length: of_length for length, of_length in found.items() if of_length}


def of_ruler(cells: Mapping[int, Cells]) -> dict[int, dict[str, tuple[float, float]]]:
    """Keeps the tasks of RULER to average, in their order, at the lengths that have all of them (`shared`)."""
    tasks, lengths = shared({n: [task for task in TASKS if task in cells[n]] for n in cells})
    return {n: {task: cells[n][task] for task in TASKS if task in tasks} for n in lengths}


def shared(asked: Mapping[int, Collection[str]]) -> tuple[set[str], list[int]]:
    """Returns the tasks to average, of those asked at each length, and the lengths, in order, that have all of them.

    They are RULER's 13 where a length has them all. Otherwise they are what gives the most scores: what one length has,
    or what all lengths have.
    """
    sets = [set(asked[n]) for n in sorted(asked)]
    if any(each.issuperset(TASKS) for each in sets):
        sets = [set(TASKS)]
    else:
        sets.append(set[str]().union(*sets).intersection(*sets))
    having = [(tasks, [n for n in sorted(asked) if tasks.issubset(asked[n])]) for tasks in sets]
    return max(having, key=lambda found: (len(found[0]) * len(found[1]), len(found[1])))


def left_out(asked: Mapping[int, Collection[str]]) -> str:
    """Names the lengths without some of the tasks to average, as a sentence; "" where every length has them."""
    tasks, lengths = shared(asked)
    counts = {n: len(tasks.intersection(asked[n])) for n in sorted(asked) if n not in lengths}
    listed = ", ".join(f"{n} ({count} of {len(tasks)})" for n, count in counts.items())
    return f"Lengths at which not all tasks of the average were asked are left out of it: {listed}." if counts else ""


def reaching(cells: Mapping[int, Cells]) -> int | None:
    """Returns the longest length with an average above the bar, whatever shorter ones have; None where none has."""
    return max((n for n, found in cells.items() if 100 * average(found)[0] >= BAR), default=None)


def holding(cells: Mapping[int, Cells]) -> int | None:
    """Returns the longest length up to which the lower end is never below the bar; None where the first is."""
    found = None
    for length in sorted(cells):
        if 100 * average(cells[length])[1] < BAR:
            break
        found = length
    return found


def average(cells: Cells) -> tuple[float, float]:
    """Returns the mean over tasks, and the lower end of its 95 % interval."""
    mean, low, _ = interval(cells)
    return mean, low


def interval(cells: Cells) -> tuple[float, float, float]:
    """Returns the mean over tasks, and both ends of its 95 % interval.

    The interval is joined from Wilson's of every task, so it has a width even where all answers are right.
    """
    shares = list(cells.values())
    mean = sum(share for share, _ in shares) / len(shares)
    below = math.hypot(*(share - wilson(share, n)[0] for share, n in shares)) / len(shares)
    above = math.hypot(*(wilson(share, n)[1] - share for share, n in shares)) / len(shares)
    return mean, mean - below, mean + above


def cells_of(rows: Sequence[Row], every: bool = False) -> dict[int, dict[str, tuple[float, float]]]:
    """Returns the match of every task that was asked, with its independent answers, by length.

    every: also of tasks without a score, since the model's logits were no numbers: it has found nothing there.
    """
    found: dict[int, dict[str, tuple[float, float]]] = {}
    for row in rows:
        place = pairs(row.get("at", ""))
        value = row.get("value", 0.0 if every and row.get("status") == "diverged" else None)
        n = independent(row)
        if row.get("metric") == "accuracy" and set(place) == {"length"} and value is not None and n:
            found.setdefault(int(place["length"]), {})[row.get("task", "")] = value / 100, n
    return found


def named(length: int | None, averaged: Collection[int], asked: Collection[int]) -> str:
    """Returns an effective length in words, by the lengths with an average and all that were asked."""
    if length is None:
        return f"none, below {min(averaged)}"
    longest = "the longest asked" if length == max(asked) else "the longest at which all tasks were asked"
    return f"{length}, {longest}" if length == max(averaged) else str(length)
