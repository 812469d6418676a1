"""Trains a network of which each of several processes holds a share, by torch's `fully_shard` (FSDP2).

    rank = Sharded.of(net, objective, spec)     # from here on the parameters are shares: build the optimizer after it
    whole(net.state_dict(), here=True)          # tensors as in one process, for files and for other networks
    shares(tensors, like=net.state_dict())      # and back

Encoder, blocks, norm and heads are each split along the first axis of every parameter. Before one of them computes, in
either direction, its parameters are gathered from all processes, and freed after it; its gradients are added up over
the processes, each of which keeps those of its share. The optimizer sees shares alone. Checkpoints and weights are
stored whole, so their files are those of any other run; torch's own sharded files would be pickles.

This module is imported where something is sharded, since what it needs of torch takes a second to load.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from levelfield.model import Network
from levelfield.objectives import Trainable
from levelfield.objectives.base import BatchPart
from levelfield.runs.parallel import Loss, added, alike
from levelfield.spec import Input, UserError
from levelfield.train import Plan, Rank, sound


@dataclass(frozen=True)
class Sharded(Rank):
    """One of several processes that train a network together, each of which holds a share of every parameter."""

    loss: Loss | None = None

    @staticmethod
    def of(net: Network, objective: Trainable, spec: Input) -> Sharded:
        """Shards the network in place, and returns the process's rank in training. All processes call it, and must have
        the same weights. Raises UserError for parameters that torch cannot shard."""
        _check(net)
        number, size = distributed.get_rank(), distributed.get_world_size()
        mesh = init_device_mesh(next(net.parameters()).device.type, (size,))
        loss = Loss(net, objective, spec)
        # It would warn of heads whose outputs are changed in place, which no loss does.
        warnings.filterwarnings("ignore", ".* returned a view tensor")
        for module in (*_parts(net), loss):  # the last one holds no parameter itself: it joins the others in a step
            wrapped = fully_shard(module, mesh=mesh, reshard_after_forward=True)
            wrapped.set_gradient_divide_factor(1.0)  # gradients are added up and not averaged, as by `DataParallel`
            wrapped.set_force_sum_reduction_for_comms(True)
        return Sharded(number, size, loss)

    def add_gradients(self, net: Network, plan: Plan, part: BatchPart, last: bool) -> Tensor:
        """Adds those of a part. They are added up over all processes after every part, for shares take less memory."""
        assert self.loss is not None
        losses = self.loss(part)
        losses.sum().backward()
        return losses.detach()

    def total(self, losses: Tensor, norm: Tensor) -> Tensor:
        assert isinstance(norm, DTensor)
        return super().total(added(losses), norm.full_tensor())

    def sound(self, net: Network) -> bool:
        own = sound((_own(parameter) for parameter in net.parameters()), alike(net).buffers())
        return not added(torch.tensor(float(not own), device=next(net.parameters()).device))


def _parts(net: Network) -> Iterator[nn.Module]:
    """Yields the modules that hold all parameters of a network and are called one after the other."""
    yield from (net.encoder, *net.blocks, *(() if net.norm is None else (net.norm,)), *net.heads.values())


def _check(net: Network) -> None:
    """Raises UserError for what `fully_shard` cannot take, which it would say in words of its own."""
    parts: dict[nn.Parameter, list[str]] = {}
    for name, parameter in net.named_parameters(remove_duplicate=False):
        part = name.split(".")[:2]
        shared = parts.setdefault(parameter, part) != part
        why = "belongs to several blocks" if shared else "is a single number" if parameter.ndim == 0 else ""
        why = why if parameter.dtype == torch.float32 else f"is {parameter.dtype}"
        if why:
            raise UserError(f"Parameter {name} of {net.model.label} {why} and cannot be sharded: leave shard out.")


def _own(tensor: Tensor) -> Tensor:
    """Returns the share of this process."""
    assert isinstance(tensor, DTensor)
    return tensor.to_local()


def whole(tensors: Mapping[str, Tensor], *, here: bool) -> dict[str, Tensor]:
    """Returns tensors on the CPU, those that are shares gathered from all processes, which all call this.

    here: whether this process wants them; else it gives its shares, and gets nothing.
    """
    found = {}
    for name, tensor in tensors.items():
        full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if here:
            found[name] = full.cpu()
    return found


def shares(tensors: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns this process's shares of whole tensors, where those of their names are shares and of the same shape."""
    return {name: _share(tensor, like[name]) for name, tensor in tensors.items()}


def _share(tensor: Tensor, like: Tensor) -> Tensor:
    if not isinstance(like, DTensor) or tensor.shape != like.shape:
        return tensor
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
