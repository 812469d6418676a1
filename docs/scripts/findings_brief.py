"""Answers each claim of docs/findings.md in a line, for the table at its top and for the README.

    brief.never_from_scratch(found)     # "At an equal allowance of steps: yes on reviews, where a small ..."

The whole answer, with its conditions, stands in the section. Every number and every word about what is shown is
computed from the findings, so that new rows change the answer.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

import findings_shown as shown
import findings_summary as summary
import findings_words as words
import reach_figure
import went_on

from levelfield.report.verdicts import Finding, Key, Table
from levelfield.studies._amos2025_small import SPT, TRANSFORMER
from levelfield.studies._huang2024_beyond import TWICE
from levelfield.studies.amos2025_arms import LIFT
from levelfield.studies.amos2025_patience import DROPOUT, MODELS
from levelfield.studies.amos2025_starts import OTHERS
from levelfield.studies.miralles2025_small import NEARLY

if TYPE_CHECKING:
    from findings_subjects import Answer


def never_from_scratch(found: Answer) -> str:
    """What self-pretraining adds to the Transformer on each task, and whether its distance to S4 narrows as planned."""
    decided, table = summary.by_question(found), Table.of(found.results.rows)
    rises, others, gaps = [], [], []
    for task, (lift, holds) in summary.equal_lifts(found).items():
        after, before = (f"{arm.mean:.1f}" for arm in lift.arms)
        gaps.append((decided.get(f"the gap narrows ({task})", 0), words.named(task)))
        if holds > 0:
            rule = summary.below(table, Key(task, TRANSFORMER, SPT))
            rises.append(
                f"yes on {shown.sized(found, task)}, where a small Transformer rises from {before} to {after} %{rule}"
            )
        else:
            others.append((holds, shown.sized(found, task)))
    lifted = "; ".join([*rises, *filter(None, [summary.by_answer(others)])])
    closer = words.capital(summary.by_answer(gaps))
    return f"{words.capital(shown.ALLOWED)}: {lifted}. Does it come closer to S4? {closer}."


def never_stopped(found: Answer) -> str:
    """Of which models the lift is shown to stay, beside how many of the arms from scratch."""
    told = []
    for model, name in MODELS.items():
        asked = [finding for finding in found.findings if finding.subject.startswith(f"{name}'s lift")]
        dropped = " and with dropout" if model in DROPOUT else ""
        told.append(f"{name}, at each of two learning rates{dropped}: {summary.counted(asked, zeros=False)}")
    asked = "Does the lift on reviews hold against training from scratch for all steps?"
    return f"{asked} {words.capital('; '.join(told))}."


def scarce_labels(found: Answer) -> str:
    """Whether the lift is largest with the fewest labels, on each task."""
    start = "and more so with the fewest than with all ("
    asked = {
        f.subject.removeprefix(start).rstrip(")"): f.decided for f in found.findings if f.subject.startswith(start)
    }
    answers = [(sign, f"{words.named(t)}{', the control' * (t == summary.CONTROL)}") for t, sign in asked.items()]
    return f"Is the lift largest where labels are fewest? {words.capital(summary.by_answer(answers))}."


def starts(found: Answer) -> str:
    """How many models are behind S4 from scratch, come closer by self-pretraining, and are level with it then."""
    asked = {
        "behind S4 from scratch": "is behind S4 from scratch",
        "closer to it once pretrained": "is behind by less once both are pretrained",
        "level with it then": "is level with S4 once both are pretrained",
    }
    findings = {start: [f for f in found.findings if question in f.subject] for start, question in asked.items()}
    counts = "; ".join(f"{start}: {summary.counted(each, zeros=False)}" for start, each in findings.items())
    return f"Of {len(OTHERS)} models, {counts}."


def arms(found: Answer) -> str:
    """What self-pretraining adds to each model, and whether it is a lift."""
    return summary.lifts(found, summary.LIFTS, LIFT) or summary.by_name(found)


def enriched(found: Answer) -> str:
    """How many models are lifted by enriched training on each task, and how often positions lift attention."""
    lifts: dict[str, list[Finding]] = {}
    for finding in found.findings:
        if finding.subject.startswith(summary.ENRICHED):
            lifts.setdefault(words.named(finding.subject.partition(" (")[2].rstrip(")")), []).append(finding)
    positions = [finding for finding in found.findings if finding.subject.startswith("positions lift")]
    told = "; ".join(f"on {task} {summary.counted(each, zeros=False)}" for task, each in lifts.items())
    return (
        f"Enriched training lifts models: {told}. Positions lift attention: {summary.counted(positions, zeros=False)}."
    )


def local(found: Answer, others: Answer | None) -> str:
    """What share of the gain over guessing short kernels have, and of which tasks it is shown to be nearly all.

    others: the study that trains some of these models plainly as well.
    """
    made, answers = shown.shares(found), {finding.subject: finding for finding in found.findings}
    seen = summary.short_kernels_see(found)
    natural = {task: share for task, share in made.items() if seen in share.places and seen > share.proved}
    proved = [share for share in made.values() if seen in share.places and seen <= share.proved]
    whole = words.listed(dict.fromkeys(words.named(share.whole) for share in natural.values()))
    had = words.listed(
        f"{fmean(share.places[seen]):.0f} %{summary.interval(answers.get(task), share)} on {shown.sized(found, task)}"
        for task, share in natural.items()
    )
    asked = summary.by_answer((answers[task].decided, share.name) for task, share in natural.items() if task in answers)
    none = "".join(
        f" On a task [proved](reach.md) to need {share.proved + 1} steps: {fmean(share.places[seen]):.0f} %."
        for share in proved
    )
    plain = f" With plain training on pictures: {shown.plain_share(found, others):.0f} % of S4's." if others else ""
    return (
        f"With enriched training, seeing {seen:.0f} steps brings this share of the full-range {whole}'s gain over "
        f"guessing: {had}. {100 * NEARLY:.0f} % or more? {words.capital(asked)}.{plain}{none}"
    )


def beyond(found: Answer, layout: str) -> str:
    """How many models lose half of what they have learnt at twice the training length, which was planned, and at the
    longest one that was asked.

    layout: what a text of that length may differ in, such as "haystack".
    """
    made = shown.recall(found)
    last = made.longest // made.trained
    lost, kept, none = (
        [sum(finding.decided == sign for finding in made.falls(found, times)) for times in (TWICE, last)]
        for sign in (1, -1, 0)
    )
    models = lost[0] + kept[0] + none[0]
    twice, far = (f"({kept[at]} shown to keep half, {none[at]} open)" for at in range(2))
    return (
        f"Models shown to lose more than half of their gain over guessing in some {layout}: {lost[0] or 'none'} of "
        f"{models} at twice the training length {twice}, {lost[1]} at {last} times that length {far}."
    )


def needles(found: Answer, longer: Answer | None) -> str:
    """The same of needles, and how many models get back what they lose, once they are trained at a longer length.

    longer: the answer of `huang2024_longer`.
    """
    layout = "haystack (text around a needle)"
    return f"{beyond(found, layout)}{f' {went_on.regained(longer)}' if longer else ''}"


def machines(found: Answer) -> str:
    """How many of the known separations are shown."""
    return f"Separations known from the work of others: {summary.counted(found.findings, zeros=False)}."


def reach(found: Answer) -> str:
    """Whether the runs bear out the proof, and how many models reach the longest range."""
    exact, bound, free, longest = reach_figure.counted(found.results.rows)
    far = sum(steps == longest for steps in free.values())
    return (
        f"As proved: {exact} of {bound} runs that see no further than the range score exactly 50 %. Of {len(free)} "
        f"models that see everything, {far} learn {longest}, the longest range asked of all."
    )
