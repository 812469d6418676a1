"""Asks llama.cpp's server: the real one where it is installed, and everywhere one of ours with its manners.

It lists the length of its context under `meta`, tokenizes the field `content`, puts a beginning of the sequence before
every text, and repeats the beginning of an answer that it continues.
"""

from __future__ import annotations

import importlib.util
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures_model_server import ModelServer, serving_model
from started import serving
from tiny_gguf import tiny_gguf
from tiny_llama import tiny_checkpoint
from toy_reader import SINGLE, knows

from levelfield.longcontext.answers import predictions
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.predictions import Prediction
from levelfield.longcontext.served.asking import Served, evaluate
from levelfield.longcontext.served.client import Address, Client
from levelfield.longcontext.served.lengths import ServerTokenizer, tokenizer_for
from levelfield.longcontext.served.way import By, Way

pytest.importorskip("httpx2", reason="httpx2 is not installed: pip install 'levelfield[serve]'")

PROGRAM = "llama-server"
NEEDED = ("gguf", "safetensors", "tokenizers", "transformers")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
MISSING += [] if shutil.which(PROGRAM) else [PROGRAM]
BOS = 0  # of the tiny model
EVALUATION = Evaluation((SINGLE,), (700,), count=2)
STARTS_S = 120


def ask(url: str, way: Way, folder: Path) -> list[Prediction]:
    """Asks the one model of a server, by its own tokenizer, and returns the answers."""
    folder.mkdir()
    with Client(Address.of(url), None) as client:
        served = Served(client, client.models()[0]["id"], way, tokenizer_for("server", "", client))
        assert evaluate(served, [served.put(EVALUATION)], folder) == []
    return sorted(predictions(folder), key=lambda p: p.index)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    more = {"word": "content", "bos": (1,), "repeats": True, "models": [{"id": "toy"}]}
    with serving_model(knows, tokenize=lambda text: list(text.encode()), **more) as found:
        yield found


def test_its_tokenizer_gives_the_beginning_of_a_sequence_too(server: ModelServer) -> None:
    with Client(Address.of(server.url), None) as client:
        found = ServerTokenizer.found(client, "toy")
        assert found is not None
        assert found.bos_ids == (1,)
        assert found.encode("ab") == [97, 98]


def test_ids_begin_with_it_and_texts_do_not(server: ModelServer, tmp_path: Path) -> None:
    ask(server.url, Way("ids"), tmp_path / "ids")
    ask(server.url, Way("text"), tmp_path / "text")
    prompts = [body["prompt"] for body in server.asked]
    assert {bytes(ids[1:]).decode() for ids in prompts[:2]} == set(prompts[2:])
    assert all(ids[0] == 1 for ids in prompts[:2])


def test_a_repeated_beginning_is_no_part_of_the_answer(server: ModelServer, tmp_path: Path) -> None:
    found = ask(server.url, Way("chat-prefix"), tmp_path / "repeated")
    server.repeats = False
    assert [p.text for p in found] == [p.text for p in ask(server.url, Way("chat-prefix"), tmp_path / "plain")]
    assert all("magic number" not in p.text for p in found)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the real server with the tiny model, once it has loaded it."""
    folder = tmp_path_factory.mktemp("model")
    path = tiny_gguf(tiny_checkpoint(folder / "tiny"), folder / "tiny.gguf")
    with serving([PROGRAM, "-m", str(path), "-c", "1024", "--parallel", "1"], folder / "said.txt", STARTS_S) as address:
        until = time.monotonic() + STARTS_S
        while not (found := _listed(address)) and time.monotonic() < until:  # it listens before it has the model
            time.sleep(0.2)
        assert found == [str(path)]
        yield address


def _listed(address: str) -> list[str]:
    """The models of the server; none while it does not answer."""
    from levelfield.spec import UserError

    try:
        with Client(Address.of(address), None) as client:
            return [each["id"] for each in client.models()]
    except UserError:
        return []


@pytest.mark.peers
@pytest.mark.skipif(bool(MISSING), reason=f"llama.cpp's server cannot run: {', '.join(MISSING)} not installed")
@pytest.mark.parametrize("by", ["text", "ids", "chat-prefix"])
def test_the_real_one_answers_as_the_model_itself(url: str, tmp_path: Path, by: By) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tiny_checkpoint(tmp_path / "tiny")
    model, text = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    found = ask(url, Way(by), tmp_path / by)
    with Client(Address.of(url), None) as client:
        tokenizer = tokenizer_for("server", "", client)
        put = Served(client, "", Way(by), tokenizer).put(EVALUATION)
        samples = {s.index: s for _, _, group in put.groups(tokenizer) for s in group}
    assert [p.counted["made"] for p in found] == [128, 128]
    for p in found if by != "chat-prefix" else ():
        ids = torch.tensor([[BOS, *samples[p.index].ids.tolist()]])
        out = model.generate(ids, max_new_tokens=128, do_sample=False, pad_token_id=0)
        assert text.decode(out[0, ids.shape[1] :]) == p.text
        assert p.counted["prompt"] == p.tokens + 1
