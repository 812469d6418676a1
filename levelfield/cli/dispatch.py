"""From the words of a command line to the function they mean, one command at a time.

    COMMANDS = Group("What it is for.", {"run": run, "data": Group("Arrays of tasks.", {"prepare": prepare})})
    dispatch(COMMANDS, "levelfield", ["data", "prepare", "listops"])

Only the command that was named reads its options, so that a misspelt one is compared with those of that command alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tyro
from tyro.extras import subcommand_cli_from_dict

from levelfield.spec import UserError, closest


@dataclass(frozen=True)
class Group:
    """Commands by name, and what they are for."""

    about: str
    commands: Mapping[str, Callable[..., None] | Group]


def dispatch(group: Group, name: str, words: Sequence[str]) -> None:
    """Call what the words mean. Raises UserError for an unknown command, and SystemExit after --help and for options
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
        tyro.cli(command, prog=f"{name} {word}", args=rest, config=(tyro.conf.FlagCreatePairsOff,))


def _listed(command: Callable[..., None] | Group) -> Callable[..., None]:
    """Something that --help can show a line about."""
    if not isinstance(command, Group):
        return command

    def group() -> None: ...

    group.__doc__ = command.about
    return group
