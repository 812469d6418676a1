"""The parts of a report: statistics, curves, what differs between arms, labels, and SQL over rows."""

from __future__ import annotations

import html
import json
import math
import re
import statistics
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import fixtures_rows as fixtures
import pytest

from levelfield import report
from levelfield.objectives import Causal, Classify, ClassifySteps, Masked, Regress
from levelfield.report import axis_curves, plots, style, training_curves
from levelfield.report.against_printed import pairs
from levelfield.report.arms import ABSENT, Arm, compact, differences, group
from levelfield.report.cells import SCORED_BY, arms_of, gather
from levelfield.report.query import Measured, collect, query, read
from levelfield.report.stats import summarise
from levelfield.report.tables import DASH, duration, figures, number, si, signed
from levelfield.runs.results import Results
from levelfield.spec import ReportView, Row, UserError, describe


def test_summary_of_two_seeds_is_honestly_wide():
    found = summarise([60.0, 61.0])
    assert found is not None and found.interval is not None
    low, high = found.interval
    assert (found.median, found.low, found.high) == (60.5, 60.0, 61.0)
    assert high - low == pytest.approx(2 * 12.706 * 0.5, rel=1e-4), "12.7 times the standard error, to each side"


def test_what_rounds_to_zero_has_no_minus():
    assert [number(value) for value in (-0.04, 0.0, -0.06)] == ["0.0", "0.0", "−0.1"]
    assert [signed(value) for value in (-0.04, 0.0, -0.06, 0.06)] == ["+0.0", "+0.0", "−0.1", "+0.1"]


def test_nothing_finite_has_no_summary():
    assert summarise([]) is None and summarise([math.nan]) is None
    alone = summarise([math.nan, 5.0])
    assert alone is not None and (alone.n, alone.interval) == (1, None)


def test_a_failed_run_stands_under_the_metric_of_its_own_task():
    """A regression and a classification, each with a run that measured and one that failed before it did."""
    part = lambda kind: {"protocol": {"name": "scratch", "phases": [{"objective": {"kind": kind}}]}}  # noqa: E731
    both = {"kind": "Sum", "of": [{"kind": "Classify"}, {"kind": "Masked", "loss_kind": "ce"}]}
    specs = {f"pulse-s4-scratch-{i}-aa": {**part("Regress"), "seed": i} for i in (0, 1)}
    specs |= {f"text-s4-scratch-{i}-bb": {**part("Classify"), "seed": i} for i in (0, 1)}
    specs["image-s4-scratch-0-cc"] = {"protocol": {"name": "scratch", "phases": [{"objective": both}]}, "seed": 0}
    shared = Row(model="s4", protocol="scratch", seed=0, split="test", status="ok", n=100)
    rows = [
        shared | Row(run="pulse-s4-scratch-0-aa", task="pulse", metric="r2", unit="", value=0.5),
        shared | Row(run="text-s4-scratch-0-bb", task="text", metric="accuracy", unit="fraction", value=0.7),
    ]
    results = Results(rows, {row.get("run", ""): {"steps": 1} for row in rows}, specs=specs)
    found = {
        metric: {(c.arm.task, len(c.scores)) for c in gather(results, metric).cells} for metric in ("r2", "accuracy")
    }
    assert found == {"r2": {("pulse", 2)}, "accuracy": {("text", 2), ("image", 1)}}
    failed = replace(results, rows=[])  # nothing was measured at all
    assert {c.arm.task for c in gather(failed, "r2").cells} == {"pulse"}


def test_objectives_are_known_to_the_report_by_what_they_are_scored_by():
    for objective in (Classify(), ClassifySteps(), Regress(), Masked(), Masked(loss_kind="l1"), Causal()):
        about = describe(objective)
        assert objective.metric in SCORED_BY[about["kind"] + about.get("loss_kind", "")]


def test_arms_of_one_name_are_told_apart_by_no_more_fields_than_it_takes() -> None:
    """Batch and range vary as one, so that the range alone is said; the seed of the filler tells two apart besides."""
    specs = {
        f"reach-s4-scratch-0-{batch}{draw}": {
            "seed": 0, "protocol": {"name": "scratch"}, "task": {"range": apart, "draw": draw}, "batch": batch,
        }
        for apart, batch in ((16, 32), (64, 8))
        for draw in ((0,) if apart == 16 else (0, 1))
    }  # fmt: skip
    found = [arm.variant for arm in arms_of(Results([], specs=specs)).values()]
    assert found == ["range=16, draw=0", "range=64, draw=0", "range=64, draw=1"]
    alone = dict(list(specs.items())[:2])
    assert [arm.variant for arm in arms_of(Results([], specs=alone)).values()] == ["range=16", "range=64"]


