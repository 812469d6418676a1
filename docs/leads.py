"""Says in a few sentences what each answer of docs/findings.md rests on and leaves open, from committed rows alone.

Every function here takes the answer to one subject and yields Markdown. What stands in these sentences and
can be counted is counted: the lengths of expressions, the parameters of arms, the steps at which training stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING

import findings_shown as shown

from levelfield.report.verdicts import Key, Table, scores
from levelfield.spec.study import AT_CAP
from levelfield.studies._amos2025_small import LONGER, SCRATCH, SPT, SSM, TRANSFORMER
from levelfield.studies._miralles2025_small import SHORT
from levelfield.studies.amos2025_starts import OTHERS
from levelfield.studies.miralles2025_enriched import BOUNDED, ENRICHED

if TYPE_CHECKING:
    from findings import Answer

PICTURES = "image8"
WIDER = 31  # the kernel that is named beside the short one
ENOUGH = 100  # expressions of a length, for a score of their own


def never_from_scratch(found: Answer) -> Iterator[str]:
    """What self-pretraining brings at equal steps, how much the rows leave room for where it is open, and what equal
    steps do to S4 and to the gap."""
    lifts = [lift for lift in shown.lifts(found) if lift.model == TRANSFORMER]
    printed = {lift.task: lift.printed for lift in lifts if lift.printed is not None}
    equal = {lift.task: span for lift in lifts if lift.longer and (span := lift.contrast.span())}
    decided = [task for task in equal if f"and at equal steps ({task})" in _lifted(found)]
    for task in decided:
        at, span = shown.TASKS[task], equal[task]
        yield (
            f"On {at} self-pretraining brought {span.value:+.1f} points at equal steps (95 % interval {span.low:+.1f} "
            f"to {span.high:+.1f}, by itself), where the paper prints {printed[task]:+.1f} at its size, of two arms "
            f"whose steps are not equal. {_stopped(found, task)}"
        )
    if rest := [task for task in equal if task not in decided]:
        highest = _and(f"{equal[task].high:.1f} points on {shown.TASKS[task]}" for task in rest)
        yield (
            f"At equal steps it brought at most {highest} (each question by itself), where the paper prints lifts of "
            f"{_and(f'{printed[task]:.1f}' for task in rest)}. A lift of a point or two is neither shown nor excluded "
            "there: these questions have no margin, so only a loss would be a no."
        )
    cells, protocols = Table.of(found.results.rows).cells, (SCRATCH, LONGER, SPT)
    for task in equal:
        pairs = [(cells.get(Key(task, SSM, p)), cells.get(Key(task, TRANSFORMER, p))) for p in protocols]
        means = [(s4.mean, transformer.mean) for s4, transformer in pairs if s4 and transformer]
        if len(means) < len(protocols):
            continue
        scratch, longer, pretrained = (s4 - transformer for s4, transformer in means)
        yield (
            f"On {shown.TASKS[task]}, S4 has {means[2][0] - means[1][0]:+.1f} points by it at equal steps, and is "
            f"{scratch:+.1f} points from the Transformer from scratch, {longer:+.1f} where both have the added steps "
            f"and {pretrained:+.1f} where both are pretrained."
        )


def _lifted(found: Answer) -> set[str]:
    return {finding.subject for finding in found.findings if finding.decided > 0}


def _stopped(found: Answer, task: str) -> str:
    """What the Transformer's arms of a task took of their steps, for a patience may end them before."""
    rows = [row for row in found.results.rows if row.get("task") == task and row.get("model") == TRANSFORMER]
    runs = {p: {str(row.get("run", "")) for row in rows if row.get("protocol") == p} for p in (LONGER, SPT)}
    capped = {row.get("run", "") for row in rows if row.get("metric") == AT_CAP and row.get("value", 0.0) > 0}
    steps = {p: median(found.results.ledgers[run]["steps"] for run in runs[p]) for p in runs}
    return (
        f"Both arms may take as many steps, but patience ended them after {steps[LONGER]:,.0f} with added steps and "
        f"{steps[SPT]:,.0f} with self-pretraining (medians), of whose {len(runs[SPT])} runs {len(capped & runs[SPT])} "
        "had not stopped improving at the cap of a phase."
    )


