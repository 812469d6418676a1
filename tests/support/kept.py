"""Keeps what other libraries compute in `reference/`, so that parity is tested where they are not installed.

    @kept.modes
    def test_bloom_gives_the_same(mode: kept.Mode) -> None:
        theirs = kept.case("bloom", mode)
        layer.load_state_dict(renamed(theirs.weights))
        torch.testing.assert_close(layer(theirs["x"]), theirs["y"])

Such a test runs from the file always and, marked slow, with the library itself, which must still give what is kept.
Weights are not stored: every one is drawn from a generator seeded by its name, whatever the library draws at first.
`tests/support/reference/make.py` writes the files and holds what runs the libraries.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

Mode = Literal["kept", "live"]
Tensors = dict[str, Tensor]
FOLDER = Path(__file__).with_name("reference")
SCALE = 0.3  # standard deviation of weights: many would start at values, such as 0, that hide a fault

modes = pytest.mark.parametrize("mode", ["kept", pytest.param("live", marks=[pytest.mark.slow, pytest.mark.peers])])


@dataclass(frozen=True)
class Case:
    """What a library computed once. values: inputs and outputs. shapes: of its weights, under its own names.

    config: the settings of a checkpoint, as in its config.json.
    """

    values: Tensors
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Tensor:
        return self.values[name]

    @property
    def weights(self) -> Tensors:
        """All parameters in float64, under the library's names."""
        return {name: SCALE * drawn(name, *shape) for name, shape in self.shapes.items()}

    def save(self, folder: Path) -> None:
        """Writes a checkpoint in float32 as transformers does."""
        (folder / "config.json").write_text(json.dumps(self.config))
        save_file({name: value.float() for name, value in self.weights.items()}, folder / "model.safetensors")


@dataclass(frozen=True)
class Peer:
    """A library of one major version, and what is asked of it: `make` gives the cases of one file by their names."""

    library: str
    major: int
    make: Callable[[], dict[str, Case]]

    @property
    def installed(self) -> str:
        """The installed version, or "" where it is absent or of another major version."""
        try:
            found = version(self.library)
        except PackageNotFoundError:
            return ""
        return found if int(found.split(".")[0]) == self.major else ""


def drawn(name: str, *shape: int) -> Tensor:
    """Standard normal numbers in float64 that depend on the name and the shape alone."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode())), dtype=torch.float64)


def fill(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """Sets every parameter to numbers drawn from its name, and returns the shapes by name."""
    shapes = {name: tuple(value.shape) for name, value in module.named_parameters()}
    with torch.no_grad():
        for name, value in module.named_parameters():
            value.copy_(SCALE * drawn(name, *value.shape))
    return shapes


def write(name: str, peer: Peer) -> Path:
    """Runs the library and keeps what it gives, with its name and version."""
    cases = peer.make()
    about = {case: {"shapes": found.shapes, "config": found.config} for case, found in cases.items()}
    tensors = {
        f"{case}/{key}": value.detach().clone().contiguous()
        for case, found in cases.items()
        for key, value in found.values.items()
    }
    path = FOLDER / f"{name}.safetensors"
    metadata = {"library": peer.library, "version": peer.installed, "cases": json.dumps(about, sort_keys=True)}
    save_file(tensors, path, metadata)
    return path


@cache
def read(name: str) -> dict[str, Case]:
    """The cases of one file."""
    with safe_open(FOLDER / f"{name}.safetensors", "pt") as file:
        about = json.loads(file.metadata()["cases"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
    return {
        case: Case(
            {key.removeprefix(f"{case}/"): x for key, x in tensors.items() if key.startswith(f"{case}/")},
            {weight: tuple(shape) for weight, shape in found["shapes"].items()},
            found["config"],
        )
        for case, found in about.items()
    }


@cache
def _live(name: str) -> dict[str, Case]:
    from reference.make import PEERS

    peer = PEERS[name]
    if not peer.installed:
        pytest.skip(f"{peer.library} {peer.major} is not installed")
    found, expected = peer.make(), read(name)
    assert {case: (c.shapes, c.values.keys()) for case, c in found.items()} == {
        case: (c.shapes, c.values.keys()) for case, c in expected.items()
    }
    for case, values in expected.items():
        for key, value in values.values.items():
            now = found[case][key].detach()
            torch.testing.assert_close(now, value, equal_nan=True, msg=lambda told: f"{name}: {told}")
    return found


def case(name: str, mode: Mode, which: str = "") -> Case:
    """One case of a file, as it is kept, or as the library gives it now, which must be the same."""
    return (read if mode == "kept" else _live)(name)[which]
