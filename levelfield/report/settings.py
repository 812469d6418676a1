"""Says in words how a run's settings differ from those of the run that a printed cell stands for.

    unlike(ours, printed)      # ("width 64 instead of 256", "budget 1,600 steps instead of 200 epochs")

Every field of the two frozen values is compared, but for the seed, names and citations. The most telling fields come
first: layers and direction, sizes, share of data, budget, the task, then the rest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from levelfield.report.arms import ABSENT, Arm, Difference, differences

# What describes how a run came about, not what it is.
ASIDE = frozenset({"tuning_trials", "weights"})
# Parts of a path that say nothing.
STRUCTURE = frozenset({"model", "protocol", "phases", "recipe", "mixers", "block", "numerics"})
FIRST = ("mixers", "causal", "positions", "depth", "width", "fraction", "objective", "budget", "task")
WHOLE = {"mixers": "layers", "phases": "phase"}  # where a value is shown whole
WORDS = {"True": "yes", "False": "no"}


def unlike(ours: Mapping[str, Any], printed: Mapping[str, Any], along: str = "") -> tuple[str, ...]:
    """One text for each field in which two described runs differ. along: a field that is told apart elsewhere."""
    mine, theirs = Arm("", "ours", ""), Arm("", "printed", "")
    found = [d for d in differences({mine: ours, theirs: printed}) if _counts(d, along)]
    several = len(printed.get("protocol", {}).get("phases", ())) > 1
    return tuple(_said(d, mine, several) for d in sorted(found, key=_rank))


def _counts(difference: Difference, along: str) -> bool:
    """Fields that one of the two does not know at all are of another version of the code, and take their default."""
    *_, last = difference.field.split(".")
    unknown = ABSENT in difference.values and not last.startswith("last")
    return not unknown and last not in ASIDE and last != along


def _rank(difference: Difference) -> int:
    parts = difference.field.split(".")
    return next((i for i, name in enumerate(FIRST) if name in parts), len(FIRST))


def _said(difference: Difference, mine: Arm, several: bool) -> str:
    ours, theirs = sorted(difference.values, key=lambda value: mine not in difference.values[value])
    return f"{_name(difference.field, several)} {_value(ours)} instead of {_value(theirs)}"


def _name(path: str, several: bool) -> str:
    """Names a path in words: "protocol.phases.last-1.recipe.lr" is "pretraining lr", "task.length" is "task length"."""
    parts = path.split(".")
    earlier = "phases" in parts and any(re.fullmatch(r"last-\d+", part) for part in parts)
    named = [part for part in parts if not re.fullmatch(r"last(-\d+)?", part)]
    kept = [part for part in named[:-1] if part not in STRUCTURE] + named[-1:]
    words = " ".join(WHOLE.get(part, part.replace("_", " ")) for part in kept)
    return f"pretraining {words}" if earlier and several else words


def _value(text: str) -> str:
    """Puts commas into long numbers, and says yes or no for a switch."""
    return WORDS.get(text, re.sub(r"(?<![\d.])\d{4,}(?![\d.])", lambda m: f"{int(m.group()):,}", text))
