"""Measures how long chunks of linear attention should be on a CPU, by which `suited_chunk` chooses.

    python benchmarks/chunks.py

Forward and backward, one thread, CPU time of the process, the least of several rounds that take all lengths of a chunk
in turn. Writes docs/speed-chunks.md and results/speed-chunks.csv.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from levelfield.ops.linear_attention.chunks import suited_chunk
from levelfield.ops.linear_attention.decayed import decayed_attention
from levelfield.ops.linear_attention.delta import delta_rule
from levelfield.ops.linear_attention.undecayed import attend_by_sums

ROOT = Path(__file__).resolve().parent.parent
ROUNDS, STEPS, HEADS, NUMBERS = 8, 512, 4, 1 << 19
KEYS, CHUNKS = (8, 16, 32, 64, 128), (16, 32, 64)
HEAD = """# Speed of chunks

The recurrences of linear attention are computed a chunk of steps at a time. CPU time of forward and backward by the
steps of a chunk, over that of chunks of 64, by the channels of keys, of which values have as many: 4 heads, 512 steps,
one thread, least of 8, in one run of `python benchmarks/chunks.py`. In bold is what layers take on a CPU where nothing
else is asked (`suited_chunk` in `levelfield/ops/linear_attention/chunks.py`). Rows: `results/speed-chunks.csv`.

| recurrence | layers | channels | 16 | 32 | 64 |
|---|---|--:|--:|--:|--:|
"""
Work = Callable[[int], Tensor]


def random(*shape: int) -> Tensor:
    """(B, T, H, X), as the (B, H, T, X) that operators take; the same numbers each time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).transpose(1, 2).requires_grad_()


def works(keys: int) -> dict[tuple[str, str], Work]:
    """What is computed with chunks of a length, by its name and that of the layers which do."""
    batch = max(1, NUMBERS // (STEPS * HEADS * keys))
    shape = (batch, STEPS, HEADS)
    q, k, v = (random(*shape, keys) for _ in range(3))
    unit, beta = F.normalize(k.detach(), dim=-1).requires_grad_(), random(*shape).detach().sigmoid().requires_grad_()
    decay = F.logsigmoid(random(*shape).detach() + 3).requires_grad_()
    rq, rk, rv = (x.detach().transpose(1, 2).abs().requires_grad_() for x in (q, k, v))
    s, z = v.new_zeros(batch, HEADS, keys, keys), v.new_zeros(batch, HEADS, keys, 1)
    return {
        ("the delta rule", "DeltaNet, Gated DeltaNet, DeltaProduct"): lambda chunk: delta_rule(
            q, unit, v, beta, decay, chunk=chunk
        )[0],
        ("sums that decay by head", "Mamba-2, mLSTM"): lambda chunk: decayed_attention(q, k, v, decay, chunk=chunk)[0],
        ("sums that do not decay", "linear attention"): lambda chunk: attend_by_sums(rq, rk, rv, s, z, 1e-6, chunk)[0],
    }


def least(work: Work) -> dict[int, float]:
    """CPU seconds of forward and backward, by the length of a chunk."""
    found = dict.fromkeys(CHUNKS, float("inf"))
    for _ in range(ROUNDS):
        for chunk in CHUNKS:
            start = time.process_time()
            work(chunk).square().mean().backward()
            found[chunk] = min(found[chunk], time.process_time() - start)
    return found


def main() -> None:
    torch.set_num_threads(1)
    found = {(*names, keys): least(work) for keys in KEYS for names, work in works(keys).items()}
    rows, lines = [], []
    for (name, layers, keys), seconds in sorted(found.items()):
        rows += [(name, keys, chunk, round(1e3 * each, 2)) for chunk, each in seconds.items()]
        ratios = {chunk: f"{each / seconds[64]:.2f}" for chunk, each in seconds.items()}
        suited = suited_chunk(keys, torch.device("cpu"))
        ratios[suited] = f"**{ratios[suited]}**"
        lines.append(f"| {name} | {layers} | {keys} | {' | '.join(ratios.values())} |")
    with (ROOT / "results" / "speed-chunks.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("recurrence", "keys", "chunk", "ms"))
        writer.writerows(rows)
    (ROOT / "docs" / "speed-chunks.md").write_text(HEAD + "\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
