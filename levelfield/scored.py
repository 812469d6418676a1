"""What the scores of a run become: rows, with the run's name in them, beside what needs no sequence model.

rows(run, objective, splits, val, test, stopped="")     of a whole run
named(run, Row(metric="accuracy", value=0.5))           one more, of a probe
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from levelfield.evaluate import SplitScores
from levelfield.objectives import Trainable
from levelfield.spec import Examples, Row, Run, SplitName

Splits = Mapping[SplitName, Examples]


def rows(
    run: Run, objective: Trainable, splits: Splits, val: SplitScores, test: SplitScores, stopped: str
) -> list[Row]:
    """The run's scores, and what rules that learn no sequence model would get."""
    metric, size = objective.parts[0].metric, len(test.values)
    rules = {"chance": run.task.chance, **run.task.baselines(splits["train"], splits["test"])}
    floor = max(rules["chance"], rules.get("label_prior", 0.0))
    status = stopped or ("chance" if _at_floor(metric, test, floor, splits["test"].y) else "ok")
    made = [_score(metric, "val", val, status), _score(metric, "test", test, status)]
    compared = metric
    if metric == "negative_mse":
        compared = "r2"
        spread = _spread(splits["test"].y)
        explained = Row(metric="r2", unit="", status=status, split="test", value=float(1 + test.values.mean() / spread))
        made.append(explained | Row(stderr=float(test.stderr / spread), n=size))
    for name, value in rules.items():
        row = Row(metric=compared, unit=_unit(metric), status="ok", split="test", value=value, n=size)
        made.append(row | Row(model=name, protocol="none"))
    return [named(run, row) for row in made]


def validation(run: Run, objective: Trainable, val: SplitScores, status: str) -> Row:
    """All that is measured of a trial."""
    return named(run, _score(objective.parts[0].metric, "val", val, status))


def _score(metric: str, split: SplitName, scores: SplitScores, status: str) -> Row:
    value, stderr, n = scores.mean, scores.stderr, len(scores.values)
    return Row(metric=metric, unit=_unit(metric), status=status, split=split, value=value, stderr=stderr, n=n)


def _unit(metric: str) -> str:
    return "fraction" if metric in ("accuracy", "step_accuracy") else ""


def _at_floor(metric: str, test: SplitScores, floor: float, y: np.ndarray) -> bool:
    """Not clearly better than guessing: within two standard errors of it, or explaining no variance."""
    if metric in ("accuracy", "step_accuracy"):
        return bool(test.mean <= floor + 2 * np.sqrt(floor * (1 - floor) / test.weights.sum()))
    return metric == "negative_mse" and _r2(test, y) <= 0


def _r2(test: SplitScores, y: np.ndarray) -> float:
    return float(1 + test.values.mean() / _spread(y))


def _spread(y: np.ndarray) -> float:
    """Variance of the targets."""
    flat = y.reshape(len(y), -1)
    return float(np.square(flat - flat.mean(0)).mean())


def named(run: Run, row: Row) -> Row:
    """Fill in the run's own columns; what is not a number is absent."""
    if not math.isfinite(row.get("value", 0.0)):
        row = row.copy()
        row.pop("value", None)
        row.pop("stderr", None)
    own = Row(
        source="levelfield",
        run=run.id,
        task=run.task.name,
        model=run.model.label,
        protocol=run.protocol.name,
        seed=run.seed,
    )
    return own | row
