"""Says in a few sentences what each answer of docs/findings.md rests on and leaves open, from committed rows alone.

Every function here takes the answer to one subject and yields Markdown. What stands in these sentences and
can be counted is counted: the lengths of expressions, the parameters of arms, the steps at which training stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING

import allowances
import findings_shown as shown
import findings_summary as summary
import findings_words as words
import listops_levels

from levelfield.protocols import named_by_share, share_of
from levelfield.report.decisions import Span
from levelfield.report.verdicts import Key, Table, scores
from levelfield.spec.study import AT_CAP
from levelfield.studies._amos2025_small import LONGER, SCRATCH, SPT, SSM, TRANSFORMER
from levelfield.studies._miralles2025_small import SHORT
from levelfield.studies.amos2025_arms import DELTA, MEGA
from levelfield.studies.amos2025_starts import OTHERS
from levelfield.studies.miralles2025_enriched import BOUNDED, ENRICHED
from levelfield.studies.state_tracking import FAILED_AT, HELD_AT, LEARNT, learnt_from, tasks, unasked

if TYPE_CHECKING:
    from findings_subjects import Answer

PICTURES = "image8"
WIDER = 31  # the kernel that is named beside the short one
ENOUGH = 100  # expressions of a length, for a score of their own


def never_from_scratch(found: Answer) -> Iterator[str]:
    """Yields what self-pretraining brings at an equal allowance of steps and what was used of it, how much the rows
    leave room for where it is open, and what becomes of the gap to S4."""
    lifts = [lift for lift in shown.lifts(found) if lift.model == TRANSFORMER]
    printed = {lift.task: lift.printed for lift in lifts if lift.printed is not None}
    equal = {lift.task: span for lift in lifts if lift.longer and (span := lift.contrast.span())}
    decided = [task for task in equal if f"the Transformer's lift holds {shown.ALLOWED} ({task})" in _lifted(found)]
    yield (
        "*At an equal allowance of steps* compares self-pretraining with an arm from scratch *with added steps*, which "
        "may train for as many more steps as pretraining may. The steps actually taken differ, because every phase "
        f"ends when validation stops improving. {' '.join(allowances.rules(found))} The published tables have no "
        "such arm; the paper says that its lifts hold at equal compute too.\n"
    )
    yield from allowances.taken(found)
    for task in decided:
        span = equal[task]
        yield (
            f"- **{words.capital(words.named(task))}.** Self-pretraining adds {_span(span)} to the Transformer "
            f"{shown.ALLOWED}. The paper prints {printed[task]:+z.1f} over scratch, at its size. "
            f"{_stopped(found, task)}"
        )
    if rest := [task for task in equal if task not in decided]:
        over = {lift.task: span for lift in lifts if not lift.longer and (span := lift.contrast.span())}
        values, plain = (
            words.listed(f"{_span(spans[task])} on {words.named(task)}" for task in rest) for spans in (equal, over)
        )
        lifts_printed = words.listed(f"{printed[task]:.1f}" for task in rest)
        small = (
            "So lifts of that size over scratch are ruled out on these small tasks, each by its own interval; smaller "
            "ones are not. "
            if all(over[task].high < printed[task] for task in rest)
            else ""
        )
        yield (
            f"- **Open.** {words.capital(shown.ALLOWED)} it adds {values}; over scratch, {plain}. The paper prints "
            f"lifts over scratch of {lifts_printed} points, at its size, on sequences at least 16 times as long. "
            f"{small}The question has no margin, so only a loss would be a no."
        )
    cells, protocols = Table.of(found.results.rows).cells, (SCRATCH, LONGER, SPT)
    gaps: dict[str, list[float]] = {}
    for task in equal:
        pairs = [(cells.get(Key(task, SSM, p)), cells.get(Key(task, TRANSFORMER, p))) for p in protocols]
        gaps[task] = [s4.mean - transformer.mean for s4, transformer in pairs if s4 and transformer]
    whole = {task: three for task, three in gaps.items() if len(three) == len(protocols)}
    if whole:
        yield (
            "- **The distance to S4**, in points by which S4 is ahead, from scratch → with added steps → "
            "self-pretrained: "
            + "; ".join(
                f"{words.named(task)} {' → '.join(f'{gap:.1f}' for gap in three)}" for task, three in whole.items()
            )
            + ". The tables below say which of these changes are more than noise."
        )


def _lifted(found: Answer) -> set[str]:
    return {finding.subject for finding in found.findings if finding.decided > 0}


def _stopped(found: Answer, task: str) -> str:
    """Returns what the Transformer's arms of a task took of their steps, and how many of its runs were cut short."""
    rows = [row for row in found.results.rows if row.get("task") == task and row.get("model") == TRANSFORMER]
    runs = {str(row.get("run", "")) for row in rows if row.get("protocol") == SPT}
    capped = {row.get("run", "") for row in rows if row.get("metric") == AT_CAP and row.get("value", 0.0) > 0}
    (longer, without), (steps, flops) = (shown.cost(found, Key(task, TRANSFORMER, p)) or (0, 0) for p in (LONGER, SPT))
    return (
        f"The arm with added steps took {longer:,.0f} of them and {without / 1e12:.1f} TFLOP, the self-pretrained one "
        f"{steps:,.0f} and {flops / 1e12:.1f} (medians), so their compute is not equal. In {len(capped & runs)} of the "
        f"{len(runs)} self-pretrained runs a phase was still improving at its cap."
    )


