"""Computes softmax attention within buckets of a hash (LSH): only steps that are near after sorting by bucket meet.

    buckets = angular_hash(q, rotations)                   # (B, H, R, T): near directions share buckets, in R rounds
    y = lsh_attention(q, k, v, buckets, mask, visibility=Visibility(causal=False, chunk=64))

In each of R rounds the steps of a sequence are sorted by bucket, ties by time, padded steps last, and cut into chunks.

    causal=False    a step sees its own chunk and the one before it in this order, whichever buckets they hold, or
                    with across=False only its own bucket among them (kitaev2020, section 2)
    causal=True     a step sees the last `chunk` steps before it in its own bucket

A step sees itself only if no round shows it another step. One softmax runs over the keys of all rounds. A key that
several rounds show counts as often as it is shown, which equals weighting the rounds by their logsumexp, or once with
repeats=False (appendix A of the paper). The causal rule must not depend on later steps. Where chunks are cut depends on
every step of the sequence, so chunks would leak the future.

Cost and memory are linear in T. Scores exist for one block of chunks at a time, in a CPU's cache, and are recomputed in
the backward pass.
Letters: B batch, T steps, H heads, R rounds, d channels of a head; M = B T H rows; N = B H sequences of C chunks of L
slots, S = N C L.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from levelfield.ops.layers.underflow import LOG_UNDERFLOW
from levelfield.ops.opaque import opaque

CPU_BLOCK_ELEMENTS = 1 << 18  # scores in a block: 1 MiB of float32
DEVICE_BLOCK_ELEMENTS = 1 << 26
LOWEST = -1e30  # where a maximum of scores starts
STEP_QUERIES = 64  # queries that continue from a state together


@opaque
def angular_hash(x: Tensor, rotations: Tensor) -> Tensor:
    """The bucket of each step in each round, (B, H, R, T), from 0 to n - 1 (kitaev2020, section 2).

    It is the nearest of n / 2 random directions and their opposites. x: (B, T, H, d); rotations: (H, d, R, n / 2).
    """
    heads, _, rounds, half = rotations.shape
    with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
        steps = x.to(rotations.dtype).permute(2, 0, 1, 3).flatten(1, 2)  # (H, B T, d)
        found = []
        for r in range(rounds):
            high, first = (rotated := steps @ rotations[:, :, r]).max(-1)
            low, second = rotated.min(-1)
            found.append(torch.where(high >= -low, first, second + half))
        return torch.stack(found, 1).view(heads, rounds, x.shape[0], x.shape[1]).permute(2, 0, 1, 3)


@dataclass(frozen=True)
class Visibility:
    """The keys that a round shows a step; see above."""

    causal: bool
    chunk: int
    across: bool = True
    repeats: bool = True


@opaque
def lsh_attention(
    q: Tensor, k: Tensor, v: Tensor, buckets: Tensor, mask: Tensor | None, visibility: Visibility
) -> Tensor:
    """Attention, softmax(q k^T) v, over the keys that the rounds show: (B, T, H, d), float32 or wider.

    q, k, v: (B, T, H, d); buckets: (B, H, R, T) integers; mask: (B, T) bool, True at real steps, or None. Scores are
    not scaled. In the causal direction padded steps must come after the real ones, and the mask is not used.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    with torch.autocast(q.device.type, enabled=False):
        rows = (part.to(wide).flatten(0, 2) for part in (q, k, v))
        out = _Chunked.apply(*rows, _layout(buckets, None if visibility.causal else mask, visibility))
    assert isinstance(out, Tensor)
    return out.view(v.shape)


