"""Builds stories whose facts are scattered over essays, and asks where somebody is, what they carry, or who gave what.

... Chiara went into the bakery. ... Chiara picked up the violin. ... Chiara went into the attic. ...
Question: Where is the violin? Answer with one word. Answer: attic

After BABILong (Kuratov et al. 2024), which scatters the stories of bAbI (Weston et al. 2015). Worlds, words and rules
are our own. A story is what happens in a small world, which knows where everybody and everything is
(`beyond/story_events.py`), or follows plans of what is said of somebody (`beyond/story_claims.py`); the tests find each
answer again from the prompt's text alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from levelfield.ruler.beyond.story_claims import PLANS, claim
from levelfield.ruler.beyond.story_events import COUNTS, EVENTS, NOTHING
from levelfield.ruler.beyond.story_examples import EXAMPLES
from levelfield.ruler.beyond.story_worlds import PEOPLE, PLACES, THINGS, Story
from levelfield.ruler.builders.scattered import Scatter, essays_of, scattered
from levelfield.ruler.prompt.fit import PromptDraft
from levelfield.ruler.prompt.setting import Setting
from levelfield.ruler.question_set import QuestionSet, Score, exactly, has_first_line, names_in
from levelfield.spec import UserError

TASK = (
    "Facts about {about} are scattered over the following text{order}. Answer the question after it from these facts "
    "alone, with {form}.\n\nFor example, {examples}\n\nThe text:\n{context}\n\n"
    "Question: {question} Answer with {form}."
)
EXAMPLE = "the facts\n{}\nanswer the question\n{}\nwith\n{}"
ANSWER = " Answer:"
IN_ORDER = ", in the order in which they came true"


@dataclass(frozen=True)
class Kind:
    """What a kind of story tells and asks, and with what words.

    labels: all words of answers, where they are the same in every story. asides: names of the question that an answer
    may repeat.
    """

    tell: Callable[[np.random.Generator], Story | None]
    form: str = "one word"
    about: str = "a few people and things"
    order: str = IN_ORDER
    labels: tuple[str, ...] = ()
    asides: int = 0


def _claims(number: int, form: str) -> Kind:
    order = IN_ORDER + ", and everybody stays where they are until a fact says otherwise"
    return Kind(partial(claim, number), form, "the places of a few people", order, tuple(PLANS[number]))


KINDS = {
    1: Kind(EVENTS[1]),
    2: Kind(EVENTS[2]),
    3: Kind(EVENTS[3], asides=1),
    4: Kind(EVENTS[4], about="how a few places lie", order="", asides=1),
    5: Kind(EVENTS[5], asides=1),
    6: _claims(6, "yes or no"),
    7: Kind(EVENTS[7], "none, one, two or three", labels=COUNTS),
    8: Kind(EVENTS[8], "a list of things or the word nothing", labels=(*THINGS, NOTHING)),
    9: _claims(9, "yes or no"),
    10: _claims(10, "yes, no or maybe"),
}
"""By bAbI's numbers."""


def story(number: int, rng: np.random.Generator) -> Story:
    """Tells a story of one of `KINDS`."""
    while True:
        if told := KINDS[number].tell(rng):
            return told


@dataclass(frozen=True)
class Stories(QuestionSet):
    """Facts of a story in essays. bAbI's numbers: 1 where is somebody, 2 where is a thing, 3 where was it before,
    4 which place is the next one in a direction, 5 who gave what to whom, 6 is somebody in a place, 7 how many things
    they carry, 8 which things, 9 are they in a place where some are not, 10 where some may be."""

    answer_tokens: ClassVar[int] = 16
    number: int = 1

    def __post_init__(self) -> None:
        if self.number not in KINDS:
            raise UserError(f"There is no kind of story {self.number}: give one of {min(KINDS)} to {max(KINDS)}.")

    @property
    def name(self) -> str:
        return f"stories_{self.number}"

    def version(self, flavour: str) -> int:
        return 2 if self.number == 4 else 1  # "directly" west, since a place lies west of more than its neighbour

    def builder(self, setting: Setting) -> StoriesInEssays:
        return StoriesInEssays(setting, self)

    def answer(self, rng: np.random.Generator) -> str:
        return f" The {THINGS[rng.integers(len(THINGS))]} was in the {PLACES[rng.integers(len(PLACES))]}."

    def score(self, prediction: str, references: Sequence[str]) -> Score:
        """Scores the first line. After BABILong, it may repeat a name of the question, which only tasks 3 to 5 have."""
        kind = KINDS[self.number]
        known = kind.labels or next((names for names in (PEOPLE, THINGS) if references[0] in names), PLACES)
        return exactly(prediction, references, known, asides=0 if known is THINGS else kind.asides)

    def candidates(self, text: str) -> list[str]:
        """Lists all labels, or the names that the context has of what is asked for: people, things or places."""
        if labels := KINDS[self.number].labels:
            return list(labels)
        before, _, question = text.rpartition("\n\nQuestion: ")
        known = PLACES
        if self.number == 5:
            known = THINGS if question.startswith("What") else PEOPLE
        return names_in(before.rpartition("\n\nThe text:\n")[2], known)

    def is_final(self, text: str) -> bool:
        return has_first_line(text)


class StoriesInEssays:
    """Builds samples of one kind of story at one length."""

    def __init__(self, setting: Setting, task: Stories) -> None:
        self.setting, self.task = setting, task
        self.essays = essays_of(setting)
        before, after = setting.around
        kind = KINDS[task.number]
        examples = "\n\nAnd ".join(EXAMPLE.format(*solved) for solved in EXAMPLES[task.number])
        filled = {"about": kind.about, "order": kind.order, "form": kind.form, "examples": examples}
        whole = TASK.format(**filled, context="{context}", question="{question}")
        self.head, _, self.rest = (before + whole + after + ANSWER).partition("{context}")

    def draft(self, index: int, room: int) -> PromptDraft:
        """Drafts sample `index`, of at most `room` tokens."""
        rng = self.setting.rng(index)
        told = story(self.task.number, rng)
        scatter = Scatter(
            essays=self.essays.from_sentence(int(rng.integers(len(self.essays.sentences)))),
            sentences=told.facts,
            shares=tuple(sorted(rng.random(len(told.facts)).tolist())),
            head=self.setting.composer.known(self.head),
            rest=[self.rest.replace("{question}", told.question)],
        )
        draft = scattered(scatter, self.setting.composer, room)
        depths = tuple(draft.depths[place] for place in told.support)
        references = tuple(told.answer.split(", "))
        return replace(draft, references=references, depths=depths, slices=_slices(told, self.setting))


def _slices(told: Story, setting: Setting) -> tuple[tuple[str, str | int | float], ...]:
    return (("essays", setting.sources.haystack), ("facts", len(told.facts)), ("support", len(told.support)))
