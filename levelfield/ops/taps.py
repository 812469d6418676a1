"""A short causal convolution of every channel by itself, and nothing else (`shortconv` adds SiLU).

    y[t] = bias + sum over j < K of  weight[:, K - 1 - j] x[t - j]

torch's grouped convolution wants channels before steps, and its backward takes twice as long as adding up a few
shifted copies, which also reads x as it lies. Letters: B batch, T steps, C channels, K taps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def causal_taps(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x: (B, T, C), weight: (C, K) with its last tap at lag 0, bias: (C,), all of one type -> (B, T, C).

    Steps before the first count as zero. To go on from earlier steps, put the last K - 1 of them before x and cut as
    many off y. Equal to `torch.nn.Conv1d` with padding K - 1 in front and a group for every channel.
    """
    return _Taps.apply(x, weight, bias)  # pyright: ignore[reportReturnType]


class _Taps(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        y = torch.addcmul(bias, x, weight[:, -1])
        for lag, tap in _lags(x, weight):
            y[:, lag:].addcmul_(x[:, :-lag], tap)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (grad,) = grads
        x, weight = ctx.saved_tensors
        grad_x, grad_weight = grad * weight[:, -1], torch.zeros_like(weight)
        grad_weight[:, -1] = (grad * x).sum((0, 1))
        for lag, tap in _lags(x, weight):
            grad_x[:, :-lag].addcmul_(grad[:, lag:], tap)
            grad_weight[:, -1 - lag] = (grad[:, lag:] * x[:, :-lag]).sum((0, 1))
        return grad_x, grad_weight, grad.sum((0, 1))


def _lags(x: Tensor, weight: Tensor) -> list[tuple[int, Tensor]]:
    return [(lag, weight[:, -1 - lag]) for lag in range(1, min(weight.shape[1], x.shape[1]))]
