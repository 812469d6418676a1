"""Computes first-order linear recurrences along the steps, real or complex, the core of diagonal recurrent layers.

    h[t] = a[t] h[t - 1] + b[t]

    h = scan(a, b)                              # a: (N,) for all steps, or (B, T, N) like b
    h = scan(a, b, initial=h[:, -1])            # continues
    h = scan(a, b, reverse=True)                # from the last step to the first

The backward pass keeps only a and h, and is the same recurrence in the other direction. On a CPU both are compiled
loops at the speed of memory (`levelfield.ops.compiled.scan`). On other devices steps are combined in pairs, then in
pairs of pairs, so that the depth is the logarithm of T. Coefficients may be zero, because nothing is divided by their
products.
Letters: B batch, T steps, N channels.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from levelfield.ops.custom import custom_op
from levelfield.ops.opaque import opaque

CHUNK = 32  # steps combined before their result is passed on, where nothing is compiled


@opaque
def scan(a: Tensor, b: Tensor, initial: Tensor | None = None, reverse: bool = False) -> Tensor:
    """The states h: (B, T, N). a: (N,) or (B, T, N); b: (B, T, N); initial: (B, N), or None for zeros.

    All are of one type: float32, float64 or their complex counterparts. Raises ValueError on other shapes and types.
    Equal to `naive_scan`.
    """
    if b.ndim != 3 or a.shape not in (b.shape, b.shape[2:]) or b.shape[1] == 0:
        raise ValueError(f"b must be (B, T, N) and a (N,) or (B, T, N), not {tuple(b.shape)} and {tuple(a.shape)}.")
    if initial is None:
        initial = b.new_zeros(b.shape[0], b.shape[2])
    if not a.dtype == b.dtype == initial.dtype or b.dtype not in TYPES:
        raise ValueError(f"a scan is of one type, float32 or wider: {a.dtype}, {b.dtype} and {initial.dtype}.")
    return states(a.resolve_conj(), b.resolve_conj(), initial.resolve_conj(), reverse)


TYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def naive_scan(a: Tensor, b: Tensor, initial: Tensor | None = None, reverse: bool = False) -> Tensor:
    """`scan` step by step. Arguments and result have the same shapes."""
    state = b.new_zeros(b.shape[0], b.shape[2]) if initial is None else initial
    steps = [state] * b.shape[1]
    for t in reversed(range(b.shape[1])) if reverse else range(b.shape[1]):
        state = (a if a.ndim == 1 else a[:, t]) * state + b[:, t]
        steps[t] = state
    return torch.stack(steps, 1)


def paired_states(a: Tensor, b: Tensor, initial: Tensor, reverse: bool) -> Tensor:
    """`scan` in torch's operations, on checked arguments of its shapes: (B, T, N)."""
    if reverse:
        return _paired(_flip(a), b.flip(1), initial).flip(1)
    return _paired(a, b, initial)


