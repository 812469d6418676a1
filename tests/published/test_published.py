"""The printed numbers are complete, unique and consistent with each other, wherever they can be recomputed."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from statistics import fmean
from typing import Any

import pytest

from levelfield import published
from levelfield.spec import UserError

Cell = dict[str, Any]

# Averages the papers print that are not the means of the numbers beside them: (paper, table, model, at) -> printed.
MISPRINTED = {
    ("amos2025", "2", "s4", ""): 86.75,  # 86.925 over the six tasks; only the row with masked SPT
    ("huang2024", "2", "mamba2_2.7b", "depth=average"): 42.63,
    ("huang2024", "2", "mamba2attn_2.7b", "depth=average"): 35.26,
    ("huang2024", "2", "transformerpp_2.7b", "depth=average"): 35.64,
    ("huang2024", "3", "mamba2_2.7b", "depth=average"): 21.03,
    ("huang2024", "3", "mamba2attn_2.7b", "depth=average"): 27.07,
}


def printed(paper: str | None = None, table: str | None = None) -> list[Cell]:
    return [dict(row) for row in published.rows(paper, table)]


def key(row: Cell) -> tuple[str, ...]:
    return tuple(str(row.get(k, "")) for k in ("source", "table", "model", "protocol", "task", "at", "metric"))


def test_every_printed_cell_is_there_once():
    rows = printed()
    assert Counter(r["status"] for r in rows) == {
        "reported": 937, "derived": 234, "chance": 10, "infeasible": 4, "unreported": 2,
    }  # fmt: skip
    assert len({key(r) for r in rows}) == len(rows) == 1187
    counts = Counter((r["source"], r["table"]) for r in rows)
    assert {t: n for (p, t), n in counts.items() if p == "amos2025"} == {"1": 70, "2": 64, "3": 24, "figure2": 4}
    assert {t: n for (p, t), n in counts.items() if p == "miralles2025"} == {"1": 60, "2": 30, "3": 30, "4": 24}
    huang = {t: n for (p, t), n in counts.items() if p == "huang2024"}
    assert huang == {"1": 48, "2": 64, "3": 64, "4": 81} | {str(t): 48 for t in range(6, 19)}


def test_units_and_absent_values():
    for row in printed():
        assert row["unit"] == ("fraction" if row["metric"] == "r2" else "percent"), row
        assert ("value" in row) == (row["status"] in ("reported", "derived")), row
        low, high = {"r2": (0.9, 1.0), "accuracy": (0.0, 100.0), "ratio_to_mega": (50.0, 101.0)}[row["metric"]]
        assert low <= row.get("value", low) <= high, row
        assert "" not in row.values(), "what does not apply is absent"


def test_every_key_resolves():
    for row in printed():
        assert row["source"] in published.papers()
        assert row["origin"] == "this_paper" or row["origin"] in published.papers(), row
        names = [a for a in published.aliases(row["source"], row["table"]) if a.column == "model"]
        assert any(a.printed == row["model"] for a in names), f"no alias line for {row['model']}"
    for paper in published.papers().values():
        assert paper.title in paper.citation and str(paper.year) in paper.citation
        assert paper.url.startswith("https://")


def parts_of(row: Cell, rows: list[Cell]) -> list[float]:
    """The values a derived row is the mean of."""
    same = [r for r in rows if (r["source"], r["model"]) == (row["source"], row["model"]) and "average" not in str(r)]
    if row["task"] == "average":
        inside = [r for r in same if (r["table"], r["protocol"]) == (row["table"], row["protocol"])]
        inside = [r for r in inside if r["task"] != "pathx256"]
        # A cross is chance, 50 for this two-class task; one row leaves it out instead.
        crosses = [] if row["model"] == "pythia_70m_random" else [50.0 for r in inside if r["status"] == "chance"]
        return crosses + [r["value"] for r in inside if "value" in r]
    if row["task"] == "ruler_average":
        lengths = [f"length={1024 * 2**i}" for i in range(5)] if row["at"] == "length=average" else [row["at"]]
        return [r["value"] for r in same if r.get("at") in lengths and int(r["table"]) >= 6]
    inside = [r for r in same if (r["table"], r["task"]) == (row["table"], row["task"])]
    return [r["value"] for r in inside if r["at"].startswith(row["at"].split("=")[0] + "=")]


def test_averages_are_the_means_they_claim_to_be():
    rows = printed()
    derived = [r for r in rows if r["status"] == "derived" and r["metric"] == "accuracy" and r["table"] != "figure2"]
    assert len(derived) == 200
    off = {}
    for row in derived:
        # Cut or rounded, possibly twice: a hundredth of a percent is the resolution of the tables.
        if abs(fmean(parts_of(row, rows)) - row["value"]) > 0.0101:
            off[row["source"], row["table"], row["model"], row.get("at", "")] = row["value"]
    assert off == MISPRINTED


def test_ratios_to_mega_are_the_ratios():
    rows = {key(r): r for r in printed("miralles2025")}
    ratios = [k for k in rows if k[-1] == "ratio_to_mega"]
    assert len(ratios) == 30
    for at in ratios:
        accuracy = rows[(*at[:-1], "accuracy")]["value"]
        mega = rows["miralles2025", "2", "mega", "scratch", at[4], "", "accuracy"]["value"]
        assert 100 * accuracy / mega == pytest.approx(rows[at]["value"], abs=0.0051)


def test_quoted_numbers_agree_between_the_papers():
    """miralles2025 quotes tay2021, gu2022, ma2023 and amos2024; amos2025 prints the same numbers."""
    amos = {(r["model"], r["protocol"], r["task"]): r.get("value") for r in printed("amos2025")}
    quoted = [r for r in printed("miralles2025") if r["origin"] not in ("this_paper", "smith2023")]
    quoted = [r for r in quoted if r["task"] != "average"]
    assert len(quoted) == 20
    for row in quoted:
        assert amos[row["model"], row["protocol"], row["task"]] == row["value"], row


def test_reading_one_table_and_an_unknown_one():
    table = published.rows("amos2025", "2")
    assert {r.get("table") for r in table} == {"2"} and len(table) == 64
    table[0]["value"] = -5.0
    assert printed("amos2025", "2")[0]["value"] == 47.90, "the caller's copy is the caller's"
    with pytest.raises(UserError, match="amos2025"):
        published.rows("amos2052", "2")


def test_importing_does_not_load_torch():
    code = "import levelfield.published, sys; levelfield.published.rows(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
