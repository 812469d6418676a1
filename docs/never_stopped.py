"""Says whether the lift stays where nothing ends training from scratch early, for docs/findings.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import findings_shown as shown
import findings_words as words

from levelfield.report.verdicts import Key, Table
from levelfield.studies._amos2025_small import SPT, TRANSFORMER
from levelfield.studies.amos2025_patience import RATES

if TYPE_CHECKING:
    from findings_subjects import Answer

TASK = "text"


def short(found: Answer) -> str:
    """Returns whether the lift is shown at each rate, beside the scores of both arms."""
    cells = Table.of(found.results.rows).cells
    told: dict[str, list[str]] = {}
    for (arm, factor), finding in zip(RATES.items(), found.findings, strict=True):
        cell = cells.get(Key(TASK, TRANSFORMER, arm))
        if cell is not None:
            at = f"{1e-3 * factor:.2g} ({cell.mean:.1f} %, {shown.counted([len(cell.values)])})"
            told.setdefault(shown.WORDS[finding.decided], []).append(at)
    said = "; ".join(f"{word} at a learning rate of {words.listed(rates)}" for word, rates in told.items())
    steps = found.planned[0].protocol.phases[0].recipe.budget.value
    return (
        f"On reviews, is the self-pretrained Transformer ({cells[Key(TASK, TRANSFORMER, SPT)].mean:.1f} %) above that "
        f"from scratch which takes all {steps:,.0f} steps? {words.capital(said)}."
    )


def control(found: Answer) -> str:
    """Returns the score from scratch where nothing ends training, in a sentence; "" where nothing is decided of it."""
    cells, steps = Table.of(found.results.rows).cells, found.planned[0].protocol.phases[0].recipe.budget.value
    shown_to_stay = (arm for arm, finding in zip(RATES, found.findings, strict=True) if finding.decided > 0)
    means = [f"{cells[Key(TASK, TRANSFORMER, arm)].mean:.1f} %" for arm in shown_to_stay]
    return (
        f"From scratch over all {steps:,.0f} steps, which nothing ends, it has {words.listed(means)}." if means else ""
    )


def lead(found: Answer) -> Iterator[str]:
    """Yields what differs from the arms of the section before, and what each took."""
    costs = {arm: shown.cost(found, Key(TASK, TRANSFORMER, arm)) for arm in (*RATES, SPT)}
    taken = words.listed(f"{flops / 1e12:.0f} (`{arm}`)" for arm, cost in costs.items() if cost for flops in cost[1:])
    yield (
        "In the section before, patience ended the arm from scratch on reviews long before its allowance of steps, and "
        "one may ask whether it would have learnt later. Here nothing ends it: its rate falls along a cosine over all "
        "steps that both phases of self-pretraining are allowed together, and the best of them by validation is "
        "scored. Both learning rates are shown that were tried for every arm there. The self-pretrained runs are three "
        f"of that section, and still end by patience. TFLOP of a run (medians): {taken}."
    )
