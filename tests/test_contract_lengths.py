"""The contract asks at the lengths of the tasks to come, where these are known, and on no more steps than they have."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from levelfield.cli.app import main
from levelfield.contract import check, looks_ahead
from levelfield.contract.rules import MOST_TRAINED
from levelfield.presets import efforts
from levelfield.spec import UserError
from levelfield.user.mixer import user_mixer

pytestmark = pytest.mark.usefixtures("undrawn")


class Mapped(nn.Linear):
    def __init__(self, width: int) -> None:
        super().__init__(width, width)


class Fails(Mapped):
    """It has a NaN at 64 steps alone."""

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(x) / (x.shape[1] != 64)


class FailsPadded(Mapped):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(x) / (mask is None or x.shape[1] != 64)


class FailsInTraining(Mapped):
    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(x) / (not self.training or x.shape[1] != 64)


class FailsBackward(Mapped):
    """The root of a zero has a finite value and no finite gradient."""

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        y = super().forward(x)
        return y + ((y - y).abs().sqrt() if x.shape[1] == 64 else 0)


@pytest.mark.parametrize(
    "made, words",
    [
        (Fails, "returns NaN or infinite numbers at 64 steps, which a task has: look for"),
        (FailsPadded, "at 64 steps, which a task has, where a sequence is padded: look for"),
        (FailsInTraining, "NaN or infinite outputs or gradients in training at 64 steps"),
        (FailsBackward, "NaN or infinite outputs or gradients in training at 64 steps"),
    ],
)
def test_what_is_not_finite_at_the_length_of_a_task_alone_is_a_fault(made: type[nn.Module], words: str) -> None:
    check(user_mixer(made), 8, causal=True, lengths=(63, 100))
    with pytest.raises(UserError, match=words):
        check(user_mixer(made), 8, causal=True, lengths=(20, 64, 100))


class HidesIfShort(Mapped):
    """A mean over all steps, from which it hides padding in short sequences alone, as a layer may that attends to
    everything there and to windows in longer ones."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        real = torch.ones(x.shape[:2]) if mask is None or x.shape[1] > 64 else mask.float()
        mean = torch.einsum("btd, bt -> bd", x, real) / real.sum(1, keepdim=True).clamp(min=1)
        return super().forward(x) + mean[:, None]


def test_padding_is_hidden_at_the_longest_length_of_a_task_too() -> None:
    mixer = user_mixer(HidesIfShort)
    check(mixer, 8, causal=False, lengths=(30, 64))
    check(mixer, 8, causal=False, lengths=(30, 200), padding=False)
    for longest in (65, 128, 200):
        with pytest.raises(UserError, match=f"at {longest} steps lets what lies in padded steps reach real ones: take"):
            check(mixer, 8, causal=False, lengths=(30, longest))


class Short(Mapped):
    """It takes what a short task has, and says so nowhere."""

    most = 25

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        if x.shape[1] > self.most:
            raise ValueError("too long")
        return super().forward(x)


def test_no_rule_asks_for_more_steps_than_the_tasks_have() -> None:
    mixer = user_mixer(Short)
    for causal in (False, True):
        check(mixer, 8, causal, lengths=(13, 25))
    assert not looks_ahead(mixer, 8, 25)
    with pytest.raises(UserError, match="too long"):
        check(mixer, 8, causal=True)
    with pytest.raises(UserError, match="too long"):
        check(mixer, 8, causal=True, lengths=(26,))


class Chunks(Mapped):
    """It takes chunks of four steps alone."""

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(x.view(len(x), -1, 4, x.shape[2])).view(x.shape)


def test_a_layer_of_whole_chunks_is_told_to_pad_its_input() -> None:
    with pytest.raises(UserError, match=r"if for multiples of one, let it pad its input at the end and cut its output"):
        check(user_mixer(Chunks), 8, causal=False)


class Squares(Mapped):
    """It tells the most steps that it was called on in training."""

    seen = 0

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        if torch.is_grad_enabled():
            Squares.seen = max(Squares.seen, x.shape[1])
        return super().forward(x)


def test_very_long_sequences_are_not_trained_on_before_a_run() -> None:
    check(user_mixer(Squares), 8, causal=False, padding=False, lengths=(MOST_TRAINED, MOST_TRAINED + 1))
    assert Squares.seen == MOST_TRAINED


def test_a_comparison_knows_the_lengths_of_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Recall has 25 steps at `minutes`, fewer than the rules ask for where nothing is known, and ListOps 47."""
    steps = efforts.sized_task("recall", "minutes").max_length
    assert steps == 25
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "from torch import nn\nclass Short(nn.Linear):\n    def __init__(self, width):\n"
        f"        super().__init__(width, width)\n    def forward(self, x):\n        assert x.shape[1] <= {steps}\n"
        "        return super().forward(x)\n"
        "class Fails(Short):\n    def forward(self, x):\n        y = nn.Linear.forward(self, x)\n"
        f"        return y / (x.shape[1] != {steps})\n"
    )
    main(["compare", "mine.py:Short", "--tasks", "recall", "--dry-run"])
    assert "short" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main(["compare", "mine.py:Fails", "--tasks", "recall", "listops", "--dry-run"])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and f"fails returns NaN or infinite numbers at {steps} steps, which a task has" in said
