"""The seed of a run decides what a layer draws: no layer sets torch's seed, and other seeds give other weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from faulty_layers import Mapped, faults_of
from torch import Generator, Tensor, nn

from levelfield.cli.app import main
from levelfield.contract import cautions, check, findings
from levelfield.spec import MixerConfig, UserError
from levelfield.user.mixer import user_mixer


class SeedsFirst(Mapped):
    def __init__(self, width: int) -> None:
        torch.manual_seed(0)
        super().__init__(width)


class SeedsCalls(Mapped):
    def forward(self, x: Tensor) -> Tensor:
        torch.manual_seed(0)
        return self.map(x) + torch.randn_like(x)


class SeedsTraining(Mapped):
    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            torch.manual_seed(0)
        return nn.functional.dropout(self.map(x), 0.3, self.training)


@dataclass(frozen=True)
class Config(MixerConfig):
    label: ClassVar[str] = "config"
    paper: ClassVar[str] = "here"

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        torch.manual_seed(0)
        return nn.TransformerEncoderLayer(width, 1, width, batch_first=True)

    def state_size(self, width: int, length: int) -> None:
        return None


@pytest.mark.filterwarnings("ignore::levelfield.spec.reseeding.SetsSeed")
@pytest.mark.parametrize(
    "mixer, when",
    [
        (user_mixer(SeedsFirst), "built, so that all its layers and all seeds begin with the same weights"),
        (user_mixer(SeedsCalls), "called, so that whatever draws after it"),
        (user_mixer(SeedsTraining), "called, so that whatever draws after it"),
        (Config(), "built, so that all its layers and all seeds begin with the same weights"),
    ],
    ids=lambda given: given.label if isinstance(given, MixerConfig) else "",
)
def test_a_layer_that_sets_the_seed_is_told_so_once(mixer: MixerConfig, when: str) -> None:
    before = torch.get_rng_state()
    with pytest.raises(UserError, match=f"sets torch's seed when it is {when}.*: leave torch.manual_seed out"):
        check(mixer, 8, causal=False, padding=False)
    found = faults_of(mixer, causal=False)
    faults = [*found]
    assert faults[0] == findings.SEED and when in found[findings.SEED]
    assert faults == [findings.SEED] or isinstance(mixer, Config), "which does not take a mask as a mixer does"
    if not isinstance(mixer, Config):
        assert torch.equal(torch.get_rng_state(), before)


def test_commands_that_ask_no_contract_warn_of_it() -> None:
    with pytest.warns(UserWarning, match="seedsfirst sets torch's seed when it is built"):
        user_mixer(SeedsFirst).build(8, causal=True, layer=0, generator=Generator().manual_seed(0))


def test_the_command_says_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "import torch\nfrom torch import nn\nclass Mine(nn.Linear):\n    def __init__(self, width):\n"
        "        torch.manual_seed(0)\n        super().__init__(width, width)\n"
    )
    with pytest.raises(SystemExit) as stop:
        main(["check", "mine.py:Mine", "--width", "8"])
    shown = capsys.readouterr()
    assert stop.value.code == 1 and shown.out.count("sets torch's seed") == 1 and shown.err == ""
    with pytest.raises(SystemExit) as stop:
        main(["compare", "mine.py:Mine"])
    assert stop.value.code == 2 and capsys.readouterr().err.count("mine sets torch's seed when it is built") == 1


class Fixed(Mapped):
    """Random features that all layers and calls share, drawn apart from everything else."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.register_buffer("features", torch.randn(width, width))

    def forward(self, x: Tensor) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            return self.map(x @ self.features) + torch.randn(x.shape[-1])


class Constant(nn.Module):
    """Weights that are the same for all seeds, as none is drawn."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.decay = nn.Parameter(torch.arange(1.0, width + 1).log().repeat(2, 1))
        self.bias = nn.Parameter(torch.arange(1.0, width + 1).log())

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gain * self.decay.mean(0) + self.bias


class OwnGenerator(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(width, width, generator=Generator().manual_seed(0)) / width**0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w


@pytest.mark.parametrize("made", [Fixed, Constant, Mapped])
def test_what_leaves_the_seed_as_it_was_is_no_fault(made: type[nn.Module]) -> None:
    mixer = user_mixer(made)
    assert {each.rule for each in findings.examine(mixer, 16, causal=True) if each.fault} <= {findings.PADDING}
    check(mixer, 16, causal=True, padding=False)
    assert not [*cautions(mixer, 16, causal=True)]


def test_weights_drawn_alike_for_all_seeds_are_noted() -> None:
    found = {each.rule: each.fault for each in findings.examine(user_mixer(OwnGenerator), 8, causal=True) if each.fault}
    assert [*found] == [findings.OWN] and findings.OWN in findings.NOTES
    assert "draw them from torch's global generator" in found[findings.OWN]
    assert [*cautions(user_mixer(OwnGenerator), 8, causal=True)] == [found[findings.OWN]]
