"""Says what the answers of docs/findings.md on length rest on: needles and counting beyond the length of training.

As in `leads`, every function takes the answer to one subject and yields Markdown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import findings_shown as shown
import findings_tuning as tuning
import findings_words as words

from levelfield.studies._huang2024_beyond import FIFTHS, MIDDLE, fifth
from levelfield.tasks.needle import Needle

if TYPE_CHECKING:
    from findings_subjects import Answer


def beyond(found: Answer) -> Iterator[str]:
    """The share of the gain over guessing that is left in the hardest haystack, by multiples of the training length;
    which part of the text is lost, and what the haystack costs beside the length."""
    made = shown.recall(found)
    trained, last = made.trained, made.longest // made.trained
    yield (
        "The verdict is about twice the training length and the longest one, in whichever haystack costs most. The "
        f"table only describes: it shows how much of the gain over guessing at {trained} words is left at longer "
        f"lengths among {shown.HAYSTACKS[made.haystack]}, where fewest needles are found, and in the other haystacks "
        "(ratios of medians over seeds). A gain is how far a score has come from guessing to 100 %. Guessing names the "
        f"commonest value of the text, for which no key need be known, and is right in {_guesses(found, made)}. "
        "Needles also stand out among pairs: a needle may split a pair, and its key occurs once, while the keys of "
        "pairs repeat. Naming the value of such a key, whichever is asked for, is right in "
        f"{_standing_out(found, made)}. So an answer stands only if it holds for both kinds of guessing. A longer text "
        f"of look-alike pairs is also harder in itself: it holds {_pairs(trained)} of them at {trained} words and "
        f"{_pairs(made.longest)} at {made.longest}.\n"
    )
    kept = made.kept()
    others = _others(found, made)
    yield from _left(made, kept, others)
    everywhere = [max(kept[model][last], *(each[model] for each in others.values())) for model in kept]
    half = sum(shares[4] < 0.5 for shares in kept.values())
    yield (
        f"\nAt four times the length {half} of {len(kept)} architectures keep less than half. At {last} times, "
        f"{sum(share <= 1 / 3 for share in everywhere)} keep a third or less in every haystack. Some remedies need no "
        f"training. That windows and attention sinks do not help was known beforehand: a window of {trained} words "
        f"hides three quarters of the needles at {4 * trained}."
    )
    yield from _places(found)


def _pairs(length: int) -> int:
    """Pairs of a key and a value in a text of nothing else, before the question, which takes two steps."""
    return (length - 2) // 2


def _guesses(found: Answer, made: shown.Recall) -> str:
    """What guessing has in each haystack, at the training length and at the longest one."""
    asked = shown.length_scores(found)
    told = []
    for end in asked.haystacks:
        near, far = (f"{asked.floor(length, end):.0f}" for length in (made.trained, made.longest))
        change = "" if near == far else f" at {made.trained} words, {far} % at {made.longest}"
        told.append(f"{near} %{change} among {shown.HAYSTACKS[end.partition('=')[2]]}")
    return "; ".join(told)


def _standing_out(found: Answer, made: shown.Recall) -> str:
    """What naming the value of a needle that stands out has in the hardest haystack, at both ends."""
    task = found.planned[0].task
    assert isinstance(task, Needle)
    asked = [(length, task.at_length(length).standing_out(made.haystack)) for length in (made.trained, made.longest)]
    return " and ".join(f"about {100 * share:.0f} % at {length} words" for length, share in asked)


def _others(found: Answer, made: shown.Recall) -> dict[str, dict[str, float]]:
    """Haystack -> model -> what is left in it at the longest length; without the hardest haystack."""
    names = [end.partition("=")[2] for end in shown.length_scores(found).haystacks]
    times = made.longest // made.trained
    kept = {name: shown.recall(found, name).kept() for name in names if name != made.haystack}
    return {name: {model: shares[times] for model, shares in mine.items()} for name, mine in kept.items()}


def _left(
    made: shown.Recall, kept: Mapping[str, Mapping[int, float]], others: Mapping[str, Mapping[str, float]]
) -> Iterator[str]:
    """The same as a table, beside the score at the training length, and what is left elsewhere at the longest one."""
    times = [*next(iter(kept.values()))]
    heads = ["model", f"right at {made.trained} words (%)", *(f"left at {n} ×" for n in times)]
    heads += [f"left at {times[-1]} ×: {shown.HAYSTACKS.get(name, name)}" for name in others]
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for model, shares in kept.items():
        learnt = made.cells[model][made.trained].median
        left = [*shares.values(), *(other[model] for other in others.values())]
        yield f"| {words.named(model)} | {learnt:.1f} | {' | '.join(f'{share:.2f}' for share in left)} |"
    if tuning.RANDOM in kept:
        yield f"\n{tuning.positions(made.trained)}"


def _places(found: Answer) -> Iterator[str]:
    """Which fifth of the text is lost most, and for how many models two haystacks are further apart than the fall."""
    asked = shown.length_scores(found)
    lowest: dict[str, list[str]] = {}
    for model in asked.learnt:
        parts = zip(("first", "middle", "last"), FIFTHS, strict=True)
        means = {name: part.mean for name, tenths in parts if (part := fifth(asked, model, asked.farther, tenths))}
        lowest.setdefault(min(means, key=lambda name: means[name]), []).append(model)
    said = "; ".join(
        f"the {name} in {words.listed(words.named(m) for m in models)}" for name, models in sorted(lowest.items())
    )
    lost = [each for each in found.findings if each.subject.startswith("the middle is lost")]
    more = [each for each in found.findings if each.subject.startswith("a haystack")]
    seen, costs = (sum(finding.seen > 0 for finding in each) for each in (lost, more))
    yes, not_so = (sum(finding.decided == sign for finding in more) for sign in (1, -1))
    no = [f for f in lost if f.decided < 0]
    near = sum("at the training length" in f.subject for f in no)
    yield (
        f"As the numbers stand, the middle fifth of the text is {MIDDLE:.0f} points below both ends in {seen} of "
        f"{len(lost)} questions; {len(no)} are answered no, {near or 'none'} of them at the training length and "
        f"{len(no) - near or 'none'} beyond it. Beyond it, the lowest fifth is {said}."
    )
    yield (
        f"As the numbers stand, {costs} of {len(more)} architectures find one haystack beyond the training length "
        f"easier than another at it; the answer is yes for {yes} and no for {not_so}. Scores are corrected for "
        f"guessing here. Where no haystack is hard at {asked.trained} words, it cannot be yes, however much they "
        "differ beyond. Both questions were added after these rows had been seen."
    )


def counting(found: Answer, needles: Answer | None) -> Iterator[str]:
    """The share that is left in the harder layout, and which models hold needles and counting."""
    made = shown.recall(found)
    kept, last = made.kept(), made.longest // made.trained
    yield (
        "The question is which word of a text is the most frequent, which no single place tells. That word is "
        f"spread over the text or gathered in a third of it. The answer and its rivals have the same shares of a text "
        f"of any length, so that a longer one is not harder in itself. {_soon(found)} "
        f"This much of the gain over guessing is left where the word is {made.haystack} (ratios of medians over seeds; "
        "a description, not a verdict):\n"
    )
    yield from _left(made, kept, _others(found, made))
    if needles is not None:
        other = shown.recall(needles).kept()
        both = {model: (kept[model][last], other[model][last]) for model in kept if last in other.get(model, {})}
        parts = [f"{words.named(model)} {100 * one:.0f} and {100 * two:.0f}" for model, (one, two) in both.items()]
        yield (
            f"\nWhich models fall depends on what is asked. At {last} times the length, they keep these percentages of "
            "their gain, first on counting and then on needles among look-alike pairs (the section before): "
            f"{', '.join(parts)}."
        )


def _soon(found: Answer) -> str:
    """Returns the steps after which training ended, by the medians of the arms."""
    steps = sorted(int(cost.get("steps", 0)) for cost in found.results.ledgers.values())
    return f"The task is learnt quickly: the arms' medians are {steps[0]:,} to {steps[-1]:,} steps of training."
