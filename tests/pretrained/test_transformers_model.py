"""Against transformers' own models, from folders that it saved itself; skipped where it is not installed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from levelfield.pretrained import generate, load, transformers_model
from levelfield.pretrained.assemble import LoadOptions
from levelfield.pretrained.decoding import ONE_BY_ONE
from levelfield.pretrained.memory import predicted
from levelfield.pretrained.native_model import NativeModel
from levelfield.pretrained.transformers_model import TransformersModel
from levelfield.spec import UserError

pytestmark = pytest.mark.peers
T: Any = pytest.importorskip("transformers", reason="compares with transformers' own models")
SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "bos_token_id": 2,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
HEADS = {"intermediate_size": 40, "num_attention_heads": 4, "num_key_value_heads": 2}
GEMMA = {"intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 1, "attention_window_size": 16}
MAMBA2 = {"state_size": 4, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 16}
WIDER = {"initializer_range": 0.3}  # or logits would hardly differ

OURS: dict[str, Callable[[], Any]] = {
    "llama": lambda: T.LlamaForCausalLM(T.LlamaConfig(**SIZES, **HEADS, **WIDER)),
    "llama_biases": lambda: T.LlamaForCausalLM(
        T.LlamaConfig(**SIZES, **HEADS, **WIDER, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)
    ),
    "mamba": lambda: T.MambaForCausalLM(T.MambaConfig(**SIZES, **WIDER, state_size=4)),
    "mamba2": lambda: T.Mamba2ForCausalLM(T.Mamba2Config(**SIZES, **WIDER, **MAMBA2)),
    "recurrent_gemma": lambda: T.RecurrentGemmaForCausalLM(T.RecurrentGemmaConfig(**SIZES, **GEMMA)),
    "pythia": lambda: T.GPTNeoXForCausalLM(T.GPTNeoXConfig(**SIZES, **NEOX)),
    "neox_in_turn": lambda: T.GPTNeoXForCausalLM(
        T.GPTNeoXConfig(**SIZES, **NEOX, use_parallel_residual=False, tie_word_embeddings=True)
    ),
}
NEOX = {"intermediate_size": 40, "num_attention_heads": 4} | WIDER
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 90, "vocab_size": 61}
ROPE = {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}}
THEIRS: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: T.GPT2LMHeadModel(T.GPT2Config(**GPT2, bos_token_id=0, eos_token_id=0)),
    "mistral": lambda: T.MistralForCausalLM(T.MistralConfig(**SIZES, **HEADS, **WIDER, sliding_window=16)),
    "llama_stretched": lambda: T.LlamaForCausalLM(T.LlamaConfig(**SIZES, **HEADS, **WIDER, **ROPE)),
}


def saved(make: Callable[[], Any], folder: Path) -> Any:
    """The model with random weights, saved beside a tokenizer that begins every text with id 2."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make().eval()
    model.save_pretrained(folder)
    words = Tokenizer(models.WordLevel({str(i): i for i in range(61)}, unk_token="0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing("2 $A", special_tokens=[("2", 2)])
    words.save(str(folder / "tokenizer.json"))
    return model


def logits_of(model: Any, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(ids, use_cache=False).logits


@pytest.mark.parametrize("name", [*OURS, *THEIRS])
def test_logits_and_generation_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    theirs = saved((OURS | THEIRS)[name], tmp_path)
    model, tokenizer = load(str(tmp_path))
    assert isinstance(model, NativeModel if name in OURS else TransformersModel)
    ids = torch.randint(3, 61, (3, 70), generator=torch.Generator().manual_seed(1))
    expected = logits_of(theirs, ids)
    error = (model.logits(ids) - expected).abs().max()
    assert error < 1e-4 * expected.std(), error
    assert (model.logits(ids, last=3) - expected[:, -3:]).abs().max() < 1e-4 * expected.std()
    if isinstance(model, NativeModel):
        _, state = model.start(ids[:1])
        assert predicted(tmp_path, "float32").row(70) == 4 * sum(
            v.numel() for each in state.layers for v in each.values()
        )
    rows = [row[: 60 - i].tolist() for i, row in enumerate([*ids, ids[0]])]
    made = generate(model, rows, 5)
    assert made == generate(model, rows, 5, batching=ONE_BY_ONE)
    whole = ids[:1, :60]
    for _ in range(5):
        whole = torch.cat([whole, logits_of(theirs, whole)[:, -1:].argmax(-1)], 1)
    assert made[0] == whole[0, 60:].tolist()
    assert model.bos_ids == (2,) and tokenizer.encode("3 4 60") == [3, 4, 60] and tokenizer.decode([3, 60]) == "3 60"
    assert model.eos_ids == {0 if name == "gpt2" else 1} and model.max_length == (90 if name == "gpt2" else None)


def test_a_model_that_cannot_go_on_from_the_middle_is_found_out(tmp_path: Path) -> None:
    """transformers' Mamba forgets its convolution's inputs between pieces of a prompt, but decodes rightly."""
    theirs = saved(OURS["mamba"], tmp_path)
    model, _ = load(str(tmp_path), transformers=True)
    assert isinstance(model, TransformersModel) and not model.supports_chunked_prefill
    ids = torch.randint(3, 61, (2, 40), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(model.logits(ids), logits_of(theirs, ids))
    rows = [row[: 40 - i].tolist() for i, row in enumerate(ids)]
    assert generate(model, rows, 4) == generate(load(str(tmp_path))[0], rows, 4)


def test_a_model_whose_state_is_not_in_its_cache_is_refused(tmp_path: Path) -> None:
    saved(OURS["recurrent_gemma"], tmp_path)
    with pytest.raises(UserError, match="cannot generate here: continuing from its cache"):
        load(str(tmp_path), transformers=True)


def test_half_precision_is_near(tmp_path: Path) -> None:
    theirs = saved(OURS["recurrent_gemma"], tmp_path)
    ids = torch.randint(3, 61, (2, 40), generator=torch.Generator().manual_seed(1))
    expected, found = logits_of(theirs, ids), load(str(tmp_path), precision="bfloat16")[0].logits(ids)
    assert found.dtype == torch.float32 and (found - expected).abs().mean() < 0.03 * expected.std()


def test_code_beside_a_model_is_not_run(tmp_path: Path) -> None:
    saved(OURS["pythia"], tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.C", "AutoModelForCausalLM": "mine.M"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(UserError, match="transformers cannot read"):
        load(str(tmp_path))
    assert not (tmp_path / "ran").exists()


def test_a_model_of_which_a_part_finds_no_room_on_gpus_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a device map, transformers puts what has no room on the disk without a word, where it is read anew for each
    token. The processor stands for the GPUs here."""
    pytest.importorskip("accelerate", reason="spreads models")
    saved(THEIRS["mistral"], tmp_path / "m")
    options = LoadOptions("mistral", "cuda:0", spread=2)
    outer = ("model.embed_tokens", "model.rotary_emb", "model.norm", "lm_head")
    parts = dict.fromkeys((*outer, *(f"model.layers.{i}" for i in range(3))), "cpu")
    monkeypatch.setattr(transformers_model, "_spread", lambda options: {"device_map": parts})
    assert TransformersModel.read(tmp_path / "m", options).vocabulary == 61
    parts["model.layers.2"] = "disk"
    with pytest.raises(UserError, match=r"mistral does not fit into what is free on 2 GPUs.* give a larger --spread"):
        TransformersModel.read(tmp_path / "m", options)
