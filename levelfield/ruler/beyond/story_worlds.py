"""Tells short stories of people who move, carry things and give them away, and knows the answers.

    story(2, rng)      # Story(facts=("Chiara went into the bakery.", ...), question="Where is the violin?", ...)

A world draws events that can happen: nobody picks up what is elsewhere or in another's hands, and things change hands
in one place only. The first event of everybody is a move, so that the facts say where all is that they speak of.
Stories are drawn until one allows a question with exactly one answer that takes as many facts as its kind promises.
Names do not occur in the essays that ship.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np

PEOPLE = ("Anneke", "Bogdan", "Chiara", "Dimitri", "Esra", "Farouk", "Greta", "Hideo")
PLACES = ("attic", "bakery", "boathouse", "greenhouse", "laundry", "observatory", "pharmacy", "brewery")
THINGS = ("accordion", "kettle", "ledger", "umbrella", "violin", "typewriter", "suitcase", "scarf")
DIRECTIONS = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}
T = TypeVar("T")


class Story(NamedTuple):
    """Facts in the order in which they came true. support: the facts that decide the answer, by their numbers."""

    facts: tuple[str, ...]
    question: str
    answer: str
    support: tuple[int, ...]


class Stay(NamedTuple):
    """A place that a thing was in, and the numbers of the facts that say so."""

    place: str
    support: tuple[int, ...]


@dataclass
class World:
    """Who and what is where. Things are nowhere until somebody first picks them up."""

    people: Sequence[str]
    places: Sequence[str]
    things: Sequence[str]
    facts: list[str] = field(default_factory=list)
    at: dict[str, tuple[str, int]] = field(default_factory=dict)  # person: place, and the fact that says so
    holder: dict[str, str] = field(default_factory=dict)  # thing: person
    stays: dict[str, list[Stay]] = field(default_factory=dict)  # thing: places, in order, no two alike in a row

    def go(self, person: str, place: str) -> None:
        """Moves somebody, and what they hold."""
        self.at[person] = place, len(self.facts)
        for thing in self.held(person):
            self._stays(thing, person, len(self.facts))
        self.facts.append(f"{person} went into the {place}.")

    def take(self, person: str, thing: str) -> None:
        """Lets somebody pick up what lies where they are."""
        self.holder[thing] = person
        self._stays(thing, person, len(self.facts))
        self.facts.append(f"{person} picked up the {thing}.")

    def drop(self, person: str, thing: str) -> None:
        """Lets somebody put down what they hold."""
        del self.holder[thing]
        self.facts.append(f"{person} put down the {thing}.")

    def give(self, person: str, thing: str, other: str) -> None:
        """Lets somebody give what they hold to somebody in the same place."""
        self.holder[thing] = other
        self.facts.append(f"{person} gave the {thing} to {other}.")

    def held(self, person: str) -> list[str]:
        """Returns what somebody holds."""
        return [thing for thing, holder in self.holder.items() if holder == person]

    def takes(self) -> Iterator[Callable[[], None]]:
        """Yields all ways to pick something up now."""
        for thing in self.things:
            lies = self.stays[thing][-1].place if thing in self.stays else None
            for person, (place, _) in self.at.items():
                if thing not in self.holder and lies in (None, place):
                    yield lambda person=person, thing=thing: self.take(person, thing)

    def drops(self) -> Iterator[Callable[[], None]]:
        """Yields all ways to put something down now."""
        for thing, person in self.holder.items():
            yield lambda person=person, thing=thing: self.drop(person, thing)

    def gifts(self) -> Iterator[Callable[[], None]]:
        """Yields all ways to give something away now."""
        for thing, person in self.holder.items():
            for other, (place, _) in self.at.items():
                if other != person and place == self.at[person][0]:
                    yield lambda person=person, thing=thing, other=other: self.give(person, thing, other)

    def _stays(self, thing: str, person: str, fact: int) -> None:
        place, moved = self.at[person]
        stays = self.stays.setdefault(thing, [])
        if not stays or stays[-1].place != place:
            stays.append(Stay(place, tuple(dict.fromkeys((fact, moved)))))


Ways = Callable[[World], Iterator[Callable[[], None]]]
"""Yields all ways in which one kind of event can happen now."""


def story(kind: int, rng: np.random.Generator) -> Story:
    """Tells a story of one of `KINDS`."""
    while True:
        if told := KINDS[kind](rng):
            return told


def _world(rng: np.random.Generator, people: int, places: int, things: int) -> World:
    return World(_some(PEOPLE, people, rng), _some(PLACES, places, rng), _some(THINGS, things, rng))


def _some(known: Sequence[T], count: int, rng: np.random.Generator) -> list[T]:
    return [known[i] for i in rng.permutation(len(known))[:count]]


def _one(known: Sequence[T], rng: np.random.Generator) -> T:
    return known[int(rng.integers(len(known)))]


def _move(world: World, rng: np.random.Generator, people: Sequence[str] = ()) -> None:
    """Moves somebody to a place where they are not."""
    person = _one(people or world.people, rng)
    world.go(person, _one([p for p in world.places if world.at.get(person, ("",))[0] != p], rng))


def _events(world: World, count: int, chances: dict[Ways, float], rng: np.random.Generator) -> None:
    """Adds events until there are `count` facts. chances: of each kind of event but moves, where it can happen."""
    while len(world.facts) < count:
        drawn = rng.random()
        for ways, chance in chances.items():
            possible = list(ways(world))
            if possible and drawn < chance:
                _one(possible, rng)()
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
    thing = _one(found, rng)
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
    thing, after = _one(found, rng)
    before, then = world.stays[thing][after - 1 : after + 1]
    question = f"Where was the {thing} before it was in the {then.place}?"
    return Story(tuple(world.facts), question, before.place, tuple(sorted({*before.support, *then.support})))


def _which_place(rng: np.random.Generator) -> Story:
    """A tree of places on a grid. A neighbour of a place with several is asked for."""
    places = _some(PLACES, 7, rng)
    at, links = {places[0]: (0, 0)}, list[tuple[str, str, str]]()
    while len(at) < len(places):
        base, way = _one(list(at), rng), _one(list(DIRECTIONS), rng)
        spot = at[base][0] + DIRECTIONS[way][0], at[base][1] + DIRECTIONS[way][1]
        if spot not in at.values():
            links.append((places[len(at)], way, base))  # the first lies that way of the second
            at[places[len(at)]] = spot
    both = [(link, i) for i, link in enumerate(links)]
    both += [((base, OPPOSITE[way], new), i) for i, (new, way, base) in enumerate(links)]
    (answer, way, base), told = _one([(k, i) for k, i in both if sum(k[2] in link for link in links) > 1], rng)
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
    fact, giver, thing, receiver = _one(gifts, rng)
    asked, given, answer = _one(
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


KINDS: dict[int, Callable[[np.random.Generator], Story | None]] = {
    1: _where_is_somebody,
    2: _where_is_a_thing,
    3: _where_was_a_thing_before,
    4: _which_place,
    5: _who_gave_what,
}
