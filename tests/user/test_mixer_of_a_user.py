"""A user's own module: found, built, hashed and refused with a sentence that says what to do."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from repository import ROOT
from torch import Generator, Tensor, nn

from levelfield.contract import check
from levelfield.spec import UserError, describe, digest
from levelfield.user.mixer import UserMixer, load_user_mixer, user_mixer

SOURCE = '''
from __future__ import annotations

import helper
import torch
from dataclasses import dataclass
from torch import nn


@dataclass
class Settings:
    gain: float = helper.GAIN


class Decay(nn.Module):
    """A causal exponential moving average."""

    def __init__(self, d_model, causal=True, rate=0.5):
        super().__init__()
        assert causal, "one direction only"
        self.rate, self.gain = rate, Settings().gain
        self.mix = nn.Linear(d_model, d_model)

    def forward(self, x):
        y, state = [], torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            state = self.rate * state + x[:, t]
            y.append(state)
        return self.mix(self.gain * torch.stack(y, 1))


class Pooled(nn.Module):
    def __init__(self, features, heads):
        super().__init__()
        self.map = nn.Linear(features, features)
        self.heads = heads

    def forward(self, x, mask=None):
        weights = torch.ones_like(x[..., :1]) if mask is None else mask.unsqueeze(-1).to(x.dtype)
        return x * self.map((x * weights).sum(1, keepdim=True) / weights.sum(1, keepdim=True).clamp(min=1))


class Plain:
    pass


class Cross(nn.Module):
    def forward(self, query, key, value):
        return query
'''


@pytest.fixture
def mine(tmp_path: Path) -> str:
    (tmp_path / "helper.py").write_text("GAIN = 1.5\n")
    (tmp_path / "mine.py").write_text(SOURCE)
    return str(tmp_path / "mine.py")


def _build(mixer: UserMixer, width: int = 8, causal: bool = True, seed: int = 0) -> nn.Module:
    return mixer.build(width, causal=causal, layer=0, generator=Generator().manual_seed(seed))


def test_a_file_becomes_a_mixer_that_keeps_the_contract(mine: str) -> None:
    mixer = load_user_mixer(f"{mine}:Decay")
    assert (mixer.label, mixer.name, mixer.takes_mask, mixer.settings) == ("decay", "Decay", False, ())
    assert mixer.state_size(8, 100) is None and mixer.max_length is None
    check(mixer, 8, causal=True, length=12)
    x = torch.randn(1, 3, 8, generator=Generator().manual_seed(0))
    net: Any = _build(mixer)
    expected = net.inner.mix(1.5 * (x[:, 2] + 0.5 * x[:, 1] + 0.25 * x[:, 0]))
    torch.testing.assert_close(net(x, None)[:, 2], expected)


class UpToTwenty(nn.Module):
    """A scale for each step, of which there are twenty, and shorter sequences have the first of them."""

    max_length = 20

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(self.max_length, width))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale[: x.shape[1]]


class OnlyTwenty(UpToTwenty):
    """The same, for sequences of one length."""

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def test_a_layer_of_bounded_length_says_its_bound_and_one_of_a_fixed_length_is_refused() -> None:
    mixer = user_mixer(UpToTwenty)
    check(mixer, 8, causal=True, length=33, lengths=(100,))
    with pytest.raises(UserError, match="UpToTwenty takes at most 20 steps, not 21: choose a shorter task"):
        _build(mixer)(torch.zeros(1, 21, 8))
    with pytest.raises(UserError, match="let it take shorter ones too, and declare the longest as `max_length`"):
        check(user_mixer(OnlyTwenty), 8, causal=True)


def test_settings_are_given_in_the_name(mine: str) -> None:
    mixer = load_user_mixer(f"{mine}:Decay(rate=0.25)")
    net: Any = _build(mixer)
    assert net.inner.rate == 0.25 and mixer.settings == (("rate", 0.25),)
    pooled = load_user_mixer(f"{mine}:Pooled(heads=2)")
    assert pooled.takes_mask
    check(pooled, 8, causal=False)


def test_lists_among_the_settings_become_tuples(mine: str) -> None:
    mixer = load_user_mixer(f"{mine}:Decay(rate=[1, [2, 3]])")
    assert mixer.settings == (("rate", (1, (2, 3))),)
    assert hash(mixer) == hash(load_user_mixer(f"{mine}:Decay(rate=(1, (2, 3)))"))


def test_the_way_a_path_is_typed_is_no_part_of_the_identity(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(mine).parent)
    typed, full = load_user_mixer("mine.py:Decay"), load_user_mixer(f"{mine}:Decay")
    assert describe(typed)["path"] != describe(full)["path"]
    assert digest(typed) == digest(full)
    assert digest(typed) != digest(load_user_mixer("mine.py:Decay(rate=0.25)"))


def test_a_module_without_a_mask_sees_and_leaves_zeros_at_padding(mine: str) -> None:
    net: Any = _build(load_user_mixer(f"{mine}:Decay"))
    seen: list[Tensor] = []
    net.inner.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    x = torch.ones(2, 5, 8)
    mask = torch.arange(5) < torch.tensor([[5], [2]])
    y = net(x, mask)
    assert not seen[0][1, 2:].any() and seen[0][mask].eq(1).all()
    assert not y[1, 2:].any() and y[mask].ne(0).any()


def test_the_same_generator_gives_the_same_weights_and_global_state_stays(mine: str) -> None:
    mixer = load_user_mixer(f"{mine}:Decay")
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # pyright: ignore  # noqa: NPY002
    a, b, c = (_build(mixer, seed=s).state_dict()["inner.mix.weight"] for s in (0, 0, 1))
    assert torch.equal(a, b) and not torch.equal(a, c)
    assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]  # pyright: ignore  # noqa: NPY002


def test_two_layers_from_one_generator_differ(mine: str) -> None:
    mixer, generator = load_user_mixer(f"{mine}:Decay"), Generator().manual_seed(0)
    a, b = (mixer.build(8, causal=True, layer=i, generator=generator).state_dict() for i in range(2))
    assert not torch.equal(a["inner.mix.weight"], b["inner.mix.weight"])


def test_another_source_is_another_run_and_a_stale_plan_is_refused(mine: str) -> None:
    first = load_user_mixer(f"{mine}:Decay")
    assert digest(first) == digest(load_user_mixer(f"{mine}:Decay"))
    Path(mine).write_text(SOURCE.replace("rate=0.5", "rate=0.9"))
    second = load_user_mixer(f"{mine}:Decay")
    assert digest(first) != digest(second)
    net: Any = _build(second)
    assert net.inner.rate == 0.9
    stale = UserMixer(first.path, first.name, "0" * 64, first.takes_mask)
    with pytest.raises(UserError, match="has changed since this run was planned"):
        _build(stale)


def test_a_plan_made_in_another_process_finds_its_class_again(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mixer = load_user_mixer(f"{mine}:Decay")
    monkeypatch.setattr("levelfield.user.mixer._MAKERS", {})
    assert _build(mixer)(torch.ones(1, 2, 8), None).shape == (1, 2, 8)
    monkeypatch.setattr("levelfield.user.mixer._MAKERS", {})
    with pytest.raises(UserError, match=r"pass it to user_mixer\(\)"):
        _build(UserMixer("", "Decay", mixer.source_sha256, False))


@pytest.mark.parametrize(
    "call, sentence",
    [
        ("", "names no class: write FILE.py:Name"),
        (":Deca", "defines no class or function Deca: did you mean 'Decay'"),
        (":Plain", "Plain in .* is not a subclass of torch.nn.Module"),
        (":Cross", r"takes \(x\) or \(x, mask\): give key and value a default, or write a module of x alone"),
        (":Pooled", r"needs heads besides its width: give a default, or write Pooled\(heads=...\)"),
        (":Decay(rat=1)", "has no setting 'rat': did you mean 'rate'"),
        (":Decay(layers=2)", "has no setting 'layers': choose one of: rate[.]$"),
        (":Decay(d_model=3)", "The d_model of Decay comes from --width: leave it out"),
        (":Decay(rate=[1, open])", "no class name with settings"),
        (":Decay(0.5)", "no class name with settings"),
        (":Decay(rate={1})", "must be numbers, text"),
        (":Decay(rate={'a': 1})", "must be numbers, text"),
    ],
)
def test_what_cannot_be_a_mixer_is_refused(mine: str, call: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        load_user_mixer(mine + call)


@pytest.mark.parametrize(
    "source, sentence",
    [
        ("import no_such_package\n", "fails when imported: ModuleNotFoundError: No module named 'no_such_package'"),
        ("class Mine(:\n", "fails when imported: SyntaxError"),
        ("raise SystemExit(3)\n", "fails when imported: SystemExit: 3"),
        ("x = 1\n", "defines no nn.Module class, so there is no Mine"),
    ],
)
def test_a_file_that_is_no_use_is_refused(tmp_path: Path, source: str, sentence: str) -> None:
    (tmp_path / "mine.py").write_text(source)
    with pytest.raises(UserError, match=sentence) as caught:
        load_user_mixer(f"{tmp_path / 'mine.py'}:Mine")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Cannot read .*gone.py \(No such file"):
        load_user_mixer(f"{tmp_path / 'gone.py'}:Mine")


def test_a_constructor_that_fails_is_told_with_its_arguments(mine: str) -> None:
    with pytest.raises(UserError, match=r"Decay\(d_model=8, causal=False\) fails: AssertionError: one direction only"):
        _build(load_user_mixer(f"{mine}:Decay"), causal=False)


class Mean(nn.Module):
    def __init__(self, hidden_size: int, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((hidden_size,), scale))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x


class Child(Mean):
    pass


def test_a_class_from_a_session_is_a_mixer_too() -> None:
    mixer = user_mixer(Mean, {"scale": 2.0})
    assert mixer.path == "" and mixer.label == "mean"
    check(mixer, 4, causal=True)
    assert torch.equal(_build(mixer, 3)(torch.ones(1, 2, 3), None), torch.full((1, 2, 3), 2.0))
    with pytest.raises(UserError, match="This Mean is a module that is built already: pass its class"):
        user_mixer(Mean(3))  # pyright: ignore[reportArgumentType]


def _cell(text: str) -> type[nn.Module]:
    """A class as a notebook makes it: from text that no file holds."""
    module = types.ModuleType("cell")
    exec(text, vars(module))
    return module.Mine


CELL = """
from torch import nn
class Mine(nn.Module):
    SIZE = 3
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
    def forward(self, x):
        return 2 * self.linear(x) if str(type(x)) in {"a", "b", "c", "d", "e", "f", "g", "h"} else self.linear(x)
