"""Measures how fast a device multiplies, from which the time of a language model can be estimated.

operations(torch.device("cpu"), "float32")      # 9.6e10: multiplications and additions a second
"""

from __future__ import annotations

import time

import torch

from levelfield.pretrained.assemble import Precision

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
WIDTH = 1024
TIMES = 4  # of which the first also starts the device


def operations(device: torch.device, precision: Precision) -> float:
    """Returns the operations a second of a product of two matrices (WIDTH, WIDTH), the best of TIMES."""
    matrix = torch.ones(WIDTH, WIDTH, dtype=DTYPES[precision], device=device)
    return 2 * WIDTH**3 / min(_seconds(matrix) for _ in range(TIMES))


def _seconds(matrix: torch.Tensor) -> float:
    began = time.perf_counter()
    (matrix @ matrix)[0, 0].item()  # waits for the device
    return time.perf_counter() - began
