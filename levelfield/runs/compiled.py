"""Compiles blocks, and compares them with the plain ones before a phase trains: torch's compiler may be wrong.

    compile_blocks(net, ragged=True)
    note = check_compiled(state, plan, split, seed)      # of the ledger; or one sentence where their gradients differ

It computes three gradients of the part of a batch that this process trains on next: of the plain blocks; of these with
other random numbers and with weights that are rounded once more; and of the compiled blocks, whose kernels training
then goes on with. The second one tells how far a gradient may be from the first without anything being wrong: far where
dropout draws, for which a compiler draws other numbers, or near the end of training in bf16.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from levelfield.data.batches import SplitOnDevice, batches_of
from levelfield.model import Network
from levelfield.objectives.base import BatchPart
from levelfield.ops.opaque import hide
from levelfield.rng import generator, seeded
from levelfield.spec.errors import UserError
from levelfield.spec.numerics import Precision
from levelfield.train import Plan, State, copied, part_losses, parts_of

OFF = 0.02  # how far a gradient of compiled blocks may always be from that of the plain ones, in parts of its norm
TIMES = 4  # as far as draws and rounding take that of the plain ones, it may be too
ROUNDING: Mapping[Precision, float] = {"float32": 2**-23, "tf32": 2**-11, "bf16": 2**-8}  # of a weight, in parts of it


def compile_blocks(net: Network, *, ragged: bool) -> None:
    """Has torch compile each block for training, if the numerics ask for it; evaluation goes on without.

    ragged: whether batches differ in shape, so that kernels must take any.
    """
    if net.numerics.compile:
        hide()
        torch.compiler.reset()  # kernels of earlier runs in this process count towards its limit
        net.compiled = tuple(torch.compile(block, dynamic=ragged) for block in net.blocks)


def check_compiled(state: State, plan: Plan, split: SplitOnDevice, seed: int) -> str:
    """Returns a sentence on how far the gradient of compiled blocks is from that of the plain ones.

    Leaves weights, buffers and generators as they are. Raises UserError where it is farther than OFF and than TIMES as
    far as draws and rounding explain. Where they explain anything, nothing is compared, which the sentence says.
    """
    batch = split.gather(batches_of(seed, split.examples, plan.recipe).order(state.step))
    part = parts_of(batch, plan, generator(seed, "mask", state.step), [1.0] * len(plan.objective.parts))[0]
    net = state.net.train()
    compiled, net.compiled = net.compiled, ()
    try:
        plain, other = _gradient(state, plan, part, 0), _rounded(state, plan, part)
    finally:
        net.compiled = compiled
    if not plain.isfinite().all():
        return "Compiled blocks were not compared with the plain ones, whose gradient is not finite at the start."
    explained = TIMES * _apart(other, plain)
    if explained >= 1:
        return "Compiled blocks were not compared with the plain ones, whose gradient depends on draws or rounding."
    apart = _apart(_gradient(state, plan, part, 0), plain)
    if apart > max(OFF, explained):
        raise UserError(
            "Torch's compiler is wrong about this model: the gradient of its blocks is off by "
            f"{apart:.2g} of its norm. Leave compile out."
        )
    return f"Compiled blocks had the gradient of the plain ones at the start, to {apart:.0e} of its norm."


def _rounded(state: State, plan: Plan, part: BatchPart) -> Tensor:
    """Returns the gradient, (N,), with other random numbers, where each weight is off by one rounding, up or down."""
    before, draws, size = copied(state.net), generator(0, "rounding"), ROUNDING[state.net.numerics.precision]
    try:
        with torch.no_grad():
            for weight in state.net.parameters():
                up = torch.randint(2, weight.shape, generator=draws).to(weight.device)
                weight.mul_(1 + size * (2 * up - 1))
        return _gradient(state, plan, part, 1)
    finally:
        state.net.load_state_dict(before)


def _gradient(state: State, plan: Plan, part: BatchPart, draw: int) -> Tensor:
    """Returns the gradient of the summed losses with respect to all N weights, one behind another, (N,)."""
    weights = [weight for weight in state.net.parameters() if weight.requires_grad]
    buffers = [(buffer, buffer.clone()) for buffer in state.net.buffers()]
    with seeded(draw, "compiled", device=part.batch.raw.device):
        loss = part_losses(state.net, part, plan.objective, plan.input).sum()
        found = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
    for buffer, before in buffers:
        buffer.copy_(before)
    return torch.cat([torch.view_as_real(each).flatten() if each.is_complex() else each.flatten() for each in found])


def _apart(gradient: Tensor, other: Tensor) -> float:
    """Returns the norm of the difference in parts of the other's norm; infinite where it is not finite."""
    apart = float((gradient - other).norm() / other.norm().clamp_min(torch.finfo(other.dtype).tiny))
    return apart if math.isfinite(apart) else math.inf
