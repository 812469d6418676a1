"""Keeps the settings of torch that hold for a whole process from what a user's code makes of them.

    with kept():
        module = load("mine.py")                         # which may say torch.set_default_dtype(torch.float64)

What others compute after it would else be another thing, such as an arm trained in float64 under the name of one in
float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (  # how each is read and written
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_default_device, torch.set_default_device),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
)


@contextmanager
def kept() -> Iterator[None]:
    """Has the settings be afterwards what they were before."""
    before = [read() for read, _ in _SETTINGS]
    try:
        yield
    finally:
        for (read, write), value in zip(_SETTINGS, before, strict=True):
            if read() != value:
                write(value)
