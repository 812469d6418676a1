"""Counts additions and multiplications by running compiled loops as Python, on numbers that count.

    in_python_by(torch.ops.levelfield.diagonal, tensors)     # its additions and multiplications of real numbers
    with Referee() as referee:
        layer(x, mask).sum().backward()                      # referee.total: of all operators, by other rules

Nothing here uses the rules of the ledger: every operation on a number adds to the tally when it is applied.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils._pytree as pytree
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode

from levelfield.ops.compiled import simd
from levelfield.ops.compiled.fft import size_for
from levelfield.ops.ssm import selective


class Tally:
    def __init__(self) -> None:
        self.total = 0


class Number:
    """A number or a vector of numbers, real or complex, whose operations are added to a tally."""

    def __init__(self, value: Any, tally: Tally) -> None:
        self.value, self.tally = value, tally

    def _with(self, other: Any, result: Any, product: bool) -> Number:
        other = other.value if isinstance(other, Number) else other
        complexes = sum(np.iscomplexobj(x) for x in (self.value, other))
        each = (1, 2, 6)[complexes] if product else (1, 1, 2)[complexes]
        self.tally.total += each * np.size(result)
        return Number(result, self.tally)

    def __add__(self, other: Any) -> Number:
        return self._with(other, self.value + _plain(other), False)

    def __sub__(self, other: Any) -> Number:
        return self._with(other, self.value - _plain(other), False)

    def __mul__(self, other: Any) -> Number:
        return self._with(other, self.value * _plain(other), True)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Number:
        return Number(-self.value, self.tally)

    def __abs__(self) -> float:
        return abs(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __complex__(self) -> complex:
        return complex(self.value)


def _plain(x: Any) -> Any:
    return x.value if isinstance(x, Number) else x


class Array:
    """An array of such numbers, indexed as the loops index it, and flat by `load` and `store`."""

    def __init__(self, values: np.ndarray, tally: Tally) -> None:
        self.values, self.tally = values, tally

    def __getitem__(self, at: Any) -> Any:
        found = self.values[at]
        return Array(found, self.tally) if isinstance(found, np.ndarray) else Number(found, self.tally)

    def __setitem__(self, at: Any, value: Any) -> None:
        self.values[at] = value.values if isinstance(value, Array) else _plain(value)

    def __len__(self) -> int:
        return len(self.values)

    def copy(self) -> Array:
        return Array(self.values.copy(), self.tally)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def size(self) -> int:
        return self.values.size

    @property
    def dtype(self) -> Any:
        return self.values.dtype


class _Numpy:
    """The functions of NumPy that the loops use."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def empty(self, shape: Any, kind: Any) -> Array:
        return Array(np.zeros(shape, kind), self.tally)

    zeros = empty

    def conj(self, x: Number) -> Number:
        return Number(np.conj(x.value), x.tally)


def _load(array: Array, at: int) -> Number:
    return Number(array.values.reshape(-1)[at : at + simd.LANES].copy(), array.tally)


def _store(array: Array, at: int, value: Number) -> None:
    array.values.reshape(-1)[at : at + simd.LANES] = value.value


def _total(x: Number) -> Number:
    x.tally.total += simd.LANES - 1
    return Number(x.value.sum(), x.tally)


@contextmanager
def in_python(module: ModuleType) -> Iterator[Tally]:
    """Replaces the compiled functions of a module of `levelfield.ops` by their Python source, which takes `Array`s."""
    tally, names = Tally(), {"load": _load, "store": _store, "total": _total, "fetch": lambda array, at: None}
    with pytest.MonkeyPatch.context() as patch:
        for place in (simd, module):
            for name, value in list(vars(place).items()):
                if name in names:
                    patch.setattr(place, name, names[name])
                elif hasattr(value, "py_func"):
                    patch.setattr(place, name, value.py_func)
        patch.setattr(module, "np", _Numpy(tally))
        yield tally


def in_python_by(function: Any, tensors: Any) -> int:
    """Additions and multiplications of the compiled loops that `function(*tensors)` runs."""
    tally = Tally()

    def parallel_for(loop: Any, blocks: int, *given: Any) -> None:
        module = sys.modules[loop.py_func.__module__]
        with in_python(module) as inner:
            counting = pytree.tree_map_only(np.ndarray, lambda x: Array(x, inner), simd.as_arrays(given))
            getattr(module, loop.py_func.__name__)(*counting, (0, blocks))
        tally.total += inner.total

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simd, "parallel_for", parallel_for)
        function(*tensors)
    return tally.total


_LOOPS: dict[Any, int] = {}  # operations of a compiled loop, by its name and the shapes of what it is given


