"""Tries the model of a run on a small made-up batch, and measures what it keeps for the backward pass.

    net = network(shape, device)
    part = made_up(shape, device, length=64, count=4)
    held(net, shape, device).of(run)     # bytes of the run's own batches and lengths

A pass keeps some tensors once, such as kernels that are made from parameters, and others for every sequence of a batch.
Passes of two batches tell the ones from the others; both are taken to grow with the length.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from levelfield.data.batches import SplitOnDevice
from levelfield.engine import plan
from levelfield.model import Network
from levelfield.objectives import Trainable, default_objective
from levelfield.objectives.base import BatchPart
from levelfield.rng import generator
from levelfield.run import build_net
from levelfield.runs.ledger import undrawn
from levelfield.spec import Model, Protocol, Run, Task
from levelfield.train import part_losses

FEW = (2, 4)  # examples of the two batches
LEAST, MOST = 32, 128  # steps of their sequences, where these are no shorter
WORK = 5e8  # parameters times steps of one sequence of them, but for LEAST


@dataclass(frozen=True)
class Shape:
    """What the cost of a pass depends on; arms that differ in other things share a measurement."""

    task: Task
    model: Model
    objective: Trainable
    batch: int

    @staticmethod
    def of(run: Run) -> Shape:
        phases = run.protocol.phases
        objective = phases[-1].objective if phases else default_objective(run.task)
        assert isinstance(objective, Trainable)
        return Shape(run.task, run.model, objective, max((phase.recipe.batch for phase in phases), default=1))


@dataclass(frozen=True)
class Kept:
    """Bytes kept for the backward pass for each step of sequences: once for a whole batch, as of a kernel that is made
    from parameters, and for each sequence of it."""

    once: float
    each: float

    def __mul__(self, by: float) -> Kept:
        return Kept(self.once * by, self.each * by)

    def of(self, run: Run) -> float:
        """Returns the bytes that a process keeps at a time: of one part of a batch of a run, and of blocks that are
        recomputed their inputs and what one of them keeps."""
        once, each, depth = self.once, self.each, run.model.depth
        if run.numerics.recompute:
            once, each = once / depth, min(each, each / depth + 4.0 * run.model.width * depth)
        sequences = Shape.of(run).batch * run.task.documents / run.numerics.parts
        return (once + each * sequences) * run.task.max_length


def network(shape: Shape, device: torch.device) -> Network:
    """Builds the network of a run. Its weights are zeros, as random numbers would take longer than a pass; those of
    unknown code are what it makes them."""
    with undrawn(shape.model):
        net = build_net(Run(shape.task, shape.model, Protocol("", ()), seed=0), shape.objective)
    if not any(mixer.opaque for mixer in shape.model.mixers):
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.zero_()
    return net.train().to(device)


def made_up(shape: Shape, device: torch.device, length: int, count: int) -> BatchPart:
    """Makes up a batch, and what the network sees of it."""
    batch = SplitOnDevice(plan.example(shape.task, length), device).gather(torch.zeros(count, dtype=torch.long))
    return BatchPart(batch, shape.objective.model_input(batch, shape.task.input, generator(0, "forecast")))


def held(net: Network, shape: Shape, device: torch.device) -> Kept:
    """Returns what a network keeps for the backward pass, from forward passes of two batches."""
    longest = max(LEAST, min(MOST, int(WORK / max(1, sum(p.numel() for p in net.parameters())))))
    length = min(shape.task.max_length, longest)
    few, more = (_bytes(net, made_up(shape, device, length, count), shape) / length for count in FEW)
    less, most = (count * shape.task.documents for count in FEW)
    each = (more - few) / (most - less)
    return Kept(max(0.0, few - less * each), each)


def _bytes(net: Network, part: BatchPart, shape: Shape) -> int:
    """Returns how many bytes a forward pass keeps beside parameters."""
    own = {p.untyped_storage().data_ptr() for p in net.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(value: Tensor) -> Tensor:
        if (at := value.untyped_storage().data_ptr()) not in own:
            kept[at] = value
        return value

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        part_losses(net, part, shape.objective, shape.task.input).sum()
    return sum(value.untyped_storage().nbytes() for value in kept.values())
