"""Shares one run among several processes: a share of every batch each, one set of weights, one of them that writes.

    with joined(size=2, device=device) as group:        # in each of the processes that torchrun started
        execute(run, where, data_root, device, group=group)

Every process sees which examples form the batch and which of their steps are hidden, takes its share of them, and adds
its gradients to those of the others by torch's DistributedDataParallel. All then take the same optimizer step, so that
weights never differ and need not be sent. What depends on one machine's clock or disk, such as whether a run is
complete, the first process decides for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from levelfield.evaluate import SplitScores
from levelfield.model import Network
from levelfield.objectives import Trainable
from levelfield.spec import Input
from levelfield.train import Part, Plan, Rank, part_loss

T = TypeVar("T")

PATIENCE = timedelta(days=1)  # for the other processes; where one dies, torchrun ends the others at once
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Group:
    """The processes that execute a run, as one of them sees it; by default there is no other."""

    number: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes."""
        return self.number == 0

    def agreed(self, value: T) -> T:
        """Returns the first process's value, which JSON could hold, in every process."""
        if self.size == 1:
            return value
        told: list[Any] = [value]
        distributed.broadcast_object_list(told, src=0, device=CPU)
        return told[0]

    def any(self, value: bool) -> bool:
        """Returns in every process whether the value is true in one of them."""
        if self.size == 1:
            return value
        found = torch.tensor(int(value))
        distributed.all_reduce(found, op=distributed.ReduceOp.MAX)
        return bool(found)

    def alike(self, net: Network) -> Network:
        """Returns the network with the first process's buffers, such as the statistics of batch normalisation."""
        for table in net.buffers() if self.size > 1 else ():
            distributed.broadcast(table, src=0)
        return net

    def whole(self, own: SplitScores) -> SplitScores:
        """Returns the scores of a split, of which each process has scored some batches and left zeros elsewhere."""
        if self.size == 1:
            return own
        parts = torch.from_numpy(np.stack([own.values, own.weights, ~own.sound]))
        distributed.all_reduce(parts)
        values, weights, unsound = parts.numpy()
        return SplitScores(values, weights, unsound == 0)

    def rank(self, net: Network, objective: Trainable, spec: Input) -> Rank:
        """Returns what the training loop needs to know, for a phase that trains this network."""
        return Rank() if self.size == 1 else DataParallel.of(self, net, objective, spec)


ALONE = Group()


@contextmanager
def joined(size: int, device: torch.device) -> Iterator[Group]:
    """Joins the processes that torchrun has started, as its environment variables say, and leaves them in the end."""
    if size == 1:
        yield ALONE
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    distributed.init_process_group(backend, timeout=PATIENCE)
    yield Group(distributed.get_rank(), distributed.get_world_size())
    distributed.destroy_process_group()  # after an error the process ends, and waits for no other


class _Loss(nn.Module):
    """The loss of a part of a batch as a module, since DistributedDataParallel wraps what a module's `forward` does."""

    def __init__(self, net: Network, objective: Trainable, spec: Input) -> None:
        super().__init__()
        self.net, self.objective, self.spec = net, objective, spec

    def forward(self, part: Part) -> Tensor:
        return part_loss(self.net, part, self.objective, self.spec)


@dataclass(frozen=True)
class DataParallel(Rank):
    """One of several processes that train a network together.

    Gradients are added up and not averaged, because the loss of a part is its share of the mean over the whole batch.
    `find_unused_parameters` keeps the buckets, in which gradients are added up, as they were made: else the first step
    would decide on them again, and a run of three processes that continues would add in another order.
    """

    shared: DistributedDataParallel | None = None
    group: Group = ALONE

    @staticmethod
    def of(group: Group, net: Network, objective: Trainable, spec: Input) -> DataParallel:
        """Returns the process's rank in training. All processes call it, and must have the same weights."""
        shared = DistributedDataParallel(
            _Loss(net, objective, spec), find_unused_parameters=True, forward_sync_buffers=False
        )
        shared.register_comm_hook(None, lambda _, bucket: _added(bucket.buffer()))
        return DataParallel(group.number, group.size, shared, group)

    def add_gradients(self, net: Network, plan: Plan, part: Part, last: bool) -> Tensor:
        assert self.shared is not None
        with nullcontext() if last else self.shared.no_sync():
            loss = self.shared(part)
            loss.backward()
        return loss.detach()

    def total(self, loss: Tensor) -> Tensor:
        whole = loss.clone()
        distributed.all_reduce(whole)
        return whole

    def alike(self, net: Network) -> Network:
        return self.group.alike(net)


def _added(gradients: Tensor) -> Future[Tensor]:
    """Adds up gradients over all processes, while the backward pass goes on."""
    work = distributed.all_reduce(gradients, async_op=True)
    assert work is not None
    return work.get_future().then(lambda future: future.value()[0])
