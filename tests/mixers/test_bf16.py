"""A training step in bfloat16 agrees with the one in float32, for every mixer, and for none that sums in bfloat16."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from examples import CASES
from repository import ROOT
from torch import Generator, Tensor, nn

from levelfield.contract.bf16 import agrees_in_bf16
from levelfield.ops.attention.windowed_bias import attend_table, window_table
from levelfield.spec import MixerConfig, UserError


def agrees(config: MixerConfig, causal: bool, lengths: tuple[int, ...]) -> None:
    for length in lengths:
        if length <= (config.max_length or length):
            agrees_in_bf16(config, 16, causal, length)


@pytest.mark.parametrize("config, causal", CASES)
def test_a_training_step_agrees(config: MixerConfig, causal: bool) -> None:
    agrees(config, causal, (1, 9, 65))


@pytest.mark.slow
@pytest.mark.parametrize("config, causal", CASES)
def test_a_training_step_agrees_over_long_sequences(config: MixerConfig, causal: bool) -> None:
    agrees(config, causal, (512, 2048))


@dataclass(frozen=True)
class Summing(MixerConfig):
    """A leaky sum over all steps so far, then a linear map."""

    wide: bool = True

    label: ClassVar[str] = "summing"
    paper: ClassVar[str] = "none"

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        return _Sum(width, self.wide, generator)

    def state_size(self, width: int, length: int) -> int:
        return width


class _Sum(nn.Module):
    def __init__(self, width: int, wide: bool, generator: Generator) -> None:
        super().__init__()
        self.wide = wide
        self.gain = nn.Parameter(torch.randn(width, generator=generator))
        self.out = nn.Linear(width, width)
        with torch.no_grad():
            self.out.weight.copy_(torch.randn(width, width, generator=generator) / width**0.5)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        half = torch.is_autocast_enabled("cpu") and not self.wide
        x = (x * self.gain).to(torch.bfloat16) if half else x * self.gain
        state, states = x[:, 0], [x[:, 0]]
        for step in x[:, 1:].unbind(1):
            state = 0.999 * state + step
            states.append(state)
        return self.out(torch.stack(states, 1) / len(states) ** 0.5)


def test_what_sums_over_steps_in_bfloat16_is_told_from_what_sums_in_float32() -> None:
    agrees_in_bf16(Summing(), 16, True, 600)
    agrees_in_bf16(Summing(wide=False), 16, True, 2)  # so few steps show nothing
    with pytest.raises(UserError, match=r"summing in bfloat16 has a .* off that in float32 at 600 steps, where"):
        agrees_in_bf16(Summing(wide=False), 16, True, 600)


def test_a_bias_of_a_table_gets_its_gradient_from_every_step_in_float32() -> None:
    steps, window = 4096, 3
    draws = Generator().manual_seed(0)
    q, k, v, given = (torch.randn(1, 1, steps, 4, generator=draws) for _ in range(4))
    found = []
    for kind in (torch.float64, torch.float32, torch.bfloat16):
        bias = torch.zeros(1, 4, window - 1 + 4, dtype=kind, requires_grad=True)
        table = bias + window_table(window, True, 4)
        # All in the digits of bfloat16, so that nothing but the sum over steps differs much.
        query, key, value = (part.bfloat16().to(kind) for part in (q, k, v))
        y = attend_table(query, key, value, table, None, before=window - 1)
        (grad,) = torch.autograd.grad(y, bias, given.to(y.dtype).abs())
        found.append(grad.double())
    exact, single, half = found
    assert (single - exact).norm() < 1e-5 * exact.norm()
    assert (half - exact).norm() < 2e-2 * exact.norm()


def test_every_part_of_a_mixer_that_is_kept_out_of_autocast_says_why() -> None:
    silent = []
    for path in sorted((ROOT / "levelfield" / "mixers").glob("*.py")):
        lines = path.read_text().splitlines()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.With) and "torch.autocast" in ast.unparse(node.items[0]):
                said = lines[node.lineno - 2].strip()
                silent += [] if said.startswith("# In float32") else [f"{path.name}:{node.lineno}"]
    assert silent == []
