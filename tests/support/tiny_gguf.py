"""Writes the tiny Llama of `tiny_llama` as the one file that llama.cpp reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

OF_LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
AROUND = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
NORMAL, CONTROL, UNUSED = 1, 3, 5  # kinds of tokens in GGUF


def tiny_gguf(folder: Path, path: Path) -> Path:
    """Writes the model of a folder to `path`, with the package gguf, and returns it."""
    from gguf import GGUFWriter
    from safetensors.torch import load_file

    config = json.loads((folder / "config.json").read_text())
    heads, width = config["num_attention_heads"], config["hidden_size"]
    file = GGUFWriter(path, "llama")
    file.add_context_length(config["max_position_embeddings"])
    file.add_embedding_length(width)
    file.add_block_count(config["num_hidden_layers"])
    file.add_feed_forward_length(config["intermediate_size"])
    file.add_head_count(heads)
    file.add_layer_norm_rms_eps(config["rms_norm_eps"])
    file.add_rope_dimension_count(width // heads)
    file.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    file.add_vocab_size(config["vocab_size"])
    file.add_chat_template((folder / "chat_template.jinja").read_text())
    _add_tokenizer(file, json.loads((folder / "tokenizer.json").read_text()), config["vocab_size"])
    for name, values in load_file(folder / "model.safetensors").items():
        stem = name.removesuffix(".weight")
        if stem in AROUND:
            file.add_tensor(f"{AROUND[stem]}.weight", values.numpy())
            continue
        layer, _, part = stem.removeprefix("model.layers.").partition(".")
        if part in ("self_attn.q_proj", "self_attn.k_proj"):  # GGUF rotates neighbours, transformers the two halves
            values = values.reshape(heads, 2, width // heads // 2, width).swapaxes(1, 2).reshape(values.shape)
        file.add_tensor(f"blk.{layer}.{OF_LAYER[part]}.weight", values.contiguous().numpy())
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path


def _add_tokenizer(file: Any, found: dict[str, Any], entries: int) -> None:
    """Adds a byte-level tokenizer whose beginning of a sequence is put before every text."""
    special = {each["content"]: each["id"] for each in found["added_tokens"]}
    text = {i: token for token, i in (found["model"]["vocab"] | special).items()}
    tokens = [text.get(i, f"<unused{i}>") for i in range(entries)]
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre("gpt-2")
    file.add_token_list(tokens)
    file.add_token_types([CONTROL if t in special else NORMAL if i in text else UNUSED for i, t in enumerate(tokens)])
    file.add_token_merges([" ".join(pair) for pair in found["model"]["merges"]])
    file.add_bos_token_id(special["<s>"])
    file.add_eos_token_id(special["</s>"])
    file.add_add_bos_token(True)
