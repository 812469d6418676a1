"""Every study at every effort: its runs are valid and told apart; at `smoke` all of them run, here and now."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path

import pytest
from repository import ROOT

from levelfield import published
from levelfield.engine import find
from levelfield.files import read_rows
from levelfield.recipes import miralles2025
from levelfield.report.arms import Arm, differences
from levelfield.report.verdicts import Key, Table, scores
from levelfield.run import check, execute
from levelfield.spec import EFFORTS, Effort, Row, Run, Study, describe
from levelfield.studies import amos2025_table2, miralles2025_table1


def shipped() -> dict[str, Study]:
    modules = {name: import_module(f"levelfield.studies.{name}") for name in find.listing("studies")}
    return {name: study for name, m in modules.items() if isinstance(study := vars(m).get("study"), Study)}


STUDIES = shipped()
PAPERS = {name: study for name, study in STUDIES.items() if study.published}


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("name", STUDIES)
def test_runs_are_valid_and_told_apart(name: str, effort: Effort) -> None:
    runs = STUDIES[name].runs(effort)
    assert runs
    assert len({run.id for run in runs}) == len(runs)
    assert [run.id for run in STUDIES[name].runs(effort)] == [run.id for run in runs]
    for run in runs:
        check(run)


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_named_like_its_file_and_says_where_it_differs(name: str) -> None:
    study = STUDIES[name]
    assert study.name == name
    assert study.claim.endswith(".")
    assert study.deviations or not study.published
    assert all(d.endswith(".") for d in study.deviations)


@pytest.mark.parametrize("name", PAPERS)
def test_every_seed_of_an_arm_is_the_same_but_for_its_seed(name: str) -> None:
    for effort in EFFORTS:
        arms: dict[str, set[int]] = {}
        for run in PAPERS[name].runs(effort):
            spec = describe(run)
            spec.pop("seed")
            arms.setdefault(json.dumps(spec), set()).add(run.seed)
        assert len({frozenset(seeds) for seeds in arms.values()}) == 1


@pytest.mark.parametrize("name", PAPERS)
def test_papers_full_effort_has_three_seeds_and_files_come_last(name: str) -> None:
    runs = PAPERS[name].runs("paper")
    assert {run.seed for run in runs} == {0, 1, 2}
    needs_files = [bool(run.task.archives) for run in runs]
    assert needs_files == sorted(needs_files), "absent files must not stop what can be generated"
    assert not any(run.task.archives for run in PAPERS[name].runs("smoke"))


@pytest.mark.parametrize("effort", ["hours", "paper"])
@pytest.mark.parametrize("name", PAPERS)
def test_every_printed_column_is_run(name: str, effort: Effort) -> None:
    """Every measured cell of its models, or what an average is of; but for PathX below `paper`."""
    runs = PAPERS[name].runs(effort)
    models = {run.model.label for run in runs}
    rows = [row for p in PAPERS[name].published for row in published.rows(p.paper, p.table)]
    wanted: set[str] = set()
    for row in (row for row in rows if row.get("model") in models):
        average, *tasks = row.get("task", "").split("_")
        if average == "average":
            wanted |= set(tasks)
        elif row.get("status") in ("reported", "chance"):
            wanted.add(row.get("task", ""))
    assert wanted
    assert {run.task.name for run in runs} == {task for task in wanted if effort == "paper" or "pathx" not in task}


SLICED = ("root",)  # columns of ListOps, which every study with the view has at smoke


def fields_that_differ(runs: list[Run]) -> set[str]:
    return {d.field for d in differences({Arm("", str(i), ""): describe(run) for i, run in enumerate(runs)})}


@pytest.mark.parametrize("effort", EFFORTS)
def test_bounded_convolutions_differ_in_their_kernel_and_nothing_else(effort: Effort) -> None:
    runs = [r for r in miralles2025_table1.runs(effort) if r.model.label.startswith("conv") and r.seed == 0]
    for task in {run.task for run in runs}:
        arms = [run for run in runs if run.task == task]
        assert fields_that_differ(arms) == {"model.mixers.last.kernel"}
        assert len({id(run.protocol) for run in arms}) == 1


@pytest.mark.parametrize("effort", ["smoke", "minutes", "hours"])
def test_the_unbounded_reference_differs_in_its_mixer_only(effort: Effort) -> None:
    runs = [r for r in miralles2025_table1.runs(effort) if r.seed == 0]
    for task in {run.task for run in runs}:
        arms = [run for run in runs if run.task == task]
        assert fields_that_differ(arms) <= {
            "model.mixers",
            "model.depth",
            "model.block.dropout",
        }  # table 6 has other depths than table 7, and dropout on Text


@pytest.mark.parametrize("effort", EFFORTS)
def test_protocols_of_one_model_share_the_model_and_the_last_phase(effort: Effort) -> None:
    runs = [r for r in amos2025_table2.runs(effort) if r.seed == 0]
    for task, label in {(run.task, run.model.label) for run in runs}:
        scratch, pretrained = (r for r in runs if (r.task, r.model.label) == (task, label))
        assert scratch.model is pretrained.model
        own = {"lr", "batch", "schedule", "warmup", "budget", "validate_every"} if label == "s4" else {"budget"}
        if effort != "paper":
            own |= {"validate_every", "warmup"}  # they are shares of the budget
        last = {f"protocol.phases.last.recipe.{name}" for name in own}
        extra = {"protocol.phases.last.start", "protocol.phases.last-1", "protocol.phases"}
        assert fields_that_differ([scratch, pretrained]) <= last | extra


def test_the_page_on_studies_says_what_is_so() -> None:
    page = (ROOT / "docs" / "studies.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, object] = {}
    exec(snippet, names)
    setting = miralles2025.conv("image")
    assert names["setting"] is setting
    assert f"# {(setting.shape.width, setting.hidden, setting.recipe.lr)}" in page
    for name, study in STUDIES.items():
        assert f"`{name}`" in page or not study.published
    for effort in EFFORTS:
        counts = [len(study.runs(effort)) for study in (miralles2025_table1.study, amos2025_table2.study)]
        (line,) = re.findall(rf"^\| `{effort}` .*$", page, re.MULTILINE)
        assert re.findall(r"(\d+) runs", line) == [str(count) for count in counts]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where data are prepared: many studies have the same tasks, and each task is told apart by its settings."""
    return tmp_path_factory.mktemp("data")


