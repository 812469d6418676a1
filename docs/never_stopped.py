"""Says whether the lift stays where nothing ends training from scratch early, for docs/findings.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import findings_shown as shown
import findings_words as words

from levelfield.report.verdicts import Key, Table
from levelfield.studies._amos2025_small import SPT, SSM, TRANSFORMER
from levelfield.studies.amos2025_patience import MODELS, RATES, from_scratch

if TYPE_CHECKING:
    from findings_subjects import Answer

TASK = "text"
BASE = 1e-3  # the learning rate of which RATES are multiples


def short(found: Answer) -> str:
    """Returns whether each model's lift is shown at each rate, beside the scores of both arms."""
    cells = Table.of(found.results.rows).cells
    decided = {finding.subject.partition(" (")[0]: finding.decided for finding in found.findings}
    parts = []
    for model, name in MODELS.items():
        told: dict[str, list[str]] = {}
        for arm, how in from_scratch(model).items():
            cell = cells.get(Key(TASK, model, arm))
            if cell is not None:
                rate = f"{BASE * RATES.get(arm, 1.0):.2g}{'' if arm in RATES else f' {how}'}"
                answer = decided[f"{name}'s lift holds over all steps {how}"]
                said = f"{rate} ({cell.mean:.1f} %, {shown.counted([len(cell.values)])})"
                told.setdefault(shown.WORDS[answer], []).append(said)
        if told:
            said = "; ".join(f"{word} at a learning rate of {words.listed(rates)}" for word, rates in told.items())
            parts.append(f"{name} ({cells[Key(TASK, model, SPT)].mean:.1f} % self-pretrained): {said}.")
    steps = found.planned[0].protocol.phases[0].recipe.budget.value
    return (
        "On reviews, is the self-pretrained model above that from scratch which takes all "
        f"{steps:,.0f} steps? {' '.join(map(words.capital, parts))}"
    )


def lead(found: Answer) -> Iterator[str]:
    """Yields what differs from the arms of the section before, and what each took."""
    costs = {
        (model, arm): shown.cost(found, Key(TASK, model, arm))
        for model in MODELS
        for arm in (*from_scratch(model), SPT)
    }
    taken = words.listed(
        f"{cost[1] / 1e12:.0f} (`{arm}` of {words.named(model)})" for (model, arm), cost in costs.items() if cost
    )
    yield (
        "In the section before, patience ended the arms from scratch on reviews long before their allowance of steps, "
        "and one may ask whether they would have learnt later. Here nothing ends them: the rate falls along a cosine "
        "over all steps that both phases of self-pretraining are allowed together, and the best of them by validation "
        "is scored. Both learning rates are shown that were tried for every arm there, and the Transformer with "
        "dropout at the first of them. The self-pretrained runs are "
        f"three of each model of that section, and still end by patience. TFLOP of a run (medians): {taken}."
    )
    cells = Table.of(found.results.rows).cells
    ahead = {arm: [cells.get(Key(TASK, model, arm)) for model in (SSM, TRANSFORMER)] for arm in (*RATES, SPT)}
    *whole, pretrained = (s4.mean - attention.mean for s4, attention in ahead.values() if s4 and attention)
    if len(whole) == len(RATES):
        yield (
            f"S4 is {words.listed(f'{each:.1f}' for each in whole)} points ahead of the Transformer from scratch over "
            f"all steps, at one rate and at the other, and {pretrained:.1f} self-pretrained: a description, which no "
            "question asks for."
        )
