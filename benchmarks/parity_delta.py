"""Compares the gated delta rule and its layer with transformers' Qwen3-Next: prints the largest relative difference.

pip install transformers
python benchmarks/parity_delta.py
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import transformers
from torch import Generator, Tensor, nn
from transformers import Qwen3NextConfig
from transformers.models.qwen3_next import modeling_qwen3_next as qwen

from levelfield.mixers.gated_deltanet import GatedDeltaNet, GatedDeltaNetLayer
from levelfield.ops.linear_attention.delta import delta_rule

WIDTH, HEADS, STEPS = 64, 4, 133


def rule(peer: Callable[..., tuple[Tensor, Tensor]]) -> float:
    """Compares outputs, state and all gradients, starting from a state. The peer takes (B, T, H, X)."""
    draw = Generator().manual_seed(0)
    q, k, v = torch.randn(3, 2, STEPS, HEADS, 16, generator=draw)
    k = torch.nn.functional.normalize(k, dim=-1)
    beta, decay = torch.rand(2, STEPS, HEADS, generator=draw), -torch.rand(2, STEPS, HEADS, generator=draw)
    leaves = [x.requires_grad_() for x in (q, k, v, decay, beta, torch.randn(2, HEADS, 16, 16, generator=draw))]
    grads = [torch.randn(2, STEPS, HEADS, 16, generator=draw), torch.randn(2, HEADS, 16, 16, generator=draw)]

    def ours() -> tuple[Tensor, Tensor]:
        q, k, v, decay, beta = (x.transpose(1, 2) for x in leaves[:5])
        y, state = delta_rule(q / 4, k, v, beta, decay, leaves[5])
        return y.transpose(1, 2), state

    theirs = peer(*leaves[:5], initial_state=leaves[5], output_final_state=True)
    found, others = ([*out, *torch.autograd.grad(out, leaves, grads)] for out in (ours(), theirs))
    return _apart(found, others)


def layer() -> float:
    """Compares outputs and the gradients of the input and of the linear maps, with weights copied across."""
    ours = GatedDeltaNet(heads=HEADS).build(WIDTH, causal=True, layer=0, generator=Generator().manual_seed(0))
    assert isinstance(ours, GatedDeltaNetLayer)
    keys, values = (size // HEADS for size in ours.config.channels(WIDTH))
    settings = Qwen3NextConfig(
        hidden_size=WIDTH, num_hidden_layers=1, layer_types=["linear_attention"], rms_norm_eps=1e-5,
        linear_num_key_heads=HEADS, linear_num_value_heads=HEADS,
        linear_key_head_dim=keys, linear_value_head_dim=values,
    )  # fmt: skip
    peer = qwen.Qwen3NextGatedDeltaNet(settings, 0)
    by_head = [
        [part.weight.unflatten(0, (HEADS, -1)) for part in parts]
        for parts in ((ours.q_proj, ours.k_proj, ours.v_proj, ours.g_proj), (ours.b_proj, ours.a_proj))
    ]
    taps = [ours.q_conv1d.weight, ours.k_conv1d.weight, ours.v_conv1d.weight]
    with torch.no_grad():
        peer.in_proj_qkvz.weight.copy_(torch.cat(by_head[0], 1).flatten(0, 1))
        peer.in_proj_ba.weight.copy_(torch.cat(by_head[1], 1).flatten(0, 1))
        peer.conv1d.weight.copy_(torch.cat(taps))
        for theirs, mine in ((peer.A_log, ours.A_log), (peer.dt_bias, ours.dt_bias)):
            theirs.copy_(mine)
        peer.norm.weight.copy_(ours.o_norm.weight)
        peer.out_proj.weight.copy_(ours.o_proj.weight)
    x, grad = torch.randn(2, 2, STEPS, WIDTH, generator=Generator().manual_seed(1))
    leaf = x.requires_grad_()

    def results(net: nn.Module, shared: list[Tensor]) -> list[Tensor]:
        y = net(leaf)
        return [y, *torch.autograd.grad(y, [leaf, *shared], grad)]

    return _apart(
        results(ours, [ours.A_log, ours.dt_bias, ours.o_norm.weight, ours.o_proj.weight]),
        results(peer, [peer.A_log, peer.dt_bias, peer.norm.weight, peer.out_proj.weight]),
    )


def _apart(found: list[Tensor], others: list[Tensor]) -> float:
    return max(float(((x - y).abs().max() / y.abs().max()).detach()) for x, y in zip(found, others, strict=True))


def main() -> None:
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, float32")
    print(f"by chunks: {rule(qwen.torch_chunk_gated_delta_rule):.1e}")
    print(f"step by step: {rule(qwen.torch_recurrent_gated_delta_rule):.1e}")
    print(f"gated_deltanet: {layer():.1e}")


if __name__ == "__main__":
    main()