def test_names_with_hyphens_are_read_from_the_ids_of_planned_runs() -> None:
    """Two runs whose ids begin alike: the model's own name tells where that of the task ends."""
    spec = {"seed": 0, "protocol": {"name": "few-labels"}}
    specs = {
        "own_a-x-conv-few-labels-0-aa": {**spec, "model": {"name": "x-conv"}},
        "own_a-x-conv-few-labels-0-bb": {**spec, "model": {"name": "conv"}},
        "own_a-x-s4-few-labels-0-cc": {**spec, "model": {"name": None}},
    }
    rows = [Row(task="own_a", protocol="none"), Row(task="own_a-x", protocol="none")]
    found = [(arm.task, arm.model, arm.protocol) for arm in arms_of(Results(rows, specs=specs)).values()]
    names = [("own_a", "x-conv"), ("own_a-x", "conv"), ("own_a-x", "s4")]
    assert found == [(*each, "few-labels") for each in names]


def test_a_probe_may_name_what_it_draws_without_renaming_its_run() -> None:
    probed = Row(run="a", task="t", model="conv", protocol="scratch", at="kernel=5", value=0.5)
    own = Row(run="a", task="t", model="conv5", protocol="scratch", value=0.5)
    for rows in ([own, probed], [probed, own]):
        assert arms_of(Results(rows)) == {"a": Arm("t", "conv5", "scratch")}
    assert arms_of(Results([probed])) == {"a": Arm("t", "conv", "scratch")}


def test_models_named_by_their_place_are_one_line():
    _, results = fixtures.locality()
    arms = arms_of(results)
    named = [
        Row(**{**r, "model": f"conv{arms[r['run']].variant[7:]}"}) if r.get("model") == "conv" else r
        for r in results.rows
    ]
    lines = axis_curves.lines_along(replace(results, rows=named), "listops", "kernel", "accuracy")
    assert [line.model for line in lines.along] == ["conv"] and len(lines.along[0].points) == 6
    assert {model for model, _ in lines.level} == {"attention", "s4"}


def test_a_slice_called_depth_is_not_the_depth_of_the_model():
    _, results = fixtures.extrapolation()
    run = next(r for r in results.rows if r.get("model") == "s4")
    deep = [Row(**{**run, "at": f"depth={d}", "value": d / 10}) for d in (1, 2, 3)]
    (line,) = axis_curves.lines_along(
        replace(results, rows=[*results.rows, *deep]), "listops", "depth", "accuracy"
    ).along
    assert line.points == ((1.0, (10.0,)), (2.0, (20.0,)), (3.0, (30.0,)))


def test_curve_along_length_has_the_rows_values():
    _, results = fixtures.extrapolation()
    lines = axis_curves.lines_along(results, "listops", "length", "accuracy")
    assert [line.model for line in lines.along] == ["attention", "s4", "conv"] and not lines.level
    s4 = dict(lines.along[1].points)
    rows = [dict(r) for r in results.rows if r.get("model") == "s4" and r.get("at") == "length=800"]
    assert s4[800.0] == tuple(100 * r["value"] for r in rows)


def test_a_rule_is_drawn_at_the_length_alone_at_which_it_was_measured() -> None:
    """And the training length of a task without such a setting is that of its whole test split."""
    _, results = fixtures.extrapolation()
    tall = [row | {"value": 0.97, "model": "a_rule"} for row in results.rows if row.get("protocol") == "none"][:1]
    specs = {run: dict(spec, task={}) for run, spec in results.specs.items()}
    known = replace(results, specs=specs, rows=[*results.rows, *tall])
    figure = axis_curves.curve(known, gather(known), "length", "accuracy")
    assert figure is not None and "training length" in figure.svg and "a rule" in figure.svg
    assert "stroke-dasharray: 0.9,1.485" not in figure.svg, "no level line"


