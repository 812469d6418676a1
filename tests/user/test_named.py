"""What a user names elsewhere: modules that Python can import, relative imports, functions, torch's own recurrences."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from levelfield.contract import check
from levelfield.presets.options import names
from levelfield.spec import MixerConfig, UserError, digest
from levelfield.user import named, values
from levelfield.user.mixer import UserMixer, load_user_mixer, user_mixer
from levelfield.user.values import user_errors

HELPED = """
from torch import nn
from .helper import GAIN

class Mine(nn.Module):
    def __init__(self, width, gain=GAIN):
        super().__init__()
        self.map, self.gain = nn.Linear(width, width), gain
    def forward(self, x):
        return self.gain * self.map(x)

def made(width, depth=1):
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))

def number(width):
    return 3

built = nn.Linear(2, 2)
from functools import partial
half = partial(Mine, gain=0.5)
"""
CONFIG = """
from dataclasses import dataclass
from levelfield.mixers.conv import Conv

@dataclass(frozen=True)
class Wide(Conv):
    label = "wide"
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of the user's own in the current folder, and nothing of it imported before or after."""
    monkeypatch.chdir(tmp_path)
    inner = tmp_path / "ownpackage"
    inner.mkdir()
    (inner / "__init__.py").write_text("")
    (inner / "helper.py").write_text("GAIN = 2.0\n")
    (inner / "models.py").write_text(HELPED)
    (inner / "configs.py").write_text(CONFIG)
    yield inner
    for name in [each for each in sys.modules if each.partition(".")[0] == "ownpackage"]:
        del sys.modules[name]


def built(mixer: MixerConfig, width: int = 8, causal: bool = False) -> Any:
    return mixer.build(width, causal=causal, layer=0, generator=Generator().manual_seed(0))


def test_a_module_that_can_be_imported_is_found_from_the_current_folder(package: Path) -> None:
    mixer = load_user_mixer("ownpackage.models:Mine(gain=0.5)")
    assert isinstance(mixer, UserMixer) and mixer.path == "ownpackage.models"
    layer, x = built(mixer), torch.ones(1, 3, 8)
    torch.testing.assert_close(layer(x), 0.5 * layer.inner.map(x))
    assert str(package.parent) not in sys.path


def test_a_file_of_a_package_may_import_relatively(package: Path) -> None:
    layer, x = built(load_user_mixer("ownpackage/models.py:Mine")), torch.ones(1, 3, 8)
    torch.testing.assert_close(layer(x), 2.0 * layer.inner.map(x))
    (package / "models.py").write_text(HELPED.replace(".helper", "..helper"))
    with pytest.raises(UserError, match=r"beyond top-level package; name it as a module, package\.module:Name"):
        load_user_mixer("ownpackage/models.py:Mine")


def test_another_helper_is_another_mixer_and_is_imported_anew(package: Path) -> None:
    first = load_user_mixer("ownpackage.models:Mine")
    (package / "helper.py").write_text("GAIN = 3.5\n")
    second = load_user_mixer("ownpackage.models:Mine")
    assert digest(first) != digest(second)
    assert built(second).inner.gain == 3.5
    with pytest.raises(UserError, match="has changed since this run was planned"):
        built(UserMixer("ownpackage.models", "Mine", "0" * 64, False))


