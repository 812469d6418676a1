"""Builds stories whose facts are scattered over essays, and asks where somebody or something is, or who gave what.

... Chiara went into the bakery. ... Chiara picked up the violin. ... Chiara went into the attic. ...
Question: Where is the violin? Answer with one word. Answer: attic

After BABILong (Kuratov et al. 2024), which scatters the stories of bAbI (Weston et al. 2015). Worlds, words and rules
are our own. A story is told by a small world, which knows where everybody and everything is (`beyond/story_worlds.py`);
the tests find each answer again from the prompt's text alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from levelfield.ruler.beyond.story_worlds import KINDS, PEOPLE, PLACES, THINGS, Story, story
from levelfield.ruler.builders.scattered import Scatter, essays_of, scattered
from levelfield.ruler.prompt.fit import PromptDraft
from levelfield.ruler.prompt.setting import Setting
from levelfield.ruler.question_set import QuestionSet, Score, has_first_line, names_in, one_of
from levelfield.spec import UserError

TASK = (
    "Facts about {about} are scattered over the following text{order}. Answer the question after it from these facts "
    "alone, with one word.\n\nFor example, the facts\n{facts}\nanswer the question\n{asked}\nwith\n{answer}\n\n"
    "The text:\n{context}\n\nQuestion: {question} Answer with one word."
)
ANSWER = " Answer:"
ABOUT = ("a few people and things", ", in the order in which they came true")
EXAMPLES: dict[int, tuple[str, str, str]] = {  # facts, question and answer; with names that no story has
    1: ("Wanda went into the chapel.\nViktor went into the library.", "Where is Wanda?", "chapel"),
    2: (
        "Wanda went into the chapel.\nWanda picked up the drum.\nWanda went into the library.\n"
        "Wanda put down the drum.\nWanda went into the chapel.",
        "Where is the drum?",
        "library",
    ),
    3: (
        "Wanda went into the chapel.\nWanda picked up the drum.\nWanda went into the library.\n"
        "Wanda went into the hall.",
        "Where was the drum before it was in the library?",
        "chapel",
    ),
    4: (
        "The chapel lies directly north of the library.\nThe hall lies directly east of the library.",
        "Which place lies directly south of the chapel?",
        "library",
    ),
    5: (
        "Wanda went into the chapel.\nViktor went into the chapel.\nWanda picked up the drum.\n"
        "Wanda gave the drum to Viktor.",
        "Who gave the drum to Viktor?",
        "Wanda",
    ),
}


@dataclass(frozen=True)
class Stories(QuestionSet):
    """Facts of a story in essays. bAbI's numbers: 1 where is somebody, 2 where is a thing, 3 where was it before,
    4 which place is the next one in a direction, 5 who gave what to whom."""

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
        known = next((names for names in (PEOPLE, THINGS) if references[0] in names), PLACES)
        return one_of(prediction, references[0], known, asides=0 if self.number < 3 or known is THINGS else 1)

    def candidates(self, text: str) -> list[str]:
        """Lists the names that the context has of what the question asks for: people, things or places."""
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
        about, order = ABOUT if task.number != 4 else ("how a few places lie", "")
        facts, asked, answer = EXAMPLES[task.number]
        filled = {"about": about, "order": order, "facts": facts, "asked": asked, "answer": answer}
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
        return replace(draft, references=(told.answer,), depths=depths, slices=_slices(told, self.setting))


def _slices(told: Story, setting: Setting) -> tuple[tuple[str, str | int | float], ...]:
    return (("essays", setting.sources.haystack), ("facts", len(told.facts)), ("support", len(told.support)))