def test_marks_are_open_from_scratch_and_filled_otherwise_in_whatever_order() -> None:
    for order in (("scratch", "spt_masked"), ("spt_masked", "scratch")):
        marks = style.marks(order)
        assert [marks[name].letter for name in ("scratch", "spt_masked")] == ["○", "●"]
    letters = [mark.letter for mark in style.marks(("scratch_0.1", "scratch_1", "enriched", "spt_causal")).values()]
    assert letters == ["○", "□", "●", "■"]


def test_a_phase_that_was_validated_once_has_a_dot() -> None:
    """And steps are whole numbers."""
    _, results = fixtures.gap()
    log: list[dict[str, object]] = [{"phase": 0, "objective": "label", "step": step, "loss": 1.0} for step in (1, 2)]
    log[1]["score"] = 0.5
    drawn = training_curves.training(
        replace(results, curves=dict.fromkeys(results.specs, log)), gather(results), "listops"
    )
    assert drawn is not None and ">1.5<" not in drawn.svg
    none = [{key: value for key, value in record.items() if key != "score"} for record in log]
    other = training_curves.training(
        replace(results, curves=dict.fromkeys(results.specs, none)), gather(results), "listops"
    )
    assert other is not None and drawn.svg.count("<use ") > other.svg.count("<use ") + len(results.specs) // 4


def test_shares_within_a_distance_can_be_drawn():
    """Rows "layer=0,lag<=4": lag is the axis, 0 is on it, and a layer is a line of its own, not one more seed."""
    _, results = fixtures.extrapolation()
    run = next(r for r in results.rows if r.get("model") == "s4")
    shares = [
        Row(**{**run, "metric": "energy_share", "at": f"layer={layer},lag<={lag}", "value": lag / (10 + layer)})
        for layer in (0, 1)
        for lag in (0, 1, 2, 4, 8)
    ]
    more = replace(results, rows=[*results.rows, *shares])
    first, second = axis_curves.lines_along(more, "listops", "lag", "energy_share").along
    assert (first.model, first.points[-1]) == ("s4, layer 0", (8.0, (80.0,)))
    assert (second.model, second.points[-1]) == ("s4, layer 1", (8.0, (pytest.approx(800 / 11),)))
    assert axis_curves.curve(more, gather(more), "lag", "energy_share") is not None


def test_any_field_of_the_runs_is_an_axis():
    """Scarce data: the same arms on shares of the training split, which only their last phase tells apart."""
    study, results = fixtures.extrapolation()
    runs = [r for r in study.runs("minutes") if r.model.label == "s4"]
    shares = (0.1, 0.5, 1.0)
    rows, specs = [], {}
    for run in runs:
        for share in shares:
            spec = json.loads(json.dumps(results.specs[run.id]))
            spec["protocol"]["phases"][-1]["fraction"] = share
            name = f"{run.id}{share}"
            specs[name] = spec
            rows += [Row(**{**r, "run": name, "value": share / 2}) for r in results.rows if r.get("run") == run.id]
    scarce = replace(results, rows=rows, specs=specs, ledgers={name: {"steps": 1} for name in specs})
    (line,) = axis_curves.lines_along(scarce, "listops", "fraction", "accuracy").along
    assert line.points == tuple((share, (50 * share,) * len(runs)) for share in shares)
    drawing = axis_curves.curve(scarce, gather(scarce), "fraction", "accuracy")
    assert drawing is not None and "share of the training data" in drawing.svg
    named = [
        Row(**{**row, "protocol": f"scratch_{specs[row['run']]['protocol']['phases'][-1]['fraction']:g}"})
        for row in rows
    ]
    (joined,) = axis_curves.lines_along(replace(scarce, rows=named), "listops", "fraction", "accuracy").along
    assert joined == replace(line, protocol="scratch"), "arms that are named by their share are one line"


def test_a_view_that_cannot_be_drawn_says_so_in_its_place(tmp_path: Path):
    study, results = fixtures.gap()
    views = (
        ReportView("curve", "Along nothing", axis="nothing"),
        ReportView("slices", "By what?"),
        ReportView("heat", "Hot", axis="depth"),
    )
    report.build(replace(study, views=views), "minutes", results, tmp_path)
    text = (tmp_path / "report.html").read_text()
    for view in views:
        assert re.search(f"<b>{re.escape(html.escape(view.title))}</b><span class=.note.>Not drawn: ", text)
    assert "axis &#x27;nothing&#x27;" in text and not (tmp_path / "figures" / "curve-nothing.png").exists()


