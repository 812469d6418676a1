"""Computes two baselines without a model, guessing and copying the last candidate, as a floor for small models' scores.

    guess(task, sample.text, count, seed)      # different answers of the right shape, from anywhere in the prompt
    copy_last(task, sample.text, count)        # the last ones of the prompt: "copy the last number"
    baselines(task, samples)                   # {"guess": 3.1, "copy_last": 0.4}: percent, by RULER's score

Both know how many answers are asked for and what an answer looks like (a number, a UUID, a variable, a word), and read
the context only, not the question. For questions an answer is a capitalised name or a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from levelfield.ruler.question_set import NAME, QuestionSet
from levelfield.ruler.sample import Sample
from levelfield.ruler.scores import candidates, score
from levelfield.ruler.tasks import CommonWords, FrequentWords, Needle, Questions, RulerTask
from levelfield.spec import derive_seed

MARKS: dict[type, tuple[str, str]] = {  # the context begins after the first mark and ends before the last second one
    Needle: (" afterwards.\n", "\nWhat "),
    CommonWords: ("most often.\n", "\nQuestion: "),
    FrequentWords: ("coded words. ", "\nQuestion: "),
    Questions: ("given documents.\n\n", "\n\nAnswer the question"),
}


def context(task: RulerTask, text: str) -> str:
    """Cuts the context out of the prompt: no instruction, no question, and no solved example before it."""
    first, last = MARKS.get(type(task), ("\n\n", "\nQuestion: "))
    text = text[: text.rfind(last)]
    if isinstance(task, Needle | Questions | FrequentWords):
        return text.partition(first)[2]
    return text[text.rfind(first) + len(first) :]


@lru_cache(maxsize=1)  # both baselines read the same prompt, one after the other
def _candidates(task: RulerTask, text: str) -> Sequence[str]:
    text = context(task, text)
    if isinstance(task, Questions):
        return NAME.findall(text)
    return [c for c in candidates(task, text) if c != "VAR"]


def guess(task: RulerTask, text: str, count: int, seed: int) -> str:
    """Draws `count` different candidates of the context, all equally likely."""
    rng = np.random.default_rng(derive_seed(seed, "ruler", "guess"))
    if isinstance(task, QuestionSet):
        return task.guess(text, count, rng)
    found = list(dict.fromkeys(_candidates(task, text)))
    return ", ".join(found[i] for i in rng.permutation(len(found))[:count])


def copy_last(task: RulerTask, text: str, count: int) -> str:
    """Takes the last `count` different candidates of the context."""
    if isinstance(task, QuestionSet):
        return task.copy_last(text, count)
    return ", ".join(list(dict.fromkeys(reversed(_candidates(task, text))))[:count])


def baselines(task: RulerTask, samples: Iterable[Sample]) -> dict[str, float]:
    """Averages RULER's score of both baselines over the samples, in percent; 0 without samples."""
    totals = {"guess": 0.0, "copy_last": 0.0}
    given = list(samples)
    for sample in given:
        count = 1 if isinstance(task, Questions) else len(sample.references)
        predictions = {
            "guess": guess(task, sample.text, count, sample.index),
            "copy_last": copy_last(task, sample.text, count),
        }
        for name, prediction in predictions.items():
            totals[name] += score(task, prediction, sample.references).match
        sample.forget_text()
    return {name: 100 * total / max(len(given), 1) for name, total in totals.items()}