LONG = {"amos2025_table2", "scorecard"}  # whose runs take ten seconds; others have the same tasks and models


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LONG)) for n in STUDIES])
def test_smoke_runs_to_its_verdict(name: str, tmp_path: Path, data: Path) -> None:
    study = STUDIES[name]
    rows: list[Row] = []
    for run in study.runs("smoke"):
        where = tmp_path / "runs" / run.id
        execute(run, where, data, "cpu", study.probes(run))
        assert json.loads((where / "ledger.json").read_text())["parameters"] > 0
        found = [row for file in sorted(where.glob("*rows.jsonl")) for row in read_rows(file)]
        assert any(row.get("split") == "test" and not row.get("at") for row in found)
        rows += found + [row for file in sorted(where.glob("probe-*.jsonl")) for row in read_rows(file)]
    assert {view.metric for view in study.views} <= {row.get("metric") for row in rows}, "a view that is never drawn"
    tasks = {run.task.name for run in study.runs("smoke")}
    if any(view.kind == "slices" for view in study.views) and "listops" in tasks:
        here = {
            (r.get("task"), r.get("protocol") == "none") for r in rows if r.get("at", "").partition("=")[0] in SLICED
        }
        assert {("listops", False), ("listops", True)} <= here, "the view has rows, of models and of the greedy rule"
    if study.verdict is not None:
        text = study.verdict(rows)
        assert "reproduced" not in text.lower()
        assert text.endswith(".")


def measured(task: str, model: str, protocol: str, value: float, seed: int = 0, at: str = "") -> Row:
    row = Row(task=task, model=model, protocol=protocol, seed=seed, run=f"{task}-{model}-{protocol}-{seed}")
    row |= Row(metric="accuracy", unit="fraction", split="test", value=value, status="ok", n=1000)
    return row | Row(at=at) if at else row


def test_scores_are_medians_of_finite_seeds_and_floors_the_better_guess() -> None:
    rows = [measured("t", "m", "scratch", v, s) for s, v in enumerate((0.5, 0.9, 0.6, float("nan")))]
    rows += [measured("t", "m", "scratch", 0.1, at="root=MAX")]
    rows += [measured("t", "chance", "none", 0.1), measured("t", "label_prior", "none", 0.2)]
    cell = scores(rows)[Key("t", "m", "scratch")]
    assert cell.values == pytest.approx((50, 90, 60))
    assert str(cell) == "60.0 % (50.0 to 90.0 over 3 seeds)"
    assert Table.of(rows).floor("t") == 20.0
