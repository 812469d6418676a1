"""S4's convolution kernel by powers of a small real matrix: no Cauchy kernel, no complex numbers, no maximal length.

A diagonal-plus-low-rank (DPLR) model x' = (diag(poles) - p p*) x + b u, y = Re(c x), stepped bilinearly by dt, has the
kernel k[t] = c A^t b. With t = i J + j that is a product of two tables, each filled by doubling (a power A^m applied to
the m rows that are there gives the next m) and the left one, in the end, by striding with the last power.

    k as an I x J table  =  [c; c A^J; c A^2J; ...]  @  [b, A b, ..., A^(J-1) b],      I J >= T,  I, J near sqrt(T)

On conjugate pairs A is a real 2N x 2N matrix of norm at most 1, so the about log2(T) squarings stay accurate in
float32 (relative error near 1e-5 up to 64K steps) and everything is a batched real product:

    k = dplr_kernel(poles, low_rank, drive, readout, dt, 4096)      # readout: (S, H, N) complex; k: (S, H, 4096)

On a CPU, shorter kernels run the recurrence instead, compiled (`levelfield.ops.compiled.ssm_kernels`).
Letters: S kernels per channel (2 for two directions), H channels, N conjugate pairs, T steps; M = 2N.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from levelfield.ops.ssm.diagonal import columns_for

COMPILED = "cpu"  # the device where short kernels are compiled
SHORT = 8192  # steps up to which the recurrence itself costs less than the powers do
CPU_BLOCK = 1 << 17  # elements of the batch of matrices worked on at a time: 32 of 64 x 64, 512 KiB
STRIDES = 16  # how many times the last power is applied instead of squaring it further, which costs more


NEGLIGIBLE = 1e-19  # entries taken as zero: products of two stay clear of float32's slow subnormal numbers


def dplr_kernel(poles: Tensor, low_rank: Tensor, drive: Tensor, readout: Tensor, dt: Tensor, length: int) -> Tensor:
    """S4's kernel, Re(c A^t b) for t < length, A and b from `bilinear`: (S, H, T) in the readout's precision.

    poles, low_rank (p), drive (b): (H, N) complex, one of each conjugate pair, poles with negative real part;
    readout (c): (S, H, N) complex; dt: (H, 1). The first four may be float64 while readout is float32.
    amos2025 equations 2.1-2.4. Equal to `naive_dplr_kernel`.
    """
    dtype = readout.real.dtype
    if readout.device.type == COMPILED and length <= SHORT:
        from levelfield.ops.compiled.simd import to_blocks

        step, *others = (torch.complex(*part.chunk(2, -1)) for part in bilinear(poles, low_rank, drive, dt))
        parts = [to_blocks(part).to(dtype) for part in (step - 1, *others)]
        out: Tensor = _Recurrence.apply(*parts, to_blocks(readout.conj()), length)  # pyright: ignore[reportAssignmentType]
        return out[:, :length, : readout.shape[1]].transpose(1, 2)
    rotation, column, row, start = (part.to(dtype) for part in bilinear(poles, low_rank, drive, dt))
    ends = torch.cat([readout.real, -readout.imag], dim=-1).transpose(0, 1).contiguous()
    kernel: Tensor = _Kernel.apply(rotation, column, row, start, ends, length)  # pyright: ignore[reportAssignmentType]
    return kernel.transpose(0, 1)


def naive_dplr_kernel(
    poles: Tensor, low_rank: Tensor, drive: Tensor, readout: Tensor, dt: Tensor, length: int
) -> Tensor:
    """`dplr_kernel` from the complex 2N x 2N matrices themselves: a linear solve, then the recurrence."""
    poles, p = torch.cat([poles, poles.conj()], -1), torch.cat([low_rank, low_rank.conj()], -1)
    matrix = torch.diag_embed(poles) - p.unsqueeze(-1) * p.conj().unsqueeze(-2)
    eye, half = torch.eye(poles.shape[-1], dtype=poles.dtype), dt.unsqueeze(-1) / 2
    a = torch.linalg.solve(eye - half * matrix, eye + half * matrix)
    state = torch.linalg.solve(eye - half * matrix, 2 * half * torch.cat([drive, drive.conj()], -1).unsqueeze(-1))
    both, out = torch.cat([readout, readout.conj()], -1), []
    for _ in range(length):
        out.append((both * state.squeeze(-1)).sum(-1).real / 2)  # over one of each pair: half the sum over both
        state = a @ state
    return torch.stack(out, dim=-1)


def bilinear(poles: Tensor, low_rank: Tensor, drive: Tensor, dt: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The bilinear step of diag(poles) - p p*, in real coordinates [Re x, Im x]: rotation, column, row, start: (H, 2N).

    A = R - column row^T, where R turns and shrinks each pair by the complex number rotation[n] + i rotation[N + n];
    start is the stepped drive. The inverse is a diagonal and a rank-one term (Woodbury), so nothing is factorised:

        (I - dt/2 A)^-1 = D - g (D p)(p* D),    D = 1 / (1 - dt/2 poles),    g = dt/2 / (1 + dt/2 p* D p)
        A_step = 2 (I - dt/2 A)^-1 - I,         b_step = dt (I - dt/2 A)^-1 b
    """
    inverse = 1 / (1 - dt / 2 * poles)
    row = low_rank.conj() * inverse
    # Over both of each pair, p* x is twice the real part of the sum over one.
    gain = dt / (1 + dt * (row * low_rank).real.sum(-1, keepdim=True))
    column = gain * inverse * low_rank
    start = dt * (inverse * drive - column * (row * drive).real.sum(-1, keepdim=True))
    step = 2 * inverse - 1
    return _pair(step), 2 * _pair(column), _pair(row.conj()), _pair(start)