def scarce_labels(found: Answer) -> Iterator[str]:
    """The lift with the fewest labels beside that with all, on each task that has both, and what that is not."""
    asked = [finding for finding in found.findings if finding.subject.startswith("and more so with the fewest")]
    for finding in asked:
        at = finding.subject.partition("(")[2].rstrip(")")
        word = {1: "shown", 0: "not decided", -1: "refuted"}[finding.decided]
        said = finding.facts.partition(" Against")[0]
        yield f"On {shown.TASKS[at]} {said[0].lower()}{said[1:]} That it is larger with the fewest is {word}."
    if not asked:
        yield "The claim itself is not asked yet, for each task has runs with one share of its labels alone."
    yield (
        "In-context recall is a positive control: its sequences repeat the pairs that are asked, so predicting the "
        "next symbol trains the very answer, and a harness that can show a lift must show it here. Pretraining reads "
        "all inputs while labels are scarce, where the paper's code takes one share of both; and all seeds have one "
        "and the same labelled part, whose luck no interval counts. With all labels the pictures are three seeds of "
        "the first section's."
    )


def starts(found: Answer) -> Iterator[str]:
    """How far each model is behind S4 before and after, how many steps either took, and what that is not."""
    cells = Table.of(found.results.rows).cells
    mean = {(key.model, key.protocol): arm.mean for key, arm in cells.items() if key.task == PICTURES}
    behind = {m: [mean[SSM, protocol] - mean[m, protocol] for protocol in (SCRATCH, SPT)] for m in OTHERS}
    scratch, pretrained = (_and(f"{gaps[i]:.1f} (`{model}`)" for model, gaps in behind.items()) for i in (0, 1))
    yield (
        f"Behind S4 are, in points and from scratch, {scratch}; once all are self-pretrained {pretrained}, where less "
        "than zero is ahead."
    )
    steps = {
        protocol: [cost["steps"] for run, cost in found.results.ledgers.items() if f"-{protocol}-" in str(run)]
        for protocol in (SCRATCH, SPT)
    }
    capped = sum(row.get("metric") == AT_CAP and row.get("value", 0.0) > 0 for row in found.results.rows)
    yield (
        f"Patience ended training in all but {capped} of {len(found.results.ledgers)} runs, after "
        f"{min(steps[SCRATCH]):,.0f} to {max(steps[SCRATCH]):,.0f} steps from scratch and {min(steps[SPT]):,.0f} to "
        f"{max(steps[SPT]):,.0f} in two phases; no arm from random values has the added steps from scratch, so these "
        "rows do not say what more steps alone would bring it."
    )
    yield (
        "A random start redraws the mixers' parameters alone, and these pictures have 64 steps, for which little "
        "memory is needed: that is the easy case of the claim."
    )


def local(found: Answer) -> Iterator[str]:
    """How long the expressions are beside what the kernels see, and how the arms differ in size."""
    rows = [row for row in found.results.rows if row.get("task") == "listops"]
    counts = {at: row.get("n", 0) for row in rows if (at := row.get("at", "")).startswith("length=") and "," not in at}
    first, *_, last = sorted((at for at, count in counts.items() if count >= ENOUGH), key=_least)
    share, seen = counts[first] / sum(counts.values()), shown.steps_seen(rows)
    by_length = {(key.model, f"length={key.place}"): arm.mean for key, arm in scores(rows, "length").items()}
    yield (
        f"Of the test expressions of ListOps {100 * share:.0f} % have {_tokens(first)} tokens; two layers of kernel "
        f"{SHORT} see {seen[str(SHORT)]:.0f} and of kernel {WIDER} {seen[str(WIDER)]:.0f}."
    )
    for at in (first, last):
        scored = [f"{by_length[model, at]:.1f} %" for model in (BOUNDED, f"conv{WIDER}", "gmlp")]
        yield (
            f"On the {counts[at]:,} of {_tokens(at)} tokens kernel {SHORT} has {scored[0]}, kernel {WIDER} "
            f"{scored[1]} and the gMLP, which sees everything, {scored[2]}."
        )
    yield (
        f"On pictures two layers of kernel {SHORT} see {seen[str(SHORT)]:.0f} of 64 steps, a third; the paper's "
        "kernels of 61, in four to six layers, see 241 to 361 of 1,024 to 4,096. That kernels 3, 5 and 11 are at one "
        "half on marks is proved beforehand ([reach](reach.md))."
    )
    sizes = {str(run): cost.get("parameters", 0) for run, cost in found.results.ledgers.items()}
    arms = {row.get("model", ""): sizes.get(row.get("run", ""), 0) for row in rows}
    counted = {size: model for model, size in arms.items() if size}
    small, large = min(counted), max(counted)
    yield (
        f"A shorter kernel is also a smaller model: parameters go from {small / 1e3:.0f} thousand (`{counted[small]}`) "
        f"to {large / 1e3:.0f} thousand (`{counted[large]}`)."
    )


