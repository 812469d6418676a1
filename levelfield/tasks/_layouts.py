"""Holds what tasks share whose texts come in several layouts, with one answer somewhere in each text.

require("Needle", formats, FORMATS)          # UserError for a layout that is none
examples(formats, x, y, depth, form)         # with the slices `depth` and `format`
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from levelfield.spec import Examples, UserError

BINS = 10  # values of the slice `depth`


def require(task: str, given: Sequence[str], known: Sequence[str]) -> None:
    """Raises UserError unless the layouts that a task is given are some of those that it knows, each once."""
    if not given or not set(given) <= set(known) or len(set(given)) < len(given):
        raise UserError(f"{task}'s formats are some of {', '.join(known)}, each once.")


def examples(formats: Sequence[str], x: np.ndarray, y: np.ndarray, depth: np.ndarray, form: np.ndarray) -> Examples:
    """Returns texts and labels by step, (N, length). depth, form: (N,), the tenth with the answer, and the layout."""
    return Examples.of_equal_length(x, y, {"depth": depth, "format": np.array(formats)[form]}, stepwise=True)