def lsh_attention_step(q: Tensor, k: Tensor, v: Tensor, buckets: Tensor, chunk: int, repeats: bool = True) -> Tensor:
    """The last n steps of causal `lsh_attention`: (B, n, H, d).

    q: (B, n, H, d), of those steps; k, v: (B, T, H, d) and buckets: (B, H, R, T), of all steps.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    length, parts = k.shape[1], []
    with torch.autocast(q.device.type, enabled=False):
        q, k, v = (part.to(wide).transpose(1, 2) for part in (q, k, v))
        first = length - q.shape[2]
        for start in range(first, length, STEP_QUERIES):
            end = min(length, start + STEP_QUERIES)
            seen = _seen(buckets[..., :end], start, chunk)
            seen = seen if repeats else seen.clamp(max=1)
            alone = seen.sum(-1, keepdim=True) == 0
            own = torch.eye(end - start, end, dtype=torch.bool, device=q.device).roll(start, 1)
            times = torch.where(alone & own, 1, seen).to(wide)  # log 0 is -inf, which hides
            scores = q[:, :, start - first : end - first] @ k[:, :, :end].mT + times.log()
            parts.append(scores.softmax(-1) @ v[:, :, :end])
    return torch.cat(parts, 2).transpose(1, 2)


def _seen(buckets: Tensor, start: int, chunk: int) -> Tensor:
    """The number of rounds in which each step from `start` on sees each step: (B, H, R, T) -> (B, H, T - start, T)."""
    same = buckets[..., start:, None] == buckets[..., None, :]
    earlier = same.tril(start - 1)  # (B, H, R, n, T)
    nearest = earlier.flip(-1).cumsum(-1).flip(-1) <= chunk
    return (earlier & nearest).sum(2)


@dataclass(frozen=True)
class _Shown:
    """The interval of slots that each round shows a row: (R, M + 1) each, the last of an empty row."""

    slots: Tensor  # the row's own slot
    first: Tensor
    last: Tensor

    def sees(self, r: int, queries: Tensor, keys: Tensor) -> Tensor:
        """Whether round r shows query rows, (n, L), the key rows, (n, 2 L): (n, L, 2 L) bool."""
        places = self.slots[r][keys].unsqueeze(1)
        return (places >= self.first[r][queries].unsqueeze(2)) & (places <= self.last[r][queries].unsqueeze(2))


@dataclass(frozen=True)
class _Layout:
    """The order of steps after sorting, for every round."""

    chunk: int
    chunks: int  # C
    rows: Tensor  # (R, S): the row at each slot; M at an empty slot
    slots: Tensor  # (R, M): the slot of each row
    # (N C, 1, 2 L): 0 for keys that a chunk may see, -inf for others; None where all slots are real
    bias: Tensor | None
    reach: Tensor | None  # (R, S, 1), if causal: how many slots before its own a step sees
    own: _Shown | None  # given if a step sees only its own bucket in its chunks
    once: _Shown | None  # given if keys that several rounds show count once


def _layout(buckets: Tensor, mask: Tensor | None, visibility: Visibility) -> _Layout:
    """Sorts the steps. buckets: (B, H, R, T); mask: (B, T) bool or None."""
    causal, chunk = visibility.causal, visibility.chunk
    batch, heads, rounds, length = buckets.shape
    chunks = -(-length // chunk)
    spare = chunks * chunk - length
    real = None
    if mask is not None:
        mask = mask | ~mask.any(-1, keepdim=True)
        buckets, real = buckets.masked_fill(~mask[:, None, None], torch.iinfo(buckets.dtype).max), mask.sum(1)
    ranked, order = buckets.permute(2, 0, 1, 3).sort(dim=-1, stable=True)  # (R, B, H, T)
    starts = torch.arange(batch, device=order.device)[:, None, None] * length
    rows = (starts + order) * heads + torch.arange(heads, device=order.device)[:, None]
    filled = torch.arange(batch * heads, device=order.device).view(batch, heads, 1) * (chunks * chunk)
    places = (filled + torch.arange(length, device=order.device)).expand_as(rows)
    slots = torch.empty_like(rows).flatten(1).scatter_(1, rows.flatten(1), places.flatten(1))
    reach = F.pad(_reach(ranked, chunk), (0, spare)).view(rounds, -1, 1) if causal else None
    full = real is None and not spare
    bias = None if causal or full else _bias(real, (batch, heads, length), chunk, order.device)
    shown, own = None, not visibility.across and not causal
    once = not visibility.repeats and rounds > 1
    if own or once:
        ends = (filled + part for part in _interval(ranked, real, visibility))
        ordered = (torch.empty_like(slots).scatter_(1, rows.flatten(1), end.flatten(1)) for end in ends)
        shown = _Shown(*(F.pad(part, (0, 1), value=-1) for part in (slots, *ordered)))
    rows = F.pad(rows, (0, spare), value=slots.shape[1]).flatten(1)
    return _Layout(
        chunk,
        chunks,
        rows,
        slots,
        bias=bias,
        reach=reach,
        own=shown if own else None,
        once=shown if once else None,
    )


def _interval(ranked: Tensor, real: Tensor | None, visibility: Visibility) -> tuple[Tensor, Tensor]:
    """The first and the last place that a round shows the step at each place: (R, B, H, T) each.

    ranked: sorted buckets, (R, B, H, T); real: how many steps of each sequence are real, (B,), or None for all.
    """
    chunk, length = visibility.chunk, ranked.shape[-1]
    places = torch.arange(length, device=ranked.device)
    changes = ranked.diff(dim=-1) != 0
    low = (places * F.pad(changes, (1, 0), value=True)).cummax(-1).values  # where the bucket begins
    if visibility.causal:
        return torch.maximum(low, places - chunk), (places - 1).expand_as(low)
    high = places.masked_fill(~F.pad(changes, (0, 1), value=True), length).flip(-1).cummin(-1).values.flip(-1)
    first, last = (places // chunk - 1).clamp(min=0) * chunk, (places // chunk + 1) * chunk - 1
    ends = (ranked.new_full((1,), length) if real is None else real).view(-1, 1, 1) - 1
    first, last = first.expand_as(low), torch.minimum(last.expand_as(high), ends)
    return (first, last) if visibility.across else (torch.maximum(first, low), torch.minimum(last, high))


def _reach(ranked: Tensor, chunk: int) -> Tensor:
    """How many steps of its own bucket precede each step, at most `chunk`: sorted buckets, (..., T) -> (..., T)."""
    places = torch.arange(ranked.shape[-1], device=ranked.device)
    fresh = F.pad(ranked.diff(dim=-1) != 0, (1, 0), value=True)
    first = (places * fresh).cummax(-1).values
    return (places - first).clamp(max=chunk).to(torch.int16 if chunk < 1 << 15 else torch.int64)


def _bias(real: Tensor | None, shape: tuple[int, int, int], chunk: int, device: torch.device) -> Tensor:
    """The bias of each chunk's keys, (N C, 1, 2 L): 0 for real keys of the chunk and the one before it, else -inf.

    real: how many keys of each sequence are real, (B,), or None for all; shape: (B, H, T). Real keys stand first, and
    the first chunk has none before it.
    """
    batch, heads, length = shape
    chunks = -(-length // chunk)
    ends = torch.full((batch,), length, device=device) if real is None else real
    places = torch.arange(chunks, device=device)[:, None] * chunk + torch.arange(-chunk, chunk, device=device)
    seen = (places >= 0) & (places < ends[:, None, None])
    bias = torch.zeros(seen.shape, device=device).masked_fill(~seen, -math.inf)
    return bias[:, None].expand(batch, heads, chunks, 2 * chunk).reshape(-1, 1, 2 * chunk)


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, layout: _Layout) -> Tensor:
        """Attention of the rows q to the rows k and v: (M, d) each -> (M, d)."""
        chunk, dim = layout.chunk, q.shape[1]
        table = torch.cat([torch.cat([q, k, v], 1), q.new_zeros(1, 3 * dim)])  # an empty slot holds zeros
        out, total, top = torch.zeros_like(v), v.new_zeros(len(v), 1), v.new_full((len(v), 1), LOWEST)
        mixed, sums = table.new_empty(layout.rows.shape[1], dim), table.new_empty(layout.rows.shape[1], 2)
        for r in range(len(layout.rows)):
            for block in _blocks(layout, table):
                gathered = _gather(table, layout, r, block)
                scores = _scores(gathered, layout, r, block)
                best = scores.amax(2, keepdim=True).clamp_(min=LOWEST)
                weights = _exp(scores.sub_(best))
                own = slice(block.start * chunk, block.stop * chunk)
                torch.bmm(weights, _window(gathered, chunk, 2), out=mixed[own].unflatten(0, (-1, chunk)))
                sums[own, :1], sums[own, 1:] = weights.sum(2).view(-1, 1), best.view(-1, 1)
            count, best = sums.index_select(0, layout.slots[r]).split(1, 1)
            higher = torch.maximum(top, best)
            before, now = (top - higher).exp_(), (best - higher).exp_()
            out.mul_(before).addcmul_(mixed.index_select(0, layout.slots[r]), now)
            total.mul_(before).addcmul_(count, now)
            top = higher
        alone = total == 0
        out = torch.where(alone, v, out / total)
        ctx.save_for_backward(table, out, torch.where(alone, math.inf, top + total.log()))
        ctx.layout = layout
        return out

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, None]:
        table, out, logs = ctx.saved_tensors
        layout, dim = ctx.layout, grad.shape[1]
        above = torch.cat([grad, -(grad * out).sum(1, keepdim=True), -logs], 1)
        above = torch.cat([above, F.pad(above.new_zeros(1, dim + 1), (0, 1), value=-math.inf)])  # weighs nothing
        total = F.pad(torch.where(logs == math.inf, grad, 0), (2 * dim, 0))
        chunk = layout.chunk
        found = table.new_empty(layout.rows.shape[1] + chunk, 3 * dim)  # a chunk before the first takes nothing
        for r in range(len(layout.rows)):
            for block in _blocks(layout, table):
                gathered = _gather(table, layout, r, block)
                own = slice(block.start * chunk, block.stop * chunk)
                dy, shift, log = (
                    above.index_select(0, layout.rows[r, own]).unflatten(0, (-1, chunk)).split([dim, 1, 1], 2)
                )
                weights = _exp(_scores(gathered, layout, r, block).add_(log))
                fall = torch.bmm(dy, _window(gathered, chunk, 2).mT).add_(shift).mul_(weights)
                here = found[own.start : own.stop + chunk]
                here[chunk:, :dim] = (fall @ _window(gathered, chunk, 1)).flatten(0, 1)
                _overlay(here[:, dim : 2 * dim], fall.mT @ gathered[chunk:, :dim].unflatten(0, (-1, chunk)))
                _overlay(here[:, 2 * dim :], weights.mT @ dy)
            total += found[chunk:].index_select(0, layout.slots[r])
        dq, dk, dv = total.split(dim, 1)
        return dq, dk, dv, None


def _blocks(layout: _Layout, table: Tensor) -> list[slice]:
    """Slices of chunks that are computed together. table: (M + 1, 3 d)."""
    budget = CPU_BLOCK_ELEMENTS if table.device.type == "cpu" else DEVICE_BLOCK_ELEMENTS
    count, size = layout.rows.shape[1] // layout.chunk, max(1, budget // (2 * layout.chunk**2))
    return [slice(start, min(count, start + size)) for start in range(0, count, size)]


def _gather(table: Tensor, layout: _Layout, r: int, block: slice) -> Tensor:
    """The rows of the chunk before the block and of the block itself: ((n + 1) L, 3 d)."""
    rows = layout.rows[r, max(0, block.start - 1) * layout.chunk : block.stop * layout.chunk]
    return table.index_select(0, rows if block.start else F.pad(rows, (layout.chunk, 0)))


def _window(gathered: Tensor, chunk: int, part: int) -> Tensor:
    """Keys (part 1) or values (part 2) of each chunk and the one before it, without a copy: (n, 2 L, d)."""
    count, width = len(gathered) // chunk - 1, gathered.shape[1]
    return gathered.as_strided(
        (count, 2 * chunk, width // 3), (chunk * width, width, 1), gathered.storage_offset() + part * width // 3
    )


def _scores(gathered: Tensor, layout: _Layout, r: int, block: slice) -> Tensor:
    """The scores of a block, (n, L, 2 L), -inf for keys that a step does not see.

    With repeats=False, log n is subtracted for a key that n rounds show, so that it counts once.
    """
    scores, chunk = _products(gathered, layout, r, block), layout.chunk
    if layout.own is None and layout.once is None:
        return scores
    rows = layout.rows[r, max(0, block.start - 1) * chunk : block.stop * chunk]
    rows = rows if block.start else F.pad(rows, (chunk, 0), value=layout.slots.shape[1])
    queries, keys = rows[chunk:].unflatten(0, (-1, chunk)), rows.unfold(0, 2 * chunk, chunk)
    if layout.own is not None:
        scores.masked_fill_(~layout.own.sees(r, queries, keys), -math.inf)
    if layout.once is not None:
        times = torch.zeros_like(scores)
        for other in range(len(layout.slots)):
            times += layout.once.sees(other, queries, keys)
        scores -= times.clamp_(min=1).log_()
    return scores


def _products(gathered: Tensor, layout: _Layout, r: int, block: slice) -> Tensor:
    """The products q k^T of a block, (n, L, 2 L), -inf for keys that the chunk does not show a step."""
    chunk, dim = layout.chunk, gathered.shape[1] // 3
    q = gathered[chunk:, :dim].unflatten(0, (-1, chunk))
    scores = q @ _window(gathered, chunk, 1).mT
    if layout.reach is not None:
        reach = layout.reach[r, block.start * chunk : block.stop * chunk].unflatten(0, (-1, chunk))
        ahead = torch.arange(-chunk, chunk, device=q.device) - torch.arange(chunk, device=q.device)[:, None]
        ahead = torch.where(ahead < 0, ahead, -2 * chunk - 1).to(reach.dtype)
        return scores.masked_fill_(ahead < -reach, -math.inf)
    if layout.bias is None:
        scores[-block.start % layout.chunks :: layout.chunks, :, :chunk] = -math.inf  # first chunks of sequences
    else:
        scores += layout.bias[block]
    scores.diagonal(chunk, 1, 2).fill_(-math.inf)
    return scores


def _exp(logs: Tensor) -> Tensor:
    """The exponential, in place and of the same shape, with 0 below e^LOG_UNDERFLOW."""
    return torch.threshold_(logs, LOG_UNDERFLOW, -math.inf).exp_()


def _overlay(into: Tensor, windows: Tensor) -> None:
    """Writes the sums of overlapping windows, (n, 2 L, d), to `into`, ((n + 1) L, d), adding to its first L rows."""
    chunk = windows.shape[1] // 2
    into[chunk:].unflatten(0, (-1, chunk)).copy_(windows[:, chunk:])
    into[:-chunk].unflatten(0, (-1, chunk)).add_(windows[:, :chunk])
