"""Computes attention of one head with a bias for every distance, by a softmax or an elementwise function.

    y[i] = sum_j f(q[i] k[j] + b[j - i]) v[j]

f is the softmax over j of q k / sqrt(z), or Mega's laplace function of each q k / n, where n is the number of keys:
0.5 (1 + erf((s - mu) / (sigma sqrt 2))), which is close to a squared ReLU (ma2023, section 3.3). The bias needs a
gradient, which fused kernels do not give. Memory is linear in T all the same, because both passes make the scores of a
block of queries, use them and drop them.

    attend_distances(q, k, v, bias, mask, False, "laplace")             # (B, T, z), (B, T, z), (B, T, h), (2 R - 1,)
    attend_chunks(q, k, v, bias, None, True, "softmax", chunk=128)      # cost linear in T

Letters: B batch, Q queries, K keys, z channels of queries and keys, h of values, R steps that the bias reaches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from levelfield.ops.opaque import opaque

Weigh = Literal["softmax", "laplace"]
MU, SIGMA = 0.707107, 0.282095  # sqrt(1/2) and sqrt(1/(4 pi)), as rounded in the paper
CPU_BLOCK_ELEMENTS = 1 << 20  # scores made at a time on a CPU, so that they fit its cache or nearly
DEVICE_BLOCK_ELEMENTS = 1 << 26
ROWS = 256  # the fewest queries at a time, however many keys there are, because products of few rows are slow


@opaque
def attend_distances(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, mask: Tensor | None, causal: bool, weigh: Weigh
) -> Tensor:
    """Attention of q, (B, Q, z), the last Q of K steps, to all keys: (B, Q, h), in the bias's precision.

    k: (B, K, z); v: (B, K, h); bias: (2 R - 1,), for the distances j - i from -(R - 1) to R - 1, R >= K; mask: (B, K),
    True at real keys, or None. In a sequence that is all padding every key is visible. Equal to
    `naive_attend_distances`.
    """
    queries, keys, reach = q.shape[1], k.shape[1], (bias.shape[0] + 1) // 2
    q, k, v = (part.to(bias.dtype) for part in (q, k, v))
    if causal:
        bias = torch.cat([bias[:reach], bias.new_full((reach - 1,), -math.inf)])
    if weigh == "softmax":
        q = q * q.shape[2] ** -0.5
    else:
        steep = 1 / (SIGMA * math.sqrt(2))
        q, bias = q * (steep / _counts(k, queries, mask, causal)), (bias - MU) * steep
    hidden = None if mask is None else ~mask & mask.any(-1, keepdim=True)
    out: Tensor = _Distances.apply(  # pyright: ignore[reportAssignmentType]
        *(q.contiguous(), k.contiguous(), v.contiguous(), bias[reach - keys : reach - 1 + queries]),
        *(hidden, causal, weigh),
    )
    return out


@opaque
def attend_chunks(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, mask: Tensor | None, causal: bool, weigh: Weigh, chunk: int
) -> Tensor:
    """`attend_distances` where a step sees only the steps of its own chunk: (B, Q, h).

    The first key must be the first of a chunk.
    """
    past, parts, start = k.shape[1] - q.shape[1], [], 0
    for length in _query_counts(past, q.shape[1], chunk):
        rows, seen = slice(start, start + length), slice(past + start if start else 0, past + start + length)
        fold = (length // chunk, chunk) if length > chunk else (1, length)
        unfold = (1, seen.stop - seen.start) if fold[0] == 1 else fold
        some = q[:, rows].unflatten(1, fold).flatten(0, 1)
        others = (part[:, seen].unflatten(1, unfold).flatten(0, 1) for part in (k, v))
        real = None if mask is None else mask[:, seen].unflatten(1, unfold).flatten(0, 1)
        part = attend_distances(some, *others, bias, real, causal=causal, weigh=weigh)
        parts.append(part.unflatten(0, (-1, fold[0])).flatten(1, 2))
        start += length
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _query_counts(past: int, queries: int, chunk: int) -> list[int]:
    """How many queries complete the chunk that was begun, fill whole chunks, and begin the last chunk."""
    first = min(queries, chunk - past) if past else 0
    whole = (queries - first) // chunk * chunk
    return [length for length in (first, whole, queries - first - whole) if length]


def naive_attend_distances(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, mask: Tensor | None, causal: bool, weigh: Weigh
) -> Tensor:
    """`attend_distances` one score at a time: (B, Q, h)."""
    reach, past, out = (bias.shape[0] + 1) // 2, k.shape[1] - q.shape[1], []
    for row in range(q.shape[0]):
        for i in range(q.shape[1]):
            seen = [j for j in range(k.shape[1]) if (not causal or j <= past + i) and (mask is None or mask[row, j])]
            seen = seen or list(range(k.shape[1]))
            norm = math.sqrt(q.shape[2]) if weigh == "softmax" else len(seen)
            scores = [q[row, i] @ k[row, j] / norm + bias[reach - 1 + j - past - i] for j in seen]
            scores = torch.stack(scores)
            if weigh == "softmax":
                weights = scores.softmax(0)
            else:
                weights = 0.5 * (1 + torch.erf((scores - MU) / (SIGMA * math.sqrt(2))))
            out.append(weights @ v[row, seen])
    return torch.stack(out).view(*q.shape[:2], -1)


def _counts(k: Tensor, queries: int, mask: Tensor | None, causal: bool) -> Tensor:
    """How many keys each query sees: (1 or B, 1 or Q, 1)."""
    keys = k.shape[1]
    if causal:
        return torch.arange(keys - queries + 1, keys + 1, device=k.device, dtype=k.dtype)[None, :, None]
    if mask is None:
        return k.new_full((1, 1, 1), keys)
    real = mask.sum(-1)
    return torch.where(real > 0, real, keys)[:, None, None].to(k.dtype)


class _Distances(torch.autograd.Function):
    """Attention and its gradient, a block of queries at a time: (B, Q, h).

    bias: (K + Q - 1,), for distances from -(K - 1) on; hidden: (B, K) bool, True at keys that are masked, or None.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, hidden: Tensor | None, causal: bool, weigh: Weigh
    ) -> Tensor:
        ctx.save_for_backward(q, k, v, bias, hidden)
        ctx.settings = causal, weigh
        out = v.new_empty(*q.shape[:2], v.shape[2])
        with torch.autocast(q.device.type, enabled=False):
            for table, _, some in _blocks(q, k, bias, causal):
                for batch, rows, seen in some:
                    scores = _scores(
                        q[batch, rows], k[batch, seen], table, None if hidden is None else hidden[batch, seen]
                    )
                    weights = scores.softmax(-1) if weigh == "softmax" else scores.erf_().add_(1)
                    out[batch, rows] = torch.bmm(weights, v[batch, seen])
        return out if weigh == "softmax" else out.mul_(0.5)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, bias, hidden = ctx.saved_tensors
        causal, weigh = ctx.settings
        grad_q, grad_k, grad_v, grad_bias = (torch.zeros_like(part) for part in (q, k, v, bias))
        given = grads[0].contiguous() if weigh == "softmax" else 0.5 * grads[0]
        with torch.autocast(q.device.type, enabled=False):
            for table, start, some in _blocks(q, k, bias, causal):
                slope = torch.zeros_like(table)
                for batch, rows, seen in some:
                    scores = _scores(
                        q[batch, rows], k[batch, seen], table, None if hidden is None else hidden[batch, seen]
                    )
                    grad_weights = torch.bmm(given[batch, rows], v[batch, seen].mT)
                    weights, grad = _weights_backward(scores, grad_weights, weigh)
                    grad_v[batch, seen].baddbmm_(weights.mT, given[batch, rows])
                    grad_q[batch, rows] = torch.bmm(grad, k[batch, seen])
                    grad_k[batch, seen].baddbmm_(grad.mT, q[batch, rows])
                    slope += grad[0] if len(grad) == 1 else grad.sum(0)
                _add_along(grad_bias, slope, start)
        return grad_q, grad_k, grad_v, grad_bias, None, None, None


