"""Where models come from: names on the hub, and runs of our own."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from levelfield.foreign import begins, ends, generate
from levelfield.foreign.places import find
from levelfield.foreign.trained import trained
from levelfield.mixers.attention import Attention
from levelfield.objectives import Causal, Classify
from levelfield.ruler.tokenizers import Bytes
from levelfield.run import build_net
from levelfield.spec import Model, Protocol, Run, UserError
from levelfield.tasks.corpus import Corpus
from levelfield.tasks.recall import Recall

TINY = Model((Attention(heads=2, rotary="per_head"),), depth=2, width=16, causal=True)


class FakeHub(ModuleType):
    """The hub's client, with one model in two forms of weights and another that is not there."""

    def __init__(self, at: Path) -> None:
        super().__init__("huggingface_hub")
        self.at, self.asked, self.HfApi = at, [""], lambda: self

    def list_repo_files(self, name: str) -> list[str]:
        if name != "me/mine":
            raise OSError("404 Client Error.\n\nRepository Not Found")
        return ["config.json", "pytorch_model.bin", "model.safetensors", "onnx/model.onnx", "tokenizer.json"]

    def snapshot_download(self, name: str, allow_patterns: list[str]) -> str:
        self.asked = allow_patterns
        return str(self.at)


def test_a_name_of_the_hub_brings_one_form_of_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = FakeHub(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert find("me/mine") == tmp_path
    assert hub.asked == ["*.json", "*.model", "*.txt", "*.safetensors"]
    assert find("me/words", weights=False) == tmp_path and hub.asked == ["*.json", "*.model", "*.txt"]
    with pytest.raises(
        UserError, match=r"me/other is neither a folder nor to be had from the hub: OSError: 404 Client"
    ):
        find("me/other")
    assert find(str(tmp_path)) == tmp_path


def test_without_the_package_a_name_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match=r"needs the package huggingface_hub: pip install 'levelfield\[text\]'"):
        find("me/mine")


def test_a_run_on_text_is_a_language_model_of_bytes() -> None:
    run = Run(Corpus(64), TINY, Protocol("none", ()), 0)
    model, tokenizer = trained(run, build_net(run, Causal()))
    ids = torch.tensor([tokenizer.encode("a few bytes é")])
    assert (model.name, model.vocabulary, model.begin) == (run.id, 256, ())
    net = model.net
    expected = net.head("next", net.features(ids + 2, None), None)
    torch.testing.assert_close(model.logits(ids), expected)
    (made,) = generate(model, [ids[0].tolist()], 3)
    assert made[0] == int(expected[0, -1].argmax()) and isinstance(tokenizer.decode(made), str)


def test_other_runs_are_no_language_models() -> None:
    run = Run(Corpus(64), TINY, Protocol("none", ()), 0)
    labelled = Run(Recall(), TINY, Protocol("none", ()), 0)
    with pytest.raises(UserError, match="does not predict the next symbol"):
        trained(labelled, build_net(labelled, Classify()))
    with pytest.raises(UserError, match="whose symbols are not bytes"):
        trained(labelled, build_net(labelled, Causal()))
    both = replace(run, model=replace(TINY, causal=False))
    with pytest.raises(UserError, match="does not predict the next symbol"):
        trained(both, build_net(both, Causal()))


def test_begins_and_ends() -> None:
    assert begins(Bytes()) == ()
    assert [ends(c) for c in ({}, {"eos_token_id": 3}, {"eos_token_id": [3, 5]}, {"eos_token_id": None})] == [
        frozenset(),
        {3},
        {3, 5},
        frozenset(),
    ]
