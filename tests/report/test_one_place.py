"""Where two probes ask one run at one place, all of a report takes one row; and a sum on its page is the verdict's."""

from __future__ import annotations

import math

from levelfield.report.axis_curves import lines_along
from levelfield.report.cells import tables_of
from levelfield.report.row_index import Names, RowIndex
from levelfield.report.verdicts import Key, Table
from levelfield.runs.results import Results
from levelfield.spec import Row

ARM = Key("listops", "s4", "scratch")


def row(seed: int, value: float, at: str = "", n: int = 1_000) -> Row:
    made = Row(run=f"listops-s4-scratch-{seed}-0", task="listops", model="s4", protocol="scratch", seed=seed)
    made |= Row(source="levelfield", metric="accuracy", unit="fraction", split="test", status="ok", n=n, value=value)
    return made | Row(at=at) if at else made


def results(rows: list[Row]) -> tuple[Results, RowIndex]:
    found = Results(rows, {each["run"]: {"parameters": 1} for each in rows if "run" in each})
    return found, RowIndex.of(tables_of(found), found)


def test_of_two_rows_of_a_place_the_verdict_the_curve_and_the_list_take_that_of_more_examples() -> None:
    few, many = ([row(seed, value, "length=128", n) for seed in range(3)] for value, n in ((0.7, 500), (0.6, 900)))
    for first, second in ((few, many), (many, few)):
        found, index = results([*(row(seed, 0.9) for seed in range(3)), *first, *second])
        arm = Table.of(index.rows, axis="length").cells[Key("listops", "s4", "scratch", "128")]
        placed = [place for one in index.lists for place in one.elsewhere.values()]
        shown = [each.get("value") for place in placed for each in place.rows.values()]
        (line,) = lines_along(found, "listops", "length", "accuracy").along
        assert arm.values == tuple(index.scores(arm.anchor)) == (60.0,) * 3 and shown == [0.6] * 3
        assert line.points == ((128.0, (60.0,) * 3),)


def test_an_arm_with_seeds_that_count_as_guessing_leads_to_no_sum_of_those_that_have_a_score() -> None:
    guess = Row(task="listops", protocol="none", model="chance", metric="accuracy", split="test", value=0.2)
    sound = [row(seed, 0.8) for seed in range(3)]
    lost = [*sound[:2], sound[2] | Row(value=math.nan, status="diverged")]
    for rows, values in ((sound, (80.0, 80.0, 80.0)), (lost, (80.0, 80.0, 20.0))):
        _, index = results([guess, *rows])
        arm = Table.of(index.rows).cells[ARM]
        assert arm.values == values and (tuple(index.scores(arm.anchor)) == values or arm.anchor == "")
        assert bool(arm.anchor) == (rows is sound)


def test_names_of_lists_are_short_and_differ_whatever_they_are_made_of() -> None:
    names = Names()
    made = [names.new("rows", chr(0x4E00 + number)) for number in range(2_000)]
    assert len({*made}) == 2_000 and max(map(len, made)) <= len("rows-x-2000")
    assert [Names().new("rows-2"), *map(names.new, ["a", "a-2", "a", "a"])] == ["rows-2", "a", "a-2", "a-3", "a-4"]
