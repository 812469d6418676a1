"""A model of a task starts from a checkpoint: its blocks, and the rows of its embedding that the symbols stand for."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import kept
import pytest
import torch
from safetensors.torch import load_file
from tiny import recipe

from levelfield.data import prepared
from levelfield.engine.find import find_weights, load_study
from levelfield.engine.forecast import lines
from levelfield.engine.restore import restore
from levelfield.mixers.attention import Attention
from levelfield.model import Network
from levelfield.pretrained import load, trunk
from levelfield.protocols import finetuned
from levelfield.run import check, execute
from levelfield.runs import store
from levelfield.spec import Block, Model, Run, Tokens, UserError, describe
from levelfield.tasks.listops import ListOps
from levelfield.tokenizer import Bytes

NEOX = Attention(heads=2, rotary="per_head", rotary_width=4)
MODEL = Model((NEOX,), depth=2, width=32, causal=True, block=Block(feedforward=40, parallel=True), name="neox")
TASK = ListOps(minimum=5, length=30, max_depth=3, max_args=3, train=8, val=4, test=4)
TEXTS = (*"0123456789", "[MAX", "[MED", "[MIN", "[SM", "]")


@pytest.fixture(autouse=True)
def _bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny checkpoint has no tokenizer of its own; its vocabulary is that of bytes."""
    monkeypatch.setattr(trunk, "read_tokenizer", lambda folder: Bytes())


def start(folder: Path) -> trunk.CheckpointTrunk:
    """Puts the checkpoint that transformers has run into a folder, and returns it as the start of a model."""
    folder.mkdir(parents=True)
    kept.case("neox", "kept", "parallel").save(folder)
    files = sorted(path.name for path in folder.iterdir())
    digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files}
    return trunk.CheckpointTrunk("tiny", "https://example.org", tuple(digests.items()), TEXTS, hidden="?")


def test_hidden_states_are_those_of_the_whole_language_model(tmp_path: Path) -> None:
    """The text of an example read by the checkpoint, and its symbols read by the model that starts from it."""
    given = start(tmp_path / "tiny")
    net = Network(MODEL, TASK.input, (), mask_flag=False, seed=0).eval()
    net.load_trunk(given.trunk(tmp_path / "tiny", MODEL))
    whole, _ = load(str(tmp_path / "tiny"), tokenizer="bytes")
    symbols = torch.tensor([[3, 0, 9, 14]])
    ids = torch.tensor([Bytes().encode("309]")])
    with torch.no_grad():
        hidden = net.hidden_states(symbols + TASK.input.OFFSET, None)
        logits = hidden @ kept.case("neox", "kept", "parallel").weights["embed_out.weight"].float().T
    torch.testing.assert_close(logits, whole.logits(ids), rtol=1e-4, atol=1e-4)


def test_a_symbol_of_several_tokens_has_the_mean_of_their_rows(tmp_path: Path) -> None:
    rows = start(tmp_path / "tiny").trunk(tmp_path / "tiny", MODEL)["encoder.embed.weight"]
    table = kept.case("neox", "kept", "parallel").weights["gpt_neox.embed_in.weight"].float()
    assert rows.shape == (len(TEXTS) + 2, 32)
    torch.testing.assert_close(rows[2 + 10], table[list(b"[MAX")].mean(0))
    torch.testing.assert_close(rows[:2], table[[ord("?")] * 2])


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    """Half of a head rotated has the same shapes, so that nothing else would notice."""
    given = start(tmp_path / "tiny")
    other = replace(MODEL, mixers=(replace(NEOX, rotary_width=8),))
    with pytest.raises(UserError, match="holds another model than neox"):
        given.trunk(tmp_path / "tiny", other)


def test_a_run_starts_from_the_files_and_says_which_is_absent_or_changed(tmp_path: Path) -> None:
    given = start(files := tmp_path / "downloads" / "tiny")
    assert prepared.downloads(given, tmp_path) == files and prepared.absent(given, tmp_path) == []
    run = Run(TASK, MODEL, finetuned(given, replace(recipe(1), lr=1e-30)), 0)
    check(run)
    assert restore(json.loads(json.dumps(describe(run)))) == run
    execute(run, where := store.directory(tmp_path / "runs", run), tmp_path, "cpu")
    trained = load_file(where / store.WEIGHTS)
    for name, value in given.trunk(files, MODEL).items():
        torch.testing.assert_close(trained[name], value)
    weights = files / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match=r"model\.safetensors has the sha256"):
        execute(replace(run, seed=1), tmp_path / "changed", tmp_path, "cpu")
    weights.unlink()
    with pytest.raises(UserError, match=r"model\.safetensors is not there"):
        execute(replace(run, seed=2), tmp_path / "absent", tmp_path, "cpu")
    assert "Weights that are not there: model.safetensors of tiny" in list(lines([run], tmp_path))[-1]


def test_the_study_of_table_2_names_the_published_files() -> None:
    """Each task has a text for every symbol that its model reads."""
    runs = [run for run in load_study("amos2025_table2_others").runs("paper") if run.protocol.foreign is not None]
    assert {run.task.name for run in runs} == {"listops", "pathfinder", "pathx", "text", "retrieval", "image"}
    for run in runs:
        given = run.protocol.foreign
        assert isinstance(given, trunk.CheckpointTrunk) and isinstance(run.task.input, Tokens)
        assert len(given.symbols) == run.task.input.symbols
        check(run)
    names = [[name for name, _ in given.files] for given in find_weights("amos2025_table2_others", "paper")]
    assert names == [["config.json", "tokenizer.json", "model.safetensors"]] * 4
    assert find_weights("amos2025_table2_others", "minutes") == find_weights("listops") == []
