"""The study of certified ranges: what its arms share, its verdict on made-up rows, its probe and its figure."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from repository import ROOT

from levelfield.data import prepared
from levelfield.engine.find import Source, choose, find_tasks
from levelfield.mixers.conv import Conv
from levelfield.model import Network
from levelfield.objectives import default_objective, heads
from levelfield.presets import certified, reach_verdict
from levelfield.presets.options import Options
from levelfield.probes.ranges import Ranges
from levelfield.report import certified_ranges, committed, style
from levelfield.spec import Effort, Row, Run, UserError, digest
from levelfield.studies.reach import study
from levelfield.tasks.reach import Reach

MINE = """
from torch import nn

class Mine(nn.Module):
    {bound}

    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        return {body}
"""


def test_all_arms_at_a_range_share_task_and_protocol_and_nearly_the_parameters() -> None:
    runs = study.runs("smoke")
    for apart in (5, 10):
        mine = [run for run in runs if run.task.certified_range == apart]
        assert len({digest((run.task, run.protocol, run.model.depth, run.model.block.norm)) for run in mine}) == 1
        assert len({run.model.label for run in mine}) == len(certified.SHIPPED) + 3 >= 13
        assert all(run.model.causal for run in mine)
    for model in certified.models(certified.SHIPPED, "minutes", True):
        if model.label.startswith("conv"):
            assert model.label == f"conv{model.receptive_field}"


def test_places_of_marks_tell_their_order_and_the_pages_say_so() -> None:
    """A sum over single steps, of the step where there is one mark and minus the step where there is the other, is all
    it takes. But a window of the range that holds a mark does not hold the start, from which steps are counted."""
    task = certified.USUAL.task(10, "smoke")
    test = task.build(None)["test"]
    places = [(test.x.reshape(-1, task.max_length) == task.symbols + mark).argmax(1) for mark in (0, 1)]
    assert ((places[0] > places[1]) == test.y).all() and np.min(places) >= task.range
    for page, start in (("reach.md", "# Certified range"), ("findings.md", "## 12. How far")):
        section = (ROOT / "docs" / page).read_text().partition(start)[2].partition("\n## ")[0]
        assert "need not relate one mark to the other" in " ".join(section.split())


@pytest.mark.parametrize("effort", get_args(Effort))
def test_the_ranges_of_an_effort_lie_on_both_sides_of_what_convolutions_see(effort: Effort) -> None:
    ranges = sorted(certified.SCALES[effort].batches)
    assert (ranges[0] < 33 and ranges[-1] > 9) or effort in ("hours", "paper")
    assert ranges[-1] == {"smoke": 10, "minutes": 256, "overnight": 4_096, "hours": 16_384, "paper": 65_536}[effort]
    for apart in ranges:
        task = certified.USUAL.task(apart, effort)
        assert task.range == apart and task.ranges[0] == 4 and task.ranges[-1] == apart


def test_training_ends_at_a_perfect_validation_or_after_half_of_the_steps_without_a_better_one() -> None:
    for effort in ("minutes", "overnight", "hours", "paper"):
        recipes = [run.protocol.phases[0].recipe for run in study.runs(effort)]
        assert {(one.budget, one.lr, one.enough, one.schedule) for one in recipes} == {
            (recipes[0].budget, recipes[0].lr, 1.0, "constant")
        }
        for one in recipes:
            assert one.patience and one.patience * one.validate_every.value == one.budget.value / 2
    assert len({run.protocol.phases[0].recipe for run in study.runs("minutes")}) == 1, "batches do not shrink"


def row(model: str, apart: int, value: float, seed: int = 0, asked: int | None = None) -> Row:
    at = f"asked={asked or apart},trained={apart}"
    where = Row(run=f"{model}-{apart}-{seed}", model=model, seed=seed, at=at, split="test")
    return where | Row(metric="accuracy", value=value)


def test_a_reach_is_the_longest_range_that_most_seeds_pass() -> None:
    seeds = {16: (1, 0.99, 0.95), 64: (0.96, 0.5, 0.97), 256: (1, 0.5, 0.9499)}
    rows = [row("s4", apart, value, seed) for apart, values in seeds.items() for seed, value in enumerate(values)]
    rows += [row("s4", 64, 1.0, seed, asked=256) for seed in range(3)]  # beyond the range of training: not a reach
    assert reach_verdict.reach(reach_verdict.by_range(rows)["s4"]) == 64
    assert "in most of 3 seeds: s4 64." in reach_verdict.verdict(rows)
    assert reach_verdict.reach({16: (0.94,)}) is None
    assert "s4 256 or more" in reach_verdict.verdict([*rows, row("s4", 256, 1.0, 3), row("s4", 256, 1.0, 4)])
    assert reach_verdict.verdict([]).startswith("Nothing can be said yet")
    field = Row(model="conv9", metric="receptive_field", value=9.0)
    assert "seed: conv9 none that was tried (it sees 9 steps)." in reach_verdict.verdict([field, row("conv9", 16, 0.5)])


def test_the_page_says_how_often_most_of_three_seeds_pass_and_how_few_scores_are_near_the_bound() -> None:
    page = " ".join((ROOT / "docs" / "reach.md").read_text().split())

    def at_least(count: int, of: int, chance: float) -> float:
        return sum(math.comb(of, n) * chance**n * (1 - chance) ** (of - n) for n in range(count, of + 1))

    assert [round(100 * at_least(2, 3, chance)) for chance in (1 / 3, 1 / 2, 4 / 5)] == [26, 50, 90]
    assert "in 26 % of such studies, with half of them in 50 %, and with four fifths in 90 %" in page
    assert round(1 / at_least(950, 1_000, 0.94)) == 10 and round(1 / at_least(238, 250, 0.94)) == 4
    assert "95 % of 1,000 in one test of ten, and of 250, as beyond range 1,024, in one of four" in page
    folders = ("reach-minutes", "reach-overnight")
    scored = [reach_verdict.by_range(committed.read_rows(ROOT / "results" / each)) for each in folders]
    scores = [value for each in scored for mine in each.values() for values in mine.values() for value in values]
    assert len(scores) == 414 and sum(0.55 < value < 0.99 for value in scores) == 1
    assert "Of the 414 runs in `results`, all but one score at most 55 % or at least 99 %." in page


def test_a_reach_beyond_a_range_that_fails_or_of_too_few_seeds_says_so() -> None:
    seeds = {8: (1, 1, 1), 16: (0.5, 0.5, 1), 32: (0.9, 1, 1), 64: (0.5, 1, 0.5)}
    rows = [row("s4", apart, value, seed) for apart, values in seeds.items() for seed, value in enumerate(values)]
    said = reach_verdict.verdict(rows)
    assert said == "Reach, the longest range with 95 % in most of 3 seeds: s4 32, but not 16."
    said = reach_verdict.verdict([*rows, row("s4", 128, 1.0)])
    assert said.endswith("in most of 1 to 3 seeds that are there: s4 128 or more, but not 16 or 64.")


def test_a_seed_that_diverged_counts_as_one_that_has_not_learnt() -> None:
    field = Row(metric="receptive_field", model="conv9", split="none", value=9.0)
    lost = [row("s4", 16, math.nan, seed) | Row(status="diverged") for seed in (3, 4, 5)]
    rows = [
        field,
        *(row(model, 16, score, seed) for seed in range(3) for model, score in (("s4", 1.0), ("conv9", 0.5))),
    ]
    assert [f.decided for f in reach_verdict.findings(rows)] == [1, 1, -1]
    rows += [*lost, row("conv9", 16, math.nan, 3) | Row(status="diverged")]
    assert [f.decided for f in reach_verdict.findings(rows)] == [1, -1, 1], "three of six are not most"
    said = reach_verdict.verdict(rows)
    assert "sees no more than the range, 3 in all, has exactly 50 %" in said and "s4 none that was tried" in said
    assert said.endswith(" 4 of these runs diverged and count as guessing.")


def test_the_verdict_says_whether_the_certificate_is_seen() -> None:
    field = Row(model="conv17", metric="receptive_field", value=17.0)
    rows = [field, row("conv17", 16, 0.97), row("conv17", 64, 0.5), row("conv17", 256, 0.5)]
    said = reach_verdict.verdict(rows)
    assert said.startswith(
        "As proved, every run of a model that sees no more than the range, 2 in all, has exactly 50 %."
    )
    assert "conv17 16 (it sees 17 steps)" in said
    assert "within 0.10 points" in reach_verdict.verdict([*rows, row("conv17", 256, 0.501, 1)])
    assert "Something is wrong: conv17, which sees 17 steps, has 60.00 % at range 64" in reach_verdict.verdict(
        [*rows, row("conv17", 64, 0.6, 1)]
    )
    assert "and of a mixer of your own the `receptive_field` that it declares." in reach_verdict.verdict(
        [field, row("conv17", 64, 0.6)]
    )


def test_the_three_parts_of_the_claim_are_found_apart() -> None:
    field = Row(model="conv17", metric="receptive_field", value=17.0)
    scores = {("conv17", 16): 0.97, ("conv17", 64): 0.5, ("s4", 16): 1.0, ("s4", 64): 0.99, ("lru", 16): 1.0}
    scores["lru", 64] = 0.6
    rows = [field, *(row(*place, value, seed) for place, value in scores.items() for seed in range(3))]
    assert [f.decided for f in reach_verdict.findings(rows)] == [1, 1, 1]
    learnt = [row("lru", 64, 1.0, seed) for seed in range(3, 7)]
    assert [f.decided for f in reach_verdict.findings([*rows, *learnt])] == [1, 1, -1]
    assert [f.decided for f in reach_verdict.findings([*rows, row("conv17", 64, 0.6, 3)])] == [-1, 1, 1]
    weak = [one | Row(value=0.5) if one.get("at") == "asked=64,trained=64" else one for one in rows]
    assert [f.decided for f in reach_verdict.findings(weak)] == [1, -1, 1]
    shorter = [one for one in rows if one.get("at") != "asked=64,trained=64"]
    assert reach_verdict.findings(shorter) == [], "no range is as long as the window of 17 steps"
    assert reach_verdict.findings([*rows, row("lru", 256, 1.0)]) == [], "not everybody was asked at 256"
    assert reach_verdict.findings([one for one in rows if one.get("seed") != 2]) == [], "two seeds decide nothing"


def test_the_probe_asks_at_the_range_and_beyond_it_and_bounded_models_have_half(tmp_path: Path) -> None:
    task = Reach(9, offset=4, symbols=4, train=20, val=20, test=40)
    run = next(run for run in study.runs("smoke") if run.model.label == "conv9")
    run = Run(task, run.model, run.protocol, 0)
    net = Network(run.model, task.input, heads(default_objective(task), task), mask_flag=False, seed=0).double().eval()
    rows = list(Ranges(examples=30).measure(net, run, lambda task: prepared.load(task, tmp_path)))
    assert rows[0].get("metric") == "receptive_field" and rows[0].get("value") == 9
    scores = [row for row in rows if row.get("metric") == "accuracy"]
    assert {r.get("at"): r.get("value") for r in scores} == {f"asked={n},trained=9": 0.5 for n in (9, 18, 36)}
    assert [r.get("n") for r in scores] == [40, 30, 30]
    gaps = [row for row in rows if row.get("metric") == "twin_gap"]
    assert [(r.get("at"), r.get("n")) for r in gaps] == [(r.get("at"), r.get("n", 0) // 2) for r in scores]
    assert len(rows) == 7 and all(r.get("value", 1) < 1e-13 for r in gaps)
    few = Ranges((4, 1, 2), examples=30, longest=70)
    assert len(list(few.measure(net, run, lambda task: prepared.load(task, tmp_path)))) == 5  # 4 * 9 apart is longer
    with pytest.raises(UserError, match="has no certified range"):
        list(Ranges().measure(net, Run(find_tasks("recall")[0], run.model, run.protocol, 0), lambda task: {}))


def test_the_probe_asks_at_no_range_that_the_task_does_not_have(tmp_path: Path) -> None:
    """Longer ones than there are at all, and than a tenth of the text is long."""
    book = tmp_path / "book.txt"
    book.write_bytes(np.random.default_rng(0).integers(0, 4, 200, np.uint8).tobytes())
    run = next(run for run in study.runs("smoke") if run.model.label == "conv9")
    short = Reach(9, offset=4, symbols=4, train=20, val=20, test=40, text=str(book))
    for task, ranges in ((short, (9, 18)), (Reach(40_000, offset=4, symbols=4, train=2, val=2, test=2), (40_000,))):
        asked = Run(task, run.model, run.protocol, 0)
        net = Network(run.model, task.input, heads(default_objective(task), task), mask_flag=False, seed=0).eval()
        rows = Ranges(examples=30).measure(net, asked, lambda task: prepared.load(task, tmp_path))
        assert [row.get("at") for row in rows if row.get("metric") == "accuracy"] == [
            f"asked={each},trained={ranges[0]}" for each in ranges
        ]


def test_a_mixer_of_ones_own_stands_beside_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE.format(body="self.inner(x)", bound=""))
    source = Source("reach", "mine.py:Mine")
    runs = choose(source.load(), "smoke")
    assert {run.model.label for run in runs} == {"mine", "attention", "s4", "conv9", "conv17", "conv33"}
    assert str(source) == "reach mine.py:Mine" and source.load().name.startswith("reach-mine-")
    assert all(run.model.causal for run in runs)  # as the module that sees no other step
    ahead = MINE.format(body="self.inner(x) + x.mean(1, keepdim=True)", bound="")
    (tmp_path / "ahead.py").write_text(ahead)
    assert not any(run.model.causal for run in choose(Source("reach", "ahead.py:Mine").load(), "smoke"))
    told = MINE.format(body="self.inner(x.cumsum(1) if self.causal else x.sum(1, keepdim=True) + x)", bound="")
    told = told.replace("(self, width)", "(self, width, causal)").replace(
        "()\n", "()\n        self.causal = causal\n", 1
    )
    (tmp_path / "told.py").write_text(told)
    assert all(run.model.causal for run in choose(Source("reach", "told.py:Mine").load(), "smoke"))
    (tmp_path / "bound.py").write_text(MINE.format(body="self.inner(x)", bound="max_length = 20"))
    with pytest.raises(UserError, match="mine takes at most 20 steps, but range 5 needs 30: raise its bound"):
        Source("reach", "bound.py:Mine").load().runs("smoke")


def test_a_mixer_that_ships_is_found_by_name_and_the_tasks_name_stays_the_tasks() -> None:
    names = {run.model.label for run in choose(Source("reach", "linear").load(), "smoke")}
    assert names == {"linear", "attention", "s4", "conv9", "conv17", "conv33"}
    with pytest.raises(UserError, match="no mixer 'lineer'"):
        Source("reach", "lineer").load()
    assert find_tasks("reach") == [Reach()]


def test_marks_filler_and_budget_may_be_asked_for_and_the_rest_is_the_studys(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_bytes(bytes(range(97, 123)) * 40)
    usual = Source("reach", "linear").load()
    name = f"reach_parity(symbols=256, text={str(book)!r})"
    asked = Source("reach", "linear", Options(tasks=(name,), seeds=2, steps=4)).load()
    assert asked.name.startswith(f"{usual.name}-") and Source("reach", "linear", Options(steps=4)).load() != usual
    runs = asked.runs("smoke")
    assert len(runs) == 2 * len(usual.runs("smoke")) and {
        run.protocol.phases[0].recipe.budget.value for run in runs
    } == {4}
    for run in runs:
        task = run.task
        assert isinstance(task, Reach) and (task.marks, task.symbols, task.text) == (3, 256, str(book))
        assert all(count % 6 == 0 for count in (task.train, task.val, task.test))
    assert {run.task.certified_range for run in runs} == {run.task.certified_range for run in usual.runs("smoke")}


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("listops", "listops has no certified range"),
        ("reach(range=64)", "The effort sets range of reach"),
        ("reach(marks=4)", "2 or 3 marks, not 4"),
        ("reech", "no task 'reech'"),
    ],
)
def test_what_the_study_sets_cannot_be_asked_for(task: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        Source("reach", "linear", Options(tasks=(task,))).load()


def test_a_text_that_holds_the_marks_is_refused_before_anything_runs(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("the quick brown fox " * 400)
    with pytest.raises(UserError, match="none may occur in the filler: take symbols=121 or more"):
        Source("reach", "linear", Options(tasks=(f"reach(symbols=100, text='{book}')",))).load().runs("smoke")


def test_widths_that_match_keep_groups_whole() -> None:
    for effort in ("smoke", "minutes", "overnight"):
        for model in certified.models(certified.SHIPPED, effort, True):
            layer = model.mixers[0].build(model.width, causal=True, layer=0, generator=torch.Generator())
            assert np.prod(layer(torch.zeros(1, 3, model.width)).shape) == 3 * model.width
            assert not isinstance(model.mixers[0], Conv) or model.width % 8 == 0


def gap(model: str, apart: int, value: float, seed: int = 0, asked: int | None = None, n: int = 500) -> Row:
    return row(model, apart, value, seed, asked) | Row(metric="twin_gap", unit="", n=n)


def test_the_verdict_says_what_was_checked_of_trained_models() -> None:
    field = Row(model="conv17", metric="receptive_field", value=17.0)
    old = [field, row("conv17", 16, 0.97), row("conv17", 64, 0.5), row("conv17", 256, 0.5)]
    assert "double" not in reach_verdict.verdict(old), "rows of an earlier version say nothing of it"
    one = [*old, gap("conv17", 64, 7.3e-16), gap("conv17", 16, 9e-16, asked=32, n=100)]
    assert (
        "has exactly 50 %. In double precision, outputs for twins (500 classes a run) differ by at most 7.3e-16 of the "
        "largest one in 1 of these runs. What the others declare was not checked. Reach, "
    ) in reach_verdict.verdict(one)
    assert certified_ranges.seen_by([*one, gap("conv17", 256, 2e-7)]) == {}, "of double precision that is far too much"
    both = [*one, gap("conv17", 256, 2e-7, n=125) | Row(metric="twin_gap_single")]
    assert (
        "In double precision, outputs for twins (125 to 500 classes a run) differ by at most 2e-07 of the largest one "
        "in all of these runs, where a layer computes a part in single precision, so that seeing a little of the rest "
        "is not excluded. Reach, "
    ) in reach_verdict.verdict(both)
    said = reach_verdict.verdict([*one, row("conv17", 64, 0.6, 1)])
    assert said.startswith(
        "Something is wrong: conv17, which sees 17 steps, has 60.00 % at range 64, where exactly 50 %"
    )
    assert "its answers to twins are the same in double precision, so rounding tells them apart." in said


def test_a_model_that_tells_twins_apart_has_no_line_and_the_verdict_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not its scores show it; the other models keep theirs."""
    fields = [Row(model=f"conv{n}", metric="receptive_field", value=float(n)) for n in (9, 17)]
    scores = {("conv9", 16): 0.5, ("conv9", 64): 0.5, ("conv17", 16): 1.0, ("conv17", 64): 0.5, ("s4", 16): 1.0}
    rows = [*fields, *(row(*place, value, seed) for place, value in scores.items() for seed in range(3))]
    rows += [row("s4", 64, 1.0, seed) for seed in range(3)]
    rows += [gap(model, 64, 4e-16, seed) for model in ("conv9", "conv17") for seed in range(3)]
    assert certified_ranges.seen_by(rows) == {"conv9": 9, "conv17": 17}
    assert reach_verdict.findings(rows)[0].decided == 1
    rows += [gap("conv9", 8, 0.0123, 1, asked=32)]  # of one run of many, beyond its range of training
    said = reach_verdict.verdict(rows)
    assert said.startswith(
        "What conv9 declares is wrong of a trained model, unless `levelfield data verify reach` finds a fault: seeing "
        "9 steps, and doing the same at each, it would answer alike to twins at range 32, but in double precision an "
        "output differs by 0.012 of the largest one. So it counts as seeing everything. As proved, every run of a "
        "model that sees no more than the range, 3 in all, has exactly 50 %. In double precision, outputs for twins ("
    )
    assert "conv9 none that was tried;" in said and "conv17 16 (it sees 17 steps)" in said
    assert reach_verdict.findings(rows)[0].decided == -1
    figures: list[Any] = []
    monkeypatch.setattr(style, "render", lambda figure, name: (figures.append(figure), ("", b""))[1])
    certified_ranges.trained(rows)
    walls = [sum(line.get_linewidth() == 8 for line in panel.lines) for panel in figures[0].axes[:3]]
    assert walls == [0, 1, 0], "of conv9, conv17 and s4"
