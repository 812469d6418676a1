"""Curves along an axis: where runs lie on it, and which panels are drawn."""

from __future__ import annotations

from dataclasses import replace

import fixtures_rows as fixtures

from levelfield.report import axis_curves, training_curves
from levelfield.report.against_printed import PrintedSources
from levelfield.report.cells import arms_of, gather
from levelfield.spec import Published, Row


def test_curve_takes_its_place_from_row_or_model():
    _, results = fixtures.locality()
    beside = PrintedSources([Published("miralles2025", "1")], fixtures.references(results))
    lines = axis_curves.lines_along(results, "listops", "kernel", "accuracy", beside)
    (conv,) = lines.along
    assert [x for x, _ in conv.points] == [5, 7, 11, 21, 31, 61] and all(len(v) == 2 for _, v in conv.points)
    assert {x: y for x, y, _ in conv.printed}[5.0] == 45.24 and len(conv.printed) == 6
    assert {model for model, _ in lines.level} == {"attention", "s4"}
    known = {run: spec for run, spec in results.specs.items() if arms_of(results)[run].model != "attention"}
    fewer = axis_curves.lines_along(replace(results, specs=known), "listops", "kernel", "accuracy")
    assert {model for model, _ in fewer.level} == {"s4"}, "of settings that are not known, nothing is said"
    # A probe's rows say the same in words; they replace what the description says, and do not count twice.
    arms = arms_of(results)
    said = [Row(**{**r, "at": f"kernel={arms[r['run']].variant[7:] or 'all'}"}) for r in results.rows if "run" in r]
    again = axis_curves.lines_along(replace(results, rows=[*results.rows, *said]), "listops", "kernel", "accuracy")
    assert again.along[0].points == conv.points and again.level == lines.level


def test_a_single_point_is_drawn_beside_a_task_on_which_the_axis_is_varied() -> None:
    """As in the demo, whose local task has one kernel beside attention and whose other task has two."""
    _, results = fixtures.locality()
    others = {run for run, arm in arms_of(results).items() if arm.task == "image" and arm.variant[7:] not in ("", "5")}
    beside = replace(results, rows=[row for row in results.rows if row.get("run") not in others])
    alone = replace(beside, rows=[row for row in beside.rows if row.get("task") == "image"])
    drawn, nothing = (axis_curves.curve(r, gather(r, "accuracy"), "kernel", "accuracy") for r in (beside, alone))
    assert (drawn.alt if drawn else "") == "Test accuracy against kernel on listops, image."
    assert (nothing.alt if nothing else "") == ""


def test_lines_of_one_model_are_told_apart_by_their_protocols_at_their_ends() -> None:
    _, results = fixtures.locality()
    again = {run: {**spec, "protocol": {**spec["protocol"], "name": "spt"}} for run, spec in results.specs.items()}
    copies = [
        Row(**{**row, "run": f"{row['run']}-spt", "protocol": "spt"})
        for row in results.rows
        if row.get("run") and row.get("model", "").startswith("conv")
    ]
    both = replace(
        results,
        rows=[*results.rows, *copies],
        specs={**results.specs, **{f"{run}-spt": spec for run, spec in again.items()}},
        ledgers={**results.ledgers, **{f"{run}-spt": ledger for run, ledger in results.ledgers.items()}},
    )
    one, two = (axis_curves.curve(r, gather(r, "accuracy"), "kernel", "accuracy") for r in (results, both))
    assert one and two
    assert ">conv<" in one.svg and "conv, " not in one.svg
    (before,) = {arm.protocol for arm in arms_of(results).values() if arm.model.startswith("conv")}
    assert f">conv, {before}<" in two.svg and ">conv, spt<" in two.svg and ">attention<" in two.svg


def test_the_depth_of_a_model_is_no_depth_of_a_needle() -> None:
    """Where rows of one task name their depth, a task without such rows has none, though its models have layers."""
    _, results = fixtures.locality()
    (first, *_) = [row for row in results.rows if row.get("task") == "listops" and "run" in row]
    deep = [Row(**{**first, "at": f"depth={depth}"}) for depth in range(3)]
    found = replace(results, rows=[*results.rows, *deep])
    drawn = axis_curves.curve(found, gather(found, "accuracy"), "depth", "accuracy")
    assert drawn is not None and drawn.alt == "Test accuracy against depth on listops."


def test_tenths_of_a_text_are_as_far_apart_as_they_are_and_lengths_are_doublings() -> None:
    from matplotlib.figure import Figure

    for xs, scale in (
        (range(10), "linear"),
        ((1, 2, 3, 4, 5, 6, 7, 8), "linear"),
        ((0, 1, 2, 4, 8), "symlog"),
        ((16, 32, 64, 128), "log"),
        ((8, 128), "log"),
        ((32, 64, 96), "linear"),
    ):
        axes = Figure().subplots()
        axis_curves._scale(axes, [float(x) for x in xs])
        assert axes.get_xscale() == scale


def test_ranges_of_lengths_are_written_as_one_would() -> None:
    names = ("0000-0499", "1000-1999", "4000-", "MAX", "-3", "well-known", "0-")
    assert [*map(training_curves._spelt, names)] == [
        "0–499", "1000–1999", "4000 or more", "MAX", "-3", "well-known", "0 or more"
    ]  # fmt: skip


def test_a_slice_of_few_examples_says_how_many() -> None:
    """A bar of six examples is as long as one of thousands."""
    _, results = fixtures.extrapolation()
    mine = [
        Row(**{**r, "n": 6 if r["at"] == "root=MED" else 30}) for r in results.rows if r.get("at", "")[:5] == "root="
    ]
    drawn = training_curves.slices(replace(results, rows=mine), gather(results), "root")
    assert drawn is not None and drawn.svg.count(">6 examples<") == 1 and drawn.svg.count(" examples<") == 1
