"""Verdicts of audits on arms whose true accuracies are known: what is claimed, what is not, and how often wrongly."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from levelfield.report.audit import page, words
from levelfield.report.audit.reading import Reading
from levelfield.report.audit.shares import DISORDERED, FREE, RULE, WINDOW, Scored, cross_validated, findings
from levelfield.spec import Row

WINDOWS = (1, 5, 9, 17, 33)


def row(metric: str, value: float, split: str = "all", at: str = "") -> Row:
    return Row(model="data", metric=metric, split=split, value=value, **({"at": at} if at else {}))


def audited(windows: list[float], free: float, rules: dict[str, float], tested: int = 1_000, seed: int = 0) -> Reading:
    """An audit of two classes whose arms are right as often as given, on `tested` examples by two seeds."""
    return Reading.of(rows_of(windows, free, rules, tested, seed))


def rows_of(
    windows: list[float], free: float, rules: dict[str, float], tested: int, seed: int, shuffled: float | None = None
) -> list[Row]:
    rng = np.random.default_rng(seed)
    hard = rng.random(tested)  # arms fail on the same examples, as real ones do

    def arm(name: str, kind: str, share: float, seeds: int, place: str = "") -> Scored:
        own = [np.where(rng.random(tested) < 0.8, hard, rng.random(tested)) for _ in range(seeds)]
        scores = np.stack(own) < share
        return Scored(name, kind, float(rng.binomial(500, share) / 500), scores.astype(float), place)

    arms = [arm(f"window{w}", WINDOW, p, 2, str(w)) for w, p in zip(WINDOWS, windows, strict=True)]
    arms += [arm("s4", FREE, free, 2), *(arm(name, RULE, p, 1) for name, p in rules.items())]
    arms += [arm("unordered", DISORDERED, shuffled, 2)] if shuffled else []
    found = findings(arms, (rng.random(tested) < 0.5).astype(float))
    facts = [row("steps", 200, "test", "place=median"), row("examples", tested, "test")]
    return [each | Row(task="mine", effort="minutes") for each in [*facts, *found]]


LOCAL = ([0.5, 0.7, 0.89, 0.9, 0.9], 0.9, {"length": 0.5, "1-grams": 0.6})


def test_what_windows_have_is_said_with_its_interval() -> None:
    found = audited(*LOCAL)
    said = words.lead(found)
    share = re.match(
        r"Windows of 9 steps, pooled over the whole sequence, give (\d+) % \((\d+) to (\d+)\) of what a model", said
    )
    assert share and int(share[2]) <= int(share[1]) <= int(share[3])
    assert "; what was learnt of it does not measure long range. The best, " in said and said.endswith("50 %.")
    assert found.enough.steps == 9 and found.enough.least <= 9 <= found.enough.most
    assert found.shares["s4"].value > 0.95 and abs(found.shares["window5"].value - 0.5) < 0.1
    assert words.badge(found).text.endswith("from 9 steps")


def test_the_benchmark_as_a_whole_is_judged_only_where_nearly_all_of_it_was_learnt() -> None:
    found = audited([0.5, 0.7, 0.97, 0.97, 0.97], 0.97, {"length": 0.5})
    assert "; this benchmark does not measure long range." in words.lead(found)
    assert words.badge(found).text.startswith("no: ")
    assert words.badge(audited(*LOCAL)).text.startswith("9")


def test_windows_are_not_compared_with_models_that_see_everything_and_learnt_nothing() -> None:
    """The label is the exclusive or of two far steps, and a cue nearby is right about 95 of 100: S4 learnt neither."""
    found = audited([0.5, 0.7, 0.95, 0.95, 0.95], 0.5, {"length": 0.5})
    assert "no model that sees everything learnt as much" in words.lead(found)
    assert "does not measure" not in words.lead(found) and words.badge(found).text == "undecided"


@pytest.mark.parametrize(("after", "alone"), [(0.5, True), (0.62, False)])
def test_a_verdict_says_what_the_latest_symbols_have_where_there_are_others(after: float, alone: bool) -> None:
    rng = np.random.default_rng(0)
    later = np.stack([rng.random(1_000) < after, rng.random(1_000) < 0.5]).astype(float)
    later[:, :20] = np.nan
    rule = Scored("latest 3", RULE, 0.6, (rng.random((1, 1_000)) < 0.6).astype(float), later=later)
    found = findings([rule], np.full(1_000, 0.5))
    reading = Reading.of([each | Row(task="mine", effort="minutes") for each in found])
    said = words.lead(reading)
    assert re.search(
        r"At steps after the first 3, the rule .* scores \d+ % \(.*\) where the commonest label scores", said
    )
    assert ("only where its symbols are all there are" in said) == alone
    assert [each.get("n") for each in found if each.get("metric") == "later"] == [980]
    assert abs(reading.later["latest 3"].value - after) < 0.04


def test_the_best_of_all_has_no_share_of_itself() -> None:
    found = audited([0.5] * 5, 0.9, {"length": 0.5, "5-grams": 0.95})
    assert found.reference == "5-grams"
    said = words.lead(found)
    assert said.startswith("The best that was tried, the rule that knows counts of 5-grams, sees no more than windows")
    assert "what was learnt of it does not measure long range. It scores " in said
    assert said.endswith("where guessing scores 50 %; no sequence model was better.") and "(100 to 100)" not in said


def test_the_latest_symbols_are_a_window_and_the_answer_before_is_none() -> None:
    found = audited([0.5, 0.7, 0.97, 0.97, 0.97], 0.97, {"commonest": 0.5, "latest 2": 0.97})
    assert found.enough.steps == 2 and words.badge(found).text.endswith("from 2 steps")
    assert "the rule that knows the latest 2 symbols, sees no more than windows of 2 steps; " in words.lead(found)
    far = audited([0.5] * 5, 0.95, {"commonest": 0.5, "latest 1": 0.5, "shown": 0.95})
    assert far.enough.steps > 33 and "the symbol behind the last question already gives" in words.lead(far)
    assert (
        words.badge(far).text.endswith("% from the symbol behind the last question")
        and "no" not in words.badge(far).text
    )
    assert words.rule_words("latest 1") == "the latest symbol" and words.rule_words("last 1") == "the last step"


def test_models_trained_for_seconds_say_nothing_of_range() -> None:
    rows = [row | Row(effort="smoke") for row in rows_of(*LOCAL, 1_000, 0)]
    found = Reading.of(rows)
    assert words.lead(found).startswith("Models were trained for seconds only (effort smoke), so that nothing is said")
    assert "Of the rules, the one that knows counts of single symbols is best on validation: it s" in words.lead(found)
    assert "window" not in words.lead(found) and words.badge(found).text == "not asked at smoke"


def test_rules_alone_say_nothing_of_range() -> None:
    rules = findings(
        [Scored("length", RULE, 0.5, np.zeros((1, 400))), Scored("1-grams", RULE, 0.7, np.ones((1, 400)))],
        np.tile([0.0, 1.0], 200),
    )
    facts = [row("steps", 200, "test", "place=median"), row("examples", 400, "test")]
    found = Reading.of([each | Row(task="mine", effort="minutes") for each in [*facts, *rules]])
    assert words.lead(found) == (
        "No model was trained, so that nothing is said of range. Of the rules, the one that knows counts of single "
        "symbols is best on validation: it scores 100 % (99 to 100) where guessing scores 50 %."
    )
    assert words.badge(found).text == "not asked"
    assert words.paragraph(found).endswith("guessing scores 50 %. In brackets are 95 % intervals over test examples.")
    assert not words.claims(found) and "Any model that reads the order" in words.not_tried(found)[0]


def test_a_proved_range_and_the_places_of_steps_are_not_called_short_range() -> None:
    rows = rows_of([0.5] * 5, 0.95, {"length": 0.5, "positions": 0.95}, 1_000, 0)
    assert "no" not in words.badge(Reading.of(rows)).text.split()
    proved = Reading.of([*rows, row("certified_range", 64)])
    assert words.badge(proved) == words.Badge("more than 64 steps, proved", words.GREEN)


@pytest.mark.parametrize("widest", [0.5, 0.95])
def test_of_a_proved_range_the_window_is_that_and_one_step_whatever_trained_ones_have(widest: float) -> None:
    """Two steps 20 apart: windows of 33 steps may or may not have learnt it in so short a training."""
    rows = rows_of([0.5, 0.5, 0.5, 0.5, widest], 0.95, {"length": 0.5}, 1_000, 0)
    found = Reading.of([*rows, row("certified_range", 20), row("training_steps", 534, "train")])
    assert found.enough == (21, 21, 21) and words.claims(found)
    said = words.lead(found)
    assert said.startswith("By proof, windows of 21 steps suffice and none of fewer does. Trained windows of up to 33")
    assert "in 534 training steps" in said and ("s4 learnt the rest" in said) == (widest == 0.5)
    assert words.badge(found) == words.Badge("more than 20 steps, proved", words.GREEN)
    assert "Windows of one step more suffice." in words.details(found)[-1]


def test_a_task_of_which_little_was_learnt_is_called_no_short_range() -> None:
    found = audited([0.5, 0.65, 0.69, 0.7, 0.7], 0.7, {"length": 0.5, "1-grams": 0.6})
    assert 0.3 < found.learnt < 0.5 and found.enough.steps <= 9
    assert "long range" not in words.lead(found)
    assert words.lead(found).endswith("Most of the task was not learnt, and that may need more than these windows.")
    assert words.badge(found).text.startswith("open: best ")


@pytest.mark.parametrize("learnt, said", [(0.9, "% (.*) is left"), (0.55, "too little to say what")])
def test_shuffled_order_says_something_only_of_a_model_that_has_learnt(learnt: float, said: str) -> None:
    found = Reading.of(rows_of([0.9] * 5, learnt, {"length": 0.5}, tested=1_000, seed=0, shuffled=0.7))
    text = " ".join(words.details(found))
    assert re.search(said, text) and ("too little" in text) == (learnt < 0.6)


def test_what_windows_have_not_learnt_is_called_neither_short_range_nor_long() -> None:
    rows = rows_of([0.5] * 5, 0.95, {"length": 0.5}, 1_000, 0)
    found = Reading.of(rows)
    assert re.match(
        r"Windows of up to 33 steps learnt at most -?\d+ % \(.*?\) of what a model learns here in the training steps "
        r"of effort minutes; s4 learnt the rest, which longer training may teach windows as well\.",
        words.lead(found),
    )
    assert "benchmark" not in words.lead(found) and "range" not in words.lead(found) and not words.claims(found)
    assert words.badge(found) == words.Badge("not learnt by windows of up to 33 steps", words.GREY)
    counted = words.lead(Reading.of([*rows, row("training_steps", 6_000, "train")]))
    assert "of what a model learns here in 6,000 training steps; s4" in counted


def test_no_badge_says_long_range_where_intervals_lengths_or_little_learnt_leave_it_open() -> None:
    def said(windows: list[float], free: float, tested: int = 1_000, median: int = 200) -> words.Badge:
        rows = [r for r in rows_of(windows, free, {"length": 0.5}, tested, 0) if r.get("metric") != "steps"]
        return words.badge(Reading.of([*rows, row("steps", median, "test", "place=median")]))

    assert said([0.5] * 5, 0.95) == words.Badge("not learnt by windows of up to 33 steps", words.GREY)
    assert said([0.5, 0.6, 0.7, 0.8, 0.84], 0.9, 300) == words.Badge("undecided", words.GREY)
    assert said([0.5] * 5, 0.95, median=33) == words.Badge("undecided", words.GREY)
    little = said([0.5] * 5, 0.65)
    assert little.colour == words.GREY and little.text.startswith("open: best 6")


@pytest.mark.parametrize("median", [60, 70])
def test_an_end_that_is_most_of_a_sequence_is_no_short_range(median: int) -> None:
    rows = [r for r in rows_of([0.5] * 5, 0.97, {"first 32": 0.97}, 1_000, 0) if r.get("metric") != "steps"]
    found = Reading.of([*rows, row("steps", median, "test", "place=median")])
    most = "the first 32 steps (most of a sequence)" in words.lead(found)
    assert "the first 32 steps" in words.lead(found) and most == (median == 60)
    assert words.badge(found).colour == (words.BLUE if most else words.RED)


@pytest.mark.parametrize(
    "effort, head", [("smoke", "Models were trained for seconds only (effort smoke). "), ("minutes", "")]
)
def test_nothing_learnt_is_said_of_what_was_asked(effort: str, head: str) -> None:
    rows = [each | Row(effort=effort) for each in rows_of([0.5] * 5, 0.5, {"length": 0.5}, 400, 0)]
    found, rare = Reading.of(rows), Reading.of([*rows, row("largest_class", 0.9, "test")])
    assert words.lead(found).startswith(f"{head}No higher accuracy than guessing is shown: ")
    assert words.badge(found).text == ("not asked at smoke" if head else "nothing learnt")
    assert "rare" not in words.lead(found)
    assert words.lead(rare).endswith(" This does not exclude that examples of rare classes can be ranked above others.")


def test_test_examples_of_few_groups_say_nothing() -> None:
    rows = rows_of(*LOCAL, 500, 0)
    for kind, what in (("equal_groups", "equally large groups"), ("equal_inputs", "equally frequent inputs")):
        few, more = (Reading.of([*rows, row(kind, amount, "test")]) for amount in (3.2, 34))
        assert words.lead(few) == (
            f"Too small to say anything: 500 test examples that amount to 3 {what}, and at least 20 are needed."
        )
        assert words.badge(few).text == "too small to say" and "Windows of 9 steps" in words.lead(more)
        assert f"The test examples amount to 34 {what}, over which intervals are taken." in words.details(more)
    again = Reading.of([*rows, row("exact_duplicates", 400, at="in=test")])
    assert "80 % of the test examples repeat another one of them." in words.details(again)


def test_what_needs_no_sequence_is_named_by_its_simplest_rule() -> None:
    found = audited([0.9] * 5, 0.9, {"length": 0.9, "1-grams": 0.9})
    assert "Without a sequence model, the length alone already gives" in words.lead(found)
    assert words.badge(found).text.startswith("no: ") and "length" in words.badge(found).text


def test_nothing_learnable_and_too_little_claim_nothing() -> None:
    for found, sentence in (
        (
            audited([0.5] * 5, 0.5, {"length": 0.5}),
            "No higher accuracy than guessing is shown: of 7 that were tried, ",
        ),
        (audited(*LOCAL, tested=60), "Too small to say anything: 60"),
    ):
        assert words.lead(found).startswith(sentence) and found.shares == {}
        assert not re.search(r"steps? gives?|does not measure|gives 9", words.paragraph(found))
        assert words.badge(found).text in ("nothing learnt", "too small to say")


def test_a_paragraph_explains_what_it_has_and_nothing_else() -> None:
    for found, last in (
        (audited(*LOCAL), "Larger models, tuned recipes or pretraining may learn more, and from further away."),
        (audited(*LOCAL, tested=60), "60 test examples, and at least 100 are needed."),
    ):
        assert words.paragraph(found).endswith(last)
        assert not set(words.not_tried(found)) & set(words.paragraph(found).split(". "))
    assert "Shares are of the gain" in words.paragraph(audited(*LOCAL))
    assert "hare" not in words.paragraph(audited([0.5] * 5, 0.5, {"length": 0.5}))


def test_where_nothing_is_left_to_learn_no_model_has_to_show_what_is_further_away() -> None:
    windows, blind = [0.5, 0.5, 0.5, 0.5, 0.5], 0.5
    whole, part = (audited(windows, blind, {"5-grams": share}) for share in (0.999, 0.9))
    assert "does not measure long range" in words.lead(whole) and words.badge(whole).text.startswith("no: ")
    assert "more may be learnt from further away" in words.lead(part) and words.badge(part).text == "undecided"
    assert words.claims(whole) and not words.claims(part)


def test_what_was_cut_is_said_with_every_verdict() -> None:
    facts = [row("cut", 900), *(row("examples", 500, split) for split in ("train", "val", "test"))]
    facts += [row("steps", 64, split, "place=most") for split in ("train", "val", "test")]
    for windows, free, said in (
        (
            [0.5] * 5,
            0.5,
            "No higher accuracy than guessing is shown in the first 64 steps, at which sequences were cut: of 7",
        ),
        ([0.5, 0.7, 0.97, 0.97, 0.97], 0.97, "this benchmark, cut at 64 steps, does not measure long range"),
    ):
        found = Reading.of([*rows_of(windows, free, {"length": 0.5}, 500, 0), *facts])
        assert said in words.lead(found)
        assert "900 of 1,500 sequences were cut at 64 steps" in words.paragraph(found)
        assert any("after the first 64 steps" in sentence for sentence in words.not_tried(found))


def test_the_answer_that_happens_to_be_commonest_is_nothing_learnt() -> None:
    """Of 400 coins 230 are heads, which training did not show; every arm has come to answer heads."""
    heads = np.zeros((1, 400))
    heads[:, :230] = 1
    arms = [Scored(name, kind, 0.6, heads, place) for name, kind, place in (("window5", WINDOW, "5"), ("s4", FREE, ""))]
    half = np.full(400, 0.5)
    facts = [row("steps", 200, "test", "place=median")]
    assert Reading.of([*facts, *findings(arms, half)]).learnable
    assert not Reading.of([*facts, *findings(arms, half, constant=heads[0])]).learnable


def test_an_arm_that_guesses_as_guessing_does_has_learnt_nothing_though_float32_rounds_its_scores_up() -> None:
    """Kept scores are float32, in which an F1 of two thirds is a little more than in float64."""
    floor = np.random.default_rng(0).choice([0.0, 2 / 3, 1.0], 300)
    kept = floor.astype(np.float32)
    assert kept.mean(dtype=np.float64) > floor.mean()
    found = findings([Scored("s4", FREE, 0.6, kept[None])], floor)
    folds = cross_validated({"length": kept}, floor, np.arange(300))
    assert [r.get("value") for r in (*found, *folds) if r.get("metric") in ("learnable", "folds_learnt")] == [0, 0]


def test_nothing_passes_for_something_about_as_rarely_as_said() -> None:
    """Of 120 audits of coins with eleven arms, half of one is expected, and four hardly ever."""
    wrong = sum(audited([0.5] * 5, 0.5, dict.fromkeys("abcde", 0.5), 150, seed).learnable for seed in range(120))
    assert wrong < 4


def test_faults_of_the_data_are_sentences() -> None:
    facts = [
        row("leaked", 0.12, "test"), row("contradictions", 7), row("shared_groups", 3, at="in=train+test"),
        row("left_out", 5), row("certified_range", 16), row("not_compared", 40),
    ]  # fmt: skip
    said = " ".join(words.details(Reading.of([*rows_of(*LOCAL, 500, 0), *facts])))
    for sentence in (
        "12 % of the test examples are in the training split too",
        "7 inputs come with different labels",
        "3 groups have rows in both train and test",
        "5 rows without input or label",
        "40 examples have too few steps to tell near duplicates from chance, so that only exact ones were counted.",
        "windows of up to 16 steps",
    ):
        assert sentence in said


def test_a_leak_of_much_of_the_test_split_stands_in_the_verdict() -> None:
    """An exact duplicate is a near one as well."""
    whole = [*rows_of(*LOCAL, 500, 0), row("examples", 500, "test")]
    both = [row("leaked", 0.04, "test"), row("near_duplicates", 485, at="in=test in train")]
    nearly, exactly, few = (
        words.lead(Reading.of([*whole, *facts]))
        for facts in (both, [row("leaked", 0.12, "test")], [row("leaked", 0.04, "test")])
    )
    assert nearly.endswith(" 97 % of the test examples are in train, exactly or nearly.")
    assert "12 % of the test examples are in train" in exactly and "in train" not in few


def test_what_no_model_can_know_and_what_was_not_used_is_said() -> None:
    facts = [row("unseen", 0.5, "test"), row("unknown", 300, "test"), row("trained_on", 800, "train")]
    found = Reading.of([*rows_of(*LOCAL, 500, 0), *facts, row("examples", 9_800, "train")])
    said = " ".join(words.details(found))
    assert "50.0 % of the test examples have a class that no training example has" in said
    assert "300 of 500 test sequences have a symbol that no training sequence has." in said
    assert "; trained on 800 of 9,800 training examples, and scores are on 500 of" in words.paragraph(found)
    assert "Training on more than 800 of 9,800 training examples." in words.not_tried(found)
    whole = Reading.of([*rows_of(*LOCAL, 500, 0), row("trained_on", 800, "train"), row("examples", 800, "train")])
    assert "trained on" not in words.paragraph(whole) and "Training on" not in " ".join(words.not_tried(whole))
    assert words.lead(audited(*LOCAL, tested=1)).startswith("Too small to say anything: 1 test example, and")


@pytest.mark.parametrize("share, told", [(0.98335, "over 98 %"), (1.0, "over 99 %"), (0.501, "over 50 %")])
def test_a_number_that_all_errors_follow_is_said(share: float, told: str) -> None:
    said = " ".join(words.details(Reading.of([*rows_of(*LOCAL, 500, 0), row("outlier", share, "train")])))
    assert (
        f"One example of train makes up {told} of a target's variance there: see whether its number is right." in said
    )


def test_a_single_fault_is_said_in_the_singular() -> None:
    facts = [
        row("contradictions", 1), row("shared_groups", 1, at="in=train+test"), row("left_out", 1), row("cut", 1),
        row("not_compared", 1),
    ]  # fmt: skip
    said = " ".join(words.details(Reading.of([*rows_of(*LOCAL, 500, 0), *facts])))
    for sentence in (
        "1 input comes with different labels",
        "1 group has rows in both train and test",
        "1 row without input or label, or broken, was left out.",
        "sequences was cut at",
        "1 example has too few steps",
    ):
        assert sentence in said


def test_the_page_is_whole_and_rows_give_it_back(tmp_path: Path) -> None:
    rows = rows_of(*LOCAL, 300, 0)
    files = {path.name: path for path in page.build(rows, tmp_path)}
    assert {"report.html", "rows.csv", "badge.svg", "datasheet.md", "windows.svg", "rules.svg"} <= files.keys()
    html = files["report.html"].read_text()
    assert words.lead(Reading.of(rows)).split("(")[0] in html and "What was not tried" in html
    assert "http" not in re.sub(r"http://www\.w3\.org/\S+", "", html), "it loads nothing"
    badge = ElementTree.fromstring(files["badge.svg"].read_text())
    assert badge.attrib["aria-label"].startswith("long range: ")
    assert not words.paragraph(Reading.of(rows)).count("  ")


def test_rows_of_no_audit_are_refused() -> None:
    with pytest.raises(ValueError, match="no audit"):
        Reading.of([Row(metric="accuracy", value=1.0)])