class Referee(TorchDispatchMode):
    """Counts the operations that run within it, without the ledger's rules.

    Compiled loops run in Python, custom operators made of torch's operations count what they dispatch, norms count as
    torch decomposes them, and transforms as in the textbook.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        space, name = func._schema.name.split("::")
        self.total += self._own(name, func, args) if space == "levelfield" else self._torch(name, func, args, out)
        return out

    def _own(self, name: str, func: Any, args: Any) -> int:
        if name in ("selective", "selective_backward"):
            body = {"selective": selective._scan, "selective_backward": selective._scan_backward}[name]
            with Referee() as inside:
                body.function(*args)
            return inside.total
        if name in ("convolve", "convolve_backward"):
            (batch, _, channels), size = args[0].shape, size_for(args[0].shape[1])
            rows, each = batch * channels, textbook(size)
            if name == "convolve":
                return (2 * rows + channels) * each + 6 * rows * size
            return (3 * rows + 2 * channels) * each + 14 * rows * size
        shapes = name, *(tuple(x.shape) if isinstance(x, torch.Tensor) else x for x in args), args[0].dtype
        if shapes not in _LOOPS:
            _LOOPS[shapes] = in_python_by(func, args)
        return _LOOPS[shapes]

    def _torch(self, name: str, func: Any, args: Any, out: Any) -> int:
        first = out[0] if isinstance(out, tuple | list) else out
        if not isinstance(first, torch.Tensor) or not (first.is_floating_point() or first.is_complex()):
            return 0
        name, of_complex = name.rstrip("_"), first.is_complex()
        if name in ("mm", "bmm", "matmul"):
            return (8 if of_complex else 2) * first.numel() * args[0].shape[-1]
        if name in ("addmm", "baddbmm"):
            return (8 if of_complex else 2) * first.numel() * args[1].shape[-1]
        if name in ("mv", "dot"):
            return 2 * args[0].numel()
        if name == "linalg_solve_triangular":
            return args[1].numel() * args[0].shape[-1]
        if name in ("convolution", "convolution_backward"):
            return _convolution(name, args)
        if "scaled_dot_product" in name:
            return _attention(name, args)
        if name.startswith("_fft"):
            dims = args[1]
            real = args[0] if name == "_fft_r2c" else first
            size = math.prod(real.shape[d] for d in dims)
            return real.numel() // size * textbook(size) // (1 if name == "_fft_c2c" else 2)
        if func in DECOMPOSED:
            with Referee() as inside:
                decomposition_table[func](*args)
            return inside.total
        parts = 2 if of_complex else 1
        if name in ("add", "sub", "rsub"):
            return parts * first.numel()
        if name in ("sum", "mean", "cumsum"):
            return parts * args[0].numel()
        if name == "var_mean":
            return 4 * args[0].numel()
        factors = {"mul": args[:2], "div": args[:2], "pow": args[:1], "addcmul": args[1:3], "lerp": args[:1]}
        if name not in factors:
            return 0
        complexes = sum(isinstance(x, complex) or (isinstance(x, torch.Tensor) and x.is_complex()) for x in args[:3])
        each = (1, 2, 6)[min(2, complexes)] + {"addcmul": parts, "lerp": 2}.get(name, 0)
        return each * first.numel()


DECOMPOSED = {
    torch.ops.aten.native_layer_norm.default,
    torch.ops.aten.native_layer_norm_backward.default,
}


def textbook(size: int) -> int:
    """Operations of the radix-2 transform: two halves, then a complex product, a sum and a difference for each pair."""
    if size % 2:
        return round(5 * size * math.log2(max(2, size)))
    return 10 if size == 2 else 2 * textbook(size // 2) + size // 2 * (6 + 2 + 2)


def _convolution(name: str, args: Any) -> int:
    x, weight = (args[1], args[2]) if name == "convolution_backward" else (args[0], args[1])
    groups = args[-1] if name == "convolution" else args[-2]
    if name == "convolution":
        stride, padding = args[3][0], args[4][0]
        steps = (x.shape[2] + 2 * padding - weight.shape[2]) // stride + 1
        return 2 * x.shape[0] * steps * weight.numel()
    assert groups
    return 2 * 2 * args[0].shape[0] * args[0].shape[2] * weight.numel()


def _attention(name: str, args: Any) -> int:
    """Operations of every visible pair of steps: two products forward, five backward."""
    q, k, v, *rest = args[1:] if name.endswith("backward") else args
    causal = bool(rest[3] if name.endswith("backward") else rest[1]) if len(rest) > 1 else False
    scores = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
    products = 2 * scores * (q.shape[3] + v.shape[3])
    return int(products * (2.5 if name.endswith("backward") else 1) / (2 if causal else 1))
