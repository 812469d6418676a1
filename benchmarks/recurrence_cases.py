"""Lists recurrences by themselves, without the maps around them: ours and the references, which have nothing else.

All are given what a layer of width 256 gives them: leaves of shape (B, T, H, X), as linear maps leave them in memory,
of which the third is the values. Both sides return values of that shape.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import torch
from measuring import Case, Make, Work, batch_tokens
from peers import bare, source
from torch import Tensor
from torch.nn import functional as F

Rule = Callable[..., Tensor]
Draw = Callable[[int, int], list[Tensor]]


def recurrence(draw: Draw, load: Callable[[Path], Rule]) -> Make:
    """Builds a forward and backward pass to all leaves."""

    def make(peers: Path, length: int) -> tuple[Work, int]:
        tokens, rule = batch_tokens(length), load(peers)
        leaves = [leaf.requires_grad_() for leaf in draw(tokens // length, length)]
        grad = torch.randn_like(leaves[2])
        return lambda: rule(*leaves).backward(grad), tokens

    return make


def turned(*parts: Tensor) -> tuple[Tensor, ...]:
    """Swaps steps and heads: (B, T, H, ...) -> (B, H, T, ...), or back."""
    return tuple(part.transpose(1, 2) for part in parts)


# What they are given


def plain(b: int, t: int) -> list[Tensor]:
    q, k, v = torch.randn(3, b, t, 4, 64)
    return [F.elu(q) + 1, F.elu(k) + 1, v]


def ssd(b: int, t: int) -> list[Tensor]:
    return [torch.randn(b, t, 1, 128), torch.randn(b, t, 1, 128), torch.randn(b, t, 8, 64), -0.1 * torch.rand(b, t, 8)]


def gla(b: int, t: int) -> list[Tensor]:
    return [*torch.randn(2, b, t, 4, 32), torch.randn(b, t, 4, 64), F.logsigmoid(torch.randn(b, t, 4, 32)) / 16]


def rwkv6(b: int, t: int) -> list[Tensor]:
    return [*torch.randn(3, b, t, 4, 64), -torch.exp(torch.randn(b, t, 4, 64) - 2), torch.randn(4, 64)]


def delta(b: int, t: int, keys: int = 64, values: int = 64) -> list[Tensor]:
    q, k = F.normalize(torch.randn(2, b, t, 4, keys), dim=-1)
    return [q, k, torch.randn(b, t, 4, values), torch.rand(b, t, 4)]


def gated_delta(b: int, t: int) -> list[Tensor]:
    return [*delta(b, t, 48, 96), -0.1 * torch.rand(b, t, 4)]


def rwkv7(b: int, t: int) -> list[Tensor]:
    q, k, v, gate = torch.randn(4, b, t, 4, 64)
    key = F.normalize(torch.randn(b, t, 4, 64), dim=-1)
    return [q, 0.2 * k, v, -key, key * torch.rand(b, t, 4, 64), -0.6 * torch.sigmoid(gate)]


def mlstm(b: int, t: int) -> list[Tensor]:
    return [*torch.randn(3, b, t, 4, 128), *torch.randn(2, b, t, 4)]


# Ours


def our_decayed(peers: Path) -> Rule:
    from levelfield.ops.linear_attention.decayed import decayed_attention

    def rule(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor | None = None) -> Tensor:
        q, k, v, decay = turned(q, k, v, decay)
        return decayed_attention(q, k, v, decay, bonus=bonus)[0].transpose(1, 2)

    return rule


def our_linear(peers: Path) -> Rule:
    from levelfield.ops.linear_attention.feature_map import attend_features_causal

    def rule(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = turned(q, k, v)
        return attend_features_causal(q, k, v, None, None, 1e-10)[0].transpose(1, 2)

    return rule


def our_delta(peers: Path) -> Rule:
    from levelfield.ops.linear_attention.delta import delta_rule

    def rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor | None = None) -> Tensor:
        (q, k, v, beta), decay = turned(q, k, v, beta), None if decay is None else decay.transpose(1, 2)
        return delta_rule(q, k, v, beta, decay)[0].transpose(1, 2)

    return rule


def our_rwkv7(peers: Path) -> Rule:
    from levelfield.ops.linear_attention.delta_per_key import delta_by_key

    def rule(q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, decay: Tensor) -> Tensor:
        return delta_by_key(q, k, v, a, b, decay)[0]

    return rule


def our_mlstm(peers: Path) -> Rule:
    from levelfield.ops.linear_attention.mlstm import mlstm

    def rule(q: Tensor, k: Tensor, v: Tensor, gate: Tensor, forget: Tensor) -> Tensor:
        q, k, v, gate, forget = turned(q, k, v, gate, forget)
        return mlstm(q * q.shape[-1] ** -0.5, k, v, gate, F.logsigmoid(forget + 4))[0].transpose(1, 2)

    return rule


# Theirs


def fla(file: str, name: str, heads_first: bool) -> Callable[[Path], Rule]:
    """A reference of flash-linear-attention, which may take (B, H, T, X). The leaves come in our order."""

    def load(peers: Path) -> Rule:
        found = getattr(source(peers / "flash-linear-attention" / "fla/ops" / file), name)
        if not heads_first:
            return lambda *parts: _first(found(*parts))
        return lambda *parts: _first(found(*turned(*parts[:4]), *_last(parts[4:]))).transpose(1, 2)

    return load


def _last(parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Leaves after the fourth: those with steps are transposed, those per head, (H, X), are passed as they are."""
    return tuple(part if part.ndim == 2 else part.transpose(1, 2) for part in parts)


