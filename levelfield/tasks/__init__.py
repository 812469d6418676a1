"""Finds the tasks by listing this folder: a file `NAME.py` is the task NAME, so adding a task is adding a file.

    tasks.names()            # ["image", "listops", "pathfinder", "pathx", ...]
    tasks.find("listops")    # ListOps(minimum=500, length=2000, ...)

A task's file ends in `TASKS`, its named settings, of which the first has the name of the file, and in `EXAMPLES`, tiny
instances for the tests. Modules whose names begin with an underscore are helpers.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from types import ModuleType

from levelfield.spec import Task, UserError, closest


def modules() -> dict[str, ModuleType]:
    """Maps names of files to modules, in alphabetical order."""
    found = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    return {name: import_module(f"{__name__}.{name}") for name in found}


@cache
def _settings() -> dict[str, Task]:
    settings: dict[str, Task] = {}
    for file, module in modules().items():
        for name, task in module.TASKS.items():
            if name in settings:
                raise ValueError(f"tasks/{file}.py offers '{name}', which another file offers already.")
            settings[name] = task
    return settings


def names() -> list[str]:
    """Lists every named setting, file by file."""
    return list(_settings())


def find(name: str) -> Task:
    """Returns the task of that name with its default settings. Raises UserError, with the nearest name, for no task."""
    try:
        return _settings()[name]
    except KeyError:
        raise UserError(f"There is no task '{name}': {closest(name, names(), 'levelfield list tasks')}")
