"""Sets how many tokens a model may answer with.

RULER's numbers (128, 30, 120, 50, 32) suit tokenizers with about one token to a word. For one with more, such as bytes,
the corrected variant (`sound`) allows what the longest of 64 drawn answers needs and a quarter more; the other variants
keep RULER's.
"""

from __future__ import annotations

import string

import numpy as np

from levelfield.ruler.prompt.draws import KeyValueSampler, random_words, variables
from levelfield.ruler.prompt.flavours import Flavour
from levelfield.ruler.question_set import QuestionSet
from levelfield.ruler.sources import wonderwords
from levelfield.ruler.tasks import CommonWords, FrequentWords, Needle, Questions, RulerTask, Tracking
from levelfield.tokenizer import Tokenizer

DRAWS = 64


def answer_tokens(task: RulerTask, tokenizer: Tokenizer, flavour: Flavour) -> int:
    """Returns RULER's number, or more in `sound` if the tokenizer needs it."""
    usual = task.answer_tokens
    if not flavour.exact:
        return usual
    rng = np.random.default_rng(0)
    need = max(len(tokenizer.encode(_answer(task, rng))) for _ in range(DRAWS))
    return usual if need <= usual else need + need // 4


def forgets_answer(task: RulerTask, flavour: Flavour) -> bool:
    """Whether prompts fill the whole length, since RULER of June 2024 forgot the answer to frequent words."""
    return isinstance(task, FrequentWords) and flavour.search == "linear"


def _answer(task: RulerTask, rng: np.random.Generator) -> str:
    """Draws a right answer as a model might write it."""
    match task:
        case Needle():
            values = (KeyValueSampler().one(task.value, rng) for _ in range(task.values * task.queries))
            return " " + ", ".join(values) + "."
        case Tracking():
            return " ".join(variables(task.hops + 1, 5, rng))
        case CommonWords():
            words = wonderwords()
            return "".join(f" {i + 1}. {words[rng.integers(len(words))]}" for i in range(task.common))
        case FrequentWords():
            return " " + " ".join(random_words(3, 6, rng, string.ascii_lowercase))
        case Questions():
            return " on the twenty-fourth of May"
        case QuestionSet():
            return task.answer(rng)
