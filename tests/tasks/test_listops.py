"""ListOps' values, law and determinism, against an evaluator and a generator written a second time."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from listops_twin import Tree, apart, nesting, official, parse, symbols, tree_strategy, value, words

from levelfield.spec import Examples, SplitName, UserError
from levelfield.tasks._listops import expressions
from levelfield.tasks._listops.levels import likeliest
from levelfield.tasks.listops import SYMBOLS, ListOps, length_distribution

MIDDLE = ListOps(minimum=20, length=200, max_depth=6, max_args=5, train=4000, val=20, test=20)


@cache
def built(task: ListOps) -> dict[SplitName, Examples]:
    return dict(task.build(None))


@settings(max_examples=200, deadline=None)
@given(st.lists(tree_strategy(), min_size=1, max_size=5))
def test_compiled_values_are_those_of_recursive_descent(trees: list[Tree]) -> None:
    examples = Examples.of_sequences([symbols(t) for t in trees], np.zeros(len(trees)))
    labels, depths, _ = expressions.survey(examples.x, examples.offsets)
    assert labels.tolist() == [value(t) for t in trees]
    assert depths.tolist() == [nesting(t) for t in trees]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("[MED 2 5 ]", 3), ("[MED 1 2 ]", 1), ("[MED 9 0 4 ]", 4), ("[SM 9 9 9 ]", 7), ("7", 7)],
)
def test_values_worked_by_hand(text: str, expected: int) -> None:
    tokens = np.array([SYMBOLS.index(w) for w in text.split()], np.uint8)
    assert expressions.survey(tokens, np.array([0, len(tokens)]))[0].tolist() == [expected]


@pytest.mark.parametrize("text", ["[MAX 1", "[MAX ]", "]", "1 2", "[MAX 1 ] 2", "[MAX 1 ] ]", "[MAX 1 ] [MIN 2 ]", ""])
def test_what_is_no_expression_has_no_value(text: str) -> None:
    tokens = np.array([SYMBOLS.index(w) for w in text.split()], np.uint8)
    assert expressions.survey(tokens, np.array([0, len(tokens)]))[0].tolist() == [expressions.MALFORMED]


def test_closing_brackets_are_what_tells_these_apart() -> None:
    one, other = ["[SM", "5", "[MAX", "1", "]", "3", "]"], ["[SM", "5", "[MAX", "1", "3", "]", "]"]
    assert [w for w in one if w != "]"] == [w for w in other if w != "]"]
    assert value(parse(one)) != value(parse(other))
    ids = [[SYMBOLS.index(w) for w in tokens] for tokens in (one, other)]
    assert ids[0] != ids[1] and len(SYMBOLS) == ListOps().input.symbols == 15


def test_every_generated_label_is_the_value() -> None:
    task = ListOps(train=150, val=30, test=30)
    for examples in built(task).values():
        for i in range(len(examples)):
            tree = parse(words(examples.sequence(i)))
            assert value(tree) == examples.y[i]
            assert tree[0] == examples.slices["root"][i] and nesting(tree) == examples.slices["depth"][i]
            low, high = map(int, examples.slices["length"][i].split("-"))
            assert max(low, 501) <= examples.lengths[i] <= min(high, 1999)


def test_the_law_is_that_of_the_official_recursion() -> None:
    theirs = official(random.Random(5), MIDDLE, 4000)
    ours = [parse(words(built(MIDDLE)["train"].sequence(i))) for i in range(4000)]
    far = apart(theirs, ours, 5)
    assert max(far.values()) < 4.5, far


def test_the_comparison_sees_a_wrong_law() -> None:
    theirs = official(random.Random(5), MIDDLE, 1500)
    far = apart(theirs, official(random.Random(6), replace(MIDDLE, max_args=4), 1500), 5)
    assert min(far[name] for name in ("length", "root arguments", "operators")) > 6, far


def test_lengths_follow_the_exact_law() -> None:
    law = length_distribution(MIDDLE.length, MIDDLE.max_depth, MIDDLE.max_args)
    inside = np.arange(len(law)) > MIDDLE.minimum
    expected = law * inside / law[inside].sum()
    counts = np.bincount(built(MIDDLE)["train"].lengths, minlength=len(law))
    mean, spread = 4000 * expected[inside], np.sqrt(4000 * expected[inside])
    assert counts[~inside].sum() == 0
    assert np.abs((counts[inside] - mean) / spread).max() < 4.5


def test_length_distribution_by_counting_small_trees() -> None:
    """At two levels the root has n digits, n uniform in 2..4; one more level is worked out by hand for length 4."""
    assert length_distribution(8, 2, 4) == pytest.approx([0, 0, 0, 0, 1 / 3, 1 / 3, 1 / 3, 0])
    assert length_distribution(8, 3, 4)[4] == pytest.approx(0.75**2 / 3)
    assert length_distribution(8, 3, 4)[7] == pytest.approx((2 * 0.75 * 0.25 / 3) / 3)  # [a [b 1 2 ] 3 ]: 2 + 4 + 1


def test_published_statistics() -> None:
    """miralles2025 appendix B: always 0, or always 9, is right about 17 % of the time; the root's majority, 36 %."""
    task = ListOps(train=20000, val=1, test=8000)
    splits = built(task)
    assert np.mean(splits["train"].y == 0) == pytest.approx(0.17, abs=0.012)
    assert np.mean(splits["train"].y == 9) == pytest.approx(0.17, abs=0.012)
    scores = task.baselines(splits["train"], splits["test"])
    assert scores["label_prior"] == pytest.approx(0.17, abs=0.018)
    assert scores["greedy_root"] == pytest.approx(0.36, abs=0.02)
    assert scores["one_level"] == pytest.approx(0.61, abs=0.02)
    for root, label in (("MIN", 0), ("MAX", 9), ("MED", 4)):
        of_root = splits["train"].y[splits["train"].slices["root"] == root]
        assert np.bincount(of_root).argmax() == label