def paired_states_backward(
    a: Tensor, h: Tensor, initial: Tensor, grad: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of a, b and initial, in their shapes, from that of h, `grad`: (B, T, N)."""
    if reverse:
        grad_a, grad_b, grad_initial = paired_states_backward(_flip(a), h.flip(1), initial, grad.flip(1), False)
        return _flip(grad_a), grad_b.flip(1), grad_initial
    before = torch.cat([initial.unsqueeze(1), h[:, :-1]], 1).conj()
    turned = a.conj()
    later = turned if a.ndim == 1 else torch.cat([turned[:, 1:], torch.zeros_like(turned[:, :1])], 1)
    grad_b = paired_states(later, grad, torch.zeros_like(initial), True)
    first, grad_a = (turned, (grad_b * before).sum((0, 1))) if a.ndim == 1 else (turned[:, 0], grad_b * before)
    return grad_a, grad_b, first * grad_b[:, 0]


# Custom operators, because passes that count work run them on tensors without values, which no loop can read.
states = custom_op("states")(paired_states)
states_backward = custom_op("states_backward")(paired_states_backward)


def _flip(a: Tensor) -> Tensor:
    return a.clone() if a.ndim == 1 else a.flip(1)


def _paired(a: Tensor, b: Tensor, initial: Tensor) -> Tensor:
    """`paired_states` forwards: the initial state enters with the first step."""
    a = a.expand(1, b.shape[1], -1) if a.ndim == 1 else a
    return _combine(a, torch.cat([b[:, :1] + (a[:, 0] * initial).unsqueeze(1), b[:, 1:]], 1))


def _combine(a: Tensor, b: Tensor) -> Tensor:
    """States from an initial state of zero: (B, T, N). a: (B or 1, T, N); b: (B, T, N).

    Each chunk is computed first, then the recurrence over the chunks' ends in the same way.
    """
    length = b.shape[1]
    if length <= CHUNK:
        return _double(a, b)[1]
    a, b = _double(*(F.pad(x, (0, 0, 0, -length % CHUNK)).unflatten(1, (-1, CHUNK)) for x in (a, b)))
    ends = _combine(a[:, :, -1], b[:, :, -1])
    return torch.cat([b[:, :1], b[:, 1:] + a[:, 1:] * ends[:, :-1].unsqueeze(2)], 1).flatten(1, 2)[:, :length]


def _double(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Cumulative products of a and states from zero along the last axis but one, of shapes like a and b.

    Every pass doubles the number of steps that are combined.
    """
    span = 1
    while span < b.shape[-2]:
        b = torch.cat([b[..., :span, :], b[..., span:, :] + a[..., span:, :] * b[..., :-span, :]], -2)
        a = torch.cat([a[..., :span, :], a[..., span:, :] * a[..., :-span, :]], -2)
        span *= 2
    return a, b


@states.register_kernel("cpu")
def _states_compiled(a: Tensor, b: Tensor, initial: Tensor, reverse: bool) -> Tensor:
    from levelfield.ops.compiled import scan as scan_loop
    from levelfield.ops.compiled import simd

    h = torch.empty_like(b, memory_format=torch.contiguous_format)
    arrays = (a.reshape(-1, a.shape[-1]).contiguous(), b.contiguous(), initial.contiguous(), h)
    simd.parallel_for(scan_loop.forward, len(b), *arrays, not reverse)
    return h


@states_backward.register_kernel("cpu")
def _states_backward_compiled(
    a: Tensor, h: Tensor, initial: Tensor, grad: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    from levelfield.ops.compiled import scan as scan_loop
    from levelfield.ops.compiled import simd

    rows, initial = a.reshape(-1, a.shape[-1]).contiguous(), initial.contiguous()
    grad_a = torch.empty_like(rows) if len(rows) > 1 else torch.zeros_like(initial)  # also of one step of one sequence
    grad_b, grad_initial = torch.empty_like(h), torch.empty_like(initial)
    arrays = (rows, h, initial, grad.resolve_conj().contiguous())
    grads = scan_loop.Gradients(grad_a, grad_b, grad_initial)
    simd.parallel_for(scan_loop.backward, len(h), *arrays, grads, not reverse)
    return grad_a.view(a.shape) if a.ndim == 3 else grad_a.sum(0), grad_b, grad_initial


@states.register_fake
def _(a: Tensor, b: Tensor, initial: Tensor, reverse: bool) -> Tensor:
    return torch.empty_like(b, memory_format=torch.contiguous_format)


@states_backward.register_fake
def _(a: Tensor, h: Tensor, initial: Tensor, grad: Tensor, reverse: bool) -> tuple[Tensor, Tensor, Tensor]:
    return a.new_empty(a.shape), h.new_empty(h.shape), initial.new_empty(initial.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, _, initial, ctx.reverse = inputs
    ctx.save_for_backward(a, output, initial)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return *states_backward(*ctx.saved_tensors, grad, ctx.reverse), None


states.register_autograd(_backward, setup_context=_keep)
