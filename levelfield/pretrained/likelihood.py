"""Answers the three requests that evaluation harnesses make of a language model: scores of texts, and generated text.

    likelihood(model, tokenizer.encode("The sky is"), tokenizer.encode(" blue"))     # Likelihood(-2.3, greedy=True)
    continued(model, tokenizer, [GreedyRequest("The sky is", until=("\n",), most=32)])       # [" blue."]

A harness compares the scores of several choices, and sums them up for perplexity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from levelfield.pretrained.decoding import generate
from levelfield.pretrained.language_model import LanguageModel
from levelfield.spec import UserError
from levelfield.tokenizer import Tokenizer


class Likelihood(NamedTuple):
    """The natural logarithm of a continuation's probability, and whether greedy generation would have made it."""

    total: float
    greedy: bool


@dataclass(frozen=True)
class GreedyRequest:
    """A text to continue greedily, up to one of the texts `until`, or `most` tokens."""

    context: str
    until: tuple[str, ...] = ()
    most: int = 256


@torch.no_grad()
def likelihood(model: LanguageModel, context: Sequence[int], continuation: Sequence[int]) -> Likelihood:
    """Scores the ids of a continuation after those of a context.

    Where the model takes fewer tokens than both have, the first ones of the context are left out. Raises UserError
    without a context, since the first token of all has no probability, and where the continuation alone is too long.
    """
    if not len(context):
        raise UserError("A text is scored after another: give at least one token before it.")
    if not len(continuation):
        return Likelihood(0.0, True)
    ids, most = [*context, *continuation][:-1], model.max_length
    if most is not None and len(continuation) > most:
        raise UserError(f"{model.name} takes {most} tokens and cannot score {len(continuation)} at once: shorten them.")
    ids = ids if most is None else ids[-most:]
    logits = model.logits(torch.tensor([ids]), last=len(continuation))[0].double()
    wanted = torch.tensor([*continuation], device=logits.device)
    chosen = logits.log_softmax(-1).gather(1, wanted[:, None])
    return Likelihood(float(chosen.sum()), bool((logits.argmax(-1) == wanted).all()))


def encoded_pair(tokenizer: Tokenizer, context: str, continuation: str) -> tuple[list[int], list[int]]:
    """Encodes both texts as one and parts the ids where the context ends; its last spaces go with the continuation."""
    bare = context.rstrip()
    whole = list(tokenizer.encode(context + continuation))
    place = len(tokenizer.encode(bare))
    return whole[:place], whole[place:]


def start_ids(model: LanguageModel, tokenizer: Tokenizer) -> list[int]:
    """Returns what stands before a text that has nothing before it: the model's BOS, or a line end without one."""
    return list(model.bos_ids) or list(tokenizer.encode("\n"))


def continued(model: LanguageModel, tokenizer: Tokenizer, asked: Sequence[GreedyRequest]) -> list[str]:
    """Continues texts greedily, several at a time: the generated texts, without what they ended at.

    Where the model takes fewer tokens than a text and its budget have, the first ones of the text are left out. Raises
    UserError where the budget alone is too long.
    """
    prompts = []
    for each in asked:
        ids = [*model.bos_ids, *tokenizer.encode(each.context)] or start_ids(model, tokenizer)
        room = len(ids) if model.max_length is None else model.max_length - each.most
        if room < 1:
            raise UserError(
                f"{model.name} takes {model.max_length} tokens and cannot answer with {each.most}: ask for fewer."
            )
        prompts.append(ids[-room:])

    def stop(number: int, made: Sequence[int]) -> bool:
        said = tokenizer.decode(made) if asked[number].until else ""
        return made[-1] in model.eos_ids or any(text in said for text in asked[number].until)

    texts = []
    for each, made in zip(asked, generate(model, prompts, [one.most for one in asked], stop)):
        text = tokenizer.decode([i for i in made if i not in model.eos_ids])
        ends = [text.index(until) for until in each.until if until in text]
        texts.append(text[: min(ends, default=len(text))])
    return texts
