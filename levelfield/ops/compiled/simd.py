"""A vector of numbers as a value in compiled code: what sixteen channels do side by side, said once.

    @numba.njit
    def scale(x, by):                       # x: a flat array, its size a multiple of LANES
        for i in range(0, x.size, LANES):
            store(x, i, load(x, i) * by)

numba's own vectoriser must first prove that reads and writes do not meet, which it cannot for the strided accesses of
a Fourier transform; with registers as values there is nothing to prove. LLVM splits the vectors for narrower machines.
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

from levelfield import jit

intrinsic: Any = numba.extending.intrinsic  # what it makes is called without the first parameter

LANES = 16  # one register of float32 with AVX-512, two with AVX2
ROW = 2 * LANES  # a row of complex numbers: sixteen real parts, then sixteen imaginary parts


class Lanes(types.Type):
    """LANES numbers of one floating-point type. They are added, subtracted and multiplied, also by a plain number."""

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
    """array[start : start + LANES] of a flat array."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, array, args, context.get_value_type(signature.return_type))
        return builder.load(place, align=array.dtype.bitwidth // 8)

    return Lanes(array.dtype)(array, types.intp), code


@intrinsic
def store(typing: Any, array: Any, start: Any, value: Any) -> Any:
    """array[start : start + LANES] = value."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, array, args, args[2].type)
        builder.store(args[2], place, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), code


@intrinsic
def total(typing: Any, lanes: Any) -> Any:
    """The sum of all lanes, a plain number."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (vector,) = args
        number, bits = vector.type.element, lanes.dtype.bitwidth
        form = ir.FunctionType(number, [number, vector.type])
        reduce = get_or_insert_function(builder.module, form, f"llvm.vector.reduce.fadd.v{LANES}f{bits}")
        return builder.call(reduce, [ir.Constant(number, -0.0), vector], fastmath=("reassoc",))  # in any order

    return lanes.dtype(lanes), code


@intrinsic
def fetch(typing: Any, array: Any, at: Any) -> Any:
    """Ask for the cache line of array[at], which need not exist."""

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
        if b.type != a.type:  # the number in every lane
            none, first = ir.Constant(a.type, ir.Undefined), ir.IntType(32)(0)
            everywhere = ir.Constant(ir.VectorType(first.type, LANES), [0] * LANES)
            b = builder.shuffle_vector(builder.insert_element(none, b, first), none, everywhere)
        # One rounding for a product and a sum where the processor can.
        return getattr(builder, instruction)(a, b, flags=("contract",))

    lower_builtin(op, Lanes, Lanes)(code)
    lower_builtin(op, Lanes, types.Float)(code)


_define(operator.add, "fadd")
_define(operator.sub, "fsub")
_define(operator.mul, "fmul")


compiled = partial(jit.compiled, error_model="numpy")  # divisions need no check, which would keep loops from vectors


def spread(function: Callable[..., None], blocks: int, *arguments: Any) -> None:
    """function(*arguments, (first, last)) for all blocks, in as many threads as torch would use; tensors as arrays."""
    arrays = [x.detach().numpy() if isinstance(x, torch.Tensor) else x for x in arguments]
    threads = min(torch.get_num_threads(), blocks)
    if threads == 1:
        return function(*arrays, (0, blocks))
    parts = [(i * blocks // threads, (i + 1) * blocks // threads) for i in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(function, *arrays, part) for part in parts]:
            done.result()
    return None


def to_blocks(z: torch.Tensor) -> torch.Tensor:
    """(..., C, N) complex -> (blocks, ..., N, 2, LANES) real, zero where C is not a multiple of LANES."""
    parts = torch.nn.functional.pad(torch.view_as_real(z.resolve_conj()), (0, 0, 0, 0, 0, -z.shape[-2] % LANES))
    return parts.unflatten(-3, (-1, LANES)).movedim((-4, -3), (0, -1)).contiguous()


# Rows of complex numbers are pairs (re, im) of Lanes


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
    """a b; the parts of b may be plain numbers."""
    return a[0] * b[0] - a[1] * b[1], a[1] * b[0] + a[0] * b[1]


@compiled
def times_conjugate(a: Any, b: Any) -> Any:
    return a[0] * b[0] + a[1] * b[1], a[1] * b[0] - a[0] * b[1]
