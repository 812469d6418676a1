"""Measures generation from end to end: needle prompts answered our way and the official harness's way, in one run.

    python benchmarks/generate.py                               a random Mamba-2 of 3 layers, in our layers both times
    python benchmarks/generate.py --model models/pythia-160m    your own model
    python benchmarks/generate.py --peer                        the harness's way through transformers' own generate

The harness (RULER's scripts, as huang2024 ran them) sends one request per sample, at batch 1, to a model that decodes
the whole budget whatever it says. Our way groups samples of similar length, reads the haystack before a needle once,
and drops a row as soon as it contains the answer. A random model never finds an answer, so a share of the rows is
treated as finished after `found` tokens: none, or half of them after eight, about what a number of seven digits takes
with words around it. Both ways must give the same tokens, which is checked. Times are CPU seconds of this process in
one thread, the minimum of alternating rounds.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro

from levelfield.mixers.mamba2 import Mamba2
from levelfield.model import Network
from levelfield.pretrained import LanguageModel, generate, load
from levelfield.pretrained.decoding import ONE_BY_ONE, Batching
from levelfield.pretrained.native_model import NativeModel
from levelfield.spec import Block, Head, Model, Tokens

SYMBOLS = 1000
ANSWER = 8  # tokens until an answer has been said


@dataclass
class Arguments:
    """One measurement. Prompts of `length` tokens have their needles at depths 0, 10, ..., 100 percent.

    budget: the most tokens of an answer, RULER's 128 for a needle.
    """

    model: str = ""
    tokenizer: str = ""
    samples: int = 32
    length: int = 1024
    budget: int = 128
    width: int = 128
    rounds: int = 2
    peer: bool = False


def prompts(samples: int, length: int, vocabulary: int) -> list[np.ndarray]:
    """One haystack, a needle of eight tokens at eleven depths, and a question of twelve: all equally long."""
    draws = np.random.default_rng(0)
    hay = draws.integers(3, vocabulary, length - 20)
    places = [round((len(hay) * (i % 11)) / 10) for i in range(samples)]
    ends = [draws.integers(3, vocabulary, 20) for _ in places]
    return [np.concatenate([hay[:p], end[:8], hay[p:], end[8:]]) for p, end in zip(places, ends)]


def random_model(width: int) -> NativeModel:
    model = Model((Mamba2(state=64, head=32),), 3, width, causal=True, block=Block(norm="rms"))
    net = Network(model, Tokens(SYMBOLS), (Head("next", SYMBOLS, "step"),), mask_flag=False, seed=0).eval()
    return NativeModel("random mamba2", net, net.heads["next"], SYMBOLS, id_offset=Tokens.OFFSET)


def peer_model(width: int, folder: Path) -> tuple[LanguageModel, Callable[[np.ndarray, int], list[int]]]:
    """A random Mamba-2 as our reader loads it, and transformers' own greedy generation with the same weights."""
    import transformers

    sizes = {"hidden_size": width, "num_hidden_layers": 3, "vocab_size": SYMBOLS, "state_size": 64, "n_groups": 1}
    heads = {"head_dim": 32, "num_heads": 2 * width // 32}
    torch.manual_seed(0)
    special = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": None}
    theirs = transformers.Mamba2ForCausalLM(transformers.Mamba2Config(**sizes, **heads, **special)).eval()
    theirs.save_pretrained(folder)
    (folder / "rwkv_vocab_bytes.txt").write_text("".join(f"{i + 1} {bytes([i])!r} 1\n" for i in range(256)))

    def request(prompt: np.ndarray, budget: int) -> list[int]:
        ids = torch.from_numpy(prompt)[None]
        with torch.no_grad():
            return theirs.generate(ids, max_new_tokens=budget, do_sample=False)[0, len(prompt) :].tolist()

    return load(str(folder))[0], request


def cpu_seconds(call: Callable[[], Sequence[list[int]]]) -> tuple[float, Sequence[list[int]]]:
    start = time.process_time()
    made = call()
    return time.process_time() - start, made


def main(a: Arguments) -> None:
    torch.set_num_threads(1)
    folder, request = tempfile.TemporaryDirectory(), None
    if a.peer:
        model, request = peer_model(a.width, Path(folder.name))
    else:
        model = load(a.model, a.tokenizer)[0] if a.model else random_model(a.width)
    asked = prompts(a.samples, a.length, model.vocabulary)

    def one_by_one() -> Sequence[list[int]]:
        if request is not None:
            return [request(prompt, a.budget) for prompt in asked]
        return generate(model, asked, a.budget, batching=ONE_BY_ONE)

    ways: dict[str, Callable[[], Sequence[list[int]]]] = {
        "one request per sample, whole budget": one_by_one,
        "batches": lambda: generate(model, asked, a.budget, batching=Batching(min_prefix_saving=1 << 62)),
        "batches, shared beginnings": lambda: generate(model, asked, a.budget),
        "and half of the rows stop at their answer": lambda: generate(
            model, asked, a.budget, lambda row, made: row % 2 == 0 and len(made) == ANSWER
        ),
    }
    best: dict[str, float] = {}
    told: dict[str, Sequence[list[int]]] = {}
    first = next(iter(ways))
    for number in range(a.rounds):
        print(f"round {number + 1}")
        for name, way in ways.items():
            seconds, told[name] = cpu_seconds(way)
            best[name] = min(seconds, best.get(name, seconds))
            same = sum(made == whole[: len(made)] for made, whole in zip(told[name], told[first]))
            ratio = f"{best[first] / best[name]:5.1f} x"
            print(f"{name:45} {best[name]:8.2f} s  {ratio}   same tokens {same}/{len(asked)}", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
