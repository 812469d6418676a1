"""Reads a pickled CIFAR batch without letting the pickle run anything.

An official batch is a pickled dict {"data": (10000, 3072) uint8 array, "labels": list of int, ...}. A pickle may call
any function in Python. Here every name is refused except the few that rebuild a NumPy array, and these are replaced by
functions that only record their arguments:

    numpy.core.multiarray._reconstruct(ndarray, (0,), b"b")  ->  _Array(), whose __setstate__ checks and keeps the bytes
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np

from levelfield.spec import UserError


class _Refused(pickle.UnpicklingError):
    """Raised where a pickle names something that a CIFAR batch does not need."""


class _Dtype:
    """Replaces numpy.dtype and keeps only its name."""

    def __init__(self, name: object, *_: object) -> None:
        self.name = name

    def __setstate__(self, state: object) -> None:
        """Ignores byte order and alignment, which do not matter for single bytes."""


class _Array:
    """Replaces an array, whose pickled state is (version, shape, dtype, column-major?, bytes)."""

    def __init__(self) -> None:
        self.values = np.empty(0, np.uint8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, column_major, data = state
        if not isinstance(dtype, _Dtype) or dtype.name not in ("u1", b"u1") or not isinstance(data, bytes):
            raise pickle.UnpicklingError("the array is not of bytes")
        if len(data) != math.prod(shape):
            raise pickle.UnpicklingError("the array does not have the size that it states")
        self.values = np.frombuffer(data, np.uint8).reshape(shape, order="F" if column_major else "C")


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Replaces `_codecs.encode`, with which Python 3 writes bytes in protocol 2."""
    return text.encode("latin1" if encoding == "latin1" else "utf-8")


def _ndarray(*_: object) -> None:
    """Replaces numpy.ndarray, which only occurs as an argument of `_reconstruct`."""


ALLOWED: Mapping[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _ndarray,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) not in ALLOWED:
            raise _Refused(f"it names {module}.{name}")
        return ALLOWED[module, name]

    def persistent_load(self, pid: object, /) -> Any:
        raise _Refused("it refers to an object outside itself")


def unpickle_batch(data: bytes, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pixels (N, 3072) uint8 and labels (N,) int64 of a batch. Raises UserError for anything else."""
    try:
        batch = _Unpickler(io.BytesIO(data), encoding="bytes").load()
        entries = {k.decode() if isinstance(k, bytes) else k: v for k, v in batch.items()}
        return entries["data"].values, np.array([int(v) for v in entries["labels"]], np.int64)
    except _Refused as error:
        raise UserError(
            f"{what} is refused because {error}, which no CIFAR batch does: use the official file."
        ) from error
    except Exception as error:  # a damaged pickle can fail in any way
        raise UserError(
            f"{what} is not a readable CIFAR batch ({error}): download the official archive again."
        ) from error
