"""What needs no sequence model, on data sets in which it is known: rules, facts, and views without order."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_audits import Known
from toy_data import Parity

from levelfield.data.audit import shallow, steps
from levelfield.data.audit.facts import facts, leaked, outlier
from levelfield.data.audit.features import Features, ends, lengths, ngrams, positions
from levelfield.data.audit.shallow import PROBES, score
from levelfield.data.audit.view import View
from levelfield.spec import SPLITS, Examples, Signal, SplitName, StepLabels
from levelfield.tasks.flipflop import READ, FlipFlop
from levelfield.tasks.listops import ListOps
from levelfield.tasks.parity import Parity as RunningParity
from levelfield.tasks.words import Words
from levelfield.user.own_data import OwnData

SEQUENCES = [np.array(s, np.uint8) for s in ([1, 2, 1, 2], [3], [1, 2, 3])]
EXAMPLES = Examples.of_sequences(SEQUENCES, np.array([0, 1, 1]))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_ngrams_are_those_of_a_loop(n: int) -> None:
    found = ngrams(EXAMPLES.x.astype(np.int64), EXAMPLES, n)
    for example, sequence in enumerate(SEQUENCES):
        wanted = Counter(tuple(sequence[i : i + n]) for i in range(len(sequence) - n + 1))
        assert sorted(found.times[found.example == example]) == sorted(wanted.values())
    both = [set(found.bucket[found.example == example]) for example in (0, 2)]
    grams = [{tuple(s[i : i + n]) for i in range(len(s) - n + 1)} for s in (SEQUENCES[0], SEQUENCES[2])]
    assert len(both[0] & both[1]) == len(grams[0] & grams[1]), "what is equal has one bucket"


def test_places_and_lengths() -> None:
    codes = EXAMPLES.x.astype(np.int64)
    first, last = ends(codes, EXAMPLES, 1), ends(codes, EXAMPLES, -2)
    assert first.bucket[0] == first.bucket[2] != first.bucket[1]
    assert np.bincount(last.example).tolist() == [2, 1, 2]
    assert np.bincount(positions(codes, EXAMPLES).example).tolist() == [4, 1, 3]
    assert len(set(lengths(codes, EXAMPLES).bucket)) > 3
    pair = replace(EXAMPLES, x=codes[:2], offsets=np.array([0, 1, 2]), documents=2, y=np.array([0]))
    assert ngrams(np.array([5, 5]), pair, 1).bucket.size == 2, "each document has buckets of its own"


def test_symbols_that_training_has_not_do_not_speak_for_the_rarer_class() -> None:
    """Eight in ten runs of three are in no training sequence; one class has nine tenths of all examples."""
    rng = np.random.default_rng(0)
    made: dict[SplitName, Examples] = {
        split: Examples.of_equal_length(rng.integers(0, 40, (200, 30)).astype(np.uint8), np.arange(200) % 10 // 9)
        for split in SPLITS
    }
    codes = {split: made[split].x.astype(np.int64) for split in SPLITS}
    train, test = (shallow.Counted(ngrams(codes[s], made[s], 3), made[s].y) for s in ("train", "test"))
    assert np.mean(~np.isin(test.features.bucket, train.features.bucket)) > 0.8
    goal = shallow._Goal.of(Known("none"), train.y)
    for rule, predict in shallow._rules(goal, train.features):
        right = float(goal.scores(predict(test.features, 200), test.y).mean())
        assert right > 0.75, rule  # of naive Bayes it was 0.1


KNOWING = {  # what decides the label -> rules that must know it, and rules that cannot
    "first": (("first 1", "first 8", "positions"), ("length", "last 1")),
    "length": (("length", "positions"), ("first 1", "first 8", "last 8")),
    "window": (("3-grams",), ("length", "1-grams", "positions", "first 8")),
    "none": ((), ("length", "first 8", "1-grams", "2-grams", "positions")),
}


@pytest.mark.parametrize("rule", KNOWING)
def test_a_rule_scores_what_it_can_know(rule: str) -> None:
    task = Known(rule)
    splits = task.build(None)
    enough, not_enough = KNOWING[rule]
    for name in enough:
        assert score(task, splits, PROBES[name]).test.mean() > 0.97, name
    for name in not_enough:
        assert abs(score(task, splits, PROBES[name]).test.mean() - 0.5) < 0.12, name


def test_only_the_rule_that_is_best_on_validation_answers_the_test_split(monkeypatch: pytest.MonkeyPatch) -> None:
    task, asked = Known("none", train=200, held_out=51), list[str]()
    splits = task.build(None)
    rarer, commoner = np.bincount(splits["val"].y).argsort()

    def always(label: int, name: str) -> Callable[[Features, int], np.ndarray]:
        def predict(found: Features, examples: int) -> np.ndarray:
            asked.append(name)
            return np.eye(2)[np.full(examples, label)]

        return predict

    rules = [(name, always(label, name)) for name, label in (("rarer", rarer), ("commoner", commoner))]
    monkeypatch.setattr(shallow, "_rules", lambda goal, train: iter(rules))
    answer = score(task, splits, PROBES["length"])
    assert asked == ["rarer", "commoner", "commoner"]  # on val each, and then on test
    assert (answer.rule, answer.validation) == ("commoner", (splits["val"].y == commoner).mean())
    assert answer.test.tolist() == (splits["test"].y == commoner).tolist()


def test_numbers_are_predicted_too() -> None:
    task = Known("sum")
    splits = task.build(None)
    explained = {
        n: 1 + score(task, splits, PROBES[n]).test.mean() / splits["test"].y.var() for n in ("1-grams", "length")
    }
    assert explained["1-grams"] > 0.9 and explained["length"] < 0.05


def _labelled(label: Callable[[np.ndarray, int], int]) -> dict[SplitName, Examples]:
    """Random symbols, 6 to 15 in each sequence, and at each step what the sequence says there; -1 for no label."""
    rng = np.random.default_rng(1)
    made: dict[SplitName, Examples] = {}
    for split, count in zip(SPLITS, (150, 40, 60), strict=True):
        rows = [rng.integers(0, 4, rng.integers(6, 16)).astype(np.uint8) for _ in range(count)]
        y = np.array([label(row, step) for row in rows for step in range(len(row))])
        made[split] = Examples.of_sequences(rows, y, stepwise=True)
    return made


CONTEXTS: dict[str, Callable[[list[int], list[int]], object]] = {  # of the symbols and labels up to a step
    "commonest": lambda x, y: None,
    "place": lambda x, y: len(x),
    **{f"latest {n}": lambda x, y, n=n: tuple(x[-n:]) for n in (1, 2, 3)},
    "shown": lambda x, y: next((x[at + 1] for at in reversed(range(len(x) - 1)) if y[at] >= 0), None),
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_a_rule_for_labels_at_steps_answers_as_a_loop_with_counters(name: str) -> None:
    splits = _labelled(lambda row, step: (int(row[step]) * 3 + int(row[step - 1]) + step // 4) % 3 - (row[step] == 2))

    def asked(split: SplitName) -> list[list[tuple[object, int]]]:
        examples = splits[split]
        rows = [(examples.sequence(i).tolist(), examples.y[slice(*examples.offsets[i : i + 2])].tolist())
                for i in range(len(examples))]  # fmt: skip
        return [[(CONTEXTS[name](x[: t + 1], y[: t + 1]), y[t]) for t in range(len(x)) if y[t] >= 0] for x, y in rows]

    tables: dict[object, Counter[int]] = defaultdict(Counter)
    for context, label in (each for row in asked("train") for each in row):
        tables[context][label] += 1
    overall = sum(tables.values(), Counter()).most_common(1)[0][0]
    best = {context: max(seen, key=lambda label: (seen[label], label)) for context, seen in tables.items()}
    scores = {s: [np.mean([best.get(c, overall) == y for c, y in row]) for row in asked(s)] for s in ("val", "test")}
    answer = steps.score(Known(), splits, steps.contexts(StepLabels(3))[name])
    assert np.allclose(answer.test, scores["test"]) and np.isclose(answer.validation, np.mean(scores["val"]))


STEPS = {  # what the label of a step is -> rules that must know it, and rules that cannot
    "its symbol": (lambda row, step: row[step], ("latest 1", "latest 2", "latest 3"), ("commonest", "place")),
    "two before": (lambda row, step: row[step - 2] if step > 1 else -1, ("latest 3",), ("latest 2", "shown", "place")),
    "its number": (lambda row, step: step % 4, ("place",), ("commonest", "latest 1", "latest 2")),
}


@pytest.mark.parametrize("label", STEPS)
def test_a_rule_for_labels_at_steps_scores_what_it_can_know(label: str) -> None:
    said, enough, not_enough = STEPS[label]
    splits, contexts = _labelled(lambda row, step: int(said(row, step))), steps.contexts(StepLabels(4))
    for name in enough:
        assert steps.score(Known(), splits, contexts[name]).test.mean() > 0.98, name
    for name in not_enough:
        assert steps.score(Known(), splits, contexts[name]).test.mean() < 0.4, name


@pytest.mark.parametrize("task", [RunningParity(16, train=1_500, val=50, test=500), Words(9, train=4_000, test=500)])
def test_the_latest_symbols_have_of_a_group_what_its_bound_allows(task: RunningParity | Words) -> None:
    """All of the first steps, which they see whole, and chance at every other."""
    splits, contexts = task.build(None), steps.contexts(task.output)
    for window in (1, 2, 3):
        found = steps.score(task, splits, contexts[f"latest {window}"]).test.mean()
        assert abs(found - task.bounded(window)) < 0.02, window
    assert abs(steps.score(task, splits, contexts["place"]).test.mean() - task.chance) < 0.02


def test_what_a_window_has_after_the_first_steps_is_the_mean_of_those_steps() -> None:
    task = RunningParity(16, train=1_500, val=50, test=500)
    splits, contexts = task.build(None), steps.contexts(task.output)
    answer = steps.score(task, splits, contexts["latest 3"])
    assert answer.later is not None and answer.test.mean() > 0.58
    assert np.allclose(answer.test, (3 + 13 * answer.later[0]) / 16)  # of the first three it knows all
    y = splits["test"].y.reshape(500, 16)
    commonest = np.bincount(splits["train"].y).argmax()
    assert np.allclose(answer.later[1], (y[:, 3:] == commonest).mean(1))
    for name in ("commonest", "place", "shown"):
        assert steps.score(task, splits, contexts[name]).later is None


def test_examples_without_a_step_after_the_first_ones_have_no_score_there() -> None:
    """Nor has anything where all labels stand at first steps, or none does."""
    rows = [np.arange(length, dtype=np.uint8) % 4 for length in (2, 5, 3)]
    examples = Examples.of_sequences(rows, np.concatenate([row.astype(np.int64) for row in rows]), stepwise=True)
    splits: dict[SplitName, Examples] = dict.fromkeys(("train", "val", "test"), examples)
    later = steps.score(Known(), splits, steps.contexts(StepLabels(4))["latest 3"]).later
    assert later is not None and np.isnan(later[0]).tolist() == [True, False, True] and later[0, 1] == 1
    short = examples.take(np.array([0, 2]))
    splits = dict.fromkeys(splits, short)
    assert steps.score(Known(), splits, steps.contexts(StepLabels(4))["latest 3"]).later is None
    y = np.concatenate([np.where(np.arange(len(row)) < 3, -1, row.astype(np.int64)) for row in rows])
    splits = dict.fromkeys(splits, replace(examples, y=y))
    assert steps.score(Known(), splits, steps.contexts(StepLabels(4))["latest 3"]).later is None


def test_flip_flop_gives_away_its_last_bit_and_its_last_answer() -> None:
    task = FlipFlop(40, train=500, val=50, test=200, ignored=0.5)
    splits, contexts = task.build(None), steps.contexts(task.output)
    overall = np.bincount(splits["train"].y[splits["train"].y >= 0]).argmax()
    last, shown = [], []
    for i in range(len(splits["test"])):
        x = splits["test"].sequence(i).tolist()
        reads = [t for t in range(len(x)) if x[t] == READ]
        last.append(np.mean([x[t - 1] == x[t + 1] for t in reads]))
        before = [overall, *(x[t + 1] for t in reads)]
        shown.append(np.mean([told == x[t + 1] for told, t in zip(before, reads, strict=False)]))
    assert np.allclose(steps.score(task, splits, contexts["latest 2"]).test, last)
    assert np.allclose(steps.score(task, splits, contexts["shown"]).test, shown)
    assert np.mean(shown) > 0.65


def test_where_one_state_answers_at_all_steps_no_rule_reads_a_symbol() -> None:
    assert list(steps.contexts(StepLabels(3, pooled=True))) == ["commonest", "place"]


def test_leaks_duplicates_and_contradictions_are_counted() -> None:
    task = Known("none", train=200, held_out=50)
    splits = dict(task.build(None))
    test = splits["test"]
    splits["train"] = Examples.of_sequences(
        [splits["train"].sequence(i) for i in range(200)] + [test.sequence(i) for i in range(20)],
        np.concatenate([splits["train"].y, test.y[:10], 1 - test.y[10:20]]),
    )
    assert leaked(splits) == 0.4
    found = {
        (row.get("metric"), row.get("at", "")): row.get("value") for row in facts(task, splits, {"train+test": 3}, 7)
    }
    assert found["exact_duplicates", "in=train+test"] == 20 and found["contradictions", ""] == 10
    assert found["near_duplicates", "in=test in train"] == 20 and found["leaked", ""] == 0.4
    assert found["shared_groups", "in=train+test"] == 3 and found["left_out", ""] == 7


def test_one_number_that_makes_up_the_variance_of_a_split_is_a_fact(tmp_path: Path) -> None:
    lines = [f"{i} {i % 7} {i % 5},{i % 10},{'train' if i < 60 else 'test' if i < 90 else 'val'}" for i in range(100)]
    lines[3] = lines[3].replace(",3,", ",1e12,")
    (tmp_path / "a.csv").write_text("\n".join(["x,y,s", *lines]))
    own = OwnData(str(tmp_path / "a.csv"), symbols="x", target=("y",), split="s")
    rows = [row for row in facts(own, own.build(None)) if row.get("metric") == "outlier"]
    assert [(row.get("split"), row.get("n")) for row in rows] == [("train", 60)]
    assert rows[0].get("value") == pytest.approx(59 / 60), (
        "the others are the rest of the variance: they lie off the mean"
    )
    few = Examples.of_equal_length(np.zeros((19, 1)), np.eye(19)[0])
    assert outlier(few) == 0.0, "of few examples one may well have most of the variance"


def test_signals_too_short_to_have_near_duplicates_are_counted() -> None:
    class Wave(Known):
        input = Signal(1, (0.0,), (1.0,))  # pyright: ignore[reportAssignmentType,reportIncompatibleMethodOverride]

    x = np.random.default_rng(0).standard_normal((300, 4, 1)).astype(np.float32)
    y = np.arange(300) % 2
    splits = dict(zip(SPLITS, (Examples.of_equal_length(x[i::3], y[i::3]) for i in range(3)), strict=True))
    found = {(row.get("metric"), row.get("at", "")): row.get("value") for row in facts(Wave("none"), splits)}
    assert found["not_compared", ""] == 300 and found["near_duplicates", "in=test in train"] == 0


@pytest.mark.parametrize(("order", "block"), [("within", 4), ("across", 4), ("none", 0)])
def test_a_view_keeps_what_it_says_and_destroys_the_rest(order, block: int) -> None:
    task = ListOps(minimum=10, length=40, max_depth=3, max_args=4, train=30, val=10, test=10)
    made, shown = task.build(None), View(task, order=order, block=block).build(None)
    changed = 0
    for split in SPLITS:
        assert (shown[split].y == made[split].y).all()
        for i in range(len(made[split])):
            old, new = made[split].sequence(i), shown[split].sequence(i)
            assert sorted(old) == sorted(new)
            changed += (old != new).any()
            cut = [old[at : at + block] for at in range(0, len(old), block)] if block else []
            if order == "within":
                assert all(sorted(p) == sorted(new[4 * n : 4 * n + 4]) for n, p in enumerate(cut))
            if order == "across":
                text = new.tobytes()
                assert all(part.tobytes() in text for part in cut)
    assert changed > 40


def test_a_view_does_not_repeat_what_the_task_warns_of(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"text {i},{i % 2 if i else ''}\n" for i in range(40)))
    task = OwnData(str(tmp_path / "a.csv"), text="x", label="y")
    with pytest.warns(UserWarning, match="1 of 40 rows without input or label was left out"):
        task.build(None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        View(task).build(None)


def test_a_view_of_part_has_the_labels_in_their_shares() -> None:
    task = Parity()
    whole, part = task.build(None), View(task, most=(10, 4, 4)).build(None)
    assert [len(part[split]) for split in SPLITS] == [min(10, len(whole["train"])), 4, 4]
    assert set(np.unique(part["train"].y)) == set(np.unique(whole["train"].y))
