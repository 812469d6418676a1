"""Says what makes an imported answer one that no report can be made of, before it is stored.

flaw(prediction)      # "" where it is whole, or "has no expected answer"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from levelfield.longcontext.predictions import Prediction, task_of
from levelfield.ruler import score
from levelfield.ruler.prompt.flavours import flavoured
from levelfield.spec import UserError
from levelfield.spec.errors import format_error

NAMES = ("key", "task", "flavour", "template")
TEXTS: Mapping[str, str] = {name: f"a {name}" for name in NAMES} | {"text": "an answer"}
LEAST: Mapping[str, int] = {"length": 1, "index": 0, "seed": 0, "tokens": 0, "version": 1}


def references_of(outputs: Any) -> tuple[str, ...]:
    """Returns the expected answers of a record: each of a list, or the only one. Raises ValueError for others."""
    listed = outputs if isinstance(outputs, list | tuple) else [outputs]
    if not all(isinstance(each, str | int | float) for each in listed):
        raise ValueError("expected answers that are no texts")
    return tuple(map(str, listed))


def flaw(one: Prediction) -> str:
    """Returns why an answer cannot be reported, as the end of a sentence about it; "" where it can."""
    for name, called in TEXTS.items():
        if not isinstance(getattr(one, name), str):
            return f"has {called} that is no text"
    for name, least in LEAST.items():
        value = getattr(one, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            return f"has the {name} {value!r}, where a number from {least} should be"
    if not all(isinstance(depth, int | float) and 0 <= depth <= 1 for depth in one.depths):
        return "has depths that are no numbers from 0 to 1"
    if not isinstance(one.slices, dict):
        return "has slices that are no columns"
    if "/" in one.template or not one.template.isprintable():
        return f"has the template {one.template!r}, which is none"
    if not one.references or not all(each.strip() for each in one.references):
        return "has no expected answer, or an empty one"
    return _unscored(one)


def _unscored(one: Prediction) -> str:
    """Returns why an answer cannot be scored; "" where it can."""
    try:
        flavoured(one.flavour)
        if (name := task_of(one.settings).name) != one.task:
            return f"is of the task {one.task!r} by its name and of {name!r} by its settings"
        score(one.ruler_task, one.text, one.references)
    except UserError as error:
        return f"is of no task here ({str(error).rstrip('.')})"
    except Exception as error:  # of an expected answer that no sample of the task has
        return f"cannot be scored ({format_error(error)})"
    return ""