def test_the_same_whatever_the_blocks_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    task = ListOps(minimum=10, length=80, max_depth=5, train=300, val=20, test=20)
    first = task.build(None)
    monkeypatch.setattr("levelfield.tasks.listops.BLOCK", 7)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    second = task.build(None)
    for split in first:
        assert first[split].x.tobytes() == second[split].x.tobytes()
        assert first[split].offsets.tolist() == second[split].offsets.tolist()


def test_golden_bytes() -> None:
    """A change of these is a change of `version`: prepared folders and published rows would differ."""
    task = ListOps(minimum=5, length=16, max_depth=3, max_args=3, train=2, val=1, test=2)
    splits = task.build(None)
    assert [" ".join(words(splits["test"].sequence(i))) for i in range(2)] == GOLDEN


GOLDEN = ["[MIN [MIN 5 9 6 ] 9 ]", "[MIN [SM 4 1 0 ] 5 ]"]


def test_counts_of_one_split_do_not_move_another() -> None:
    more = built(replace(MIDDLE, train=10, val=200))
    assert more["test"].x.tobytes() == built(MIDDLE)["test"].x.tobytes()
    assert more["val"].x[: built(MIDDLE)["val"].x.size].tobytes() == built(MIDDLE)["val"].x.tobytes()


def test_another_window_is_another_stream() -> None:
    """Otherwise the probe at twice the length would test on expressions that were trained on."""
    wider = built(replace(MIDDLE, length=400))
    seen = {built(MIDDLE)["train"].sequence(i).tobytes() for i in range(4000)}
    assert not seen & {wider["train"].sequence(i).tobytes() for i in range(4000)}


def test_at_length_scales_the_window() -> None:
    task = ListOps(minimum=10, length=100, max_depth=4, train=5, val=5, test=50)
    for factor in (0.5, 2, 4):
        other = task.at_length(int(100 * factor))
        lengths = built(other)["test"].lengths
        assert lengths.min() > 10 * factor and lengths.max() < 100 * factor and lengths.max() <= other.max_length
    assert task.at_length(100) == task
    assert replace(task, origin="official").at_length(200).origin == "generated"
    with pytest.raises(UserError, match="train=0 is too small"):
        task.at_length(200, examples=0)
    few = task.at_length(200, examples=7)
    assert (few.train, few.val, few.test) == (7, 7, 7)
    ListOps().at_length(8000).require_feasible()


