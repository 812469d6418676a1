"""The published language models have as many parameters as their checkpoints; nothing of their size is allocated."""

from __future__ import annotations

from collections.abc import Callable

import kept
import pytest
from torch._subclasses.fake_tensor import FakeTensorMode

from levelfield.model import Network
from levelfield.presets.decoders import DECODERS, Decoder, mamba2attn_2_7b, recurrentgemma_2b, sheared_llama_2_7b
from levelfield.spec import Tokens


@pytest.mark.parametrize("make", DECODERS, ids=lambda make: make.__name__)
def test_parameters_are_those_of_the_checkpoint(make: Callable[[], Decoder]) -> None:
    decoder = make()
    with FakeTensorMode():  # tensors with shapes and no memory
        net = Network(decoder.model, Tokens(2), (), mask_flag=False, seed=0)
    trunk = sum(p.numel() for name, p in net.named_parameters() if not name.startswith("encoder."))
    rows = decoder.vocabulary * (1 if decoder.tied else 2)
    assert trunk + rows * decoder.model.width == decoder.parameters
    assert decoder.model.causal and decoder.context in (2048, 4096)


@kept.modes
def test_the_counts_are_those_of_transformers(mode: kept.Mode) -> None:
    theirs = kept.case("decoder_counts", mode)
    assert theirs["sheared_llama_2_7b"] == sheared_llama_2_7b().parameters
    assert theirs["recurrentgemma_2b"] == recurrentgemma_2b().parameters


def test_the_hybrids_place_their_layers() -> None:
    kinds = [mixer.label for mixer in mamba2attn_2_7b().model.mixers]
    assert len(kinds) == 64 and [i for i, kind in enumerate(kinds) if kind == "attention"] == [9, 18, 27, 36, 45, 56]
    model = recurrentgemma_2b().model
    assert sum(model.mixers[layer % 3].label == "attention" for layer in range(model.depth)) == 8