"""


def test_without_source_the_byte_code_tells_classes_apart() -> None:
    first, same = user_mixer(_cell(CELL)), user_mixer(_cell(CELL))
    assert first.source_sha256 == same.source_sha256
    edits = [("2 *", "3 *"), ("width)\n", "width, bias=False)\n"), ("= 3", "= 4"), ("self, width", "self, width=8")]
    hashes = {user_mixer(_cell(CELL.replace(*edit))).source_sha256 for edit in edits} | {first.source_sha256}
    assert len(hashes) == 5


def test_the_byte_code_hash_is_the_same_in_every_process(tmp_path: Path) -> None:
    """Sets of strings are ordered anew in each process."""
    (tmp_path / "cell.py").write_text(
        f"from levelfield.user.mixer import user_mixer\nscope = {{'__name__': 'cell'}}\nexec({CELL!r}, scope)\n"
        "print(user_mixer(scope['Mine']).source_sha256)\n"
    )
    there = subprocess.run(
        [sys.executable, str(tmp_path / "cell.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "12345"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    assert there == user_mixer(_cell(CELL)).source_sha256


def test_a_parent_class_is_part_of_the_identity() -> None:
    text = CELL.replace("class Mine(", "class Base(") + "class Mine(Base):\n    pass\n"
    other = text.replace("2 *", "3 *")
    assert user_mixer(_cell(text)).source_sha256 != user_mixer(_cell(other)).source_sha256
    assert user_mixer(Child).source_sha256 != user_mixer(Mean).source_sha256


def test_a_class_is_also_what_it_refers_to() -> None:
    """Closures, globals and helpers, which its own source does not show."""

    def made(inner: Any) -> type[nn.Module]:
        class Mine(nn.Module):
            def __init__(self, width: int) -> None:
                super().__init__()
                self.inner = inner(width)

            def forward(self, x: Tensor) -> Tensor:
                return self.inner(x)

        return Mine

    def one(width: int) -> nn.Module:
        return nn.Linear(width, width)

    def other(width: int) -> nn.Module:
        return nn.Sequential(nn.Linear(width, width), nn.Tanh())

    first, second, again = (user_mixer(made(inner)) for inner in (one, other, one))
    assert first.source_sha256 == again.source_sha256 != second.source_sha256
    layers = [mixer.build(4, causal=False, layer=0, generator=Generator()) for mixer in (first, second)]
    assert [len(list(layer.modules())) for layer in layers] == [3, 5]


def test_an_edited_file_beside_it_is_another_source_and_is_read_anew(mine: str) -> None:
    """At any depth, and where it is imported in a function only."""
    folder = Path(mine).parent
    (folder / "deeper.py").write_text("GAIN = 1.0\n")
    (folder / "helper.py").write_text("from deeper import GAIN\n")
    shas, gains = [], []
    for gain in ("1.0", "7.0"):
        (folder / "deeper.py").write_text(f"GAIN = {gain}\n")
        mixer = load_user_mixer(f"{mine}:Decay")
        layer = mixer.build(4, causal=True, layer=0, generator=Generator())
        shas.append(mixer.source_sha256)
        gains.append(layer.inner.gain)  # pyright: ignore[reportAttributeAccessIssue]
    assert gains == [1.0, 7.0] and shas[0] != shas[1]
    sys.modules.pop("helper"), sys.modules.pop("deeper")


def test_what_a_file_imports_when_it_is_built_is_found_and_hashed(tmp_path: Path) -> None:
    source = """