def scarce_labels(found: Answer, all_labels: Answer | None) -> Iterator[str]:
    """The positive control, the steps that either arm took, and what differs from the paper and from section 1.

    all_labels: the answer to section 1, which asks one of these questions of more seeds.
    """
    shares = sorted({share_of(key.protocol) for key in Table.of(found.results.rows).cells if key.task == PICTURES})
    arms = [[Key(PICTURES, TRANSFORMER, named_by_share(p, share)) for share in shares] for p in (SCRATCH, SPT)]
    before, after = (words.listed(f"{(shown.cost(found, key) or (0,))[0]:,.0f}" for key in keys) for keys in arms)
    yield (
        "- **In-context recall is a positive control.** Its sequences repeat the pairs that are asked about, so "
        "predicting the next symbol trains the very answer. A harness that can show a lift has to show it here.\n"
        f"- **Steps are not equal.** On pictures, with {words.listed(f'{100 * share:g}' for share in shares)} % of the "
        f"labels, training took {before} steps from scratch and {after} with self-pretraining (medians). No arm from "
        "scratch has the added steps, so longer training alone may explain a lift.\n"
        "- **What differs from the paper.** Pretraining reads all inputs even where labels are scarce; the paper's "
        "code takes the same share of both. All seeds use the same labelled subset, so no interval includes the luck "
        "of that draw."
    )
    if all_labels:
        yield _asked_twice(found, all_labels)


def _asked_twice(found: Answer, other: Answer) -> str:
    """Returns how the lift on pictures with all labels is answered here, and in section 1 of the same runs and more."""
    said = []
    for each, labels in ((other, ""), (found, " with 100 % of the labels")):
        question = f"self-pretraining lifts the Transformer{labels} ({PICTURES})"
        seeds = len(Table.of(each.results.rows).cells[Key(PICTURES, TRANSFORMER, SPT)].values)
        decided = next((finding.decided for finding in each.findings if finding.subject == question), 0)
        said.append((shown.WORDS[decided], f"{shown.counted([seeds])}"))
    alone = "" if found.results.hits else ", without a record of which pictures each gets right"
    return (
        f"- **Asked twice.** Whether the Transformer is lifted on pictures with all labels is answered {said[0][0]} by "
        f"{said[0][1]} in section 1, and {said[1][0]} here by {said[1][1]} of the same runs{alone}."
    )


