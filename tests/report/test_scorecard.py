"""One scale for tasks of different difficulty: what is drawn, beside medians taken by hand."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest
from fixtures_rows import gap, scores_of

from levelfield.report import scorecard, style
from levelfield.report.cells import gather
from levelfield.spec import Row

FLOORS = {"listops": 17.0, "image": 10.0}  # the label prior of one, chance of the other


def test_the_scale_begins_at_guessing_and_ends_at_a_perfect_score() -> None:
    assert [scorecard.gained(score, 10.0) for score in (10.0, 55.0, 100.0, 1.0)] == [0.0, 50.0, 100.0, -10.0]


def test_every_model_has_a_panel_with_its_medians(monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Any] = []
    monkeypatch.setattr(style, "render", lambda figure, name: (figures.append(figure), ("", b""))[1])
    results = gap()[1]
    drawn = scorecard.draw(gather(results))
    assert drawn is not None and "attention, s4, conv" in drawn.alt
    (figure,) = figures
    panels = {axes.get_title(loc="left"): axes for axes in figure.axes if axes.get_visible()}
    assert list(panels) == ["attention", "s4", "conv"]
    for model, axes in panels.items():
        dots = sorted(float(line.get_xdata()[0]) for line in axes.lines if line.get_marker() in ("o", "s"))
        wanted = [
            100 * (median(scores_of(results, task=task, model=model, protocol=protocol)) - floor) / (100 - floor)
            for task, floor in FLOORS.items()
            for protocol in ("scratch", "spt_masked")
        ]
        assert dots == pytest.approx(sorted(wanted))


def test_what_lies_left_of_the_axis_is_marked_at_its_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Any] = []
    monkeypatch.setattr(style, "render", lambda figure, name: (figures.append(figure), ("", b""))[1])
    results = gap()[1]
    rows = [
        Row(**{**row, "value": 0.01})  # type: ignore[typeddict-item]
        if (row.get("task"), row.get("model"), row.get("split")) == ("image", "conv", "test") and not row.get("at")
        else row
        for row in results.rows
    ]
    below = type(results)(rows, results.ledgers, results.curves, results.specs)
    scorecard.draw(gather(below))
    panels = {axes.get_title(loc="left"): axes for axes in figures[0].axes if axes.get_visible()}
    value = f"{100 * (1 - 10) / (100 - 10):.0f}".replace("-", "−")
    assert [text.get_text() for text in panels["conv"].texts] == [value] * 2, "one for each protocol"
    cut = [line for line in panels["conv"].lines if line.get_marker() == "<"]
    assert len(cut) == 2 and all(line.get_xdata()[0] == scorecard.LEFT for line in cut)
    (whisker,) = [line for line in panels["attention"].lines if line.get_marker() == scorecard.GOES_ON]
    assert whisker.get_xdata()[0] == scorecard.LEFT and not panels["attention"].texts  # one seed is at guessing
    assert not any(line.get_marker() in ("<", scorecard.GOES_ON) for line in panels["s4"].lines)
    told = figures[0].get_suptitle()
    assert "a score of −20, left of the axis" in told and "the whisker goes on" in told


def test_a_task_without_a_score_says_so_and_is_not_a_score_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Any] = []
    monkeypatch.setattr(style, "render", lambda figure, name: (figures.append(figure), ("", b""))[1])
    results = gap()[1]
    rows = [row for row in results.rows if (row.get("task"), row.get("model")) != ("image", "conv")]
    scorecard.draw(gather(type(results)(rows, results.ledgers, results.curves, results.specs)))
    said = {
        axes.get_title(loc="left"): [(text.get_text(), text.get_position()) for text in axes.texts]
        for axes in figures[0].axes
        if axes.get_visible()
    }
    assert said == {"attention": [], "s4": [], "conv": [("no score", (0, 1))]}


def test_one_task_needs_no_scorecard() -> None:
    results = gap()[1]
    rows = [row for row in results.rows if row.get("task") == "image"]
    specs = {run: spec for run, spec in results.specs.items() if run.startswith("image-")}
    alone = type(results)(rows, results.ledgers, results.curves, specs)
    assert scorecard.draw(gather(alone)) is None
