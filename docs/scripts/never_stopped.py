"""Says whether the lift stays where nothing ends training from scratch early, for docs/findings.md."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import findings_shown as shown
import findings_words as words

from levelfield.report.verdicts import Key, Table
from levelfield.studies._amos2025_small import SPT, SSM, TRANSFORMER
from levelfield.studies.amos2025_patience import MODELS, RATES, from_scratch

if TYPE_CHECKING:
    from findings_subjects import Answer

TASK = "text"
WHOLE = "scratch_whole"  # beginning of the names of arms that take all steps
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
        "On reviews, is the self-pretrained model above the same model trained from scratch for all "
        f"{steps:,.0f} steps? {' '.join(map(words.capital, parts))}"
    )


def lead(found: Answer) -> Iterator[str]:
    """Yields what differs from the arms of the section before, and what each took."""
    taken = "; ".join(
        f"{words.named(model)} {words.listed(_tflop(found, model, *from_scratch(model)))} from scratch, "
        f"{words.listed(_tflop(found, model, SPT))} self-pretrained"
        for model in MODELS
    )
    yield (
        "In section 1, patience ended the arms from scratch on reviews long before their allowance of steps, so they "
        "might have learnt later. Here nothing ends them: the learning rate follows a cosine over all the steps that "
        "both phases of self-pretraining may take together, and the checkpoint that is best on validation is scored. "
        "Both learning rates that were tried there are shown, and the Transformer also with dropout at the first of "
        "them. The self-pretrained runs are three of each model of section 1: their pretraining reached its cap, and "
        f"patience ended the rest. TFLOP of a run (medians): {taken}. {_peaks()}"
    )
    cells = Table.of(found.results.rows).cells
    ahead = {arm: [cells.get(Key(TASK, model, arm)) for model in (SSM, TRANSFORMER)] for arm in (*RATES, SPT)}
    *whole, pretrained = (s4.mean - attention.mean for s4, attention in ahead.values() if s4 and attention)
    if len(whole) == len(RATES):
        yield (
            f"From scratch over all steps, S4 is {words.listed(f'{each:.1f}' for each in whole)} points ahead of the "
            f"Transformer at the two rates, and {pretrained:.1f} once both are self-pretrained (a description, not a "
            "verdict)."
        )


def _tflop(found: Answer, model: str, *arms: str) -> list[str]:
    """Returns what a run of each of these arms took, the medians over seeds; none of an arm without a ledger."""
    costs = [shown.cost(found, Key(TASK, model, arm)) for arm in arms]
    return [f"{cost[1] / 1e12:.0f}" for cost in costs if cost]


def _peaks() -> str:
    """Returns after how many steps validation was best in the arms that train on, which their logs alone have."""
    archive = Path(__file__).resolve().parents[2] / "results" / "amos2025_patience-overnight" / "runs.tar.xz"
    best, lost = [], []
    with tarfile.open(archive) as runs:
        for member in runs:
            log = runs.extractfile(member) if member.name.endswith("/log.jsonl") else None
            if log is not None and f"-{WHOLE}" in member.name:
                lines = map(json.loads, io.TextIOWrapper(log, encoding="utf-8"))
                scores = [(line["score"], line["step"]) for line in lines if "score" in line]
                best.append(max(scores)[1])
                lost.append(max(scores)[0] - scores[-1][0])
    assert min(lost) > 0, "some run was best at its last step"
    return (
        f"In all {len(best)} runs from scratch validation was best after {min(best):,} to {max(best):,} steps, and "
        f"lower at the end (by {100 * min(lost):.1f} to {100 * max(lost):.1f} points), so more steps of this schedule "
        "are not what they lack. They may lack regularisation, of which only weight decay and this dropout were tried."
    )