@pytest.mark.parametrize(
    "wrong",
    [
        {"minimum": 100, "length": 101},
        {"minimum": 0},
        {"max_args": 1},
        {"max_depth": 1},
        {"test": 0},
        {"minimum": 500, "length": 2000, "max_depth": 3},
        {"minimum": 1, "length": 4},
        {"minimum": 3, "length": 5, "train": 500},
    ],
)
def test_what_cannot_be_drawn_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UserError, match="ListOps"):
        replace(ListOps(train=1, val=1, test=1), **wrong).build(None)


def test_at_length_that_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(UserError, match="widen the window"):
        ListOps().at_length(4)
    with pytest.raises(UserError, match="widen the window"):
        ListOps(minimum=10, length=100, max_depth=3).at_length(2000)


def test_all_of_a_small_world_is_found_and_split() -> None:
    """Four-token expressions are 4 operators times 100 pairs of digits: every one turns up, each in one split."""
    splits = ListOps(minimum=3, length=5, train=300, val=50, test=50).build(None)
    seen = [splits[s].sequence(i).tobytes() for s in ("train", "val", "test") for i in range(len(splits[s]))]
    assert len(set(seen)) == len(seen) == 400


def test_works_where_no_cache_can_be_written() -> None:
    code = (
        "from numba.core import caching\n"
        "def refuse(self): raise PermissionError('read-only')\n"
        "caching._CacheLocator.ensure_cache_path = refuse\n"
        "from levelfield.tasks._listops.expressions import tokenize\n"
        "import numpy as np\n"
        "out = np.zeros(9, np.uint8)\n"
        "print(tokenize(np.frombuffer(b'( [MAX 3 )', np.uint8), out), out[:2].tolist(), tokenize.stats.cache_path)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "[10,", "3]", "None"]


def written(*texts: str) -> Examples:
    """Returns expressions that are written in the task's symbols."""
    tokens = [np.array([SYMBOLS.index(symbol) for symbol in text.split()], np.uint8) for text in texts]
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in tokens])])
    return ListOps()._examples(np.concatenate(tokens), offsets)[0]


KNOWN = written("[MAX 7 1 ]", "[MAX 7 2 ]", "[MAX 3 3 ]", "[MIN 2 8 ]", "[MED 5 5 ]")  # no sum, so any label


def test_a_reader_of_one_level_knows_operators_and_digits_alone() -> None:
    """MAX is mostly 7 in train: that decides where no digit is higher; MIN is always 2, whatever stands inside."""
    asked = written(
        "[MAX 4 [MAX 0 9 ] ]",
        "[MAX 8 [MAX 0 9 ] ]",
        "[SM 1 [MIN 8 9 ] [MIN 9 9 ] ]",
        "[SM 1 [MIN [SM 1 2 ] 3 ] [MIN 0 0 ] ]",
        "[MED 1 3 9 ]",
    )
    assert likeliest(KNOWN, asked, 1).tolist() == [7, 8, 5, 5, 3]
    assert likeliest(KNOWN, asked, 0).tolist()[:2] == [7, 7]


def test_readers_are_right_as_often_as_their_chances_say() -> None:
    """One inner MAX is 7 with probability 2/3 and 3 with 1/3; the sum of two is 4, 0 or 6 with 4/9, 4/9 and 1/9."""
    asked = written(*(f"[SM {digit} [MAX 0 {inner} ] ]" for digit in range(10) for inner in (7, 7, 3)))
    assert np.mean(likeliest(KNOWN, asked, 1) == asked.y) == pytest.approx(2 / 3)
    twice = written("[SM [MAX 0 0 ] [MAX 1 1 ] ]")
    assert likeliest(KNOWN, twice, 1)[0] in (4, 0)


def test_a_reader_of_all_levels_evaluates() -> None:
    splits = ListOps(minimum=10, length=80, max_depth=5, train=300, val=20, test=300).build(None)
    test = splits["test"]
    shares = [np.mean(likeliest(splits["train"], test, levels) == test.y) for levels in range(5)]
    assert shares[-1] == 1 and shares == sorted(shares)


def test_a_tree_of_one_level_has_no_rule_that_reads_it() -> None:
    splits = ListOps(minimum=2, length=24, max_depth=2, max_args=4, train=30, val=10, test=10).build(None)
    task = ListOps(minimum=2, length=24, max_depth=2, max_args=4)
    assert "one_level" not in task.baselines(splits["train"], splits["test"])