def starts(found: Answer) -> Iterator[str]:
    """How far each model is behind S4 before and after, how many steps either took, and what that is not."""
    cells = Table.of(found.results.rows).cells
    mean = {(key.model, key.protocol): arm.mean for key, arm in cells.items() if key.task == PICTURES}
    gaps = {m: [summary.gap(mean[SSM, p] - mean[m, p]) for p in (SCRATCH, SPT)] for m in OTHERS}
    told = "; ".join(f"{words.named(m)} {before}, then {after}" for m, (before, after) in gaps.items())
    yield f"- **Points from S4**, from scratch and then with all models self-pretrained: {told}."
    steps = {
        protocol: [cost["steps"] for run, cost in found.results.ledgers.items() if f"-{protocol}-" in str(run)]
        for protocol in (SCRATCH, SPT)
    }
    capped = sum(row.get("metric") == AT_CAP and row.get("value", 0.0) > 0 for row in found.results.rows)
    yield (
        f"- **Steps are not equal.** Training stopped by itself in all but {capped} of {len(found.results.ledgers)} "
        f"runs. The medians of the arms are {min(steps[SCRATCH]):,.0f} to {max(steps[SCRATCH]):,.0f} steps from "
        f"scratch and {min(steps[SPT]):,.0f} to {max(steps[SPT]):,.0f} with self-pretraining. No arm from random "
        "values has the added steps, so these rows do not show what longer training alone would bring."
    )
    yield (
        "- **This is the easy case of the claim.** The pictures have 64 steps, which need little memory, and only "
        f"the mixers' parameters start at random. Sizes differ: {_sizes(found, SSM, 'dlr')} parameters."
    )


def _sizes(found: Answer, *models: str) -> str:
    """Returns "S4 has 68,234 and DLR 84,362", of those of the models that have been run."""
    size = {row.get("model", ""): found.results.ledgers.get(row.get("run", ""), {}) for row in found.results.rows}
    told = [f"{words.named(model)} has {size[model]['parameters']:,.0f}" for model in models if size.get(model)]
    return words.listed(told)


def arms(found: Answer) -> Iterator[str]:
    """How many steps either took, and what that leaves open."""
    steps: dict[bool, list[int]] = {True: [], False: []}
    for run, cost in found.results.ledgers.items():
        if any(part in str(run) for part in ("_causal-", f"-{MEGA}-", f"-{DELTA}-")):  # the others are of section 1
            steps[f"-{SCRATCH}-" in str(run)].append(cost["steps"])
    before, after = (f"{median(steps[key]):,.0f}" for key in (True, False))
    yield (
        f"- **Steps are not equal.** Training took {before} steps from scratch and {after} with self-pretraining "
        "(medians), whose allowance is twice as large. No arm from scratch has the added steps here. So lifts are over "
        "scratch, as in the paper's tables, and longer training alone may explain them."
    )
    yield (
        "- **What reading forward means.** A causal model predicts the gray value of the next pixel from those before "
        "it. The class is read from the mean over all steps, as for the others. The runs of the Transformer and of S4 "
        "that read both ways are three seeds of section 1."
    )
    yield (
        "- **Sizes differ.** All models have the same width and depth, so some have more parameters: "
        f"{_sizes(found, TRANSFORMER, SSM, DELTA, MEGA)}."
    )


