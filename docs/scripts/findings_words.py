"""Puts the questions of docs/findings.md, and the scores behind them, into words that need no knowledge of the code.

    asked("self-pretraining lifts S4 (image8)")     # "Self-pretraining lifts S4 on pictures"
    scores("On image8, s4 has 53.8 %.")         # "On pictures, S4 has 53.8 %."

A study names its questions for a reader who has just read its claim. On a page with the questions of many studies each
has to stand by itself. A question that no pattern here fits is shown as its study names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

TASKS = {
    "modular": "counting modulo 5",
    "image8": "pictures", "listops": "ListOps", "text": "reviews", "in_context_recall": "in-context recall",
    "reach": "the order of marks", "words_a5": "words over A5",
}  # fmt: skip
MODELS = {
    "transformer_rotary_causal": "the causal Transformer", "s4_causal": "the causal S4", "mega": "Mega",
    "transformer_rotary": "the Transformer", "transformer": "the plain Transformer",
    "s4_random": "S4 from random values", "dlr_random": "DLR from random values", "s4": "S4", "dlr": "DLR",
    "gmlp": "gMLP", "rotary": "rotary attention", "alibi": "ALiBi",
    "no-positions": "attention without positions",
    "random-positions": "rotary attention trained at random positions",
    "mamba2+attention": "Mamba-2 with attention", "mamba2": "Mamba-2",
    "rwkv6": "RWKV-6", "griffin": "Griffin", "rglru": "RG-LRU", "slstm": "sLSTM", "gru": "GRU", "gla": "GLA",
    "mamba": "Mamba", "lru": "LRU", "s5": "S5", "linear": "linear attention", "gated_deltanet": "Gated DeltaNet",
    "deltanet_negative": "DeltaNet with negative eigenvalues", "deltanet": "DeltaNet", "deltaproduct": "DeltaProduct",
}  # fmt: skip
REMEDIES = {
    "interpolate": "Interpolated positions help",
    "base": "A larger rotary base helps",
    "window": "A window of the training length helps",
    "sinks": "A window with attention sinks helps",
}
RULES = {"word pairs": "naive Bayes on single words and word pairs"}
"""Simple rules that are named in an answer."""

ALLOWED = "At an equal allowance of steps"
SPT, PRETRAINED = "self-pretraining lifts", "once both are pretrained"
BEHIND = r"(\w+) is"
QUESTIONS: Sequence[tuple[str, str]] = (
    (rf"{SPT} (the Transformer|S4)( with [\d.]+ % of the labels)? \((\w+)\)", "Self-pretraining lifts {0} on {2}{1}"),
    (rf"{SPT} ([\w ]+) \((\w+)\)", "Self-pretraining lifts {0} on {1}"),
    (r"the gap between ([\w ]+) and ([\w ]+) narrows \((\w+)\)", "Self-pretraining brings {0} closer to {1} on {2}"),
    (r"(the Transformer|S4)'s lift holds at .+ \((\w+)\)", f"{ALLOWED}, self-pretraining lifts {{0}} on {{1}}"),
    (
        r"(the Transformer|S4)'s lift holds over all steps (.+) \((\w+)\)",
        "On {2}, the lift of {0} holds over all steps {1}",
    ),
    (r"the gap narrows \((\w+)\)", "The Transformer comes closer to S4 on {0}"),
    (r"the gap narrows at .+ \((\w+)\)", f"{ALLOWED}, the Transformer comes closer to S4 on {{0}}"),
    (r"and more so with the fewest than with all \((\w+)\)", "With the fewest labels the lift on {0} is largest"),
    (rf"{BEHIND} behind S4 from scratch \((\w+)\)", "From scratch, {0} is more than 3 points behind S4 on {1}"),
    (rf"{BEHIND} behind by less {PRETRAINED} \((\w+)\)", "Self-pretraining brings {0} closer to S4 on {1}"),
    (rf"{BEHIND} level with S4 {PRETRAINED} \((\w+)\)", "Self-pretrained, {0} is at most 3 points behind S4 on {1}"),
    (r"(kernels up to \d+ have \d+ % of the gain): (\w+)", "{0} of the best model that sees more, on {1}"),
    (r"enriched training lifts (\w+) \((\w+)\)", "Enriched training lifts {0} on {1}"),
    (r"positions lift attention, scratch \((\w+)\)", "With plain training, positions lift attention on {0}"),
    (r"positions lift attention, (\w+) \((\w+)\)", "With {0} training, positions lift attention on {1}"),
    (r"more than half is lost at (\d+) times the length \((.+)\)", "At {0} times the length, {1} loses over half"),
    (
        r"training there gives back more than half of what is lost at (\d+) times the length \((.+)\)",
        "Training there gives {1} back more than half of what it loses at {0} times the length",
    ),
    (r"the middle is lost at the training length \((.+)\)", "{0} finds least in the middle at the training length"),
    (r"the middle is lost beyond it \((.+)\)", "{0} finds least in the middle beyond the training length"),
    (r"a (haystack|layout) (beyond .+ at it) \((.+)\)", "For {2}, a {0} {1}"),
    (rf"({'|'.join(REMEDIES)}) helps (.+)", "{0} {1} at four times its training length"),
)  # fmt: skip
"""Patterns of what studies ask, and the sentences that the page has for them."""


def asked(subject: str) -> str:
    """Returns a question as a sentence that may be true or false, with the names of tasks and models spelt out."""
    for pattern, sentence in QUESTIONS:
        if found := re.fullmatch(pattern, subject):
            groups = [group or "" for group in found.groups()]
            return capital(sentence.format(*(REMEDIES.get(group, named(group)) for group in groups)))
    return capital(subject)


def named(word: str) -> str:
    """Returns what a task or a model is called in a sentence; any other word as it is."""
    kernel = re.fullmatch(r"conv(\d+)", word)
    return f"kernel {kernel[1]}" if kernel else {**TASKS, **MODELS}.get(word, word)


def scores(facts: str) -> str:
    """Returns the numbers of a finding, with names spelt out, without what has a column of its own."""
    text = re.sub(rf"{ALLOWED} that is [+-][\d.]+ points\. ?", "", facts.partition(" Measured against")[0])
    text = re.sub(r"conv(\d+) (\d+) \(it sees \1 steps\)", r"\2 with a window of \1 steps", text)
    return spelt(text) or "–"


def spelt(text: str) -> str:
    """Returns a text of a study in which tasks and models have the names that they have on this page."""
    return capital(re.sub(r"(?<![\w-])(?!rotary attention)[a-z][\w+-]*\w", lambda word: named(word[0]), text))


def listed(words: Iterable[str]) -> str:
    """Returns "a", "a and b" or "a, b and c"."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def capital(text: str) -> str:
    """Returns a text that begins with a capital, but for a name with one inside, such as sLSTM."""
    return text if text[1:2].isupper() else text[:1].upper() + text[1:]