Parts = Iterator[tuple[slice, slice, slice]]


def _blocks(q: Tensor, k: Tensor, bias: Tensor, causal: bool) -> Iterator[tuple[Tensor, int, Parts]]:
    """Yields blocks of queries: their biases, (rows, keys), the index of the first one, and the parts of the block.

    A part is a slice each of sequences, queries and keys that are computed at once.
    """
    (size, queries), keys = q.shape[:2], k.shape[1]
    most = CPU_BLOCK_ELEMENTS if q.device.type == "cpu" else DEVICE_BLOCK_ELEMENTS
    step = min(queries, max(ROWS, most // keys))
    group = max(1, most // (step * keys)) if step == queries else 1
    for start in range(0, queries, step):
        end = min(start + step, queries)
        seen = keys - queries + end if causal else keys
        table = bias.unfold(0, seen, 1)[queries - end : queries - start].flip(0)
        parts = ((slice(first, first + group), slice(start, end), slice(0, seen)) for first in range(0, size, group))
        yield table, queries - end, parts


def _scores(q: Tensor, k: Tensor, table: Tensor, hidden: Tensor | None) -> Tensor:
    """Scores with their biases, -inf at hidden keys: (b, rows, keys). table: (rows, keys); hidden: (b, keys) bool."""
    scores = torch.baddbmm(table, q, k.mT)
    return scores if hidden is None else scores.masked_fill_(hidden.unsqueeze(1), -math.inf)


def _weights_backward(scores: Tensor, grad: Tensor, weigh: Weigh) -> tuple[Tensor, Tensor]:
    """The weights, and the gradient of the scores from that of the weights, `grad`; for laplace both are doubled.

    All are (b, rows, keys).
    """
    if weigh == "softmax":
        weights = scores.softmax(-1)
        return weights, torch.ops.aten._softmax_backward_data(grad, weights, -1, weights.dtype)
    slope = scores.square().neg_().exp_()
    return scores.erf_().add_(1), grad.mul_(slope).mul_(2 / math.sqrt(math.pi))


def _add_along(total: Tensor, table: Tensor, start: int) -> None:
    """Adds the diagonals of a table, (rows, keys), to the biases they came from; its last row begins at `start`."""
    rows, columns = table.shape
    slanted = table.new_zeros(rows, columns + rows - 1)
    slanted.as_strided((rows, columns), (columns + rows, 1)).copy_(table.flip(0))
    total[start : start + columns + rows - 1] += slanted.sum(0)
