"""First-order linear recurrences along the steps, real or complex: the core of diagonal recurrent layers.

    h[t] = a[t] h[t - 1] + b[t]

    h = scan(a, b)                              # a: (N,) for all steps, or (B, T, N) like b
    h = scan(a, b, initial=h[:, -1])            # goes on
    h = scan(a, b, reverse=True)                # from the last step to the first

Only a and h are kept for the backward, which is the same recurrence run the other way. On a CPU both are compiled loops
at the speed of memory (`levelfield.ops.compiled.scan`); elsewhere, steps are combined in pairs, then pairs of pairs, so
that the depth is the logarithm of T. Nothing is divided by a product of coefficients: they may be zero. Letters: B
batch, T steps, N channels.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

CHUNK = 32  # steps combined before what they amount to is passed on, where nothing is compiled


def scan(a: Tensor, b: Tensor, initial: Tensor | None = None, reverse: bool = False) -> Tensor:
    """The states h: (B, T, N). a: (N,) or (B, T, N), b: (B, T, N), initial: (B, N), or None for zeros.

    All of one type: float32, float64 or their complex ones. Raises ValueError on other shapes and types. Equal to
    `naive_scan`.
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
    """`scan`, step by step."""
    state = b.new_zeros(b.shape[0], b.shape[2]) if initial is None else initial
    steps = [state] * b.shape[1]
    for t in reversed(range(b.shape[1])) if reverse else range(b.shape[1]):
        state = (a if a.ndim == 1 else a[:, t]) * state + b[:, t]
        steps[t] = state
    return torch.stack(steps, 1)


def paired_states(a: Tensor, b: Tensor, initial: Tensor, reverse: bool) -> Tensor:
    """`scan` on checked arguments, in torch's operations."""
    if reverse:
        return _paired(_flip(a), b.flip(1), initial).flip(1)
    return _paired(a, b, initial)


def paired_pull(a: Tensor, h: Tensor, initial: Tensor, grad: Tensor, reverse: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of a, b and initial from that of h."""
    if reverse:
        grad_a, grad_b, grad_initial = paired_pull(_flip(a), h.flip(1), initial, grad.flip(1), False)
        return _flip(grad_a), grad_b.flip(1), grad_initial
    before = torch.cat([initial.unsqueeze(1), h[:, :-1]], 1).conj()
    turned = a.conj()
    later = turned if a.ndim == 1 else torch.cat([turned[:, 1:], torch.zeros_like(turned[:, :1])], 1)
    grad_b = paired_states(later, grad, torch.zeros_like(initial), True)
    first, grad_a = (turned, (grad_b * before).sum((0, 1))) if a.ndim == 1 else (turned[:, 0], grad_b * before)
    return grad_a, grad_b, first * grad_b[:, 0]


# Operators of our own, because passes that count work run them on tensors without values, which no loop can read.
states = torch.library.custom_op(
    "levelfield::states", mutates_args=(), schema="(Tensor a, Tensor b, Tensor initial, bool reverse) -> Tensor"
)(paired_states)
pull = torch.library.custom_op(
    "levelfield::states_backward",
    mutates_args=(),
    schema="(Tensor a, Tensor h, Tensor initial, Tensor grad, bool reverse) -> (Tensor, Tensor, Tensor)",
)(paired_pull)


def _flip(a: Tensor) -> Tensor:
    return a.clone() if a.ndim == 1 else a.flip(1)


def _paired(a: Tensor, b: Tensor, initial: Tensor) -> Tensor:
    a = a.expand(1, b.shape[1], -1) if a.ndim == 1 else a
    return _combine(a, torch.cat([b[:, :1] + (a[:, 0] * initial).unsqueeze(1), b[:, 1:]], 1))


def _combine(a: Tensor, b: Tensor) -> Tensor:
    """States from zero. a: (B or 1, T, N), b: (B, T, N): chunk by chunk, then over the chunks' ends, and so on."""
    length = b.shape[1]
    if length <= CHUNK:
        return _double(a, b)[1]
    a, b = _double(*(F.pad(x, (0, 0, 0, -length % CHUNK)).unflatten(1, (-1, CHUNK)) for x in (a, b)))
    ends = _combine(a[:, :, -1], b[:, :, -1])
    return torch.cat([b[:, :1], b[:, 1:] + a[:, 1:] * ends[:, :-1].unsqueeze(2)], 1).flatten(1, 2)[:, :length]


def _double(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Running products of a, and states from zero, along the last axis but one: each step joins twice as many."""
    span = 1
    while span < b.shape[-2]:
        b = torch.cat([b[..., :span, :], b[..., span:, :] + a[..., span:, :] * b[..., :-span, :]], -2)
        a = torch.cat([a[..., :span, :], a[..., span:, :] * a[..., :-span, :]], -2)
        span *= 2
    return a, b


@states.register_kernel("cpu")
def _states_compiled(a: Tensor, b: Tensor, initial: Tensor, reverse: bool) -> Tensor:
    from levelfield.ops.compiled import scan as sweep
    from levelfield.ops.compiled import simd

    h = torch.empty_like(b, memory_format=torch.contiguous_format)
    arrays = (a.reshape(-1, a.shape[-1]).contiguous(), b.contiguous(), initial.contiguous(), h)
    simd.spread(sweep.run, len(b), *arrays, not reverse)
    return h


@pull.register_kernel("cpu")
def _pull_compiled(a: Tensor, h: Tensor, initial: Tensor, grad: Tensor, reverse: bool) -> tuple[Tensor, Tensor, Tensor]:
    from levelfield.ops.compiled import scan as sweep
    from levelfield.ops.compiled import simd

    rows, initial = a.reshape(-1, a.shape[-1]).contiguous(), initial.contiguous()
    grad_a = torch.empty_like(rows) if a.ndim == 3 else torch.zeros_like(initial)
    grad_b, grad_initial = torch.empty_like(h), torch.empty_like(initial)
    arrays = (rows, h, initial, grad.resolve_conj().contiguous(), grad_a, grad_b, grad_initial)
    simd.spread(sweep.pull, len(h), *arrays, not reverse)
    return grad_a.view(a.shape) if a.ndim == 3 else grad_a.sum(0), grad_b, grad_initial


@states.register_fake
def _(a: Tensor, b: Tensor, initial: Tensor, reverse: bool) -> Tensor:
    return torch.empty_like(b, memory_format=torch.contiguous_format)


@pull.register_fake
def _(a: Tensor, h: Tensor, initial: Tensor, grad: Tensor, reverse: bool) -> tuple[Tensor, Tensor, Tensor]:
    return a.new_empty(a.shape), h.new_empty(h.shape), initial.new_empty(initial.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, _, initial, ctx.reverse = inputs
    ctx.save_for_backward(a, output, initial)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return *pull(*ctx.saved_tensors, grad, ctx.reverse), None


states.register_autograd(_backward, setup_context=_keep)
