"""The verdicts of studies of small tasks, fed printed numbers, the same exchanged, and what has not learnt."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from printed_rows import LARGE, measured, printed

from levelfield import published
from levelfield.protocols import named_by_share
from levelfield.report.verdicts import Claim, Key, Table, capped, judged_by_task
from levelfield.spec import Row, Study
from levelfield.studies import (
    amos2025_arms,
    amos2025_labels,
    amos2025_small,
    amos2025_starts,
    amos2025_table2,
    miralles2025_enriched,
    miralles2025_small,
    miralles2025_table1,
    miralles2025_table3,
    miralles2025_table4,
)

QUESTIONS = (
    "self-pretraining lifts the Transformer",
    "the Transformer's lift holds at an equal allowance of steps",
    "self-pretraining lifts S4",
    "S4's lift holds at an equal allowance of steps",
    "the gap narrows",
    "the gap narrows at an equal allowance of steps",
)


def small(longer: float) -> list[Row]:
    """Table 2 of amos2025 as rows of five close seeds; printed numbers have no arm with added steps."""
    cells = {key: value for key, value in printed(amos2025_table2.study).items() if key.task != "pathx256"}
    added = {key: value for key, value in cells.items() if key.protocol == "scratch"}
    cells |= {key._replace(protocol="scratch_matched"): (m, value + longer) for key, (m, value) in added.items()}
    return measured(cells, (-0.1, -0.05, 0, 0.05, 0.1))


def test_small_tasks_are_asked_what_the_paper_claims_and_what_more_steps_do() -> None:
    found = {finding.subject: finding.decided for finding in amos2025_small.findings(small(0.0))}
    tasks = ("listops", "pathfinder", "pathx", "text", "retrieval", "image")
    lifts = [name for name in QUESTIONS if "S4" not in name]
    assert {found[f"{question} ({task})"] for task in tasks for question in lifts} == {1}
    own = {task: found[f"self-pretraining lifts S4 ({task})"] for task in tasks}
    assert own == {task: found[f"S4's lift holds at an equal allowance of steps ({task})"] for task in tasks}, (
        "added steps that bring nothing"
    )
    assert own["retrieval"] == -1, "printed: 90.90, and 88.74 self-pretrained"
    assert own["pathx"] == own["image"] == 0, "printed: by less than the noise of the test examples"
    assert min(own[task] for task in tasks if task != "retrieval") >= 0
    found = {finding.subject: finding.decided for finding in amos2025_small.findings(small(60.0))}
    assert {
        found[f"{whose}'s lift holds at an equal allowance of steps ({task})"]
        for task in tasks
        for whose in ("the Transformer", "S4")
    } == {-1}


def test_a_gap_that_added_steps_close_is_not_narrowed_at_equal_steps() -> None:
    """Printed on ListOps: 47.90 and 59.60, self-pretrained 61.49 and 61.25. Added steps bring the first to 59.60."""
    place = Row(model="transformer_rotary", protocol="scratch_matched", task="listops")
    rows = [row | Row(value=row["value"] + 0.117) if place.items() <= row.items() else row for row in small(0.0)]
    found = {finding.subject: finding.decided for finding in amos2025_small.findings(rows)}
    assert found["the gap narrows (listops)"] == 1
    assert found["the gap narrows at an equal allowance of steps (listops)"] <= 0


def test_what_is_asked_of_a_model_needs_its_own_cells_alone() -> None:
    rows = [row for row in small(0.0) if row.get("model") != "s4"]
    assert asked(rows) == set(QUESTIONS[:2])
    rows = [row for row in small(0.0) if row.get("protocol") != "scratch_matched"]
    assert asked(rows) == {name for name in QUESTIONS if not name.endswith("at an equal allowance of steps")}
    rows = [row for row in small(0.0) if row.get("protocol") != "spt_masked"]
    assert amos2025_small.findings(rows) == []


def asked(rows: Sequence[Row]) -> set[str]:
    """The questions that are asked. The others count among those of the report, and say which arm is missing."""
    found = amos2025_small.findings(rows)
    assert {finding.subject.partition(" (")[0] for finding in found} == set(QUESTIONS)
    assert all("has finished" in finding.facts for finding in found if not finding.seen)
    return {finding.subject.partition(" (")[0] for finding in found if finding.seen}


def test_a_lift_below_the_best_simple_rule_is_one_and_says_so_and_at_guessing_nothing_is_asked() -> None:
    rule = Row(task="text", protocol="none", metric="accuracy", split="test", value=0.99, n=LARGE)
    lift = "self-pretraining lifts the Transformer (text)"
    found = {each.subject: each for each in amos2025_small.findings([*small(0.0), rule | Row(model="words")])}
    assert found[lift].decided == 1 and "cannot be shown to beat the best simple rule, words" in found[lift].facts
    found = {each.subject: each for each in amos2025_small.findings([*small(0.0), rule | Row(model="chance")])}
    assert found[lift].decided == found[lift].seen == 0


def test_pictures_are_given_more_patience_and_the_other_tasks_as_much_as_before() -> None:
    """Pretraining on pictures lowers its loss by thousandths for long; a gain of 0.01 of it ended it at the start."""
    recipes = {
        run.task.name: [phase.recipe for phase in run.protocol.phases]
        for run in amos2025_small.study.runs("overnight")
        if run.protocol.name == "spt_masked"
    }
    patience = {name: [(r.patience, r.least_gain, r.budget.value) for r in own] for name, own in recipes.items()}
    assert patience["listops"] == patience["text"] == [(3, 0.01, 6_000), (3, 0.01, 12_000)]
    assert patience["image8"] == [(5, 0.0005, 24_000), (5, 0.002, 24_000)]


def test_short_kernels_are_held_against_whatever_sees_more() -> None:
    """Table 1 as printed: kernels 5, 7 and 11 against 21 to 61 and the gMLP."""
    rows = measured(printed(miralles2025_table1.study), (-0.1, -0.05, 0, 0.05, 0.1))
    found = {finding.subject: (finding.decided, finding.facts) for finding in miralles2025_small.findings(rows)}
    assert {name: decided for name, (decided, _) in found.items()} == {
        "image": -1,
        "text": 1,
        "retrieval": 1,
        "listops": -1,
        "pathfinder": -1,
    }
    assert "On text, kernel" in found["text"][1] and "the unbounded model" in found["pathfinder"][1]


def enriched(without: float = 30.0) -> list[Row]:
    """Image as printed, of five close seeds: S4 (table 3), rotary attention (table 4), an enriched kernel 11 (table 1).

    What has no printed number is made up: plain kernel 11, and attention without positions, which is `without`.
    """
    tables = (miralles2025_table1, miralles2025_table3, miralles2025_table4)
    found = {key: value for table in tables for key, value in printed(table.study).items() if key.task == "image"}
    cells = {key: value for key, value in found.items() if key.model in ("s4", "transformer_rotary")}
    cells[Key("image", "conv11", "enriched")] = found[Key("image", "conv", "enriched", "11")]
    cells[Key("image", "conv11", "scratch")] = ("accuracy", 55.0)
    cells |= {Key("image", "transformer", p): ("accuracy", without) for p in ("scratch", "enriched")}
    return measured(cells, (-0.1, -0.05, 0, 0.05, 0.1))


def test_enriched_training_and_positions_are_asked_of_every_architecture() -> None:
    ssm, swaps = "enriched training lifts s4 (image)", {"scratch": "enriched", "enriched": "scratch", "none": "none"}
    swapped = [row | Row(protocol=swaps[row.get("protocol", "")]) for row in enriched(95.0)]
    for rows, answer in ((enriched(), 1), (swapped, -1)):
        found = {finding.subject: finding.decided for finding in miralles2025_enriched.findings(rows)}
        assert found.pop(ssm) == 0, "printed: by 0.9 points, less than the noise of the test examples"
        assert len(found) == 5 and set(found.values()) == {answer}
    missing = [row for row in enriched() if row.get("model") != "conv11"]
    assert miralles2025_enriched.verdict(missing).startswith("Nothing can be said yet")


def scarce(few: float, whole: float) -> list[Row]:
    """Both tasks of scarce labels, of five close seeds: the lift with the fewest labels and with all, and half of both
    between them."""
    cells = {}
    for name, shares in amos2025_labels.SHARES.items():
        for share, lift in zip(shares, (few, (few + whole) / 2, whole), strict=True):
            cells[Key(name, "transformer_rotary", named_by_share("scratch", share))] = ("accuracy", 50.0)
            after = named_by_share(amos2025_labels.pretrained(name), share)
            cells[Key(name, "transformer_rotary", after)] = ("accuracy", 50.0 + lift)
    return measured(cells, (-0.1, -0.05, 0, 0.05, 0.1))


@pytest.mark.parametrize(
    ("few", "whole", "answers"), [(30, 10, (1, 1, 1, 1)), (-10, -30, (-1, -1, -1, 1)), (10, 30, (1, 1, 1, -1))]
)
def test_a_lift_is_asked_at_every_share_and_then_whether_it_grows(
    few: float, whole: float, answers: tuple[int, ...]
) -> None:
    found = [finding.decided for finding in amos2025_labels.findings(scarce(few, whole))]
    assert found == [*answers, *answers], "in-context recall, then pictures"


GROWTH = "and more so with the fewest than with all"


@pytest.mark.parametrize(
    ("lost", "unsaid"),
    [
        (("scratch", "spt_masked", "spt_causal"), "with 100 % of the labels"),
        (("spt_masked_0.01", "spt_causal_0.0025"), "with 0.25 % of the labels, with 1 % of the labels"),
    ],
)
def test_an_arm_that_has_not_been_run_leaves_its_share_and_growth_open(lost: tuple[str, ...], unsaid: str) -> None:
    """The smallest share that is there stands for no smaller one, and every question counts among those of the
    report."""
    rows = [row for row in scarce(30, 10) if row.get("protocol") not in lost]
    found = {finding.subject: finding for finding in amos2025_labels.findings(rows)}
    assert found.keys() == {finding.subject for finding in amos2025_labels.findings(scarce(30, 10))} and len(found) == 8
    open_ = {subject: finding.facts for subject, finding in found.items() if not finding.seen}
    assert all("not been run." in facts for facts in open_.values())
    lifts = {subject.partition("Transformer ")[2].partition(" (")[0] for subject in open_ if GROWTH not in subject}
    assert ", ".join(sorted(lifts)) == unsaid and sum(GROWTH in subject for subject in open_) == 2
    assert {finding.decided for subject, finding in found.items() if subject not in open_} == {1}
    alone = [row for row in rows if row.get("protocol", "").startswith("scratch")]
    assert amos2025_labels.verdict(alone).startswith("Nothing can be said yet")


def test_at_smoke_the_fewest_labels_are_half() -> None:
    cells = {
        Key("in_context_recall", "transformer_rotary", named_by_share(protocol, share)): ("accuracy", 50.0 + lift)
        for share, lift in ((0.5, 30.0), (1.0, 10.0))
        for protocol, lift in (("scratch", 0.0), ("spt_causal", lift))
    }
    found = amos2025_labels.findings(measured(cells, (-0.1, -0.05, 0, 0.05, 0.1)))
    assert [finding.decided for finding in found] == [1, 1, 1]


def lifted(lift: float) -> list[Row]:
    """Six models of five close seeds: the Transformers rise from 40 %, the others from 50, of each kind one less."""
    cells = {}
    for model, after in amos2025_arms.PRETRAINED.items():
        transformer = model.startswith("transformer")
        low = 40.0 if transformer else 50.0
        cells[Key("image", model, "scratch")] = ("accuracy", low)
        cells[Key("image", model, after)] = ("accuracy", low + (lift if transformer else lift / 2))
    return measured(cells, (-0.1, -0.05, 0, 0.05, 0.1))


@pytest.mark.parametrize(("lift", "answers"), [(10, (1, 1, 1)), (-10, (-1, -1, -1)), (1, (0, 0, 0))])
def test_other_arms_are_lifted_by_more_than_a_point_and_come_closer(lift: float, answers: tuple[int, ...]) -> None:
    """The causal Transformer, then the other three, then the gaps; a lift of a point is none that counts."""
    found = {finding.subject: finding.decided for finding in amos2025_arms.findings(lifted(lift))}
    own, others, gaps = answers
    lifts = {model: found[f"self-pretraining lifts {model} (image)"] for model in amos2025_arms.ASKED}
    assert lifts.pop("transformer_rotary_causal") == own and set(lifts.values()) == {others}
    assert {d for subject, d in found.items() if subject.startswith("the gap")} == {gaps} and len(found) == 7


def starts(**level: float) -> list[Row]:
    """Figure 2 of amos2025, S4 and DLR as rows of one task, five close seeds. level: both models' of a protocol."""
    cells = {}
    for row in published.rows("amos2025", "figure2"):
        protocol = row.get("protocol", "")
        value = level.get(protocol, row.get("value", 0.0))
        cells[Key("image", row.get("model", ""), protocol)] = ("accuracy", value)
    assert len(cells) == 4
    return measured(cells, (-0.1, -0.05, 0, 0.05, 0.1))


