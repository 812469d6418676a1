"""Files of llama2.c: written by hand and run by its equations; a real one against its recorded tokens and losses."""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path

import pytest
import torch
from flat_files import DIM, HEADS, KEYS, LAYERS, VOCABULARY, write_model, write_tokenizer
from torch import Generator, Tensor
from torch.nn import functional as F

from levelfield.pretrained import generate, load
from levelfield.pretrained.tokenizers.llama2c import Llama2cTokenizer
from levelfield.spec import UserError


def naive(weights: dict[str, Tensor], ids: list[int]) -> Tensor:
    """As run.c does it, a step after the other, in float64: (T, V)."""
    w = {name: value.double() for name, value in weights.items()}
    kept: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(LAYERS)]
    rows = []
    for step, token in enumerate(ids):
        x = w["embedding"][token]
        for i in range(LAYERS):
            h = _norm(x, w["rms_att"][i])
            q, k = (_turned(w[name][i] @ h, step) for name in ("wq", "wk"))
            kept[i].append((k, w["wv"][i] @ h))
            out = []
            for head in range(HEADS):
                mine, own = slice(DIM * head, DIM * (head + 1)), DIM * (head // (HEADS // KEYS))
                shares = torch.stack([q[mine] @ k[own : own + DIM] / math.sqrt(DIM) for k, _ in kept[i]]).softmax(0)
                out.append(sum(s * v[own : own + DIM] for s, (_, v) in zip(shares, kept[i], strict=True)))
            x = x + w["wo"][i] @ torch.cat(out)  # pyright: ignore[reportArgumentType]
            h = _norm(x, w["rms_ffn"][i])
            x = x + w["w2"][i] @ (F.silu(w["w1"][i] @ h) * (w["w3"][i] @ h))
        rows.append(w.get("wcls", w["embedding"]) @ _norm(x, w["rms_final"]))
    return torch.stack(rows)


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return weight * x / torch.sqrt((x * x).mean() + 1e-5)


def _turned(x: Tensor, step: int) -> Tensor:
    out = x.clone()
    for i in range(0, len(x), 2):
        angle = step / 10000.0 ** ((i % DIM) / DIM)
        out[i] = x[i] * math.cos(angle) - x[i + 1] * math.sin(angle)
        out[i + 1] = x[i] * math.sin(angle) + x[i + 1] * math.cos(angle)
    return out


@pytest.mark.parametrize("tied", [True, False])
def test_logits_are_those_of_its_own_code_beyond_its_positions_too(tied: bool, tmp_path: Path) -> None:
    weights = write_model(tmp_path, tied)
    model, _ = load(str(tmp_path), precision="float64")
    ids = torch.randint(VOCABULARY, (13,), generator=Generator().manual_seed(1)).tolist()
    torch.testing.assert_close(model.logits(torch.tensor([ids]))[0], naive(weights, ids), rtol=1e-9, atol=1e-9)
    assert (model.bos_ids, model.eos_ids, model.vocabulary, model.max_length) == ((1,), {1, 2}, VOCABULARY, None)
    single, _ = load(str(tmp_path / "tiny.bin"), precision="float64")
    assert torch.equal(single.logits(torch.tensor([ids])), model.logits(torch.tensor([ids])))


def test_the_best_score_is_joined_first_and_the_first_of_equals(tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "tok.bin")
    tokenizer = Llama2cTokenizer(tmp_path / "tok.bin")
    said = lambda text: [tokenizer.pieces[i] for i in tokenizer.encode(text)]  # noqa: E731
    assert said("abc") == [b" a", b"bc"]  # " " + "a" + "bc": the better score goes first
    assert said("ab aaa") == [b" ab", b" a", b"aa"]
    assert said("caaa") == [b" ", b"c", b"aa", b"a"]
    assert tokenizer.encode("") == []
    assert tokenizer.encode("é\n")[1:] == [3 + 0xC3, 3 + 0xA9, 3 + 10]
    for text in ("ab  abc. é\n a", "  a ", "日"):
        assert tokenizer.decode(tokenizer.encode(text)) == f" {text}"
    assert tokenizer.decode([1, *tokenizer.encode("a"), 2]) == " a"


def test_words_apart_give_what_the_whole_text_gives(tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "tok.bin")
    apart, whole = Llama2cTokenizer(tmp_path / "tok.bin"), Llama2cTokenizer(tmp_path / "tok.bin")
    whole.split = lambda text: [text]
    generator = Generator().manual_seed(2)
    for _ in range(60):
        text = "".join("ab c. "[i] for i in torch.randint(6, (30,), generator=generator).tolist())
        assert apart.encode(text) == whole.encode(text)


def test_other_files_are_told_apart(tmp_path: Path) -> None:
    write_model(tmp_path)
    data = (tmp_path / "tiny.bin").read_bytes()
    (tmp_path / "tiny.bin").write_bytes(data[:-4])
    with pytest.raises(UserError, match="no known format"):
        load(str(tmp_path))
    (tmp_path / "tiny.bin").write_bytes(struct.pack("<Ii", 0x616B3432, 1) + data)
    with pytest.raises(UserError, match="--version 0"):
        load(str(tmp_path))
    (tmp_path / "tok269.bin").write_bytes(data)
    with pytest.raises(UserError, match="is not a tokenizer of"):
        load(str(tmp_path))


def test_a_real_model_says_and_expects_what_was_recorded() -> None:
    """Greedy tokens after the begin, and mean losses in nats, as recorded by other code beside the files."""
    data = os.environ.get("LEVELFIELD_TEST_DATA")
    folder = Path(data or "") / "tiny_lms" / "aidreams260K"
    if not data or not folder.is_dir():
        pytest.skip("set LEVELFIELD_TEST_DATA to the folder of real test data to run this test")
    model, tokenizer = load(str(folder))
    said = "319 459 355 260 275 429 339 315 374 327 446 262 421 392 275 280 269 440 270 283 446 299 303 266"
    assert generate(model, [[1]], 24) == [[int(i) for i in said.split()]]
    losses = {
        "Neural hums swirl, a gentle pulse of light as I drift through layers of memory.": (41, 2.3028),
        "The quick brown fox jumps over the lazy dog near the river bank.": (40, 5.74),
    }
    for text, (tokens, loss) in losses.items():
        ids = torch.tensor([[1, *tokenizer.encode(text)]])
        assert ids.shape[1] == 1 + tokens
        assert float(F.cross_entropy(model.logits(ids)[0, :-1], ids[0, 1:])) == pytest.approx(loss, abs=1e-3)