def local(found: Answer, others: Answer | None) -> Iterator[str]:
    """Yields how long the expressions are beside what the kernels see, what plain training brings, and how the arms
    differ in size. others: the answer of the study that trains some of these models plainly as well."""
    rows = [row for row in found.results.rows if row.get("task") == "listops"]
    counts = {at: row.get("n", 0) for row in rows if (at := row.get("at", "")).startswith("length=") and "," not in at}
    first, *_, last = sorted((at for at, count in counts.items() if count >= ENOUGH), key=_least)
    share, seen = counts[first] / sum(counts.values()), shown.steps_seen(rows)
    by_length = {(key.model, f"length={key.place}"): arm.mean for key, arm in scores(rows, "length").items()}
    scored = []
    for at in (first, last):
        short, wide, whole = (f"{by_length[model, at]:.1f} %" for model in (BOUNDED, f"conv{WIDER}", "gmlp"))
        scored.append(
            f"Of the {counts[at]:,} expressions of {_tokens(at)} tokens, kernel {SHORT} gets {short} right, kernel "
            f"{WIDER} {wide}, and the gMLP, which sees everything, {whole}."
        )
    yield (
        "- **What is short** is the range of a feature: it combines only steps within its window. The answer is read "
        "from the mean of the features of all steps, so it rests on the whole sequence."
    )
    yield (
        f"- **ListOps.** Two layers of kernel {SHORT} see {seen[str(SHORT)]:.0f} tokens and two of kernel {WIDER} see "
        f"{seen[str(WIDER)]:.0f}; {100 * share:.0f} % of the test expressions have {_tokens(first)} tokens. "
        f"{' '.join(scored)}"
    )
    yield f"- **How far scores on ListOps read.** {listops_levels.brief()} [How](tasks.md#listops)."
    yield (
        f"- **Pictures.** Two layers of kernel {SHORT} see {seen[str(SHORT)]:.0f} of 64 steps, a third of the "
        "sequence. The paper's kernels of 61, in four to six layers, see 241 to 361 of 1,024 to 4,096 steps."
    )
    if others:
        yield from _plain(found, others)
    yield (
        "- **Certified range.** The marks stand 24 steps apart, and a model without positions that sees 24 or fewer is "
        "[provably](reach.md) right only half of the time: kernels 3, 5 and 11 must fail, which tests the harness."
    )
    sizes = {str(run): cost.get("parameters", 0) for run, cost in found.results.ledgers.items()}
    arms = {row.get("model", ""): sizes.get(row.get("run", ""), 0) for row in rows}
    of_size = {size: model for model, size in arms.items() if size}
    small, large = min(of_size), max(of_size)
    yield (
        f"- **Sizes differ.** A shorter kernel is also a smaller model, from {small / 1e3:.0f} thousand parameters "
        f"(`{of_size[small]}`) to {large / 1e3:.0f} thousand (`{of_size[large]}`)."
    )


def _plain(found: Answer, others: Answer) -> Iterator[str]:
    """Yields the scores on pictures with plain training beside those with enriched training."""
    scores, share = shown.plain(others), shown.shares(found)[PICTURES]
    told = "; ".join(f"{words.named(m)} {scores[m][0]:.1f} and {scores[m][1]:.1f}" for m in (BOUNDED, SSM, TRANSFORMER))
    yield (
        f"- **Plain training, on pictures.** All shares are of models with enriched training; 100 % is the "
        f"{words.named(share.whole)}'s score, {share.best:.1f} %. Means in percent, with plain training and with "
        f"enriched, both under the short patience of section 7: {told}. No {words.named(share.whole)} had plain "
        f"training. With plain training, {words.named(BOUNDED)} has {shown.plain_share(found, others):.0f} % of the "
        "gain over guessing of S4, which sees everything."
    )


def enriched(found: Answer, patient: Answer | None) -> Iterator[str]:
    """How much of an answer may be the patience of training. patient: an answer whose same arm had more of it."""
    stops: dict[tuple[str, str], list[int]] = {}
    for row in found.results.rows:
        whole = row.get("task") == PICTURES and row.get("split") == "test" and not row.get("at")
        if whole and (cost := found.results.ledgers.get(row.get("run", ""))):
            stops.setdefault((row.get("model", ""), row.get("protocol", "")), []).append(int(cost.get("steps", 0)))
    steps = {arm: f"{median(each):,.0f}" for arm, each in stops.items()}
    longer = f" and {_scratch(patient):.1f} % with the longer patience of section 1" if patient else ""
    yield (
        "Every phase ended by a short patience of three validations, too early to reach the limit of these arms: on "
        f"the same pictures rotary attention from scratch has {_scratch(found):.1f} % here{longer}. With enriched "
        f"inputs S4 stopped after {steps[SSM, ENRICHED]} steps and kernel {SHORT} after {steps[BOUNDED, ENRICHED]}, "
        f"with plain ones after {steps[SSM, SCRATCH]} and {steps[BOUNDED, SCRATCH]} (all medians). So these answers "
        "hold for this patience only. Attention without positions sees a picture as a bag of gray values, so the lift "
        "that positions give it is a control; the paper compares kinds of positions, which these runs do not."
    )


