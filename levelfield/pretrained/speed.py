"""Measures how fast a device multiplies, from which the time of a language model can be estimated.

operations(torch.device("cpu"), "float32")      # 9.6e10: multiplications and additions a second

A GPU has more to multiply than a CPU, and several products before the one wait for it, so that neither its start nor
the wait is a large part of what is timed.
"""

from __future__ import annotations

import time

import torch

from levelfield.pretrained.assemble import Precision

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
CPU_SIZES, GPU_SIZES = (1024, 1), (8192, 8)  # width of a matrix, products before one wait
TIMES = 4  # of which the first also starts the device


def operations(device: torch.device, precision: Precision) -> float:
    """Returns the operations a second of products of two square matrices, the best of TIMES."""
    width, products = GPU_SIZES if device.type == "cuda" else CPU_SIZES
    matrix = torch.ones(width, width, dtype=DTYPES[precision], device=device)
    return 2 * width**3 * products / min(_seconds(matrix, products) for _ in range(TIMES))


def _seconds(matrix: torch.Tensor, products: int) -> float:
    began, out = time.perf_counter(), torch.empty_like(matrix)
    for _ in range(products):
        torch.mm(matrix, matrix, out=out)
    out[0, 0].item()  # waits for the device
    return time.perf_counter() - began
