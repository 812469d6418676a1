"""Runs other libraries and keeps what they give.

    PYTHONPATH=.:tests/support python tests/support/reference/make.py [NAME...]

Each file beside this one holds the inputs and outputs of one library, its name and its version. Those of libraries
that are not installed, or of another major version, are left as they are: transformers 4 and 5 take two environments.
`tests/support/kept.py` reads the files and tells how weights are drawn.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from kept import SCALE, Case, Peer, drawn, fill, write
from torch import Tensor


def _gradient(y: Tensor, x: Tensor) -> Tensor:
    return torch.autograd.grad(y.sin().sum(), x)[0]


def bloom() -> dict[str, Case]:
    """BLOOM's attention, 41 steps of 6 heads."""
    from transformers import BloomConfig
    from transformers.models.bloom.modeling_bloom import BloomAttention, build_alibi_tensor

    width, heads, length = 24, 6, 41
    config = BloomConfig(hidden_size=width, n_head=heads, attention_dropout=0.0, hidden_dropout=0.0)
    peer: Any = BloomAttention(config, layer_idx=0).double().eval()
    shapes, x = fill(peer), drawn("x", 2, length, width).requires_grad_()
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    hidden = torch.zeros(length, length, dtype=torch.float64).masked_fill(later, -1e30)
    alibi = build_alibi_tensor(torch.ones(2, length), heads, torch.float64)
    y = peer(x, torch.zeros_like(x), alibi=alibi, attention_mask=hidden[None, None])[0]
    return {"": Case({"x": x, "y": y, "gradient": _gradient(y, x)}, shapes)}


def bigbird() -> dict[str, Case]:
    """12 blocks of 4 steps, the last whole or padded. Its random blocks are replaced by those that ours draws."""
    from transformers.models.big_bird import modeling_big_bird as source

    from levelfield.mixers.bigbird import BigBird, BigBirdLayer

    ours = BigBird(heads=4, block=4, random=2).build(
        16, causal=False, layer=0, generator=torch.Generator().manual_seed(1)
    )
    assert isinstance(ours, BigBirdLayer)
    blocks = ours.table(torch.tensor([12]), 12)[0, :, 1:-1, ours.config.window + 2 :]
    settings = source.BigBirdConfig(hidden_size=16, num_attention_heads=4, block_size=4, num_random_blocks=2)
    peer: Any = source.BigBirdBlockSparseAttention(settings).double()
    shapes, cases = fill(peer), {}
    peer._bigbird_block_rand_mask_with_head = lambda **settings: [head.numpy() for head in blocks]
    for length in (48, 45):
        x = drawn("x", 1, 48, 16).requires_grad_()
        mask = (torch.arange(48)[None] < length).double()
        blocked, band, rows, keys = source.BigBirdModel.create_masks_for_block_sparse_attn(mask, 4)
        y = peer(x, band, rows, keys, blocked, blocked)[0][:, :length]
        values = {"x": x, "y": y, "gradient": _gradient(y, x), "blocks": blocks, "seeds": ours.seeds}
        cases[str(length)] = Case(values, shapes)
    return cases


def qwen3_next() -> dict[str, Case]:
    """The gated delta rule by chunks and step by step, from a state, in float32 as it computes."""
    from transformers.models.qwen3_next import modeling_qwen3_next as source

    q, k, v = (drawn(name, 2, 3, 133, size).float() for name, size in (("q", 5), ("k", 5), ("v", 4)))
    k = torch.nn.functional.normalize(k, dim=-1)
    beta, rate = (torch.sigmoid(drawn(name, 2, 3, 133)).float() for name in ("beta", "rate"))
    beta, log_decay, state = 2 * beta, -(rate**3), drawn("state", 2, 3, 5, 4).float()
    given = {"q": q, "k": k, "v": v, "beta": beta, "log_decay": log_decay, "state": state}
    turned, cases = [x.transpose(1, 2) for x in (q, k, v, log_decay, beta)], {}
    for case in ("chunk", "recurrent"):
        rule = getattr(source, f"torch_{case}_gated_delta_rule")
        y, last = rule(*turned, initial_state=state, output_final_state=True)
        cases[case] = Case(given | {"y": y.transpose(1, 2), "last": last})
    return cases


def llama() -> dict[str, Case]:
    """Two layers with grouped heads, 60 steps."""
    from transformers import LlamaConfig, LlamaModel

    sizes = {"vocab_size": 11, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-5}
    peer: Any = LlamaModel(LlamaConfig(**sizes, **heads)).double().eval()
    shapes, ids = fill(peer), 2 + (drawn("ids", 2, 60).abs() * 1000).long() % 9
    return {"": Case({"ids": ids, "y": peer(ids).last_hidden_state}, shapes)}


