"""Asks vLLM's server, where the program `vllm` is installed, in every way that it knows, with a tiny model.

vLLM pins what it needs, so it has an environment of its own: put its program on PATH. Where there is no GPU, that is
its build for processors.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from started import serving
from tiny_llama import tiny_checkpoint

from levelfield.longcontext.answers import predictions
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.predictions import Prediction
from levelfield.longcontext.served.asking import Served, evaluate
from levelfield.longcontext.served.client import Address, Client
from levelfield.longcontext.served.lengths import tokenizer_for
from levelfield.longcontext.served.way import By, Way
from levelfield.ruler import Needle

PROGRAM = "vllm"
NAME = "tiny"
MISSING = [name for name in ("httpx2", "transformers", "tokenizers") if importlib.util.find_spec(name) is None]
MISSING += [] if shutil.which(PROGRAM) else [PROGRAM]
pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(bool(MISSING), reason=f"vLLM's server cannot run: {', '.join(MISSING)} not installed"),
    pytest.mark.timeout(600),
]
HEAD = 32  # features of a head: vLLM has no attention for fewer on processors
LONGEST = 1024  # positions of the tiny model
BOUNDARIES = 2  # tokens by which a chat's prompt may differ from the same parts in another order
CUT = "\ufffd"  # stands for a letter whose bytes are not all there at an answer's end, or is left out
EVALUATION = Evaluation((Needle(haystack="noise"),), (512, LONGEST), count=2)
STARTS_S = 400


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("model") / NAME, HEAD)


@pytest.fixture(scope="module")
def url(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the server, which serves the model under another name than its folder's."""
    command = [PROGRAM, "serve", str(model), "--served-model-name", NAME, "--dtype", "float32", "--enforce-eager"]
    printed = tmp_path_factory.mktemp("server") / "printed.txt"
    with serving(command, printed, STARTS_S, HF_HUB_OFFLINE="1", VLLM_CPU_KVCACHE_SPACE="1") as address:
        yield address


def test_the_list_of_models_names_the_one_and_its_longest_prompt(url: str) -> None:
    with Client(Address.of(url), None) as client:
        (only,) = client.models()
    assert only["id"] == NAME
    assert only["max_model_len"] == LONGEST


@pytest.mark.parametrize("by", ["text", "ids", "chat", "chat-prefix"])
def test_it_answers_as_the_model_itself(url: str, model: Path, tmp_path: Path, by: By) -> None:
    """Token for token, and from as many tokens: the model by transformers, with its own template in a chat."""
    asked = ask(url, Way(by), str(model), tmp_path)
    assert len(asked) == 4
    for p, body in asked:
        text, read = own_answer(model, body)
        assert p.text.rstrip(CUT) == text.rstrip(CUT)
        assert p.counted["prompt"] == read
        assert abs(p.tokens - read) <= (BOUNDARIES if by.startswith("chat") else 0)
        assert p.counted["made"] <= 128 and p.length - 16 <= p.tokens + 128 <= p.length


@pytest.mark.parametrize("by", ["text", "ids"])
def test_its_own_tokenizer_makes_prompts_of_the_same_lengths(url: str, tmp_path: Path, by: By) -> None:
    for p, _ in ask(url, Way(by), "server", tmp_path):
        assert p.counted["prompt"] == p.tokens
        assert p.length - 16 <= p.tokens + 128 <= p.length


def ask(url: str, way: Way, tokenizer: str, folder: Path) -> list[tuple[Prediction, dict[str, Any]]]:
    """The answers, each with the request that asked for it."""
    with Client(Address.of(url), None) as client:
        served = Served(client, NAME, way, tokenizer_for(tokenizer, NAME, client))
        put = served.put(EVALUATION)
        assert evaluate(served, [put], folder) == []
        samples = {(s.length, s.index): s for _, _, group in put.groups(served.tokenizer) for s in group}
        wrapping = served.wrapping(EVALUATION.template)
    return [(p, way.body(NAME, samples[p.length, p.index], wrapping)) for p in predictions(folder)]


def own_answer(model: Path, body: dict[str, Any]) -> tuple[str, int]:
    """What the model continues a request with, by transformers, and how many tokens it reads for that."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    theirs: Any = AutoModelForCausalLM.from_pretrained(model)
    text: Any = AutoTokenizer.from_pretrained(model)
    ids = body.get("prompt")
    if ids is None:
        more = {"add_generation_prompt": True, "continue_final_message": False}
        more |= {name: body[name] for name in more if name in body}
        ids = text.encode(text.apply_chat_template(body["messages"], tokenize=False, **more), add_special_tokens=False)
    ids = text.encode(ids) if isinstance(ids, str) else ids
    out = theirs.generate(torch.tensor([ids]), max_new_tokens=128, do_sample=False, pad_token_id=0)
    return text.decode(out[0, len(ids) :], skip_special_tokens=True), len(ids)
