"""A run stands beside a printed cell only where it is that cell; any other says in which settings it is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from levelfield import published
from levelfield.engine import find
from levelfield.mixers.attention import Attention
from levelfield.mixers.s4 import S4
from levelfield.report.against_printed import (
    UNKNOWN,
    UNRECORDED,
    Counterpart,
    PrintedSources,
    counterparts_of,
    match,
    unlike_printed,
)
from levelfield.report.arms import Arm
from levelfield.report.cells import Cell, Score
from levelfield.report.settings import unlike
from levelfield.report.tables import brief
from levelfield.spec import Duration, Effort, Published, Row, Run, describe
from levelfield.tasks.listops import ListOps
from levelfield.tasks.text import Text

STUDIES = (
    "amos2025_table1",
    "amos2025_table2",
    "amos2025_table2_others",
    "amos2025_table3",
    "miralles2025_table1",
)
TABLES = [answer for name in STUDIES for answer in find.load_study(name).published]
PRINTED = PrintedSources(TABLES, find.references(TABLES))
COMPARED = ("miralles2025_table2", "miralles2025_table3", "miralles2025_table4")
"""Studies whose tables print some rows of the others again."""


def arm(run: Run) -> Arm:
    return Arm(run.task.name, run.model.label, run.protocol.name)


def paper(study: str, task: str, model: str, protocol: str = "scratch") -> Run:
    runs = find.load_study(study).runs("paper")
    return next(r for r in runs if (r.task.name, r.model.label, r.protocol.name) == (task, model, protocol))


def beside(run: Run, metric: str = "accuracy") -> list[Counterpart]:
    cell = Cell(arm(run), "percent", (Score(run.id, 0, 50.0, "ok"),), 10.0, ())
    return counterparts_of(cell, describe(run), metric, PRINTED)


def test_every_run_at_paper_is_one_printed_cell_and_no_other() -> None:
    """The 181 arms of the studies of trained models; each metric a paper prints of an arm is one row."""
    arms = {(name, replace(r, seed=0)) for name in STUDIES for r in find.load_study(name).runs("paper")}
    assert len(arms) == 181
    for name, run in arms:
        assert len(found := rows_of(run, find.load_study(name).published)) == 1, run.id
        assert unlike_printed(describe(run), found[0], PRINTED) == ()


@pytest.mark.parametrize("table", ["1", "2", "3"])
def test_every_measured_cell_of_amos2025_has_a_run(table: str) -> None:
    """Crosses, which are scores at chance, included."""
    found = {
        (row.get("model", ""), row.get("protocol"), row.get("task"), row.get("at"))
        for name in (name for name in STUDIES if Published("amos2025", table) in find.load_study(name).published)
        for run in find.load_study(name).runs("paper")
        for row in rows_of(run, [Published("amos2025", table)])
    }
    rows = [row for row in published.rows("amos2025", table) if row.get("status") in ("reported", "chance")]
    assert [row for row in rows if tuple(map(row.get, ("model", "protocol", "task", "at"))) not in found] == []


def test_an_average_is_of_the_arms_that_start_as_designed() -> None:
    """Figure 2 prints averages over four tasks; a start at random is a counterpart of none."""
    study = find.load_study("amos2025_figure2")
    for run in (run for run in study.runs("paper") if run.seed == 0):
        rows = [row | Row(task=run.task.name) for row in published.rows("amos2025", "figure2")]
        mine, described = arm(run), describe(run)
        found = [row for row in rows if match(mine, described, row) is not None]
        assert len(found) == (not run.model.label.endswith("_random")), run.id
        assert all(row.get("model") == run.model.label for row in found)


@pytest.mark.parametrize("name", COMPARED)
def test_every_arm_of_a_compared_table_is_one_printed_cell_and_all_cells_have_one(name: str) -> None:
    """But for learned and sinusoidal positions from scratch, which are not printed."""
    study = find.load_study(name)
    sources = PrintedSources(study.published, find.references(study.published))
    met = []
    for run in (run for run in study.runs("paper") if run.seed == 0):
        model, protocol = run.model.label, run.protocol.name
        unprinted = model in ("transformer_learned", "transformer_sinusoidal") and protocol == "scratch"
        found = rows_of(run, study.published)
        assert len(found) == (not unprinted), run.id
        assert all(unlike_printed(describe(run), row, sources) == () for row in found), run.id
        assert all((model, protocol) == (row.get("model"), row.get("protocol")) for row in found)
        met += found
    (table,) = study.published
    measured = [row for row in published.rows(table.paper, table.table) if row.get("status") == "reported"]
    assert sorted(map(str, met)) == sorted(map(str, measured))


def test_what_a_table_quotes_is_the_run_of_the_quoted_table() -> None:
    """At `paper`, so that it is trained once."""
    ours = {run.id for name in COMPARED for run in find.load_study(name).runs("paper")}
    shared = {name: {run.id for run in find.load_study(name).runs("paper")} & ours for name in STUDIES}
    counts = {name: len(ids) for name, ids in shared.items()}
    assert counts["amos2025_table1"] == counts["miralles2025_table1"] == 15, "three seeds on five tasks"
    assert counts["amos2025_table2"] == 30, "S4 from scratch, and the self-pretrained Transformer"
    assert counts["amos2025_table2_others"] == 30, "Mega, and the self-pretrained Transformer"


def rows_of(run: Run, answers: Sequence[Published]) -> list[Row]:
    """The printed rows that a run answers to, but for ratios."""
    rows = [row for a in answers for row in published.rows(a.paper, a.table)]
    mine, described = arm(run), describe(run)
    of_run = [row for row in rows if match(mine, described, row) is not None]
    return [row for row in of_run if row.get("metric") != "ratio_to_mega"]


def changed(run: Run, **fields: Any) -> Run:
    return replace(run, model=replace(run.model, **fields))


def mixer(run: Run, **fields: Any) -> Run:
    return changed(run, mixers=tuple(replace(m, **fields) for m in run.model.mixers))


def phase(run: Run, **fields: Any) -> Run:
    *first, last = run.protocol.phases
    return replace(run, protocol=replace(run.protocol, phases=(*first, replace(last, **fields))))


def budget(run: Run, duration: Duration) -> Run:
    return phase(run, recipe=replace(run.protocol.phases[-1].recipe, budget=duration))


ROTARY, SSM, BYTES = ("listops", "transformer_rotary"), ("listops", "s4"), ("text", "s4")
WRONG: dict[str, tuple[tuple[str, str], Callable[[Run], Run], str]] = {
    "a window": (ROTARY, lambda r: mixer(r, window=16), "window 16 instead of none"),
    "blocks": (ROTARY, lambda r: mixer(r, block=16), "block 16 instead of none"),
    "causal": (ROTARY, lambda r: changed(r, causal=True), "causal yes instead of no"),
    "one layer": (ROTARY, lambda r: changed(r, depth=1), "depth 1 instead of 6"),
    "a tenth of the data": (ROTARY, lambda r: phase(r, fraction=0.1), "fraction 0.1 instead of 1"),
    "another initialisation": (SSM, lambda r: mixer(r, init="random"), "init random instead of legs"),
    "two states": (SSM, lambda r: mixer(r, state=2), "state 2 instead of 64"),
    "causal S4": (SSM, lambda r: changed(r, causal=True), "causal yes instead of no"),
    "short expressions": (SSM, lambda r: replace(r, task=ListOps(minimum=10, length=60)), "length 60 instead of 2,000"),
    "short reviews": (BYTES, lambda r: replace(r, task=Text("characters", 256)), "length 256 instead of 4,096"),
    "few steps": (SSM, lambda r: budget(r, Duration(1600, "steps")), "budget 1,600 steps instead of 40 epochs"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_run_that_is_not_the_printed_one_says_so_and_has_no_difference(name: str) -> None:
    (task, model), change, words = WRONG[name]
    printed = paper("amos2025_table2", task, model)
    (right,), (wrong,) = beside(printed), beside(change(printed))
    assert right.unlike == () and right.difference == pytest.approx(50.0 - (right.value or 0.0))
    assert wrong.value == right.value and wrong.difference is None
    assert words in {text.removeprefix("task ") for text in wrong.unlike}
    assert words in brief(wrong.unlike), "it is among what the cell itself names"


def test_names_seeds_and_citations_are_no_difference() -> None:
    run = paper("amos2025_table2", *SSM)
    cited = phase(run, recipe=replace(run.protocol.phases[-1].recipe, source="mine", assumed=(), tuning_trials=9))
    assert unlike(describe(replace(cited, seed=7, model=replace(run.model, name="x"))), describe(run)) == ()


def test_settings_of_pretraining_are_told_from_those_of_fine_tuning() -> None:
    run = paper("amos2025_table2", *SSM, "spt_masked")
    first, last = run.protocol.phases
    other = replace(
        run, protocol=replace(run.protocol, phases=(replace(first, recipe=replace(first.recipe, lr=0.5)), last))
    )
    (said,) = unlike(describe(other), describe(run))
    assert said == f"pretraining lr 0.5 instead of {first.recipe.lr:g}"


@pytest.mark.parametrize("effort", ["minutes", "hours"])
def test_a_smaller_effort_stands_beside_nothing(effort: Effort) -> None:
    for name in STUDIES:
        for run in find.load_study(name).runs(effort):
            assert all(m.unlike and m.difference is None for m in beside(run)), run.id


def test_without_a_reference_or_a_record_nothing_stands_beside() -> None:
    run = paper("amos2025_table2", *ROTARY)
    (row,) = [r for r in published.rows("amos2025", "2") if match(arm(run), describe(run), r) is not None]
    assert unlike_printed(describe(run), row, PrintedSources([Published("amos2025", "2")])) == (UNKNOWN,)
    assert unlike_printed({}, row, PRINTED) == (UNRECORDED,)


def test_the_cell_names_a_few_settings_and_counts_the_rest() -> None:
    assert brief(tuple("abcdefg"), 5) == "a; b; c; d; e; 2 more below" and brief(("a", "b"), 5) == "a; b"


def test_models_of_other_layers_are_no_printed_model_at_all() -> None:
    run = paper("amos2025_table2", *ROTARY)
    hybrid = changed(run, mixers=(Attention(4, rotary="per_head"), S4()), depth=6)
    assert beside(hybrid) == []
