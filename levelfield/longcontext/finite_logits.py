"""Refuses a language model whose logits are NaN or infinite, before answers are stored that stand for nothing.

    check(model, tokenizer, evaluations, stored(folder), "bfloat16")

Weights may not be finite, and numbers of a narrow precision may overflow. Such a model answers nothing, and a score of
0 would say that it had read its questions and found nothing. It is asked one question, unless one of its answers is
sound: where logits are no numbers only now and then, as beyond some length, the other answers count, and rows say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.predictions import Prediction
from levelfield.longcontext.runner import check_ids, prompt_of
from levelfield.ruler import Sample, Tokenizer
from levelfield.spec import UserError

if TYPE_CHECKING:
    from levelfield.pretrained import LanguageModel

WEIGHTS = "see whether the weights are finite"
WIDER = {"bfloat16": "float32", "float32": "float64"}


def remedy(precision: str, stored: bool) -> str:
    """Returns what to do about a model whose logits are no numbers.

    precision: "" where it is not known. stored: whether there are answers in it, beside which no others may be.
    """
    wider, beside = WIDER.get(precision), " with another --runs-dir" if stored else ""
    return f"give --precision {wider}{beside}, and where that changes nothing, {WEIGHTS}" if wider else WEIGHTS


def check(
    model: LanguageModel,
    tokenizer: Tokenizer,
    evaluations: Sequence[Evaluation],
    known: Iterable[Prediction],
    precision: str,
    *,
    trained_here: bool = False,
) -> None:
    """Raises UserError where the logits after the first question are NaN or infinite.

    known: the answers that are there; if one of them is sound, nothing is asked.
    """
    import torch

    known = list(known)
    if any(one.status == "ok" for one in known) or (first := _first(evaluations, tokenizer)) is None:
        return
    check_ids(model, tokenizer, [first])
    logits, _ = model.start(torch.from_numpy(prompt_of(model, first).astype("int64"))[None])
    if not bool(logits.amax(-1).isfinite().all()):  # -inf marks a token that cannot come
        said = f"The logits of {model.name} are NaN or infinite after the first question"
        if trained_here:
            raise UserError(f"{said}: its run may have diverged, so give another run.")
        raise UserError(f"{said} in {precision}: {remedy(precision, bool(known))}.")


def _first(evaluations: Sequence[Evaluation], tokenizer: Tokenizer) -> Sample | None:
    """Returns a question of the shortest length that holds one; None where none does."""
    for length in sorted({length for each in evaluations for length in each.lengths}):
        for each in evaluations:
            for task in each.tasks if length in each.lengths else ():
                for sample in each.part(task, length, tokenizer, range(1), on_skipped=lambda one: None):
                    return sample
    return None
