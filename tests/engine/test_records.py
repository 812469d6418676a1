"""Which runs a study is made of: comparisons add to their record, and a run is found again by its folder."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fixtures_rows as fixtures
import pytest
import toys
from repository import ROOT
from torch import Tensor, nn

import levelfield
from levelfield import report
from levelfield.cli.app import main
from levelfield.engine.find import Source, choose, find_run, listing, load_study
from levelfield.engine.restore import kinds, recorded, restore
from levelfield.files import write_json
from levelfield.mixers.conv import Conv
from levelfield.presets import comparison
from levelfield.presets.options import Options
from levelfield.runs import store
from levelfield.runs.records import joined, of_last
from levelfield.runs.results import StudyIndex
from levelfield.spec import EFFORTS, ReportView, Run, Study, UserError, describe
from levelfield.user.mixer import load_user_mixer, mixer_of
from levelfield.user.own_data import OwnData

pytestmark = pytest.mark.usefixtures("undrawn")

MIXER = """
from torch import nn

class Mine(nn.Linear):
    def __init__(self, width, gain=(1, 2)):
        super().__init__(width, width)
"""


class Twice(nn.Module):
    """A mixer that could hardly do less."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.map = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return 2 * self.map(x)


class Other(Twice):
    """Another one."""


class Scaled(Twice):
    """A mixer with a setting that has no default."""

    def __init__(self, width: int, by: float) -> None:
        super().__init__(width)
        self.by = by


def scaled(width: int, by: float) -> nn.Module:
    return Scaled(width, by)


@dataclass(frozen=True)
class Wider(Conv):
    """A configuration with a setting that has no usual value there."""

    by: int = 0
    label = "wider"


