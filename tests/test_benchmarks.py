"""The benchmark of the mixers: what its table holds, and what its page makes of rows. Nothing is timed."""

from __future__ import annotations

import csv
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from levelfield.mixers import classes
from levelfield.ops import arithmetic

FOLDER = Path(__file__).parents[1] / "benchmarks"
if not FOLDER.exists():
    pytest.skip("the benchmarks come with the repository, not with the package", allow_module_level=True)
sys.path.append(str(FOLDER))

import measuring  # noqa: E402
import mixer_cases  # noqa: E402
import mixer_page  # noqa: E402
import startup  # noqa: E402


def row(group: str, side: str, length: int, cost: float | None, peak: float = 10, status: str = "ok") -> dict[str, Any]:
    """As it is read from the file."""
    numbers = {"us_per_token": "" if cost is None else str(cost), "peak_mib": "" if cost is None else str(peak)}
    return {
        "group": group,
        "side": side,
        "length": str(length),
        "status": status,
        "rounds": "1",
        "machine": "m",
        **numbers,
    }


def target(page: str, begin: str) -> str:
    (line,) = (line for line in page.splitlines() if line.startswith(f"- {begin}"))
    return line


def test_the_table_measures_every_mixer_once_and_all_its_rivals_against_ours() -> None:
    pairs = [(case.group, case.side) for case in mixer_cases.CASES]
    assert len(pairs) == len(set(pairs))
    assert {config.label for config in classes()} <= {group for group, side in pairs if side == "ours"}
    assert all((group, "ours") in pairs for group, side in pairs if side != "limit")
    assert all(case.lengths == (1024, 4096, 16384, 65536) for case in mixer_cases.CASES if case.side != "limit")


def test_the_plan_of_every_study_has_its_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    with startup.PAGE.open(newline="") as file:
        measured = {row["command"] for row in csv.DictReader(file)}
    wanted = {command.shown for command in startup.commands(tmp_path, "plan")}
    assert wanted - measured == set(), "run python benchmarks/startup.py --only plan"


def test_exceptions_and_targets_name_what_there_is() -> None:
    pairs = {(case.group, case.side) for case in mixer_cases.CASES}
    labels = {config.label for config in classes()}
    assert set(mixer_cases.REFERENCE) | mixer_cases.BIDIRECTIONAL | set(mixer_cases.PEERS) <= labels
    assert {(group, side) for t in mixer_page.TARGETS for group in t.groups for side in t.sides} <= pairs
    assert set(mixer_page.MAPS) <= {group for group, _ in pairs}
    assert {label for some in mixer_page.FAMILIES.values() for label in some} <= labels | {"convolution"}


@pytest.mark.parametrize("config", classes(), ids=lambda config: config.label)
def test_reference_settings_take_their_length(config: type) -> None:
    made = mixer_cases.configured(config.label, 65536)
    assert made.max_length is None or made.max_length >= 65536
    changed = mixer_cases.REFERENCE.get(config.label, ({}, ""))[0]
    for field in fields(made):
        if field.name not in {*changed, "bound"}:
            assert getattr(made, field.name) == field.default


def test_a_pass_goes_to_the_input_and_all_parameters() -> None:
    net = torch.nn.Linear(measuring.WIDTH, measuring.WIDTH)
    work, tokens = measuring.passes(lambda peers, length: lambda x: (net(x), "state"), lambda length: 2 * length)(
        Path(), 3
    )
    work()
    assert tokens == 6
    assert net.weight.grad is not None and net.weight.grad.shape == (256, 256)


def test_rows_are_merged_by_what_they_measured(tmp_path: Path) -> None:
    old = measuring.least(None, {"status": "ok", "us_per_token": 3.0, "peak_mib": 7.0})
    new = measuring.least(old, {"status": "ok", "us_per_token": 2.0, "peak_mib": 9.0})
    assert (new["us_per_token"], new["peak_mib"], new["rounds"]) == (2.0, 7.0, 2)
    rows = [row("b", "ours", 4096, 1.5), row("b", "ours", 1024, None, status="memory"), row("gone", "ours", 1024, 1.0)]
    file = tmp_path / "rows.csv"
    measuring.write(file, [*rows, row("a", "ours", 1024, 2.5)], ["a", "b"])
    assert [(r["group"], r["length"], r["status"]) for r in measuring.read(file)] == [
        ("a", "1024", "ok"),
        ("b", "1024", "memory"),
        ("b", "4096", "ok"),
    ]


