"""Says what an audit found in plain words: the verdict, what was not tried, a paragraph for a datasheet, a badge.

    lead(found)      # "Windows of 9 steps give 97 % (93 to 100) of what a model learns here; ..."

By rules that are fixed here: a claim needs a share of 95 % whose interval does not go below 80 %, and nothing is
claimed where nothing was learnt, or on fewer than 100 test examples. That a benchmark does not measure long range is
said only where at least half of it was learnt: what is learnt first is often what is near, as in associative recall.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from levelfield.report.audit.reading import GRAMS, GUESSING, LEARNABLE, MOST, Number, Reading
from levelfield.report.audit.shares import DISORDERED, FEWEST, FREE, RULE

SURE = 0.8  # the least that the interval of a share may reach for a claim
HALF = 0.5  # the least that the model to be shuffled must have learnt, and the reference for a claim about the task
LEAK = 0.01  # share of test examples from which a leak is part of the verdict

RULES = {
    "length": "the length alone",
    "positions": "each step with its place",
}
"""What a rule knows, where its name does not say it."""


def rule_words(name: str) -> str:
    """Returns what a rule knows, such as "the first 8 steps" or "counts of 2-grams"."""
    if name in RULES:
        return RULES[name]
    if name.endswith("-grams"):
        return "counts of single symbols" if name == "1-grams" else f"counts of {name}"
    side, steps = name.split()
    return f"the {side} step" if steps == "1" else f"the {side} {steps} steps"


def lead(found: Reading) -> str:
    """Returns the verdict in one sentence or two."""
    if found.too_small:
        tested = found.led(f"{found.tested}", *LEARNABLE)
        return (
            f"Too small to say anything: {tested} test examples leave every share open; at least {FEWEST} are needed."
        )
    if not found.learnable:
        return (
            f"Nothing is learnable here by what was tried: the best of {len(found.scores)}, {_arm(found.reference)}, "
            f"scores {_score(found, found.scores[found.reference])} where guessing scores "
            f"{_guessing(found)}."
        )
    return f"{_local(found)}{_trivial(found)}{_level(found)}"


def _local(found: Reading) -> str:
    """What windows have."""
    enough, windows = found.enough, found.windows
    if not windows:
        return f"{_arm(found.reference)} learns this best."
    if math.isinf(enough.steps):
        most = max((share for _, share in windows), key=lambda share: share.value)
        head = f"Windows of up to {found.widest:.0f} steps give at most {most.percent()} of what a model learns here"
        return f"{head}; {_arm(found.reference)} learnt the rest." if most.high < MOST else f"{head}."
    share = found.narrowest
    head = f"Windows of {_steps(enough.steps)} give {share.percent()} of what a model learns here"
    if share.low < SURE:
        return f"{head}, an interval too wide for a claim."
    if 2 * enough.steps >= found.fact("steps", "test", "median"):
        return f"{head}; such a window sees most of a sequence."
    return f"{head}; this benchmark does not measure long range." if found.learnt >= HALF else f"{head}."


def _level(found: Reading) -> str:
    """How much was learnt at all, and what follows where that is little."""
    best = _score(found, found.scores[found.reference])
    head = f" The best, {_arm(found.reference)}, scores {best} where guessing scores {_guessing(found)}"
    if found.learnt >= HALF:
        return f"{head}."
    return f"{head}: most of the task was not learnt, and that may need more than these windows."


def _trivial(found: Reading) -> str:
    """What needs no sequence model."""
    if not found.simplest:
        return ""
    rule, share = rule_words(found.simplest), found.shares[found.simplest].percent()
    return f" Without a sequence model, {rule} already {_verb(found.simplest)} {share} of it."


def _verb(rule: str) -> str:
    return "give" if rule_words(rule).startswith("counts") or rule_words(rule).endswith("steps") else "gives"


def details(found: Reading) -> list[str]:
    """Returns what else was found, a sentence each."""
    return [*_window_interval(found), *_order(found), *_faults(found), *_proved(found)]


def _window_interval(found: Reading) -> Iterator[str]:
    enough = found.enough
    if found.learnable and math.isfinite(enough.steps) and enough.least != enough.most:
        least, most = found.between
        last = f"{enough.most:.0f}" if math.isfinite(enough.most) else f"more than {found.widest:.0f}"
        ends = f"{least.led(f'{enough.least:.0f}')} and {most.led(last)}"
        yield f"The smallest window that has 95 % lies between {ends} steps."


def _order(found: Reading) -> Iterator[str]:
    shares = found.of_kind(DISORDERED)
    if shares and (plain := next(iter(found.of_kind(FREE).items()), None)) and plain[1].low < HALF:
        learnt = f"With its steps in order, {plain[0]} learnt {plain[1].percent()} of it"
        yield f"{learnt}, too little to say what shuffling does."
        shares = {}
    if "unordered" in shares:
        yield f"With the steps of every sequence shuffled, {_left(shares['unordered'])}."
    for name, share in shares.items():
        if name.startswith("within"):
            yield f"Shuffled within blocks of {name[6:]} steps, {_left(share)}."
        if name.startswith("across"):
            yield f"With blocks of {name[6:]} steps shuffled whole, {_left(share)}."
    rules = found.of_kind(RULE)
    if rules and not found.simplest:
        best = max(rules, key=lambda name: rules[name].value)
        yield f"The best rule without a sequence model knows {rule_words(best)}: {rules[best].percent()}."


def _left(share: Number) -> str:
    return f"{share.percent()} is left" if share.high > 0 else "nothing is left"


def _faults(found: Reading) -> Iterator[str]:
    leaked = found.fact("leaked", "test")
    if leaked >= LEAK:
        share = found.led(f"{100 * leaked:.0f} %", "leaked", "test")
        yield f"{share} of the test examples are in the training split too, which inflates every score."
    near = found.fact("near_duplicates", "all", "test in train") / max(1.0, found.fact("examples", "test"))
    if near - leaked >= LEAK:
        share = found.led(f"{100 * near:.0f} %", "near_duplicates", place="test in train")
        yield f"{share} of the test examples have a near duplicate in the training split."
    if conflicts := found.fact("contradictions"):
        yield f"{found.led(f'{conflicts:,.0f}', 'contradictions')} inputs come with different labels."
    for (metric, split, pair), count in found.facts.items():
        if metric == "shared_groups" and count:
            both = pair.replace("+", " and ")
            groups = found.led(f"{count:,.0f}", metric, split, pair)
            yield f"{groups} groups have rows in both {both}: a score there is no score on new groups."
    if left := found.fact("left_out"):
        yield f"{found.led(f'{left:,.0f}', 'left_out')} rows without input or label, or broken, were left out."


def _proved(found: Reading) -> Iterator[str]:
    if steps := found.fact("certified_range"):
        range_ = found.led(f"{steps:.0f}", "certified_range")
        yield (
            f"Proved, and checked on the arrays: windows of up to {range_} steps whose features are pooled without "
            "regard to their place score exactly what guessing scores."
        )


def not_tried(found: Reading) -> list[str]:
    """Returns what the verdict does not cover."""
    free = [name for name, number in found.scores.items() if number.kind == FREE]
    return [
        "A share is one of what was learnt here, by small models, one untuned recipe and the steps that the effort "
        f"({found.effort}) affords; larger models or pretraining may learn more, and from further away.",
        f"Windows above {found.widest:.0f} steps, augmentation, architectures other than convolutions and "
        f"{' and '.join(free) or 'rules'}.",
        "Whether labels are right, and whether the data are what they are said to be.",
    ]


def paragraph(found: Reading) -> str:
    """Returns a paragraph for a datasheet or a model card."""
    sizes = ", ".join(f"{found.fact('examples', split):,.0f} {split}" for split in ("train", "val", "test"))
    steps = found.fact("steps", "test", "median")
    return " ".join(
        [
            f"Audited with levelfield ({sizes} examples, median {steps:,.0f} steps, effort {found.effort}).",
            lead(found),
            *details(found),
            "Shares are of the gain over guessing of the best model tried, with 95 % intervals over test examples and "
            "seeds.",
        ]
    )


class Badge(NamedTuple):
    """The words of a badge and its colour."""

    text: str
    colour: str


def badge(found: Reading) -> Badge:
    """Returns what the badge says."""
    enough = found.enough
    if found.too_small:
        return Badge("too small to say", "#6a6d72")
    if not found.learnable:
        return Badge("nothing learnt", "#6a6d72")
    if found.learnt < HALF and math.isfinite(enough.steps):
        return Badge(f"open: best {_plain(found, found.scores[found.reference].value)}", "#6a6d72")
    if found.simplest and not found.simplest.endswith(GRAMS):
        return Badge(f"no: {100 * found.shares[found.simplest].value:.0f} % from {_short(found.simplest)}", "#a3203a")
    if math.isinf(enough.steps):
        return Badge(f"more than {found.widest:.0f} steps", "#2c7a3f")
    share = found.narrowest
    if share.low < SURE:
        return Badge("undecided", "#6a6d72")
    local = 2 * enough.steps < found.fact("steps", "test", "median")
    return Badge(
        f"{'no: ' if local else ''}{100 * share.value:.0f} % from {_steps(enough.steps)}",
        "#a35200" if local else "#0b5ea8",
    )


def _steps(number: float) -> str:
    return "one step" if number == 1 else f"{number:.0f} steps"


def _short(rule: str) -> str:
    return f"{rule} step{'' if rule.endswith(' 1') else 's'}" if " " in rule else rule


def badge_svg(found: Reading) -> str:
    """Returns the badge as a small drawing that loads nothing, 20 pixels high."""
    said, colour = badge(found)
    left, right = _width("long range"), _width(said)
    words = escape(f"long range: {said}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" aria-label="{words}">'
        f"<title>{words}</title>"
        f'<clipPath id="r"><rect width="{left + right}" height="20" rx="3"/></clipPath>'
        f'<g clip-path="url(#r)"><rect width="{left}" height="20" fill="#444a52"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{colour}"/></g>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f'<text x="{left / 2:g}" y="14" textLength="{left - 12}">long range</text>'
        f'<text x="{left + right / 2:g}" y="14" textLength="{right - 12}">{escape(said)}</text></g></svg>\n'
    )


def _width(text: str) -> int:
    """Pixels for a text of 11 pixels with a margin; `textLength` makes any font fit."""
    return 12 + round(6.3 * len(text))


def _arm(name: str) -> str:
    if name.startswith("window"):
        return f"windows of {_steps(float(name.removeprefix('window')))}"
    return f"the rule that knows {rule_words(name)}" if name in RULES or name.endswith(GRAMS) or " " in name else name


def _score(found: Reading, number: Number) -> str:
    return number.percent() if found.in_percent else number.plain()


def _guessing(found: Reading) -> str:
    return found.led(_plain(found, found.guessing), *GUESSING)


def _plain(found: Reading, value: float) -> str:
    return f"{100 * value:.0f} %" if found.in_percent else f"{value:.3g}"
