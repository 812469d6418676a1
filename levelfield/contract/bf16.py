"""Checks that a layer's training step in bfloat16 agrees with the one in float32: its loss, and all its gradients.

    agrees_in_bf16(RGLRU(), width=16, causal=True, length=2048)     # UserError where a part has lost its digits

What may be expected follows from the type. Rounding the input and the parameters to bfloat16, once, and computing on in
float32 already changes the step; a layer that computes in bfloat16 what may be, and keeps in float32 what adds up or is
exponentiated, stays within a small multiple of that at every length. One that sums over steps in bfloat16 does not,
because the sum stops growing where a term is less than half of its last digit. Letters: B batch, T steps, D width.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.contract.rules import Subject, add_noise, has_gradient
from levelfield.spec import MixerConfig, UserError

BF16 = torch.bfloat16
ROUNDING = torch.finfo(BF16).eps / 2  # the largest relative error of one rounding: 1/256
FACTOR = 3.0  # products are rounded three times, input, weight and output, where the comparison rounds twice


class LosesDigits(UserError):
    """The error for a layer whose training step in bfloat16 runs, and is further off than rounding explains."""


class Step(NamedTuple):
    """A training step: its loss, a scalar, and the gradients of the input and of every parameter as one vector."""

    loss: Tensor
    gradients: Tensor


def agrees_in_bf16(config: MixerConfig, width: int, causal: bool, length: int, device: str = "cpu") -> None:
    """Raises LosesDigits where the loss or the gradients are further from those in float32 than the type explains.

    The loss is the mean squared distance to random targets, so that every step and channel has a gradient. Noise is
    added to the parameters, as last maps may start at zero; nothing is asked where it makes float32 overflow. Raises
    UserError where a step does not run.
    """
    config.check_direction(causal)
    layer, again = (config.build(width, causal=causal, layer=0, generator=_draws(0)).to(device).eval() for _ in "12")
    add_noise(layer, _draws(1))
    again.load_state_dict(layer.state_dict())
    x, target = (torch.randn(2, length, width, generator=_draws(seed)).to(device) for seed in (2, 3))
    subject = Subject(layer, config.label, x, x)
    plain, half = _step(subject, target, autocast=False), _step(subject, target, autocast=True)
    once_rounded = replace(subject, layer=_rounded(again), x=x.to(BF16).float())
    rounded = _step(once_rounded, target, autocast=False)
    for name, exact, ours, once in zip(Step._fields, plain, half, rounded, strict=True):
        scale = exact.norm()
        if not scale.isfinite():
            continue
        error, expected = (ours - exact).norm() / scale, (once - exact).norm() / scale + ROUNDING
        if not error <= FACTOR * expected:
            raise LosesDigits(
                f"{config.label} in bfloat16 has a {name} {error:.1%} off that in float32 at {length:,} steps, where "
                f"{FACTOR * expected:.1%} can be rounding: keep sums over steps, norms and exponentials in float32."
            )


def _draws(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def _step(subject: Subject, target: Tensor, autocast: bool) -> Step:
    """One forward and backward pass for the subject's input and a target: (B, T, D)."""
    x = subject.x.clone().requires_grad_()
    given = [x, *(p for p in subject.layer.parameters() if p.requires_grad)]
    with torch.autocast(x.device.type, BF16, enabled=autocast):
        y = subject(x)
    has_gradient(subject, y)
    loss = F.mse_loss(y.float(), target)
    gradients = torch.autograd.grad(loss, given, materialize_grads=True)
    real = (torch.view_as_real(g) if g.is_complex() else g for g in gradients)
    return Step(loss.detach(), torch.cat([g.flatten().double() for g in real]))


@torch.no_grad()
def _rounded(layer: nn.Module) -> nn.Module:
    """The layer, whose parameters are rounded to bfloat16, each in its own type."""
    for value in layer.parameters():
        parts = torch.view_as_real(value) if value.is_complex() else value
        parts.copy_(parts.to(BF16))
    return layer
