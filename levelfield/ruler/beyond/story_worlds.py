"""Keeps the small world of stories: people who move, carry things and give them away, and what is where.

    world.go("Chiara", "bakery")
    list(world.takes())      # all ways to pick something up now: each a function that lets it happen and adds its fact

Only what can happen does: nobody picks up what is elsewhere or in another's hands, and things change hands in one place
only. Somebody who has not moved is nowhere, so that the facts say where all is that they speak of. Names do not occur
in the essays that ship.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np

PEOPLE = ("Anneke", "Bogdan", "Chiara", "Dimitri", "Esra", "Farouk", "Greta", "Hideo")
PLACES = ("attic", "bakery", "boathouse", "greenhouse", "laundry", "observatory", "pharmacy", "brewery")
THINGS = ("accordion", "kettle", "ledger", "umbrella", "violin", "typewriter", "suitcase", "scarf")
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


def some(known: Sequence[T], count: int, rng: np.random.Generator) -> list[T]:
    """Draws so many different ones, in any order."""
    return [known[i] for i in rng.permutation(len(known))[:count]]


def one(known: Sequence[T], rng: np.random.Generator) -> T:
    """Draws any one."""
    return known[int(rng.integers(len(known)))]
