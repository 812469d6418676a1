"""A constructor is called with the parameters that it declares by name, and one that fails is told so."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from levelfield.contract import check
from levelfield.spec import UserError
from levelfield.user.mixer import load_user_mixer


@pytest.mark.parametrize(
    "made, called, lacked",
    [
        ("def made(**kw):\n    return kw['dim']\n", r"made\(\) fails: KeyError: 'dim'", "dim"),
        ("def made(**kw):\n    return int(kw.get('dim'))\n", r"made\(\) fails: TypeError: .*", "width"),
        ("def made(*args):\n    return args[0]\n", r"made\(\) fails: IndexError: tuple index out of range", "width"),
        ("def made(width, **kw):\n    return kw['depth']\n", r"made\(width=8\) fails: KeyError: 'depth'", "depth"),
        ("def made(width):\n    return {}['width']\n", r"made\(width=8\) fails: KeyError: 'width'", ""),
    ],
)
def test_a_constructor_of_any_arguments_is_told_which_of_them_it_gets(
    tmp_path: Path, made: str, called: str, lacked: str
) -> None:
    (tmp_path / "mine.py").write_text(made)
    mixer = load_user_mixer(f"{tmp_path}/mine.py:made")
    by_name = ": it is called with the parameters that it declares by name; where "
    advice = f"{by_name}{lacked} is one, declare it too, before the .* or .*" if lacked else ""
    with pytest.raises(UserError, match=f"^{called}{advice}$"):
        mixer.build(8, causal=False, layer=0, generator=torch.Generator())


MODULE = """
from dataclasses import dataclass
import torch
from torch import nn


class Config:
    hidden_size = 8


class OfConfig(nn.Linear):
    def __init__(self, config):
        super().__init__(config.hidden_size, config.hidden_size)


class Divided(nn.Linear):
    def __init__(self, width):
        assert width % 3 == 0
        super().__init__(width, width)


@dataclass(eq=False)
class Data(nn.Module):
    width: int
    gain: float = 2.0

    def __new__(cls, *args, **kw):
        made = super().__new__(cls)
        nn.Module.__init__(made)
        return made

    def __post_init__(self):
        self.map = nn.Linear(self.width, self.width)

    def forward(self, x):
        return self.gain * self.map(x)


@dataclass
class Equal(Data):
    pass


def scripted(width):
    return torch.jit.script(nn.Linear(width, width))
"""


def _built(folder: Path, call: str) -> nn.Module:
    (folder / "mine.py").write_text(MODULE)
    return load_user_mixer(f"{folder}/mine.py:{call}").build(8, causal=False, layer=0, generator=torch.Generator())


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    "call, told",
    [
        ("OfConfig", r"has no attribute 'hidden_size': config, its first required .* is given the width; .* function"),
        ("Divided", r"AssertionError: give another width \(--width\)"),
        ("Equal", r"Equal has no hash, .*: write @dataclass\(eq=False\)"),
        ("scripted", "makes a module of TorchScript, .*: return the module itself"),
    ],
)
def test_what_cannot_be_made_of_the_width_alone_is_told_how_it_can(tmp_path: Path, call: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        _built(tmp_path, call)


def test_a_size_that_has_a_default_and_a_name_of_its_own_is_told_that_it_is_not_the_width(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from torch import nn\ndef made(n=5):\n    return nn.Linear(n, n)\n")
    with pytest.raises(UserError, match=r"multiplied .* No parameter of its constructor is given the width: call the"):
        check(load_user_mixer(f"{tmp_path}/mine.py:made"), 8, causal=False)
    check(load_user_mixer(f"{tmp_path}/mine.py:made"), 5, causal=False)


def test_a_data_class_whose_new_takes_anything_gets_what_it_declares(tmp_path: Path) -> None:
    assert _built(tmp_path, "Data(gain=3.0)").state_dict()["inner.map.weight"].shape == (8, 8)
    with pytest.raises(UserError, match="Data has no setting 'gian': did you mean 'gain'"):
        _built(tmp_path, "Data(gian=3.0)")
