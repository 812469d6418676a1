"""Effective length by RULER's rule and by ours, and the list of answers that are not right."""

from __future__ import annotations

import re

import numpy as np
import pytest

from levelfield import published
from levelfield.report import effective_length
from levelfield.report.effective_length import BAR, average, holding, lines
from levelfield.report.failures import chosen, section
from levelfield.ruler import RULER
from levelfield.spec import Row
from levelfield.spec.failure import Failure


def rows(by_length: dict[int, float], n: int = 500, tasks: tuple[str, ...] = effective_length.TASKS) -> list[Row]:
    return [
        Row(task=task, at=f"length={length}", metric="accuracy", value=value, n=n)
        for length, value in by_length.items()
        for task in tasks
    ]


def test_the_tasks_are_rulers() -> None:
    assert [task.name for task in RULER] == list(effective_length.TASKS)


@pytest.mark.parametrize(
    ("scores", "theirs", "ours"),
    [
        ({4096: 95.0, 8192: 90.0, 16384: 80.0}, "8192", "8192"),
        ({4096: 95.0, 8192: 85.7, 16384: 60.0}, "8192", "4096"),  # too near the bar to be sure
        ({4096: 95.0, 8192: 70.0, 16384: 90.0}, "16384, the longest asked", "4096"),  # a gap in between
        ({4096: 50.0, 8192: 40.0}, "none, below 4096", "none, below 4096"),
        ({4096: 100.0}, "4096, the longest asked", "4096, the longest asked"),
    ],
)
def test_both_rules(scores: dict[int, float], theirs: str, ours: str) -> None:
    first, second = lines(rows(scores))
    assert first.endswith(f": {theirs}.")
    assert second.endswith(f": {ours}.")


def test_rulers_rule_needs_all_thirteen_and_other_tasks_do_not_count() -> None:
    theirs, ours = lines(rows({4096: 99.0}, tasks=effective_length.TASKS[:11]))
    assert theirs.endswith("not known. RULER's rule needs all 13 tasks; missing: qa_1, qa_2.")
    assert "11 of its 13 tasks" in ours
    assert lines(rows({4096: 99.0}, tasks=("walks_bfs",))) == []
    mixed = [*rows({4096: 99.0}), *rows({4096: 0.0}, tasks=("walks_bfs",))]
    assert lines(mixed) == lines(rows({4096: 99.0}))


LEFT = "Lengths at which not all tasks of the average were asked are left out of it: "


def test_a_length_at_which_some_tasks_were_asked_neither_counts_nor_takes_tasks_away() -> None:
    whole = rows({4096: 95.4, 8192: 44.6})
    more = [*whole, *rows({131072: 100.0}, tasks=("niah_single_1",)), *rows({2048: 0.0}, tasks=("vt", "cwe"))]
    assert lines(more) == [*lines(whole), f"{LEFT}2048 (2 of 13), 131072 (1 of 13)."]
    held = [*rows({4096: 95.0}), *rows({8192: 95.0}, tasks=effective_length.TASKS[:12])]
    longest = "4096, the longest at which all tasks were asked"
    theirs, ours, left = lines(held)
    assert theirs.endswith(f": {longest}.") and ours.endswith(f": {longest}.")
    assert left == f"{LEFT}8192 (12 of 13)." and effective_length.both(held) == (longest, longest)


def test_without_all_thirteen_the_table_with_the_most_scores_counts() -> None:
    """One length with few tasks does not take the others' tasks, nor one with many tasks the other lengths."""
    twelve, three = effective_length.TASKS[:12], effective_length.TASKS[:3]
    few = [*rows({4096: 95.0, 8192: 90.0}, tasks=twelve), *rows({131072: 100.0}, tasks=three[:1])]
    theirs, ours, left = lines(few)
    assert theirs.endswith("missing: qa_2.")
    assert "12 of its 13 tasks" in ours and ours.endswith(": 8192, the longest at which all tasks were asked.")
    assert left == f"{LEFT}131072 (1 of 12)."
    many = [*rows({1024: 95.0, 2048: 95.0, 4096: 60.0}, tasks=three), *rows({4096: 60.0}, tasks=("vt",))]
    _, ours = lines(many)
    assert "3 of its 13 tasks" in ours and ours.endswith(": 2048.")
    apart = [*rows({1024: 95.0}, tasks=("vt", *three)), *rows({2048: 95.0}, tasks=("cwe", *three))]
    apart += rows({4096: 95.0}, tasks=("fwe", *three))
    assert lines(apart) == lines(rows({1024: 95.0, 2048: 95.0, 4096: 95.0}, tasks=three))


