"""Says what an audit found in plain words: the verdict, what was not tried, a paragraph for a datasheet, a badge.

    lead(found)      # "Windows of 9 steps, pooled over the whole sequence, give 97 % (93 to 100) of what a model ..."

By rules that are fixed here: a claim needs a share of 95 % whose interval does not go below 80 %, and nothing is
claimed where nothing was learnt, on fewer than 100 test examples, where no model was trained, or at effort `smoke`.
That something does not measure long range is said only where a model that sees everything has learnt nearly as much as
the best that was tried, or nearly nothing is left to learn: otherwise more may be learnt from further away. It is said
of the benchmark where nine tenths of it were learnt, and of what was learnt where that is half: what is learnt first is
often what is near, as in associative recall. Windows that have not learnt it are no sign of long range, as they may
need more training. That windows of so many steps cannot is said only where it is proved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from levelfield.report.audit.faults import amount, faults, leaky
from levelfield.report.audit.reading import LEARNABLE, MOST, Number, Reading, width
from levelfield.report.audit.shares import DISORDERED, FEWEST, FEWEST_GROUPS, FREE, RULE
from levelfield.report.audit.terms import arm, as_good, beside_guessing, known, plain, rule_words, scores, steps_of
from levelfield.spec import SPLITS

SURE = 0.8  # the least that the interval of a share may reach for a claim
HALF = 0.5  # the least that the model to be shuffled must have learnt, and the reference for a claim about range
NEARLY = 0.9  # the least that the reference must have learnt for a claim about the benchmark as a whole
QUICK = "smoke"  # the effort at which models are trained for seconds, so that nothing is said of range
GREY, RED, GREEN, BROWN, BLUE = "#6a6d72", "#a3203a", "#2c7a3f", "#a35200", "#0b5ea8"  # of badges
COMMON = 0.8  # share of one class from which being no more often right than guessing says little of the others


def lead(found: Reading) -> str:
    """Returns the verdict in one sentence or two."""
    if found.too_small:
        return f"{_too_small(found)}{_in_folds(found)}"
    if not found.learnable:
        return f"{'' if _asked(found) else f'{_untrained(found)}. '}{_nothing(found)}"
    said = f"{_local(found)}{_trivial(found)}{_level(found)}" if _asked(found) else _tried_out(found)
    return f"{said}{leaky(found)}"


def _too_small(found: Reading) -> str:
    """What there is to say by fewer test examples, or groups of them, than any claim needs."""
    tested = found.led(f"{found.tested}", *LEARNABLE)
    head = f"{'The test split is too' if found.surely else 'Too'} small to say anything: "
    head += f"{tested} test {'example' if found.tested == 1 else 'examples'}"
    if found.tested < FEWEST:
        return f"{head}, and at least {FEWEST} are needed."
    return f"{head} that amount to {amount(found)}, and at least {FEWEST_GROUPS} are needed."


def _in_folds(found: Reading) -> str:
    """What five folds show of the best rule, where they show it to be above guessing."""
    if not found.surely:
        return ""
    score = scores(found, found.folds[found.surely], found.folded.guessing, found.folded.led)
    return (
        f" In five folds over all {found.folded.tested:,.0f} examples, {arm(found, found.surely)} is above guessing: "
        f"it {score}.{_near_in_folds(found)}"
    )


def _nothing(found: Reading) -> str:
    """What there is to say where nothing that was tried is better than guessing."""
    where = f" in the first {found.longest:,.0f} steps, at which sequences were cut" if found.cut else ""
    better = f"higher {found.metric}" if found.in_percent else "lower squared error"
    on = f" on the {found.tested:,.0f} test examples" if found.surely else ""
    low = found.scores[found.reference].low
    level = ", at the level of 1 % that is asked" if low > max(found.guessing, found.one_answer) else ""
    said = (
        f"No {better} than guessing is shown{on}{where}{level}: of {len(found.scores)} that were tried, "
        f"{arm(found, found.reference)} is best on validation, and {beside_guessing(found, found.reference)}"
    )
    if low > found.guessing:  # so that it has not passed what else has to be passed
        said += f", or {plain(found, found.one_answer)} by always giving the one answer that suits these examples best"
    said += "."
    if found.surely:
        return f"{said}{_in_folds(found)}"
    if found.fact("largest_class", "test") < COMMON:
        return said
    return f"{said} This does not exclude that examples of rare classes can be ranked above others."


def _asked(found: Reading) -> bool:
    """Whether models were trained for long enough to say something of range."""
    return found.trained and found.effort != QUICK


def _tried_out(found: Reading) -> str:
    """What there is to say where models were trained for seconds or not at all: what rules have."""
    head, best = f"{_untrained(found)}, so that nothing is said of range.", found.best_rule()
    if not best:
        return head
    chosen = f"the one that knows {known(found, best)} is best on validation"
    return " ".join([f"{head} Of the rules, {chosen}: it {_scores(found, best)}.", *_later(found)])


def _later(found: Reading) -> Iterator[str]:
    """Yields what the best rule, where it knows the latest few steps, scores at steps that have others before these."""
    if not found.learnable or (best := found.best_rule()) not in found.later:
        return
    score, commonest, first = found.later[best], found.commonest[best], width(best)
    said = f"At steps after the first{f' {first}' if first > 1 else ''}, {arm(found, best)} scores {score.score()}"
    said += f" where the commonest label scores {commonest.led(plain(found, commonest.value))}"
    only = "it is better than guessing only where its symbols are all there are"
    yield f"{said}." if score.low > commonest.value else f"{said}: {only}."


def _untrained(found: Reading) -> str:
    return f"Models were trained for seconds only (effort {QUICK})" if found.trained else "No model was trained"


def _local(found: Reading) -> str:
    """What windows have."""
    enough, windows = found.enough, found.windows
    if not windows:
        return f"{arm(found, found.reference)} learns this best."
    if found.proved or math.isinf(enough.steps):
        most = max((share for _, share in windows), key=lambda share: share.value)
        head = f"indows of up to {found.widest:.0f} steps learnt at most {most.percent()} of what a model learns here"
        head += f" in {_training(found)}"
        rest = f"{head}; {arm(found, found.reference)} learnt the rest" if most.high < MOST else head
        if found.proved:
            return f"By proof, windows of {enough.steps:.0f} steps suffice and none of fewer does. Trained w{rest}."
        return f"W{rest}, which longer training may teach windows as well." if most.high < MOST else f"W{rest}."
    share, head = found.narrowest, _enough(found)
    if share.low < SURE:
        return f"{head}, an interval too wide for a claim."
    if 2 * enough.steps >= found.fact("steps", "test", "median"):
        return f"{head}; such a window sees most of a sequence."
    if not found.settled:
        return f"{head}; no model that sees everything learnt as much, so that more may be learnt from further away."
    if found.learnt < HALF:
        return f"{head}."
    benchmark = f"this benchmark, cut at {found.longest:,.0f} steps," if found.cut else "this benchmark"
    return f"{head}; {benchmark if found.learnt >= NEARLY else 'what was learnt of it'} does not measure long range."


def _enough(found: Reading) -> str:
    """What the narrowest sufficient window has; where it is the best that was tried, a share of itself says nothing."""
    pooled = "" if found.at_steps else ", pooled over the whole sequence,"
    steps = f"{steps_of(found.enough.steps)}{pooled}"
    if _is_reference(found):
        rule = f", {arm(found, found.reference)}," if found.shares[found.reference].kind == RULE else ""
        return f"The best that was tried{rule} sees no more than windows of {steps.removesuffix(',')}"
    return f"Windows of {steps} give {found.narrowest.percent()} of what a model learns here"


def _training(found: Reading) -> str:
    """How long models were trained."""
    steps = found.fact("training_steps", "train")
    if not steps:
        return f"the training steps of effort {found.effort}"
    return f"{found.led(f'{steps:,.0f}', 'training_steps', 'train')} training steps"


def _is_reference(found: Reading) -> bool:
    """Whether the narrowest sufficient window is the best of all that was tried."""
    return math.isfinite(found.enough.steps) and found.narrowest == found.shares.get(found.reference)


def _level(found: Reading) -> str:
    """How much was learnt at all, and what follows where that is little."""
    head = f" The best, {arm(found, found.reference)}, {_scores(found, found.reference)}"
    if _is_reference(found):
        head = f" It {_scores(found, found.reference)}"
        head += "; no sequence model was better" if found.simplest == found.reference else ""
    elif found.simplest == found.reference:
        head = f" That rule {_scores(found, found.reference)}"
    if found.learnt >= HALF:
        return f"{head}."
    return f"{head}. Most of the task was not learnt, and that may need more than these windows."


def _scores(found: Reading, arm: str) -> str:
    """What an arm scores beside guessing; for numbers, what it explains of their variance."""
    if found.in_percent:
        return beside_guessing(found, arm)
    explained = 1 - found.scores[arm].value / (found.guessing or -1.0)
    return (
        f"scores {found.scores[arm].plain()}, minus the squared error, and explains {100 * explained:.0f} % of variance"
    )


def claims(found: Reading) -> bool:
    """Whether something is said of the windows that a task needs: by proof, or as half of it was learnt, by windows,
    and nothing further away could matter."""
    learnt = found.learnt >= HALF and math.isfinite(found.enough.steps) and found.settled
    return found.learnable and (bool(found.proved) or learnt)


def _trivial(found: Reading) -> str:
    """What needs no sequence model."""
    if not found.simplest:
        return ""
    rule, share = known(found, found.simplest), found.shares[found.simplest].percent()
    if found.simplest == found.reference:
        return "" if _is_reference(found) else f" No sequence model was better than the rule that knows {rule}."
    return f" Without a sequence model, {rule} already {_verb(found.simplest)} {share} of it."


def _verb(rule: str) -> str:
    said = rule_words(rule)
    return "give" if said.startswith("counts") or said.endswith(("steps", "symbols")) else "gives"


def details(found: Reading) -> list[str]:
    """Returns what else was found, a sentence each."""
    asked = [*_window_interval(found), *_order(found), *_later(found)] if _asked(found) else as_good(found)
    return [*asked, *faults(found), *_proved(found)]


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
    if found.shares and not found.simplest and (best := found.best_rule()):
        yield f"The best rule without a sequence model knows {known(found, best)}: {found.shares[best].percent()}."


def _left(share: Number) -> str:
    return f"{share.percent()} is left" if share.high > 0 else "nothing is left"


def _proved(found: Reading) -> Iterator[str]:
    if found.proved:
        range_ = found.led(f"{found.proved:.0f}", "certified_range")
        yield (
            f"Proved, and checked on the arrays: windows of up to {range_} steps whose features are computed alike at "
            "every step, and pooled without regard to their place, score exactly what guessing scores. Windows of one "
            "step more suffice."
        )


def not_tried(found: Reading) -> list[str]:
    """Returns what the verdict does not cover."""
    free = [name for name, number in found.scores.items() if number.kind == FREE]
    labels = "Whether labels are right, and whether the data are what they are said to be."
    unread = [f"Whatever sequences have after the first {found.longest:,.0f} steps."] if found.cut else []
    if read := found.fact("channels_read"):
        of = found.led(f"{found.fact('channels'):,.0f}", "channels")
        unread.append(
            f"Rules on other channels than the first {read:.0f} of {of}, and on more than some levels of each."
        )
    trained_on = _trained_on(found)
    fewer = [f"Training on more than {trained_on} training examples."] if trained_on else []
    of = f"; a share is one of what {'was learnt here' if found.trained else 'the best rule has'}."
    end = of if found.shares else "."
    if not found.trained:
        return [f"Any model that reads the order of steps{end}", *fewer, *unread, labels]
    return [
        f"Larger models, tuned recipes, pretraining, and more steps than the effort ({found.effort}) affords, by which "
        f"more may be learnt, and from further away{end}",
        f"Windows above {found.widest:.0f} steps, augmentation, architectures other than convolutions and "
        f"{' and '.join(free) or 'rules'}.",
        *fewer,
        *unread,
        labels,
    ]


def _trained_on(found: Reading) -> str:
    """How many of the training examples were used; "" where all were."""
    used, whole = found.fact("trained_on", "train"), found.fact("examples", "train")
    return f"{found.led(f'{used:,.0f}', 'trained_on', 'train')} of {whole:,.0f}" if 0 < used < whole else ""


def five_folds(found: Reading) -> str:
    """What cross-validated scores are, and of how many examples; "" where there are none."""
    if not found.folds:
        return ""
    used, whole = found.folded.tested, sum(found.fact("examples", split) for split in SPLITS)
    examples = found.folded.led(f"{used:,.0f}") + (f" of {whole:,.0f}" if used < whole else "")
    return (
        f"Five folds: {examples} examples are divided into five parts that have no group and no input in common, and "
        "each part is scored by a rule that was fitted to three others and chosen on the fourth; shares are of the "
        f"score to the left, since models are scored on the same test examples.{_near_in_folds(found)}"
    )


def _near_in_folds(found: Reading) -> str:
    """Says how many examples have near duplicates in other parts; "" where all are kept together."""
    if not (apart := found.fact("near_apart")):
        return ""
    count = found.led(f"{apart:,.0f}", "near_apart")
    return f" So many are nearly alike that {count} have near duplicates in other parts, which may inflate scores."


def paragraph(found: Reading) -> str:
    """Returns a paragraph for a datasheet or a model card."""
    sizes = ", ".join(f"{found.fact('examples', split):,.0f} {split}" for split in SPLITS)
    steps = found.fact("steps", "test", "median")
    used = f"trained on {part} training examples, and " if (part := _trained_on(found)) else ""
    head = (
        f"Audited with levelfield ({sizes} examples, median {steps:,.0f} steps, effort {found.effort}; {used}"
        f"scores are on {found.tested:,} of the test examples)."
    )
    silent, said = found.too_small and not found.surely, " ".join([lead(found), *details(found)])
    return " ".join([head, said, *([] if silent else _read_as(found, said))])


def _read_as(found: Reading, said: str) -> Iterator[str]:
    """What the numbers of a paragraph are, and what they do not cover. said: its sentences."""
    asked = _asked(found)
    if asked and found.shares:
        yield "Shares are of the gain over guessing of the best that was tried."
    if asked or not found.learnable or any(number.kind == RULE for number in found.scores.values()):
        every = ", or in five folds over all examples" if "In five folds over all" in said else ""
        seeds = ", and over seeds of models" if asked else ""
        yield f"In brackets are 95 % intervals over test examples{every}{seeds}."
    if found.trained:
        yield "Larger models, tuned recipes or pretraining may learn more, and from further away."
    elif not found.learnable:
        yield "No model that reads the order of steps was tried."


class Badge(NamedTuple):
    """The words of a badge and its colour."""

    text: str
    colour: str


def badge(found: Reading) -> Badge:
    """Returns what the badge says."""
    enough = found.enough
    if found.too_small:
        return Badge("too small to say", GREY)
    if not _asked(found):
        return Badge(f"not asked at {QUICK}" if found.trained else "not asked", GREY)
    if not found.learnable:
        return Badge("nothing learnt", GREY)
    if found.proved:
        return Badge(f"more than {found.proved:.0f} steps, proved", GREEN)
    if found.learnt < HALF and math.isfinite(enough.steps):
        return Badge(f"open: best {plain(found, found.scores[found.reference].value)}", GREY)
    if found.simplest and not width(found.simplest):
        given = f"{100 * found.shares[found.simplest].value:.0f} % from {known(found, found.simplest)}"
        return Badge(given, BLUE) if found.far(found.simplest) else Badge(f"no: {given}", RED)
    if found.learnt < HALF:
        return Badge(f"open: best {plain(found, found.scores[found.reference].value)}", GREY)
    if math.isinf(enough.steps):
        return Badge(f"not learnt by windows of up to {found.widest:.0f} steps" if found.beyond else "undecided", GREY)
    local = 2 * enough.steps < found.fact("steps", "test", "median")
    if found.narrowest.low < SURE or (local and not found.settled):
        return Badge("undecided", GREY)
    given = f"{100 * found.narrowest.value:.0f} % from {steps_of(enough.steps)}"
    if local and found.learnt >= NEARLY:
        return Badge(f"no: {given}", BROWN)
    return Badge(given, BROWN if local else BLUE)


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
