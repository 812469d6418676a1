"""Runs that are slow enough to be killed in the middle, and waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from levelfield.data.batches import Batch, SplitOnDevice
from levelfield.runs import journal


def slow_down(pace: float) -> None:
    """Makes runs of this process take `pace` seconds a step, with a checkpoint after every third."""
    torch.set_num_threads(1)
    gather = SplitOnDevice.gather

    def slow(self: SplitOnDevice, indices: torch.Tensor) -> Batch:
        time.sleep(pace)
        return gather(self, indices)

    journal.SAVE_EVERY_S, SplitOnDevice.gather = 3 * pace, slow


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
