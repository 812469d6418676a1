"""A user's text as a tokenizer's pieces: the ids are the library's own, and its content is part of the identity."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from levelfield import OwnData
from levelfield.cli.app import main
from levelfield.engine.restore import restore
from levelfield.spec import SPLITS, Tokens, UserError, describe, digest
from levelfield.user import own_data

pytestmark = pytest.mark.peers
TEXTS = [f"film {i} was {'good, so good' if i % 3 else 'bad'}" for i in range(30)]
NUMBERS = {str(i): 10 + i for i in range(30)}
WORDS = {"[UNK]": 0, "film": 1, "was": 2, "good": 3, "bad": 4, ",": 5, "so": 9} | NUMBERS


def tokenizer(folder: Path, words: dict[str, int]) -> Any:
    """Writes a tokenizer.json that knows these words, and returns the library's own object for it."""
    library: Any = pytest.importorskip(
        "tokenizers", reason="tokenizers is not installed: pip install 'levelfield[text]'"
    )
    made = library.Tokenizer(library.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = library.pre_tokenizers.Whitespace()
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    return made


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"body": text, "stars": i % 3}) for i, text in enumerate(TEXTS)]
    (tmp_path / "reviews.jsonl").write_text("\n".join([*lines, json.dumps({"body": " ", "stars": 1})]))
    return tmp_path


def test_steps_are_the_ids_of_the_library(here: Path) -> None:
    peer = tokenizer(here / "small", WORDS)
    task = OwnData("reviews.jsonl", text="body", label="stars", tokenizer="small", longest=5)
    assert task.input == Tokens(40), "the highest id is 39, though ids between are unused"
    with pytest.warns(UserWarning, match="1 of 31 rows"), pytest.warns(UserWarning, match="20 of 30 sequences were"):
        splits = task.build(None)
    found = [tuple(splits[s].sequence(i)) for s in SPLITS for i in range(len(splits[s]))]
    assert sorted(found) == sorted(tuple(peer.encode(text).ids[:5]) for text in TEXTS)
    assert splits["train"].x.dtype == np.uint16 and task.max_length == 5
    assert own_data.from_word(repr(task)) == task and restore(describe(task)) == task


def test_the_content_of_the_tokenizer_is_part_of_the_identity(here: Path) -> None:
    plain = OwnData("reviews.jsonl", text="body", label="stars")
    tokenizer(here / "a", WORDS)
    tokenizer(here / "b", WORDS)
    tokenizer(here / "c", WORDS | {"film": 7})
    a, b, c = (OwnData("reviews.jsonl", text="body", label="stars", tokenizer=name) for name in "abc")
    assert (
        digest(a)
        == digest(b)
        == digest(OwnData("reviews.jsonl", text="body", label="stars", tokenizer="a/tokenizer.json"))
    )
    assert len({digest(a), digest(c), digest(plain)}) == 3


def test_data_without_a_tokenizer_keeps_its_identity(here: Path) -> None:
    """As it was before there was such a setting."""
    (here / "a.csv").write_text("x,y\na,1\nb,2\n")
    assert digest(OwnData("a.csv", text="x", label="y")).startswith("e36c3d76614db24b")


def test_commands_take_it_and_refuse_what_is_none(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--own", "reviews.jsonl", "--text", "body", "--label", "stars", "--effort", "smoke"]
    with pytest.raises(SystemExit) as end:
        main(["plan", "linear", *own, "--tokenizer", "nowhere"])
    assert end.value.code == 2 and "nor a folder with one" in capsys.readouterr().err
    with pytest.raises(UserError, match="reads text"):
        OwnData("reviews.jsonl", symbols="body", label="stars", tokenizer="small")
    tokenizer(here / "small", WORDS)
    main(["plan", "linear", *own, "--tokenizer", "small", "--protocols", "scratch", "--baselines", "conv", "--json"])
    assert all("own_reviews" in run["id"] for run in json.loads(capsys.readouterr().out)["runs"])
