"""Reads the weights beside this file with torch alone: `from load import weights; weights()["encoder.weight"]`.

It is copied into every exported run. The format is that of safetensors: a length, a header in JSON, then the numbers.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

KINDS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "BOOL": "bool", "C64": "complex64"}
KINDS |= {"I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "U16": "uint16"}
KINDS |= {"U32": "uint32", "U64": "uint64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}


def weights(name: str = "weights.safetensors") -> dict[str, torch.Tensor]:
    """Returns every tensor of the file beside this one, by its name in the model."""
    content = Path(__file__).with_name(name).read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    found: dict[str, torch.Tensor] = {}
    for key, about in json.loads(content[8:start]).items():
        if key != "__metadata__":
            begin, end = (start + offset for offset in about["data_offsets"])
            kind = getattr(torch, KINDS[about["dtype"]])
            numbers = (
                torch.frombuffer(bytearray(content[begin:end]), dtype=kind) if end > begin else torch.empty(0).to(kind)
            )
            found[key] = numbers.reshape(about["shape"])
    return found