def test_slices_are_grouped_by_value():
    _, results = fixtures.extrapolation()
    drawn = training_curves.slices(results, gather(results), "root")
    assert drawn is not None and all(f">{name}<" in drawn.svg for name in ("MIN", "MAX", "MED", "SM"))
    assert training_curves.slices(results, gather(results), "nothing") is None
    assert training_curves.slice_axes(results, "accuracy") == {"root": False}


def test_rules_are_drawn_beside_the_models_in_slices():
    _, results = fixtures.extrapolation()
    run = next(r for r in results.rows if r.get("at", "").startswith("root="))
    rules = [Row(**{**run, "model": "greedy_root", "protocol": "none", "at": f"root={r}"}) for r in ("MIN", "MAX")]
    drawn = training_curves.slices(replace(results, rows=[*results.rows, *rules]), gather(results), "root")
    plain = training_curves.slices(results, gather(results), "root")
    assert drawn is not None and plain is not None
    assert "greedy root rule" in drawn.svg and "greedy root rule" not in plain.svg


def test_probes_that_share_a_name_with_a_slice_are_kept_apart():
    """ "length=0020-0065" is a slice and "length=400" a longer test set; "distance<=4" is no slice of distance."""
    _, results = fixtures.extrapolation()
    run = next(r for r in results.rows if r.get("model") == "s4")
    places = ("length=0020-0065", "length=0066-0109", "distance<=4", "distance=8", "kernel=all", "root=MAX,label=9")
    more = replace(results, rows=[*results.rows, *(Row(**{**run, "at": at}) for at in places)])
    assert training_curves.slice_axes(more, "accuracy") == {"root": False, "length": False, "distance": True}
    lengths = axis_curves.lines_along(more, "listops", "length", "accuracy")
    assert lengths == axis_curves.lines_along(results, "listops", "length", "accuracy")


def test_places_are_read():
    assert pairs("length=1024;depth=50") == {"length": "1024", "depth": "50"}
    assert pairs("layer=0,lag<=4") == {"layer": "0", "lag": "4"}
    assert pairs("") == {}


def test_differences_name_every_field_that_differs_and_no_other():
    _, results = fixtures.gap()
    arms = arms_of(results)
    specs = {arm: results.specs[run] for run, arm in arms.items() if arm.task == "listops"}
    found = {d.field: d.values for d in differences(specs)}
    assert set(found) == {"model.mixers", "protocol.phases.last-1", "protocol.phases.last.start"}
    starts = found["protocol.phases.last.start"]
    assert group(starts["fresh"], specs) == "scratch" and group(starts["previous"], specs) == "spt_masked"
    assert group(found["model.mixers"]["S4(state=64, form=dplr)"], specs) == "s4"
    assert ABSENT in found["protocol.phases.last-1"]


def test_one_changed_number_is_one_difference():
    _, results = fixtures.gap()
    spec = results.specs[next(iter(results.specs))]
    other = json.loads(json.dumps(spec))
    other["protocol"]["phases"][0]["recipe"]["lr"] = 0.01
    other["seed"] = 5
    first, second = Arm("t", "a", "p"), Arm("t", "b", "p")
    (only,) = differences({first: spec, second: other})
    assert only.field == "protocol.phases.last.recipe.lr"
    assert only.values == {"0.001": (first,), "0.01": (second,)}
    assert differences({first: spec}) == [] and differences({first: spec, second: {**spec, "seed": 9}}) == []


def test_a_duration_reads_as_a_number_with_its_unit():
    assert compact({"kind": "Duration", "value": 4000, "unit": "steps"}) == "4000 steps"


def test_every_model_has_its_own_colour_and_families_keep_theirs():
    names = ["attention", "s4", "attention (rotary)", "conv", "mine", "yours", "attention-2"]
    chosen = style.colours(names)
    assert len(set(chosen.values())) == len(names)
    assert chosen["attention"] == style.COLOURS["attention"] and chosen["conv"] == style.COLOURS["conv"]


def test_a_figure_of_many_seeds_does_not_grow_with_them() -> None:
    cells = gather(fixtures.gap()[1])
    cell = cells.cells[0]

    def drawn(seeds: int) -> str:
        scores = tuple(replace(cell.scores[0], seed=seed, value=40 + 20 * seed / seeds) for seed in range(seeds))
        figure = plots.compare(replace(cells, cells=(replace(cell, scores=scores),)), {})
        assert figure is not None
        return figure.svg

    few, many = drawn(500), drawn(20_000)
    assert few.count("<use") > 500 and "<image" not in few
    assert many.count("<use") < 100 and "<image" in many and len(many) < len(few)


