"""Causal linear attention that forgets nothing: sums over the steps so far, taken a chunk at a time.

    S_t = S_{t-1} + k_t v_t^T,    z_t = z_{t-1} + k_t,    y_t = q_t S_t / (q_t . z_t + eps)      S: (K, V), z: (K,)

Within a chunk the pairs of steps are products of small matrices; from chunk to chunk go S and z (katharopoulos2020,
equations 16 to 20). What `decay_by_head.py` does for a past that fades, without the decays and with the denominator
beside the values instead of among them. The backward keeps y, the denominators and the sums between chunks.
Letters: B batch, T steps, H heads, K key and V value channels, n rows, m chunks, c steps in a chunk.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from levelfield.ops.linear_attention.chunks import Segment, count, pieces, place, segments

CHUNK = 64


def attend_by_sums(
    q: Tensor, k: Tensor, v: Tensor, memory: Tensor, total: Tensor, eps: float, chunk: int = CHUNK
) -> tuple[Tensor, Tensor, Tensor]:
    """y, (B, T, H, V), and S and z after the last step. All of one type, float32 or wider.

    q, k: (B, T, H, K), none negative; v: (B, T, H, V); memory: S before the first step, (B, H, K, V); total: z there,
    (B, H, K, 1).
    """
    if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, memory, total)):
        return _Sums.apply(q, k, v, memory, total, eps, chunk)  # pyright: ignore[reportReturnType]
    return _forward(q, k, v, memory, total, eps, chunk, keep=False)[0]


class _Kept(NamedTuple):
    """What the backward wants of the forward besides y."""

    scale: Tensor  # q . z + eps: (B, T, H, 1)
    memories: Tensor  # S before and after every chunk: (B, chunks + 1, H, K, V)
    totals: Tensor  # z there: (B, chunks + 1, H, K, 1)


def _forward(
    q: Tensor, k: Tensor, v: Tensor, memory: Tensor, total: Tensor, eps: float, chunk: int, keep: bool
) -> tuple[tuple[Tensor, Tensor, Tensor], _Kept]:
    """y and the last sums; without `keep`, what is kept is empty."""
    batch, length, heads, values = v.shape
    carry = (memory.clone(memory_format=torch.contiguous_format), total.clone(memory_format=torch.contiguous_format))
    y = torch.empty_like(v, memory_format=torch.contiguous_format)
    kept = _Kept(
        y.new_empty(batch, length if keep else 0, heads, 1),
        *(y.new_empty(batch, count(length, chunk) + 1 if keep else 0, *x.shape[1:]) for x in carry),
    )
    for part in segments(batch, length, chunk, heads * values, v.device):
        qs, ks, vs = (pieces(x, part).contiguous() for x in (q, k, v))  # (n, m, H, c, X)
        if keep:
            bounds = (kept.memories[part.rows, part.bounds], kept.totals[part.rows, part.bounds])
        else:
            bounds = tuple(y.new_empty(qs.shape[0], part.chunks + 1, *x.shape[1:]) for x in carry)
        for running, added, last in zip(bounds, (ks.mT @ vs, ks.sum(3).unsqueeze(-1)), carry, strict=True):
            running[:, 0] = last[part.rows]
            for i in range(part.chunks):
                torch.add(running[:, i], added[:, i], out=running[:, i + 1])
            last[part.rows] = running[:, -1]
        weights = _pairs(qs, ks)
        scale = weights.sum(-1, keepdim=True).add_(qs @ bounds[1][:, :-1]).add_(eps)
        found = _plus(weights @ vs, qs, bounds[0][:, :-1])
        place(found.div_(scale), part, y)
        if keep:
            place(scale, part, kept.scale)
    return (y, *carry), kept


def _pairs(left: Tensor, right: Tensor) -> Tensor:
    """Products of a chunk's steps with those up to themselves, zeros with later ones: (n, m, H, c, c)."""
    return (left @ right.mT).tril_()


def _plus(into: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """into + left @ right in place; matrices in the last two dimensions, `into` contiguous."""
    into.flatten(0, 2).baddbmm_(left.flatten(0, 2), right.flatten(0, 2))
    return into


class _Sums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, memory: Tensor, total: Tensor, eps: float, chunk: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        found, kept = _forward(q, k, v, memory, total, eps, chunk, keep=True)
        ctx.save_for_backward(q, k, v, found[0], *kept)
        ctx.chunk = chunk
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """With n = q S and d = q . z + eps: dn = dy / d and dd = -dn . y; both sums are pulled from the end on."""
        q, k, v, y, *rest = ctx.saved_tensors
        kept = _Kept(*rest)
        batch, length, heads, values = v.shape
        out = tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
        carry = tuple(x.clone(memory_format=torch.contiguous_format) for x in grads[1:])
        for part in reversed(segments(batch, length, ctx.chunk, heads * values, v.device)):
            qs, ks, vs, ys, given = (pieces(x, part).contiguous() for x in (q, k, v, y, grads[0]))
            given = given / pieces(kept.scale, part)
            fall = (given * ys).sum(-1, keepdim=True).neg_()
            pulls = _pulled(part, carry, (qs.mT @ given, qs.mT @ fall))
            _pull_back(part, qs, ks, vs, given, fall, kept, pulls, out)
        return *out, *carry, None, None


def _pulled(part: Segment, carry: tuple[Tensor, ...], added: tuple[Tensor, ...]) -> list[Tensor]:
    """Gradients of S and z after every chunk of a part; `carry`, those at its end, becomes those before it."""
    pulls = []
    for last, adds in zip(carry, added, strict=True):
        pull = torch.empty_like(adds)
        pull[:, -1] = last[part.rows]
        for i in reversed(range(1, part.chunks)):
            torch.add(pull[:, i], adds[:, i], out=pull[:, i - 1])
        torch.add(pull[:, 0], adds[:, 0], out=last[part.rows])
        pulls.append(pull)
    return pulls


def _pull_back(
    part: Segment,
    qs: Tensor,
    ks: Tensor,
    vs: Tensor,
    given: Tensor,
    fall: Tensor,
    kept: _Kept,
    pulls: list[Tensor],
    out: tuple[Tensor, ...],
) -> None:
    """Gradients of q, k and v of one part, of those of n and d (`given`, `fall`) and of the sums after its chunks."""
    memories, totals = (x[part.rows, part.bounds][:, :-1] for x in kept[1:])
    scores = (given @ vs.mT).add_(fall).tril_()
    place(_plus((scores @ ks).add_(fall * totals.mT), given, memories.mT), part, out[0])
    place(_plus((scores.mT @ qs).add_(pulls[1].mT), vs, pulls[0].mT), part, out[1])
    place(_plus(_pairs(qs, ks).mT @ given, ks, pulls[0]), part, out[2])
