"""Checkpoints in the layout of transformers, read into our layers, against the logits and tokens of transformers."""

from __future__ import annotations

import json
from pathlib import Path

import kept
import pytest
import torch
from safetensors.torch import save_file

from levelfield.pretrained import generate, load
from levelfield.pretrained.native_model import NativeModel


@kept.modes
@pytest.mark.parametrize("name", ["llama", "llama_biases", "mamba", "mamba2", "recurrent_gemma"])
def test_logits_and_greedy_tokens_are_those_of_transformers(name: str, mode: kept.Mode, tmp_path: Path) -> None:
    theirs = kept.case("checkpoints", mode, name)
    (tmp_path / "config.json").write_text(json.dumps(theirs.config))
    save_file({key: value.float() for key, value in theirs.weights.items()}, tmp_path / "model.safetensors")
    model, _ = load(str(tmp_path), tokenizer="bytes")
    assert isinstance(model, NativeModel) and model.eos_ids == {1}
    ids, logits = theirs["ids"], theirs["logits"]
    error = (model.logits(ids) - logits).abs().max()
    assert error < 1e-4 * logits.std(), error
    assert generate(model, [ids[0].tolist()], 5) == [theirs["made"][0].tolist()]
    first, state = model.step(ids[:, :25], None, last=False)
    rest, _ = model.step(ids[:, 25:], state, last=False)
    assert (torch.cat([first, rest], 1) - logits).abs().max() < 1e-4 * logits.std()
