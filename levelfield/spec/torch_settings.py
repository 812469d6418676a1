"""Keeps the settings of torch that hold for a whole process from what a user's code makes of them.

    with kept():
        module = load("mine.py")                         # which may say torch.set_default_dtype(torch.float64)

What others compute after it would else be another thing, such as an arm trained in float64 under the name of one in
float32.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def kept() -> Iterator[list[str]]:
    """Has the settings be afterwards what they were before, in a process that has torch, and then lists the functions
    that set those which were changed, such as "torch.set_default_dtype"."""
    changed: list[str] = []
    before = [(read, write, read()) for read, write in _settings()]
    try:
        yield changed
    finally:
        for read, write, value in before:
            if read() != value:
                write(value)
                changed.append(f"torch.{write.__name__}")


def _settings() -> list[tuple[Callable[[], Any], Callable[[Any], object]]]:
    """Returns what reads and what writes each setting, of none in a process without torch."""
    torch = sys.modules.get("torch")
    if torch is None:
        return []
    return [
        (torch.get_default_dtype, torch.set_default_dtype),
        (torch.get_default_device, torch.set_default_device),
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        (torch.is_grad_enabled, torch.set_grad_enabled),
        (torch.get_num_threads, torch.set_num_threads),
        (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    ]