def _first(result: Tensor | tuple[Tensor, ...]) -> Tensor:
    return result[0] if isinstance(result, tuple) else result


def fla_linear(peers: Path) -> Rule:
    rule = source(peers / "flash-linear-attention" / "fla/ops/linear_attn/naive.py").naive_chunk_linear_attn
    return lambda q, k, v: rule(q, k, v, scale=1.0, normalize=True)


def gated_order(load: Callable[[Path], Rule]) -> Callable[[Path], Rule]:
    """Chunked gated delta rules take the decay before beta."""

    def loaded(peers: Path) -> Rule:
        rule = load(peers)
        return lambda q, k, v, beta, decay: _first(rule(q, k, v, decay, beta))

    return loaded


def qwen(peers: Path) -> Rule:
    return importlib.import_module("transformers.models.qwen3_next.modeling_qwen3_next").torch_chunk_gated_delta_rule


def ssd_minimal(peers: Path) -> Rule:
    """The listing of dao2024, in chunks of 64, without the kernel with which its file compares it."""
    file = peers / "mamba" / "mamba_ssm/modules/ssd_minimal.py"
    kernel = "from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined"
    rule = source(file, (kernel, "")).ssd_minimal_discrete
    return lambda q, k, v, decay: rule(v, decay, k.expand(-1, -1, 8, -1), q.expand(-1, -1, 8, -1), 64)[0]


def xlstm_by_chunks(peers: Path) -> Rule:
    """The chunked recurrence of NX-AI, as transformers has it."""
    module = importlib.import_module("transformers.models.xlstm.modeling_xlstm")

    def rule(*parts: Tensor) -> Tensor:
        q, k, v, gate, forget = turned(*parts)
        result = module.mlstm_chunkwise_native_autograd(q, k, v, gate.contiguous(), forget.contiguous() + 4)
        return _first(result).transpose(1, 2)

    return rule


def xlstm_parallel(peers: Path) -> Rule:
    """The authors' parallel form, with weights for all pairs of steps."""
    bare(peers / "xlstm", "xlstm", "xlstm.blocks", "xlstm.blocks.mlstm")
    found = importlib.import_module("xlstm.blocks.mlstm.backends").parallel_stabilized_simple

    def rule(*parts: Tensor) -> Tensor:
        q, k, v, gate, forget = turned(*parts)
        return found(q, k, v, gate[..., None], forget[..., None] + 4).transpose(1, 2)

    return rule


_FLA = "flash-linear-attention"
_TABLE: tuple[tuple[str, Draw, Callable[[Path], Rule], dict[str, Callable[[Path], Rule]]], ...] = (
    ("linear", plain, our_linear, {f"{_FLA}, chunks": fla_linear}),
    ("mamba2", ssd, our_decayed, {"mamba repository, minimal": ssd_minimal}),
    ("gla", gla, our_decayed, {f"{_FLA}, recurrent": fla("gla/naive.py", "naive_recurrent_gla", False)}),
    ("deltanet", delta, our_delta, {
        f"{_FLA}, chunks": fla("delta_rule/naive.py", "delta_rule_chunkwise", True),
        f"{_FLA}, recurrent": fla("delta_rule/naive.py", "delta_rule_recurrence", True),
    }),
    ("gated_deltanet", gated_delta, our_delta, {
        "transformers, chunks": gated_order(qwen),
        f"{_FLA}, chunks": gated_order(fla("gated_delta_rule/naive.py", "naive_chunk_gated_delta_rule", False)),
    }),
    ("mlstm", mlstm, our_mlstm, {"transformers, chunks": xlstm_by_chunks, "xlstm, parallel": xlstm_parallel}),
    ("rwkv6", rwkv6, our_decayed, {
        f"{_FLA}, recurrent": fla("rwkv6/recurrent_naive.py", "naive_recurrent_rwkv6", True),
    }),
    ("rwkv7", rwkv7, our_rwkv7, {
        f"{_FLA}, recurrent": fla("generalized_delta_rule/dplr/naive.py", "dplr_recurrence", True),
    }),
)  # fmt: skip
RECURRENCES = tuple(
    Case(f"{label}: recurrence", side, recurrence(draw, load))
    for label, draw, mine, theirs in _TABLE
    for side, load in ({"ours": mine} | theirs).items()
)
