"""Makes rows of the scores of a run, and of the rules that need no sequence model beside them.

rows(run, objective, splits, {"val": ..., "test": ...}, stopped="")     # those of a whole run
named(run, Row(metric="accuracy", value=0.5))                           # one more, of a probe
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from levelfield.evaluate import SplitScores
from levelfield.objectives import Trainable
from levelfield.spec import Examples, Row, Run, SplitName
from levelfield.spec.study import AT_CAP, GUESSES, SHARES, guessed, unit_of

Splits = Mapping[SplitName, Examples]


def rows(
    run: Run, objective: Trainable, splits: Splits, scores: Mapping[SplitName, SplitScores], stopped: str
) -> list[Row]:
    """Returns the run's scores, and what rules that learn no sequence model would get.

    scores: on "val" and "test". stopped: "diverged" where a phase ended so, else "".
    """
    val, test = scores["val"], scores["test"]
    metric, size = objective.parts[0].metric, len(test.values)
    rules = {"chance": run.task.chance, **run.task.baselines(splits["train"], splits["test"])}
    floor = max(rules[name] for name in GUESSES if name in rules)
    outcome = "chance" if _at_floor(metric, test, floor, splits["test"].y) else "ok"
    made = [_score(metric, "val", val, stopped, outcome), _score(metric, "test", test, stopped, outcome)]
    compared = metric
    if metric == "negative_mse":
        compared = "r2"
        y = splits["test"].y
        made.append(made[1] | Row(metric="r2", value=_r2(test, y), stderr=test.stderr / _spread(y)))
    for name, value in rules.items():
        row = Row(metric=compared, unit=unit_of(metric), status="ok", split="test", value=value, n=size)
        made.append(row | Row(model=name, protocol="none"))
    return [named(run, row) for row in made]


def at_cap(run: Run, stopped: Sequence[str]) -> list[Row]:
    """The share of the phases with patience that went on to their cap; nothing where no phase has patience.

    A phase with a budget of 0 is skipped and counts as none. stopped: why each phase ended, as the ledger has it.
    """
    ended = zip([phase.recipe for phase in run.protocol.phases], stopped, strict=True)
    patient = [why == "" for recipe, why in ended if recipe.patience and recipe.budget.value]
    if not patient:
        return []
    share = sum(patient) / len(patient)
    return [named(run, Row(metric=AT_CAP, unit="fraction", status="ok", split="train", value=share))]


def validation(run: Run, objective: Trainable, val: SplitScores, stopped: str) -> Row:
    """Returns the one row of a trial, its score on validation."""
    return named(run, _score(objective.parts[0].metric, "val", val, stopped, "ok"))


def _score(metric: str, split: SplitName, scores: SplitScores, stopped: str, outcome: str) -> Row:
    """Returns the row of one split. outcome: its status where no phase diverged and all outputs are finite."""
    row = Row(metric=metric, unit=unit_of(metric), status=stopped or scores.fault or outcome, split=split)
    return row | Row(value=scores.mean, stderr=scores.stderr) | scores.counted


def _at_floor(metric: str, test: SplitScores, floor: float, y: np.ndarray) -> bool:
    """Returns whether a score is no better than guessing: within two standard errors of it, or an R2 of 0 or less."""
    if metric in SHARES:
        return guessed(test.mean, floor, test.independent)
    return metric == "negative_mse" and _r2(test, y) <= 0


def _r2(test: SplitScores, y: np.ndarray) -> float:
    return 1 + float(test.values.mean()) / _spread(y)


def _spread(y: np.ndarray) -> float:
    """Returns the variance of the targets (N, ...); NaN where all are equal, for then there is none to explain."""
    flat = y.reshape(len(y), -1)
    return float(np.square(flat - flat.mean(0)).mean()) or math.nan


def named(run: Run, row: Row) -> Row:
    """Returns a row with the run's own columns. A value that is not finite is absent, and its status never `ok`."""
    row = row.copy()
    if not math.isfinite(row.get("value", math.nan)):
        row.pop("value", None)
        row.pop("stderr", None)
        row["status"] = "diverged" if row.get("status") == "diverged" else "undefined"
    if not math.isfinite(row.get("stderr", 0.0)):
        row.pop("stderr", None)
    own = Row(
        source="levelfield",
        run=run.id,
        task=run.task.name,
        model=run.model.label,
        protocol=run.protocol.name,
        seed=run.seed,
    )
    own |= Row(numerics=str(run.numerics)) if run.numerics.changes else {}
    return own | row