def _pair(z: Tensor) -> Tensor:
    return torch.cat([z.real, z.imag], dim=-1)


Blocks = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


@torch.library.custom_op("levelfield::low_rank", mutates_args=(), device_types="cpu")
def _low_rank(change: Tensor, column: Tensor, row: Tensor, start: Tensor, ends: Tensor, length: int) -> Tensor:
    from levelfield.ops.compiled import simd, ssm_kernels

    out = ends.new_empty(ends.shape[1], ssm_kernels.whole(length), len(ends) * simd.LANES)
    simd.spread(ssm_kernels.low_rank, len(ends), change, column, row, start, ends, out)
    return out


@torch.library.custom_op("levelfield::low_rank_backward", mutates_args=(), device_types="cpu")
def _low_rank_pull(
    change: Tensor, column: Tensor, row: Tensor, start: Tensor, ends: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    from levelfield.ops.compiled import simd, ssm_kernels

    inputs = (change, column, row, start, ends)
    pulled = (
        torch.zeros_like(change),
        torch.zeros_like(column),
        torch.zeros_like(row),
        torch.zeros_like(start),
        torch.zeros_like(ends),
    )
    simd.spread(ssm_kernels.low_rank_pull, len(change), *inputs, grad, *pulled)
    return pulled


@_low_rank.register_fake
def _(change: Tensor, column: Tensor, row: Tensor, start: Tensor, ends: Tensor, length: int) -> Tensor:
    from levelfield.ops.compiled import simd, ssm_kernels

    return ends.new_empty(ends.shape[1], ssm_kernels.whole(length), len(ends) * simd.LANES)


@_low_rank_pull.register_fake
def _(change: Tensor, column: Tensor, row: Tensor, start: Tensor, ends: Tensor, grad: Tensor) -> Blocks:
    inputs = (change, column, row, start, ends)
    return tuple(torch.empty_like(x) for x in inputs)  # pyright: ignore[reportReturnType]


class _Recurrence(torch.autograd.Function):
    """change (A is 1 + change - column row^T), column, row, start: (blocks, N, 2, 16), ends: (blocks, S, N, 2, 16).

    Returns (S, T or a little more, 16 blocks).
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        *parts, length = inputs
        ctx.save_for_backward(*parts)
        return _low_rank(*parts, length)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return *_low_rank_pull(*ctx.saved_tensors, grads[0].contiguous()), None


class _Kernel(torch.autograd.Function):
    """rotation, column, row, start: (H, M), ends: (H, S, M) -> (H, S, T), a block of channels at a time."""

    @staticmethod
    def forward(
        ctx: Any, rotation: Tensor, column: Tensor, row: Tensor, start: Tensor, ends: Tensor, length: int
    ) -> Tensor:
        channels, size = start.shape
        columns = columns_for(length)
        rows = -(-length // columns)
        out = start.new_empty(channels, ends.shape[1], length)
        right, left = start.new_empty(channels, columns, size), start.new_empty(channels, rows, *ends.shape[1:])
        powers = start.new_empty(_powers(columns, rows), channels, size, size)  # A, A^2, A^4, ...
        right[:, 0], left[:, 0] = start, ends
        for block in _blocks(start):
            if length > 1:
                _assemble(rotation[block], column[block], row[block], out=powers[0, block])
            _fill(powers[:, block], right[block], left[block])
            table = torch.bmm(left[block].flatten(1, 2), right[block].transpose(1, 2))  # (h, I S, J)
            table = table.unflatten(1, (rows, -1)).transpose(1, 2).flatten(2)
            out[block] = table[..., :length]
        ctx.save_for_backward(column, row, powers, right, left)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (grad,) = grads
        column, row, powers, right, left = ctx.saved_tensors
        channels, rows, kinds, size = left.shape
        columns, length = right.shape[1], grad.shape[2]
        given = [torch.empty_like(column) for _ in range(4)] + [column.new_empty(channels, kinds, size)]
        scratch = column.new_empty(2, min(channels, _step(column)), size, size)
        for block in _blocks(column):
            table = torch.nn.functional.pad(grad[block], (0, rows * columns - length))
            table = table.unflatten(2, (rows, columns)).transpose(1, 2).flatten(1, 2)  # (h, I S, J)
            grad_left = torch.bmm(table, right[block]).view_as(left[block])
            grad_right = torch.bmm(table.transpose(1, 2), left[block].flatten(1, 2))
            some = scratch[:, : table.shape[0]]
            grad_a = _unfill(powers[:, block], right[block], left[block], grad_right, grad_left, some)
            parts = _disassemble(grad_a, column[block], row[block])
            for store, part in zip(given, [*parts, grad_right[:, 0], grad_left[:, 0]], strict=True):
                store[block] = part
        return *given, None


def _step(start: Tensor) -> int:
    """Channels worked on at a time: on a CPU as many as leave their matrices in cache."""
    return max(1, CPU_BLOCK // start.shape[1] ** 2) if start.device.type == "cpu" else start.shape[0]


def _blocks(start: Tensor) -> list[slice]:
    step = _step(start)
    return [slice(i, i + step) for i in range(0, start.shape[0], step)]


def _assemble(rotation: Tensor, column: Tensor, row: Tensor, out: Tensor) -> None:
    """out: (h, M, M) = R - column row^T."""
    half = rotation.shape[1] // 2
    torch.mul(column.unsqueeze(2), -row.unsqueeze(1), out=out)
    out.diagonal(dim1=1, dim2=2).add_(torch.cat([rotation[:, :half]] * 2, dim=1))
    out.diagonal(half, 1, 2).sub_(rotation[:, half:])
    out.diagonal(-half, 1, 2).add_(rotation[:, half:])


def _disassemble(grad: Tensor, column: Tensor, row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of rotation, column and row from that of A: (h, M, M) -> three of (h, M)."""
    half = column.shape[1] // 2
    shrink, turn = grad.diagonal(dim1=1, dim2=2), grad.diagonal(-half, 1, 2) - grad.diagonal(half, 1, 2)
    rotation = torch.cat([shrink[:, :half] + shrink[:, half:], turn], dim=1)
    by_row, by_column = torch.bmm(grad, row.unsqueeze(2)), torch.bmm(column.unsqueeze(1), grad)
    return rotation, -by_row.squeeze(2), -by_column.squeeze(1)


def _reach(rows: int) -> int:
    """How many rows of the left table are made by doubling: a power of two; the others are strides away."""
    return 1 << (-(-rows // STRIDES) - 1).bit_length()


def _powers(columns: int, rows: int) -> int:
    """How many of A, A^2, A^4, ... are needed to double up to J columns and `_reach` rows, and to stride."""
    return (columns * _reach(rows)).bit_length() - (rows == _reach(rows))


def _fill(powers: Tensor, right: Tensor, left: Tensor) -> None:
    """From A and first rows: powers (P, h, M, M), right (h, J, M) = (A^j b)^T, left (h, I, S, M) = c A^iJ."""
    columns, rows = right.shape[1], left.shape[1]
    reach = _reach(rows)
    for index, power in enumerate(powers):
        if index:
            torch.bmm(powers[index - 1], powers[index - 1], out=power)
            _drop_negligible(power)
        if (filled := 1 << index) < columns:
            right[:, filled : 2 * filled] = torch.bmm(right[:, :filled], power.transpose(1, 2))
        else:
            have = filled // columns
            for at in range(have, min(2 * have, rows) if have < reach else rows, have):
                more = min(have, rows - at)
                made = torch.bmm(left[:, at - have : at - have + more].flatten(1, 2), power)
                left[:, at : at + more] = _drop_negligible(made).unflatten(1, (more, -1))


def _drop_negligible(x: Tensor) -> Tensor:
    return torch.ops.aten.hardshrink.out(x, NEGLIGIBLE, out=x)


def _unfill(
    powers: Tensor, right: Tensor, left: Tensor, grad_right: Tensor, grad_left: Tensor, scratch: Tensor
) -> Tensor:
    """`_fill` backwards: the gradient of A, (h, M, M), in one of the two scratch matrices.

    Leaves the gradients of b and c in the first rows of grad_right and grad_left, which it overwrites.
    """
    columns, rows = right.shape[1], left.shape[1]
    reach = _reach(rows)
    later, here = scratch.unbind(0)  # gradient of A^2m, gathered from all later doublings; of A^m
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
        later, here = _drop_negligible(here), later
    return later
