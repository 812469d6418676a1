"""Asks `transformers serve`, a server that is not ours, with a tiny model of random weights.

Its list of models fails for a local folder, and it takes no token ids and no beginning of an answer: a user must not
notice the first, and reads the server's own words for the others.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from started import serving
from tiny_llama import tiny_checkpoint

from levelfield.longcontext.answers import predictions
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.served.asking import Served, evaluate
from levelfield.longcontext.served.client import Address, Client
from levelfield.longcontext.served.lengths import tokenizer_for
from levelfield.longcontext.served.way import By, Way
from levelfield.ruler import Needle
from levelfield.spec import UserError

NEEDED = ("httpx2", "transformers", "tokenizers", "fastapi", "uvicorn", "accelerate")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(bool(MISSING), reason=f"transformers serve cannot run: {', '.join(MISSING)} not installed"),
    pytest.mark.timeout(300),
]
EVALUATION = Evaluation((Needle(haystack="noise"),), (512,), count=2)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a Llama of two layers and a byte-level tokenizer with a chat template."""
    return tiny_checkpoint(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def url(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the server, once it answers."""
    code = "from transformers.cli.transformers import main; main()"
    printed = tmp_path_factory.mktemp("server") / "printed.txt"
    with serving([sys.executable, "-c", code, "serve", str(model)], printed, 200, HF_HUB_OFFLINE="1") as address:
        yield address


@pytest.mark.parametrize(("by", "template"), [("text", "base"), ("text", "own"), ("chat", "base")])
def test_it_answers_and_counts_the_same_tokens(url: str, model: Path, tmp_path: Path, by: By, template: str) -> None:
    with Client(Address.of(url), None) as client:
        assert client.models() == []
        served = Served(client, str(model), Way(by), tokenizer_for(None, str(model), client))
        put = served.put(Evaluation(EVALUATION.tasks, (512,), count=2, template=template))
        assert evaluate(served, [put], tmp_path) == []
    found = predictions(tmp_path)
    assert len(found) == 2
    assert all(p.counted["prompt"] == p.tokens and 504 <= p.tokens + 128 <= 512 for p in found)
    assert all(p.counted["made"] == p.made <= 128 for p in found)


def test_an_answer_is_that_of_the_model_itself(url: str, model: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with Client(Address.of(url), None) as client:
        served = Served(client, str(model), Way("text"), tokenizer_for(None, str(model), client))
        put = served.put(EVALUATION)
        evaluate(served, [put], tmp_path)
        samples = {s.index: s for _, _, group in put.groups(served.tokenizer) for s in group}
    theirs, text = AutoModelForCausalLM.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    for p in predictions(tmp_path):
        ids = torch.tensor([samples[p.index].ids.tolist()])
        out = theirs.generate(ids, max_new_tokens=128, do_sample=False, pad_token_id=0)
        assert text.decode(out[0, ids.shape[1] :], skip_special_tokens=True) == p.text


@pytest.mark.parametrize(("by", "said"), [("ids", "prompt must be a string"), ("chat-prefix", "Unexpected fields")])
def test_what_it_does_not_know_is_said_in_its_words(url: str, model: Path, tmp_path: Path, by: By, said: str) -> None:
    with Client(Address.of(url), None) as client:
        served = Served(client, str(model), Way(by), tokenizer_for(None, str(model), client))
        with pytest.raises(UserError, match=said):
            evaluate(served, [served.put(EVALUATION)], tmp_path)
