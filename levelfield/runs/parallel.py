"""Trains a network in several processes, each with its share of every batch: all that a step does between them.

    DataParallel.of(net, objective, spec)       # a Rank for the training loop; every process holds the whole network

Every process adds its gradients to those of the others by torch's DistributedDataParallel. All then take the same
optimizer step, so that weights never differ and need not be sent. `sharded.py` holds a part of the network in each.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

from torch import Tensor, distributed, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from levelfield.model import Network
from levelfield.objectives import Trainable
from levelfield.objectives.base import BatchPart
from levelfield.spec import Input
from levelfield.train import Plan, Rank, part_losses, sound


class Loss(nn.Module):
    """The losses of a part of a batch as a module, since torch's wrappers act where a module's `forward` is called."""

    def __init__(self, net: Network, objective: Trainable, spec: Input) -> None:
        super().__init__()
        self.net, self.objective, self.spec = net, objective, spec

    def forward(self, part: BatchPart) -> Tensor:
        return part_losses(self.net, part, self.objective, self.spec)


def alike(net: Network) -> Network:
    """Returns the network with the first process's buffers, as each counts the statistics of its own batches."""
    for table in net.buffers():
        distributed.broadcast(table, src=0)
    return net


def added(own: Tensor) -> Tensor:
    """Returns the sum over all processes of a tensor of one shape in all."""
    whole = own.clone()
    distributed.all_reduce(whole)
    return whole


@dataclass(frozen=True)
class DataParallel(Rank):
    """One of several processes that train a network together, each of which holds all of it.

    Gradients are added up and not averaged, because the loss of a part is its share of the mean over the whole batch.
    `find_unused_parameters` keeps the buckets, in which gradients are added up, as they were made: else the first step
    would decide on them again, and a run of three processes that continues would add in another order.
    """

    shared: DistributedDataParallel | None = None

    @staticmethod
    def of(net: Network, objective: Trainable, spec: Input) -> DataParallel:
        """Returns the process's rank in training. All processes call it, and must have the same weights."""
        shared = DistributedDataParallel(
            Loss(net, objective, spec), find_unused_parameters=True, forward_sync_buffers=False
        )
        shared.register_comm_hook(None, lambda _, bucket: _added(bucket.buffer()))
        return DataParallel(distributed.get_rank(), distributed.get_world_size(), shared)

    def add_gradients(self, net: Network, plan: Plan, part: BatchPart, last: bool) -> Tensor:
        assert self.shared is not None
        with nullcontext() if last else self.shared.no_sync():
            losses = self.shared(part)
            losses.sum().backward()
        return losses.detach()

    def total(self, losses: Tensor, norm: Tensor) -> Tensor:
        return super().total(added(losses), norm)

    def sound(self, net: Network) -> bool:
        return sound(net.parameters(), alike(net).buffers())


def _added(gradients: Tensor) -> Future[Tensor]:
    """Adds up gradients over all processes, while the backward pass goes on."""
    work = distributed.all_reduce(gradients, async_op=True)
    assert work is not None
    return work.get_future().then(lambda future: future.value()[0])
