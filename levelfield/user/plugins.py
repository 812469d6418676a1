"""Finds what installed packages add: their mixers, tasks, studies and probes, by entry points.

    [project.entry-points."levelfield.mixers"]      # in the pyproject.toml of a package
    tiny = "tinylab.mixers:Tiny"

    plugins("mixers")["tiny"].where                 # "tinylab.mixers:Tiny", which is loaded when it is named

An entry point is another name for `package.module:Name`: what can be given so can be added so. What ships has
precedence over a plug-in of the same name.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Literal, NamedTuple, TypeVar

from levelfield.spec.errors import UserError, format_error

T = TypeVar("T")
PluginKind = Literal["mixers", "tasks", "studies", "probes"]


class Plugin(NamedTuple):
    """What an installed package adds under a name. where: as `package.module:Name`. package: its name and version."""

    name: str
    where: str
    package: str


def plugins(kind: PluginKind) -> dict[str, Plugin]:
    """Returns the plug-ins of one kind by name, in alphabetical order, without loading any."""
    found: dict[str, Plugin] = {}
    for entry in sorted(entry_points(group=f"levelfield.{kind}"), key=lambda each: each.name):
        plugin = Plugin(entry.name, entry.value.replace(" ", ""), _package(entry))
        if found.setdefault(entry.name, plugin) != plugin:
            warn(plugin, f"{found[entry.name].package} has the name already")
    return found


def working(kind: PluginKind, load: Callable[[str], T]) -> Iterator[tuple[Plugin, T]]:
    """Loads each plug-in of a kind and yields it; a broken one is one warning instead."""
    for plugin in plugins(kind).values():
        made, why = _loaded(plugin, load)
        if made is None:
            warn(plugin, why)
        else:
            yield plugin, made


def fault(plugin: Plugin, load: Callable[[str], object]) -> str:
    """Loads a plug-in and returns why it cannot be used, or "" where it can."""
    return _loaded(plugin, load)[1]


def refusal(plugin: Plugin, error: UserError) -> UserError:
    """Returns the error for a plug-in that is named and cannot be used, and why."""
    return UserError(f"The plug-in {plugin.name} of {plugin.package} cannot be used: {error}")


def _loaded(plugin: Plugin, load: Callable[[str], T]) -> tuple[T | None, str]:
    """Returns what a plug-in is and "", or None and why it cannot be loaded or named, without a full stop."""
    if not re.fullmatch(r"[\w-]+", plugin.name):
        taken = "a name of more than letters, digits, _ and - is taken for a module, a file or settings"
        return None, f"{taken}; name it as {plugin.where}"
    try:
        return load(plugin.where), ""
    except (Exception, SystemExit) as error:  # whatever the code of others raises
        why = str(error) if isinstance(error, UserError) else format_error(error)
        return None, why.rstrip(".") or type(error).__name__


def warn(plugin: Plugin, why: str) -> None:
    """Warns that a plug-in is left out."""
    said = f"The plug-in {plugin.name} of {plugin.package} is left out: {why.rstrip('.')}."
    warnings.warn(said, stacklevel=3)


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.module
