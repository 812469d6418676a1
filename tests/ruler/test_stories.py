"""Stories in essays: a naive world is simulated from the prompt's text alone, and must know the same answer."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from toy_ruler import Pairs

from levelfield.ruler import Bytes, Sample, Stories, baselines, generate, named, score
from levelfield.ruler.beyond.stories import KINDS, story
from levelfield.ruler.beyond.story_worlds import PEOPLE, PLACES, THINGS
from levelfield.ruler.early_stop import is_final
from levelfield.ruler.sources import essays
from levelfield.spec import UserError

TASKS = [Stories(kind) for kind in KINDS]
EVENT = re.compile(
    r"(?<!\w)([A-Z]\w+) "
    r"(?:(went) into the (\w+)|(picked) up the (\w+)|(put) down the (\w+)|(gave) the (\w+) to (\w+))\."
)
CLAIM = re.compile(r"([A-Z]\w+) is (?:(not) in the (\w+) now|now in the (\w+) or in the (\w+))\.")
RELATION = re.compile(r"The (\w+) lies directly (north|south|east|west) of the (\w+)\.")
STEPS = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}


def parts(text: str) -> tuple[str, str]:
    """The text between instruction and question, and the question."""
    before, _, question = text.rpartition("\n\nQuestion: ")
    return before.rpartition("\n\nThe text:\n")[2], question.partition("?")[0] + "?"


def lived(text: str) -> tuple[dict[str, str], dict[str, list[str]], list[tuple[str, str, str]], dict[str, str]]:
    """Where everybody is, the places of every thing in order, all gifts and holders; impossible events fail."""
    at: dict[str, str] = {}
    path: dict[str, list[str]] = {}
    hands: dict[str, str] = {}
    gifts = []
    for found in EVENT.finditer(text):
        person, words = found[1], [word for word in found.groups()[1:] if word]
        if words[0] == "went":
            assert at.get(person) != words[1]
            at[person] = words[1]
            for thing in (thing for thing, owner in hands.items() if owner == person):
                path[thing].append(words[1])
        elif words[0] == "picked":
            assert words[1] not in hands
            assert path.setdefault(words[1], [at[person]])[-1] == at[person]
            hands[words[1]] = person
        elif words[0] == "put":
            assert hands.pop(words[1]) == person
        else:
            assert hands[words[1]] == person != words[2]
            assert at[person] == at[words[2]]
            hands[words[1]] = words[2]
            gifts.append((person, words[1], words[2]))
    return at, path, gifts, hands


def possible(text: str, person: str) -> set[str]:
    """Every place that somebody may be in at the end of a text."""
    found: set[str] = set(PLACES)
    for sentence in sorted([*EVENT.finditer(text), *CLAIM.finditer(text)], key=lambda m: m.start()):
        named, words = {word for word in PLACES if word in sentence[0]}, sentence[0].split()
        if words[0] == person and "not" in words:
            found = (found - named) or set(PLACES) - named
        elif words[0] == person:
            found = named
    return found


def mapped(text: str) -> dict[str, tuple[int, int]]:
    """Places on a grid, from the first one named on; contradictions fail."""
    told = RELATION.findall(text)
    spots = {told[0][0]: (0, 0)}
    for _ in told:
        for a, way, b in told:
            for known, new, sign in ((b, a, 1), (a, b, -1)):
                if known in spots:
                    spot = tuple(x + sign * d for x, d in zip(spots[known], STEPS[way]))
                    assert spots.setdefault(new, spot) == spot  # type: ignore[arg-type]
    assert len(set(spots.values())) == len(spots) == len(told) + 1
    return spots


def answers(text: str) -> set[str]:
    """All right answers to the question of a prompt."""
    context, question = parts(text)
    if found := re.fullmatch(r"Which place lies directly (\w+) of the (\w+)\?", question):
        spots = mapped(context)
        wanted = tuple(x + d for x, d in zip(spots[found[2]], STEPS[found[1]]))
        return {place for place, spot in spots.items() if spot == wanted}
    if found := re.fullmatch(r"Is (\w+) in the (\w+)\?", question):
        places = possible(context, found[1])
        return {"maybe" if len(places) > 1 else "yes"} if found[2] in places else {"no"}
    at, path, gifts, hands = lived(context)
    if found := re.fullmatch(r"How many things does (\w+) carry\?", question):
        return {("none", "one", "two", "three")[list(hands.values()).count(found[1])]}
    if found := re.fullmatch(r"What does (\w+) carry\?", question):
        return {thing for thing, owner in hands.items() if owner == found[1]} or {"nothing"}
    if found := re.fullmatch(r"Where is (\w+)\?", question):
        return {at[found[1]]}
    if found := re.fullmatch(r"Where is the (\w+)\?", question):
        return {path[found[1]][-1]}
    if found := re.fullmatch(r"Where was the (\w+) before it was in the (\w+)\?", question):
        return {before for before, after in pairwise(path[found[1]]) if after == found[2]}
    if found := re.fullmatch(r"Who gave the (\w+) to (\w+)\?", question):
        return {a for a, thing, b in gifts if (thing, b) == found.groups()}
    if found := re.fullmatch(r"To whom did (\w+) give the (\w+)\?", question):
        return {b for a, thing, b in gifts if (a, thing) == found.groups()}
    found = re.fullmatch(r"What did (\w+) give to (\w+)\?", question)
    assert found
    return {thing for a, thing, b in gifts if (a, b) == found.groups()}


def test_a_neighbour_in_a_direction_is_one_place_also_where_others_lie_further_that_way() -> None:
    """Chains in one direction are common; only "directly", in facts and in the question, leaves one answer."""
    chained = 0
    for seed in range(60):
        told = story(4, np.random.default_rng(seed))
        assert all(" lies directly " in text for text in (*told.facts, told.question))
        way, base = re.findall(r"directly (\w+) of the (\w+)\?", told.question)[0]
        spots = mapped(" ".join(told.facts))
        axis, sign = (0, STEPS[way][0]) if STEPS[way][0] else (1, STEPS[way][1])
        chained += sum(sign * (spot[axis] - spots[base][axis]) > 0 for spot in spots.values()) > 1
        assert told.answer in spots
    assert chained > 10
    assert [Stories(kind).version("sound") for kind in KINDS] == [1, 1, 1, 2, 1, 1, 1, 1, 1, 1]


def facts(text: str) -> list[str]:
    return [found[0] for form in (EVENT, RELATION, CLAIM) for found in form.finditer(text)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_naive_world_knows_the_same_answer(kind: int) -> None:
    """Of the bare story, many times, and the facts that are said to decide it suffice for it."""
    for index in range(150):
        told = story(kind, np.random.default_rng(index))
        text = "\n\nThe text:\n" + " ".join(told.facts) + "\n\nQuestion: " + told.question
        assert answers(text) == set(told.answer.split(", "))
        assert len(set(told.support)) == len(told.support) >= min(kind, 2) - (kind > 3)
        if kind < 6:  # later answers are words that no fact has
            assert any(told.answer in told.facts[fact] for fact in told.support)


@pytest.mark.parametrize("task", TASKS, ids=lambda t: t.name)
def test_answers_are_found_again_in_the_prompt_whose_length_is_exact(task: Stories) -> None:
    tokenizer = Pairs()
    for sample in generate(task, 2600, tokenizer, count=3):
        assert answers(sample.text) == set(sample.references)
        assert len(facts(parts(sample.text)[0])) == dict(sample.slices)["facts"]
        np.testing.assert_array_equal(sample.ids, tokenizer.encode(sample.text))
        assert 0 <= 2600 - sample.answer_tokens - len(sample.ids) <= 8


def test_the_story_is_the_same_at_every_length_and_another_at_every_index() -> None:
    short, long = ([facts(parts(s.text)[0]) for s in generate(Stories(3), n, Bytes(), count=3)] for n in (3500, 6000))
    assert short == long
    assert len({str(told) for told in short}) == 3
    again = next(generate(Stories(3), 3500, Bytes(), start=2))
    assert facts(parts(again.text)[0]) == short[2]


def test_depths_are_those_of_the_deciding_facts() -> None:
    for sample in generate(Stories(1), 6000, Bytes(), count=6):
        context, question = parts(sample.text)
        last = list(re.finditer(rf"{question[9:-1]} went", context))[-1].start()
        assert sample.depths == (pytest.approx(last / len(context), abs=0.1),)


def test_the_deciding_fact_is_equally_likely_any_of_the_first_kind() -> None:
    drawn = np.bincount([story(1, np.random.default_rng(seed)).support[0] for seed in range(600)], minlength=10)
    assert len(drawn) == 10
    assert drawn.min() > 60 - 4.5 * np.sqrt(54)


def test_guessing_names_one_of_the_places_in_the_prompt() -> None:
    samples = list(generate(Stories(1), 2200, Bytes(), count=120))

    def places(sample: Sample) -> int:
        return sum(place in parts(sample.text)[0] for place in PLACES)

    expected = 100 * np.mean([1 / places(sample) for sample in samples])
    assert baselines(Stories(1), samples)["guess"] == pytest.approx(expected, abs=4 * 3.6)


@pytest.mark.parametrize(
    ("kind", "answer", "said", "match", "strict"),
    [
        (6, "no", " No, Greta is not there.", 1, 1),
        (6, "yes", " yes or no", 0, 1),
        (6, "no", " Nobody knows.", 0, 0),
        (7, "none", " none", 1, 1),  # in which BABILong's own code finds "one", too
        (7, "two", " She carries two things, not one.", 0, 1),
        (7, "two", " 2", 0, 0),
        (8, "kettle, scarf", " the scarf and the kettle", 1, 1),
        (8, "kettle, scarf", " kettle", 0, 0),
        (8, "kettle, scarf", " kettle, scarf, violin", 0, 1),
        (8, "nothing", " Greta carries nothing.\nkettle", 1, 1),
        (9, "no", " yes", 0, 0),
        (10, "maybe", " Maybe.", 1, 1),
        (10, "maybe", " maybe yes", 0, 1),
    ],
)
def test_answers_that_are_no_place_are_scored_by_their_words(
    kind: int, answer: str, said: str, match: float, strict: float
) -> None:
    found = score(Stories(kind), said, answer.split(", "))
    assert (found.match, found.strict) == (match, strict)


@pytest.mark.parametrize(
    ("kind", "said", "match", "strict"),
    [
        (1, " attic", 1, 1),
        (1, " The Attic.\nQuestion: Where is the bakery?", 1, 1),
        (1, " Bogdan is in the attic, not the bakery", 0, 1),
        (1, " the attics", 0, 0),
        (1, "", 0, 0),
        (3, " Before it was in the bakery, it was in the attic", 1, 0),
        (3, " attic, bakery, laundry", 0, 1),
    ],
)
def test_one_name_is_scored_in_whatever_sentence_it_comes(kind: int, said: str, match: float, strict: float) -> None:
    found = score(Stories(kind), said, ("attic",))
    assert (found.match, found.strict) == (match, strict)
    assert is_final(Stories(kind), said, ("attic",)) == ("\n" in said)


def test_names_are_none_of_the_essays_and_no_other_kind_exists() -> None:
    words = {word.strip(".,;:!?\"'").lower() for word in essays(None)}
    assert not words & {name.lower() for name in (*PEOPLE, *PLACES, *THINGS)}
    assert named("stories_3") == Stories(3)
    with pytest.raises(UserError, match="no kind of story 11"):
        Stories(11)
