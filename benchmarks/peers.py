"""Loads other people's code from its checkouts as it is: single files, or packages without what their start imports.

What a file needs only for its decoration, such as Lightning's rank_zero_only, is put in its place in memory.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn


def stand_in(name: str, /, **contents: Any) -> None:
    """Puts a module of this name and with these contents in sys.modules, unless there is one."""
    module = ModuleType(name)
    vars(module).update(contents)
    sys.modules.setdefault(name, module)


def bare(root: Path, *packages: str) -> None:
    """Makes packages under `root` without running their `__init__`, so that their files can be imported one by one."""
    for name in packages:
        path = root.joinpath(*name.split("."))
        if not path.is_dir():
            raise FileNotFoundError(f"{path} is not there")
        module = ModuleType(name)
        module.__path__ = [str(path)]
        sys.modules[name] = module


def source(path: Path, repair: tuple[str, str] = ("", "")) -> Any:
    """Loads a peer's single file as a module. repair: (old, new), a replacement made in its text."""
    stand_in("pytorch_lightning.utilities", rank_zero_only=lambda function: function)
    stand_in("pytorch_lightning", utilities=sys.modules["pytorch_lightning.utilities"])
    stand_in("IPython", embed=None)
    if path.name == "s4d.py":
        for name in ("src", "src.models"):
            stand_in(name)
        stand_in("src.models.nn", DropoutNd=nn.Dropout)
    module = ModuleType(path.stem)
    text = path.read_text()
    exec(compile(text.replace(*repair) if repair[0] else text, str(path), "exec"), vars(module))
    return module
