"""The memory of a checkpoint, predicted from settings and headers, and the sentence where it is too large."""

from __future__ import annotations

import json
from pathlib import Path

import flat_files
import foreign_files
import pytest
import torch
from safetensors.torch import save_file

from levelfield import pretrained
from levelfield.cli import app
from levelfield.pretrained import memory
from levelfield.pretrained.decoding import Batching
from levelfield.pretrained.memory import Memory, Place, predicted
from levelfield.pretrained.native_model import NativeModel
from levelfield.spec import UserError

LLAMA = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}


def checkpoint(folder: Path, **config: object) -> Path:
    """A folder with 1,000 numbers in bfloat16, which predictions may count and nobody may load."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"a": torch.zeros(30, 30).bfloat16(), "b": torch.zeros(100).bfloat16()}, folder / "model.safetensors")
    return folder


def keeping(weights: int, per_token: int, start: int = 0) -> Memory:
    """A model whose rows keep so many bytes from the start, and more for each token."""
    return Memory(weights, lambda length: start + per_token * length, 0)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "total", lambda device: 10_000_000)


def test_weights_and_keys_are_counted_from_headers_and_settings(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "a", **LLAMA, num_key_value_heads=2)
    for precision, each in (("float32", 4), ("bfloat16", 2)):
        found = predicted(path, precision)
        assert (found.weights, found.row(0), found.row(10)) == (each * 1000, 0, 10 * 2 * 3 * 2 * 16 * each)
    inner = checkpoint(tmp_path / "b", text_config={**LLAMA, "head_dim": 32})
    assert predicted(inner, "float32").row(1) == 2 * 3 * 4 * 32 * 4
    bounded = {"num_heads": 8, "head_dim": 16, "time_step_limit": [0.1, 0.2]}  # which ours are not
    recurrent = checkpoint(tmp_path / "d", model_type="mamba2", hidden_size=64, num_hidden_layers=64, **bounded)
    assert predicted(recurrent, "float32").row(10**6) == 0


@pytest.mark.parametrize("config", [foreign_files.BASE, foreign_files.HYBRID, foreign_files.TRANSFORMER])
def test_what_layers_of_ours_keep_is_what_they_declare(config: foreign_files.Config, tmp_path: Path) -> None:
    """Counts the numbers in the state of a loaded model: Mamba-2, its hybrid with attention, and attention alone."""
    path = foreign_files.write_native(tmp_path / "m", config, foreign_files.random_weights(config))
    model, _ = pretrained.load(str(path))
    assert isinstance(model, NativeModel)
    found = predicted(path, "float32")
    for length in (1, 9):
        _, state = model.start(torch.zeros(1, length, dtype=torch.long))
        assert found.row(length) == 4 * sum(v.numel() for layer in state.layers for v in layer.values())
    grows = predicted(path, "bfloat16").row(10) - predicted(path, "bfloat16").row(9)
    assert grows == (found.row(10) - found.row(9)) / 2
    assert bool(grows) == bool(config["attn_layer_idx"])
    assert predicted(path, "bfloat16").row(0) == found.row(0)


def test_a_long_question_costs_a_recurrent_model_what_a_short_one_does(tmp_path: Path) -> None:
    weights = {name: torch.zeros(shape) for name, shape in foreign_files.rwkv6_shapes(width=12, head=4).items()}
    torch.save(weights, tmp_path / "model.pth")
    found = predicted(tmp_path, "float32")
    assert found.weights == 4 * sum(value.numel() for value in weights.values())
    assert found.row(1) == found.row(10**6) == 4 * 2 * (12 + 12 * 4 + 12)  # of two layers: time mix, channel mix


def test_a_file_of_llama2c_and_one_of_torch_are_counted_too(tmp_path: Path) -> None:
    drawn = flat_files.write_model(tmp_path / "a")
    found = predicted(tmp_path / "a", "float32")
    assert found.weights == 4 * sum(value.numel() for value in drawn.values())
    assert found.row(5) == 5 * 2 * flat_files.LAYERS * flat_files.KEYS * flat_files.DIM * 4
    (tmp_path / "b").mkdir()
    torch.save({"a": torch.zeros(7, 3)}, tmp_path / "b" / "pytorch_model.bin")
    assert predicted(tmp_path / "b", "float64").weights == 8 * 21


def header(path: Path, numbers: int = 500_000_000_000, **more: object) -> None:
    """Writes a file of safetensors whose numbers are not there: a header, and a hole of the size that it says."""
    named = {"__metadata__": {"format": "pt"}, "a": {"dtype": "F32", "shape": [numbers // 1000, 1000]} | more}
    named["a"] = {"data_offsets": [0, 4 * numbers]} | named["a"]
    text = json.dumps(named).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + 4 * numbers)


def test_a_file_larger_than_any_memory_is_predicted_and_refused(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "big", **LLAMA)
    header(path / "model.safetensors")
    found = predicted(path, "float32")
    assert found.weights == 2_000_000_000_000
    with pytest.raises(UserError, match=r"big takes about 2000\.0 GB .* and cpu has .* GB: give --precision bfloat16"):
        memory.check("big", found, 512, Place())


@pytest.mark.parametrize(
    "more",
    [{"shape": [7]}, {"shape": "ab"}, {"shape": [-2, -500]}, {"shape": None}, {"dtype": "F"}, {"dtype": 3},
     {"data_offsets": [0]}, {"data_offsets": [0, 8000], "shape": [2, 1000]}, {"data_offsets": [-4, 3996]}],
)  # fmt: skip
def test_a_header_that_does_not_fit_its_file_is_named(more: dict[str, object], tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "m", **LLAMA)
    header(path / "model.safetensors", 1000)
    assert predicted(path, "float32").weights == 4000
    header(path / "model.safetensors", 1000, **more)
    with pytest.raises(UserError, match=r"model\.safetensors cannot be read as weights \(.*\): copy the file again\."):
        predicted(path, "float32")


@pytest.mark.parametrize("content", [b"", b"abc", b"\xff" * 20, b"\x02" + bytes(7) + b"[]", b"\x02" + bytes(7) + b"{"])
def test_what_is_no_file_of_safetensors_is_named(content: bytes, tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "m", **LLAMA)
    (path / "model.safetensors").write_bytes(content)
    with pytest.raises(UserError, match=r"model\.safetensors cannot be read as weights \(.*\): copy the file again\."):
        predicted(path, "float32")


@pytest.mark.usefixtures("small")
def test_what_does_not_fit_is_refused_with_what_helps() -> None:
    large, long = keeping(9_500_000, 100), keeping(1_000_000, 1000)
    for found, place, why in (
        (large, Place(), r"m takes about 9\.7 MB \(9\.5 MB of them weights\) with a question of 1,000 tokens, and cpu "
         r"has 9\.0 MB: give --precision bfloat16, or --spread"),
        (large, Place(copies=2), r"has 4\.5 MB for each of 2 copies: give fewer --copies"),
        (keeping(1_000_000, 10_000), Place(), r"has 9\.0 MB: give shorter --lengths"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=why):
            memory.check("m", found, 1000, place)
    memory.check("m", large, 1000, Place(spread=2))
    memory.check("m", long, 4000, Place())


@pytest.mark.usefixtures("small")
def test_batches_have_as_many_rows_and_tokens_as_fit() -> None:
    assert memory.batching(keeping(1_000_000, 1000), Place()) == Batching(tokens=4000)
    assert memory.batching(keeping(1_000_000, 0), Place()) == Batching()
    assert memory.batching(keeping(1_000_000, 1), Place()) == Batching()
    assert memory.batching(keeping(1_000_000, 0, start=200_000), Place()) == Batching(rows=20)
    both = memory.batching(keeping(1_000_000, 1000, start=200_000), Place())
    assert both == Batching(rows=10, tokens=2000)
    assert 2 * (both.rows * 200_000 + both.tokens * 1000) == 9_000_000 - 1_000_000
    assert memory.batching(keeping(20_000_000, 1000, start=200_000), Place()) == Batching(rows=1, tokens=1)


@pytest.mark.usefixtures("small")
def test_the_command_refuses_before_it_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pretrained, "load", lambda *_, **more: pytest.fail("it was loaded"))
    flat_files.write_model(tmp_path / "tiny")
    with pytest.raises(SystemExit) as stop:
        app.main(["ruler", "tiny", "--lengths", "100000", "--tasks", "niah_single_1", "--count", "1"])
    assert stop.value.code == 2
    shown = capsys.readouterr().err
    assert "tiny takes about 66.8 MB (0.1 MB of them weights)" in shown
    assert "give shorter --lengths" in shown and shown.count("\n") == 1
