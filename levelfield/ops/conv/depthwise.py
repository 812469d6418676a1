"""Computes a short causal convolution of every channel by itself, without an activation.

    y[t] = bias + sum over j < K of  weight[:, K - 1 - j] x[t - j]

torch's grouped convolution wants channels before steps, and its backward pass takes twice as long as adding up a few
shifted copies, which read x as it lies. On a CPU both passes are compiled loops (`levelfield.ops.compiled.depthwise`),
which read x once for all taps. `conv/short.py` adds SiLU.
Letters: B batch, T steps, C channels, K taps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from levelfield.ops.custom import custom_op


def causal_depthwise_conv(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The convolution of x, (B, T, C), with weight, (C, K), whose last tap is at lag 0, plus bias, (C,): (B, T, C).

    All are of one type. Steps before the first count as zero; to continue from earlier steps, put the last K - 1 of
    them before x and drop as many from y. Equal to `torch.nn.Conv1d` with padding K - 1 in front and a group for every
    channel.
    """
    return depthwise_conv(x, x.new_zeros(x.shape[0], weight.shape[1] - 1, x.shape[2]), weight.T, bias)


def shifted_conv(x: Tensor, before: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The convolution as a sum of shifted copies: x, (B, T, C) -> (B, T, C).

    before: (B, K - 1, C), the steps in front of x; weight: (K, C); bias: (C,).
    """
    joined, length = torch.cat([before, x], 1), x.shape[1]
    y = torch.addcmul(bias, joined[:, :length], weight[0])
    for tap in range(1, len(weight)):
        y.addcmul_(joined[:, tap : tap + length], weight[tap])
    return y


def shifted_conv_backward(
    x: Tensor, before: Tensor, weight: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, before, weight and bias, in their shapes, from that of `shifted_conv`, (B, T, C)."""
    joined, length, reach = torch.cat([before, x], 1), x.shape[1], before.shape[1]
    grad_joined, grad_weight = torch.zeros_like(joined), torch.zeros_like(weight)
    for tap, row in enumerate(weight):
        grad_joined[:, tap : tap + length].addcmul_(grad, row)
        grad_weight[tap] = (grad * joined[:, tap : tap + length]).sum((0, 1))
    return grad_joined[:, reach:].clone(), grad_joined[:, :reach].clone(), grad_weight, grad.sum((0, 1))


# Custom operators, because passes that count work run them on tensors without values, which no loop can read.
depthwise_conv = custom_op("depthwise_conv")(shifted_conv)
depthwise_conv_backward = custom_op("depthwise_conv_backward")(shifted_conv_backward)


@depthwise_conv.register_kernel("cpu")
def _compiled(x: Tensor, before: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    from levelfield.ops.compiled import depthwise, simd

    arrays = _arrays(x, before, weight, bias)
    y = torch.empty_like(arrays[0])
    simd.parallel_for(depthwise.forward, len(x), *arrays, y)
    return y.to(x.dtype)


@depthwise_conv_backward.register_kernel("cpu")
def _compiled_backward(
    x: Tensor, before: Tensor, weight: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from levelfield.ops.compiled import depthwise, simd

    arrays = _arrays(x, before, weight, grad)
    grad_x, grad_before = torch.empty_like(arrays[0]), torch.zeros_like(arrays[1])
    sums = torch.empty(len(x), len(weight) + 1, x.shape[2], dtype=torch.float64)
    simd.parallel_for(depthwise.backward, len(x), *arrays, grad_x, grad_before, sums)
    *grads, grad_bias = sums.sum(0).to(x.dtype)
    return grad_x.to(x.dtype), grad_before.to(x.dtype), torch.stack(grads), grad_bias.clone()


def _arrays(*tensors: Tensor) -> list[Tensor]:
    """The tensors as the loops take them, in their shapes: in float32 or wider, because NumPy has no bfloat16."""
    wide = torch.promote_types(tensors[0].dtype, torch.float32)
    return [x.to(wide).contiguous() for x in tensors]


@depthwise_conv.register_fake
def _(x: Tensor, before: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@depthwise_conv_backward.register_fake
def _(x: Tensor, before: Tensor, weight: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(before.shape), x.new_empty(weight.shape), x.new_empty(x.shape[2])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
    return depthwise_conv_backward(*ctx.saved_tensors, grad)


depthwise_conv.register_autograd(_backward, setup_context=_keep)
