"""Finds the questions that two models were asked alike, in their stored answers, so that they are compared on pairs.

    pairings(Path("runs/ruler/mamba2-2.7b"), Path("runs/ruler/transformerpp-2.7b"))

A question is the same where task, length, number, seed and variant are, and essays, official file and expected answers
agree. Lengths are in tokens of each model's own tokenizer, so what surrounds a needle may be longer for one of them.
Templates may differ, as a model that chats needs its own; `Pairing.ways` says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from levelfield.longcontext.answers import predictions
from levelfield.longcontext.model_record import way_of
from levelfield.longcontext.predictions import Prediction
from levelfield.longcontext.rows import by_setting
from levelfield.ruler import score

TEXTS = ("essays", "file", "id", "sessions")
"""Columns that tell the text: the essays of a sample; a hash of an official file, its question, and how many chats."""

ALIKE = ("-lm-eval", "-plain-lighteval", "-text", "-ids")
"""Ends of labels of answers to the same prompts that a model loaded here reads by the template before them. Inspect is
not among them: it sends a prompt as a message, which the model's chat template surrounds."""


class Pair(NamedTuple):
    """The answers of two models to one question. scores: match, from 0 to 1."""

    first: Prediction
    second: Prediction
    scores: tuple[float, float]


class Pairing(NamedTuple):
    """The questions of one variant and seed.

    templates: of both models. ways: how each was asked, where it is behind a server, else "". alone: answers of each
    that have no counterpart, or are to prompts of an earlier version.
    """

    variant: str
    seed: int
    templates: tuple[str, str]
    ways: tuple[str, str]
    pairs: Sequence[Pair]
    alone: tuple[int, int]

    @property
    def put_alike(self) -> bool:
        """Whether both models read the same text around a task."""
        first, second = map(_before_end, self.templates)
        return first == second


def pairings(first: Path, second: Path) -> list[Pairing]:
    """Returns what both were asked, by variant, seed and templates; [] without a question in common.

    Answers that were asked by one template are compared with those by the same template, or else with all others.
    """
    ours, theirs = (by_setting(predictions(folder)) for folder in (first, second))
    found = []
    for (variant, template, seed), group in ours.items():
        others = {other: g for (v, other, s), g in theirs.items() if (v, s) == (variant, seed)}
        for other in [template] if template in others else others:
            pairs = list(_pairs(group, others[other]))
            if pairs:
                pairing = Pairing(
                    variant=variant,
                    seed=seed,
                    templates=(template, other),
                    ways=(way_of(first, template), way_of(second, other)),
                    pairs=pairs,
                    alone=(len(group) - len(pairs), len(others[other]) - len(pairs)),
                )
                found.append(pairing)
    return found


def _before_end(label: str) -> str:
    return next((label.removesuffix(end) for end in ALIKE if label.endswith(end)), label)


def _pairs(first: Sequence[Prediction], second: Sequence[Prediction]) -> Iterator[Pair]:
    beside = {(p.task, p.length, p.index): p for p in second if not p.outdated}
    for one in first:
        other = beside.get((one.task, one.length, one.index))
        if other and not one.outdated and _same(one, other):
            yield Pair(one, other, (_match(one), _match(other)))


def _same(one: Prediction, other: Prediction) -> bool:
    same_text = all(one.slices.get(name) == other.slices.get(name) for name in TEXTS)
    return same_text and (one.references, one.settings) == (other.references, other.settings)


def _match(one: Prediction) -> float:
    return score(one.ruler_task, one.scored_text, one.references).match
