"""Randomness by name: every draw comes from a generator made for one purpose.

generator(seed, "mask", step)       the same numbers for the same arguments, unrelated ones for any other
with seeded(seed, "dropout", step): ...
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from levelfield.spec import derive_seed


def generator(seed: int, *purpose: object) -> torch.Generator:
    """A CPU generator for one purpose."""
    return torch.Generator().manual_seed(derive_seed(seed, *purpose))


@contextmanager
def seeded(seed: int, *purpose: object, device: torch.device | None = None) -> Iterator[None]:
    """A scope in which torch's global generators are seeded for one purpose; their former state comes back after it.

    For code that can draw from nothing else: the initialisers of torch.nn, and dropout. Only the CPU's generator is
    touched, and that of `device` where it is a GPU.
    """
    gpu = [device] if device is not None and device.type == "cuda" else []
    value = derive_seed(seed, *purpose)
    with torch.random.fork_rng(devices=gpu):
        torch.default_generator.manual_seed(value)
        for one in gpu:
            with torch.cuda.device(one):
                torch.cuda.manual_seed(value)
        yield
