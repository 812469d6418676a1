"""Builds needles that share no word with their question: knowledge of the world finds them, no search for words does.

... Goran jogs past Bennelong Point every morning. ... Leila lives a stone's throw from the Vasa Museum. ...
Question: Which person has been to Sydney? Answer with one name. Answer: Goran

After NoLiMa (Modarressi et al. 2025), whose needles may not be passed on: all of these are our own. With one hop the
question names what the needle's sign stands for (the city of a landmark, the work of a character), with two hops what
that belongs to (the country, the author). Decoys of the same form, with other names and other signs, stand in the same
text, so the needle's form does not give it away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from levelfield.ruler.builders.scattered import Scatter, essays_of, scattered
from levelfield.ruler.prompt.fit import PromptDraft
from levelfield.ruler.prompt.setting import Setting
from levelfield.ruler.question_set import QuestionSet, Score, exactly, has_first_line, names_in
from levelfield.spec import UserError

TASK = (
    "Sentences about several people are hidden in the following text. Answer the question after it with a name. You "
    "may need what you know of the world.\n\nThe text:\n{context}\n\nQuestion: {question} Answer with one name."
)
ANSWER = " Answer:"
SENTENCES = 8  # about people, of which one answers the question
NAMES = (
    "Ayumi", "Bastian", "Catarina", "Dorota", "Emeka", "Fatima", "Goran", "Halina", "Imre", "Joonas", "Kofi", "Leila"
)  # fmt: skip


class Sign(NamedTuple):
    """What a needle says, what that stands for, and what this belongs to."""

    said: str
    one: str
    two: str


@dataclass(frozen=True)
class Theme:
    """What needles of one kind say, and how each number of hops asks for them."""

    name: str
    sentences: tuple[str, ...]
    questions: tuple[str, str]
    signs: tuple[Sign, ...]

    def question(self, sign: Sign, hops: int) -> str:
        """Writes the question to which the sentence with this sign is the answer."""
        return self.questions[hops - 1].format(sign.one if hops == 1 else sign.two)


LANDMARKS = Theme(
    "landmarks",
    ("{name} lives a stone's throw from {said}.", "{name} jogs past {said} every morning."),
    ("Which person has been to {}?", "Which person has been to {}?"),
    (
        Sign("the Christ the Redeemer statue", "Rio de Janeiro", "Brazil"),
        Sign("the Larco Museum", "Lima", "Peru"),
        Sign("the Petronas Towers", "Kuala Lumpur", "Malaysia"),
        Sign("the Burj Khalifa", "Dubai", "the United Arab Emirates"),
        Sign("the CN Tower", "Toronto", "Canada"),
        Sign("the Brandenburg Gate", "Berlin", "Germany"),
        Sign("the Fushimi Inari shrine", "Kyoto", "Japan"),
        Sign("Bennelong Point", "Sydney", "Australia"),
        Sign("the Manneken Pis", "Brussels", "Belgium"),
        Sign("the Vasa Museum", "Stockholm", "Sweden"),
        Sign("the Hallgrimskirkja", "Reykjavik", "Iceland"),
        Sign("the Belem Tower", "Lisbon", "Portugal"),
        Sign("the Fisherman's Bastion", "Budapest", "Hungary"),
        Sign("the Charles Bridge", "Prague", "the Czech Republic"),
        Sign("the Anne Frank House", "Amsterdam", "the Netherlands"),
        Sign("the Hermitage", "Saint Petersburg", "Russia"),
        Sign("Holyrood Palace", "Edinburgh", "Scotland"),
        Sign("the Ha'penny Bridge", "Dublin", "Ireland"),
        Sign("the Vigeland sculptures", "Oslo", "Norway"),
        Sign("the Casa Rosada", "Buenos Aires", "Argentina"),
        Sign("the Gyeongbokgung Palace", "Seoul", "South Korea"),
        Sign("the Temppeliaukio church", "Helsinki", "Finland"),
    ),
)
STAGE = Theme(
    "stage",
    ("{name} is learning the lines of {said}.", "{name} has rehearsed for weeks as {said}."),
    ("Which person will act in {}?", "Which person will act in something by {}?"),
    (
        Sign("Nora Helmer", "A Doll's House", "Ibsen"),
        Sign("Blanche DuBois", "A Streetcar Named Desire", "Tennessee Williams"),
        Sign("Willy Loman", "Death of a Salesman", "Arthur Miller"),
        Sign("Madame Ranevskaya", "The Cherry Orchard", "Chekhov"),
        Sign("Eliza Doolittle", "Pygmalion", "George Bernard Shaw"),
        Sign("Estragon", "Waiting for Godot", "Samuel Beckett"),
        Sign("Lady Bracknell", "The Importance of Being Earnest", "Oscar Wilde"),
        Sign("Mack the Knife", "The Threepenny Opera", "Bertolt Brecht"),
        Sign("Papageno", "The Magic Flute", "Mozart"),
        Sign("Escamillo", "Carmen", "Bizet"),
        Sign("Cio-Cio-San", "Madama Butterfly", "Puccini"),
        Sign("Violetta Valery", "La Traviata", "Verdi"),
        Sign("Jean Valjean", "Les Miserables", "Victor Hugo"),
        Sign("Roxane", "Cyrano de Bergerac", "Edmond Rostand"),
        Sign("Peter Quint", "The Turn of the Screw", "Benjamin Britten"),
        Sign("Tatyana Larina", "Eugene Onegin", "Tchaikovsky"),
    ),
)
THEMES = (LANDMARKS, STAGE)


@dataclass(frozen=True)
class Association(QuestionSet):
    """Who has been to a city, or will act in a work, where the text names a landmark or a character?"""

    answer_tokens: ClassVar[int] = 16
    hops: int = 1

    def __post_init__(self) -> None:
        if self.hops not in (1, 2):
            raise UserError(f"An association has 1 or 2 hops, not {self.hops}.")

    @property
    def name(self) -> str:
        return f"associations_{self.hops}"

    def builder(self, setting: Setting) -> Associations:
        return Associations(setting, self)

    def answer(self, rng: np.random.Generator) -> str:
        return f" {NAMES[rng.integers(len(NAMES))]} has been there."

    def score(self, prediction: str, references: Sequence[str]) -> Score:
        return exactly(prediction, references, NAMES)

    def candidates(self, text: str) -> list[str]:
        return names_in(text[: text.rfind("\n\nQuestion: ")].partition("\n\nThe text:\n")[2], NAMES)

    def is_final(self, text: str) -> bool:
        return has_first_line(text)


class Associations:
    """Builds samples of one number of hops at one length."""

    def __init__(self, setting: Setting, task: Association) -> None:
        self.setting, self.hops = setting, task.hops
        self.essays = essays_of(setting)
        before, after = setting.around
        self.head, _, self.rest = (before + TASK + after + ANSWER).partition("{context}")

    def draft(self, index: int, room: int) -> PromptDraft:
        """Drafts sample `index`, of at most `room` tokens."""
        rng = self.setting.rng(index)
        theme = THEMES[rng.integers(len(THEMES))]
        signs = [theme.signs[i] for i in rng.permutation(len(theme.signs))[:SENTENCES]]
        people = [NAMES[i] for i in rng.permutation(len(NAMES))[:SENTENCES]]
        forms = [theme.sentences[i] for i in rng.integers(len(theme.sentences), size=SENTENCES)]
        asked = int(rng.integers(SENTENCES))
        scatter = Scatter(
            essays=self.essays.from_sentence(int(rng.integers(len(self.essays.sentences)))),
            sentences=tuple(f.format(name=n, said=s.said) for f, n, s in zip(forms, people, signs)),
            shares=tuple(sorted(rng.random(SENTENCES).tolist())),
            head=self.setting.composer.known(self.head),
            rest=[self.rest.replace("{question}", theme.question(signs[asked], self.hops))],
        )
        draft = scattered(scatter, self.setting.composer, room)
        slices = (("essays", self.setting.sources.haystack), ("theme", theme.name), ("hops", self.hops))
        return replace(draft, references=(people[asked],), depths=(draft.depths[asked],), slices=slices)
