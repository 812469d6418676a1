"""Reads the shapes of the tensors in a safetensors file from its header, without mapping the numbers.

    shapes(Path("model.safetensors"))        # {"lm_head.weight": (32000, 4096), ...}

The library maps a whole file before it says a shape, which fails for one that is larger than the memory: just the file
whose memory is to be predicted. A file is eight bytes with the length of its header, the header as JSON, and numbers.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

MOST = 100_000_000  # bytes of a header, as the library has it
BITS = re.compile(r"\D*(\d+)")  # of a number, in the name of its type: F32, BF16, F8_E4M3


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Returns the shape of every tensor by name. Raises OSError, and ValueError for a damaged file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, MOST):
            raise ValueError("it does not begin as a safetensors file does")
        text = file.read(length)
    try:
        header = json.loads(text)
        tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
        found = {name: _shape(entry) for name, entry in tensors.items()}
        ends = [entry["data_offsets"][1] for entry in tensors.values()]
    except (TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise ValueError("its header does not name tensors with their shapes") from error
    if max(ends, default=0) != size - 8 - length:
        raise ValueError("its header does not fit the size of the file")
    return found


def _shape(entry: dict[str, Any]) -> tuple[int, ...]:
    """Returns the shape of one entry of a header. Raises ValueError where its numbers do not take the bytes it has."""
    (begin, end), shape = entry["data_offsets"], tuple(entry["shape"])
    bits = 8 if entry["dtype"] == "BOOL" else int(BITS.match(entry["dtype"])[1])  # type: ignore[index]  # caught above
    if not all(isinstance(n, int) and n >= 0 for n in (*shape, begin)) or math.prod(shape) * bits != 8 * (end - begin):
        raise ValueError("a tensor does not have the bytes that its shape takes")
    return shape
