"""Yes, no, maybe, counts and lists in stories: all answers are equally likely, and what a cue without reading gets."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator
from functools import cache

import numpy as np
import pytest

from levelfield.ruler import Bytes, Stories, baselines, generate
from levelfield.ruler.beyond.stories import story
from levelfield.ruler.beyond.story_worlds import Story

COUNT = 1500
NOISE = 4 * 50 / COUNT**0.5  # percent: four standard errors of a share


@cache
def stories(kind: int) -> list[Story]:
    return [story(kind, np.random.default_rng(seed)) for seed in range(COUNT)]


def form(fact: str) -> str:
    return "not" if " not " in fact else "or" if " or " in fact else "went"


def asked(told: Story) -> tuple[str, list[int], list[int]]:
    """The place of a question, the facts about its person, and which of those name the place."""
    person, place = re.findall(r"Is (\w+) in the (\w+)\?", told.question)[0]
    of_person = [i for i, fact in enumerate(told.facts) if fact.startswith(person)]
    return place, of_person, [i for i in of_person if place in told.facts[i]]


def last_fact(told: Story) -> Hashable:
    place, of_person, _ = asked(told)
    return form(told.facts[-1]), place in told.facts[-1], of_person[-1] == len(told.facts) - 1


def forms(told: Story) -> Hashable:
    return tuple(form(told.facts[i]) for i in asked(told)[1])


def last_form_with_place(told: Story) -> Hashable:
    return form(told.facts[asked(told)[2][-1]])


def position(told: Story) -> Hashable:
    return asked(told)[2][-1]


def last_place(told: Story) -> Hashable:
    place, of_person, _ = asked(told)
    return place in [told.facts[i] for i in of_person if form(told.facts[i]) == "went"][-1]


def mentions(told: Story) -> Hashable:
    place, _, both = asked(told)
    return len(both), sum(place in fact for fact in told.facts)


def gets(cue: Callable[[Story], Hashable], kind: int) -> float:
    """How often the likeliest answer for the cue's value is right, in percent; likeliest in these very stories."""
    of_value: dict[Hashable, Counter[str]] = defaultdict(Counter)
    for told in stories(kind):
        of_value[cue(told)][told.answer] += 1
    return 100 * sum(max(counts.values()) for counts in of_value.values()) / COUNT


@pytest.mark.parametrize(
    ("cue", "most"),
    [
        (last_fact, {6: 58, 9: 59, 10: 45}),
        (forms, {6: 50, 9: 51, 10: 67}),
        (mentions, {6: 50, 9: 51, 10: 50}),
        (last_place, {9: 75, 10: 58}),
        (position, {6: 62, 9: 53, 10: 47}),
        (last_form_with_place, {6: 50, 9: 75, 10: 67}),
    ],
)
def test_a_cue_without_reading_gets_no_more_than_its_card_says(
    cue: Callable[[Story], Hashable], most: dict[int, float]
) -> None:
    for kind, percent in most.items():
        assert gets(cue, kind) < percent + NOISE, (cue.__name__, kind)


def mine(told: Story) -> Iterator[tuple[int, str, str]]:
    """What the person of a question got (1) and lost (-1): the sign, the verb, the thing."""
    person = re.findall(r"does (\w+) carry", told.question)[0]
    for fact in told.facts:
        if found := re.fullmatch(rf"(?:{person} (picked|put) \w+|{person} (gave)|\w+ (gave)) the (\w+).*\.", fact):
            picked, given, got, thing = found.groups()
            if picked or given:
                yield (1 if picked == "picked" else -1), picked or given, thing
            elif fact.endswith(f" to {person}."):
                yield 1, got, thing


def test_what_somebody_carries_is_not_what_they_ever_got() -> None:
    words = ("none", "one", "two", "three")
    right = Counter[str]()
    for told in stories(7):
        events = list(mine(told))
        ever = {thing for sign, _, thing in events if sign > 0}
        right["balance"] += words[sum(sign for sign, _, _ in events)] == told.answer
        right["all got"] += words[min(len(ever), 3)] == told.answer and len(ever) < 4
        without = sum(sign for sign, verb, _ in events if verb != "gave")
        right["no gifts"] += 0 <= without < 4 and words[without] == told.answer
    assert right["balance"] == COUNT
    assert 100 * right["all got"] / COUNT < 39 + NOISE
    assert 100 * right["no gifts"] / COUNT < 50 + NOISE


@pytest.mark.parametrize(("kind", "answers"), [(6, 2), (7, 4), (8, 4), (9, 2), (10, 3)])
def test_all_answers_are_equally_likely(kind: int, answers: int) -> None:
    found = Counter(told.answer if kind != 8 else _size(told.answer) for told in stories(kind))
    assert len(found) == answers
    assert max(abs(100 * n / COUNT - 100 / answers) for n in found.values()) < NOISE


def _size(answer: str) -> int:
    return 0 if answer == "nothing" else len(answer.split(", "))


@pytest.mark.parametrize(("kind", "guess", "same"), [(6, 50, 50), (7, 25, 25), (8, 6.5, 25), (9, 50, 50), (10, 33, 33)])
def test_baselines_are_any_answer_and_always_the_same(kind: int, guess: float, same: float) -> None:
    found = baselines(Stories(kind), generate(Stories(kind), 2600, Bytes(), count=150))
    assert found["guess"] == pytest.approx(guess, abs=4 * 50 / 150**0.5)
    assert found["copy_last"] == pytest.approx(same, abs=4 * 50 / 150**0.5)
