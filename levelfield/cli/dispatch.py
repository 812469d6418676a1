"""Finds the function that the words of a command line mean, and calls it, one command at a time.

    COMMANDS = Group("What it is for.", {"run": run, "data": Group("Arrays of tasks.", {"prepare": prepare})})
    dispatch(COMMANDS, "levelfield", ["data", "prepare", "listops"])

Only the command that was named reads its options, so that a misspelt one is compared with those of that command alone.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial, wraps
from inspect import signature
from io import StringIO
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import tyro
from tyro.extras import subcommand_cli_from_dict

from levelfield.cli.refusals import Unreadable, sentence, unknown_option, with_flag
from levelfield.spec import UserError, closest

T = TypeVar("T")
HELP = ("-h", "--help")
NARROWEST = 20  # columns: where there are five or fewer, tyro wraps the lines of its help without end
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
    """Commands by name, and what they are for. otherwise: the command that a word means which is no name."""

    about: str
    commands: Mapping[str, Callable[..., None] | Group]
    otherwise: Callable[..., None] | None = None


def dispatch(group: Group, name: str, words: Sequence[str]) -> None:
    """Calls what the words mean. Raises UserError for an unknown command and for options that cannot be read, and
    SystemExit after --help."""
    if shutil.get_terminal_size().columns < NARROWEST:
        os.environ["COLUMNS"] = str(NARROWEST)
    word, rest = (words[0], words[1:]) if words else ("", ())
    if group.otherwise is not None and word in HELP:
        _help(group, group.otherwise, name)
    if group.otherwise is not None and word not in group.commands:
        _call(group.otherwise, name, words)
        return
    if not words or word.startswith("-"):
        given = list(words) or ["--help"]
        _require_command_first(name, given)
        listed = {each: _listed(command) for each, command in group.commands.items()}
        _parsed(lambda: subcommand_cli_from_dict(listed, prog=name, description=group.about, args=given), name)
        return
    if word not in group.commands:
        raise UserError(f"There is no command '{name} {word}': {closest(word, list(group.commands))}")
    command = group.commands[word]
    if isinstance(command, Group):
        dispatch(command, f"{name} {word}", rest)
        return
    _call(command, f"{name} {word}", rest)


def _require_command_first(name: str, words: Sequence[str]) -> None:
    """Raises UserError for an option that stands before a command, unless it is of help or of completion; and for a
    file of completion in a folder that is not there."""
    first = words[0]
    if first not in HELP and not first.startswith("--tyro-"):
        raise UserError(f"Options follow the command: write `{name} COMMAND {first.partition('=')[0]} ...`.")
    if first == "--tyro-write-completion" and len(words) > 2 and not (folder := Path(words[2]).parent).is_dir():
        raise UserError(
            f"There is no folder {folder}: make it first, with `{shlex.join(['mkdir', '-p', str(folder)])}`."
        )


def _call(command: Callable[..., None], prog: str, words: Sequence[str]) -> None:
    given = current(words, flags(command), lambda flag: flag in help_of(command))
    _require_no_path(given)
    config = (tyro.conf.FlagCreatePairsOff,)
    try:
        call = _parsed(lambda: tyro.cli(_deferred(command), prog=prog, args=given, config=config), prog)
    except Unreadable as error:
        raise with_flag(error, given) from error
    except UserError as error:
        if unknown := unknown_option(given, help_of(command), prog):
            raise UserError(unknown) from error
        raise
    call()


def _require_no_path(words: Sequence[str]) -> None:
    """Raises UserError for a word that would be read as an option and is the name of a file or folder here."""
    options = words[: words.index("--")] if "--" in words else words
    for word in options:
        if re.match(r"-[^-]", word) and os.path.lexists(word):
            raise UserError(f"{word} begins as an option does: write {shlex.quote(f'./{word}')} for the path.")


def _help(group: Group, otherwise: Callable[..., None], name: str) -> NoReturn:
    """Shows the help of the command that a group means without one of its names, and beneath it the others."""
    with suppress(SystemExit):
        _call(otherwise, name, ["--help"])
    for word, found in group.commands.items():
        if found is not otherwise:
            about = (_listed(found).__doc__ or "").strip().splitlines()[0]
            print(f"\n{name} {word} --help\n    {about}")
    raise SystemExit(0)


def _deferred(command: Callable[..., None]) -> Callable[..., Callable[[], None]]:
    """Returns what reads the same words as a command and then returns the call, so that only reading is watched."""

    @wraps(command)
    def later(*words: Any, **options: Any) -> Callable[[], None]:
        return partial(command, *words, **options)

    return later


def _parsed(parse: Callable[[], T], command: str) -> T:
    """Returns what was parsed. Raises UserError, in one sentence, where tyro refuses the words."""
    shown = StringIO()
    try:
        with redirect_stderr(shown):
            return parse()
    except SystemExit as stop:
        if stop.code:
            raise UserError(sentence(shown.getvalue(), command)) from None
        raise


def flags(command: Callable[..., None]) -> set[str]:
    """Returns the flags that a command has by the names of its own parameters."""
    return {f"--{name.replace('_', '-')}" for name in signature(command).parameters}


def help_of(command: Callable[..., None]) -> str:
    """Returns what --help prints of a command."""
    shown = StringIO()
    with redirect_stdout(shown), suppress(SystemExit):
        tyro.cli(_deferred(command), args=["--help"], config=(tyro.conf.FlagCreatePairsOff,))
    return shown.getvalue()


def current(words: Sequence[str], kept: Container[str] = (), takes: Callable[[str], bool] = bool) -> list[str]:
    """Returns the words with flags of earlier versions under their new names, and says so on standard error.

    kept: flags that the command has itself, under a name that was another's. takes: tells whether the command has a
    flag; one whose new name it has not stays as it was typed, to be refused so. Raises UserError for --out where only
    --folder can be meant.
    """
    found: list[str] = []
    for word in words:
        flag, equals, value = word.partition("=")
        renamed = flag in RENAMED and flag not in kept and takes(RENAMED[flag])
        if renamed:
            beside = ", and --folder is where files are written" if flag == "--out" and takes("--folder") else ""
            print(
                f"{flag} is called {RENAMED[flag]} now{beside}; the next release drops the old name.", file=sys.stderr
            )
        elif flag == "--out" and flag not in kept and takes("--folder"):
            raise UserError("There is no option --out here: --folder is where files are written.")
        found.append((RENAMED[flag] if renamed else flag) + equals + value)
    return found


def _listed(command: Callable[..., None] | Group) -> Callable[..., None]:
    """Returns something that --help can show a line about."""
    if not isinstance(command, Group):
        return command

    def group() -> None: ...

    group.__doc__ = command.about
    return group
