"""Answers each claim of docs/findings.md in a sentence or two, for the table at its top and for the README.

    summary.never_from_scratch(found)     # "Yes on reviews: a small Transformer rises from 59.4 to 72.5 % at ..."

Every number and every word about what is shown is computed from the findings, so that new rows change the answer.
"Open" is what the verdict calls not decided: neither the claim nor its opposite is shown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

import findings_shown as shown
import findings_words as words

from levelfield.report.decisions import Span
from levelfield.report.verdicts import Finding, Key, Table
from levelfield.studies._amos2025_small import LONGER, SCRATCH, SPT, SSM, TRANSFORMER
from levelfield.studies._huang2024_beyond import TWICE
from levelfield.studies._miralles2025_small import SHORT
from levelfield.studies.amos2025_arms import LIFT
from levelfield.studies.amos2025_starts import MARGIN, OTHERS
from levelfield.studies.miralles2025_enriched import BOUNDED
from levelfield.studies.miralles2025_small import NEARLY
from levelfield.studies.state_tracking import FAILED_LENGTH, HELD_AT, HOLDING, broken_down

if TYPE_CHECKING:
    from findings_subjects import Answer

FEW = 9  # questions that are listed by name where no sentence of their own says more
FAR = 0.25  # of the gain over guessing, at most which is left where "most is lost" is said
LIFTS, ENRICHED = "self-pretraining lifts ", "enriched training lifts "  # beginnings of questions
PICTURES, CONTROL = "image8", "in_context_recall"
INTRODUCTION = """\
# Findings

What three papers claim about long-sequence models, what our runs answer, and how strong the evidence is. The models are
small, at most some 120,000 parameters, and train on sequences of at most 256 steps, except at certified ranges, whose
sequences are longer. So nothing here speaks for models of the published sizes, which need GPUs. Each section ends with
what would change our mind, and the command to find out. *Yes* and *no* are shown beyond noise, *open* is neither.

@table@