from torch import nn

class Late(nn.Module):
    def __init__(self, width):
        super().__init__()
        from late_helper import FACTOR
        self.factor = FACTOR
    def forward(self, x):
        return x * self.factor
"""
    (tmp_path / "late.py").write_text(source)
    (tmp_path / "late_helper.py").write_text("FACTOR = 2\n")
    mixer = load_user_mixer(f"{tmp_path}/late.py:Late")
    assert mixer.build(4, causal=False, layer=0, generator=Generator())(torch.ones(1, 1, 4), None).sum() == 8
    (tmp_path / "late_helper.py").write_text("FACTOR = 3\n")
    assert load_user_mixer(f"{tmp_path}/late.py:Late").source_sha256 != mixer.source_sha256


def test_settings_of_torch_that_a_file_changes_are_put_back(tmp_path: Path) -> None:
    """Or the arms beside it would be trained in float64, under the name of the others."""
    lines = ("set_default_dtype(torch.float64)", "set_grad_enabled(False)", "use_deterministic_algorithms(True)")
    body = "class Mine(torch.nn.Linear):\n    def __init__(self, width):\n        super().__init__(width, width)\n"
    (tmp_path / "loud.py").write_text("import torch\n" + "".join(f"torch.{line}\n" for line in lines) + body)
    mixer = load_user_mixer(f"{tmp_path}/loud.py:Mine")
    assert torch.get_default_dtype() == torch.float32 and torch.is_grad_enabled()
    assert not torch.are_deterministic_algorithms_enabled()
    layer = mixer.build(4, causal=False, layer=0, generator=Generator())
    assert {p.dtype for p in layer.parameters()} == {torch.float32}


def test_layers_of_torch_get_their_own_kind_of_mask() -> None:
    """True at padding there. Without it, real steps would attend to padding and the contract would be broken."""
    mixer = user_mixer(nn.TransformerEncoderLayer, {"nhead": 2, "dim_feedforward": 16, "batch_first": True})
    assert mixer.takes_mask
    check(mixer, 8, causal=False, length=12)
    layer = _build(mixer, causal=False).eval()
    x, mask = torch.randn(2, 5, 8, generator=Generator().manual_seed(0)), torch.arange(5) < torch.tensor([[5], [3]])
    torch.testing.assert_close(layer(x, mask)[1:, :3], layer(x[1:, :3], None))