def test_what_figure_2_prints_of_dlr_is_the_claim_and_equal_scores_are_not() -> None:
    assert [finding.decided for finding in amos2025_starts.findings(starts())] == [1, 1, 1]
    level = [finding.decided for finding in amos2025_starts.findings(starts(scratch=80.0, spt_masked=80.0))]
    assert level == [-1, 0, 1], "not behind by the margin, no gap that could narrow, and level"
    missing = [row for row in starts() if row.get("model") != "s4"]
    assert amos2025_starts.verdict(missing).startswith("Nothing can be said yet")


@pytest.mark.parametrize(
    ("dlr", "s4", "decided", "seen"),
    [
        ((50, 66), (54, 56), 1, 1),  # it was behind and is ahead
        ((50, 52), (54, 65), -1, -1),  # farther behind
        ((50, 48), (54, 50), 0, -1),  # both lose, and the one ahead the most
        ((60, 62), (50, 60), 0, 0),  # it was ahead
    ],
)
def test_only_what_was_behind_s4_can_be_behind_by_less(
    dlr: tuple[int, int], s4: tuple[int, int], decided: int, seen: int
) -> None:
    arms = {"dlr": dlr, "s4": s4}
    protocols = ("scratch", "spt_masked")
    cells = {Key("image", m, p): ("accuracy", float(v)) for m, own in arms.items() for p, v in zip(protocols, own)}
    found = {f.subject: f for f in amos2025_starts.findings(measured(cells, (-0.1, -0.05, 0, 0.05, 0.1)))}
    less = found["dlr is behind by less once both are pretrained (image)"]
    assert (less.decided, less.seen) == (decided, seen)
    assert less.facts.endswith("It is not behind s4 from scratch.") == (seen == 0)