def test_printed_scores_give_the_effective_length_of_their_printed_averages() -> None:
    """huang2024 prints averages in table 1, and in tables 6 to 18 the tasks they are of."""
    found = dict[str, list[Row]]()
    averages = dict[str, dict[int, float]]()
    for table in range(6, 19):
        for row in (row for row in published.rows("huang2024", str(table)) if "average" not in row.get("at", "")):
            found.setdefault(row.get("model", ""), []).append(row | Row(metric="accuracy", n=500))
    for row in published.rows("huang2024", "1"):
        if row.get("at", "") != "length=average":
            length = int(row.get("at", "").removeprefix("length="))
            averages.setdefault(row.get("model", ""), {})[length] = row.get("value", 0.0)
    assert len(averages) > 3
    for model, printed in averages.items():
        passed = max((n for n, value in printed.items() if value >= BAR), default=None)
        (theirs, _) = lines(found[model])
        named = f"none, below {min(printed)}" if passed is None else str(passed)
        assert theirs.partition("): ")[2].removesuffix(".").removesuffix(", the longest asked") == named
        one = [*found[model], *rows({2**20: 100.0}, tasks=("vt",))]
        assert lines(one)[0].replace("the longest at which all tasks were asked", "the longest asked") == theirs


def test_few_samples_are_not_enough_even_where_all_are_right() -> None:
    assert average({"vt": (1.0, 5)})[1] < 0.6
    assert holding({4096: {"vt": (1.0, 5)}}) is None
    assert holding({4096: {"vt": (1.0, 500)}}) == 4096


def test_a_model_below_the_bar_is_rarely_taken_for_one_above() -> None:
    """Simulates 2,000 evaluations half a point under the bar: the lower end passes in at most 2.5 % of them."""
    rng = np.random.default_rng(0)
    shares = np.linspace(0.7, 1.0, 13)
    shares += BAR / 100 - 0.005 - shares.mean()
    drawn = rng.binomial(100, np.clip(shares, 0, 1), size=(2000, 13)) / 100
    passed = sum(
        average({str(i): (share, 100) for i, share in enumerate(one)})[1] >= BAR / 100 for one in drawn.tolist()
    )
    assert passed / 2000 <= 0.025


def test_failures_are_listed_escaped_and_shortened() -> None:
    one = Failure("vt", 4096, 3, "0.25", "ABC", "<b>" + "x" * 500, 50.0)
    page = section([one])
    assert "&lt;b&gt;" in page and "<b>" not in page
    assert "x" * 241 not in page
    assert re.search(r"<summary>Answers that are not right: 1</summary>", page)
    assert "(nothing)" in section([one._replace(answered=" \n")])
    assert section([]) == ""


def test_the_list_leads_to_the_file_with_all_answers() -> None:
    page = section([Failure("vt", 4096, 3, "0.25, 0.50", "ABC", "no", 50.0)], "../runs/a b&c/predictions.jsonl")
    assert '<a href="../runs/a%20b%26c/predictions.jsonl">predictions.jsonl</a>' in page and ">0.25, 0.50</td>" in page
    assert "<a href" not in section([Failure("vt", 4096, 3, "", "ABC", "no", 50.0)])


def test_the_end_of_reasoning_is_shown_where_there_was_any() -> None:
    one = Failure("vt", 4096, 3, "", "ABC", "no", 50.0, reasoning="first " + "well, " * 100 + "so <it> is\nABD.")
    page = section([one, one._replace(reasoning="")])
    assert ">end of reasoning</th>" in page and "well, so &lt;it&gt; is ABD.</td>" in page and "first" not in page
    assert ">... " in page and "reasoning" not in section([one._replace(reasoning="")])


def test_a_failure_has_its_question_where_that_was_stored() -> None:
    one, older = Failure("vt", 4096, 3, "", "ABC", "no", 0.0, "Who <is> it?"), Failure("vt", 1, 0, "", "", "", 0.0)
    assert ">question</th>" in (page := section([older, one])) and "Who &lt;is&gt; it?" in page
    assert "question" not in section([older])


def test_where_there_are_too_many_every_cell_has_its_share() -> None:
    found = [Failure("a", 1, i, "", "", "", 0.0) for i in range(100)] + [
        Failure("b", 1, i, "", "", "", 0.0) for i in range(3)
    ]
    some = chosen(found, most=20)
    assert [sum(f.task == task for f in some) for task in "ab"] == [17, 3]
    assert chosen(found[:5], most=20) == found[:5]
    assert "not right: 103<" in section(found)