def recurrentgemma_attention() -> dict[str, Case]:
    """One head of keys for four of queries, half of each head turned, a window of 6 steps."""
    from transformers.models.recurrent_gemma import modeling_recurrent_gemma as source

    config = source.RecurrentGemmaConfig(hidden_size=32, num_attention_heads=4, num_key_value_heads=1)
    config._attn_implementation = "sdpa"
    peer: Any = source.RecurrentGemmaAttention(config, 0).double()
    shapes, x, steps = fill(peer), drawn("x", 2, 20, 32).requires_grad_(), torch.arange(20)
    near = (steps <= steps[:, None]) & (steps > steps[:, None] - 6)
    y = peer(x, steps[None], near[None, None])[0]
    return {"": Case({"x": x, "y": y, "gradient": _gradient(y, x)}, shapes)}


def recurrentgemma_block() -> dict[str, Case]:
    """The recurrent block of RecurrentGemma over 50 steps, in float32."""
    from transformers.models.recurrent_gemma import modeling_recurrent_gemma as source

    config = source.RecurrentGemmaConfig(hidden_size=16, lru_width=24, num_attention_heads=4)
    peer: Any = source.RecurrentGemmaRecurrentBlock(config, 0)
    shapes, x = fill(peer), drawn("x", 2, 50, 16).float()
    y, _ = peer(x, torch.arange(50).expand(2, -1), None, use_cache=False)
    return {"": Case({"x": x, "y": y}, shapes)}


def longformer() -> dict[str, Case]:
    """40 steps with padding, with and without global steps; its softmax is in float32."""
    from transformers.models.longformer import modeling_longformer as source

    config = source.LongformerConfig(
        hidden_size=16, num_attention_heads=4, attention_window=[8], attention_probs_dropout_prob=0.0
    )
    peer: Any = source.LongformerSelfAttention(config, 0).double()
    shapes, lengths, steps, cases = fill(peer), torch.tensor([40, 29]), torch.arange(40).expand(2, -1), {}
    for count in (0, 3):
        x = drawn("x", 2, 40, 16).requires_grad_()
        whole = torch.where(steps < count, 10000.0, 0.0)
        code = torch.where(steps >= lengths[:, None], -10000.0, whole).double()
        y = peer(x, code, code < 0, code > 0, bool(count))[0].masked_fill((code < 0)[..., None], 0)
        cases[str(count)] = Case({"x": x, "y": y, "gradient": _gradient(y, x), "lengths": lengths}, shapes)
    return cases


