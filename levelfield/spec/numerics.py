"""Defines how a run computes: its precision, its kernels, what it trades for memory, and over how many processes.

    Numerics()                                          # float32, as torch executes it operator by operator
    Numerics(precision="bf16", compile=True)            # products in bfloat16, blocks compiled
    Numerics(accumulate=4, recompute=True)              # the same batch in a fraction of the memory
    Numerics(nproc=2)                                   # half of every batch in each of two processes
    Numerics(nproc=2, shard=True)                       # and half of the parameters and moments, too

All of it changes at least the last digits of what is measured, so it is part of a run's id. At its default, which is
how every run was executed before there was a choice, it is left out of the id.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from levelfield.spec.errors import UserError, check_literals

Precision = Literal["float32", "tf32", "bf16"]


@dataclass(frozen=True)
class Numerics:
    """How the products, the blocks and the batches of a run are computed.

    Raises UserError for an unknown precision, and below one part or one process.

    precision: float32; tf32, whose matrix products read 10 bits of each factor's fraction, on NVIDIA GPUs only; or
    bf16, whose products and activations are bfloat16 by torch's autocast. Parameters, optimizer state, losses, norms,
    recurrences and the statistics of softmax are float32 in each. compile: whether torch.compile makes kernels of each
    block for training; scores are computed by the plain operators. accumulate: into how many parts each batch is
    split, whose gradients are added up before a step. recompute: whether a block's activations are computed again in
    the backward pass instead of being kept (activation checkpointing). nproc: how many processes train the run
    together, each on its share of every batch (the world size). shard: whether each of these processes holds a share of
    the parameters, gradients and optimizer state, too, and gathers those of a block while it computes it. by_length:
    whether examples of different lengths in a batch are computed one length after the other in training, so that
    nothing is padded there; their gradients are added up as those of parts are.
    """

    precision: Precision = "float32"
    compile: bool = False
    accumulate: int = 1
    recompute: bool = False
    nproc: int = field(default=1, metadata={"added": True})
    shard: bool = field(default=False, metadata={"added": True})
    by_length: bool = field(default=False, metadata={"added": True})

    def __post_init__(self) -> None:
        check_literals(self)
        if self.accumulate < 1:
            raise UserError(f"A batch cannot be split into accumulate={self.accumulate} parts: give 1 or more.")
        if self.nproc < 1:
            raise UserError(f"A run cannot be trained by nproc={self.nproc} processes: give 1 or more.")

    @property
    def parts(self) -> int:
        """Into how many parts a batch is split, those of all processes together."""
        return self.accumulate * self.nproc

    @property
    def changes(self) -> dict[str, Any]:
        """The fields that are not at their default, by name."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}

    def over(self, other: Numerics) -> Numerics:
        """Returns `other` with the fields that differ from their default here."""
        return replace(other, **self.changes)

    def __str__(self) -> str:
        """Returns a short name: "float32", or "bf16-compile-accumulate4"; names of studies end in it."""
        words = {k: k if v is True else f"{k}{v}" for k, v in self.changes.items() if k != "precision"}
        return "-".join((self.precision, *words.values()))


PLAIN = Numerics()
