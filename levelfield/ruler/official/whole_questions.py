"""Asks the questions of an official file as they are: none is cut, and none is filled up to a length.

A length is what a prompt with its answer may take at most. A question that takes more is left out there, and the report
says so; at a longer length it is asked, and what fits a shorter one is the same prompt again, whose answer is stored.
Sample `index` is the same question for all lengths and tokenizers: in `sound` of an order that is drawn with the seed,
in the other variants of the file's order.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, NamedTuple

import numpy as np

from levelfield.ruler.official.records import Record
from levelfield.ruler.prompt.compose import Slice
from levelfield.ruler.prompt.fit import DoesNotFit, PromptDraft
from levelfield.ruler.prompt.setting import Setting
from levelfield.ruler.question_set import NAME, QuestionSet
from levelfield.ruler.sources import Sources
from levelfield.spec import UserError

MOST_LETTERS = 32  # to a token of a whole text; no tokenizer takes so many, so what has more need not be tokenised


class WholeQuestion(NamedTuple):
    """A question. prompt: the task with the question; start: the beginning of the answer, which the model continues."""

    prompt: str
    start: str
    references: tuple[str, ...]
    slices: tuple[tuple[str, str | int | float], ...]


class OfficialSet(QuestionSet):
    """A set of questions in a file that the user has."""

    whole: ClassVar[bool] = True
    option: ClassVar[str]
    """The flag that names the file."""
    file: ClassVar[str]
    """What the file is called where it is published."""

    @abstractmethod
    def path(self, sources: Sources) -> str | None:
        """Returns the file that the user has named, or the folder."""

    @abstractmethod
    def records(self, path: str, length: int) -> Sequence[Record]:
        """Reads the records for a length. Raises UserError for an absent file and for another layout."""

    @abstractmethod
    def asked(self, record: Record) -> WholeQuestion:
        """Returns the question of a record."""

    def files(self, sources: Sources, length: int) -> tuple[str, ...]:
        """Returns the files that the prompts of a length are made of. Raises UserError where none is named."""
        return (self.named(sources),)

    def named(self, sources: Sources) -> str:
        """Returns the file that the user has named. Raises UserError where none is."""
        path = self.path(sources)
        if path is None:
            raise UserError(f"{self.name} needs its official file ({self.file}): add --{self.option} FILE.")
        return path

    def read(self, sources: Sources, length: int) -> Sequence[Record]:
        """Returns the records for a length. Raises UserError for a file that is absent or of another layout."""
        path = self.named(sources)
        with self._understood():
            found = self.records(path, length)
        if not found:
            raise UserError(f"{path} has no question for {self.name}: give {self.file}.")
        return found

    def question(self, record: Record) -> WholeQuestion:
        """Returns the question of a record. Raises UserError for one of another layout."""
        with self._understood():
            return self.asked(record)

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Turns what a record of another layout raises into a sentence."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"A record of {self.name} has another layout ({error!r}): give {self.file}.") from error

    def check(self, sources: Sources, lengths: Sequence[int]) -> None:
        """Raises UserError unless questions can be made for these lengths."""
        for length in lengths:
            self.question(self.read(sources, length)[0])

    def builder(self, setting: Setting) -> WholeQuestions:
        return WholeQuestions(setting, self)

    def guess(self, text: str, count: int, rng: np.random.Generator) -> str:
        return super().guess(text, 1, rng)

    def copy_last(self, text: str, count: int) -> str:
        return super().copy_last(text, 1)

    def candidates(self, text: str) -> list[str]:
        return NAME.findall(text)


class WholeQuestions:
    """Builds the samples of one official set, for one length."""

    def __init__(self, setting: Setting, task: OfficialSet) -> None:
        self.setting, self.task = setting, task
        self.records = task.read(setting.sources, setting.length)
        count = len(self.records)
        drawn = setting.flavour.exact
        self.order = np.random.default_rng(setting.seed).permutation(count) if drawn else np.arange(count)

    def draft(self, index: int, room: int) -> PromptDraft:
        """Returns the prompt of sample `index`, of whatever length. Raises DoesNotFit where there is none."""
        if index >= len(self.records):
            raise DoesNotFit(f"There are {len(self.records)} questions: ask for no more samples than that.")
        asked = self.task.question(self.records[self.order[index]])
        before, after = self.setting.around
        text = before + asked.prompt + after + asked.start
        if len(text) > MOST_LETTERS * self.setting.length:
            raise DoesNotFit(f"The question has {len(text):,} letters, too many for {self.setting.length} tokens.")
        table = self.setting.composer.table([text], "", "")
        return PromptDraft([Slice(table, 0, 1)], asked.references, (), asked.slices)
