"""Defines what a comparison can be asked for, on the command line and in Python alike.

    Options(tasks=("listops",), seeds=5, steps=4_000)

Whatever is left out is as `efforts.SIZES` has it for the effort.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from levelfield.spec import MixerConfig, Task, UserError
from levelfield.spec.errors import check_literals
from levelfield.user import named

Equal = Literal["steps", "flops"]
MOST = {"seeds": 1_000, "steps": 100_000_000, "width": 65_536, "depth": 1_000, "batch": 1_000_000}


def names(words: Sequence[str]) -> tuple[str, ...]:
    """Splits words at commas and blanks that no bracket holds: names(["a,b", "f.py:C(x=1, y=2)"]) are three.

    A word that names one file or folder which is there is taken whole: names(["my mixers/conv.py:Conv"]) is one.
    """
    return tuple(part for word in words for part in ([word] if _is_one_file(word) else _parts(word)))


def _is_one_file(word: str) -> bool:
    place, call = named.split(word) if named.is_named(word) and not word.endswith(":") else (word, "")
    return len(_parts(call)) <= 1 and bool(_parts(place)) and os.path.exists(place)


def columns(words: Sequence[str]) -> tuple[str, ...]:
    """Splits words at commas alone, as names of columns may hold blanks: columns(["heart rate,ecg"]) are two."""
    return tuple(part.strip() for word in words for part in word.split(",") if part.strip())


def _parts(word: str) -> list[str]:
    depth, text = 0, ""
    for letter in word:
        depth = max(0, depth + (letter in "([{") - (letter in ")]}"))
        text += "\n" if not depth and (letter == "," or letter.isspace()) else letter
    return [part for part in text.split("\n") if part]


@dataclass(frozen=True)
class Options:
    """The arms of a comparison and what they share. Raises UserError for a number that no run can have.

    tasks, protocols, baselines: by their names, or tasks and mixers themselves; where empty, `efforts.TASKS`,
    `comparison.PROTOCOLS` and `comparison.BASELINES`. width is that of the user's model: baselines get the width with
    as many parameters. equal: what the budgets of all arms have in common, optimizer steps or FLOPs; with FLOPs, steps
    are those that the user's model takes on sequences of the task's greatest length, and others get as many FLOPs.
    """

    tasks: tuple[str | Task, ...] = ()
    protocols: tuple[str, ...] = ()
    baselines: tuple[str | MixerConfig, ...] = ()
    seeds: int | None = None
    steps: int | None = None
    width: int | None = None
    depth: int | None = None
    lr: float | None = None
    batch: int | None = None
    equal: Equal = "steps"

    def __post_init__(self) -> None:
        check_literals(self)
        for name, most in MOST.items():
            given = getattr(self, name)
            whole = isinstance(given, int)
            if given is not None and not (whole and 1 <= int(given) <= most):
                shown = f"{given:,}" if whole else repr(given)
                raise UserError(f"{name}={shown} cannot be: give a whole number from 1 to {most:,}.")
        if self.lr is not None and not (isinstance(self.lr, (int, float)) and 0 < self.lr < 1e3):
            raise UserError(
                f"lr={self.lr!r} cannot train: give a learning rate above 0 and below 1,000, such as 0.001."
            )

    @property
    def numbers(self) -> dict[str, int | float]:
        """The sizes that were given, by name."""
        found = {name: getattr(self, name) for name in (*MOST, "lr")}
        return {name: value for name, value in found.items() if value is not None}


USUAL = Options()
