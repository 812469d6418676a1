"""Samples from a seed.

    for sample in generate(named("vt"), 4096, tokenizer, seed=42, count=500):
        ...

A sample depends on its index alone: `start=100, count=50` are samples 100 to 149 of the same 500, and the same index
at another length or depth hides the same needles.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Literal, Protocol

import numpy as np

from levelfield.ruler.budget import answer_tokens
from levelfield.ruler.coded import CodedTexts
from levelfield.ruler.documents import Documents
from levelfield.ruler.fitting import SLACK, Draft
from levelfield.ruler.flavours import flavoured
from levelfield.ruler.needles import Needles
from levelfield.ruler.pieces import Composer, Pieces, Seam, merged
from levelfield.ruler.sample import Sample, Tokenizer
from levelfield.ruler.setting import Setting
from levelfield.ruler.sources import Sources
from levelfield.ruler.tasks import CommonWords, FrequentWords, Needle, Questions, RulerTask, Tracking
from levelfield.ruler.templates import split
from levelfield.ruler.tracking import Trackings
from levelfield.ruler.wordlists import WordLists
from levelfield.spec import UserError

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
) -> Iterator[Sample]:
    """Samples start to start + count of the task, of `length` tokens with the answer's.

    check: which samples' ids are compared with tokenising their text, beyond the check of every seam; after one that
    differs all are tokenised as a whole. Raises UserError for names that do not exist and lengths that hold no sample.
    """
    split(template)
    if length < 1 or count < 0 or start < 0:
        raise UserError(f"RULER needs a length from 1 and counts from 0, not {length}, {count} and {start}.")
    style = flavoured(flavour)
    texts = sources or Sources()
    room = answer_tokens(task, tokenizer, style, texts)
    stream = replace(task, depth=None).name if isinstance(task, Needle) else task.name
    setting = Setting(stream, length, room, style, template, texts, seed, Composer(tokenizer))
    return _samples(task, setting, range(start, start + count), check)


def _samples(task: RulerTask, setting: Setting, indices: range, check: str) -> Iterator[Sample]:
    maker: Maker | None = None
    whole: Maker | None = None  # for samples, or tokenizers, that pieces do not compose
    with suppress(Seam):
        maker = _maker(task, setting)
    for index in indices:
        made = None if maker is None else _composed(maker, setting, index)
        checked = check == "all" or index == indices[0]
        if made and checked and not np.array_equal(made[1], setting.pen.encode(text_of(made[0].pieces))):
            maker = made = None
        if made is None:
            whole = whole or _maker(task, replace(setting, pen=Composer(setting.pen.tokenizer, exact=False)))
            made = _tokenised(whole, setting, index)
        yield _sample(task, setting, index, *made)


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
        raise UserError(f"No sample of {setting.room} tokens could be made: give a longer length.")
    return best


def text_of(pieces: Pieces) -> str:
    return "".join(piece if isinstance(piece, str) else piece.text() for piece in pieces)


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
