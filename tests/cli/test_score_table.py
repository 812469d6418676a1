"""The table of scores while a language model answers."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from levelfield.cli.score_table import ScoreTable, score_table


def test_a_table_that_stays_in_place_is_not_drawn_for_every_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the answers that are there already, of which there may be many thousands, take minutes to be shown."""
    drawn: list[int] = []
    draw = ScoreTable.table

    def table(self: ScoreTable) -> object:
        drawn.append(self.done)
        return draw(self)

    monkeypatch.setattr(ScoreTable, "table", table)
    console = Console(force_terminal=True, file=StringIO())
    with score_table(console, ("vt",), (1024,), total=2_000) as shown:
        for number in range(2_000):
            shown.add("vt", 1024, 100.0 * (number % 2), new=False)
    assert len(drawn) < 500
    assert drawn[-1] == 2_000 and shown.cell("vt", 1024) == "50.0"
