"""Tells stories of what happens in a small world, and asks where who or what is, who gave what and who has what.

    EVENTS[2](rng)      # Story(facts=("Chiara went into the bakery.", ...), question="Where is the violin?", ...)

Stories are drawn until one allows a question with exactly one answer that takes as many facts as its kind promises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from levelfield.ruler.beyond.story_worlds import PEOPLE, PLACES, THINGS, Story, World, one, some

COUNTS = ("none", "one", "two", "three")
NOTHING = "nothing"
DIRECTIONS = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}

Ways = Callable[[World], Iterator[Callable[[], None]]]
"""Yields all ways in which one kind of event can happen now."""


def _world(rng: np.random.Generator, people: int, places: int, things: int) -> World:
    return World(some(PEOPLE, people, rng), some(PLACES, places, rng), some(THINGS, things, rng))


def _move(world: World, rng: np.random.Generator, people: Sequence[str] = ()) -> None:
    """Moves somebody to a place where they are not."""
    person = one(people or world.people, rng)
    world.go(person, one([p for p in world.places if world.at.get(person, ("",))[0] != p], rng))


def _events(world: World, count: int, chances: dict[Ways, float], rng: np.random.Generator) -> None:
    """Adds events until there are `count` facts. chances: of each kind of event but moves, where it can happen."""
    while len(world.facts) < count:
        drawn = rng.random()
        for ways, chance in chances.items():
            possible = list(ways(world))
            if possible and drawn < chance:
                one(possible, rng)()
                break
            drawn -= chance
        else:
            _move(world, rng)


def _where_is_somebody(rng: np.random.Generator) -> Story:
    """Every fact is equally likely the one that decides."""
    world = _world(rng, people=5, places=6, things=0)
    deciding = int(rng.integers(10))
    while len(world.facts) <= deciding:
        _move(world, rng)
    person = next(p for p, (_, fact) in world.at.items() if fact == deciding)
    others = [p for p in world.people if p != person]
    while len(world.facts) < 10:
        _move(world, rng, others)
    return Story(tuple(world.facts), f"Where is {person}?", world.at[person][0], (deciding,))


def _where_is_a_thing(rng: np.random.Generator) -> Story | None:
    """A thing that was carried to another place than it was found in."""
    world = _world(rng, people=4, places=6, things=3)
    _events(world, 14, {World.takes: 0.3, World.drops: 0.15}, rng)
    found = [thing for thing in world.things if len(world.stays.get(thing, ())) > 1]
    if not found:
        return None
    thing = one(found, rng)
    place, _ = world.stays[thing][-1]
    mentions = [i for i, fact in enumerate(world.facts) if f" the {thing}." in fact]
    holder = world.facts[mentions[-1]].partition(" ")[0]  # now, or when it was put down
    until = mentions[-1] if thing not in world.holder else len(world.facts)
    moved = max(i for i, fact in enumerate(world.facts[:until]) if fact.startswith(f"{holder} went"))
    return Story(tuple(world.facts), f"Where is the {thing}?", place, tuple(sorted((mentions[-1], moved))))


def _where_was_a_thing_before(rng: np.random.Generator) -> Story | None:
    """A thing that was in at least three places, and in the one asked about once."""
    world = _world(rng, people=3, places=6, things=3)
    _events(world, 20, {World.takes: 0.35, World.drops: 0.12}, rng)
    found = []
    for thing, stays in world.stays.items():
        places = [stay.place for stay in stays]
        found += [(thing, i) for i in range(1, len(stays)) if len(stays) > 2 and places.count(places[i]) == 1]
    if not found:
        return None
    thing, after = one(found, rng)
    before, then = world.stays[thing][after - 1 : after + 1]
    question = f"Where was the {thing} before it was in the {then.place}?"
    return Story(tuple(world.facts), question, before.place, tuple(sorted({*before.support, *then.support})))


def _which_place(rng: np.random.Generator) -> Story:
    """A tree of places on a grid. A neighbour of a place with several is asked for."""
    places = some(PLACES, 7, rng)
    at, links = {places[0]: (0, 0)}, list[tuple[str, str, str]]()
    while len(at) < len(places):
        base, way = one(list(at), rng), one(list(DIRECTIONS), rng)
        spot = at[base][0] + DIRECTIONS[way][0], at[base][1] + DIRECTIONS[way][1]
        if spot not in at.values():
            links.append((places[len(at)], way, base))  # the first lies that way of the second
            at[places[len(at)]] = spot
    both = [(link, i) for i, link in enumerate(links)]
    both += [((base, OPPOSITE[way], new), i) for i, (new, way, base) in enumerate(links)]
    (answer, way, base), told = one([(k, i) for k, i in both if sum(k[2] in link for link in links) > 1], rng)
    said = [(b, OPPOSITE[w], a) if rng.random() < 0.5 else (a, w, b) for a, w, b in links]
    order = rng.permutation(len(said)).tolist()
    facts = tuple(f"The {said[i][0]} lies directly {said[i][1]} of the {said[i][2]}." for i in order)
    return Story(facts, f"Which place lies directly {way} of the {base}?", answer, (order.index(told),))


def _who_gave_what(rng: np.random.Generator) -> Story | None:
    """Three gifts or more, one of which alone fits the question."""
    world = _world(rng, people=4, places=2, things=3)
    _events(world, 16, {World.gifts: 0.4, World.takes: 0.3}, rng)
    gifts = [(i, *_gift(fact)) for i, fact in enumerate(world.facts) if " gave " in fact]
    if len(gifts) < 3:
        return None
    fact, giver, thing, receiver = one(gifts, rng)
    asked, given, answer = one(
        [
            (f"Who gave the {thing} to {receiver}?", (None, thing, receiver), giver),
            (f"To whom did {giver} give the {thing}?", (giver, thing, None), receiver),
            (f"What did {giver} give to {receiver}?", (giver, None, receiver), thing),
        ],
        rng,
    )
    fits = [gift for _, *gift in gifts if all(want in (None, have) for want, have in zip(given, gift))]
    return Story(tuple(world.facts), asked, answer, (fact,)) if len(fits) == 1 else None


def _gift(fact: str) -> tuple[str, str, str]:
    """Reads "Esra gave the scarf to Greta."."""
    words = fact.rstrip(".").split()
    return words[0], words[3], words[5]


def _who_carries_what(rng: np.random.Generator) -> tuple[World, str, tuple[int, ...]]:
    """Draws somebody who carries none to three things, all equally likely.

    They have lost one or two, or none or one where they carry two or three, so that the number of things that they got
    says little. Returns the world, the person, and the facts of what they got and lost.
    """
    carried = int(rng.integers(len(COUNTS)))
    lost = int(rng.integers(2)) + (carried < 2)
    while True:
        world = _world(rng, people=3, places=3, things=5)
        _events(world, 16, {World.takes: 0.4, World.drops: 0.12, World.gifts: 0.25}, rng)
        for person in world.people:
            facts = [i for i, fact in enumerate(world.facts) if person in fact and " went " not in fact]
            losses = sum(world.facts[i].startswith((f"{person} put", f"{person} gave")) for i in facts)
            if (len(world.held(person)), losses) == (carried, lost):
                return world, person, tuple(facts)


def _how_many_things(rng: np.random.Generator) -> Story:
    """How many things somebody carries."""
    world, person, support = _who_carries_what(rng)
    count = COUNTS[len(world.held(person))]
    return Story(tuple(world.facts), f"How many things does {person} carry?", count, support)


def _which_things(rng: np.random.Generator) -> Story:
    """All that somebody carries."""
    world, person, support = _who_carries_what(rng)
    listed = ", ".join(world.held(person)) or NOTHING
    return Story(tuple(world.facts), f"What does {person} carry?", listed, support)


EVENTS: dict[int, Callable[[np.random.Generator], Story | None]] = {
    1: _where_is_somebody,
    2: _where_is_a_thing,
    3: _where_was_a_thing_before,
    4: _which_place,
    5: _who_gave_what,
    7: _how_many_things,
    8: _which_things,
}
"""Tells a story of each kind; None where it allows no question."""