**How to read it.** An *arm* is a set of runs that differ only in their seed. Every answer comes from a rule in the code
of the study, which is applied to all rows alike; what was changed after answers had been seen is
[listed](verdicts.md#what-was-changed-after-looking). *Yes* means that the claim is shown beyond the noise of seeds and
test examples, *no* that its opposite is shown, and *open* (in reports "not decided") that neither is. The rules are
designed so that at most 5 % of reports decide anything wrongly; where a study makes several claims, this holds for each
claim ([verdicts](verdicts.md#how-it-is-decided)). The last two studies, of state tracking and of certified range, count
seeds instead.
@strict@
A 95 % interval is for one question alone, while an answer has to meet a stricter level, which allows for all questions
of the study, or of its claim. So an interval that excludes zero is not always a yes. Steps and FLOPs of an arm are
medians over its seeds, and core-hours count each run at the median of its arm. Scores in the last column of tables are
medians over seeds. Differences, and scores in sentences that do not name medians, are of means.

@counted@

![](figures/findings.png)

`python docs/scripts/findings.py` writes this page from the rows in [results](../results/README.md), and a test checks
that the two agree.
"""


def counted(findings: Sequence[Finding], zeros: bool = True) -> str:
    """Returns "3 yes, 0 no, 15 open". zeros: whether answers are told that nothing has."""
    decided = [finding.decided for finding in findings]
    counts = {word: decided.count(sign) for sign, word in shown.WORDS.items()}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count or zeros)


def by_answer(answers: Iterable[tuple[int, str]]) -> str:
    """Returns "yes on reviews; open on ListOps and pictures"."""
    told: dict[str, list[str]] = {}
    for decided, name in answers:
        told.setdefault(shown.WORDS[decided], []).append(name)
    return "; ".join(f"{word} on {words.listed(told[word])}" for word in shown.WORDS.values() if word in told)


def by_name(found: Answer) -> str:
    """Returns the answers by the names of their questions, or how many there are of each; for any study."""
    if len(found.findings) > FEW:
        return f"{counted(found.findings)}."
    names = {"Shown": 1, "The opposite is shown": -1}
    parts = [(said, [f.subject for f in found.findings if f.decided == sign]) for said, sign in names.items()]
    parts += [("Open", [f.subject for f in found.findings if not f.decided])]
    return " ".join(f"{said}: {'; '.join(subjects)}." for said, subjects in parts if subjects)


def machines(found: Answer) -> str:
    """The answers of state tracking by name, and what holds at the shorter multiple and no longer at the longer one."""
    table = Table.of(found.results.rows, "length")
    lost = [key for _, models, tasks in HOLDING for key in broken_down(table, models, tasks)]
    told = words.listed(
        f"{words.named(key.task)} by {words.named(key.model)} ({table.cells[key].median:.1f} %)" for key in lost
    )
    further = f" Held at {HELD_AT} times, but in most seeds not at {FAILED_LENGTH} (medians there): {told}."
    return by_name(found) + (further if lost else "")


def equal_lifts(found: Answer) -> dict[str, tuple[shown.Lift, int]]:
    """Returns, by task, what self-pretraining adds to the Transformer at an equal allowance of steps, and the answer
    whether that is a lift."""
    decided = by_question(found)
    return {
        lift.task: (lift, decided.get(f"the Transformer's lift holds {shown.ALLOWED} ({lift.task})", 0))
        for lift in shown.lifts(found)
        if lift.model == TRANSFORMER and lift.longer
    }


def never_from_scratch(found: Answer) -> str:
    """Returns what self-pretraining adds to the Transformer at an equal allowance of steps, on each task, with what
    both arms took, and whether the Transformer comes closer to S4."""
    table, lifts = Table.of(found.results.rows), equal_lifts(found)
    parts = []
    for task, (lift, holds) in lifts.items():
        if holds > 0:
            after, before = (f"{arm.mean:.1f}" for arm in lift.arms)
            parts.append(
                f"Yes on {words.named(task)}: a small Transformer rises from {before} to {after} % {shown.ALLOWED}"
                f"{_span(lift.contrast.span())}{below(table, Key(task, TRANSFORMER, SPT))}.{_used(found, task)}"
            )
    refuted = [task for task, (_, holds) in lifts.items() if holds < 0]
    if refuted:
        parts.append(f"The opposite is shown on {_on(refuted)}.")
    rest = {task: lift for task, (lift, holds) in lifts.items() if not holds}
    if rest:
        values = words.listed(f"{words.named(t)} ({lift.contrast.value:+z.1f} points)" for t, lift in rest.items())
        parts.append(f"Open on {values}.")
    return " ".join([*parts, _closer(table, by_question(found), list(lifts))])


def _closer(table: Table, answers: Mapping[str, int], tasks: Sequence[str]) -> str:
    """Returns whether the Transformer comes closer to S4: first as was planned, then as was asked after looking."""
    asked = {SCRATCH: "the gap narrows", LONGER: f"the gap narrows {shown.ALLOWED}"}
    said = {before: {task: answers.get(f"{asked[before]} ({task})", 0) for task in tasks} for before in asked}
    telling = [task for task in tasks if any(said[before][task] for before in asked)]
    planned, added = (_told(said[before], {task: _gaps(table, task, before) for task in telling}) for before in asked)
    return (
        f"Does it come closer to S4? Over scratch, as planned: {planned}. {words.capital(shown.ALLOWED)}, which was "
        f"asked after looking: {added}."
    )


def _told(answers: Mapping[str, int], beside: Mapping[str, str]) -> str:
    """Returns "yes on reviews (7.7 behind); open on ListOps", what stands beside a task in brackets."""
    return by_answer(
        (answer, words.named(task) + (f" ({beside[task]})" if task in beside else ""))
        for task, answer in answers.items()
    )


def _gaps(table: Table, task: str, before: str) -> str:
    """Returns by how many points the Transformer is behind S4 before self-pretraining, and after it."""
    ends = [[table.cells[Key(task, model, p)].mean for model in (SSM, TRANSFORMER)] for p in (before, SPT)]
    return ", then ".join(gap(s4 - transformer) for s4, transformer in ends)


def _used(found: Answer, task: str) -> str:
    """Returns which steps and FLOPs the Transformer's two arms of a task took of what they were allowed."""
    own, other = (shown.cost(found, Key(task, TRANSFORMER, protocol)) for protocol in (SPT, LONGER))
    if own is None or other is None:
        return ""
    (steps, flops), (longer, without) = own, other
    return (
        f" The self-pretrained model took {steps:,.0f} steps and {flops / 1e12:.0f} TFLOP, the other {longer:,.0f} and "
        f"{without / 1e12:.0f}, where patience (early stopping) ended its training (medians)."
    )


def scarce_labels(found: Answer) -> str:
    """The lift with the fewest labels beside that with all, on each task that has both."""
    parts = []
    for finding in sorted(found.findings, key=lambda each: CONTROL in each.subject):
        if finding.subject.startswith("and more so with the fewest"):
            task = finding.subject.partition("(")[2].rstrip(")")
            said = finding.facts.partition(" Measured")[0].rstrip(".")
            control = ", the positive control" if task == CONTROL else ""
            word = shown.WORDS[finding.decided].capitalize()
            parts.append(f"{word} on {words.named(task)}{control}: {said[0].lower()}{said[1:]}.")
    return f"Is the lift largest with the fewest labels? {' '.join(parts)}" if parts else "Not asked yet."


def starts(found: Answer) -> str:
    """Which models are behind S4 from scratch, which come closer by self-pretraining, and which are level then."""
    decided = by_question(found)
    cells = Table.of(found.results.rows).cells
    mean = {(key.model, key.protocol): arm.mean for key, arm in cells.items() if key.task == PICTURES}
    parts = []
    for sentence, question, protocol in (
        (f"More than {MARGIN:g} points behind S4 from scratch", "behind S4 from scratch", SCRATCH),
        ("Closer to S4 once both are self-pretrained", "behind by less once both are pretrained", None),
        (f"At most {MARGIN:g} points behind it then", "level with S4 once both are pretrained", SPT),
    ):
        told: dict[str, list[str]] = {}
        for model in OTHERS:
            answer = decided.get(f"{model} is {question} ({PICTURES})")
            if answer is not None:
                behind = f" ({gap(mean[SSM, protocol] - mean[model, protocol])})" if protocol else ""
                told.setdefault(shown.WORDS[answer], []).append(f"{words.named(model)}{behind}")
        groups = sorted(told.items(), key=lambda group: group[0] == "open")
        parts.append(f"{sentence}? " + "; ".join(f"{word} for {words.listed(names)}" for word, names in groups))
    return " ".join(f"{re.sub(r'(?<=[?] )[a-z]', lambda first: first[0].upper(), part)}." for part in parts)


def gap(points: float) -> str:
    """Returns "4.7 behind", or "0.1 ahead" where the points are negative."""
    return f"{abs(points):.1f} {'behind' if points >= 0 else 'ahead'}"


def short_kernels_see(found: Answer) -> float:
    """Returns how many steps a model sees whose kernels are as long as the claim allows."""
    return max(steps for kernel, steps in shown.steps_seen(found.results.rows).items() if int(kernel) <= SHORT)


def local(found: Answer, others: Answer | None) -> str:
    """Returns what share of the gain short kernels have, on each task.

    others: the study that trains some of these models plainly as well; it says what they have without enrichment.
    """
    made, answers = shown.shares(found), {finding.subject: finding for finding in found.findings}
    seen = short_kernels_see(found)
    had = sorted(
        ((task, share) for task, share in made.items() if seen in share.places), key=lambda item: seen <= item[1].proved
    )
    told: dict[str, list[str]] = {}
    for task, share in had:
        decided = answers[task].decided if task in answers else 0
        told.setdefault(shown.WORDS[decided], []).append("that task" if seen <= share.proved else share.name)
    certified = "a task for which a model without positions [provably](reach.md) needs more than {} steps"
    shares = words.listed(
        f"{fmean(share.places[seen]):.0f} % on {certified.format(share.proved)}"
        if seen <= share.proved
        else f"{fmean(share.places[seen]):.0f} %{interval(answers.get(task), share, '95 % interval about ')} "
        f"on {share.name}"
        for task, share in had
    )
    asked = "; ".join(f"{said} on {words.listed(names)}" for said, names in told.items())
    whole = words.listed(dict.fromkeys(words.named(share.whole) for _, share in had))
    return (
        f"Two convolutional layers that together see {seen:.0f} steps have this much of what the {whole}, which sees "
        f"everything, gains over guessing: {shares} (all with enriched training and mean pooling over the sequence). "
        f"Is that {100 * NEARLY:.0f} % or more? {words.capital(asked)}. {_among_kernels(had, seen)}"
        f"{_plainly(made, others)}"
    )


def interval(finding: Finding | None, share: shown.Share, name: str = "") -> str:
    """Returns the 95 % interval of a share, such as " (81 to 92)", from that of its distance to what a yes needs.

    The whole is taken as exact. name: what stands before it. Returns "" where the question has no interval.
    """
    if finding is None or finding.span is None:
        return ""
    low, high = (100 * (NEARLY + end / (share.best - share.floor)) for end in (finding.span.low, finding.span.high))
    return f" ({name}{low:.0f} to {high:.0f})"


def _among_kernels(had: Sequence[tuple[str, shown.Share]], seen: float) -> str:
    """Returns the short kernel's share of the gain of the widest, which differs from it in nothing but its range."""
    widest = max(steps for _, share in had for steps in share.places if math.isfinite(steps))
    told = [
        f"{100 * fmean(share.places[seen]) / fmean(share.places[widest]):.0f} % on {share.name}"
        for _, share in had
        if seen > share.proved
    ]
    return f"Of the gain of two layers that see {widest:.0f} steps it is {words.listed(told)}."


def _plainly(made: Mapping[str, shown.Share], others: Answer | None) -> str:
    """Returns what the short kernel has on pictures with plain training, beside it and the whole model enriched."""
    plain = shown.plain(others) if others else {}
    if BOUNDED not in plain or PICTURES not in made:
        return ""
    scratch, enriched = plain[BOUNDED]
    share = made[PICTURES]
    return (
        f" On pictures {words.named(BOUNDED)} has {scratch:.1f} % with plain training, {enriched:.1f} % enriched, and "
        f"the enriched {words.named(share.whole)} {share.best:.1f} %."
    )


def enriched(found: Answer) -> str:
    """What enriched training adds to each model, task by task."""
    if not (told := lifts(found, ENRICHED)):
        return by_name(found)
    return (
        f"{told} All runs had a short patience, so training may have ended too early. The paper itself says that S4 "
        "barely gains."
    )


def arms(found: Answer) -> str:
    """What self-pretraining adds to each model, task by task, and how much it has to add for a yes."""
    if not (told := lifts(found, LIFTS, LIFT)):
        return by_name(found)
    return f"{told} A yes needs more than {LIFT:g} point."


def lifts(found: Answer, question: str, margin: float = 0.0) -> str:
    """Whether each model is lifted on each task, by more than a margin, and by how much; "" where it was asked of
    none."""
    told: dict[str, dict[str, list[str]]] = {}
    for finding in found.findings:
        asked, _, model = finding.subject.partition(question)
        if not asked and finding.span:
            name, task = model.rstrip(")").split(" (")
            lift = f"{words.named(name)} ({finding.span.value + margin:+z.1f} points)"
            told.setdefault(task, {}).setdefault(shown.WORDS[finding.decided], []).append(lift)
    return " ".join(
        f"Does it lift models on {words.named(task)}? "
        + words.capital("; ".join(f"{word} for {words.listed(models)}" for word, models in answers.items()))
        + "."
        for task, answers in told.items()
    )


def _at_longest(found: Answer, learnt: str, layout: str) -> str:
    made = shown.recall(found)
    answers = made.falls(found, last := made.longest // made.trained)
    scores = [arms[made.trained].median for arms in made.cells.values()]
    apart = f" ({min(scores):.0f} to {max(scores):.0f} % right in the harder {layout}, medians)"
    return (
        f"{len(answers)} models learnt to {learnt} {made.trained} words"
        f"{apart if max(scores) - min(scores) > 1 else ''}. At {last} times that length, {fallen(answers, layout)}"
    )


def beyond(found: Answer) -> str:
    """Says who loses half at twice the training length and at the longest one, and what is left there in the hardest
    haystack."""
    made = shown.recall(found)
    last, kept = made.longest // made.trained, left(made)
    lost, best = sum(share <= FAR for share in kept.values()), max(kept, key=lambda model: kept[model])
    return (
        f"{_at_longest(found, 'find needles in', 'haystack')}; at twice, {fallen(made.falls(found, TWICE))}. "
        f"At {last} times, among {shown.HAYSTACKS[made.haystack]}, {lost} keep at most a quarter of their gain "
        f"over guessing, while {words.named(best)} keeps {100 * kept[best]:.0f} % (a description, not a verdict)."
    )


def fallen(findings: Sequence[Finding], layout: str = "haystack") -> str:
    """How many models are shown to lose more than half, how many to keep it, and how many are open."""
    said = {1: f"lose more than half in some {layout}", -1: f"keep half or more in every {layout}"}
    answers = [finding.decided for finding in findings]
    told = [(answers.count(sign), f"shown to {verb}") for sign, verb in said.items()] + [(answers.count(0), "open")]
    *parts, last = (f"{count} {'is' if count == 1 else 'are'} {what}" for count, what in told if count)
    return f"{', '.join(parts)}, and {last}" if parts else last


def counting(found: Answer) -> str:
    """Who loses half at the longest length, and what is left there of the gain over guessing in the harder layout."""
    made = shown.recall(found)
    kept = sorted(left(made).items(), key=lambda item: -item[1])
    told = words.listed(f"{words.named(model)} {100 * share:.0f} %" for model, share in kept)
    longest = _at_longest(found, "name the most frequent of", "layout")
    return (
        f"It depends on what is asked. {longest}. In the harder layout, this much of the gain over guessing is left "
        f"there: {told} (a description, not a verdict)."
    )


def left(made: shown.Recall) -> dict[str, float]:
    """Model -> the share of its gain over guessing that is left at the longest length, of medians over seeds."""
    return {model: shares[made.longest // made.trained] for model, shares in made.kept().items()}


def below(table: Table, key: Key) -> str:
    """Returns ", which is below ... (76.9 %)" where an arm does not beat the best simple rule, else ""."""
    rule = table.rule(key.task)
    if rule is None or table.learnt(key):
        return ""
    name = rule.name.replace("_", " ")
    return f", still below {words.RULES.get(name, f'the rule {name}')} ({rule.score.mean:.1f} %)"


def by_question(found: Answer) -> Mapping[str, int]:
    return {finding.subject: finding.decided for finding in found.findings}


def _on(tasks: Iterable[str]) -> str:
    return words.listed(words.named(task) for task in tasks)


def _span(span: Span | None) -> str:
    return f" ({span.value:+z.1f}, 95 % interval {span.low:+z.1f} to {span.high:+z.1f})" if span else ""