def reformer() -> dict[str, Case]:
    """64 steps, one and three rounds, with and without padding.

    Its first chunk of a round sees the last chunk as well, so gradients are of the steps of all other chunks: those
    where `pull` is not zero.
    """
    from transformers import ReformerConfig
    from transformers.models.reformer import modeling_reformer as source

    length, chunk, heads, dim, buckets, cases = 64, 8, 2, 6, 6, {}
    for rounds, padded in product((1, 3), (0, 9)):
        sizes = {"hidden_size": heads * dim, "num_attention_heads": heads, "attention_head_size": dim}
        hashing = {"num_hashes": rounds, "num_buckets": buckets, "is_decoder": False, "hash_seed": 5}
        near = {"lsh_attn_chunk_length": chunk, "lsh_num_chunks_before": 1, "lsh_num_chunks_after": 0}
        config = ReformerConfig(**sizes, **hashing, **near, lsh_attention_probs_dropout_prob=0.0)
        peer: Any = source.LSHSelfAttention(config, 0).double()
        shapes, x = fill(peer), (3 * drawn("x", 2, length, heads * dim)).requires_grad_()
        mask = torch.arange(length) < torch.tensor([length, length - padded])[:, None]
        with torch.random.fork_rng():
            y = peer(x, mask if padded else None).hidden_states
            torch.manual_seed(5)  # as it does before it draws
            rotations = torch.randn(heads, dim, rounds, buckets // 2, dtype=torch.float64)
        turned = torch.einsum("bthd,hdrk->bhrtk", peer.query_key(x).unflatten(-1, (heads, dim)), rotations)
        hashes = torch.cat([turned, -turned], -1).argmax(-1).masked_fill(~mask[:, None, None], buckets)
        places = hashes.argsort(dim=-1, stable=True).argsort(-1)
        same = (places >= chunk).all(2).transpose(1, 2) & mask[:, :, None]
        pull = (drawn("pull", 2, length, heads, 1) * same[..., None]).expand(-1, -1, -1, dim).flatten(2)
        (gradient,) = torch.autograd.grad(y, x, pull)
        values = {"x": x, "y": y * (pull != 0), "pull": pull, "gradient": gradient, "rotations": rotations}
        cases[f"{rounds} rounds, {padded} padded"] = Case(values, shapes)
    return cases


def mega() -> dict[str, Case]:
    """Both kinds of scores and of biases, both directions, whole and in chunks, its angles set to float64."""
    choices = product(("softmax", "laplace"), ("simple", "rotary"), (False, True), (None, 8))
    with mock.patch.object(Tensor, "float", lambda self: self):
        return {" ".join(map(str, choice)): _mega(*choice) for choice in choices}


def _mega(weigh: str, positions: str, causal: bool, chunk: int | None) -> Case:
    from transformers.models.deprecated.mega import modeling_mega as source
    from transformers.models.deprecated.mega.configuration_mega import MegaConfig

    length = 24
    config = MegaConfig(
        hidden_size=6,
        ema_projection_size=3,
        bidirectional=not causal,
        shared_representation_size=6,
        intermediate_size=14,
        use_chunking=bool(chunk),
        chunk_size=chunk or -1,
        attention_activation=weigh,
        relative_positional_bias=positions,
        max_positions=40,
        normalize_before_mega=False,
        dropout_prob=0.0,
        hidden_dropout_prob=0.0,
    )
    peer: Any = source.MegaMovingAverageGatedAttention(config).double().eval()
    peer.norm, bias = torch.nn.Identity(), peer.rel_pos_bias
    if positions == "rotary":
        half = bias.alpha.shape[1] // 2
        angles = torch.arange(64, dtype=torch.float64)[:, None] * 10000 ** (-torch.arange(half).double() / half)
        bias.sine, bias.cosine, bias._float_tensor = angles.sin(), angles.cos(), bias._float_tensor.double()
    shapes, x = fill(peer), drawn("x", 2, length, 6).requires_grad_()
    mask = torch.arange(length) < torch.tensor([[length], [17]])
    past = torch.ones(chunk or length, chunk or length, dtype=torch.float64).tril() if causal else None
    y = peer(x.transpose(0, 1), padding_mask=mask.double(), causal_mask=past)[0].transpose(0, 1)
    y = y.masked_fill(~mask[..., None], 0)
    return Case({"x": x, "y": y, "mask": mask, "gradient": _gradient(y, x)}, shapes)


def linformer() -> dict[str, Case]:
    """Maps shared between heads, and shared by keys and values as well, at two lengths."""
    from linformer import LinformerSelfAttention

    cases = {}
    for share, length in product(("heads", "kv"), (40, 64)):
        peer: Any = LinformerSelfAttention(dim=12, seq_len=64, k=7, heads=2, share_kv=share == "kv").double()
        shapes, x = fill(peer), drawn("x", 2, length, 12).requires_grad_()
        y = peer(x)
        cases[f"{share} {length}"] = Case({"x": x, "y": y, "gradient": _gradient(y, x)}, shapes)
    return cases


def rwkv() -> dict[str, Case]:
    """RWKV-6 from a file of the authors' layout, in the one size that their loader knows: logits of 37 tokens."""
    os.environ |= {"RWKV_JIT_ON": "0", "RWKV_CUDA_ON": "0"}
    from foreign_files import rwkv6_shapes
    from rwkv.model import RWKV

    found = Case({}, rwkv6_shapes(width=128, head=64, mix=32, decay=64))
    with tempfile.TemporaryDirectory() as folder:
        torch.save({name: value.float() for name, value in found.weights.items()}, f"{folder}/model.pth")
        peer: Any = RWKV(model=f"{folder}/model", strategy="cpu fp32", verbose=False)
    ids = list(range(3, 40))
    return {"": Case({"ids": torch.tensor(ids), "logits": peer.forward(ids, None, full_output=True)[0]}, found.shapes)}


def decoder_counts() -> dict[str, Case]:
    """How many parameters the published decoders have, without their memory."""
    from transformers import LlamaConfig, LlamaForCausalLM, RecurrentGemmaConfig, RecurrentGemmaForCausalLM

    shape = {"hidden_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 20, "intermediate_size": 6912}
    with torch.device("meta"):
        models = {
            "sheared_llama_2_7b": LlamaForCausalLM(LlamaConfig(vocab_size=32000, **shape)),
            "recurrentgemma_2b": RecurrentGemmaForCausalLM(
                RecurrentGemmaConfig(num_key_value_heads=1, intermediate_size=15360)  # which it halves
            ),
        }
    return {"": Case({name: torch.tensor(sum(p.numel() for p in m.parameters())) for name, m in models.items()})}


def checkpoints() -> dict[str, Case]:
    """Whole language models that our layers can be: logits of 40 tokens, and five tokens made greedily."""
    import transformers as t

    sizes = {"vocab_size": 256, "hidden_size": 32, "num_hidden_layers": 3}
    sizes |= {"bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0}
    heads = {"intermediate_size": 40, "num_attention_heads": 4, "num_key_value_heads": 2}
    biases = {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}
    mamba2 = {"state_size": 4, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 16}
    gemma = {"intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 1, "attention_window_size": 16}
    models: dict[str, Any] = {
        "llama": t.LlamaForCausalLM(t.LlamaConfig(**sizes, **heads)),
        "llama_biases": t.LlamaForCausalLM(t.LlamaConfig(**sizes, **heads, **biases)),
        "mamba": t.MambaForCausalLM(t.MambaConfig(**sizes, state_size=4)),
        "mamba2": t.Mamba2ForCausalLM(t.Mamba2Config(**sizes, **mamba2)),
        "recurrent_gemma": t.RecurrentGemmaForCausalLM(t.RecurrentGemmaConfig(**sizes, **gemma)),
    }
    return {name: _checkpoint(model.eval()) for name, model in models.items()}


def neox() -> dict[str, Case]:
    """GPT-NeoX like `checkpoints`, with both parts of a block side by side, as in Pythia, and one after the other."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    sizes = {"vocab_size": 256, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 40}
    sizes |= {"num_attention_heads": 2, "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0}
    in_turn = {"use_parallel_residual": False, "tie_word_embeddings": True}
    models: dict[str, Any] = {
        "parallel": GPTNeoXForCausalLM(GPTNeoXConfig(**sizes)),
        "in_turn": GPTNeoXForCausalLM(GPTNeoXConfig(**sizes, **in_turn)),
    }
    head = {"lm_head.weight": "embed_out.weight"}
    return {name: _checkpoint(model.eval(), head) for name, model in models.items()}


@torch.no_grad()
def _checkpoint(model: Any, renamed: Mapping[str, str] | None = None) -> Case:
    """Fills, saves and runs a model. renamed: weights that the library saves under another name, by their own."""
    from safetensors.torch import load_file

    shapes = fill(model)
    for name, in_file in (renamed or {}).items():
        if name in shapes:
            shapes[in_file] = shapes.pop(name)
            model.get_parameter(name).copy_(SCALE * drawn(in_file, *shapes[in_file]))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        saved = load_file(os.path.join(folder, "model.safetensors"))
        config = json.loads(Path(folder, "config.json").read_text())
    assert {name: tuple(value.shape) for name, value in saved.items()} == shapes
    ids = 3 + (drawn("ids", 1, 40).abs() * 1000).long() % 250
    whole, logits = ids, model(ids, use_cache=False).logits
    for _ in range(5):
        whole = torch.cat([whole, model(whole, use_cache=False).logits[:, -1:].argmax(-1)], 1)
    return Case({"ids": ids, "logits": logits, "made": whole[:, 40:]}, shapes, config)


TRANSFORMERS: Callable[..., Peer] = partial(Peer, "transformers", 5)
PEERS = {
    "bigbird": TRANSFORMERS(bigbird),
    "bloom": TRANSFORMERS(bloom),
    "checkpoints": TRANSFORMERS(checkpoints),
    "decoder_counts": TRANSFORMERS(decoder_counts),
    "linformer": Peer("linformer", 0, linformer),
    "llama": TRANSFORMERS(llama),
    "longformer": TRANSFORMERS(longformer),
    "mega": Peer("transformers", 4, mega),
    "neox": TRANSFORMERS(neox),
    "qwen3_next": TRANSFORMERS(qwen3_next),
    "recurrentgemma_attention": TRANSFORMERS(recurrentgemma_attention),
    "recurrentgemma_block": TRANSFORMERS(recurrentgemma_block),
    "reformer": TRANSFORMERS(reformer),
    "rwkv": Peer("rwkv", 0, rwkv),
}


def main(names: list[str]) -> None:
    for name in names or PEERS:
        peer = PEERS[name]
        if peer.installed:
            print(f"{peer.library} {peer.installed}: {write(name, peer)}")
        else:
            print(f"{name} is left as it is: {peer.library} {peer.major} is not installed")


if __name__ == "__main__":
    main(sys.argv[1:])
