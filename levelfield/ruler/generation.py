"""Generates the samples of a task from a seed.

    for sample in generate(named("vt"), 4096, tokenizer, seed=42, count=500):
        ...

A sample depends on its index alone: `start=100, count=50` are samples 100 to 149 of the same 500, and the same index
at another length or depth hides the same needles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from levelfield.ruler.builders.common_words import WordLists
from levelfield.ruler.builders.frequent_words import CodedTexts
from levelfield.ruler.builders.needles import Needles
from levelfield.ruler.builders.questions import Documents
from levelfield.ruler.builders.tracking import Trackings
from levelfield.ruler.fingerprints import fingerprint
from levelfield.ruler.prompt.answer_budget import answer_tokens, forgets_answer
from levelfield.ruler.prompt.compose import Composer, TokenBoundaryError, merged, text_of
from levelfield.ruler.prompt.fit import SLACK, DoesNotFit, PromptDraft
from levelfield.ruler.prompt.flavours import flavoured
from levelfield.ruler.prompt.setting import Setting
from levelfield.ruler.prompt.templates import split
from levelfield.ruler.question_set import Builder, QuestionSet
from levelfield.ruler.sample import FILE, Sample
from levelfield.ruler.sources import Sources
from levelfield.ruler.tasks import CommonWords, FrequentWords, Needle, Questions, RulerTask, Tracking
from levelfield.spec import UserError
from levelfield.tokenizer import SlowTokenizer, Tokenizer

TRIES = 12  # at fitting a sample that is tokenised as a whole
PROPORTIONAL = 3  # of these tries, how many correct an estimate by its factor


@dataclass(frozen=True)
class PromptOptions:
    """How the prompts of one call are written. `generate` raises UserError for names that do not exist."""

    flavour: str = "sound"  # the variant of RULER: official, paper or sound
    template: str = "base"  # the chat template of a model family; with `around`, only the name of that
    sources: Sources = field(default_factory=Sources)
    check: Literal["first", "all"] = "first"  # which samples' ids are compared with those of their whole text
    around: tuple[str, str] | None = None  # other text before the task and after it than the template's


DEFAULTS = PromptOptions()


def generate(
    task: RulerTask,
    length: int,
    tokenizer: Tokenizer,
    options: PromptOptions = DEFAULTS,
    *,
    seed: int = 42,
    count: int = 500,
    start: int = 0,
    on_skipped: Callable[[int, str], None] | None = None,
) -> Iterator[Sample]:
    """Yields samples start to start + count of the task, of `length` tokens including the answer's, but for frequent
    words in `paper`.

    A sample that cannot be made raises UserError. With `on_skipped`, that is called with the sample's index and the
    reason instead, and generation goes on. After a sample whose ids fail the check of `options`, all samples are
    tokenised as a whole.
    """
    around = split(options.template) if options.around is None else options.around
    if length < 1 or count < 0 or start < 0:
        raise UserError(f"RULER needs a length from 1 and counts from 0, not {length}, {count} and {start}.")
    flavour = flavoured(options.flavour)
    setting = Setting(
        stream=replace(task, depth=None).name if isinstance(task, Needle) else task.name,
        length=length,
        answer_tokens=answer_tokens(task, tokenizer, flavour),
        flavour=flavour,
        template=options.template,
        around=around,
        sources=options.sources,
        seed=seed,
        composer=Composer(tokenizer),
        forgets_answer=forgets_answer(task, flavour),
    )
    return _samples(_SampleMaker(task, setting, options.check), range(start, start + count), on_skipped)


def _samples(maker: _SampleMaker, indices: range, on_skipped: Callable[[int, str], None] | None) -> Iterator[Sample]:
    for index in indices:
        try:
            sample = maker.sample(index)
        except DoesNotFit as error:
            if on_skipped is None:
                raise
            on_skipped(index, str(error))
        else:
            yield sample


class _SampleMaker:
    """Makes the samples of one call. Tables are made for the first one; if they do not fit, no sample does."""

    def __init__(self, task: RulerTask, setting: Setting, check: str) -> None:
        self.task, self.setting, self.check = task, setting, check
        self.builder: Builder | None = None
        self.whole: Builder | None = None  # for samples, or tokenizers, whose ids cannot be composed from pieces
        self.started = False
        self.error: DoesNotFit | None = None

    def sample(self, index: int) -> Sample:
        """Returns sample `index`. Raises DoesNotFit if it cannot be made."""
        if self.error:
            raise self.error
        first, self.started = not self.started, True
        if first and not isinstance(self.setting.composer.tokenizer, SlowTokenizer):
            with suppress(TokenBoundaryError):
                self.builder = self._tables(self.setting)
        made = None if self.builder is None else _composed(self.builder, self.setting, index)
        checked = first or self.check == "all"
        if made and checked and not np.array_equal(made[1], self.setting.composer.encode(text_of(made[0].pieces))):
            self.builder = made = None
        if made is None:
            self.whole = self.whole or self._tables(replace(self.setting, composer=_drafting(self.setting)))
            tries = 1 if isinstance(self.task, QuestionSet) and self.task.whole else TRIES
            made = _tokenised(self.whole, self.setting, index, tries)
        draft, ids = made
        return _sample(self.task, self.setting, index, draft, ids)

    def _tables(self, setting: Setting) -> Builder:
        try:
            return _builder(self.task, setting)
        except DoesNotFit as error:
            self.error = error
            raise


def _drafting(setting: Setting) -> Composer:
    """Returns a composer that estimates the lengths of drafts."""
    tokenizer = setting.composer.tokenizer
    return Composer(tokenizer.estimate if isinstance(tokenizer, SlowTokenizer) else tokenizer, exact=False)


def _builder(task: RulerTask, setting: Setting) -> Builder:
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
        case QuestionSet():
            return task.builder(setting)


def _composed(builder: Builder, setting: Setting, index: int) -> tuple[PromptDraft, np.ndarray] | None:
    """Composes the sample from pieces: the draft and its (n,) ids; None if pieces merge at their boundaries.

    Raises DoesNotFit for a sample that is neither filled nor cut, and is too long.
    """
    try:
        draft = builder.draft(index, setting.room)
        ids = setting.composer.compose(draft.pieces)
    except TokenBoundaryError:
        return None
    if len(ids) > setting.room:
        raise DoesNotFit(f"It takes {len(ids):,} tokens and there is room for {setting.room:,}: give a longer length.")
    return draft, ids


def _tokenised(builder: Builder, setting: Setting, index: int, tries: int) -> tuple[PromptDraft, np.ndarray]:
    """Tokenises the sample as a whole, and drafts it again until its length is right: the draft and its (n,) ids."""
    aim, best = setting.room, None
    slow = isinstance(setting.composer.tokenizer, SlowTokenizer)
    for tried in range(tries):
        draft = builder.draft(index, aim)
        ids = setting.composer.encode(text_of(draft.pieces))
        left = setting.room - len(ids)
        if left >= 0 and (best is None or len(ids) > len(best[1])):
            best = draft, ids
        if left >= 0 and (left <= SLACK or not setting.flavour.exact):
            break
        if slow and tried < PROPORTIONAL:  # an estimate is wrong by a factor rather than by a few tokens
            aim = max(1, aim * setting.room // max(1, len(ids)))
        else:
            aim += left - (left < 0)
    if best is None:
        raise DoesNotFit(f"No sample of {setting.room} tokens could be made: give a longer length.")
    return best


def _sample(task: RulerTask, setting: Setting, index: int, draft: PromptDraft, ids: np.ndarray) -> Sample:
    ids.setflags(write=False)
    return Sample(
        task=task.name,
        index=index,
        length=setting.length,
        answer_tokens=setting.answer_tokens,
        ids=ids,
        references=draft.references,
        depths=draft.depths,
        flavour=setting.flavour.name,
        template=setting.template,
        tokenizer=setting.composer.tokenizer.name,
        seed=setting.seed,
        slices=(*draft.slices, *_file(task, setting)),
        parts=tuple(merged(draft.pieces)),
    )


def _file(task: RulerTask, setting: Setting) -> list[tuple[str, str]]:
    found = fingerprint(task, setting.sources, setting.length)
    return [(FILE, found)] if found else []
