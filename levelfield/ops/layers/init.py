"""Builds layers with torch's default initial values, drawn from a generator that is passed in.

`nn.Linear(...)` draws from the process-wide generator, so a model's weights would depend on whatever ran before it.
These helpers build the layer on the meta device, where nothing is drawn, and fill it from `generator`: the same
numbers, in the same order, as torch gives with its own generator at that seed.

    generator = torch.Generator().manual_seed(derive_seed(run.seed, "model"))
    project = linear(64, 256, generator)
"""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import Generator, Tensor, nn

Layer = TypeVar("Layer", bound=nn.Module)


def linear(inputs: int, outputs: int, generator: Generator, bias: bool = True) -> nn.Linear:
    """A linear layer, (..., inputs) -> (..., outputs), with weight and bias uniform in +-1/sqrt(inputs)."""
    layer = _unfilled(nn.Linear(inputs, outputs, bias=bias, device="meta"))
    fill_default(layer.weight, layer.bias if bias else None, generator)
    return layer


def orthogonal_linear(inputs: int, outputs: int, generator: Generator, gain: float = 1.0) -> nn.Linear:
    """A linear layer without bias whose rows or columns, whichever are fewer, are orthogonal and of length `gain`."""
    layer = _unfilled(nn.Linear(inputs, outputs, bias=False, device="meta"))
    nn.init.orthogonal_(layer.weight, gain, generator)
    return layer


def zero_linear(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer of zeros without bias: as a layer's last map it leaves the residual stream unchanged at first."""
    layer = _unfilled(nn.Linear(inputs, outputs, bias=False, device="meta"))
    nn.init.zeros_(layer.weight)
    return layer


def conv1d(
    inputs: int, outputs: int, kernel: int, generator: Generator, groups: int = 1, bias: bool = True
) -> nn.Conv1d:
    """A convolution, (B, inputs, T) -> (B, outputs, T - kernel + 1), uniform in +-1/sqrt(kernel * inputs / groups)."""
    layer = _unfilled(nn.Conv1d(inputs, outputs, kernel, groups=groups, bias=bias, device="meta"))
    fill_default(layer.weight, layer.bias, generator)
    return layer


def gru(inputs: int, hidden: int, generator: Generator) -> nn.GRU:
    """A GRU, (B, T, inputs) -> (B, T, hidden), with weights and biases uniform in +-1/sqrt(hidden)."""
    layer = _unfilled(nn.GRU(inputs, hidden, batch_first=True, device="meta"))
    for value in layer.parameters():
        nn.init.uniform_(value, -1 / math.sqrt(hidden), 1 / math.sqrt(hidden), generator=generator)
    return layer


def embedding(rows: int, width: int, generator: Generator) -> nn.Embedding:
    """An embedding of int64 ids, (...) -> (..., width), with standard normal entries."""
    # Where no weight is given torch fills one, and for normal numbers on the meta device it imports its compiler.
    layer = nn.Embedding(rows, width, _weight=torch.empty(rows, width, device="cpu"))
    with torch.no_grad():
        layer.weight.normal_(generator=generator)
    return layer


def _unfilled(layer: Layer) -> Layer:
    """The layer with memory for its parameters. Unlike `to_empty`, this also works where tensors are only counted."""
    for name, parameter in list(layer.named_parameters()):
        setattr(layer, name, nn.Parameter(torch.empty(parameter.shape, dtype=parameter.dtype, device="cpu")))
    return layer


def fill_default(weight: Tensor, bias: Tensor | None, generator: Generator) -> None:
    """Fills weight, (outputs, inputs, ...), and bias, (outputs,), as torch does for linear and convolution layers."""
    # The bound is 1/sqrt(fan in) for both; torch computes the weight's through a = sqrt(5), which rounds differently.
    nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator)
    if bias is not None:
        bound = 1 / math.sqrt(weight[0].numel())
        nn.init.uniform_(bias, -bound, bound, generator=generator)
