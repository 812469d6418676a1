"""Printed numbers as the rows of runs, for tests that feed them to verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from levelfield import published
from levelfield.report.against_printed import match, pairs
from levelfield.report.arms import Arm
from levelfield.report.verdicts import Key
from levelfield.spec import Row, Study, describe

GUESSES = {"listops": 17.1, "pathfinder": 50, "pathx": 50, "pathx256": 50, "text": 50, "retrieval": 50, "image": 10}
GUESSES |= {"scifar": 10, "speech": 100 / 35}
LARGE = 10_000  # test examples, as of most of the benchmark's tasks


def printed(study: Study) -> dict[Key, tuple[str, float]]:
    """Printed percents (of R2, of the variance) in the places of the study's own arms, with their metric.

    A cross is chance.
    """
    found: dict[Key, tuple[str, float]] = {}
    rows = [row for p in study.published for row in published.rows(p.paper, p.table)]
    rows = [row for row in rows if "value" in row or row.get("status") == "chance"]
    for run in (run for run in study.runs("paper") if run.seed == 0):
        arm, spec = Arm(run.task.name, run.model.label, run.protocol.name), describe(run)
        for row in (row for row in rows if row.get("metric") in ("accuracy", "r2")):
            if match(arm, spec, row) is not None:
                whole = study.name == "miralles2025_table1" and run.model.label == "gmlp"  # the end of its axis
                at = pairs(row.get("at", "")).get("kernel_size", "all" if whole else "")
                model = {"": run.model.label, "all": "gmlp"}.get(at, "conv")
                key = Key(arm.task, model, arm.protocol, at)
                value = row.get("value", GUESSES.get(arm.task, 0.0))
                value *= 100 if row.get("unit") == "fraction" else 1
                found[key] = (row.get("metric", ""), value)
    return found


def measured(cells: dict[Key, tuple[str, float]], spread: Sequence[float] = (0.0,)) -> list[Row]:
    """Makes rows of runs, a seed for each shift of the score in points, and like print without validation scores."""
    rows = [
        Row(
            task=task, protocol="none", model="label_prior", metric="accuracy", split="test", value=value / 100, n=LARGE
        )
        for task, value in GUESSES.items()
    ]
    for key, (metric, value) in cells.items():
        for seed, shift in enumerate(spread):
            row = Row(run=f"{key}{seed}", task=key.task, model=key.model, protocol=key.protocol, seed=seed, n=LARGE)
            row |= Row(metric=metric, split="test", value=(value + shift) / 100)
            rows.append(row | Row(at=f"kernel={key.place}") if key.place else row)
    return rows
