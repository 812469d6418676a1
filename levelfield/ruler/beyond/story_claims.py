"""Tells where people are, or are not, or may be, and asks whether somebody is in a place.

    claim(10, rng)      # Story(facts=("Esra is now in the attic or in the brewery.", ...), answer="maybe", ...)

What is said of somebody follows a plan of three facts, and the place that is asked about is always one that was said of
the person. The plans of "yes" and "no" have facts of the same forms in the same order, in `stories_6` and `stories_9`,
so that forms do not give the answer away. Where "maybe" is an answer they must tell something: the last fact of such a
plan says "or", and that of a "yes" never does, so whoever reads forms alone is right in two of three questions, where
guessing is right in one. Somebody's facts stand close to each other in the story, so where they stand says little.
"""

from __future__ import annotations

import numpy as np

from levelfield.ruler.beyond.story_worlds import PEOPLE, PLACES, Story, one, some

PLANS: dict[int, dict[str, tuple[str, ...]]] = {
    6: {"yes": ("+Q +R +P",), "no": ("+Q +P +R",)},
    9: {
        "yes": ("-P +P -Q", "+Q -P +P", "+Q +P -R", "-R +Q +P"),
        "no": ("-Q +P -P", "+P -R +Q", "+Q +P -P", "-R +P +Q"),
    },
    10: {
        "yes": ("+Q ?RS +P", "?QR +S +P", "+Q ?PR +P", "?PQ +R +P"),
        "no": ("+P ?QR +S", "?PQ +R +S", "+P ?QR ?ST", "?PQ +R ?ST"),
        "maybe": ("+Q ?RS ?PT", "?QR +S ?PT", "+P ?QR ?PS", "?QR +P ?PS"),
    },
}
"""By kind and answer: + goes into a place, - is not in it, ? is in one of two. P is the place that is asked about."""
SAID = {"+": "{} went into the {}.", "-": "{} is not in the {} now.", "?": "{} is now in the {} or in the {}."}
TOLD = 6  # people in a story
LETTERS = "PQRST"
GAP = 0.1  # of the story, between two facts about somebody


def claim(kind: int, rng: np.random.Generator) -> Story:
    """Tells a story of one of `PLANS`. All its answers are equally likely."""
    places = some(PLACES, len(LETTERS) + 1, rng)
    said, asked = list[str](), list[tuple[str, list[str], str, str]]()
    for person in some(PEOPLE, TOLD, rng):
        answer = one(list(PLANS[kind]), rng)
        plan = one(PLANS[kind][answer], rng).split()
        named = dict(zip(LETTERS, some(places, len(LETTERS), rng)))
        said += [SAID[form].format(person, *(named[i] for i in some(letters, 2, rng))) for form, *letters in plan]
        asked.append((person, plan, named["P"], answer))
    person, plan, place, answer = asked[0]
    order = np.argsort(rng.random((TOLD, 1)) + GAP * np.arange(len(plan)), axis=None).tolist()
    deciding = max(i for i, (form, *letters) in enumerate(plan) if form != "-" or letters == ["P"])
    facts = tuple(said[i] for i in order)
    return Story(facts, f"Is {person} in the {place}?", answer, (order.index(deciding),))
