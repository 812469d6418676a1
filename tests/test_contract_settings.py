"""Settings of torch hold for a whole process: a layer that changes one when it is called is refused, and undone."""

from __future__ import annotations

import pytest
import torch
from faulty_layers import Mapped, faults_of
from torch import Tensor

from levelfield.contract import check, findings
from levelfield.spec import UserError
from levelfield.user.mixer import user_mixer


class InFloat64(Mapped):
    def forward(self, x: Tensor) -> Tensor:
        torch.set_default_dtype(torch.float64)
        return self.map(x)


class WithoutGradient(Mapped):
    def forward(self, x: Tensor) -> Tensor:
        torch.set_grad_enabled(False)
        return self.map(x).requires_grad_(True)


class WithGradient(Mapped):
    def forward(self, x: Tensor) -> Tensor:
        torch.set_grad_enabled(True)
        return self.map(x)


class InTraining(Mapped):
    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            torch.set_float32_matmul_precision("medium")
            torch.use_deterministic_algorithms(True)
        return self.map(x)


class PutsItBack(Mapped):
    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad(), torch.device("cpu"):
            return self.map(x)


def _now() -> tuple[object, ...]:
    return (
        torch.get_default_dtype(),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_grad_enabled(),
    )


@pytest.mark.parametrize(
    "made, said",
    [
        (InFloat64, "leave torch.set_default_dtype out"),
        (WithoutGradient, "leave torch.set_grad_enabled out"),
        (WithGradient, "leave torch.set_grad_enabled out"),
        (InTraining, "leave torch.set_float32_matmul_precision and torch.use_deterministic_algorithms out"),
    ],
)
@pytest.mark.parametrize("tracked", [True, False])
def test_a_layer_that_changes_a_setting_is_told_so_once_and_the_setting_is_put_back(
    made: type[Mapped], said: str, tracked: bool
) -> None:
    with torch.set_grad_enabled(tracked):
        before = _now()
        with pytest.raises(UserError, match=f"changes a setting of torch when it is called.*: {said} of its forward"):
            check(user_mixer(made), 8, causal=True)
        assert _now() == before
        found = faults_of(user_mixer(made), causal=True)
        assert list(found) == [findings.SETTINGS] and said in found[findings.SETTINGS] and _now() == before


def test_a_setting_within_a_block_that_puts_it_back_is_no_fault() -> None:
    check(user_mixer(PutsItBack), 8, causal=True, padding=False)
