"""Scores readers of ListOps' outermost levels at the benchmark's size.

    python benchmarks/listops_levels.py             # writes results/listops-levels.csv in 8 minutes

A reader of one level sees the operator at the root and its arguments, each a digit or an operator, and nothing further
inside; it knows how often each operator has which value, and gives the likeliest answer. So a model that scores more
has read further. Where it reads the first tokens alone, it knows of the other arguments how many and which there are in
general. `docs/scripts/listops_levels.py` draws the rows beside the scores that papers print.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from levelfield.files import write_text
from levelfield.report.tables import to_csv
from levelfield.spec import Examples
from levelfield.tasks._listops.levels import CLOSE, OPERATORS, likeliest
from levelfield.tasks._listops.second_value import values
from levelfield.tasks.listops import ListOps

TASK = ListOps(train=20_000, val=1, test=20_000)  # the benchmark's law
FIRST = (5, 21, 61, 241, 1_000, 2_000)  # tokens that a reader of one level sees, at most
FEWER, DRAWS = 4_000, 60  # expressions of which first tokens are read, and draws of the other arguments
CSV = Path("results/listops-levels.csv")


def measured() -> list[dict[str, Any]]:
    """Returns rows of every number of levels, for all expressions (root "") and by the operator at the root."""
    splits = TASK.build(None)
    train, test = splits["train"], splits["test"]
    rows = []
    for levels in range(TASK.max_depth):
        right = likeliest(train, test, levels) == test.y
        for root in ("", *np.unique(test.slices["root"])):
            here = right[test.slices["root"] == root] if root else right
            rows.append({"levels": levels, "root": root, "value": float(here.mean()), "n": len(here)})
        print(f"{levels} levels: {100 * right.mean():.1f} %", flush=True)
    for tokens in FIRST:
        share = float(np.mean(first_tokens(train, test.take(np.arange(FEWER)), tokens) == test.y[:FEWER]))
        rows.append({"levels": 1, "tokens": tokens, "root": "", "value": share, "n": FEWER})
        print(f"1 level of {tokens} tokens: {100 * share:.1f} %", flush=True)
    return rows


def first_tokens(train: Examples, test: Examples, tokens: int) -> np.ndarray:
    """Returns the likeliest values to a reader of one level of the first tokens: (tests,) int64.

    Where the end is not seen, it draws how many arguments there are from expressions of train that have more than those
    seen, and what they are from all arguments in train.
    """
    random = np.random.default_rng(0)
    roots, known, _ = zip(*_outermost(train), strict=True)
    counts, every = np.array([len(each) for each in known]), np.concatenate(known)
    labels = {operator: train.y[np.array(roots) == operator] for operator in OPERATORS}
    answers = []
    for (root, arguments, places), length in zip(_outermost(test), test.lengths, strict=True):
        seen = arguments[places < tokens]
        more = counts[counts > len(seen)] if len(seen) < TASK.max_args else counts[counts == TASK.max_args]
        unknown = 0 if tokens >= length else random.choice(more, DRAWS) - len(seen)
        drawn = [np.concatenate([seen, random.choice(every, n)]) for n in np.broadcast_to(unknown, DRAWS)]
        for each in drawn:
            for operator in OPERATORS:
                each[each == operator] = random.choice(labels[operator], np.sum(each == operator))
        whole = [np.concatenate([[root], each, [CLOSE]]) for each in drawn]
        starts = np.cumsum([0, *map(len, whole)])
        answers.append(np.bincount(values(np.concatenate(whole).astype(np.uint8), starts)).argmax())
    return np.array(answers)


def _outermost(examples: Examples) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yields of each expression the operator at the root, its arguments, and where they begin."""
    for at in range(len(examples)):
        x = np.asarray(examples.x[examples.offsets[at] : examples.offsets[at + 1]])
        opens, closes = (x >= OPERATORS[0]) & (x < CLOSE), x == CLOSE
        level = np.cumsum(opens.astype(int) - closes)
        places = np.flatnonzero(((level == 1) & (x < OPERATORS[0])) | (opens & (level == 2)))
        yield int(x[0]), x[places].astype(np.int64), places


def main() -> None:
    """Writes the rows."""
    rows = measured()
    write_text(CSV, to_csv(rows))


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
