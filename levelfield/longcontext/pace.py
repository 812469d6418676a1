"""Remembers how fast a model answered, so that the next dry run can say how long the rest will take.

with noted(folder, show) as watched:          # while answers arrive
    evaluate(model, tokenizer, evaluations, folder, watched)
known(folder)                                 # 1234.5: tokens read and written in a second, all time counted
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from levelfield.files import read_json, write_json
from levelfield.longcontext.predictions import OnPrediction, Prediction
from levelfield.spec import UserError

PACE = "pace.json"


@contextmanager
def noted(folder: Path, on_prediction: OnPrediction = lambda found, new: None) -> Iterator[OnPrediction]:
    """Yields a function that passes answers on, and at the end stores the pace of the new ones; also after Ctrl-C."""
    began, questions, tokens = time.monotonic(), 0, 0

    def watched(found: Prediction, new: bool) -> None:
        nonlocal questions, tokens
        if new:
            questions, tokens = questions + 1, tokens + found.tokens + found.made
        on_prediction(found, new)

    try:
        yield watched
    finally:
        if questions:
            seconds = round(time.monotonic() - began, 3)
            write_json(folder / PACE, {"questions": questions, "tokens": tokens, "seconds": seconds})


def known(folder: Path) -> float | None:
    """Returns the tokens a second of the last answers in a folder; None where none were timed, or that is damaged."""
    try:
        found = read_json(folder / PACE)
        rate = found["tokens"] / max(found["seconds"], 1e-3)
    except (UserError, TypeError, KeyError, ValueError, OverflowError):
        return None
    return rate if 0 < rate < float("inf") else None
