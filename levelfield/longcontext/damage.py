"""Finds damaged lines in a folder of answers, so that one of them is removed and not the answers around it.

check(Path("runs/ruler/mamba2-2.7b"))     # UserError: Line 3 of .../predictions.jsonl is damaged ...
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from levelfield.files import unreadable
from levelfield.longcontext.answers import BASELINES
from levelfield.longcontext.model_record import ways
from levelfield.longcontext.predictions import LEFT_OUT, PREDICTIONS, LeftOut, Prediction
from levelfield.spec import UserError

FEW = 5  # lines that are named
KINDS: Mapping[str, tuple[tuple[type, ...], tuple[str, ...]]] = {
    "text": (
        (str,),
        ("key", "task", "flavour", "template", "text", "status", "why", "model", "at", "reasoning", "finish"),
    ),
    "number": ((int, float), ("length", "seed", "tokens", "made", "version")),
    "object": ((dict,), ("settings", "slices", "counted", "setting")),
}


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
        record = json.loads(line.decode().rstrip("\n"))
        if not isinstance(record, dict):
            return "no object"
        for kind, (types, names) in KINDS.items():
            for name in names:
                if name in record and not isinstance(record[name], types):
                    return f"its '{name}' is no {kind}"
        read(record)
    except KeyError as error:
        return f"without {error}"
    except UnicodeDecodeError:
        return "no UTF-8 text"
    except json.JSONDecodeError as error:
        return f"no JSON: {error.msg}"
    except (TypeError, ValueError, RecursionError):
        return "with other fields than it should have"
    return ""


def _answer(record: Mapping[str, Any]) -> object:
    return Prediction.restored(record)


def _left_out(record: Mapping[str, Any]) -> object:
    return LeftOut(**record)


def _baseline(record: Mapping[str, Any]) -> object:
    return record["model"], record["task"], record["at"]