def test_every_model_has_questions_of_its_own() -> None:
    """Three of each: of one name, those of the last model would take the place of all others'."""
    rows = starts()
    others = [
        row | Row(model=name) for row in rows for name in ("s4_random", "dlr_random") if row.get("model") == "dlr"
    ]
    found = amos2025_starts.findings([*rows, *others])
    assert [sum(name in finding.subject.split() for finding in found) for name in amos2025_starts.OTHERS] == [3, 3, 3]
    assert len(found) == 9 and {finding.decided for finding in found} == {1}


def test_two_questions_of_one_name_are_a_fault_of_the_study() -> None:
    claim = Claim(None, "")
    with pytest.raises(AssertionError, match="two questions of one name"):
        judged_by_task(Table.of(starts()), lambda task, table: [("is it so", claim), ("is it so", claim)])


@pytest.mark.parametrize(("study", "runs", "same"), [(amos2025_arms.study, 36, 12), (amos2025_starts.study, 24, 6)])
def test_the_transformer_and_s4_of_the_other_arms_are_trained_once(study: Study, runs: int, same: int) -> None:
    ours, theirs = ({run.id for run in each.runs("overnight")} for each in (study, amos2025_small.study))
    assert len(ours) == runs and len(ours & theirs) == same, "one or two models, two protocols, three seeds"


