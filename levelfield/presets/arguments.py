"""The kinds of argument that the command line takes: what one looks like in --help, and how its words are read.

    def plan(out: Folder = Path("runs"), seeds: Trials = Annotated[int, _one("N", whole), arg(help_behavior_hint="")]
Count = None, tasks: Names = ()) -> None: ...

    --out runs                      a folder, there or not: what cannot be one is refused before anything else happens
    --tasks listops,recall pulse    names, between commas and blanks alike
    --seeds 3                       a whole number from 1 on

Whatever cannot be read raises UserError, in one sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg
from tyro.constructors import PrimitiveConstructorSpec

from levelfield import files
from levelfield.spec import UserError

MOST = 1_000_000_000


def whole(text: str, least: int = 0, most: int = MOST) -> int:
    """whole("12") is 12. Raises UserError for what is no whole number in that range."""
    try:
        number = int(text) if len(text) <= 20 else MOST + 1
    except ValueError:
        raise UserError(
            f"'{files.shortened(text, 60)}' is no whole number: give one such as {max(1, least)}."
        ) from None
    if not least <= number <= most:
        raise UserError(f"{files.shortened(text, 60)} is out of range: give a whole number from {least} to {most:,}.")
    return number


def real(text: str) -> float:
    """real("2e-3") is 0.002. Raises UserError for what is no number above zero."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise UserError(f"'{files.shortened(text, 60)}' is no number above 0: give one such as 0.001.")
    return number


def names(words: Sequence[str]) -> tuple[str, ...]:
    """names(["a,b", "c d"]) is ("a", "b", "c", "d")."""
    return tuple(part for word in words for part in word.replace(",", " ").split())


def _one(metavar: str, read: Any) -> PrimitiveConstructorSpec[Any]:
    """A kind of one word, which `read` understands."""
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: read(words[0]),
        is_instance=lambda value: True,
        str_from_instance=lambda value: [str(value)],
    )


Folder = Annotated[Path, _one("FOLDER", files.folder)]
File = Annotated[Path | None, _one("PATH", Path), arg(help_behavior_hint="")]
Number = Annotated[int, _one("N", whole)]
Trials = Annotated[int, _one("N", whole), arg(help_behavior_hint="")]
Count = Annotated[int | None, _one("N", whole), arg(help_behavior_hint="")]
Rate = Annotated[float | None, _one("X", real), arg(help_behavior_hint="")]
Device = Annotated[str, _one("DEVICE", str)]
Text = Annotated[str, _one("TEXT", str), arg(help_behavior_hint="")]
Names = Annotated[
    tuple[str, ...],
    PrimitiveConstructorSpec(
        nargs="*",
        metavar="NAME ...",
        instance_from_str=names,
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=list,
    ),
    arg(help_behavior_hint=""),
]
