"""The bounded convolution: what it computes, and that it sees exactly as far as it says."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from levelfield.mixers.conv import Conv, ConvLayer
from levelfield.spec import UserError


def _layer(config: Conv, causal: bool, width: int = 8, seed: int = 0) -> ConvLayer:
    layer = config.build(width, causal=causal, layer=0, generator=torch.Generator().manual_seed(seed)).double()
    assert isinstance(layer, ConvLayer)
    return layer


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def convolve_naive(layer: ConvLayer, x: Tensor, causal: bool) -> Tensor:
    """Sum over the window, step by step and group by group. (T, D) -> (T, D)."""
    weight, bias = layer.conv.weight, layer.conv.bias
    assert bias is not None
    hidden, per_group, kernel = weight.shape
    groups = x.shape[1] // per_group
    back = kernel - 1 if causal else (kernel - 1) // 2
    rows = []
    for t in range(len(x)):
        row = []
        for h in range(hidden):
            first = h // (hidden // groups) * per_group
            total = bias[h]
            for j in range(kernel):
                if 0 <= t - back + j < len(x):
                    total = total + weight[h, :, j] @ x[t - back + j, first : first + per_group]
            row.append(total)
        rows.append(torch.stack(row).clamp(min=0))
    return torch.stack(rows) @ layer.out.weight.T + layer.out.bias


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("config", [Conv(5, 6), Conv(3, 8, groups=4), Conv(1, 4), Conv(9, 4)], ids=str)
def test_value_and_gradient_equal_the_written_out_sum(config: Conv, causal: bool) -> None:
    layer = _layer(config, causal)
    x = _normal(7, 8)
    results = []
    for run in (lambda z: layer(z[None])[0], lambda z: convolve_naive(layer, z, causal)):
        z = x.clone().requires_grad_()
        y = run(z)
        y.sin().sum().backward()
        results.append((y, z.grad))
    for fast, slow in zip(*results, strict=True):
        torch.testing.assert_close(fast, slow)


def test_padding_counts_as_nothing() -> None:
    layer, x = _layer(Conv(5, 16), False), _normal(1, 9, 8)
    mask = torch.arange(9)[None] < 6
    torch.testing.assert_close(layer(x, mask)[:, :6], layer(x[:, :6]))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel, depth", [(1, 3), (3, 1), (5, 3), (7, 2), (31, 2)])
def test_a_stack_sees_exactly_its_receptive_field(kernel: int, depth: int, causal: bool) -> None:
    """The gradient of one step with respect to every input: non-zero over the field, exactly zero beyond it."""
    config = Conv(kernel, hidden=32)
    stack = nn.Sequential(*(_layer(config, causal, seed=i) for i in range(depth)))
    field = 1 + depth * (config.receptive_field - 1)
    middle = field
    x = _normal(1, 2 * field + 1, 8).requires_grad_()
    stack(x)[0, middle].sum().backward()
    assert x.grad is not None
    seen = x.grad[0].abs().amax(-1).nonzero().flatten()
    reach = (field - 1, 0) if causal else (field // 2, field // 2)
    assert (middle - int(seen.min()), int(seen.max()) - middle) == reach
    assert len(seen) == field


def test_even_kernels_are_causal_only() -> None:
    with pytest.raises(UserError, match="3 or 5 instead of 4"):
        _layer(Conv(4, 8), False)
    layer, x = _layer(Conv(4, 8), True), _normal(6, 8)
    torch.testing.assert_close(layer(x[None])[0], convolve_naive(layer, x, True))


@pytest.mark.parametrize("config", [Conv(0), Conv(5, 8, groups=3), Conv(5, 9, groups=4), Conv(5, 8, groups=0)], ids=str)
def test_impossible_sizes_are_refused(config: Conv) -> None:
    with pytest.raises(UserError):
        _layer(config, True)


def test_parameters_grow_with_the_kernel_as_in_the_paper() -> None:
    """Gray CIFAR-10, six layers of 128 -> 256: from kernel 5 to 7 the model grows by 393,216 (1.22M to 1.61M)."""
    sizes = [sum(p.numel() for p in _layer(Conv(k), False, width=128).parameters()) for k in (5, 7)]
    assert 6 * (sizes[1] - sizes[0]) == 393_216
    assert sizes[0] == 128 * 256 * 5 + 256 + 256 * 128 + 128
