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
    """A module of this name with these contents, unless there is one."""
    module = ModuleType(name)
    vars(module).update(contents)
    sys.modules.setdefault(name, module)


def bare(root: Path, *packages: str) -> None:
    """These packages under `root`, without running their `__init__`: their files can then be imported one by one."""
    for name in packages:
        path = root.joinpath(*name.split("."))
        if not path.is_dir():
            raise FileNotFoundError(f"{path} is not there")
        module = ModuleType(name)
        module.__path__ = [str(path)]
        sys.modules[name] = module


def source(path: Path, repair: tuple[str, str] = ("", "")) -> Any:
    """A peer's single file as a module, `repair` = (what it says, what it should say) applied to its text."""
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
