"""Gives compiled code a SIMD vector as a value, so that one line of it acts on sixteen channels side by side.

    @compiled
    def scale(x, by, parts):                # x: a flat array, its size a multiple of LANES
        for i in range(parts[0] * LANES, parts[1] * LANES, LANES):
            store(x, i, load(x, i) * by)

    parallel_for(scale, len(x) // LANES, x, 2.0)

LLVM's own vectoriser must first prove that reads and writes do not overlap, which it cannot for the strided accesses of
a Fourier transform. With vectors as values nothing need be proved. LLVM splits them on machines with narrower
registers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numba
import numba.extending
import torch
from numba import types
from numba.core.cgutils import get_or_insert_function, ir  # ir: llvmlite of this numba's version
from numba.extending import lower_builtin, models, register_model, type_callable
from torch.utils.dlpack import from_dlpack, to_dlpack  # pyright: ignore[reportPrivateImportUsage]

from levelfield import jit

intrinsic: Any = numba.extending.intrinsic  # the function that it returns is called without the first parameter

LANES = 16  # elements of a vector: one register of float32 with AVX-512, two with AVX2
ROW = 2 * LANES  # a row of complex numbers: sixteen real parts, then sixteen imaginary parts


class Lanes(types.Type):
    """A vector of LANES numbers of one floating-point type.

    Vectors can be added, subtracted and multiplied, with each other and with a scalar on the right.
    """

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(f"Lanes({dtype})")


@register_model(Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        number = ir.FloatType() if kind.dtype == types.float32 else ir.DoubleType()
        super().__init__(manager, kind, ir.VectorType(number, LANES))


@intrinsic
def load(typing: Any, array: Any, start: Any) -> Any:
    """Reads array[start : start + LANES] of a flat array as a vector."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, array, args, context.get_value_type(signature.return_type))
        return builder.load(place, align=array.dtype.bitwidth // 8)

    return Lanes(array.dtype)(array, types.intp), code


@intrinsic
def store(typing: Any, array: Any, start: Any, value: Any) -> Any:
    """Writes a vector: array[start : start + LANES] = value."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, array, args, args[2].type)
        builder.store(args[2], place, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), code


@intrinsic
def total(typing: Any, lanes: Any) -> Any:
    """The sum of a vector's elements, a scalar."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (vector,) = args
        number, bits = vector.type.element, lanes.dtype.bitwidth
        form = ir.FunctionType(number, [number, vector.type])
        reduce = get_or_insert_function(builder.module, form, f"llvm.vector.reduce.fadd.v{LANES}f{bits}")
        return builder.call(reduce, [ir.Constant(number, -0.0), vector], fastmath=("reassoc",))  # in any order

    return lanes.dtype(lanes), code


@intrinsic
def fetch(typing: Any, array: Any, at: Any) -> Any:
    """Prefetches the cache line of array[at], which may lie beyond the array."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        form = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        call = builder.module.declare_intrinsic("llvm.prefetch", [byte], form)
        builder.call(call, [_place(context, builder, array, args, ir.IntType(8)), word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), code


def _place(context: Any, builder: Any, array: Any, args: Any, element: Any) -> Any:
    data = context.make_array(array)(context, builder, args[0]).data
    return builder.bitcast(builder.gep(data, [args[1]]), element.as_pointer())


def _define(op: Callable[..., Any], instruction: str) -> None:
    @type_callable(op)
    def _(context: Any) -> Callable[..., Any]:
        def result(a: Any, b: Any) -> Any:
            if isinstance(a, Lanes) and b in (a, a.dtype):
                return a(a, b)
            return None

        return result

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a, b = args
        if b.type != a.type:  # a scalar, repeated in every lane
            none, first = ir.Constant(a.type, ir.Undefined), ir.IntType(32)(0)
            everywhere = ir.Constant(ir.VectorType(first.type, LANES), [0] * LANES)
            b = builder.shuffle_vector(builder.insert_element(none, b, first), none, everywhere)
        # A product and a sum may be rounded once, by a fused multiply-add, where the processor has one.
        return getattr(builder, instruction)(a, b, flags=("contract",))

    lower_builtin(op, Lanes, Lanes)(code)
    lower_builtin(op, Lanes, types.Float)(code)


_define(operator.add, "fadd")
_define(operator.sub, "fsub")
_define(operator.mul, "fmul")


compiled = partial(jit.compiled, error_model="numpy")  # divisions need no check, which would keep loops from vectors


def parallel_for(function: Callable[..., None], blocks: int, *arguments: Any) -> None:
    """Calls function(*arguments, (first, last)) over ranges of blocks, in as many threads as torch would use.

    Tensors are passed as NumPy arrays, also those in NamedTuples. Without blocks (an empty batch) it does nothing.
    """
    if not blocks:
        return None
    arrays = as_arrays(arguments)
    threads = min(torch.get_num_threads(), blocks)
    if threads == 1:
        return function(*arrays, (0, blocks))
    parts = [(i * blocks // threads, (i + 1) * blocks // threads) for i in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(function, *arrays, part) for part in parts]:
            done.result()
    return None


def as_arrays(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with every tensor as a NumPy array over the same memory.

    `Tensor.numpy` alone would forbid torch for ever to free that memory, as it does with that of sharded parameters.
    """
    made = [as_arrays(x) if isinstance(x, tuple) else _as_array(x) for x in arguments]
    return tuple(made) if type(arguments) is tuple else type(arguments)(*made)


def _as_array(x: Any) -> Any:
    return from_dlpack(to_dlpack(x.detach())).numpy() if isinstance(x, torch.Tensor) else x


def to_simd_layout(z: torch.Tensor) -> torch.Tensor:
    """(..., C, N) complex -> (blocks, ..., N, 2, LANES) real, with zeros where C is not a multiple of LANES."""
    parts = torch.nn.functional.pad(torch.view_as_real(z.resolve_conj()), (0, 0, 0, 0, 0, -z.shape[-2] % LANES))
    return parts.unflatten(-3, (-1, LANES)).movedim((-4, -3), (0, -1)).contiguous()


# A row of complex numbers is a pair (re, im) of vectors.


@compiled
def get(array: Any, at: int) -> Any:
    return load(array, at), load(array, at + LANES)


@compiled
def put(array: Any, at: int, a: Any) -> None:
    store(array, at, a[0])
    store(array, at + LANES, a[1])


@compiled
def plus(a: Any, b: Any) -> Any:
    return a[0] + b[0], a[1] + b[1]


@compiled
def minus(a: Any, b: Any) -> Any:
    return a[0] - b[0], a[1] - b[1]


@compiled
def times(a: Any, b: Any) -> Any:
    """The complex product a b. The parts of b may be scalars."""
    return a[0] * b[0] - a[1] * b[1], a[1] * b[0] + a[0] * b[1]


@compiled
def times_conjugate(a: Any, b: Any) -> Any:
    """The complex product a conj(b)."""
    return a[0] * b[0] + a[1] * b[1], a[1] * b[0] - a[0] * b[1]