@pytest.fixture
def mine(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(MIXER)
    return f"{tmp_path / 'mine.py'}:Mine(gain=[3, 4])"


def started(
    out: Path,
    mixer: str,
    tasks: Sequence[str],
    protocols: Sequence[str] = ("scratch",),
    *,
    steps: int | None = None,
    seeds: int | None = None,
) -> list[Run]:
    """As `compare` leaves it when it is killed at once."""
    options = Options(tuple(tasks), tuple(protocols), steps=steps, seeds=seeds)
    study = comparison.compare(load_user_mixer(mixer), options)
    runs = choose(study, "smoke")
    sizes = comparison.shared("smoke", options)
    store.write_index(out, StudyIndex.of(study.name, "smoke", runs, sizes=sizes), adds=True)
    for run in runs:
        write_json(store.directory(out, run) / "spec.json", describe(run))
    return runs


def known(out: Path) -> set[str]:
    (path,) = (out / "studies").glob("*.json")
    return set(store.read_index(path).runs)


@pytest.mark.parametrize("name", [n for n in listing("studies") if isinstance(Source(n).find(), Study)])
def test_every_run_of_every_study_is_made_again_from_its_description(name: str) -> None:
    study = load_study(name)
    runs = [run for effort in EFFORTS for run in study.runs(effort)]
    assert runs
    for run in {replace(run, seed=0): run for run in runs}.values():
        assert restore(describe(run)).id == run.id


def test_every_class_that_a_run_may_be_made_of_is_known() -> None:
    """Whatever file of the package it is in: the sources are read, so that nothing has to be imported."""
    classes = [
        (node.name, {ast.unparse(base) for base in node.bases})
        for path in (ROOT / "levelfield").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    found = {"MixerConfig", "Task", "Objective", "ForeignWeights"}
    while more := {name for name, bases in classes if bases & found} - found:
        found |= more
    assert len(found) > 80
    assert found - {each.__name__ for each in kinds()} == {"DeltaMemory", "UserMixer"}, (
        "a base of mixers, and what a user gives"
    )


def test_two_comparisons_of_one_module_are_one_record(tmp_path: Path, mine: str) -> None:
    first = started(tmp_path, mine, ["recall"])
    second = started(tmp_path, mine, ["induction"], ["scratch", "spt_masked"])
    ids = {run.id for run in [*first, *second]}
    assert known(tmp_path) == ids
    study = Source.of(mine).load()
    results = store.read(tmp_path, study.name, "smoke")
    shown = Source.of(mine).recorded(study, results.specs).runs("smoke")
    assert {run.id for run in shown} == ids, "the report is of all of them, whatever the default tasks are"
    assert {run.task.name for run in shown} == {"recall", "induction"}


def test_runs_on_a_file_that_has_moved_are_left_out_of_the_comparison(tmp_path: Path, mine: str) -> None:
    data = tmp_path / "reviews.csv"
    data.write_text("words,kind\n" + "".join(f"word{n} {n % 2},{n % 2}\n" for n in range(60)))
    mixer, (first, *_) = load_user_mixer(mine), started(tmp_path, mine, ["recall"])
    own = replace(first, task=OwnData(str(data), text="words", label="kind"))
    described = {run.id: describe(run) for run in (first, own)}
    study = Source.of(mine).load()
    assert [run.id for run in recorded(study, described, mixer).runs("smoke")] == [first.id, own.id]
    data.rename(tmp_path / "moved.csv")
    assert [run.id for run in recorded(study, described, mixer).runs("smoke")] == [first.id]


def test_arms_of_other_commands_that_nobody_has_begun_are_named_and_not_counted(tmp_path: Path, mine: str) -> None:
    first = started(tmp_path, mine, ["recall"])
    study = comparison.compare(load_user_mixer(mine), Options(("induction",), ("scratch",), ("conv",)))
    later = choose(study, "smoke")
    store.write_index(tmp_path, StudyIndex.of(study.name, "smoke", later), adds=True)
    results = store.read(tmp_path, study.name, "smoke")
    found = store.without_unbegun(results, tmp_path)
    assert set(found.specs) == {run.id for run in first}
    assert found.unbegun == ["induction-mine-scratch", "induction-conv-scratch"]
    store.directory(tmp_path, later[-1]).mkdir()
    begun = store.without_unbegun(results, tmp_path)
    assert set(begun.specs) == {run.id for run in [*first, later[-1]]}
    assert begun.unbegun == ["induction-mine-scratch"]


def test_a_run_with_other_settings_takes_the_place_of_the_earlier_one(tmp_path: Path, mine: str) -> None:
    first = started(tmp_path, mine, ["recall", "induction"])
    changed = [replace(run, model=replace(run.model, depth=9)) for run in first if run.task.name == "recall"]
    store.write_index(tmp_path, StudyIndex.of(Source.of(mine).load().name, "smoke", changed), adds=True)
    kept = {run.id for run in first if run.task.name == "induction"}
    assert known(tmp_path) == kept | {run.id for run in changed}
    fewer = changed[: len(changed) // 2]
    store.write_index(tmp_path, StudyIndex.of(Source.of(mine).load().name, "smoke", fewer), adds=True)
    assert known(tmp_path) == kept | {run.id for run in changed}, "other seeds and arms stay"
    store.write_index(tmp_path, StudyIndex.of(Source.of(mine).load().name, "smoke", fewer))
    assert known(tmp_path) == {run.id for run in fewer}, "a study is what its file says now"


def test_runs_on_data_that_were_edited_are_no_seeds_beside_those_on_the_data_of_today(
    tmp_path: Path, mine: str
) -> None:
    path = tmp_path / "reviews.csv"
    own = repr(levelfield.OwnData(str(path), text="body", label="stars"))
    rows = [f"words {number},{number % 2}" for number in range(40)]
    path.write_text("\n".join(["body,stars", *rows]))
    induction = started(tmp_path, mine, ["induction"])
    before = started(tmp_path, mine, [own])
    path.write_text("\n".join(["body,stars", *rows, "more words,1"]))
    after = started(tmp_path, mine, [own], ["spt_masked"])
    assert known(tmp_path) == {run.id for run in [*induction, *after]}, "nor arms, where none is the same"
    path.write_text("\n".join(["body,stars", *rows]))
    again = started(tmp_path, mine, [own])
    assert [run.id for run in again] == [run.id for run in before]
    assert known(tmp_path) == {run.id for run in [*induction, *before]}


def test_files_of_one_name_keep_the_runs_and_trials_of_each_other(tmp_path: Path, mine: str) -> None:
    own, name, sizes = dict[str, list[Run]](), Source.of(mine).load().name, comparison.shared("smoke", Options())
    for place in ("a", "b", "a"):
        path = tmp_path / place / "reviews.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(["body,stars", *(f"{place} {number},{number % 2}" for number in range(40))]))
        word = repr(levelfield.OwnData(str(path), text="body", label="stars"))
        own[place] = started(tmp_path, mine, [word], ["spt_masked" if place in own else "scratch"]) + own.get(place, [])
        trial = {"arm": own[place][0].id, "lr": 1.0, "weight_decay": 1.0, "chosen": True, "metric": "accuracy"}
        trial |= {"unit": "fraction", "flops": 1.0, "wall_s": 1.0}
        index = StudyIndex.of(name, "smoke", own[place], [trial], sizes=sizes)
        store.write_index(tmp_path, index, adds=True)
    found = store.started(tmp_path, name, "smoke")
    assert set(found.runs) == {run.id for run in [*own["a"], *own["b"]]}
    assert {trial["arm"] for trial in found.trials} >= {own["a"][0].id, own["b"][0].id}
    assert set(of_last(found).runs) == {run.id for run in own["a"]}, "their scores would be taken for seeds"
    assert set(of_last(found, asked=[own["b"][0].id]).runs) == {run.id for run in own["b"]}
    earlier = replace(found, contents={})  # as earlier versions wrote it
    alone = joined(StudyIndex.of(name, "smoke", own["b"], sizes=sizes), earlier)
    assert set(alone.runs) == {run.id for run in own["b"]}


def test_arms_of_other_sizes_are_not_beside_each_other(tmp_path: Path, mine: str) -> None:
    """Nor judged with them, though on another task."""
    started(tmp_path, mine, ["recall", "induction"])
    other = started(tmp_path, mine, ["recall"], ["spt_masked"], steps=12)
    assert known(tmp_path) == {run.id for run in other}
    seeds = started(tmp_path, mine, ["recall"], ["scratch"], steps=12, seeds=2)
    assert known(tmp_path) == {run.id for run in [*other, *seeds]}, "more seeds are no other size"


def test_trials_of_both_comparisons_stay(tmp_path: Path, mine: str) -> None:
    runs = started(tmp_path, mine, ["recall", "induction"])
    name = Source.of(mine).load().name
    by_task = {task: [run for run in runs if run.task.name == task] for task in ("recall", "induction")}
    for task, own in by_task.items():
        trial = {"arm": own[0].id, "lr": 1.0, "weight_decay": 1.0, "chosen": True, "metric": "accuracy"}
        trial |= {"unit": "fraction", "flops": 1.0, "wall_s": 1.0, "task": task}
        store.write_index(tmp_path, StudyIndex.of(name, "smoke", own, [trial], 1), adds=True)
        store.write_index(tmp_path, StudyIndex.of(name, "smoke", own, [trial], 1), adds=True)  # again: in its place
    found = store.read(tmp_path, name, "smoke").trials
    assert [trial["task"] for trial in found] == ["recall", "induction"]


def test_a_run_of_a_comparison_is_found_by_its_folder_alone(tmp_path: Path, mine: str) -> None:
    """Whatever tasks it was asked with, and though its record is lost."""
    runs = started(tmp_path, mine, ["induction"], ["spt_masked"])
    for path in (tmp_path / "studies").iterdir():
        path.unlink()
    own = next(run for run in runs if run.model.label == "mine")
    for run in runs:
        assert find_run(run.id, tmp_path, mine) == run
        if run.model.label != "mine":
            assert find_run(run.id, tmp_path) == run
    with pytest.raises(UserError, match="add --study"):
        find_run(own.id, tmp_path)
    (tmp_path / "mine.py").write_text(MIXER + "\n")
    with pytest.raises(UserError, match="has changed since"):
        find_run(own.id, tmp_path, mine)


@pytest.mark.parametrize(
    ("given", "settings"), [(Twice, None), (Scaled, {"by": 3.0}), (scaled, {"by": 3.0}), (Wider, {"by": 2})]
)
def test_a_run_of_what_was_passed_from_python_is_found_when_that_is_passed_again(
    tmp_path: Path, given: Any, settings: dict[str, Any] | None
) -> None:
    options = Options(("induction",), ("scratch",), ("conv",))
    study = comparison.compare(mixer_of(given, settings), options)
    run = next(run for run in choose(study, "smoke") if run.model.label != "conv")
    write_json(store.directory(tmp_path, run) / "spec.json", describe(run))
    assert find_run(run.id, str(tmp_path), given) == run
    with pytest.raises(
        UserError, match=rf"find_run\('{run.id}', runs_dir, \w+\) of levelfield\.engine\.find\.$"
    ) as sent:
        find_run(run.id, tmp_path)
    assert ("add --study" in str(sent.value)) is (given is Wider), "only what may be in a file"
    with pytest.raises(UserError, match=r"Other no longer has the run|is made of"):
        find_run(run.id, tmp_path, Other)


@pytest.mark.parametrize(
    "content", ["{}", '{"kind": "Run"}', '{"kind": "Model", "mixers": []}', "[]", "3", '{"kind": 4}']
)
def test_a_description_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "a-run").mkdir()
    (tmp_path / "a-run" / "spec.json").write_text(content)
    with pytest.raises(UserError):
        find_run("a-run", tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("seed", 5, r"has changed since, and would be induction-\S+-5-\w+ today\.$"),
        ("mood", 1, r"has changed since \(TypeError: .*unexpected keyword argument 'mood'\)\.$"),
        ("numerics", {"kind": "Numerics", "nproc": 0}, r"has changed since\. A run cannot be .*: give 1 or more\.$"),
    ],
)
def test_why_a_run_cannot_be_made_again_is_said(
    tmp_path: Path, mine: str, field: str, value: object, reason: str
) -> None:
    run = next(r for r in started(tmp_path, mine, ["induction"], ["scratch"]) if r.model.label != "mine")
    write_json(store.directory(tmp_path, run) / "spec.json", {**describe(run), field: value})
    with pytest.raises(UserError, match=reason):
        find_run(run.id, tmp_path)


def test_a_run_of_a_users_study_is_found_at_whatever_effort(tmp_path: Path) -> None:
    toys.write(tmp_path / "toys.py", runs=1)
    (run,) = choose(Source(str(tmp_path / "toys.py")).load(), "hours")
    write_json(store.directory(tmp_path, run) / "spec.json", describe(run))
    assert find_run(run.id, tmp_path, str(tmp_path / "toys.py")).id == run.id


def test_a_comparison_reports_what_it_was_asked_and_probes_find_what_others_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    first = levelfield.compare(Twice, "recall", "scratch", "smoke")
    second = levelfield.compare(Twice, "induction", "scratch", "smoke")
    assert {row.get("task") for row in first.rows} == {"recall"}
    assert {row.get("task") for row in second.rows} == {"induction"}
    assert first.page == second.page == tmp_path / first.page.relative_to(tmp_path), "a path for any current folder"
    assert not [each for each in first.remarks if "renewed" in each]
    (renewed,) = (each for each in second.remarks if "renewed" in each)
    assert f"{first.page.parent} is renewed: it was also of {len(first.ledgers)} runs that were not asked" in renewed
    assert renewed in capfd.readouterr().out
    page = second.page.read_text()
    assert "induction" in page and "recall" not in page
    again = levelfield.compare(Twice, ["recall", "induction"], "scratch", "smoke")
    assert len(again.ledgers) == len(first.ledgers) + len(second.ledgers), "nothing is trained again"
    assert not [each for each in again.remarks if "renewed" in each], "nothing of the earlier one is lost"
    baseline = next(p.name for p in Path("runs").glob("recall-attention-*"))
    main(["probe", "effective_context", baseline, "--device", "cpu"])
    assert "distance" in capfd.readouterr().out


def test_a_report_folder_holds_the_files_of_one_report(tmp_path: Path) -> None:
    study, results = fixtures.extrapolation()
    first = report.build(study, "minutes", results, tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    fewer = replace(study, views=(ReportView("slices", "Slices"),))
    second = report.build(fewer, "minutes", results, tmp_path)
    assert set(second) < set(first)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {*second, tmp_path / "notes.txt"}


def test_described_values_that_are_the_same_are_read_as_one_object_and_stay_as_they_were_written(
    tmp_path: Path,
) -> None:
    """Equal is not enough: 1, 1.0 and True are other settings, with other ids. A phase has several durations."""
    model = {"kind": "Model", "mixers": [{"kind": "Conv", "kernel": 5, "at": [1, 2]}], "depth": 2}
    others = [
        model | {"depth": True},
        model | {"depth": 2.0},
        model | {"mixers": [model["mixers"][0] | {"at": [1.0, 2]}]},
    ]
    budget, warmup = ({"kind": "Duration", "value": value, "unit": "steps"} for value in (3, 0))
    phase = {"kind": "Phase", "objective": {"kind": "Classify"}, "budget": budget, "warmup": warmup}
    protocol = {"kind": "Protocol", "name": "scratch", "phases": [phase]}
    runs = {
        f"toy-conv-scratch-{seed}-0": {
            "kind": "Run",
            "task": {"kind": "Toy"},
            "model": each,
            "protocol": protocol,
            "seed": seed,
        }
        for seed, each in enumerate([model, model, *others, model])
    }
    path = store.index_file(tmp_path, "toys", "smoke")
    write_json(path, {"study": "toys", "effort": "smoke", "runs": runs})
    read = store.read_index(path).runs
    assert repr(read) == repr(runs)
    first, second, *_, last = read.values()
    for name in ("task", "model", "protocol"):
        assert first[name] is second[name] is last[name], name


def test_a_study_says_in_one_sentence_that_an_id_cannot_be_made_unless_no_id_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "toys.py"
    toys.write(path)
    path.write_text(path.read_text().replace('Trap(TRAPS.get(seed, ""))', "Trap(object())"))
    with pytest.raises(UserError, match="object cannot be part of a run"):
        Source(str(path)).load().runs("smoke")
    found = Source(str(path)).find(ids=False)
    assert isinstance(found, Study) and [run.task.name for run in found.runs("smoke")] == ["toy"]
