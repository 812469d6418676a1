"""Reads a checkpoint's folder: its settings and its tensors, from safetensors or from a torch file, in one or many, or
from a file of llama2.c.

    folder = Folder(Path("models/mamba2-2.7b"))
    folder.config["d_model"]                  # 2560
    tensors = folder.tensors(keep=torch.float32)
    tensors["backbone.embedding.weight"]

Nothing is executed: torch files are read with `weights_only=True`, and code that lies beside a model stays unread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zipfile import BadZipFile

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from levelfield.pretrained.checkpoints import llama2c_file
from levelfield.spec import UserError

SINGLE = ("model.safetensors", "pytorch_model.bin")


class Folder:
    """A model on disk: a folder, or a single .pth or .bin file. Every complaint is a UserError that names the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """config.json; where there is none, the numbers at the begin of the one file of llama2.c, {"pth": the name of
        the one .pth file}, or {}."""
        if (self.path / "config.json").is_file():
            return read_json(self.path / "config.json")
        if len(flats := self.flat()) == 1:
            return flats[0]
        found = self.pth()
        return {"pth": found[0].name} if len(found) == 1 else {}

    def pth(self) -> list[Path]:
        """The file itself, where it is no folder, or its files with that ending."""
        return [self.path] if self.path.is_file() else sorted(self.path.glob("*.pth"))

    def flat(self) -> list[dict[str, Any]]:
        """What files of llama2.c say of themselves."""
        files = [self.path] if self.path.is_file() else sorted(self.path.glob("*.bin"))
        return [found for file in files if file.suffix == ".bin" and (found := llama2c_file.header(file))]

    def files(self) -> list[Path]:
        """The files of its weights; safetensors where there are several kinds."""
        for name in SINGLE:
            if (self.path / name).is_file():
                return [self.path / name]
            if (index := self.path / f"{name}.index.json").is_file():
                parts = sorted(set(read_json(index).get("weight_map", {}).values()))
                absent = [part for part in parts if not (self.path / part).is_file()]
                if absent or not parts:
                    raise UserError(f"{index} names {absent[0] if absent else 'no files'}: copy the whole model again.")
                return [self.path / part for part in parts]
        if len(found := self.pth()) == 1:
            return found
        raise UserError(f"{self.path} holds no weights: a model has {' or '.join(SINGLE)}, or an index of parts.")

    def tensors(self) -> dict[str, Tensor]:
        if name := self.config.get("llama2.c"):
            return llama2c_file.tensors(self.path if self.path.is_file() else self.path / name, self.config)
        return {name: value for file in self.files() for name, value in read_tensors(file).items()}


def read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read as JSON ({error}): copy the file again.") from error
    if not isinstance(found, dict):
        raise UserError(f"{path} does not hold settings by name: copy the file again.")
    return found


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Tensors by name, on the CPU. Raises UserError for a broken file, and for one that holds anything else."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (OSError, SafetensorError, RuntimeError, ValueError, EOFError, UnpicklingError, BadZipFile) as error:
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"{path} cannot be read as weights ({reason}): copy the file again.") from error
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise UserError(f"{path} does not hold tensors by name: give a file of weights alone.")
    return found


class Taken:
    """Tensors that are taken one by one; what is absent, has another shape or is left over is complained about."""

    def __init__(self, tensors: Mapping[str, Tensor], where: str) -> None:
        self.left, self.where = dict(tensors), where

    def __call__(self, name: str, *shape: int) -> Tensor:
        """The tensor of that name, checked against `shape` where that is given."""
        found = self.look(name)
        del self.left[name]
        if shape and tuple(found.shape) != shape:
            raise UserError(f"'{name}' of {self.where} has shape {tuple(found.shape)}, but its config says {shape}.")
        return found

    def look(self, name: str) -> Tensor:
        """The tensor of that name, which stays to be taken."""
        if name not in self.left:
            raise UserError(f"{self.where} has no tensor '{name}': its weights are not all there.")
        return self.left[name]

    def group(self, prefix: str) -> dict[str, Tensor]:
        """All whose names begin so, by the rest of the name."""
        names = [name for name in self.left if name.startswith(prefix)]
        return {name.removeprefix(prefix): self.left.pop(name) for name in names}

    def drop(self, names: Iterable[str]) -> None:
        for name in names:
            self.left.pop(name, None)

    def done(self) -> None:
        """Raises UserError where tensors are left that nothing has asked for."""
        if self.left:
            raise UserError(f"{self.where} has a tensor '{min(self.left)}' that its config.json does not speak of.")