def test_of_two_arms_that_have_not_learnt_nothing_is_asked() -> None:
    flat = [row | Row(value=0.1) if row.get("model") == "conv11" else row for row in enriched()]
    found = {finding.subject: finding.decided for finding in miralles2025_enriched.findings(flat)}
    unsaid = {subject for subject, decided in found.items() if decided == 0}
    assert unsaid == {"enriched training lifts conv11 (image)", "enriched training lifts s4 (image)"}


def test_runs_that_were_cut_short_come_first() -> None:
    ended = [Row(run=f"r{i}", metric="phases_at_cap", value=share) for i, share in enumerate([0.5, 0, 0, 0, 0, 0, 0])]
    assert capped(ended).startswith("1 of 7 runs had not stopped improving")
    assert amos2025_small.verdict([*ended, *small(0.0)]).startswith("1 of 7 runs")
    assert capped([*ended, *(Row(run=f"s{i}", metric="phases_at_cap", value=0) for i in range(3))]) == ""


def test_what_is_proved_to_be_out_of_range_is_a_no_and_elsewhere_nothing_is_said() -> None:
    places = {"3": 50.0, "11": 50.0, "31": 99.0, "all": 99.0}
    for task, decided, seen_ in (("reach", -1, -1), ("listops", 0, 0)):
        half = Row(task=task, protocol="none", model="chance", metric="accuracy", split="test", value=0.5, n=LARGE)
        cells = {Key(task, "m", "enriched", place): ("accuracy", value) for place, value in places.items()}
        (found,) = miralles2025_small.findings([half, *measured(cells, (-0.1, 0, 0.1))])
        assert (found.subject, found.decided, found.seen) == (task, decided, seen_)


