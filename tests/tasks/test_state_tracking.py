"""Tasks of state tracking against automata written out by hand: permutation matrices, a stack, a bit that is kept."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal, localcontext
from functools import reduce
from itertools import permutations

import numpy as np
import pytest
from repository import ROOT

from levelfield.spec import Examples, UserError
from levelfield.tasks import words
from levelfield.tasks._state_tracking import GroupWords, StateTracking
from levelfield.tasks.dyck import Dyck
from levelfield.tasks.flipflop import FlipFlop
from levelfield.tasks.modular import Modular
from levelfield.tasks.parity import Parity
from levelfield.tasks.words import GROUPS, Group, Words, elements

TASKS: tuple[StateTracking, ...] = (
    Parity(14, None, 40, 10, 60),
    Modular(9, None, 40, 10, 60, modulus=7),
    Words(7, None, 40, 10, 60),
    FlipFlop(24, None, 40, 10, 60, ignored=0.4),
    Dyck(21, None, 40, 10, 60, kinds=3, depth=3),
)
every_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
ORDERS = {"S3": 6, "A4": 12, "S4": 24, "A5": 60, "S5": 120}


def rows(task: StateTracking, examples: Examples) -> list[tuple[list[int], list[int]]]:
    """Each sequence with its labels."""
    x, y = (part.reshape(-1, task.length).tolist() for part in (examples.x, examples.y))
    return list(zip(x, y, strict=True))


@pytest.mark.parametrize("modulus", [2, 5, 12])
def test_prefixes_are_counted(modulus: int) -> None:
    task = Parity(14, None, 40, 10, 60) if modulus == 2 else Modular(14, None, 40, 10, 60, modulus=modulus)
    for x, y in rows(task, task.build(None)["test"]):
        assert y == [sum(x[: end + 1]) % modulus for end in range(14)]


@pytest.mark.parametrize("group", GROUPS)
def test_words_are_products_of_permutation_matrices(group: Group) -> None:
    """The matrix of g sends unit vector i to g[i]; reading from left to right multiplies from the left."""
    known = elements(group)
    matrices = [np.eye(len(g), dtype=int)[:, np.argsort(g)].T for g in known]
    places = np.arange(known.shape[1])
    assert all(
        (m @ np.eye(len(g), dtype=int)[i] == np.eye(len(g), dtype=int)[g[i]]).all()
        for m, g in zip(matrices, known, strict=True)
        for i in places
    )
    task = Words(5, None, 40, 10, 60, group=group)
    for x, y in rows(task, task.build(None)["test"]):
        for end in range(5):
            product = reduce(lambda so_far, symbol: matrices[symbol] @ so_far, x[: end + 1], np.eye(len(places)))
            assert (product == matrices[y[end]]).all()


def test_the_examples_of_words_follow_every_place_through_all_maps() -> None:
    task = Words(3, train=1, val=1, test=1)
    for text in (str(words.__doc__), (ROOT / "docs" / "tasks.md").read_text()):
        found = re.search(r"((?:\(\d \d \d\) +){3})-> +(\d{3}) +(\d{3}) +(\d{3})", text)
        assert found is not None
        maps = [[int(place) for place in written.split()] for written in re.findall(r"\(([\d ]+)\)", found[1])]
        places, shown = [0, 1, 2], []
        for moved in maps:
            places = [moved[place] for place in places]
            shown.append("".join(map(str, places)))
        assert list(found.groups()[1:]) == shown
        answers = task.answers(np.array([[elements("S3").tolist().index(moved) for moved in maps]]))
        assert ["".join(map(str, elements("S3")[answer])) for answer in answers[0]] == shown


@pytest.mark.parametrize("group", GROUPS)
def test_the_groups_are_those_of_their_names(group: Group) -> None:
    known, places = elements(group).tolist(), int(group[1])
    assert len(known) == ORDERS[group] == len({tuple(g) for g in known}) and known[0] == list(range(places))
    every = [list(g) for g in permutations(range(places))]
    even = [g for g in every if np.linalg.det(np.eye(places)[g]) > 0]
    assert known == (even if group[0] == "A" else every)


@pytest.mark.parametrize("task", [t for t in TASKS if isinstance(t, GroupWords)] + [Words(group="A5")], ids=str)
def test_tables_are_those_of_groups(task: GroupWords) -> None:
    """The first element is neutral, every row and column holds each element once, and products associate."""
    table, order = task.table, np.arange(task.order)
    assert (table[0] == order).all() and (table[:, 0] == order).all()
    assert (np.sort(table, axis=0) == order[:, None]).all() and (np.sort(table, axis=1) == order).all()
    assert (table[table] == table[order[:, None, None], table]).all()


@pytest.mark.parametrize("group", GROUPS)
def test_a_few_symbols_generate_the_whole_group(group: Group) -> None:
    task = Words(12, None, 40, 10, 60, group=group, generators=True)
    reached, size = {0}, 0
    while len(reached) > size:
        size = len(reached)
        reached |= {int(task.table[g, s]) for g in reached for s in task.alphabet}
    assert len(reached) == ORDERS[group] and task.input.symbols == 3 and task.output.classes == ORDERS[group]
    known = elements(group)
    for x, y in rows(task, task.build(None)["test"]):
        state = list(range(int(group[1])))
        for symbol, label in zip(x, y, strict=True):
            state = [int(known[task.alphabet[symbol]][place]) for place in state]
            assert state == known[label].tolist()
    with pytest.raises(UserError, match="where all elements are symbols"):
        task.bounded(3)


def test_where_symbols_generate_the_group_early_answers_are_few() -> None:
    """As the page on tasks says: the number of a step tells something at the length of training, and nothing beyond."""
    task = Words(64, train=1, val=1, test=2_000, group="A5", generators=True)
    y = task.build(None)["test"].y.reshape(-1, 64)
    commonest = np.array([np.bincount(y[:1_000, step], minlength=60).argmax() for step in range(64)])
    right = (y[1_000:] == commonest).mean(0)
    assert abs(right[:32].mean() - 0.046) < 0.006 and abs(right[32:].mean() - 1 / 60) < 0.004


def test_answers_are_uniform_at_every_step() -> None:
    task = Words(4, train=1, val=1, test=600)
    y = task.build(None)["test"].y.reshape(-1, 4)
    for step in range(4):
        assert np.abs(np.bincount(y[:, step], minlength=6) - 100).max() < 4.5 * np.sqrt(600 * 5 / 36)


@pytest.mark.parametrize("steps", [1, 3, 6, 9])
@pytest.mark.parametrize("asked", [None, 4])
def test_the_bound_is_what_a_window_knows(steps: int, asked: int | None) -> None:
    """Of all prefixes of six bits, one that is longer than the window has both answers equally often."""
    task = Parity(6, asked=asked)
    x = np.array([[code >> place & 1 for place in range(6)] for code in range(64)])
    scores = []
    for end in range(task.unasked + 1, 7):
        seen, y = [tuple(row) for row in x[:, max(0, end - steps) : end].tolist()], x[:, :end].sum(1) % 2
        right = [max(np.bincount(y[[s == key for s in seen]])) for key in sorted(set(seen))]
        scores.append(sum(right) / 64)
    assert task.bounded(steps) == pytest.approx(np.mean(scores))


@pytest.mark.parametrize(
    "task",
    [
        Parity(12, train=2_000, val=100, test=900),
        Parity(16, train=50_000, val=100, test=500),
        Parity(13, asked=3, train=3_000, val=100, test=900),
        Modular(8, modulus=3, train=2_000, val=100, test=900),
        Words(9, group="A5", generators=True, train=2_000, val=100, test=900),
    ],
    ids=repr,
)
def test_what_is_memorised_is_what_a_table_of_training_prefixes_knows(task: GroupWords) -> None:
    splits = task.build(None)
    train, test = (splits[split].x.reshape(-1, task.length) for split in ("train", "test"))
    known = []
    for steps in range(task.unasked + 1, task.length + 1):
        table = {row.tobytes() for row in train[:, :steps]}
        known.append(np.mean([row.tobytes() in table for row in test[:, :steps]]))
    assert known[-1] == 0  # no test sequence is in train
    assert task.memorised == pytest.approx(np.mean(known), abs=0.01)


@pytest.mark.parametrize("length", [2, 16, 256, 1_023, 1_024, 3_000])
@pytest.mark.parametrize("asked", [None, 2])
def test_what_is_memorised_is_known_at_lengths_with_more_sequences_than_a_float_can_count(
    length: int, asked: int | None
) -> None:
    """By powers of decimal numbers. Of two bits, one other sequence of three begins alike: 1 / 3 at one step of two."""
    task = Parity(length, asked, train=1 if length == 2 else 50_000)
    with localcontext(prec=1_000):
        other = (1 - Decimal(task.train) / (2**length - 1)).ln()
        steps = range(task.unasked + 1, length + 1)
        known = sum(1 - ((2 ** (length - step) - 1) * other).exp() for step in steps) / len(steps)
        assert task.memorised == pytest.approx(float(known), rel=1e-9)
    if length == 2:
        assert task.memorised == pytest.approx(1 / 6)


def test_a_flip_flop_keeps_the_bit_that_was_written() -> None:
    task = TASKS[3]
    assert isinstance(task, FlipFlop)
    examples = task.build(None)["test"]
    for (x, y), distance in zip(rows(task, examples), examples.slices["distance"].tolist(), strict=True):
        assert x[0] == 2 and x[-2] == 3
        memory, written = -1, -1
        for step in range(0, 24, 2):
            told, bit = x[step : step + 2]
            assert told in (2, 3, 4) and bit in (0, 1)
            if told == 2:
                memory, written = bit, step
            assert (y[step], y[step + 1]) == (memory if told == 3 else -1, -1)
            assert told != 3 or bit == memory
        assert distance / 2 < 22 - written <= distance


def test_instructions_come_as_often_as_they_should() -> None:
    task = FlipFlop(400, train=1, val=1, test=60)
    told = task.build(None)["test"].x.reshape(-1, 200, 2)[:, 1:-1, 0]
    shares = np.bincount(told.ravel(), minlength=5)[2:] / told.size
    assert np.abs(shares - [0.1, 0.1, 0.8]).max() < 4.5 * np.sqrt(0.16 / told.size)


def test_brackets_nest_and_the_innermost_one_is_asked() -> None:
    task = TASKS[4]
    assert isinstance(task, Dyck)
    examples = task.build(None)["test"]
    for (x, y), deepest in zip(rows(task, examples), examples.slices["depth"].tolist(), strict=True):
        stack, most = [], 0
        for symbol, label in zip(x, y, strict=True):
            if symbol < 3:
                stack.append(symbol)
            else:
                assert stack.pop() == symbol - 3
            most = max(most, len(stack))
            assert label == (stack[-1] if symbol >= 3 and stack else -1)
        assert most == deepest <= 3


def test_brackets_open_and_close_equally_often_where_both_can_be() -> None:
    x = Dyck(60, train=1, val=1, test=300).build(None)["test"].x.reshape(-1, 60)
    opens = x < 2
    level = np.cumsum(np.where(opens, 1, -1), axis=1) - np.where(opens, 1, -1)  # before the step
    assert opens[level == 0].all() and not opens[level == 4].any()
    free = opens[(level > 0) & (level < 4)]
    assert abs(free.mean() - 0.5) < 4.5 * 0.5 / np.sqrt(len(free))


def test_what_was_opened_last_is_closed_where_something_is_asked_and_three_symbols_say_more() -> None:
    """As the page on tasks says; every bracket is told from the others by the step that opens it."""
    task = Dyck(train=1, val=1, test=400)
    right: list[bool] = []
    for x, y in rows(task, task.build(None)["test"]):
        opened: list[int] = []
        still: list[int] = []
        for step, (symbol, label) in enumerate(zip(x, y, strict=True)):
            if symbol < 2:
                opened.append(step)
                still.append(step)
            else:
                still.pop()
            if label >= 0:
                assert opened[-1] not in still
                right.append(x[opened[-2]] == label)
    assert abs(np.mean(right) - 0.68) < 0.02


@every_task
def test_only_the_last_steps_are_asked_and_longer_sequences_ask_as_many(task: StateTracking) -> None:
    some = replace(task, asked=4)
    y = some.build(None)["test"].y.reshape(-1, task.length)
    assert (y[:, :-4] == -1).all() and ((y[:, -4:] >= 0).any(1)).all()
    longer = some.at_length(3 * task.length, 20)
    assert (longer.asked, longer.test) == (4, 20) and 3 * task.length - longer.length < 2
    assert (longer.build(None)["test"].y.reshape(20, -1)[:, :-4] == -1).all()
    assert some.at_length(4).asked == 4 and task.at_length(90).asked is None and task.at_length(90).train == task.train


@every_task
def test_labels_of_other_sequences_are_found_wrong(task: StateTracking) -> None:
    examples = task.build(None)["val"]
    x, y = examples.x.reshape(-1, task.length), examples.y.reshape(-1, task.length)
    assert np.array_equal(task.recompute_labels(examples), examples.y)
    again = task.recompute_labels(replace(examples, x=x[::-1].reshape(-1)))
    assert np.array_equal(again, y[::-1].reshape(-1)) and not np.array_equal(again, examples.y)


def test_rules_that_look_at_one_step_are_scored() -> None:
    flip, nested = replace(TASKS[3], ignored=0.4), TASKS[4]
    for task, rule in ((flip, "last_bit"), (nested, "last_but_one_opened")):
        splits = task.build(None)
        right = []
        for x, y in rows(task, splits["test"]):
            for step in (step for step, label in enumerate(y) if label >= 0):
                opened = [symbol for symbol in x[: step + 1] if symbol < 3]
                right.append((x[step - 1] if rule == "last_bit" else opened[-2]) == y[step])
        assert task.baselines(splits["train"], splits["test"])[rule] == pytest.approx(np.mean(right))


def test_the_answer_to_the_question_before_is_a_rule() -> None:
    task = replace(TASKS[3], ignored=0.4)
    splits, right = task.build(None), []
    for x, y in rows(task, splits["test"]):
        said = x[1]  # what was written first
        for step in (step for step, label in enumerate(y) if label >= 0):
            right.append(said == y[step])
            said = x[step + 1]
    assert task.baselines(splits["train"], splits["test"])["last_answer"] == pytest.approx(np.mean(right))


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda: Parity(1), "Parity needs a length of at least 2"),
        (lambda: Parity(8, asked=9), "asks at 1 to 8 steps, not 9"),
        (lambda: Parity(val=0), "at least one sequence"),
        (lambda: Modular(modulus=1), "modulo 2 to 1,000, not 1"),
        (lambda: Words(group="S9"), "Words has no group='S9'"),  # pyright: ignore[reportArgumentType]
        (lambda: FlipFlop(9), "even length"),
        (lambda: FlipFlop(8, asked=1), "asked is at least 2"),
        (lambda: FlipFlop(ignored=1.0), "below 1"),
        (lambda: Dyck(kinds=1), "2 to 100 kinds"),
        (lambda: Dyck(2), "at least 3 steps"),
        (lambda: Parity(4, train=20).build(None), "too few different sequences"),
    ],
    ids=lambda value: value if isinstance(value, str) else "made",
)
def test_bad_settings_are_one_sentence(make, sentence: str) -> None:  # pyright: ignore[reportMissingParameterType]
    with pytest.raises(UserError, match=sentence):
        make()
