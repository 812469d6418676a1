"""Finds damaged lines in a folder of answers, so that one of them is removed and not the answers around it.

check(Path("runs/ruler/mamba2-2.7b"))     # UserError: Line 3 of .../predictions.jsonl is damaged ...
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import Any

from levelfield.files import unreadable
from levelfield.longcontext.answers import BASELINES
from levelfield.longcontext.import_checks import LEAST
from levelfield.longcontext.model_record import ways
from levelfield.longcontext.predictions import LEFT_OUT, PREDICTIONS, LeftOut, Prediction
from levelfield.ruler import score
from levelfield.spec import UserError

FEW = 5  # lines that are named
MOST = 1 << 63  # of a number; counts of tokens that a server gave may be any
Is = Callable[[Any], bool]


def _whole(least: int, most: float = MOST) -> tuple[str, Is]:
    is_whole: Is = lambda it: isinstance(it, int) and not isinstance(it, bool) and least <= it < most  # noqa: E731
    return f"no whole number from {least}", is_whole


def _real(it: Any) -> bool:
    return isinstance(it, int | float) and not isinstance(it, bool) and abs(it) < MOST


def _each(it: Any, one: Is) -> bool:
    return isinstance(it, list) and all(map(one, it))


NAMES = (
    "key",
    "task",
    "flavour",
    "template",
    "text",
    "status",
    "why",
    "model",
    "at",
    "reasoning",
    "finish",
    "question",
)
KINDS: Mapping[str, tuple[str, Is]] = {
    **dict.fromkeys(NAMES, ("no text", lambda it: isinstance(it, str))),
    **{name: _whole(least) for name, least in {**LEAST, "n": 0}.items()},
    "made": _whole(0, inf),
    **dict.fromkeys(("value", "stderr"), ("no number", _real)),
    **dict.fromkeys(("settings", "setting"), ("no object", lambda it: isinstance(it, dict))),
    "depths": ("no list of numbers from 0 to 1", lambda it: _each(it, lambda one: _real(one) and 0 <= one <= 1)),
    "references": ("no list of texts", lambda it: _each(it, lambda one: isinstance(one, str))),
    "slices": (
        "no object of columns",
        lambda it: isinstance(it, dict) and all(isinstance(one, str | int | float) for one in it.values()),
    ),
    "counted": ("no object of counts", lambda it: isinstance(it, dict) and all(map(_whole(0, inf)[1], it.values()))),
}
"""What a line is told to have where a field holds no such value, and whether it does."""


def check(folder: Path) -> None:
    """Raises UserError where `ASKED` or a line of a folder's other files is none that could have been written there.

    A last line of a log that was cut off is no damage: it is removed before more is appended.
    """
    ways(folder)
    _check(folder / PREDICTIONS, _answer, "all other answers stay, and its question is asked again")
    _check(folder / BASELINES, _baseline, "all answers stay, and a baseline loses a score")
    _check(folder / LEFT_OUT, _left_out, "all answers stay, and its question is asked again", log=False)


def _check(path: Path, read: Callable[[Any], object], means: str, *, log: bool = True) -> None:
    found: dict[int, str] = {}
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip(b"\n") and not (log and not line.endswith(b"\n")) and (why := _fault(line, read)):
                    found[number] = why
    except FileNotFoundError:
        return
    except OSError as error:
        raise unreadable(path, error, "put the file back there") from error
    if found:
        numbers = ", ".join(map(str, [*found][:FEW])) + (f" and {len(found) - FEW} more" if len(found) > FEW else "")
        why, many = next(iter(found.values())), len(found) > 1
        lines, are, those = ("Lines", "are", "those lines") if many else ("Line", "is", "that line")
        raise UserError(
            f"{lines} {numbers} of {path} {are} damaged ({why}): take out {those} and run again; "
            f"{means.replace('its question is', 'their questions are') if many else means}."
        )


def _fault(line: bytes, read: Callable[[Any], object]) -> str:
    """Returns what is wrong with a line; "" where nothing is."""
    try:
        record = json.loads(line.decode().rstrip("\n"), parse_constant=_no_constant)
        if not isinstance(record, dict):
            return "no object"
        for name, (called, is_such) in KINDS.items():
            if name in record and not is_such(record[name]):
                return f"its '{name}' is {called}"
        json.dumps(record, ensure_ascii=False).encode()
        read(record)
    except KeyError as error:
        return f"without {error}"
    except UnicodeDecodeError:
        return "no UTF-8 text"
    except UnicodeEncodeError:
        return "with half a character"
    except json.JSONDecodeError as error:
        return f"no JSON: {error.msg}"
    except UserError:
        return ""  # of a task that this version does not have, of which whoever scores it says so
    except (TypeError, ValueError, ArithmeticError, AttributeError, RecursionError):
        return "with other fields than it should have"
    return ""


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _answer(record: Mapping[str, Any]) -> object:
    one = Prediction.restored(record)
    return float(one.chosen_depth or 0), score(one.ruler_task, "", one.references)


def _left_out(record: Mapping[str, Any]) -> object:
    return LeftOut.restored(record)


def _baseline(record: Mapping[str, Any]) -> object:
    return record["model"], record["task"], record["at"]