def enriched(found: Answer, patient: Answer | None) -> Iterator[str]:
    """How much of an answer may be the patience of training. patient: an answer whose same arm had more of it."""
    stops: dict[tuple[str, str], list[int]] = {}
    for row in found.results.rows:
        whole = row.get("task") == PICTURES and row.get("split") == "test" and not row.get("at")
        if whole and (cost := found.results.ledgers.get(row.get("run", ""))):
            stops.setdefault((row.get("model", ""), row.get("protocol", "")), []).append(int(cost.get("steps", 0)))
    steps = {arm: f"{median(each):,.0f}" for arm, each in stops.items()}
    longer = f" and {_scratch(patient):.1f} % with the finer patience of the first section" if patient else ""
    yield (
        "Every phase ended by a short patience, three validations, and these arms are not trained out: on the same "
        f"pictures rotary attention from scratch has {_scratch(found):.1f} % here{longer}. With enriched inputs S4 "
        f"stopped after {steps[SSM, ENRICHED]} steps and kernel {SHORT} after {steps[BOUNDED, ENRICHED]}, with plain "
        f"ones after {steps[SSM, SCRATCH]} and {steps[BOUNDED, SCRATCH]}. So these answers are those of this patience. "
        "Attention without positions sees a picture as a bag of grey values, so that positions lift it is a control; "
        "the paper compares kinds of positions, which is not asked here."
    )


def beyond(found: Answer) -> Iterator[str]:
    """The share of the gain over guessing that is left in the hardest haystack, by multiples of the training length."""
    made = shown.recall(found)
    trained, last = made.trained, made.longest // made.trained
    longer = [length for length in next(iter(made.cells.values())) if length > trained]
    yield (
        "The rule asks at twice the length alone. The fall is further out, where the haystack is made of "
        f"{shown.HAYSTACKS[made.haystack]}. What is left there of the gain over guessing, medians over seeds; a "
        "description, no verdict:\n"
    )
    yield f"| among {made.haystack} | at {trained} (%) | " + " | ".join(f"{n // trained} x" for n in longer) + " |"
    yield "|---" * (len(longer) + 2) + "|"
    kept: dict[str, list[float]] = {}
    for model, arms in made.cells.items():
        learnt = arms[trained].median
        kept[model] = [(arms[n].median - made.floor) / (learnt - made.floor) for n in longer]
        yield f"| {model} | {learnt:.1f} | " + " | ".join(f"{share:.2f}" for share in kept[model]) + " |"
    half = sum(shares[longer.index(4 * trained)] < 0.5 for shares in kept.values())
    quarter = sum(shares[-1] <= 0.25 for shares in kept.values())
    best = max(kept, key=lambda model: kept[model][-1])
    yield (
        f"\nAt four times the length {half} of {len(kept)} keep less than half; at {last} times {quarter} keep a "
        f"quarter or less, and {best} keeps {100 * kept[best][-1]:.0f} %. A window of {trained} steps hides three "
        f"quarters of the needles at {4 * trained}, so that windows and sinks do not help is known beforehand."
    )


def _scratch(found: Answer) -> float:
    """The median of rotary attention from scratch on pictures, in percent."""
    return Table.of(found.results.rows).cells[Key(PICTURES, TRANSFORMER, SCRATCH)].median


def _least(at: str) -> int:
    """The length that a slice begins at: 24 of `length=24-36`."""
    return int(at.partition("=")[2].partition(",")[0].partition("-")[0])


def _tokens(at: str) -> str:
    """Returns "49 to 64" of `length=049-064`."""
    return " to ".join(f"{int(edge)}" for edge in at.partition("=")[2].split("-"))


def _and(words: Iterator[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
