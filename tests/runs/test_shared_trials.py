"""The trials of an arm are recorded by its first run, and go with whichever of its runs is shared, joined or shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tiny import MODEL, FirstSymbol, recipe

from levelfield.protocols import scratch
from levelfield.runs import share_studies, store
from levelfield.runs.records import joined
from levelfield.runs.results import StudyIndex
from levelfield.spec import Run, describe

FIRST, SECOND, THIRD = (Run(FirstSymbol(), MODEL, scratch(recipe()), seed) for seed in range(3))
WIDE = [replace(run, model=replace(MODEL, width=32)) for run in (FIRST, SECOND)]  # an arm with the same names
RUNS = [FIRST, SECOND, THIRD, *WIDE]


def trial(run: Run, lr: float = 1.0) -> dict[str, Any]:
    about = {"task": run.task.name, "model": run.model.label, "protocol": run.protocol.name, "metric": "accuracy"}
    numbers = {"lr": lr, "weight_decay": 1.0, "flops": 1.0, "wall_s": 1.0}
    return {"arm": run.id, **about, **numbers, "chosen": True, "unit": "fraction"}


def recorded(out: Path) -> None:
    store.write_index(out, StudyIndex.of("tuned", "smoke", RUNS, [trial(FIRST), trial(WIDE[0])]))


def arms(index: StudyIndex) -> list[str]:
    return [each["arm"] for each in index.trials]


def imported(out: Path, runs: Sequence[Run], to: Path) -> StudyIndex:
    for run in runs:
        found = share_studies.records(store.directory(out, run))
        assert len(share_studies.add(found, run.id, describe(run), to)) == 1
    return store.started(to, "tuned", "smoke")


def test_every_seed_takes_the_trials_of_its_own_arm_along(tmp_path: Path):
    recorded(tmp_path)
    for run, first in [(FIRST, FIRST), (SECOND, FIRST), (THIRD, FIRST), (WIDE[0], WIDE[0]), (WIDE[1], WIDE[0])]:
        (found,) = share_studies.records(store.directory(tmp_path, run))
        assert [each["arm"] for each in found.get("trials", ())] == [first.id]


def test_seeds_that_are_imported_one_by_one_have_their_trials_once(tmp_path: Path):
    """Whether or not the first one, by which they are recorded, is among them."""
    recorded(tmp_path)
    assert arms(imported(tmp_path, [SECOND, THIRD], tmp_path / "two")) == [FIRST.id]
    assert arms(imported(tmp_path, [SECOND, FIRST], tmp_path / "with the first")) == [FIRST.id]


def test_trials_of_imported_runs_stay_when_a_study_goes_on(tmp_path: Path):
    """They are dropped with their runs, where the arm has other settings now."""
    recorded(tmp_path)
    earlier, other = imported(tmp_path, [SECOND], tmp_path / "here"), replace(FIRST, model=replace(MODEL, name="new"))
    more = StudyIndex.of("tuned", "smoke", [other], [trial(other)])
    assert arms(joined(more, earlier)) == [FIRST.id, other.id]
    longer = replace(SECOND, protocol=scratch(recipe(60)))
    assert arms(joined(StudyIndex.of("tuned", "smoke", [longer], [trial(longer)]), earlier)) == [longer.id]


def test_a_report_of_one_seed_has_the_trials_of_its_arm(tmp_path: Path):
    recorded(tmp_path)
    shown = store.read(tmp_path, "tuned", "smoke", runs={SECOND.id: describe(SECOND)})
    assert [each["arm"] for each in shown.trials] == [FIRST.id]
