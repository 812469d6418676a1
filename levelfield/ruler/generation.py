"""Samples from a seed.

    for sample in generate(named("vt"), 4096, tokenizer, seed=42, count=500):
        ...

A sample depends on its index alone: `start=100, count=50` are samples 100 to 149 of the same 500, and the same index
at another length or depth hides the same needles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Literal, Protocol

import numpy as np

from levelfield.ruler.builders.common_words import WordLists
from levelfield.ruler.builders.frequent_words import CodedTexts
from levelfield.ruler.builders.needles import Needles
from levelfield.ruler.builders.questions import Documents
from levelfield.ruler.builders.tracking import Trackings
from levelfield.ruler.prompt.answer_budget import answer_tokens
from levelfield.ruler.prompt.compose import Composer, Seam, merged, text_of
from levelfield.ruler.prompt.fit import SLACK, Draft, Misfit
from levelfield.ruler.prompt.flavours import flavoured
from levelfield.ruler.prompt.setting import Setting
from levelfield.ruler.prompt.templates import split
from levelfield.ruler.sample import Sample
from levelfield.ruler.sources import Sources
from levelfield.ruler.tasks import CommonWords, FrequentWords, Needle, Questions, RulerTask, Tracking
from levelfield.spec import UserError
from levelfield.tokenizer import Tokenizer

TRIES = 12  # of fitting a sample that is tokenised as a whole


class Maker(Protocol):
    """Drafts of one task at one length."""

    def draft(self, index: int, room: int) -> Draft: ...


def generate(
    task: RulerTask,
    length: int,
    tokenizer: Tokenizer,
    *,
    seed: int = 42,
    count: int = 500,
    start: int = 0,
    flavour: str = "sound",
    template: str = "base",
    sources: Sources | None = None,
    check: Literal["first", "all"] = "first",
    missed: Callable[[int, str], None] | None = None,
) -> Iterator[Sample]:
    """Samples start to start + count of the task, of `length` tokens with the answer's.

    check: which samples' ids are compared with tokenising their text, beyond the check of every seam; after one that
    differs all are tokenised as a whole. missed: is told the index of a sample that cannot be made and why, and the
    others go on; without it the first such sample raises UserError. So do names that do not exist.
    """
    split(template)
    if length < 1 or count < 0 or start < 0:
        raise UserError(f"RULER needs a length from 1 and counts from 0, not {length}, {count} and {start}.")
    style = flavoured(flavour)
    texts = sources or Sources()
    room = answer_tokens(task, tokenizer, style, texts)
    stream = replace(task, depth=None).name if isinstance(task, Needle) else task.name
    setting = Setting(stream, length, room, style, template, texts, seed, Composer(tokenizer))
    return _samples(_Making(task, setting, check), range(start, start + count), missed)


def _samples(making: _Making, indices: range, missed: Callable[[int, str], None] | None) -> Iterator[Sample]:
    for index in indices:
        try:
            sample = making.sample(index)
        except Misfit as error:
            if missed is None:
                raise
            missed(index, str(error))
        else:
            yield sample


class _Making:
    """The samples of one call. Tables are made for the first of them; where even they do not fit, none does."""

    def __init__(self, task: RulerTask, setting: Setting, check: str) -> None:
        self.task, self.setting, self.check = task, setting, check
        self.maker: Maker | None = None
        self.whole: Maker | None = None  # for samples, or tokenizers, that pieces do not compose
        self.started = False
        self.misfit: Misfit | None = None

    def sample(self, index: int) -> Sample:
        """Raises Misfit where it cannot be made."""
        if self.misfit:
            raise self.misfit
        first, self.started = not self.started, True
        if first:
            with suppress(Seam):
                self.maker = self._tables(self.setting)
        made = None if self.maker is None else _composed(self.maker, self.setting, index)
        checked = first or self.check == "all"
        if made and checked and not np.array_equal(made[1], self.setting.pen.encode(text_of(made[0].pieces))):
            self.maker = made = None
        if made is None:
            pen = Composer(self.setting.pen.tokenizer, exact=False)
            self.whole = self.whole or self._tables(replace(self.setting, pen=pen))
            made = _tokenised(self.whole, self.setting, index)
        return _sample(self.task, self.setting, index, *made)

    def _tables(self, setting: Setting) -> Maker:
        try:
            return _maker(self.task, setting)
        except Misfit as error:
            self.misfit = error
            raise


def _maker(task: RulerTask, setting: Setting) -> Maker:
    match task:
        case Needle():
            return Needles(setting, task)
        case Tracking():
            return Trackings(setting, task)
        case CommonWords():
            return WordLists(setting, task)
        case FrequentWords():
            return CodedTexts(setting, task)
        case Questions():
            return Documents(setting, task)


def _composed(maker: Maker, setting: Setting, index: int) -> tuple[Draft, np.ndarray] | None:
    """The sample put together from pieces; None where they run into one another."""
    try:
        draft = maker.draft(index, setting.room)
        return draft, setting.pen.compose(draft.pieces)
    except Seam:
        return None


def _tokenised(maker: Maker, setting: Setting, index: int) -> tuple[Draft, np.ndarray]:
    """The sample tokenised as a whole, aimed again until its length is right."""
    aim, best = setting.room, None
    for _ in range(TRIES):
        draft = maker.draft(index, aim)
        ids = setting.pen.encode(text_of(draft.pieces))
        left = setting.room - len(ids)
        if left >= 0 and (best is None or len(ids) > len(best[1])):
            best = draft, ids
        if left >= 0 and (left <= SLACK or not setting.flavour.exact):
            break
        aim += left - (left < 0)
    if best is None:
        raise Misfit(f"No sample of {setting.room} tokens could be made: give a longer length.")
    return best


def _sample(task: RulerTask, setting: Setting, index: int, draft: Draft, ids: np.ndarray) -> Sample:
    ids.setflags(write=False)
    return Sample(
        task.name,
        index,
        setting.length,
        setting.answer_tokens,
        ids,
        draft.references,
        draft.depths,
        setting.flavour.name,
        setting.template,
        setting.pen.tokenizer.name,
        setting.seed,
        draft.slices,
        tuple(merged(draft.pieces)),
    )
