"""Counts floating-point operations by one rule.

    An addition or a multiplication of two real numbers is one operation, whichever operator does it.

A product of matrices (M, K) by (K, N) is thus 2 M K N. A convolution is the products and sums of its taps. A recurrence
or scan is the additions and multiplications of a step, times the number of steps, whether torch's own operators or a
compiled loop compute it. Gates, residuals and reductions count by their elements. A product of complex numbers is 6
operations and a sum is 2. A Fourier transform of N complex numbers is 5 N log2 N, the operations of the textbook's
radix-2 transform, and one of real numbers half of that, whatever computes it. Divisions count as products. Functions of
one number (exp, GELU and their derivatives), softmax, comparisons, random numbers and moving data are not counted.

The algorithm that is counted is the one that the plain path dispatches on a CPU, not the shortest one that gives the
same numbers: attention by chunks counts its chunks, and a convolution by transforms its transforms. Tests compare it
with the same algorithm written out: a compiled loop step by step, and a fused operator as sums and products.

    with Operations() as counted:
        layer(x, mask).sum().backward()
    counted.total, counted.transforms                  # the second is included in the first
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, shape_wrapper

from levelfield.ops.algebra import ALGEBRA, UNCOUNTED
from levelfield.ops.conv import depthwise, fft  # noqa: F401  this and the next two define operators that are named here
from levelfield.ops.linear_attention import decay_per_key_cpu  # noqa: F401
from levelfield.ops.ssm import diagonal, dplr, scan, selective  # noqa: F401

Shape = Sequence[int]
TIMES, PLUS = 6, 2  # operations of a complex product and of a complex sum


def fourier(size: int) -> int:
    """Operations of a Fourier transform of `size` complex numbers."""
    return int(5 * size * math.log2(max(2, size)))


def _fft(shape: Shape, dims: Shape, *_: Any, out_shape: Shape, **__: Any) -> int:
    size = math.prod(shape[d] for d in dims)
    return math.prod(shape) // size * fourier(size)


def _rfft(shape: Shape, dims: Shape, *_: Any, out_shape: Shape, **__: Any) -> int:
    """Real to complex: half the operations of the complex transform."""
    return _fft(shape, dims, out_shape=out_shape) // 2


def _irfft(shape: Shape, dims: Shape, *_: Any, out_shape: Shape, **__: Any) -> int:
    """Complex to real: half the operations of the complex transform, by the size of the real side."""
    return _fft(out_shape, dims, out_shape=out_shape) // 2


def _circular(u: Shape, of_rows: int, of_kernels: int, products: int) -> int:
    """Complex transforms of every row and kernel, and `products` operations per element of a spectrum."""
    from levelfield.ops.compiled.fft import size_for

    rows, size = u[0] * u[2], size_for(u[1])
    return (of_rows * rows + of_kernels * u[2]) * fourier(size) + products * rows * size


def _convolve(u: Shape, *_: Any, **__: Any) -> int:
    return _circular(u, 2, 1, TIMES)


def _convolve_backward(u: Shape, *_: Any, **__: Any) -> int:
    return _circular(u, 3, 2, 2 * TIMES + PLUS)


def _attention(query: Shape, key: Shape, value: Shape, dropout: float = 0.0, causal: bool = False, **_: Any) -> int:
    """Two products of (T, D) by (D, S), of which causal attention computes half."""
    batch, heads, length, width = query
    total = 2 * batch * heads * length * key[-2] * (width + value[-1])
    return total // 2 if causal else total


def _attention_backward(
    grad: Shape,
    query: Shape,
    key: Shape,
    value: Shape,
    out: Shape,
    logsumexp: Shape,
    dropout: float = 0.0,
    causal: bool = False,
    **_: Any,
) -> int:
    """Five products where the forward pass has two."""
    return _attention(query, key, value, dropout, causal) * 5 // 2


def _convolution_backward(
    grad: Shape, x: Shape, weight: Shape, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, wanted: Sequence[bool], **_: Any,
) -> int:  # fmt: skip
    """The forward pass's products for each gradient that is wanted; torch's own rule ignores groups."""
    return 2 * math.prod(x if transposed else grad) * math.prod(weight[1:]) * sum(wanted[:2])


def _added(total: Shape, a: Shape, b: Shape, **_: Any) -> int:
    """The product of a, (..., M, K), and b, (..., K, N), added in place; torch has a rule only for new tensors."""
    return 2 * math.prod(a) * b[-1]


def _vector(a: Shape, *_: Any, **__: Any) -> int:
    """The product of a matrix and a vector, or of two vectors."""
    return 2 * math.prod(a)


def _depthwise_conv(x: Shape, before: Shape, weight: Shape, *_: Any, **__: Any) -> int:
    return 2 * weight[0] * math.prod(x)


def _depthwise_conv_backward(x: Shape, before: Shape, weight: Shape, *_: Any, **__: Any) -> int:
    """The same work for x and for the weights, whose partial sums are added up every 64 steps."""
    return 4 * weight[0] * math.prod(x) + x[0] * -(-x[1] // 64) * (weight[0] + 1) * x[2]


def _chunks(length: int) -> int:
    """Chunks of the compiled recurrences of kernels, which run in whole chunks."""
    from levelfield.ops.compiled import ssm_kernels

    return ssm_kernels.whole(length) // ssm_kernels.CHUNK


def _diagonal(step: Shape, jump: Shape, weight: Shape, length: int, **_: Any) -> int:
    """A complex product for each state and step, and the sum of a real part; each chunk adds a few products."""
    chunk = 64 * (TIMES + 1) + 3 * TIMES
    return _chunks(length) * (chunk * math.prod(weight) // 2 + TIMES * math.prod(step) // 2)


def _moments(step: Shape, jump: Shape, weight: Shape, grad: Shape, **_: Any) -> int:
    """A complex product for each state and step, and twice a product of a real and a complex number that is added."""
    chunk, lanes = 64 * (TIMES + 8) + 2 * TIMES, math.prod(weight[:2]) * weight[-1]
    return _chunks(grad[1]) * (chunk * math.prod(weight) // 2 + TIMES * math.prod(step) // 2 + 64 * lanes)


def _low_rank(change: Shape, column: Any, row: Any, start: Any, ends: Shape, length: int, **_: Any) -> int:
    """A complex product for each state and step, 10 for the low-rank term and the next step's inner product, and 4 for
    each kernel's readout."""
    lanes, states, kinds = change[0] * change[-1], change[1], ends[1]
    readout = 4 * states - 1
    return lanes * _chunks(length) * (64 * (16 * states + 2 + kinds * readout) + readout)


