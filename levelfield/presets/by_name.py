"""Finds mixers, tasks and probes by what the command line calls them: what ships, what plug-ins add, one's own.

    mixer("s4")              # that ships, with its usual settings; mixer("attention(window=64)") with others
    mixer("tiny")            # of an installed plug-in
    mixer("torch.nn:GRU")    # of a module; and mixer("mine.py:Mine(state=16)") of a file

A task of `tasks` has its default settings; `task` also knows plug-ins and files; `efforts.sized_task` is what a
comparison takes, a generated task (`efforts.generated`) at the size of the effort and any other as `task` gives it.

What ships has precedence over plug-ins. An unknown name raises UserError with the nearest one. Importing this leaves
torch alone, so that tasks can be listed at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from levelfield import tasks
from levelfield.data.conformance import check_members
from levelfield.spec import MixerConfig, Probe, Task, UserError, closest
from levelfield.spec.errors import format_error
from levelfield.spec.user_source import frozen, parsed
from levelfield.user import named, plugins, values

T = TypeVar("T")
PLAIN: dict[Any, tuple[type, ...]] = {int: (int,), float: (int, float), bool: (bool,)}  # hint -> what is taken
WORDS: dict[Any, str] = {int: "a whole number", float: "a number", bool: "True or False"}
Configured = TypeVar("Configured", MixerConfig, Task)


def mixer(name: str | MixerConfig, usual: Iterable[MixerConfig] = ()) -> MixerConfig:
    """Returns the mixer of that name, or of FILE.py:Name or package.module:Name; a mixer itself as it is. Raises
    UserError.

    One that ships or of a plug-in may have other settings, as in attention(window=64). usual: mixers whose names mean
    them as they are here, so that a name means the same for whoever is compared and compared with; the settings that a
    name is given change these.
    """
    if isinstance(name, MixerConfig):
        return name
    kind = without_settings(name)
    if found := {each.label: each for each in usual}.get(kind.lower()):
        return _with_settings(found, name, "mixer")
    if named.is_named(name) or named.is_file(kind) or not name:
        return _user_mixer(name)
    from levelfield import mixers

    if kind.lower() in mixers.NAMES:
        return _with_settings(mixers.find(kind), name, "mixer")
    if kind not in plugins.plugins("mixers"):
        named.require_colon(name)
        _require_no_hybrid(kind)
    return _plugged("mixers", name, _user_mixer, mixers.NAMES)


def _require_no_hybrid(name: str) -> None:
    """Raises UserError for the name of a published hybrid, such as samba or Kimi-Linear, which is a pattern of layers
    and no mixer."""
    from levelfield.presets.hybrids import HYBRIDS

    plain = re.sub(r"[-_ ]", "_", name.lower())
    if plain in HYBRIDS:
        others = ", ".join(each for each in HYBRIDS if each != plain)
        raise UserError(
            f"{name} is no mixer but a hybrid, a pattern of layers, as are {others}: compare it in a study "
            f'of your own, a file with the line `Model(hybrids.pattern("{plain}"), depth=2, width=32, causal=True)`, '
            "as the section on hybrids of docs/mixers.md shows."
        )


def task(name: str | Task) -> Task:
    """Returns the task of that name, or of FILE.py:Name or package.module:Name; a task itself as it is. Raises
    UserError, also for a task whose class lacks what reports say of it, such as its source.

    One that ships may have other settings, as in reach(range=64). A user's file of data is the text of an `OwnData`.
    """
    found = name if isinstance(name, Task) else _task(name)
    check_members(found)
    return found


def _task(name: str) -> Task:
    from levelfield.user import own_data, own_files  # which lists of tasks do without

    if own_data.is_word(name):
        return own_data.from_word(name)
    if named.is_named(name):
        return values.value(name, Task)
    kind = without_settings(name)
    if kind in tasks.names():
        return _with_settings(tasks.find(kind), name, "task")
    if Path(name).exists() and own_files.is_data(name):
        raise UserError(
            f"{name} is a file of data: say what its columns are, by --own {name} --text COLUMN --label COLUMN, "
            f"or in Python by levelfield.OwnData({name!r}, text=..., label=...)."
        )
    return _plugged("tasks", name, _user_task, tasks.names())


def without_settings(name: str) -> str:
    """Returns what is named without the settings it is given: "reach" of "reach(range=64)"."""
    return name.partition("(")[0]


def _with_settings(found: Configured, call: str, what: str) -> Configured:
    """Returns a task or mixer with the settings of a call such as reach(range=64). Raises UserError for one that it has
    not, and for a value that it does not take."""
    if "(" not in call:
        return found
    name, settings = parsed(call)
    known = [each.name for each in fields(found) if each.init]
    if unknown := next((key for key in settings if key not in known), None):
        raise UserError(f"The {what} {name} has no setting '{unknown}': {closest(unknown, known)}")
    hints = get_type_hints(type(found))
    for key, value in settings.items():
        if (hint := hints.get(key)) in PLAIN and not isinstance(value, PLAIN[hint]):
            raise UserError(f"The setting {key} of the {what} {name} is {WORDS[hint]}, and {value!r} is none.")
    try:
        return replace(found, **{key: frozen(value) for key, value in settings.items()})
    except UserError:
        raise
    except Exception as error:  # such as a text where a number is compared
        raise UserError(f"The {what} {call} cannot be made: {format_error(error)}") from error


def probe(name: str) -> Probe:
    """Returns the probe of that name, or of FILE.py:Name or package.module:Name. Raises UserError."""
    if named.is_named(name):
        return values.value(name, Probe)
    from levelfield import probes

    known = [each.name for each in probes.PROBES]
    return probes.find(name) if name in known else _plugged("probes", name, _user_probe, known)


def plugged_mixers() -> Iterator[tuple[str, MixerConfig]]:
    """Yields the mixers of plug-ins by name; a broken one is a warning, and so is one that is named like ours."""
    from levelfield.mixers import NAMES

    return added("mixers", _user_mixer, NAMES)


def plugged_tasks() -> Iterator[tuple[str, Task]]:
    """Yields the tasks of plug-ins by name, as `plugged_mixers` does."""
    return added("tasks", _user_task, tasks.names())


def plugged_probes() -> Iterator[tuple[str, Probe]]:
    """Yields the probes of plug-ins by name, as `plugged_mixers` does."""
    from levelfield.probes import PROBES

    return added("probes", _user_probe, [each.name for each in PROBES])


def added(
    kind: plugins.PluginKind, load: Callable[[str], T], ours: tuple[str, ...] | list[str]
) -> Iterator[tuple[str, T]]:
    """Yields what plug-ins add of one kind, by name; a broken one is a warning, and so is one whose name ours have."""
    one = "study" if kind == "studies" else kind[:-1]
    for plugin, made in plugins.working(kind, load):
        if plugin.name in ours:
            plugins.warn(plugin, f"levelfield has a {one} of that name; name it as {plugin.where}")
        else:
            yield plugin.name, made


def is_mixer(name: str) -> bool:
    """Tells whether this is the name of a mixer that ships or of a plug-in's, without loading it."""
    from levelfield.mixers import NAMES

    kind = without_settings(name)
    return kind.lower() in NAMES or kind in plugins.plugins("mixers")


