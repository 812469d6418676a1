"""Checkpoints of `mamba_ssm` in our layers: logits and generation against the model written from its equations."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from foreign_files import (
    BASE,
    HYBRID,
    ODD,
    TRANSFORMER,
    VOCABULARY,
    Config,
    Weights,
    naive_logits,
    random_weights,
    write_native,
)
from safetensors.torch import save_file

from levelfield.presets.decoders import mamba2_2_7b, mamba2attn_2_7b
from levelfield.pretrained import generate, load
from levelfield.pretrained.checkpoints import mamba_ssm
from levelfield.pretrained.language_model import LanguageModel
from levelfield.pretrained.native_model import NativeModel
from levelfield.pretrained.reference_bug import reproduce
from levelfield.spec import UserError

CASES = {"mamba2": BASE, "mamba2attn": HYBRID, "transformerpp": TRANSFORMER, "mamba": ODD}


def loaded(folder: Path, config: Config, weights: Weights) -> NativeModel:
    model, _ = load(str(write_native(folder, config, weights)), precision="float64")
    assert isinstance(model, NativeModel)
    return model


@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_the_equations(name: str, tmp_path: Path) -> None:
    weights = random_weights(CASES[name])
    model = loaded(tmp_path / name, CASES[name], weights)
    ids = torch.randint(37, (2, 19), generator=torch.Generator().manual_seed(1))
    expected = torch.stack([naive_logits(CASES[name], weights, row.tolist()) for row in ids])
    torch.testing.assert_close(model.logits(ids), expected, rtol=1e-9, atol=1e-9)
    first, state = model.start(ids[:, :7])
    rest, _ = model.step(ids[:, 7:], state, last=False)
    torch.testing.assert_close(torch.cat([first[:, None], rest], 1), expected[:, 6:], rtol=1e-9, atol=1e-9)
    assert (model.name, model.vocabulary, model.bos_ids, model.eos_ids) == (name, VOCABULARY, (), frozenset())


def continued(config: Config, weights: Weights, prompt: list[int], budget: int, bug: bool) -> list[int]:
    ids = list(prompt)
    for _ in range(budget):
        ids.append(int(naive_logits(config, weights, ids, len(prompt) if bug else None)[-1].argmax()))
    return ids[len(prompt) :]


def test_the_known_decode_bug_is_a_switch(tmp_path: Path) -> None:
    weights = random_weights(HYBRID, seed=3)
    folder = str(write_native(tmp_path / "hybrid", HYBRID, weights))
    draws = torch.Generator().manual_seed(2)
    prompts = [torch.randint(37, (n,), generator=draws).tolist() for n in (9, 12, 2, 1)]
    prompts.append([*prompts[1][:8], 1, 2, 3, 4])
    right, mistaken = (load(folder, precision="float64", reference_bug=bug)[0] for bug in (False, True))
    expected = [continued(HYBRID, weights, prompt, 5, bug=True) for prompt in prompts]
    assert generate(mistaken, prompts, 5) == expected
    correct = [continued(HYBRID, weights, prompt, 5, bug=False) for prompt in prompts]
    assert generate(right, prompts, 5) == correct
    assert [a[0] for a in expected] == [a[0] for a in correct]  # the prompt itself is read rightly
    assert expected != correct
    ids = torch.tensor([prompts[0]])
    torch.testing.assert_close(mistaken.logits(ids), right.logits(ids), rtol=0, atol=0)


def test_the_bug_changes_nothing_else_that_a_model_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded(tmp_path / "hybrid", HYBRID, random_weights(HYBRID, seed=3))
    monkeypatch.setattr(model.net, "model", replace(model.net.model, positions="learned", max_positions=99))
    plain = replace(model, bos=(1,), eos=frozenset({2}), positions=2048)
    mistaken = reproduce(plain)
    told = [name for name, value in vars(LanguageModel).items() if isinstance(value, property)]
    other = {name for name in told if getattr(mistaken, name) != getattr(plain, name)}
    assert other == {"supports_mixed_lengths"} and mistaken.max_length == 99


def test_only_the_hybrid_has_that_bug(tmp_path: Path) -> None:
    folder = str(write_native(tmp_path / "plain", BASE, random_weights(BASE)))
    with pytest.raises(UserError, match="known decode bug is not its"):
        load(folder, reference_bug=True)


def test_bfloat16_is_near(tmp_path: Path) -> None:
    weights = random_weights(HYBRID)
    folder = str(write_native(tmp_path / "half", HYBRID, weights))
    ids = torch.randint(37, (2, 30), generator=torch.Generator().manual_seed(1))
    whole, half = (load(folder, precision=kind)[0].logits(ids) for kind in ("float32", "bfloat16"))
    assert whole.dtype == half.dtype == torch.float32
    assert 0 < (whole - half).abs().mean() < 0.03 * whole.std()


PUBLISHED = {
    "d_model": 2560,
    "n_layer": 64,
    "vocab_size": 50277,
    "ssm_cfg": {"layer": "Mamba2"},
    "attn_cfg": {
        "causal": True,
        "d_conv": 4,
        "head_dim": 128,
        "num_heads": 30,
        "out_proj_bias": False,
        "qkv_proj_bias": False,
        "rotary_emb_dim": 64,
    },
}


def test_published_settings_are_the_models_whose_parameters_were_counted() -> None:
    for decoder, places in ((mamba2_2_7b(), []), (mamba2attn_2_7b(), [9, 18, 27, 36, 45, 56])):
        model = mamba_ssm.model_of(PUBLISHED | {"attn_layer_idx": places}, decoder.source)
        assert model.block == decoder.model.block and model.width == decoder.model.width
        assert model.mixers == decoder.model.mixers * (64 // len(decoder.model.mixers))


def broken(folder: Path, how: str) -> None:
    """One thing wrong with a whole checkpoint."""
    weights = random_weights(BASE)
    if how == "cut":
        content = (folder / "pytorch_model.bin").read_bytes()
        (folder / "pytorch_model.bin").write_bytes(content[: len(content) // 2])
    elif how == "code":
        torch.save({"a": LanguageModel}, folder / "pytorch_model.bin")
    elif how == "numbers":
        torch.save({"a": 1}, folder / "pytorch_model.bin")
    elif how == "absent":
        (folder / "pytorch_model.bin").unlink()
    elif how == "parts":
        (folder / "pytorch_model.bin").unlink()
        index = {"weight_map": {"a": "pytorch_model-00001-of-00002.bin"}}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    elif how == "tokenizer":
        (folder / "rwkv_vocab_tiny.txt").unlink()
    elif how == "json":
        (folder / "config.json").write_text("{")
    elif how == "fewer":
        write_native(folder, BASE, {k: v for k, v in weights.items() if "layers.2.mixer.D" not in k})
    elif how == "more":
        write_native(folder, BASE, weights | {"backbone.extra": torch.ones(1)})
    elif how == "shape":
        write_native(folder, BASE, weights | {"backbone.layers.1.mixer.D": torch.ones(5)})
    else:
        settings: Config = {"layer": BASE | {"ssm_cfg": {"layer": "Mamba3"}}, "unknown": {"what": 1}}
        settings["setting"] = BASE | {"ssm_cfg": {"layer": "Mamba2", "rmsnorm": False}}
        settings["attention"] = HYBRID | {"attn_cfg": {**HYBRID["attn_cfg"], "softmax_scale": 0.5}}
        (folder / "config.json").write_text(json.dumps(settings[how]))


@pytest.mark.parametrize(
    "how, said",
    [
        ("cut", "cannot be read as weights"),
        ("code", "cannot be read as weights"),
        ("numbers", "does not hold tensors by name"),
        ("absent", "holds no weights"),
        ("parts", "copy the whole model again"),
        ("tokenizer", "has no tokenizer"),
        ("json", "cannot be read as JSON"),
        ("fewer", "blocks.2.mixer.D"),
        ("more", "'backbone.extra' that its config.json"),
        ("shape", "blocks.1.mixer.D' of shape"),
        ("layer", "is made of Mamba3 layers: Mamba1 and Mamba2 can be read"),
        ("setting", "rmsnorm=False, which ours do not have"),
        ("attention", "softmax_scale=0.5, which ours does not have"),
        ("unknown", "is of no known format"),
    ],
)
def test_what_is_wrong_is_one_sentence(how: str, said: str, tmp_path: Path) -> None:
    folder = write_native(tmp_path / "model", BASE, random_weights(BASE))
    broken(folder, how)
    with pytest.raises(UserError, match=said):
        load(str(folder))


def test_weights_may_come_in_parts_and_as_safetensors(tmp_path: Path) -> None:
    weights = random_weights(ODD)
    folder = write_native(tmp_path / "parts", ODD, {})
    (folder / "pytorch_model.bin").unlink()
    names = sorted(weights)
    for number, part in enumerate((names[:9], names[9:])):
        save_file({name: weights[name] for name in part}, folder / f"part{number}.safetensors")
    index = {"weight_map": {name: f"part{int(i >= 9)}.safetensors" for i, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    ids = torch.arange(12)[None]
    model, _ = load(str(folder), precision="float64")
    torch.testing.assert_close(model.logits(ids)[0], naive_logits(ODD, weights, ids[0].tolist()), rtol=1e-9, atol=1e-9)


def test_a_name_that_is_no_folder_and_no_name_of_the_hub() -> None:
    with pytest.raises(UserError, match="There is no folder nothing: give a model's folder"):
        load("nothing")
    with pytest.raises(UserError, match="There is no precision 'half'"):
        load(".", precision="half")  # pyright: ignore[reportArgumentType]
