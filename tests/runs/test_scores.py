"""The score of every test example is kept beside the rows, and they are what the rows are the means of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny import MODEL, FirstSymbol, recipe

from levelfield import protocols
from levelfield.files import read_rows
from levelfield.run import execute
from levelfield.runs import rows, store
from levelfield.runs.hits import hits_of
from levelfield.runs.results import StudyIndex
from levelfield.spec import Duration, Run, UserError

RUN = Run(FirstSymbol(), MODEL, protocols.scratch(recipe(6)), 0)


def test_the_rows_are_the_means_of_the_kept_scores(tmp_path: Path) -> None:
    where = store.directory(tmp_path, RUN)
    execute(RUN, where, tmp_path / "data", "cpu")
    scores = store.read_scores(where)
    (tested,) = (row for row in read_rows(where / store.ROWS) if row["split"] == "test" and row["protocol"] != "none")
    assert scores is not None and scores.dtype == np.uint8
    assert (len(scores), scores.mean()) == (tested["n"], pytest.approx(tested["value"]))


def test_a_trial_keeps_none_and_damage_is_told(tmp_path: Path) -> None:
    execute(RUN, store.directory(tmp_path, RUN), tmp_path / "data", "cpu", tested=False)
    assert store.read_scores(store.directory(tmp_path, RUN)) is None
    store.write_scores(tmp_path, np.array([0.25, 1.5]))
    kept = store.read_scores(tmp_path)
    assert kept is not None and kept.dtype == np.float32 and kept.tolist() == [0.25, 1.5]
    (tmp_path / store.SCORES).write_bytes((tmp_path / store.SCORES).read_bytes()[:-3])
    with pytest.raises(UserError, match="damaged"):
        store.read_scores(tmp_path)


def test_which_examples_a_run_has_right_is_read_with_its_rows(tmp_path: Path) -> None:
    where = store.directory(tmp_path, RUN)
    execute(RUN, where, tmp_path / "data", "cpu")
    store.write_index(tmp_path, StudyIndex.of("one", "smoke", [RUN]))
    results, scores = store.read(tmp_path, "one", "smoke"), store.read_scores(where)
    assert scores is not None and results.hits[RUN.id].right.tolist() == scores.astype(bool).tolist()
    (told,) = (own for row in results.compared if (own := hits_of(row)))
    assert told == results.hits[RUN.id] and not any(map(hits_of, results.rows))
    (where / store.SCORES).write_bytes(b"")
    again = store.read(tmp_path, "one", "smoke")
    assert again.rows == results.rows and not again.hits and not again.failures
    assert again.remarks == [
        f"Arms are not compared example by example, as scores.npy is missing or damaged, with {RUN.id}."
    ]


def test_a_phase_that_is_skipped_has_not_reached_its_cap() -> None:
    """Its ledger has no reason why it ended, as that of a phase which went on to its cap."""
    patient = replace(recipe(6), patience=2)
    skipped = protocols.spt_masked(replace(patient, budget=Duration(0, "steps")), patient, 0.2)
    run = Run(FirstSymbol(), MODEL, skipped, 0)
    assert [row.get("value") for row in rows.at_cap(run, ["", "patience"])] == [0.0]
    assert [row.get("value") for row in rows.at_cap(run, ["", ""])] == [1.0]
    both = replace(run, protocol=protocols.spt_masked(patient, patient, 0.2))
    assert [row.get("value") for row in rows.at_cap(both, ["", "patience"])] == [0.5]
    assert rows.at_cap(replace(run, protocol=protocols.scratch(recipe(6))), [""]) == []
