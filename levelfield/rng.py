"""Gives random numbers by name: every draw comes from a generator that is made for one purpose.

So what is drawn for one purpose never depends on what was drawn before for another, and a run that continues draws what
it would have drawn.

    generator(seed, "mask", step)       # the same numbers for the same arguments, unrelated ones for any others
    with seeded(seed, "dropout", step): ...
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from levelfield.spec.identity import derive_seed


def generator(seed: int, *purpose: object) -> torch.Generator:
    """Returns a CPU generator for one purpose."""
    return torch.Generator().manual_seed(derive_seed(seed, *purpose))


@contextmanager
def seeded(seed: int, *purpose: object, device: torch.device | None = None) -> Iterator[None]:
    """Opens a scope in which torch's global generators are seeded for one purpose, and restores their state after it.

    It is for code that can draw from nothing else: the initialisers of torch.nn, and dropout. Only the CPU's generator
    is touched, and that of `device` where it is a GPU.
    """
    gpu = [device] if device is not None and device.type == "cuda" else []
    value = derive_seed(seed, *purpose)
    with torch.random.fork_rng(devices=gpu):
        torch.default_generator.manual_seed(value)
        for one in gpu:
            with torch.cuda.device(one):
                torch.cuda.manual_seed(value)
        yield