@pytest.mark.parametrize(
    ("shorter", "status"),
    [
        ([], None),
        ([row("g", "p", 1024, 100), row("g", "p", 4096, 400)], None),  # 1,600 us at 16K: 26 s
        ([row("g", "p", 1024, 300), row("g", "p", 4096, 1200)], "time"),  # 4,800 us at 16K: 79 s
        ([row("g", "p", 4096, 4000)], "time"),  # 66 s even if the time per token grew no more
        ([row("g", "p", 4096, None, status="memory")], "memory"),
        ([row("g", "other", 4096, None, status="memory")], None),
    ],
)
def test_lengths_that_cannot_end_are_not_begun(shorter: list[dict[str, Any]], status: str | None) -> None:
    case = measuring.Case("g", "p", lambda peers, length: (lambda: None, length))
    assert measuring.foreseen(shorter, case, 16384, 60) == status


def rows_of_a_run() -> list[dict[str, Any]]:
    rows = [row("s4", "ours", n, 20, peak) for n, peak in ((1024, 50), (4096, 50), (16384, 100), (65536, 900))]
    rows += [row("s4", "s4 repository", 1024, 100), row("s4", "s4 repository", 4096, 500, 5000)]
    rows += [row("s4", "s4 repository", 16384, None, status="memory")]
    rows += [row("s4: diagonal", "ours", 4096, 32), row("s4: diagonal", "s4 repository", 4096, 240)]
    rows += [row(mixer_page.PRODUCTS, "limit", 1024, 8), row(mixer_page.TRAFFIC, "limit", 1024, 0.1)]
    return [*rows, row(mixer_page.TRANSFORMS, "limit", 4096, 4), row("lru", "ours", 1024, 10)]


def test_the_page_has_the_numbers_of_its_rows() -> None:
    page = mixer_page.page(rows_of_a_run())
    assert "| `s4` | 20.0 | 20.0 | 20.0 | 20.0 | 50, 50, 100, 900 | 5.0 | 25.0 |  |  |" in page
    assert "| `s4` | s4 repository | 100.0 (10) | 500.0 (5000) | does not fit |  |" in page
    assert "| `lru` | 10.0 |" in page
    assert "98 GFLOP/s" in page  # 6 * 256 * 512 operations in 8 us
    assert "20.5 GB/s" in page  # 2 KiB in 0.1 us


def test_targets_are_met_or_not_by_the_rows() -> None:
    rows = rows_of_a_run()
    page = mixer_page.page(rows)
    assert target(page, "S4: 20 times").endswith(": met (4K: 25.0; 16K: theirs does not fit).")
    assert target(page, "S4 runs at 16K").endswith(": met.")
    assert target(page, "S4D: 20 times").endswith(": **not met** (4K: 7.5).")
    assert target(page, "DLR").endswith(": not measured.")
    assert target(page, "never slower").endswith(", 3 comparisons: met.")
    assert target(page, "FFT").endswith(": **not met** (`s4` 4K: 1.7; `s4: diagonal` 4K: 2.7).")  # over 4 + 8
    assert "`s4` from 4K to 64K: 2.2 times that" in target(page, "memory linear")  # 18 times for 8 times the tokens
    slower = mixer_page.page([replace_cost(r, 600) if r["side"] == "ours" else r for r in rows])
    assert "**not met** (`s4` 1K, s4 repository: 0.17" in target(slower, "never slower")


@pytest.mark.parametrize("group", mixer_page.NEEDED)
def test_the_products_a_layer_needs_are_counted(group: str) -> None:
    case = next(c for c in mixer_cases.CASES if (c.group, c.side) == (group, "ours"))
    work, tokens = case.make(Path(), 1024)
    with FlopCounterMode(display=False, custom_mapping=arithmetic.RULES) as counter:
        work()
    counts = counter.get_flop_counts()["Global"].items()
    products = sum(n for op, n in counts if re.search(r"\.(b?add)?b?mm_?$", str(op)))
    assert products / tokens == mixer_page.NEEDED[group](1024)


def test_what_falls_short_is_said_beside_what_products_allow() -> None:
    limit = row(mixer_page.PRODUCTS, "limit", 1024, 10)  # 78.6 GFLOP/s, at which 3.81 MFLOP take 48.5 us
    page = mixer_page.page([limit, row("mamba2", "ours", 1024, 100), row("mamba2", "transformers", 1024, 485)])
    assert target(page, "Mamba-2: 60").endswith(": **not met** (1K: 4.8 of at most 10.0).")


def replace_cost(row: dict[str, Any], cost: float) -> dict[str, Any]:
    return row | {"us_per_token": str(cost)}


def test_the_figure_is_drawn_from_rows(tmp_path: Path) -> None:
    mixer_page.draw(rows_of_a_run(), tmp_path / "figures" / "speed.png")
    assert (tmp_path / "figures" / "speed.png").read_bytes().startswith(b"\x89PNG")
