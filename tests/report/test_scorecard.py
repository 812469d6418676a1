"""One scale for tasks of different difficulty: what is drawn, beside medians taken by hand."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest
from fixtures_rows import gap, scores_of

from levelfield.report import scorecard, style
from levelfield.report.cells import gather

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


def test_one_task_needs_no_scorecard() -> None:
    results = gap()[1]
    rows = [row for row in results.rows if row.get("task") == "image"]
    specs = {run: spec for run, spec in results.specs.items() if run.startswith("image-")}
    alone = type(results)(rows, results.ledgers, results.curves, specs)
    assert scorecard.draw(gather(alone)) is None
