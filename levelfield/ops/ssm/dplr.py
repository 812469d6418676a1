"""Computes S4's convolution kernel by powers of a small real matrix.

It needs no Cauchy kernel, no complex numbers and no maximal length. A diagonal-plus-low-rank (DPLR) model
x' = (diag(poles) - p p*) x + b u, y = Re(c x), stepped bilinearly by dt, has the kernel k[t] = c A^t b. With
t = i J + j it is a product of two tables. Each is filled by doubling: a power A^m applied to the m rows that are known
gives the next m. The last rows of the left table are filled by strides of the highest power.

    k as an I x J table  =  [c; c A^J; c A^2J; ...]  @  [b, A b, ..., A^(J-1) b],      I J >= T,  I, J near sqrt(T)

On conjugate pairs A is a real 2N x 2N matrix of norm at most 1, so some log2(T) squarings stay accurate in float32
(relative error near 1e-5 up to 64K steps), and all work is batched real products:

    k = dplr_kernel(poles, low_rank, drive, readout, dt, 4096)      # readout: (S, H, N) complex; k: (S, H, 4096)

On a CPU shorter kernels run the compiled recurrence instead (`levelfield.ops.compiled.ssm_kernels`).
Letters: S kernels per channel (2 for two directions), H channels, N conjugate pairs, T steps; M = 2N.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from levelfield.ops.custom import custom_op
from levelfield.ops.layers.underflow import UNDERFLOW
from levelfield.ops.opaque import opaque
from levelfield.ops.ssm.diagonal import columns_for

COMPILED = "cpu"  # the device where short kernels are compiled
SHORT = 8192  # steps up to which the recurrence costs less than the powers
CPU_BLOCK_ELEMENTS = 1 << 17  # of the batch of matrices computed at a time: 32 of 64 x 64, 512 KiB
STRIDES = 16  # how many times the highest power is applied, where squaring it further would cost more


@opaque
def dplr_kernel(poles: Tensor, low_rank: Tensor, drive: Tensor, readout: Tensor, dt: Tensor, length: int) -> Tensor:
    """S4's kernel, Re(c A^t b) for t < length, with A and b from `bilinear`: (S, H, T) in the readout's precision.

    poles, low_rank (p), drive (b): (H, N) complex, one of each conjugate pair, poles with negative real part;
    readout (c): (S, H, N) complex; dt: (H, 1). The others may be float64 where readout is float32 (amos2025, equations
    2.1 to 2.4). Equal to `naive_dplr_kernel`.
    """
    dtype = readout.real.dtype
    if readout.device.type == COMPILED and length <= SHORT:
        from levelfield.ops.compiled.simd import to_simd_layout

        step, *others = (torch.complex(*part.chunk(2, -1)) for part in bilinear(poles, low_rank, drive, dt))
        parts = [to_simd_layout(part).to(dtype) for part in (step - 1, *others)]
        out: Tensor = _Recurrence.apply(*parts, to_simd_layout(readout.conj()), length)  # pyright: ignore[reportAssignmentType]
        return out[:, :length, : readout.shape[1]].transpose(1, 2)
    parts = (part.to(dtype) for part in bilinear(poles, low_rank, drive, dt))
    output_vector = torch.cat([readout.real, -readout.imag], dim=-1).transpose(0, 1).contiguous()
    kernel: Tensor = _Kernel.apply(*parts, output_vector, length)  # pyright: ignore[reportAssignmentType]
    return kernel.transpose(0, 1)


def naive_dplr_kernel(
    poles: Tensor, low_rank: Tensor, drive: Tensor, readout: Tensor, dt: Tensor, length: int
) -> Tensor:
    """`dplr_kernel` by a linear solve with the complex 2N x 2N matrices, then the recurrence: (S, H, T)."""
    poles, p = torch.cat([poles, poles.conj()], -1), torch.cat([low_rank, low_rank.conj()], -1)
    matrix = torch.diag_embed(poles) - p.unsqueeze(-1) * p.conj().unsqueeze(-2)
    eye, half = torch.eye(poles.shape[-1], dtype=poles.dtype), dt.unsqueeze(-1) / 2
    a = torch.linalg.solve(eye - half * matrix, eye + half * matrix)
    state = torch.linalg.solve(eye - half * matrix, 2 * half * torch.cat([drive, drive.conj()], -1).unsqueeze(-1))
    both, out = torch.cat([readout, readout.conj()], -1), []
    for _ in range(length):
        out.append((both * state.squeeze(-1)).sum(-1).real / 2)  # the sum over one of each pair is half that over both
        state = a @ state
    return torch.stack(out, dim=-1)


class Bilinear(NamedTuple):
    """The step x <- A x + input_vector u in real coordinates [Re x, Im x], with A = R - low_rank_left low_rank_right^T.

    R multiplies each pair of coordinates by the complex number rotation[n] + i rotation[N + n].
    """

    rotation: Tensor  # (H, 2N)
    low_rank_left: Tensor  # (H, 2N)
    low_rank_right: Tensor  # (H, 2N)
    input_vector: Tensor  # (H, 2N)


def bilinear(poles: Tensor, low_rank: Tensor, drive: Tensor, dt: Tensor) -> Bilinear:
    """The bilinear step by dt of x' = (diag(poles) - p p*) x + b u. Arguments are shaped as for `dplr_kernel`.

    The inverse is a diagonal and a rank-one term (Woodbury), so no matrix is factorised:

        (I - dt/2 A)^-1 = D - g (D p)(p* D),    D = 1 / (1 - dt/2 poles),    g = dt/2 / (1 + dt/2 p* D p)
        A_step = 2 (I - dt/2 A)^-1 - I,         b_step = dt (I - dt/2 A)^-1 b
    """
    inverse = 1 / (1 - dt / 2 * poles)
    right = low_rank.conj() * inverse
    # Over both of each pair, p* x is twice the real part of the sum over one.
    gain = dt / (1 + dt * (right * low_rank).real.sum(-1, keepdim=True))
    left = gain * inverse * low_rank
    start = dt * (inverse * drive - left * (right * drive).real.sum(-1, keepdim=True))
    step = 2 * inverse - 1
    return Bilinear(_pair(step), 2 * _pair(left), _pair(right.conj()), _pair(start))


def _pair(z: Tensor) -> Tensor:
    """Real and imaginary parts side by side: (..., N) complex -> (..., 2N)."""
    return torch.cat([z.real, z.imag], dim=-1)


Parts = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


@custom_op("low_rank", "cpu")
def _low_rank(
    change: Tensor, left: Tensor, right: Tensor, input_vector: Tensor, output_vector: Tensor, length: int
) -> Tensor:
    """The compiled recurrence `ssm_kernels.LowRank`, for at least `length` steps: (S, whole chunks of T, C)."""
    from levelfield.ops.compiled import simd, ssm_kernels

    system = ssm_kernels.LowRank(change, left, right, input_vector, output_vector)
    out = _outputs(output_vector, length)
    simd.parallel_for(ssm_kernels.low_rank, len(change), system, out)
    return out


@custom_op("low_rank_backward", "cpu")
def _low_rank_backward(
    change: Tensor, left: Tensor, right: Tensor, input_vector: Tensor, output_vector: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the five parts of the system from that of `_low_rank`."""
    from levelfield.ops.compiled import simd, ssm_kernels

    system = ssm_kernels.LowRank(change, left, right, input_vector, output_vector)
    grads = ssm_kernels.LowRank(*(torch.zeros_like(x) for x in system))
    simd.parallel_for(ssm_kernels.low_rank_backward, len(change), system, grad, grads)
    return tuple(grads)


