"""Scores of many tasks with one arm each: what is drawn of them, beside what went in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fixtures_rows import gap

from levelfield.report import style, task_lines
from levelfield.report.cells import Cells, gather

SCORES = {f"task{place}": (10.0 + place, 50.0 + 5 * (place % 4) + place) for place in range(task_lines.FEWEST)}
"""What guessing and the one arm have on each task, in percent."""


def made(scores: dict[str, tuple[float, float]]) -> Cells:
    """Cells of these tasks, whose rule of place has one point less than the arm and another rule less than guessing."""
    cells = gather(gap()[1])
    first = cells.cells[0]
    arms = [
        replace(
            first,
            arm=replace(first.arm, task=task),
            floor=floor,
            scores=tuple(replace(first.scores[0], seed=seed, value=score) for seed in range(3)),
        )
        for task, (floor, score) in scores.items()
    ]
    rules = {task: {"chance": floor, "low": floor - 5, "high": score - 1} for task, (floor, score) in scores.items()}
    return replace(cells, cells=tuple(arms), baselines=rules)


def test_a_line_has_its_task_its_score_what_guessing_leaves_and_the_best_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Any] = []
    monkeypatch.setattr(style, "render", lambda figure, name: (figures.append(figure), ("", b""))[1])
    drawn = task_lines.draw(made(SCORES))
    assert drawn is not None
    (axes,) = figures[0].axes
    named = [label.get_text() for label in axes.get_yticklabels()]
    shares = {task: (score - floor) / (100 - floor) for task, (floor, score) in SCORES.items()}
    assert named == sorted(shares, key=lambda task: -shares[task])
    dots = {line.get_ydata()[0]: line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"}
    assert [dots[place] for place in range(len(named))] == [SCORES[task][1] for task in named]
    bars = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches]
    assert bars == [(SCORES[task][0], 100.0) for task in named]
    ticks = [line.get_xdata()[0] for line in axes.lines if line.get_color() == style.FAINT]
    assert ticks == [SCORES[task][1] - 1 for task in named], "a rule below guessing has none"
    assert [text.get_text() for text in axes.texts].count("high") == len(named)


def test_few_tasks_and_several_arms_have_a_panel_each() -> None:
    assert task_lines.draw(made(dict(list(SCORES.items())[1:]))) is None
    cells = made(SCORES)
    twice = replace(cells.cells[0], arm=replace(cells.cells[0].arm, model="another"))
    assert task_lines.draw(replace(cells, cells=(*cells.cells, twice))) is None
