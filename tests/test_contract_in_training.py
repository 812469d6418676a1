"""What a layer keeps of a batch of training for the next is a fault; running statistics and counts are notes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from faulty_layers import Mapped, faults_of
from torch import Generator, Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from levelfield.cli.app import main
from levelfield.contract import cautions, check, findings
from levelfield.spec import UserError
from levelfield.user.mixer import user_mixer

FIX = "begin every forward with a fresh state"


class Carries(Mapped):
    """It adds the last state of the batch before, in training alone."""

    state: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        y = self.map(x)
        if self.training:
            if self.state is not None and self.state.shape[0] == x.shape[0]:
                y = y + self.state
            self.state = y[:, -1:].detach()
        return y


class CarriesWithItsGraph(Carries):
    def forward(self, x: Tensor) -> Tensor:
        y = self.map(x)
        if self.training:
            y = y if self.state is None else y + self.state.mean()
            self.state = y
        return y


class CarriesInABuffer(Mapped):
    """What is stored with the weights is other sequences' all the same."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.register_buffer("state", torch.zeros(64, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.map(x)
        if self.training:
            y = y + self.state[: len(x)]
            self.state[: len(x)] = y[:, -1:].detach()
        return y


@pytest.mark.parametrize("made", [Carries, CarriesWithItsGraph, CarriesInABuffer])
def test_a_layer_that_carries_a_state_from_batch_to_batch_is_told_so_once(made: type[nn.Module]) -> None:
    found = faults_of(user_mixer(made))
    assert [*found] == [findings.FRESH] and FIX in found[findings.FRESH]
    with pytest.raises(UserError, match=FIX):
        check(user_mixer(made), 8, causal=True)


def test_the_command_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "from torch import nn\nclass Mine(nn.Linear):\n    kept = 0\n    def __init__(self, width):\n"
        "        super().__init__(width, width)\n    def forward(self, x):\n        y = super().forward(x)\n"
        "        if self.training:\n            y = y + self.kept\n            self.kept = y.mean().detach()\n"
        "        return y\n"
    )
    with pytest.raises(SystemExit) as stop:
        main(["check", "mine.py:Mine", "--width", "8"])
    shown = capsys.readouterr().out
    assert stop.value.code == 1 and shown.count("FAULT  ") == 1 and f"  FAULT  {findings.FRESH}: mine adds" in shown
    with pytest.raises(SystemExit) as stop:
        main(["compare", "mine.py:Mine"])
    assert stop.value.code == 2 and FIX in capsys.readouterr().err


class Bounded(Mapped):
    """The power iteration moves a buffer at every call in training, whatever the batch is."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        spectral_norm(self.map)


class Drops(Mapped):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(self.map(x), 0.3, self.training)


@pytest.mark.parametrize("made", [Bounded, Drops])
def test_power_iterations_and_dropout_are_neither_fault_nor_note(made: type[nn.Module]) -> None:
    assert not [each for each in findings.examine(user_mixer(made), 8, causal=True) if each.fault]
    assert not [*cautions(user_mixer(made), 8, causal=True)]


class Centred(Mapped):
    """It subtracts a running mean of all that it has seen in training."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.map(x)
        centred = y - self.mean
        if self.training:
            self.mean = self.mean.lerp(y.detach().mean((0, 1)), 0.1)
        return centred


class Warms(Mapped):
    """It counts its calls in training, and forgets the count where a run goes on."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += self.training
        return self.map(x) * (1 + self.calls) if self.training else self.map(x)


class DrawsItsOwn(Mapped):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.draws = Generator().manual_seed(width)

    def forward(self, x: Tensor) -> Tensor:
        kept = torch.rand(x.shape[-1], generator=self.draws) > 0.3
        return self.map(x) * kept if self.training else self.map(x)


@pytest.mark.parametrize(
    "made, words",
    [(Centred, "as running statistics do"), (Warms, "keep counts in buffers"), (DrawsItsOwn, "keep counts in buffers")],
)
def test_running_statistics_and_counts_are_noted(made: type[nn.Module], words: str) -> None:
    mixer = user_mixer(made)
    found = {each.rule: each.fault for each in findings.examine(mixer, 8, causal=True) if each.fault}
    assert [*found] == [findings.STEADY] and words in found[findings.STEADY] and findings.STEADY in findings.NOTES
    (said,) = cautions(mixer, 8, causal=True)
    assert said == found[findings.STEADY]
