"""Continues linear recurrences from a state, a block of steps at a time.

    x[t] = A x[t - 1] + b u[t],    y[t] = Re(c x[t])

A state-space layer is trained as a convolution and generates by this recurrence. A prompt of 16,000 steps would take
16,000 iterations one step at a time; in blocks of L steps it takes T / L, each of a few matrix products:

    y = k * u  +  [c A, c A^2, ..., c A^L] x,         k = [c b, c A b, ..., c A^(L-1) b] as a triangular matrix
    x <- A^L x + [A^(L-1) b, ..., A b, b] u

A block of one step is the recurrence itself. The results equal those of the recurrences in `naive_diagonal_kernel` and
`naive_dplr_kernel`.
Letters: B batch, H channels, N states or conjugate pairs, M = 2N, T steps, L steps of a block.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 64


def step_diagonal(log_a: Tensor, weight: Tensor, u: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """The outputs of x <- exp(log_a) x + u, y = Re sum_n weight x, (B, H, T), and the state after them, (B, H, N, 2).

    log_a: (H, N), or (N,) where all channels share it, complex; weight: (H, N) complex; u: (B, H, T); state:
    (B, H, N, 2), real and imaginary parts, or None for zero. All is computed in the weight's precision.
    """
    u = u.to(weight.real.dtype).transpose(0, 1).contiguous()  # (H, B, T): products of other layouts are slow
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


def step_dense(
    a: Tensor, input_vector: Tensor, output_vector: Tensor, u: Tensor, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The outputs of x <- A x + b u, y = c x, (B, H, T), and the state after them, (B, H, M), all real.

    a: (H, M, M); input_vector (b), output_vector (c): (H, M); u: (B, H, T); state: (B, H, M), or None for zero.
    """
    u = u.to(a.dtype).transpose(0, 1).contiguous()  # (H, B, T)
    states = u.new_zeros(*u.shape[:2], a.shape[1]) if state is None else state.transpose(0, 1)
    done, parts = 0, []
    while done < u.shape[2]:
        length = min(BLOCK, 1 << (u.shape[2] - done).bit_length() - 1)  # a power of two, which doubling reaches
        inputs, outputs, power = _doubled(a, input_vector, output_vector, length)
        square, back = _triangle((inputs @ output_vector.unsqueeze(2)).squeeze(2)), inputs.flip(1)
        whole = (u.shape[2] - done) // length if length == BLOCK else 1
        for block in u[:, :, done : done + whole * length].split(length, dim=2):
            parts.append(block @ square + states @ outputs.mT)
            states = states @ power.mT + block @ back
        done += whole * length
    return torch.cat(parts, 2).transpose(0, 1), states.transpose(0, 1)


def dense(rotation: Tensor, low_rank_left: Tensor, low_rank_right: Tensor) -> Tensor:
    """The matrices A of a `levelfield.ops.ssm.dplr.Bilinear`, (H, M, M), from its (H, M) parts."""
    shrink, turn = (torch.diag_embed(part) for part in rotation.chunk(2, -1))
    turned = torch.cat([torch.cat([shrink, -turn], 2), torch.cat([turn, shrink], 2)], 1)
    return turned - low_rank_left.unsqueeze(2) * low_rank_right.unsqueeze(1)


def _doubled(a: Tensor, input_vector: Tensor, output_vector: Tensor, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """A^j b for j < L and c A^(j+1), (H, L, M) each, and A^L, (H, M, M), by doubling. length: L, a power of two."""
    inputs, outputs, power = input_vector.unsqueeze(1), output_vector.unsqueeze(1) @ a, a
    while inputs.shape[1] < length:
        inputs = torch.cat([inputs, inputs @ power.mT], 1)
        outputs = torch.cat([outputs, outputs @ power], 1)
        power = power @ power
    return inputs, outputs, power


def _triangle(kernel: Tensor) -> Tensor:
    """The matrix of a causal convolution, (H, L) -> (H, L, L): kernel[t - s] at [s, t], zero below the diagonal."""
    length = kernel.shape[1]
    steps = torch.arange(length, device=kernel.device)
    lags = steps - steps.unsqueeze(1)
    return kernel[:, lags.clamp(min=0)] * (lags >= 0)


def _apart(z: Tensor) -> Tensor:
    """Real and imaginary parts side by side: (..., N) -> (..., 2N)."""
    return torch.cat([z.real, z.imag], -1)
