"""Says, for the findings, when phases of training end and what the arms used of the steps that they were allowed.

rules(found)     # "On ListOps and reviews that is after 3 validations in a row, ...", a sentence for equal recipes
taken(found)     # a table of the steps and FLOPs of one run of each arm
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import findings_shown as shown
import findings_words as words

from levelfield.presets.efforts import VALIDATE
from levelfield.report.verdicts import Key, Table
from levelfield.spec import Recipe
from levelfield.studies._amos2025_small import LONGER, SCRATCH, SPT

if TYPE_CHECKING:
    from findings_subjects import Answer

HIDDEN = {
    "step_accuracy": "the share of hidden symbols predicted correctly",
    "negative_mae": "the mean absolute error of hidden values",
}


def rules(found: Answer) -> Iterator[str]:
    """Yields when phases end, a sentence for tasks with the same recipes, as the study has them."""
    told: dict[tuple[Recipe, Recipe, str], dict[str, None]] = {}
    for run in found.study.runs(found.effort):
        if run.protocol.name == SPT:
            first, second = run.protocol.phases
            metric = getattr(first.objective, "metric", "")
            told.setdefault((first.recipe, second.recipe, HIDDEN.get(metric, metric)), {})[run.task.name] = None
    for (denoise, labels, hidden), tasks in told.items():
        yield (
            f"On {words.listed(map(words.named, tasks))} that is after {labels.patience} validations in a row, one "
            f"every {VALIDATE} steps, without a gain of {100 * labels.least_gain:g} % of the answers (in pretraining, "
            f"{denoise.least_gain:g} in {hidden}), first at the full rate and then at a fifth of it. The caps are "
            f"{denoise.budget.value:,.0f} steps of pretraining and {labels.budget.value:,.0f} on labels. The arm with "
            "added steps may take as many as both together, and its patience begins after the first "
            f"{denoise.budget.value:,.0f}."
        )


def taken(found: Answer) -> Iterator[str]:
    """Yields a table of the steps and FLOPs of one run of each arm."""
    yield "| steps and TFLOP of a run (medians) | from scratch | with added steps | self-pretrained |"
    yield "|---|---|---|---|"
    arms = dict.fromkeys((key.task, key.model) for key in Table.of(found.results.rows).cells)
    for task, model in arms:
        costs = [shown.cost(found, Key(task, model, protocol)) for protocol in (SCRATCH, LONGER, SPT)]
        cells = " | ".join(f"{cost[0]:,.0f}; {cost[1] / 1e12:.1f}" if cost else "–" for cost in costs)
        yield f"| {words.named(model)}, {words.named(task)} | {cells} |"
    yield ""
