"""Every study at every effort: its runs are valid and told apart; at `smoke` all of them run, here and now."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path

import pytest

from levelfield import loading, published, store
from levelfield.recipes import miralles2025
from levelfield.report.arms import Arm, differences
from levelfield.run import check, execute
from levelfield.spec import EFFORTS, Effort, Row, Run, Study, describe
from levelfield.studies import amos2025_table2, demo, miralles2025_table1
from levelfield.verdicts import Key, floors, scores


def shipped() -> dict[str, Study]:
    modules = {name: import_module(f"levelfield.studies.{name}") for name in loading.listing("studies")}
    return {name: study for name, m in modules.items() if isinstance(study := vars(m).get("study"), Study)}


ALL = shipped()
STUDIES = {name: study for name, study in ALL.items() if study.survey is None}
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


@pytest.mark.parametrize("name", ALL)
def test_a_study_is_named_like_its_file_and_says_where_it_differs(name: str) -> None:
    study = ALL[name]
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
    """But for average, and but for PathX below `paper`."""
    printed = {row.get("task", "") for p in PAPERS[name].published for row in published.rows(p.paper, p.table)}
    wanted = {task for task in printed if task and task != "average" and (effort == "paper" or "pathx" not in task)}
    assert {run.task.name for run in PAPERS[name].runs(effort)} == wanted


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
        if effort in ("smoke", "minutes", "hours"):
            own |= {"validate_every", "warmup"}  # they are shares of the budget
        last = {f"protocol.phases.last.recipe.{name}" for name in own}
        extra = {"protocol.phases.last.start", "protocol.phases.last-1", "protocol.phases"}
        assert fields_that_differ([scratch, pretrained]) <= last | extra


def test_the_page_on_studies_says_what_is_so() -> None:
    page = (Path(__file__).parent.parent / "docs" / "studies.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, object] = {}
    exec(snippet, names)
    setting = miralles2025.conv("image")
    assert names["setting"] is setting
    assert f"# {(setting.shape.width, setting.hidden, setting.recipe.lr)}" in page
    for name, study in ALL.items():
        assert f"`{name}`" in page or not study.published
    for effort in EFFORTS:
        counts = [len(study.runs(effort)) for study in (miralles2025_table1.study, amos2025_table2.study)]
        (line,) = re.findall(rf"^\| `{effort}` .*$", page, re.MULTILINE)
        assert re.findall(r"(\d+) runs", line) == [str(count) for count in counts]


@pytest.mark.parametrize("name", STUDIES)
def test_smoke_runs_to_its_verdict(name: str, tmp_path: Path) -> None:
    study = STUDIES[name]
    rows: list[Row] = []
    for run in study.runs("smoke"):
        where = tmp_path / "runs" / run.id
        execute(run, where, tmp_path / "data", "cpu", study.probes(run))
        assert json.loads((where / "ledger.json").read_text())["parameters"] > 0
        found = [row for file in sorted(where.glob("*rows.jsonl")) for row in store.read_rows(file)]
        assert any(row.get("split") == "test" and not row.get("at") for row in found)
        rows += found + [row for file in sorted(where.glob("probe-*.jsonl")) for row in store.read_rows(file)]
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
    assert cell.values == pytest.approx((50, 60, 90))
    assert str(cell) == "60.0 % (50.0 to 90.0, n=3)"
    assert floors(rows) == {"t": 20.0}


def convolutions(task: str, narrow: float, wide: float, free: float) -> list[Row]:
    rows = [measured(task, "conv5", "enriched", narrow, s, at="kernel=5") for s in (0, 1)]
    rows += [measured(task, "conv61", "enriched", wide, s, at="kernel=61") for s in (0, 1)]
    rows += [measured(task, "gmlp", "enriched", free, s, at="kernel=all") for s in (0, 1)]
    return [*rows, measured(task, "chance", "none", 0.1)]


def test_verdict_on_locality_says_yes_no_or_nothing_by_task() -> None:
    rows = (
        convolutions("near", 0.3, 0.58, 0.6) + convolutions("far", 0.3, 0.3, 0.9) + convolutions("dull", 0.1, 0.3, 0.11)
    )
    text = miralles2025_table1.verdict(rows)
    assert text.startswith("Yes on near; no on far; nothing can be said on dull.")
    assert "96 % of the gain" in text
    assert "25 % of the gain" in text
    assert miralles2025_table1.verdict([]) == "Nothing can be said: no run has finished."


def test_verdict_on_locality_does_not_choose_a_kernel_by_its_test_score() -> None:
    assert miralles2025_table1.verdict(convolutions("t", 0.6, 0.2, 0.6)).startswith("No on t.")


def four(task: str, before: float, after: float, other: float, other_after: float, seeds: int = 2) -> list[Row]:
    cells = {("transformer_rotary", "scratch"): before, ("transformer_rotary", "spt_masked"): after}
    cells |= {("s4", "scratch"): other, ("s4", "spt_masked"): other_after}
    return [measured(task, m, p, v + 0.001 * s, s) for (m, p), v in cells.items() for s in range(seeds)]


def test_verdict_on_self_pretraining_wants_more_than_the_spread_of_seeds() -> None:
    assert amos2025_table2.verdict(four("t", 0.4, 0.6, 0.6, 0.61)).startswith("Yes.")
    assert amos2025_table2.verdict(four("t", 0.4, 0.4, 0.6, 0.6)).startswith("No.")
    assert amos2025_table2.verdict(four("t", 0.4, 0.6, 0.6, 0.61, seeds=1)).startswith("Nothing can be said")
    both = four("t", 0.4, 0.6, 0.6, 0.61) + four("u", 0.5, 0.4, 0.6, 0.6)
    text = amos2025_table2.verdict(both)
    assert text.startswith("Partly.")
    assert "on 1 of 2 tasks (t)" in text
    assert "s4 is ahead by 20.0 points from scratch and by 1.0 after self-pretraining" in text


def test_verdict_on_self_pretraining_is_silent_where_nothing_was_learnt() -> None:
    rows = [*four("t", 0.10, 0.11, 0.10, 0.10), measured("t", "chance", "none", 0.1)]
    assert amos2025_table2.verdict(rows) == "t: no model has learnt more than guessing, so nothing can be said."


def test_verdict_on_self_pretraining_needs_all_four_cells() -> None:
    rows = [r for r in four("t", 0.4, 0.6, 0.6, 0.6) if r.get("model") == "s4"]
    text = "Nothing can be said: no task has all four of its cells with two seeds each."
    assert amos2025_table2.verdict(rows) == text


def demo_rows(before: tuple[float, float], after: tuple[float, float]) -> list[Row]:
    """Two models, two seeds a hair apart."""
    cells = {("attention", "scratch"): before[0], ("s4", "scratch"): before[1]}
    cells |= {("attention", "spt_masked_matched"): after[0], ("s4", "spt_masked_matched"): after[1]}
    return [measured("t", m, p, v + 0.001 * s, s) for (m, p), v in cells.items() for s in range(2)]


def test_verdict_of_the_demo() -> None:
    assert demo.verdict(demo_rows((0.4, 0.6), (0.6, 0.62))).startswith(
        "Yes: self-pretraining narrows the gap on 1 of 1"
    )
    wider = demo.verdict(demo_rows((0.4, 0.5), (0.3, 0.9)))
    assert wider.startswith("No:")
    assert "widens the gap between architectures: 10.0 points from scratch, 60.0 after it" in wider
    assert "raises every seed of s4 and lowers every seed of attention" in wider
    lost = [r for r in demo_rows((0.4, 0.5), (0.3, 0.9)) if (r.get("model"), r.get("protocol")) != ("s4", "scratch")]
    assert demo.verdict(lost).startswith("Nothing can be said yet")
    guessing = [*demo_rows((0.1, 0.1), (0.1, 0.11)), measured("t", "chance", "none", 0.1)]
    assert "no model is clearly above guessing" in demo.verdict(guessing)
