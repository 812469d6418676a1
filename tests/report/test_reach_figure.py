"""How far each architecture reaches: the table and the panels of docs/scripts/reach_figure.py, from made-up rows."""

from __future__ import annotations

import importlib
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from repository import SCRIPTS

from levelfield.report import certified_ranges, style
from levelfield.spec import Row


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("reach_figure")


def rows(model: str, trained: int, *values: float, field: int | None = None) -> list[Row]:
    """A row for each seed at the range of training, and one at twice and at four times it, where all are guesses."""
    made = []
    for seed, value in enumerate(values):
        for factor in (1, 2, 4):
            at, score = f"asked={factor * trained},trained={trained}", value if factor == 1 else 0.5
            about = Row(run=f"{model}-{trained}-{seed}", model=model, split="test", metric="accuracy", at=at)
            made.append(about | Row(value=score))
    return made + ([Row(model=model, metric="receptive_field", value=float(field))] if field else [])


ROWS = [
    *rows("s4", 8, 1.0, 1.0, 0.97),
    *rows("s4", 16, 1.0, 0.6, 0.5),
    *rows("conv9", 8, 1.0, 0.99, 0.98, field=9),
    *rows("conv9", 16, 0.5, 0.5, 0.5),
]


def test_the_table_counts_seeds_and_marks_what_is_proved(drawn: ModuleType) -> None:
    ledgers = {f"s4-8-{seed}": {"steps": steps} for seed, steps in enumerate((900, 1_100, 1_500))}
    results: Any = SimpleNamespace(rows=ROWS, ledgers=ledgers)
    lines = list(drawn.table(results))
    assert "| S4, diagonal | all | 100.0 (3), 1,100 | 60.0 (1) | 8 | 50.0, 50.0 |" in lines
    assert "| convolution, 9 | 9 | 99.0 (3), 0 | *50.0 (0)* | 8 | 50.0, 50.0 |" in lines
    alone: Any = SimpleNamespace(rows=rows("s4", 8, 0.5, 0.5, 1.0), ledgers={})
    assert "| S4, diagonal | all | 50.0 (1) | none | – |" in list(drawn.table(alone))


def test_longer_ranges_have_a_table_of_what_has_been_run(drawn: ModuleType) -> None:
    made = [*rows("s4", 64, 1.0, 1.0, 0.5), *rows("lru", 64, 1.0, 1.0), *rows("conv9", 64, 0.5, 0.5, 0.5, field=9)]
    ledgers = {f"{model}-64-{seed}": {"steps": 100 + seed} for model in ("s4", "conv9") for seed in range(3)}
    planned = [SimpleNamespace(id=f"s4-64-{seed}", seed=seed) for seed in range(3)]
    found: Any = SimpleNamespace(
        results=SimpleNamespace(rows=made, ledgers=ledgers), effort="overnight", hours=1.25,
        study=SimpleNamespace(name="reach"), planned=planned,
    )  # fmt: skip
    lines = list(drawn.longer(found))
    assert "of the 3 of 3 runs of `reach` at" in lines[0] and "(1.2 core-hours)" in lines[1]
    assert lines[2] == "Some models have not been run with all of their 3 seeds at 64."
    assert "| S4, diagonal | all | 100.0 (2), 101 | 64 | 50.0, 50.0 |" in lines
    assert "| convolution, 9 | 9 | *50.0 (0)* | none | – |" in lines
    assert lines[-1].startswith("![") and f"figures/{drawn.LONGER}" in lines[-1]
    assert drawn.longer_figures(found.results).keys() == {drawn.LONGER}


def test_a_wall_begins_where_the_convolution_sees_no_more_and_dots_are_seeds(
    drawn: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures: list[Any] = []
    monkeypatch.setattr(style, "render", lambda figure, name: (figures.append(figure), (name, b"png"))[1])
    assert set(drawn.figures(SimpleNamespace(rows=ROWS)).values()) == {b"png"}
    s4, conv, _ = figures[0].axes[:3]
    walls = {line.get_color(): list(line.get_xdata()) for line in conv.lines if line.get_linewidth() == 8}
    assert walls == {certified_ranges.PROVED: [9, 1.15 * 16]}
    assert not [line for line in s4.lines if line.get_linewidth() == 8]
    dots = [tuple(line.get_ydata()) for line in s4.lines if line.get_marker() == "o"]
    assert dots == [(100, 100, 97), (100, 60, 50)]
    asked = [tuple(line.get_xdata()) for line in figures[1].axes[0].lines if len(line.get_xdata()) == 3]
    assert asked == [(8, 16, 32), (16, 32, 64)]


def test_every_mark_leads_to_its_rows() -> None:
    led = [row | Row(anchor=f"rows-{row.get('model')}-{row.get('at')}") for row in ROWS]
    places = {str(row.get("anchor")) for row in led if "at" in row}
    own = {place for place in places if place.endswith(("asked=8,trained=8", "asked=16,trained=16"))}
    for drawn, expected in ((certified_ranges.trained(led), own), (certified_ranges.beyond(led), places)):
        assert drawn is not None and set(style.led(drawn.svg)) == expected
    assert certified_ranges.trained([]) is None


def test_where_models_have_more_variants_than_there_are_colours_they_share_theirs() -> None:
    labels = [f"{model} (range={apart})" for apart in (8, 16, 32) for model in ("s4", "conv", "lru", "gla", "s5")]
    shared = style.colours(labels)
    assert len(set(shared.values())) == 5 and shared["s4 (range=8)"] == shared["s4 (range=32)"] == style.COLOURS["s4"]
    few = style.colours(labels[:6])
    assert len(set(few.values())) == 6 and list(style.names(labels[:6]).values()) == labels[:6]
