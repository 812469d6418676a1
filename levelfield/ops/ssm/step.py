"""Linear recurrences that go on from a state, a block of steps at a time.

    x[t] = A x[t - 1] + b u[t],    y[t] = Re(c x[t])

Trained as a convolution, a state-space layer is run as this recurrence when it generates. One step at a time it would
take a prompt of 16,000 steps as many turns; in blocks of L it takes T / L, each of a few matrix products:

    y = k * u  +  [c A, c A^2, ..., c A^L] x,         k = [c b, c A b, ..., c A^(L-1) b] as a triangular matrix
    x <- A^L x + [A^(L-1) b, ..., A b, b] u

A block of one step is the recurrence itself. Equal to running `naive_diagonal_kernel` and `naive_dplr_kernel`'s
recurrences. Letters: B batch, H channels, N states or conjugate pairs, M = 2N, T steps, L steps of a block.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 64


def step_diagonal(log_a: Tensor, weight: Tensor, u: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """x <- exp(log_a) x + u, y = Re sum_n weight x, in the weight's precision.

    log_a: (H, N), or (N,) where all channels share it, complex; weight: (H, N) complex; u: (B, H, T); state:
    (B, H, N, 2), real and imaginary parts, or None for zero -> y (B, H, T) and the state after them.
    """
    u = u.to(weight.real.dtype).transpose(0, 1).contiguous()  # (H, B, T): other layouts make slow products
    states = weight.new_zeros(*u.shape[:2], weight.shape[1])
    if state is not None:
        states = torch.view_as_complex(state).transpose(0, 1)  # (H, B, N)
    steps = torch.arange(min(BLOCK, u.shape[2]) + 1, device=u.device)
    powers = torch.exp(log_a.unsqueeze(-1) * steps).to(weight.dtype)  # (..., N, L + 1)
    table = torch.cat([powers.real, -powers.imag], -2)  # (..., 2N, L + 1): real products are faster than complex ones
    back = torch.cat([powers.real, powers.imag], -2)[..., :-1].flip(-1).mT.contiguous()  # (..., L, 2N)
    square = _triangle((_apart(weight).unsqueeze(1) @ table[..., :-1]).squeeze(1))
    parts = []
    for block in u.split(BLOCK, dim=2):
        length = block.shape[2]
        seen = _apart(states * weight.unsqueeze(1)) @ table[..., 1 : length + 1]
        parts.append(block @ square[:, :length, :length] + seen)
        fresh = torch.complex(*(block @ back[..., -length:, :]).chunk(2, -1))
        states = states * powers[..., length].unsqueeze(-2) + fresh
    return torch.cat(parts, 2).transpose(0, 1), torch.view_as_real(states.transpose(0, 1).contiguous())


def step_dense(a: Tensor, start: Tensor, ends: Tensor, u: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """x <- A x + b u, y = c x, all real. a: (H, M, M); start (b), ends (c): (H, M); u: (B, H, T); state: (B, H, M), or
    None for zero -> y (B, H, T) and the state after them."""
    u = u.to(a.dtype).transpose(0, 1).contiguous()  # (H, B, T)
    states = u.new_zeros(*u.shape[:2], a.shape[1]) if state is None else state.transpose(0, 1)
    done, parts = 0, []
    while done < u.shape[2]:
        length = min(BLOCK, 1 << (u.shape[2] - done).bit_length() - 1)  # a power of two, which doubling reaches
        inputs, outputs, power = _doubled(a, start, ends, length)
        square, back = _triangle((inputs @ ends.unsqueeze(2)).squeeze(2)), inputs.flip(1)
        whole = (u.shape[2] - done) // length if length == BLOCK else 1
        for block in u[:, :, done : done + whole * length].split(length, dim=2):
            parts.append(block @ square + states @ outputs.mT)
            states = states @ power.mT + block @ back
        done += whole * length
    return torch.cat(parts, 2).transpose(0, 1), states.transpose(0, 1)


def dense(rotation: Tensor, column: Tensor, row: Tensor) -> Tensor:
    """R - column row^T as matrices, from the (H, M) parts that `levelfield.ops.ssm.dplr.bilinear` gives: (H, M, M)."""
    shrink, turn = (torch.diag_embed(part) for part in rotation.chunk(2, -1))
    turned = torch.cat([torch.cat([shrink, -turn], 2), torch.cat([turn, shrink], 2)], 1)
    return turned - column.unsqueeze(2) * row.unsqueeze(1)


def _doubled(a: Tensor, start: Tensor, ends: Tensor, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """A^j b for j < L and c A^(j+1), both (H, L, M), and A^L, by doubling. length: a power of two."""
    inputs, outputs, power = start.unsqueeze(1), ends.unsqueeze(1) @ a, a
    while inputs.shape[1] < length:
        inputs = torch.cat([inputs, inputs @ power.mT], 1)
        outputs = torch.cat([outputs, outputs @ power], 1)
        power = power @ power
    return inputs, outputs, power


def _triangle(kernel: Tensor) -> Tensor:
    """(H, L) -> (H, L, L) with kernel[t - s] at [s, t], zero below."""
    length = kernel.shape[1]
    steps = torch.arange(length, device=kernel.device)
    lags = steps - steps.unsqueeze(1)
    return kernel[:, lags.clamp(min=0)] * (lags >= 0)


def _apart(z: Tensor) -> Tensor:
    """Real and imaginary parts, (..., N) -> (..., 2N)."""
    return torch.cat([z.real, z.imag], -1)