def _outputs(output_vector: Tensor, length: int) -> Tensor:
    """An empty array for the outputs of at least `length` steps: (S, whole chunks of T, C)."""
    from levelfield.ops.compiled import simd, ssm_kernels

    blocks, kinds = output_vector.shape[:2]
    return output_vector.new_empty(kinds, ssm_kernels.whole(length), blocks * simd.LANES)


@_low_rank.register_fake
def _(change: Tensor, left: Tensor, right: Tensor, input_vector: Tensor, output_vector: Tensor, length: int) -> Tensor:
    return _outputs(output_vector, length)


@_low_rank_backward.register_fake
def _(change: Tensor, left: Tensor, right: Tensor, input_vector: Tensor, output_vector: Tensor, grad: Tensor) -> Parts:
    inputs = (change, left, right, input_vector, output_vector)
    return tuple(torch.empty_like(x) for x in inputs)  # pyright: ignore[reportReturnType]


class _Recurrence(torch.autograd.Function):
    """The kernel by the compiled recurrence: parts of `ssm_kernels.LowRank`, and T -> (S, T or more, 16 blocks).

    A is 1 + change - low_rank_left low_rank_right^T.
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        *parts, length = inputs
        ctx.save_for_backward(*parts)
        return _low_rank(*parts, length)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return *_low_rank_backward(*ctx.saved_tensors, grads[0].contiguous()), None


class _Kernel(torch.autograd.Function):
    """The kernel by powers of A: `Bilinear`, output_vector, (H, S, M), and T -> (H, S, T)."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        *parts, output_vector, length = inputs
        rotation, low_rank_left, low_rank_right, input_vector = parts
        channels, size = input_vector.shape
        columns = columns_for(length)
        rows = -(-length // columns)
        out = output_vector.new_empty(channels, output_vector.shape[1], length)
        right = out.new_empty(channels, columns, size)
        left = out.new_empty(channels, rows, *output_vector.shape[1:])
        powers = out.new_empty(_powers(columns, rows), channels, size, size)  # A, A^2, A^4, ...
        right[:, 0], left[:, 0] = input_vector, output_vector
        for block in _blocks(input_vector):
            if length > 1:
                _assemble(rotation[block], low_rank_left[block], low_rank_right[block], out=powers[0, block])
            _fill(powers[:, block], right[block], left[block])
            table = torch.bmm(left[block].flatten(1, 2), right[block].transpose(1, 2))  # (h, I S, J)
            table = table.unflatten(1, (rows, -1)).transpose(1, 2).flatten(2)
            out[block] = table[..., :length]
        ctx.save_for_backward(low_rank_left, low_rank_right, powers, right, left)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (grad,) = grads
        low_rank_left, low_rank_right, powers, right, left = ctx.saved_tensors
        channels, rows, kinds, size = left.shape
        columns, length = right.shape[1], grad.shape[2]
        found = [*(torch.empty_like(low_rank_left) for _ in range(4)), left.new_empty(channels, kinds, size)]
        scratch = left.new_empty(2, min(channels, _channels_at_once(low_rank_left)), size, size)
        for block in _blocks(low_rank_left):
            table = torch.nn.functional.pad(grad[block], (0, rows * columns - length))
            table = table.unflatten(2, (rows, columns)).transpose(1, 2).flatten(1, 2)  # (h, I S, J)
            tables = _Tables(right[block], left[block])
            grad_left = torch.bmm(table, tables.right).view_as(tables.left)
            grads_here = _Tables(torch.bmm(table.transpose(1, 2), tables.left.flatten(1, 2)), grad_left)
            grad_a = _fill_backward(powers[:, block], tables, grads_here, scratch[:, : table.shape[0]])
            parts = _assemble_backward(grad_a, low_rank_left[block], low_rank_right[block])
            for into, part in zip(found, [*parts, grads_here.right[:, 0], grad_left[:, 0]], strict=True):
                into[block] = part
        return *found, None


class _Tables(NamedTuple):
    """The two tables whose product is the kernel, or their gradients."""

    right: Tensor  # (A^j b)^T: (h, J, M)
    left: Tensor  # c A^iJ: (h, I, S, M)


def _channels_at_once(x: Tensor) -> int:
    """Channels of x, (H, M), whose matrices (M, M) are computed together: on a CPU as many as fit its cache."""
    return max(1, CPU_BLOCK_ELEMENTS // x.shape[1] ** 2) if x.device.type == "cpu" else x.shape[0]


def _blocks(x: Tensor) -> list[slice]:
    step = _channels_at_once(x)
    return [slice(i, i + step) for i in range(0, x.shape[0], step)]


def _assemble(rotation: Tensor, left: Tensor, right: Tensor, out: Tensor) -> None:
    """Writes A = R - left right^T to `out`, (h, M, M), from (h, M) parts."""
    half = rotation.shape[1] // 2
    torch.mul(left.unsqueeze(2), -right.unsqueeze(1), out=out)
    out.diagonal(dim1=1, dim2=2).add_(torch.cat([rotation[:, :half]] * 2, dim=1))
    out.diagonal(half, 1, 2).sub_(rotation[:, half:])
    out.diagonal(-half, 1, 2).add_(rotation[:, half:])


def _assemble_backward(grad: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of rotation, left and right, (h, M) each, from that of A, (h, M, M)."""
    half = left.shape[1] // 2
    shrink, turn = grad.diagonal(dim1=1, dim2=2), grad.diagonal(-half, 1, 2) - grad.diagonal(half, 1, 2)
    rotation = torch.cat([shrink[:, :half] + shrink[:, half:], turn], dim=1)
    grad_left, grad_right = torch.bmm(grad, right.unsqueeze(2)), torch.bmm(left.unsqueeze(1), grad)
    return rotation, -grad_left.squeeze(2), -grad_right.squeeze(1)


def _reach(rows: int) -> int:
    """How many rows of the left table are filled by doubling, a power of two; the others are filled by strides."""
    return 1 << (-(-rows // STRIDES) - 1).bit_length()


def _powers(columns: int, rows: int) -> int:
    """How many of A, A^2, A^4, ... are needed to double up to J columns and `_reach` rows, and for strides."""
    return (columns * _reach(rows)).bit_length() - (rows == _reach(rows))


def _fill(powers: Tensor, right: Tensor, left: Tensor) -> None:
    """Fills the tables of `_Tables` from their first rows, and powers, (P, h, M, M), from the first one, A."""
    columns, rows = right.shape[1], left.shape[1]
    reach = _reach(rows)
    for index, power in enumerate(powers):
        if index:
            torch.bmm(powers[index - 1], powers[index - 1], out=power)
            _flush_negligible(power)
        if (filled := 1 << index) < columns:
            right[:, filled : 2 * filled] = torch.bmm(right[:, :filled], power.transpose(1, 2))
        else:
            have = filled // columns
            for at in range(have, min(2 * have, rows) if have < reach else rows, have):
                more = min(have, rows - at)
                made = torch.bmm(left[:, at - have : at - have + more].flatten(1, 2), power)
                left[:, at : at + more] = _flush_negligible(made).unflatten(1, (more, -1))


def _flush_negligible(x: Tensor) -> Tensor:
    """Sets to zero, in place, the entries of x whose products would be subnormal. Any shape."""
    return torch.ops.aten.hardshrink.out(x, UNDERFLOW, out=x)


def _fill_backward(powers: Tensor, tables: _Tables, grads: _Tables, scratch: Tensor) -> Tensor:
    """The gradient of A, (h, M, M), from those of the tables that `_fill` made; it lies in `scratch`, (2, h, M, M).

    Overwrites `grads`, and leaves the gradients of b and c in the first rows.
    """
    (right, left), (grad_right, grad_left) = tables, grads
    columns, rows = right.shape[1], left.shape[1]
    reach = _reach(rows)
    later, here = scratch.unbind(0)  # gradients of A^2m, summed over all later doublings, and of A^m
    later.zero_()
    for index in reversed(range(powers.shape[0])):
        turned = powers[index].transpose(1, 2)
        if (filled := 1 << index) < columns:
            moved = grad_right[:, filled : 2 * filled]
            torch.bmm(moved.transpose(1, 2), right[:, :filled], out=here)
            grad_right[:, :filled] += torch.bmm(moved, powers[index])
        else:
            have = filled // columns
            end = min(2 * have, rows) if have < reach else rows
            for at in reversed(range(have, end, have)):
                more = min(have, rows - at)
                moved = torch.bmm(grad_left[:, at : at + more].flatten(1, 2), turned)
                grad_left[:, at - have : at - have + more] += moved.unflatten(1, (more, -1))
            source, moved = left[:, : end - have].flatten(1, 2), grad_left[:, have:end].flatten(1, 2)
            torch.bmm(source.transpose(1, 2), moved, out=here)
        if index + 1 < powers.shape[0]:
            here.baddbmm_(turned, later).baddbmm_(later, turned)
        later, here = _flush_negligible(here), later
    return later