def is_task(name: str) -> bool:
    """Tells whether this is the name of a task that ships or of a plug-in's, without loading it."""
    return without_settings(name) in (*tasks.names(), *plugins.plugins("tasks"))


def _plugged(kind: plugins.PluginKind, name: str, load: Callable[[str], T], ours: tuple[str, ...] | list[str]) -> T:
    known, plain = plugins.plugins(kind), without_settings(name)
    if plain not in known:
        if kind == "tasks" and Path(plain).is_dir():
            raise UserError(f"{plain} is a folder here, and no task has that name: give data with --own {plain}.")
        if kind == "tasks":
            from levelfield.user import own_files

            own_files.require_known(Path(plain))
        near = closest(plain, [*ours, *known], f"levelfield list {kind}")
        own = "FILE.py:Name or package.module:Name of your own"
        raise UserError(f"There is no {kind[:-1]} '{plain}': {near} Or give {own}.")
    try:
        return load(known[plain].where + name.removeprefix(plain))
    except UserError as error:
        raise plugins.refusal(known[plain], error) from error


def _user_mixer(where: str) -> MixerConfig:
    from levelfield.user.mixer import load_user_mixer  # which imports torch

    return load_user_mixer(where)


def _user_task(where: str) -> Task:
    return values.value(where, Task)


def _user_probe(where: str) -> Probe:
    return values.value(where, Probe)
