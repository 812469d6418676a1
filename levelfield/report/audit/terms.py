"""Says what arms of an audit are called, what a rule knows, and what is scored, in the words of its sentences.

rule_words("last 8")         # "the last 8 steps"
arm(found, "2-grams")        # "the rule that knows counts of 2-grams"
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from levelfield.report.audit.reading import FAR, GRAMS, GUESSING, PLACES, SHOWN, Number, Reading, percent, width
from levelfield.report.audit.shares import RULE

RULES = {
    "length": "the length alone",
    PLACES: "each step with its place",
    "commonest": "the commonest label",
    "place": "the place of a step",
    SHOWN: "the symbol behind the last question",
}
"""What a rule knows, where its name does not say it."""


def rule_words(name: str) -> str:
    """Returns what a rule knows, such as "the first 8 steps", "counts of 2-grams" or "the latest 2 symbols"."""
    if name in RULES:
        return RULES[name]
    if name.endswith("-grams"):
        return "counts of single symbols" if name == "1-grams" else f"counts of {name}"
    if width(name):
        return "the latest symbol" if name == "latest 1" else f"the {name} symbols"
    side, steps = name.split()
    return f"the {side} step" if steps == "1" else f"the {side} {steps} steps"


def steps_of(number: float) -> str:
    return "one step" if number == 1 else f"{number:.0f} steps"


def arm(found: Reading, name: str) -> str:
    """Returns what a window, a model or a rule is called."""
    if name.startswith("window"):
        return f"windows of {steps_of(float(name.removeprefix('window')))}"
    rule = name in RULES or name.endswith(GRAMS) or " " in name
    return f"the rule that knows {known(found, name)}" if rule else name


def known(found: Reading, rule: str) -> str:
    """What a rule knows, and whether that is most of a sequence."""
    most = " (most of a sequence)" if found.far(rule) and rule not in FAR else ""
    return f"{rule_words(rule)}{most}"


def as_good(found: Reading) -> Iterator[str]:
    """Yields what other rules have beside the one that is best on validation, which of several may be by chance: the
    simplest one and the narrowest window that have nearly as much, and the best of five folds, where it is better."""
    best = found.reference
    if not found.shares or found.shares[best].kind != RULE:
        return
    windows = [name for name in found.sufficient if width(name)]
    others = [name for name in dict.fromkeys([*found.sufficient[:1], *windows[:1]]) if name != best]
    if others:
        has = ", and ".join(f"{arm(found, name)} has {found.shares[name].percent()}" for name in others)
        yield f"Of what that rule gains over guessing, {has}."
    better, folds = found.surely, found.folds
    if better and folds[better].low > folds[best].high:
        yield (
            f"In five folds over all {found.folded.tested:,.0f} examples, {arm(found, better)} is better: it scores "
            f"{score_of(found, folds[better])}, and {arm(found, best)} {score_of(found, folds[best])}."
        )


def score_of(found: Reading, number: Number) -> str:
    return number.score() if found.in_percent else number.plain()


def scores(found: Reading, number: Number, guess: float, led: Callable[[str], str]) -> str:
    """Returns "scores 97 % (93 to 99.6) where guessing scores 50 %", with more digits where these are nearly alike.

    led: makes a text about guessing lead to its row.
    """
    if not found.in_percent:
        return f"scores {number.plain()} where guessing scores {led(plain(found, guess))}"
    digits = int(percent(number.value) == percent(guess))
    return f"scores {number.score(digits)} where guessing scores {led(f'{percent(guess, digits)} %')}"


def beside_guessing(found: Reading, name: str) -> str:
    """Returns what an arm scores, and guessing, on the test examples: "scores 97 % ... where guessing scores 50 %"."""
    return scores(found, found.scores[name], found.guessing, lambda text: found.led(text, *GUESSING))


def plain(found: Reading, value: float) -> str:
    return f"{percent(value)} %" if found.in_percent else f"{value:.3g}"