def test_labels_are_moved_apart():
    placed = style.spread_apart([1.0, 1.1, 5.0, 1.05], 1.0)
    ranked = sorted(placed)
    assert all(b - a >= 1 - 1e-6 for a, b in pairwise(ranked))
    assert placed[0] < placed[3] < placed[1] < placed[2]
    raised = style.spread_apart([1.0, 1.1, 5.0, 1.05], 1.0, lowest=0.5)
    assert raised == pytest.approx([0.5, 2.5, 5.0, 1.5]), "none below the axis"


@pytest.mark.parametrize(
    ("value", "text"),
    [(804_874, "805 k"), (3.1e13, "31.0 T"), (999_999, "1.00 M"), (0, "0"), (12, "12"), (None, DASH), (math.nan, DASH)],
)
def test_large_numbers(value: float | None, text: str):
    assert si(value) == text


def test_durations_and_signs():
    assert [duration(s) for s in (44.1, 600, 9000)] == ["44.1 s", "10 min", "2.5 h"]
    day = 24 * 3600
    assert [duration(s) for s in (3 * day, 10 * day, 1000 * day, 1e11)] == [
        "72 h",
        "10 days",
        "2.74 years",
        "3,169 years",
    ]
    below = [duration(s) for s in (59.6, 119.4, 119.6, 7140, 7175, 3.9 * day, 4 * day - 1, 730.4 * day)]
    assert below == ["59.6 s", "119 s", "2 min", "119 min", "2 h", "93.6 h", "4 days", "730 days"]
    assert [duration(s) for s in (120, 7200, 4 * day, 730.5 * day)] == ["2 min", "2 h", "4 days", "2 years"]
    edges = [119.5, 119.5 * 60, 95.95 * 3600, 730.5 * day]
    assert [duration(s) for s in edges] == ["2 min", "2 h", "4 days", "2 years"]
    assert [duration(s - 1e-6) for s in edges] == ["119 s", "119 min", "95.9 h", "730 days"]
    assert [figures(x) for x in (0.00411, 12.5, 999.4, 999.6, 2.76e7)] == [
        "0.00411",
        "12.5",
        "999",
        "1,000",
        "27,600,000",
    ]
    assert number(-3.25) == "−3.2" and number(None) == DASH


@pytest.fixture
def rows_file(tmp_path: Path) -> Path:
    _, results = fixtures.gap()
    path = tmp_path / "run" / "rows.jsonl"
    path.parent.mkdir()
    path.write_text("".join(json.dumps(dict(r)) + "\n" for r in results.rows))
    return path


def test_query_agrees_with_python(rows_file: Path):
    _, results = fixtures.gap()
    sql = "SELECT protocol, median(value) FROM rows WHERE task='listops' AND model='s4' AND split='test' GROUP BY ALL"
    columns, rows = query(sql, collect(rows_file.parents[1]))
    assert columns[0] == "protocol" and len(rows) == 2
    for protocol, median in rows:
        values = fixtures.scores_of(results, task="listops", model="s4", protocol=protocol)
        assert 100 * median == pytest.approx(statistics.median(values))
    counted = query("SELECT count(*), count(value) FROM rows", read([rows_file, rows_file]))[1]
    assert counted == [(len(results.rows), sum("value" in r for r in results.rows))], "a file given twice counts once"


def test_query_reaches_the_printed_numbers():
    sql = "SELECT value FROM published WHERE source='amos2025' AND \"table\"='2' AND model='mega' AND task='listops'"
    assert query(sql, Measured()) == (["value"], [(63.14,)])


@pytest.mark.parametrize("sql", ["selekt 1", "SELECT nope FROM rows", "SELECT * FROM '/etc/hostname'", "", "  "])
def test_bad_sql_is_one_sentence(sql: str, rows_file: Path):
    with pytest.raises(UserError) as caught:
        query(sql, read([rows_file]))
    assert "\n" not in str(caught.value)


def test_a_query_cannot_write_files(rows_file: Path, tmp_path: Path):
    with pytest.raises(UserError):
        query(f"COPY rows TO '{tmp_path / 'stolen.csv'}'", read([rows_file]))
    assert not (tmp_path / "stolen.csv").exists()
