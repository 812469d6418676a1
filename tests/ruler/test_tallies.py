"""Tallies: every answer is counted again from the lines of the prompt, with and without written labels."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from toy_ruler import Pairs

from levelfield.ruler import Bytes, Sample, Tally, baselines, generate, named, score
from levelfield.ruler.beyond.tallies import ITEMS, LABELS
from levelfield.ruler.prompt.swaps import with_longer_texts
from levelfield.spec import UserError

TASKS = [Tally(), Tally("user"), Tally("most"), Tally("count", labelled=False), Tally("most", labelled=False)]


def lines(sample: Sample) -> list[tuple[str, str]]:
    """User and label of every line; where no label is written, the one under which the item is listed."""
    text = sample.text.partition("\n\nThe lines\n")[2].rpartition("\n\nQuestion: ")[0]
    cells = [line.split(" | ") for line in text.split("\n")]
    assert {len(row) for row in cells} == {3 if dict(sample.slices)["labelled"] else 2}
    assert len(cells) == dict(sample.slices)["lines"]
    found = [next(label for label, items in ITEMS.items() if row[1] in items) for row in cells]
    assert all(row[2] == label for row, label in zip(cells, found) if len(row) == 3)
    return [(row[0].removeprefix("User "), label) for row, label in zip(cells, found)]


def counted(sample: Sample) -> str:
    """The answer, counted from the prompt's text."""
    question = sample.text.rpartition("\n\nQuestion: ")[2]
    told = lines(sample)
    if question.startswith("Which label"):
        (first, most), *others = Counter(label for _, label in told).most_common(2)
        assert all(count < most for _, count in others)
        return first
    label = re.search(r"of the label (\w+)\?", question)
    user = re.search(r"of user (\d+)", question)
    assert label
    return str(sum(one == label[1] and (user is None or user[1] == who) for who, one in told))


@pytest.mark.parametrize("task", TASKS, ids=lambda t: t.name)
def test_the_answer_is_counted_again_from_the_text_and_the_length_is_exact(task: Tally) -> None:
    for tokenizer in (Pairs(), Bytes()):
        for sample in generate(task, 1800, tokenizer, count=5):
            assert sample.references == (counted(sample),)
            np.testing.assert_array_equal(sample.ids, tokenizer.encode(sample.text))
            assert 0 <= 1800 - sample.answer_tokens - len(sample.ids) <= 1


def test_samples_depend_on_seed_and_index_alone_and_ask_the_same_at_every_length() -> None:
    def questions(length: int, seed: int = 42, start: int = 0) -> list[str]:
        made = generate(Tally("user"), length, Bytes(), seed=seed, start=start, count=4 - start)
        return [sample.text.rpartition("\n\nQuestion: ")[2] for sample in made]

    assert questions(1500) == questions(4000)
    assert questions(1500, start=2) == questions(1500)[2:]
    assert questions(1500, seed=1) != questions(1500)


@pytest.mark.parametrize(
    ("task", "said", "match", "strict"),
    [
        (Tally(), " 12", 1, 1),
        (Tally(), " There are 13 of 1,200 lines", 0.75, 0),
        (Tally(), " 1,012", 0.75**1000, 0),
        (Tally(), " 8", 0.75**4, 0),
        (Tally(), " twelve\n12", 0, 0),
        (Tally("most"), " tool", 0, 0),
        (Tally("user"), " User 2960 has 12 lines", 1, 1),
        (Tally("user"), " 2960: 13", 0.75, 0),
        (Tally("user"), " 12 lines are of user 2960", 1, 1),
        (Tally("user"), " 2960", 0.75**1000, 0),
        (Tally(), " 2960, or 12", 0.75**1000, 0),
        (Tally(), " " + "1" * 5000, 0.75**1000, 0),
        (Tally(), " " + "1," * 5000, 0.75**1000, 0),
        (Tally(), " " + "0" * 5000 + "12", 1, 1),
    ],
)
def test_a_number_that_is_nearly_right_counts_by_its_distance(
    task: Tally, said: str, match: float, strict: float
) -> None:
    found = score(task, said, ("12",))
    assert (found.match, found.strict) == (pytest.approx(match), strict)


def test_a_count_that_is_a_users_number_is_an_answer() -> None:
    assert score(Tally("user"), " 2960 of 9000", ("2960",)).strict == 1


def test_of_labels_the_one_that_is_named_counts() -> None:
    for said, match in ((" tool", 1), (" Tool, I think", 1), (" tool or food", 0), (" tools", 0)):
        assert score(named("tallies_most"), said, ("tool",)).match == match


def test_guesses_are_an_even_share_and_any_label() -> None:
    samples = list(generate(Tally("user"), 1500, Bytes(), count=30))
    even = [round(len(told) / len(LABELS) / len({user for user, _ in told})) for told in map(lines, samples)]
    expected = np.mean([0.75 ** abs(guess - int(counted(s))) for guess, s in zip(even, samples)])
    assert baselines(Tally("user"), samples)["guess"] == pytest.approx(100 * expected)
    most = list(generate(Tally("most"), 1500, Bytes(), count=120))
    assert baselines(Tally("most"), most)["guess"] == pytest.approx(20, abs=4 * 3.7)


def test_lines_are_exchanged_for_longer_ones_of_their_group_alone() -> None:
    sizes, groups, rng = np.array([3, 5, 9, 4, 30]), np.array([0, 0, 0, 1, -1]), np.random.default_rng(0)
    found = with_longer_texts(np.array([4, 3, 0, 0, 0]), sizes, groups, left=8, rng=rng)
    assert (found[:2].tolist(), sorted(found[2:].tolist())) == ([4, 3], [0, 1, 2])
    once = with_longer_texts(np.array([0, 1]), sizes, groups, left=100, rng=rng, once=True)
    assert sorted(once.tolist()) in ([0, 2], [1, 2])


@pytest.mark.parametrize("once", [False, True])
def test_exchanges_are_those_of_trying_every_place(once: bool) -> None:
    """However many places share the size and group of one for which there was no longer text."""
    for seed in range(40):
        draw = np.random.default_rng(seed)
        sizes, groups = draw.integers(1, 12, size=30), draw.integers(-1, 3, size=30)
        order, left = draw.integers(30, size=200), int(draw.integers(40))
        found = with_longer_texts(order, sizes, groups, left=left, rng=np.random.default_rng(seed), once=once)
        naive, used = order.copy(), set(order.tolist()) if once else set[int]()
        for place in np.random.default_rng(seed).permutation(np.flatnonzero(groups[order] >= 0)):
            now = naive[place]
            more = [
                int(sizes[i] - sizes[now]) if groups[i] == groups[now] and i not in used else 0
                for i in range(len(sizes))
            ]
            best = max(range(len(sizes)), key=lambda i: more[i] if more[i] <= left else 0)
            if 0 < more[best] <= left:
                naive[place], left = best, left - more[best]
                used |= {best} if once else set()
        assert found.tolist() == naive.tolist()


def test_names_of_tallies() -> None:
    assert named("tallies_count_unlabelled") == Tally("count", labelled=False)
    with pytest.raises(UserError, match="There is no tally"):
        Tally("least")  # type: ignore[arg-type]
