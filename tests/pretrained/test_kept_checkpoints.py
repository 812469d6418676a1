"""Checkpoints in the layout of transformers, read into our layers, against the logits and tokens of transformers."""

from __future__ import annotations

from pathlib import Path

import kept
import pytest
import torch

from levelfield.pretrained import generate, load
from levelfield.pretrained.native_model import NativeModel


@kept.modes
@pytest.mark.parametrize("name", ["llama", "llama_biases", "mamba", "mamba2", "recurrent_gemma"])
def test_logits_and_greedy_tokens_are_those_of_transformers(name: str, mode: kept.Mode, tmp_path: Path) -> None:
    compare(kept.case("checkpoints", mode, name), tmp_path)


@kept.modes
@pytest.mark.parametrize("name", ["parallel", "in_turn"])
def test_gpt_neox_is_that_of_transformers(name: str, mode: kept.Mode, tmp_path: Path) -> None:
    compare(kept.case("neox", mode, name), tmp_path)


def compare(theirs: kept.Case, folder: Path) -> None:
    theirs.save(folder)
    model, _ = load(str(folder), tokenizer="bytes")
    assert isinstance(model, NativeModel) and model.eos_ids == {1}
    ids, logits = theirs["ids"], theirs["logits"]
    error = (model.logits(ids) - logits).abs().max()
    assert error < 1e-4 * logits.std(), error
    assert generate(model, [ids[0].tolist()], 5) == [theirs["made"][0].tolist()]
    first, state = model.step(ids[:, :25], None, last=False)
    rest, _ = model.step(ids[:, 25:], state, last=False)
    assert (torch.cat([first, rest], 1) - logits).abs().max() < 1e-4 * logits.std()
