"""Keeps the settings of torch that hold for a whole process from what a user's code makes of them.

    with kept():
        module = load("mine.py")                         # which may say torch.set_default_dtype(torch.float64)

What others compute after it would else be another thing, such as an arm trained in float64 under the name of one in
float32.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept() -> Iterator[None]:
    """Has the settings be afterwards what they were before, in a process that has torch."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    settings = (
        (torch.get_default_dtype, torch.set_default_dtype),
        (torch.get_default_device, torch.set_default_device),
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        (torch.is_grad_enabled, torch.set_grad_enabled),
        (torch.get_num_threads, torch.set_num_threads),
        (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    )
    before = [read() for read, _ in settings]
    try:
        yield
    finally:
        for (read, write), value in zip(settings, before, strict=True):
            if read() != value:
                write(value)