def kernels(lost: dict[tuple[str, int], float | None]) -> list[Row]:
    """ListOps by kernel, of three seeds whose validation scores are their test scores. lost: the score of a seed at a
    place, None where it has none."""
    cells = {Key("listops", "m", "enriched", place): ("accuracy", value) for place, value in KERNELS.items()}
    rows: list[Row] = []
    for row in measured(cells, (-0.1, 0.0, 0.1)):
        place = row.get("at", "").removeprefix("kernel="), row.get("seed", 0)
        score = lost.get(place, row.get("value"))
        found = row.copy()
        if score is None:
            found.pop("value", None)
        else:
            found["value"] = score
        rows += [found, found | Row(split="val")] if "run" in row else [row]
    return rows


KERNELS = {"3": 30.0, "11": 50.0, "61": 52.0, "all": 55.0}


@pytest.mark.parametrize("score", [None, math.nan])
def test_a_seed_that_diverged_is_left_out_of_the_choice_of_a_kernel_and_named(score: float | None) -> None:
    (whole,) = miralles2025_small.findings(kernels({}))
    (lost,) = miralles2025_small.findings(kernels({("11", 0): score}))
    for found in (whole, lost):
        assert found.facts.startswith("On listops, kernel 11 scores 50.") and "the unbounded model 55.0" in found.facts
    assert "Without a score" not in whole.facts
    assert "Without a score: seed 0 of kernel 11; kernels were chosen by seeds 1 and 2." in lost.facts


def test_where_no_seed_is_left_to_choose_a_kernel_by_any_of_them_is_asked() -> None:
    (found,) = miralles2025_small.findings(kernels({("11", 0): None, ("11", 1): None, ("3", 2): None}))
    assert "seed 2 of kernel 3, seeds 0 and 1 of kernel 11; no kernel could be chosen on validation." in found.facts
    (found,) = miralles2025_small.findings(kernels({("11", seed): None for seed in range(3)}))
    assert "On listops, kernel 3 scores" in found.facts
    assert "Without a score: seeds 0, 1 and 2 of kernel 11; kernels were chosen by seeds 0, 1 and 2." in found.facts


def test_a_share_in_percent_is_scored_as_the_same_one_in_fractions() -> None:
    def row(run: str, value: float, unit: str) -> Row:
        own = Row(run=run, seed=int(run), protocol="scratch") if run else Row(protocol="none")
        return own | Row(task="t", model="m", split="test", metric="accuracy", unit=unit, value=value)

    fractions = Table.of([row("0", 0.5, "fraction"), row("1", 0.75, "fraction"), row("", 0.25, "fraction")])
    percents = Table.of([row("0", 50.0, "percent"), row("1", 75.0, "percent"), row("", 25.0, "percent")])
    assert percents.cells[Key("t", "m", "scratch")].values == (50.0, 75.0)
    assert percents == fractions and percents.rules["t"][0].score.values == (25.0,)