def machines(found: Answer, tuned: Answer | None) -> Iterator[str]:
    """At which length holding and failing are judged, the rows of a model that no question asks about, and what is
    answered where rates are tuned.

    tuned: the answer of the same study at an effort that tunes them, as far as it has been run.
    """
    yield (
        f"Whether a model holds a machine is judged at {HELD_AT} times the length of training, and whether it fails at "
        f"{FAILED_AT} times. So a model that holds one at {HELD_AT} times may have lost it at {FAILED_AT}; the table "
        "says where."
    )
    short = tasks(found.effort)[0]
    yield (
        "\nA model is said to fail only if three seeds or more have learnt the machine, and only these seeds count. A "
        f"lookup table of the training sequences of {short.length} bits knows {100 * short.memorised:.0f} % of the "
        f"answers to parity and can guess the others. So a seed counts as having learnt parity "
        f"at {learnt_from(found.effort)['parity']:.1f} % or more: it then has {100 * LEARNT:.0f} % of the answers that "
        "the table does not know."
    )
    if left_out := unasked(found.results.rows):
        yield f"\n*Left out, and only described.* {words.spelt(left_out.facts)}"
    if tuned:
        yield from _tuned(tuned)


def _tuned(found: Answer) -> Iterator[str]:
    """Yields what is answered by models of more layers at tuned rates, and how much of that has been run."""
    depth, search = found.planned[0].model.depth, found.study.search_at(found.effort)
    cells = {k: cell for k, cell in Table.of(found.results.rows, "length").cells.items() if k.protocol == SCRATCH}
    shortest = {key.task: str(min(int(k.place) for k in cells if k.task == key.task)) for key in cells}
    learnt = words.listed(
        f"{words.named(key.model)} {cell.median:.1f} % on {words.named(key.task)}"
        for key, cell in cells.items()
        if key.place == shortest[key.task]
    )
    yield (
        f"\n*With {depth} layers and tuned rates.* One rate for all may be wrong for some models, and one layer too "
        f"few. At `{found.effort}` each has {depth} layers and the best of {search.trials if search else 1} rates; "
        f"{len(found.results.ledgers)} of {len(found.planned)} runs are done ({found.hours:.1f} core-hours). At the "
        f"length of training the medians are {learnt}. What is answered, and counts nowhere else on this page:\n"
    )
    for finding in found.findings:
        if finding.seen or "Not learnt" in finding.facts:
            word = shown.WORDS[finding.decided] if finding.seen else "nothing can be said"
            yield f"- {words.asked(finding.subject)}: **{word}**. {words.scores(finding.facts)}"


def _scratch(found: Answer) -> float:
    """The median of rotary attention from scratch on pictures, in percent."""
    return Table.of(found.results.rows).cells[Key(PICTURES, TRANSFORMER, SCRATCH)].median


def _least(at: str) -> int:
    """The length that a slice begins at: 24 of `length=24-36`."""
    return int(at.partition("=")[2].partition(",")[0].partition("-")[0])


def _tokens(at: str) -> str:
    """Returns "49 to 64" of `length=049-064`."""
    return " to ".join(f"{int(edge)}" for edge in at.partition("=")[2].split("-"))


def _span(span: Span) -> str:
    """Returns "+13.1 points (+9.0 to +17.1)"."""
    return f"{span.value:+z.1f} points ({span.low:+z.1f} to {span.high:+z.1f})"
