"""Finds the function that the words of a command line mean, and calls it, one command at a time.

    COMMANDS = Group("What it is for.", {"run": run, "data": Group("Arrays of tasks.", {"prepare": prepare})})
    dispatch(COMMANDS, "levelfield", ["data", "prepare", "listops"])

Only the command that was named reads its options, so that a misspelt one is compared with those of that command alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tyro
from tyro.extras import subcommand_cli_from_dict

from levelfield.spec import UserError, closest

RENAMED = {
    "--only": "--filter",
    "--to": "--report-dir",
    "--out": "--runs-dir",
    "--flavour": "--variant",
    "--published-bug": "--reference-bug",
}
"""Flags of earlier versions, which go on working until the next release."""


@dataclass(frozen=True)
class Group:
    """Commands by name, and what they are for."""

    about: str
    commands: Mapping[str, Callable[..., None] | Group]


def dispatch(group: Group, name: str, words: Sequence[str]) -> None:
    """Calls what the words mean. Raises UserError for an unknown command, and SystemExit after --help and for options
    that cannot be read."""
    if not words or words[0].startswith("-"):
        listed = {word: _listed(command) for word, command in group.commands.items()}
        subcommand_cli_from_dict(listed, prog=name, description=group.about, args=list(words) or ["--help"])
        return
    word, *rest = words
    if word not in group.commands:
        raise UserError(f"There is no command '{name} {word}': {closest(word, list(group.commands))}")
    command = group.commands[word]
    if isinstance(command, Group):
        dispatch(command, f"{name} {word}", rest)
    else:
        tyro.cli(command, prog=f"{name} {word}", args=current(rest), config=(tyro.conf.FlagCreatePairsOff,))


def current(words: Sequence[str]) -> list[str]:
    """Returns the words with flags of earlier versions under their new names, and says so on standard error."""
    found: list[str] = []
    for word in words:
        flag, equals, value = word.partition("=")
        if flag in RENAMED:
            print(f"{flag} is called {RENAMED[flag]} now; the next release drops the old name.", file=sys.stderr)
        found.append(RENAMED.get(flag, flag) + equals + value)
    return found


def _listed(command: Callable[..., None] | Group) -> Callable[..., None]:
    """Returns something that --help can show a line about."""
    if not isinstance(command, Group):
        return command

    def group() -> None: ...

    group.__doc__ = command.about
    return group
