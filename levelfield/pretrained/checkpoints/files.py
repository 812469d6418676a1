"""Reads the settings and the tensors of a checkpoint.

    folder = Folder(Path("models/mamba2-2.7b"))
    folder.config["d_model"]                                  # 2560
    folder.tensors()["backbone.embedding.weight"]

Tensors may be in safetensors or torch files, whole or in parts, or in a file of llama2.c. Nothing is executed: torch
files are read with `weights_only=True`, and code beside a model is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zipfile import BadZipFile, is_zipfile

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from levelfield.pretrained.checkpoints import llama2c_file, safetensors_header
from levelfield.spec import UserError

SINGLE = ("model.safetensors", "pytorch_model.bin")


class Folder:
    """A model on disk: a folder, or a single .pth or .bin file. Every error is a UserError that names the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The settings in config.json.

        Without a config.json: the header of the only llama2.c file; else {"pth": name} of the only .pth file; else {}.
        """
        if (self.path / "config.json").is_file():
            return read_json(self.path / "config.json")
        if len(headers := self.llama2c_headers()) == 1:
            return headers[0]
        found = self.pth()
        return {"pth": found[0].name} if len(found) == 1 else {}

    def pth(self) -> list[Path]:
        """Returns the .pth files of the folder, or the file itself where the path is a file."""
        return [self.path] if self.path.is_file() else sorted(self.path.glob("*.pth"))

    def llama2c_headers(self) -> list[dict[str, Any]]:
        """Reads the headers of its llama2.c files."""
        files = [self.path] if self.path.is_file() else sorted(self.path.glob("*.bin"))
        return [found for file in files if file.suffix == ".bin" and (found := llama2c_file.header(file))]

    def files(self) -> list[Path]:
        """Returns the files of its weights; safetensors where there are several formats."""
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
        """Reads all tensors by name, on the CPU. Raises UserError for missing and damaged files."""
        if name := self.config.get("llama2.c"):
            return llama2c_file.tensors(self.path if self.path.is_file() else self.path / name, self.config)
        return {name: value for file in self.files() for name, value in read_tensors(file).items()}

    def shapes(self) -> dict[str, Tensor]:
        """Returns tensors with names and shapes of `tensors`, but on the meta device: they hold no numbers.

        Most formats say shapes in their headers; a torch file is mapped, so that its numbers are not read either.
        """
        if self.config.get("llama2.c"):
            found = llama2c_file.shapes(self.config)
        else:
            found = {name: shape for file in self.files() for name, shape in _shapes(file).items()}
        return {name: torch.empty(shape, device="meta") for name, shape in found.items()}


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object. Raises UserError for a damaged file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read as JSON ({error}): copy the file again.") from error
    if not isinstance(found, dict):
        raise UserError(f"{path} is not a JSON object: copy the file again.")
    return found


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Reads the shapes of a file's tensors. Raises UserError as `read_tensors` does."""
    if path.suffix != ".safetensors":
        return {name: tuple(value.shape) for name, value in read_tensors(path).items()}
    try:
        return safetensors_header.shapes(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as weights ({error}): copy the file again.") from error


DAMAGED = (
    *(OSError, SafetensorError, RuntimeError, ValueError, EOFError, UnpicklingError, BadZipFile),
    *(IndexError, KeyError, TypeError, AttributeError),  # of a stream that is no pickle, and is read as one
)


def _pickled(path: Path) -> bool:
    """Whether a file begins as what torch saved before 1.6."""
    try:
        with path.open("rb") as file:
            return file.read(1) == b"\x80"
    except OSError:
        return True  # which is no fault of what it holds


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Reads tensors by name, on the CPU. Raises UserError for a damaged file, and for one with anything else in it."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        mapped = is_zipfile(path)  # as torch has saved since 1.6; older files cannot be mapped
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except DAMAGED as error:
        if path.suffix != ".safetensors" and not is_zipfile(path) and not _pickled(path):
            what = "torch or safetensors has not saved it, or it is damaged"
            raise UserError(f"{path} cannot be read as weights ({what}): give a file or folder of weights.") from error
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"{path} cannot be read as weights ({reason}): copy the file again.") from error
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise UserError(f"{path} does not hold tensors by name: give a file of weights alone.")
    return found


class TensorReader:
    """Hands out the tensors of a checkpoint one by one, and notices those that are missing, misshapen or left over.

    Every method that does not find a tensor as it should be raises UserError. where: the path that messages name.
    """

    def __init__(self, tensors: Mapping[str, Tensor], where: str) -> None:
        self.left, self.where = dict(tensors), where

    def __call__(self, name: str, *shape: int) -> Tensor:
        """Takes the tensor of that name, and checks its shape where one is given."""
        found = self.look(name)
        del self.left[name]
        if shape and tuple(found.shape) != shape:
            raise UserError(f"'{name}' of {self.where} has shape {tuple(found.shape)}, but its config says {shape}.")
        return found

    def look(self, name: str) -> Tensor:
        """Returns the tensor of that name without taking it."""
        if name not in self.left:
            raise UserError(f"{self.where} has no tensor '{name}': some of its weights are missing.")
        return self.left[name]

    def group(self, prefix: str) -> dict[str, Tensor]:
        """Takes all tensors whose names begin with `prefix`, by the rest of the name."""
        names = [name for name in self.left if name.startswith(prefix)]
        return {name.removeprefix(prefix): self.left.pop(name) for name in names}

    def drop(self, names: Iterable[str]) -> None:
        """Discards tensors that are not needed; they may be absent."""
        for name in names:
            self.left.pop(name, None)

    def done(self) -> None:
        """Raises UserError where a tensor was neither taken nor dropped."""
        if self.left:
            raise UserError(f"{self.where} has a tensor '{min(self.left)}' that its config.json does not mention.")
