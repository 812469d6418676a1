"""Where models come from: names on the hub, and runs of our own."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from foreign_files import BASE, WIDTH, random_weights, write_native

from levelfield import run as running
from levelfield.cli import ruler_command
from levelfield.cli.ruler_options import ModelChoice
from levelfield.engine import find as loading
from levelfield.mixers.attention import Attention
from levelfield.objectives import Causal, Classify
from levelfield.pretrained import bos_ids, eos_ids, generate, load
from levelfield.pretrained.checkpoints.files import read_tensors
from levelfield.pretrained.from_run import trained
from levelfield.pretrained.locate import resolve_model_path
from levelfield.pretrained.optional import needed
from levelfield.run import build_net
from levelfield.runs import store
from levelfield.spec import Model, Protocol, Run, UserError
from levelfield.tasks.corpus import Corpus
from levelfield.tasks.recall import Recall
from levelfield.tokenizer import Bytes, RwkvTokenizer

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
    assert resolve_model_path("me/mine") == tmp_path
    assert hub.asked == ["*.json", "*.model", "*.txt", "*.safetensors"]
    assert resolve_model_path("me/words", weights=False) == tmp_path and hub.asked == ["*.json", "*.model", "*.txt"]
    with pytest.raises(
        UserError, match=r"me/other is neither a folder nor to be had from the hub: OSError: 404 Client"
    ):
        resolve_model_path("me/other")
    assert resolve_model_path(str(tmp_path)) == tmp_path


def test_without_the_package_a_name_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match=r"no folder me/mine.*huggingface_hub: pip install 'levelfield\[text\]'"):
        resolve_model_path("me/mine")


def test_a_run_on_text_is_a_language_model_of_bytes() -> None:
    run = Run(Corpus(64), TINY, Protocol("none", ()), 0)
    model, tokenizer = trained(run, build_net(run, Causal()))
    ids = torch.tensor([tokenizer.encode("a few bytes é")])
    assert (model.name, model.vocabulary, model.bos_ids) == (run.id, 256, ())
    net = model.net
    expected = net.head("next", net.hidden_states(ids + 2, None), None)
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
    assert bos_ids(Bytes()) == ()
    assert [eos_ids(c) for c in ({}, {"eos_token_id": 3}, {"eos_token_id": [3, 5]}, {"eos_token_id": None})] == [
        frozenset(),
        {3},
        {3, 5},
        frozenset(),
    ]


def of_ids(folder: Path, ids: int) -> Path:
    """A random Mamba-2 of that many ids, in the layout of `mamba_ssm`, with a tokenizer of its own."""
    embedding = torch.randn(ids, WIDTH, generator=torch.Generator().manual_seed(2))
    more = {"backbone.embedding.weight": embedding, "lm_head.weight": embedding}
    return write_native(folder, BASE | {"vocab_size": ids}, random_weights(BASE) | more)


def test_bytes_are_the_tokenizer_of_any_model_with_ids_for_them(tmp_path: Path) -> None:
    model, tokenizer = load(str(of_ids(tmp_path / "wide", 259)), tokenizer="bytes")
    assert isinstance(tokenizer, Bytes) and model.bos_ids == ()
    text = "bytes: é"
    assert model.logits(torch.tensor([list(text.encode())])).shape == (1, 9, 259)
    (made,) = generate(model, [tokenizer.encode(text)], 4)
    assert len(made) == 4 and isinstance(tokenizer.decode(made), str)
    assert load(str(of_ids(tmp_path / "just", 256)), tokenizer="bytes")[0].vocabulary == 256
    with pytest.raises(UserError, match="narrow has 255 ids, fewer than the 256 bytes: name its own tokenizer"):
        load(str(of_ids(tmp_path / "narrow", 255)), tokenizer="bytes")


def test_a_folder_of_the_name_bytes_goes_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    of_ids(tmp_path / "bytes", 259)
    assert isinstance(load("bytes", tokenizer="bytes")[1], RwkvTokenizer)


def test_a_run_of_ours_is_asked_in_bytes_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(Corpus(64), TINY, Protocol("none", ()), 0)
    (tmp_path / run.id).mkdir()
    (tmp_path / run.id / "spec.json").write_text("{}")
    monkeypatch.setattr(loading, "find_run", lambda name, out: run)
    monkeypatch.setattr(store, "directory", lambda out, run: tmp_path / run.id)
    monkeypatch.setattr(store, "complete", lambda where: True)
    monkeypatch.setattr(running, "load_net", lambda run, where: build_net(run, Causal()))
    asked = ModelChoice(run.id, device="cpu")
    assert isinstance(ruler_command.load(replace(asked, tokenizer="bytes"), tmp_path)[1], Bytes)
    with pytest.raises(UserError, match="was trained here on bytes: leave out --tokenizer"):
        ruler_command.load(replace(asked, tokenizer="some/folder"), tmp_path)


def test_weights_in_the_older_form_of_torch_are_read_and_a_table_is_said_to_be_none(tmp_path: Path) -> None:
    old, table = tmp_path / "old.bin", tmp_path / "a.csv"
    torch.save({"a": torch.arange(3.0)}, old, _use_new_zipfile_serialization=False)
    assert read_tensors(old)["a"].tolist() == [0, 1, 2]
    table.write_text("text,label\nx,1\n")
    with pytest.raises(UserError, match=r"a\.csv cannot be read as weights \(torch or .* give a file or"):
        read_tensors(table)


@pytest.mark.parametrize(("package", "extra"), [("accelerate", "spread"), ("transformers", "text")])
def test_what_brings_an_absent_package_is_named(package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        UserError, match=re.escape(f"This needs the package {package}: pip install 'levelfield[{extra}]'.")
    ):
        needed(package)
