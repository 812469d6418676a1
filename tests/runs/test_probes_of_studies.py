"""Two studies may measure one run by probes of their own: each is told what it lacks, and shown what it asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import toys
from tiny import MODEL, FirstSymbol, recipe

from levelfield import protocols
from levelfield.engine.find import Source
from levelfield.engine.status import study_status
from levelfield.engine.training import Job, Runs, index_of
from levelfield.probes.effective_context import EffectiveContext
from levelfield.probes.slices import Slices
from levelfield.run import execute
from levelfield.runs import sound, store
from levelfield.runs.probed import probe_files
from levelfield.runs.results import StudyIndex
from levelfield.spec import Probe, Run, UserError

RUN = Run(FirstSymbol(), MODEL, protocols.scratch(recipe(2)), 0)
FEW, MANY = EffectiveContext(examples=2, steps=1), EffectiveContext(examples=3, steps=1)


def begin(out: Path, study: str, probes: Sequence[Probe]) -> None:
    store.write_index(out, StudyIndex.of(study, "smoke", [RUN], probes=lambda run: probes))


def measure(out: Path, probes: Sequence[Probe]) -> None:
    execute(RUN, store.directory(out, RUN), out / "data", "cpu", probes)


def told(out: Path, study: str) -> tuple[str, bool]:
    """What a status says of the run, and whether a report says that rows of probes are missing."""
    state = study_status(out, study, "smoke").runs[RUN.id].state
    remarks = store.read(out, study, "smoke").remarks
    return state, any(remark.startswith(sound.UNPROBED) for remark in remarks)


def test_a_run_is_done_for_the_study_that_has_rows_of_all_its_probes(tmp_path: Path) -> None:
    begin(tmp_path, "a", [FEW])
    begin(tmp_path, "b", [Slices()])
    begin(tmp_path, "plain", [])
    measure(tmp_path, [FEW])
    assert told(tmp_path, "a") == told(tmp_path, "plain") == ("done", False)
    assert told(tmp_path, "b") == ("waiting", True)
    store.probe_file(store.directory(tmp_path, RUN), FEW).unlink()
    measure(tmp_path, [Slices()])
    assert told(tmp_path, "b") == told(tmp_path, "plain") == ("done", False)
    assert told(tmp_path, "a") == ("waiting", True)


def test_of_a_record_of_an_earlier_version_the_run_says_what_it_is_measured_by(tmp_path: Path) -> None:
    store.write_index(tmp_path, StudyIndex.of("earlier", "smoke", [RUN]))
    assert "probes" not in json.loads(store.index_file(tmp_path, "earlier", "smoke").read_text())
    measure(tmp_path, [FEW])
    assert told(tmp_path, "earlier") == ("done", False)
    store.probe_file(store.directory(tmp_path, RUN), FEW).unlink()
    assert told(tmp_path, "earlier") == ("waiting", True)


def test_two_studies_keep_the_rows_that_one_probe_gives_with_their_settings(tmp_path: Path) -> None:
    """Settings that no study asks for any longer leave none."""
    for name, probe in (("few", FEW), ("many", MANY)):
        begin(tmp_path, name, [probe])
        measure(tmp_path, [probe])
    for name, count in (("few", 2), ("many", 3)):
        rows = store.read(tmp_path, name, "smoke").rows
        assert {row.get("n") for row in rows if row["metric"] == "gradient_share"} == {count}
        assert told(tmp_path, name) == ("done", False)
    begin(tmp_path, "few", [replace(FEW, examples=4)])
    assert told(tmp_path, "few") == ("waiting", True)
    measure(tmp_path, [replace(FEW, examples=4)])
    assert told(tmp_path, "few") == told(tmp_path, "many") == ("done", False)
    assert not store.probe_file(store.directory(tmp_path, RUN), FEW).exists()


@dataclass(frozen=True)
class Longer(EffectiveContext):
    """A probe whose name begins with that of another one."""

    name: ClassVar[str] = f"{FEW.name}-longer"


def test_a_probe_keeps_its_rows_beside_one_whose_name_its_own_begins_with(tmp_path: Path) -> None:
    where = tmp_path / "run"
    store.write_probe(where, Longer(), [])
    assert probe_files([path.name for path in where.iterdir()], None, [FEW.name])[1] == [FEW.name]
    store.write_probe(where, FEW, [])
    assert store.probe_file(where, Longer()).exists()
    assert store.probed_otherwise(where, FEW) == []


def test_comparisons_that_add_to_one_record_keep_what_each_run_is_measured_by(tmp_path: Path) -> None:
    other = replace(RUN, seed=1)
    for run, probe in ((RUN, FEW), (other, Slices())):
        index = StudyIndex.of("one", "smoke", [run], probes=lambda _, probe=probe: [probe])
        store.write_index(tmp_path, index, adds=True)
    known = store.read_index(store.index_file(tmp_path, "one", "smoke")).probes
    assert known == {run.id: [store.probe_file(tmp_path, p).name] for run, p in ((RUN, FEW), (other, Slices()))}


def test_a_study_with_one_probe_twice_is_refused(tmp_path: Path) -> None:
    """Their rows would stand in one cell of its report. With one of them, its record names the file."""
    toys.write(tmp_path / "toys.py", runs=1)
    job = Job(Source(str(tmp_path / "toys.py")), "smoke", tmp_path / "runs", tmp_path / "data")
    study, runs = job.load()
    with pytest.raises(UserError, match="by two probes called effective_context: rename one"):
        Runs.of(job, replace(study, probes=lambda run: (FEW, MANY)), runs)
    single = replace(study, probes=lambda run: (FEW,))
    assert index_of(job, study, single).probes == {runs[0].id: [store.probe_file(tmp_path, FEW).name]}
