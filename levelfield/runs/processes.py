"""Shares one run among several processes: a share of every batch each, one set of weights, one of them that writes.

    with joined(run.numerics, device) as group:         # in each of the processes that torchrun started
        execute(run, where, data_root, device, group=group)

Every process sees which examples form the batch and which of their steps are hidden, takes its share of them, and adds
its gradients to those of the others (`parallel.py`; `sharded.py` where each holds a share of the parameters, too). What
depends on one machine's clock or disk, such as whether a run is complete, the first process decides for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, distributed

from levelfield.evaluate import SplitScores
from levelfield.model import Network
from levelfield.objectives import Trainable
from levelfield.runs.parallel import DataParallel, alike
from levelfield.spec import Input, Numerics
from levelfield.train import Rank

T = TypeVar("T")

PATIENCE = timedelta(days=1)  # for the other processes; where one dies, torchrun ends the others at once
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Group:
    """The processes that execute a run, as one of them sees it; by default there is no other.

    shards: whether each holds only a share of the parameters that are trained.
    """

    number: int = 0
    size: int = 1
    shards: bool = False

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

    def any(self, *values: bool) -> Sequence[bool]:
        """Returns in every process of each value whether it is true in one of them."""
        if self.size == 1:
            return values
        found = torch.tensor(values, dtype=torch.uint8)
        distributed.all_reduce(found, op=distributed.ReduceOp.MAX)
        return [bool(each) for each in found]

    def alike(self, net: Network) -> Network:
        """Returns the network with the first process's buffers, such as the statistics of batch normalisation."""
        return net if self.size == 1 else alike(net)

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
        if self.size == 1:
            return Rank()
        if not self.shards:
            return DataParallel.of(net, objective, spec)
        from levelfield.runs.sharded import Sharded

        return Sharded.of(net, objective, spec)

    def gathered(self, tensors: Mapping[str, Tensor], *, everywhere: bool = False) -> Mapping[str, Tensor]:
        """Returns whole tensors from the shares of them that the processes hold, which all call this.

        They are complete in the first process, and in the others where they are wanted `everywhere`.
        """
        if not self.shards:
            return tensors
        from levelfield.runs.sharded import whole

        return whole(tensors, here=self.leads or everywhere)

    def shares(self, tensors: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Returns what this process holds of whole tensors, if that is what it holds of those of their names."""
        if not self.shards:
            return tensors
        from levelfield.runs.sharded import shares

        return shares(tensors, like)


ALONE = Group()


@contextmanager
def joined(numerics: Numerics, device: torch.device) -> Iterator[Group]:
    """Joins the processes that torchrun has started, as its environment variables say, and leaves them in the end."""
    if numerics.nproc == 1:
        yield ALONE
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    distributed.init_process_group(backend, timeout=PATIENCE)
    yield Group(distributed.get_rank(), distributed.get_world_size(), numerics.shard)
    distributed.destroy_process_group()  # after an error the process ends, and waits for no other
