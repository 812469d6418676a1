"""Trains a small linear model on the sequence itself, a step of gradient descent for every step: TTT-Linear.

    l_t(W, b) = |norm(k_t W + b) weight + bias - (v_t - k_t)|^2 / 2
    W_t = W_0 - pace_i sum_{j <= i} rate_j grad_W l_j(W_0, b_0),     b_t likewise
    y_t = q_t + norm(q_t W_t + b_t) weight + bias

Per head, where W_0 and b_0 are those at the start of the mini-batch of c steps whose i-th step is t (sun2024, sections
2.4 to 2.7). As all gradients of a mini-batch are taken at one point, none waits for another, and no W_t has to be made
(the dual form of section 2.5): with e_j = rate_j grad_z l_j, the gradient in the norm's input z_j = k_j W_0 + b_0,

    q_i W_i + b_i = q_i W_0 + b_0 - pace_i sum_{j <= i} (q_i . k_j + 1) e_j

    y, fast = train_and_read(Steps(q, k, v, rate), outer, fast)          # fast: W, b and the unfinished mini-batch
    more, fast = train_and_read(later, outer, fast)                      # goes on where it stopped

Letters: B batch, T steps, H heads, C channels of a head, c steps of a mini-batch, n steps of an unfinished one.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from levelfield.ops.opaque import opaque

EPS = 1e-6  # of the norm


class Steps(NamedTuple):
    """What the steps bring: queries, keys and values, (B, H, T, C) each, and their learning rates, (B, H, T)."""

    q: Tensor
    k: Tensor
    v: Tensor
    rate: Tensor


class Outer(NamedTuple):
    """What the inner model does not learn: the pace of a mini-batch's steps, (c,), and the norm, (H, 1, C) each."""

    pace: Tensor
    weight: Tensor
    bias: Tensor


class Fast(NamedTuple):
    """The inner model at the start of a mini-batch, and what the first n < c steps of it have brought so far."""

    weight: Tensor  # W: (B, H, C, C)
    bias: Tensor  # b: (B, H, 1, C)
    keys: Tensor  # k_j: (B, H, n, C)
    errors: Tensor  # e_j: (B, H, n, C)


@opaque
def train_and_read(steps: Steps, outer: Outer, fast: Fast) -> tuple[Tensor, Fast]:
    """The outputs, (B, H, T, C), and the inner model after them. All of one type, float32 or wider.

    Equal to `naive_train_and_read`, which takes gradients where this has their formula.
    """
    size, length, out = len(outer.pace), steps.q.shape[2], []
    sizes = [min(length, size - fast.keys.shape[2])]
    sizes += [min(size, length - at) for at in range(sizes[0], length, size)]
    for q, k, v, rate in zip(*(part.split(sizes, 2) for part in steps), strict=True):
        y, fast = _advanced(Steps(q, k, v, rate), outer, fast)
        out.append(y)
    return torch.cat(out, 2), fast


def naive_train_and_read(steps: Steps, outer: Outer, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`train_and_read` from a mini-batch's start, a step at a time, with gradients of the loss as torch finds them.

    weight: (B, H, C, C); bias: (B, H, 1, C). Returns the outputs, (B, H, T, C), and both after the last step.
    """
    size, out = len(outer.pace), []
    with torch.enable_grad():
        for first in range(0, steps.q.shape[2], size):
            start = [x if x.requires_grad else x.clone().requires_grad_() for x in (weight, bias)]
            sums = [torch.zeros_like(x) for x in start]
            for q, k, v, rate, pace in zip(*(x[:, :, first:].unbind(2) for x in steps), outer.pace, strict=False):
                query, key, value = (x.unsqueeze(2) for x in (q, k, v))
                off = _normed(key @ start[0] + start[1], outer) - (value - key)
                slopes = torch.autograd.grad(off.square().sum() / 2, start, create_graph=True)
                sums = [x + rate[..., None, None] * slope for x, slope in zip(sums, slopes, strict=True)]
                weight, bias = (x - pace * moved for x, moved in zip(start, sums, strict=True))
                out.append(query + _normed(query @ weight + bias, outer))
    return torch.cat(out, 2), weight, bias


def _normed(z: Tensor, outer: Outer) -> Tensor:
    """(B, H, T, C) -> the same shape."""
    return F.layer_norm(z, z.shape[-1:], eps=EPS) * outer.weight + outer.bias


def _advanced(steps: Steps, outer: Outer, fast: Fast) -> tuple[Tensor, Fast]:
    """`train_and_read` for steps that all belong to one mini-batch, whose first n are in `fast`."""
    z = steps.k @ fast.weight + fast.bias
    errors = steps.rate.unsqueeze(-1) * _slope(z, steps.v - steps.k, outer)
    past = fast.keys.shape[2]
    end = past + steps.k.shape[2]
    keys, errors = torch.cat([fast.keys, steps.k], 2), torch.cat([fast.errors, errors], 2)
    pairs = (steps.q @ keys.mT + 1).tril(past)
    moved = outer.pace[past:end, None] * (pairs @ errors)
    y = steps.q + _normed(steps.q @ fast.weight + fast.bias - moved, outer)
    if end < len(outer.pace):
        return y, Fast(fast.weight, fast.bias, keys, errors)
    last = outer.pace[-1]
    weight, bias = fast.weight - last * (keys.mT @ errors), fast.bias - last * errors.sum(2, keepdim=True)
    return y, Fast(weight, bias, keys[:, :, :0], errors[:, :, :0])


def _slope(z: Tensor, target: Tensor, outer: Outer) -> Tensor:
    """The gradient in z of |norm(z) weight + bias - target|^2 / 2: (B, H, T, C)."""
    centred = z - z.mean(-1, keepdim=True)
    scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + EPS)
    unit = centred * scale
    pull = (unit * outer.weight + outer.bias - target) * outer.weight
    along = (pull * unit).mean(-1, keepdim=True)
    return (pull - pull.mean(-1, keepdim=True) - unit * along) * scale