def _low_rank_backward(change: Shape, column: Any, row: Any, start: Any, ends: Shape, grad: Shape, **_: Any) -> int:
    """The states twice more, because they are not kept, then the gradients of states and of all five parts."""
    lanes, states, kinds = change[0] * change[-1], change[1], ends[1]
    return lanes * _chunks(grad[1]) * (64 * (64 * states + 3 + 8 * kinds * states) + 2 * (4 * states - 1))


def _decay_per_key(
    q: Shape, k: Shape, decay: Shape, bonus: Shape, v: Shape, state: Shape, exclusive: bool, **_: Any
) -> int:
    """Each element of the state takes, per step, decay (1), update (2) and read (2); then sums over sixteen lanes."""
    keys, values, rows = q[3], v[3], math.prod(q[:3])
    return rows * (values * (5 * keys + 31 + 2 * exclusive) + 3 * keys + 1)


def _decay_per_key_backward(
    q: Shape, k: Shape, decay: Shape, bonus: Shape, v: Shape, state: Shape, exclusive: bool, *_: Any, **__: Any
) -> int:
    """The states again with the gradients of q, then the gradients of states, k and v."""
    keys, values, rows = q[3], v[3], math.prod(q[:3])
    ends = q[0] * q[2] * -(-q[1] // 64) * 2 * keys * values
    bonuses = 12 * keys + 4 * values + 2 if exclusive else 0
    return rows * (values * (12 * keys + 31) + 5 * keys + bonuses) + ends


def _selective(x: Shape, dt: Shape, a: Shape, *_: Any, **__: Any) -> int:
    """Each state takes, per step, dt a, b times dt x, decay and update, and read."""
    return math.prod(x) * (1 + 6 * a[1])


def _selective_backward(x: Shape, dt: Shape, a: Shape, *_: Any, **__: Any) -> int:
    """The states again (4), then their gradients (3), those of x, b and c (6), and those of dt and a (6)."""
    return math.prod(x) * (5 + 19 * a[1])


Rule = Callable[..., int]
_own, _aten = torch.ops.levelfield, torch.ops.aten
RULES: dict[Any, Rule] = {
    **ALGEBRA,
    _aten.addmm_: _added,
    _aten.baddbmm_: _added,
    _aten.convolution_backward: _convolution_backward,
    _aten.mv: _vector,
    _aten.dot: _vector,
    _aten._fft_r2c: _rfft,
    _aten._fft_c2r: _irfft,
    _aten._fft_c2c: _fft,
    _aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    _own.convolve: _convolve,
    _own.convolve_backward: _convolve_backward,
    _own.depthwise_conv: _depthwise_conv,
    _own.depthwise_conv_backward: _depthwise_conv_backward,
    _own.diagonal: _diagonal,
    _own.moments: _moments,
    _own.low_rank: _low_rank,
    _own.low_rank_backward: _low_rank_backward,
    _own.decay_per_key: _decay_per_key,
    _own.decay_per_key_backward: _decay_per_key_backward,
    _own.selective: _selective,
    _own.selective_backward: _selective_backward,
}
"""Rules for operators that torch's own counter does not know, by the shapes of their arguments."""

TRANSFORMS = {_aten._fft_r2c, _aten._fft_c2r, _aten._fft_c2c, _own.convolve, _own.convolve_backward}
"""Operators whose work grows in jumps, because transforms come only in certain sizes."""

PER_ELEMENT = {
    _aten.native_layer_norm: 8,
    _aten.native_layer_norm_backward: 14,
    _aten.native_group_norm: 8,
    _aten.native_group_norm_backward: 14,
    _aten.native_batch_norm: 8,
    _aten.native_batch_norm_backward: 14,
    _aten.logsumexp: 2,
    _aten.logcumsumexp: 2,
}
"""Operations per element of the first argument: norms as torch decomposes them, and logarithms of sums as a difference
from the largest and a sum."""

_SUMS = {getattr(_aten, name) for name in ("sum", "mean", "cumsum", "cumsum_")}
_PLUS = {getattr(_aten, name) for name in ("add", "add_", "sub", "sub_", "rsub")}
_TIMES = {getattr(_aten, name) for name in ("mul", "mul_", "div", "div_", "pow", "pow_")}
_BOTH = {getattr(_aten, name): count for name, count in {"addcmul": 1, "addcmul_": 1, "addcdiv": 1, "lerp": 2}.items()}


NAMESPACES = {"aten", "prim", "prims", "profiler", "levelfield"}  # of operators that are known here
_MATRICES = {_aten.mm, _aten.addmm, _aten.mv, _aten._sparse_addmm}  # they may get a sparse matrix


class Operations(TorchDispatchMode):
    """Counts the operations that run within it: `total`, and `transforms` among them. Tensors may have no values.

    `uncounted` names operators that compute by no rule known here: those of other libraries, and `algebra.UNCOUNTED`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = self.transforms = 0
        self.uncounted: set[str] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Has torch call what counts as it is. Else its first call imports torch's compiler, which takes seconds, and
        each passes through it."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        operator = func._overloadpacket
        count = _count(operator, args, kwargs, out)
        self.total += count
        if operator in TRANSFORMS:
            self.transforms += count
        if operator in UNCOUNTED or not (count or func.namespace in NAMESPACES):
            self.uncounted.add(str(operator))
        return out


class _Ones(Function):
    """The last step of a forward pass, (...) each -> (), from which gradients of one go back to all elements."""

    @staticmethod
    def forward(ctx: Any, *outputs: Tensor) -> Tensor:
        ctx.save_for_backward(*outputs)
        return outputs[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.ones_like(output) for output in ctx.saved_tensors)


def ended(outputs: list[Tensor]) -> Tensor:
    """Returns a scalar whose gradients are those of the sum of all outputs, without the operations of a sum.

    To be given the first gradients, torch's `backward` imports an algebra system, which takes most of a second.
    outputs: each of any shape, such as (B, T, D).
    """
    scalar: Any = _Ones.apply(*outputs)
    return scalar


_RULES = {operator: shape_wrapper(rule) for operator, rule in RULES.items()}


def _count(operator: Any, args: Any, kwargs: Any, out: Any) -> int:
    first = next((x for x in (out if isinstance(out, tuple | list) else (out,)) if isinstance(x, Tensor)), None)
    if first is None or not (first.is_floating_point() or first.is_complex()):
        return 0
    if operator in _MATRICES and (products := _sparse(*args[-2:])) is not None:
        return products * (TIMES + PLUS if first.is_complex() else 2)
    rule = _RULES.get(operator) or flop_registry.get(operator)
    if rule is not None:
        products = int(rule(*args, **kwargs, out_val=out))
        return products * (TIMES + PLUS) // 2 if first.is_complex() and operator not in TRANSFORMS else products
    if operator in (_own.states, _own.states_backward):
        return _scan(operator, *args[:2])
    return _elementwise(operator, args, first)


def _sparse(a: Tensor, b: Tensor) -> int | None:
    """Returns the products in that of a sparse matrix and a dense one; None where both or neither are sparse."""
    of_a, of_b = (x.layout is not torch.strided for x in (a, b))
    if of_a == of_b:
        return None
    return _stored(a) * b.shape[-1] if of_a else _stored(b) * a.shape[0]


def _stored(x: Tensor) -> int:
    return (x._values() if x.layout is torch.sparse_coo else x.values()).numel()


def _scan(operator: Any, a: Tensor, b: Tensor) -> int:
    """A product and a sum per step; backwards two products and a sum, and one more sum if all steps share `a`."""
    times, plus = (TIMES, PLUS) if b.is_complex() else (1, 1)
    if operator is _own.states:
        return b.numel() * (times + plus)
    return b.numel() * (2 * times + (2 if a.ndim == 1 else 1) * plus)


def _elementwise(operator: Any, args: Any, out: Tensor) -> int:
    """Operations by the elements of the result, or of what is summed up; complex numbers count by their parts."""
    parts = 2 if out.is_complex() else 1
    if operator in _PLUS:
        return parts * out.numel()
    if operator in _TIMES:
        return _product(args[:2]) * out.numel()
    if operator in _SUMS:
        return parts * args[0].numel()
    if operator in _BOTH:
        return (_product(args[1:3]) + parts * _BOTH[operator]) * out.numel()
    return PER_ELEMENT[operator] * args[0].numel() if operator in PER_ELEMENT else 0


def _product(factors: Sequence[Any]) -> int:
    """Operations of a product of two complex numbers, of a complex and a real one, or of two real ones."""
    complexes = sum(isinstance(x, complex) or (isinstance(x, Tensor) and x.is_complex()) for x in factors)
    return (1, 2, TIMES)[complexes]
