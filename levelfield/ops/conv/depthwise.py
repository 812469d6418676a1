"""A short causal convolution of every channel by itself, and nothing else (`shortconv` adds SiLU).

    y[t] = bias + sum over j < K of  weight[:, K - 1 - j] x[t - j]

torch's grouped convolution wants channels before steps, and its backward takes twice as long as adding up a few
shifted copies, which also reads x as it lies. On a CPU both passes are compiled loops
(`levelfield.ops.compiled.depthwise`), which read x once for all taps. Letters: B batch, T steps, C channels, K taps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def causal_taps(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x: (B, T, C), weight: (C, K) with its last tap at lag 0, bias: (C,), all of one type -> (B, T, C).

    Steps before the first count as zero. To go on from earlier steps, put the last K - 1 of them before x and cut as
    many off y. Equal to `torch.nn.Conv1d` with padding K - 1 in front and a group for every channel.
    """
    return taps(x, x.new_zeros(x.shape[0], weight.shape[1] - 1, x.shape[2]), weight.T, bias)


def shifted_taps(x: Tensor, before: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x: (B, T, C), before: (B, K - 1, C), the steps in front of x, weight: (K, C), bias: (C,) -> (B, T, C)."""
    joined, length = torch.cat([before, x], 1), x.shape[1]
    y = torch.addcmul(bias, joined[:, :length], weight[0])
    for tap in range(1, len(weight)):
        y.addcmul_(joined[:, tap : tap + length], weight[tap])
    return y


def shifted_pull(x: Tensor, before: Tensor, weight: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, before, weight and bias from that of `shifted_taps`."""
    joined, length, reach = torch.cat([before, x], 1), x.shape[1], before.shape[1]
    grad_joined, grad_weight = torch.zeros_like(joined), torch.zeros_like(weight)
    for tap, row in enumerate(weight):
        grad_joined[:, tap : tap + length].addcmul_(grad, row)
        grad_weight[tap] = (grad * joined[:, tap : tap + length]).sum((0, 1))
    return grad_joined[:, reach:].clone(), grad_joined[:, :reach].clone(), grad_weight, grad.sum((0, 1))


# Operators of our own, because passes that count work run them on tensors without values, which no loop can read.
taps = torch.library.custom_op("levelfield::taps", mutates_args=())(shifted_taps)
pull = torch.library.custom_op("levelfield::taps_backward", mutates_args=())(shifted_pull)


@taps.register_kernel("cpu")
def _taps_compiled(x: Tensor, before: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    from levelfield.ops.compiled import depthwise, simd

    arrays = _arrays(x, before, weight, bias)
    y = torch.empty_like(arrays[0])
    simd.spread(depthwise.run, len(x), *arrays, y)
    return y.to(x.dtype)


@pull.register_kernel("cpu")
def _pull_compiled(x: Tensor, before: Tensor, weight: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from levelfield.ops.compiled import depthwise, simd

    arrays = _arrays(x, before, weight, grad)
    pulled = torch.empty_like(arrays[0]), torch.zeros_like(arrays[1])
    sums = torch.empty(len(x), len(weight) + 1, x.shape[2], dtype=torch.float64)
    simd.spread(depthwise.pull, len(x), *arrays, *pulled, sums)
    *grads, grad_bias = sums.sum(0).to(x.dtype)
    return pulled[0].to(x.dtype), pulled[1].to(x.dtype), torch.stack(grads), grad_bias.clone()


def _arrays(*tensors: Tensor) -> list[Tensor]:
    """As the loops take them: never in 16 bits, of which numpy lacks one kind."""
    wide = torch.promote_types(tensors[0].dtype, torch.float32)
    return [x.to(wide).contiguous() for x in tensors]


@taps.register_fake
def _(x: Tensor, before: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@pull.register_fake
def _(x: Tensor, before: Tensor, weight: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(before.shape), x.new_empty(weight.shape), x.new_empty(x.shape[2])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
    return pull(*ctx.saved_tensors, grad)


taps.register_autograd(_backward, setup_context=_keep)
