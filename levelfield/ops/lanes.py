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
from typing import Any

import numba.extending
from numba import types
from numba.core.cgutils import ir  # llvmlite's, of the version that this numba is made for
from numba.extending import lower_builtin, models, register_model, type_callable

intrinsic: Any = numba.extending.intrinsic  # what it makes is called without the first parameter

LANES = 16  # one register of float32 with AVX-512, two with AVX2


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