@pytest.mark.parametrize("place", ["ownpackage/alone.py", "ownpackage.models"])
def test_what_the_program_had_imported_itself_stays_the_same(
    place: str, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the mixer has the helper as it is now; what levelfield imported is replaced once it has changed."""
    (package / "alone.py").write_text(HELPED.replace("from .helper", "import late\nfrom ownpackage.helper"))
    (package / "late.py").write_text("")
    monkeypatch.delitem(sys.modules, "late", raising=False)
    monkeypatch.syspath_prepend(str(package.parent))
    theirs = importlib.import_module("ownpackage.helper")
    load_user_mixer(f"{place}:Mine")
    late = sys.modules.get("late")
    for gain in (3.25, 4.125):  # of other lengths: bytecode goes by seconds and size
        (package / "helper.py").write_text(f"GAIN = {gain}\n")
        assert built(load_user_mixer(f"{place}:Mine")).inner.gain == gain
        assert sys.modules["ownpackage.helper"] is sys.modules["ownpackage"].helper is theirs and theirs.GAIN == 2.0
    assert late is None or sys.modules.pop("late") is not late


def test_a_function_that_makes_a_module_is_a_mixer(package: Path) -> None:
    mixer = load_user_mixer("ownpackage.models:made(depth=3)")
    assert len(built(mixer).inner) == 3 and mixer.label == "made"
    check(mixer, 8, causal=True)


def test_a_config_of_ones_own_is_taken_as_it_is(package: Path) -> None:
    mixer = load_user_mixer("ownpackage.configs:Wide(kernel=3)")
    assert type(mixer).__name__ == "Wide" and not mixer.opaque
    check(mixer, 8, causal=True)
    with pytest.raises(UserError, match="does not take these settings: TypeError"):
        load_user_mixer("ownpackage.configs:Wide(kernels=3)")


@pytest.mark.parametrize(
    "where, sentence",
    [
        ("no.such_package:Mine", r"no module no\.such_package to import \(No module named 'no'\): install it, or run"),
        ("ownpackage.model:Mine", r"No module named 'ownpackage\.model'"),
        ("alone:Mine", "alone defines no nn.Module class, so there is no Mine in it"),
        ("ownpackage.models:built", "a module that is built already: give its class"),
        ("ownpackage.models:half", r"is a partial: name its class with these settings, ownpackage\.models:Mine\("),
        ("ownpackage.models:Min", "did you mean 'Mine'"),
        ("ownpackage.models:maid", "did you mean 'made'"),
        ("ownpackage.models:Xyz", r"no class or function Xyz: choose one of: Mine, made, number\.$"),
        ("torch.nn:MultiheadAttention(num_heads=2)", r"forward needs key and value, and a mixer's forward takes \(x\)"),
        ("torch.nn:GRU(bidirection=True)", "no setting 'bidirection': did you mean 'bidirectional'"),
        ("torch.nn:GRU(__import__('os'))", "no class name with settings"),
        ("mine.ipynb:Mine", r"^mine\.ipynb is no Python file: write what you name into one that ends in \.py, or in a"),
        ("table.py:TABLE", "TABLE in table.py is not a subclass of torch.nn.Module"),  # and no truth of two values
    ],
)
def test_what_cannot_be_found_or_taken_is_one_sentence(package: Path, where: str, sentence: str) -> None:
    (package.parent / "alone.py").write_text("")
    (package.parent / "mine.ipynb").write_text("{}")
    (package.parent / "table.py").write_text("import torch\nTABLE = torch.zeros(2)\n")
    with pytest.raises(UserError, match=sentence) as caught:
        load_user_mixer(where)
    assert "\n" not in str(caught.value)


def test_settings_of_torch_are_put_back_where_a_file_is_loaded_to_see_what_is_in_it(package: Path) -> None:
    """`check` said that a sound layer of such a file fails on a training step, whose input was in float32."""
    lines = ["torch.set_default_dtype(torch.float64)", "class Mine(torch.nn.Linear):", "    pass"]
    (package.parent / "doubled.py").write_text("\n".join(["import torch", *lines]))
    assert issubclass(values.loaded("doubled.py").Mine, nn.Module)
    assert torch.get_default_dtype() == torch.float32


def test_the_current_folder_is_the_same_after_a_file_has_changed_it(package: Path) -> None:
    """Such a file was not found when it was read a second time, or its runs were stored elsewhere."""
    (package.parent / "moves.py").write_text("import os\nfrom torch.nn import GRU\nos.chdir('ownpackage')\n")
    assert load_user_mixer("moves.py:GRU").label == "gru"
    assert Path.cwd() == package.parent


def test_what_a_function_returns_must_be_a_module(package: Path) -> None:
    with pytest.raises(UserError, match=r"number makes a int: return an nn\.Module"):
        built(load_user_mixer("ownpackage.models:number"))


def test_an_installed_module_is_known_by_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    first = named.source("torch.nn")
    monkeypatch.setattr(named, "release", lambda module: "torch==1.0")
    assert named.source("torch.nn").sha256 != first.sha256


@pytest.mark.parametrize("call", ["GRU", "LSTM(num_layers=2)", "RNN", "GRU(batch_first=False)"])
def test_torchs_recurrences_are_taken_as_they_are(call: str) -> None:
    """They return tuples, and those without batch_first take the batch second."""
    mixer = load_user_mixer(f"torch.nn:{call}")
    check(mixer, 8, causal=True, length=9)
    layer, x = built(mixer), torch.randn(2, 5, 8, generator=Generator().manual_seed(0))
    inner = layer.inner
    step, state = [], None
    for t in range(5):
        y, state = inner(x[:, t : t + 1] if inner.batch_first else x[:, t : t + 1].transpose(0, 1), state)
        step.append(y if inner.batch_first else y.transpose(0, 1))
    torch.testing.assert_close(layer(x), torch.cat(step, 1))


@pytest.mark.parametrize("call", ["GRU(bidirectional=True)", "LSTM(bidirectional=True, batch_first=False)"])
def test_a_recurrence_of_two_directions_begins_at_the_last_real_step(call: str) -> None:
    mixer = load_user_mixer(f"torch.nn:{call}")
    check(mixer, 8, causal=False, length=9)
    layer, x = built(mixer), torch.randn(2, 5, 8, generator=Generator().manual_seed(0))
    y = layer(x, torch.arange(5) < torch.tensor([[5], [3]]))
    torch.testing.assert_close(y[1:, :3], layer(x[1:, :3]))
    assert not y[1, 3:].any()
    with pytest.raises(UserError, match="Two directions need an even width, not 7"):
        built(mixer, width=7)


def test_a_users_own_attribute_batch_first_means_what_they_say() -> None:
    """Only torch's own layers are turned round."""

    class Mine(nn.GRU):
        def __init__(self, width: int) -> None:
            super().__init__(width, width)

        def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
            return super().forward(x.transpose(0, 1))[0].transpose(0, 1)

    check(user_mixer(Mine), 8, causal=True, length=9)


def test_a_batch_second_module_of_ones_own_is_told_which_axes_are_which() -> None:
    class Mine(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.rnn = nn.GRU(width, width)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.rnn(x)

    with pytest.raises(UserError, match=r"check that the axes are \(batch, length, width\)"):
        check(user_mixer(Mine), 8, causal=True, length=9)


def test_classes_and_functions_that_share_an_inner_name_are_each_themselves(tmp_path: Path) -> None:
    """As those of one factory do, and a function behind functools.wraps."""
    path = tmp_path / "factory.py"
    path.write_text(
        "from functools import wraps\n"
        "from torch import nn\n"
        "def make(depth):\n"
        "    class Stack(nn.Sequential):\n"
        "        def __init__(self, width):\n"
        "            super().__init__(*(nn.Linear(width, width) for _ in range(depth)))\n"
        "    return Stack\n"
        "Stack, Three = make(1), make(3)\n"
        "def once(width):\n"
        "    return Stack(width)\n"
        "@wraps(once)\n"
        "def twice(width):\n"
        "    return nn.Sequential(once(width), once(width))\n"
    )
    mixers = {name: load_user_mixer(f"{path}:{name}") for name in ("Stack", "Three", "once", "twice")}
    layers = {name: sum(isinstance(m, nn.Linear) for m in built(mixer).modules()) for name, mixer in mixers.items()}
    assert layers == {"Stack": 1, "Three": 3, "once": 1, "twice": 2}
    assert len(set(map(digest, mixers.values()))) == 4
    assert [mixer.label for mixer in mixers.values()] == ["stack", "three", "once", "twice"]


@pytest.mark.parametrize("name", ["site-packages", "dist-packages"])
def test_what_a_file_imports_from_elsewhere_is_part_of_it_unless_it_is_installed(
    name: str, tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As PYTHONPATH and editable installations have it; a relative import within it is followed too.

    Debian's own Python installs into dist-packages.
    """
    monkeypatch.delitem(sys.modules, "apart", raising=False)
    installed = tmp_path / name
    (installed / "apart").mkdir(parents=True)
    (installed / "apart" / "__init__.py").write_text("SIZE = 1\n")
    (tmp_path / "experiments").mkdir()
    mine = tmp_path / "experiments" / "mine.py"
    mine.write_text("import apart\nfrom ownpackage.models import Mine as Inner\nclass Mine(Inner):\n    pass\n")
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.syspath_prepend(str(tmp_path))
    first = load_user_mixer(f"{mine}:Mine")
    assert built(first).inner.gain == 2
    (package / "helper.py").write_text("GAIN = 7.0\n")
    second = load_user_mixer(f"{mine}:Mine")
    assert built(second).inner.gain == 7 and digest(second) != digest(first)
    (installed / "apart" / "__init__.py").write_text("SIZE = 2\n")
    assert digest(load_user_mixer(f"{mine}:Mine")) == digest(second)


@pytest.mark.parametrize(
    ("load", "times"),
    [
        (lambda file: values.loaded(file), 1),
        (lambda file: load_user_mixer(f"{file}:Mine"), 1),
        (lambda file: values.module(file), 2),
    ],
)
def test_two_threads_that_load_a_file_at_once_do_so_one_after_the_other(
    load: Callable[[str], object], times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file waits for the other thread to be in it too, and goes on by itself where it is kept out meanwhile."""
    said: list[str] = []
    both = threading.Barrier(2, timeout=0.5)

    def meet() -> None:
        said.append("in")
        try:
            both.wait()
        except threading.BrokenBarrierError:
            said.append("out, alone")
        else:
            said.append("out, met")

    meeting = ModuleType("meeting")
    meeting.__dict__["meet"] = meet
    monkeypatch.setitem(sys.modules, "meeting", meeting)
    file = tmp_path / "study.py"
    own = HELPED.replace("from .helper import GAIN", "GAIN = 2.0")
    file.write_text(f"# {load}\nimport meeting\nmeeting.meet()\n{own}")
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(load, [str(file)] * 2)
    assert said == ["in", "out, alone"] * times
    assert (first == second) is (times == 1)


def test_names_are_split_outside_brackets_only() -> None:
    words = ["a.py:M(x=1, y=(2, 3)),s4", "torch.nn:GRU(bias=False) conv"]
    assert names(words) == ("a.py:M(x=1, y=(2, 3))", "s4", "torch.nn:GRU(bias=False)", "conv")


def test_a_fault_without_a_line_names_the_file_alone() -> None:
    """As Python raises it of a file with null bytes."""
    with pytest.raises(UserError) as refused, user_errors("A", "mine.py"):
        raise SyntaxError("source code string cannot contain null bytes")
    assert str(refused.value) == "mine.py: source code string cannot contain null bytes."


@pytest.mark.parametrize(
    "name, near", [("Lineer", "did you mean 'Linear'"), ("Nope", r"choose one of: Adaptive.*\(1\d\d in all\)")]
)
def test_a_misspelt_name_of_a_package_is_compared_with_the_classes_that_it_imports(name: str, near: str) -> None:
    with pytest.raises(UserError, match=f"torch.nn defines no class or function {name}: {near}"):
        load_user_mixer(f"torch.nn:{name}")
