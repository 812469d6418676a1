"""What a layer has is there, in its names and shapes, when it is built."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from faulty_layers import faults_of
from torch import Tensor, nn

from levelfield.cli.app import main
from levelfield.contract import check, findings
from levelfield.spec import UserError
from levelfield.user.mixer import user_mixer


class Late(nn.Module):
    """Its weights are made by the first call."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.made = False

    def forward(self, x: Tensor) -> Tensor:
        if not self.made:
            self.w, self.made = nn.Parameter(torch.eye(x.shape[-1])), True
        return x @ self.w


class LateInside(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.map: nn.Module | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.map = self.map or nn.LazyLinear(x.shape[-1])
        return self.map(x)


class LateInTraining(nn.Linear):
    def __init__(self, width: int) -> None:
        super().__init__(width, width)

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self.training and "gain" not in self._parameters:
            self.gain = nn.Parameter(torch.ones(x.shape[-1]))
        return super().forward(x)


@pytest.mark.parametrize("made, name", [(Late, "w"), (LateInside, "map.bias"), (LateInTraining, "gain")])
def test_weights_that_a_call_makes_are_one_fault_and_one_sentence(made: type[nn.Module], name: str) -> None:
    found = faults_of(user_mixer(made))
    assert [*found] == [findings.MADE] and "make all weights in __init__, from the width" in found[findings.MADE]
    with pytest.raises(UserError, match=rf"makes or drops 'inner\.{name}' after it was built"):
        check(user_mixer(made), 8, causal=True)


def test_the_command_names_the_weights_that_a_call_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "import torch\nfrom torch import nn\nclass Mine(nn.Module):\n    def __init__(self, width):\n"
        "        super().__init__()\n    def forward(self, x):\n        if not hasattr(self, 'w'):\n"
        "            self.w = nn.Parameter(torch.randn(x.shape[-1], x.shape[-1]))\n        return x @ self.w\n"
    )
    with pytest.raises(SystemExit) as stop:
        main(["check", "mine.py:Mine", "--width", "8"])
    shown = capsys.readouterr().out
    assert stop.value.code == 1 and shown.count("FAULT  ") == 1 and "Error" not in shown and "note " not in shown
    with pytest.raises(SystemExit) as stop:
        main(["compare", "mine.py:Mine"])
    assert stop.value.code == 2 and "mine makes or drops 'inner.w' after it was built" in capsys.readouterr().err


class Table(nn.Linear):
    """It keeps the positions of the longest sequence so far."""

    stored = True

    def __init__(self, width: int) -> None:
        super().__init__(width, width)
        self.register_buffer("positions", torch.zeros(0, width), persistent=self.stored)

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        steps = x.shape[1]
        if steps > len(self.positions):
            self.positions = torch.arange(steps)[:, None].expand(-1, x.shape[-1]).cos()
        return super().forward(x + self.positions[:steps])


class Unstored(Table):
    stored = False


def test_a_table_that_grows_is_told_how_to_be_registered_and_holds_then() -> None:
    found = faults_of(user_mixer(Table))
    assert [*found] == [findings.MADE] and "memory" not in found[findings.MADE]
    assert "changes the shape of 'inner.positions'" in found[findings.MADE]
    assert "register a table that grows with the steps, as of positions, with persistent=False" in found[findings.MADE]
    assert not [each for each in findings.examine(user_mixer(Unstored), 8, causal=True, lengths=(64,)) if each.fault]
    check(user_mixer(Unstored), 8, causal=True, lengths=(64,))
