"""Says in a few sentences what each answer of docs/findings.md rests on and leaves open, from committed rows alone.

Every function here takes the committed results of one subject and yields Markdown. What stands in these sentences and
can be counted is counted: the lengths of expressions, the parameters of arms, the steps at which training stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean, median

from levelfield import published
from levelfield.report.verdicts import Finding, Key, Table, floors
from levelfield.runs.results import Results
from levelfield.spec import Row

PICTURES = "image8"
SHOWN = {"reach": "marks 24 apart", PICTURES: "pictures", "listops": "ListOps", "text": "reviews"}
"""What the page and its figure call tasks."""
PRINTED = {
    "listops": "listops",
    PICTURES: "image",
}  # the task of amos2025's table 2 that is asked here at a smaller size
ROTARY, S4 = "transformer_rotary", "s4"
SCRATCH, LONGER, SPT = "scratch", "scratch_matched", "spt_masked"
DEPTH = 2  # layers of every model of a small task


def printed_lifts() -> dict[str, float]:
    """Returns the points that self-pretraining adds to the rotary Transformer in amos2025's table 2, by our task."""
    cells = {(r.get("task"), r.get("protocol")): r for r in published.rows("amos2025", "2") if r.get("model") == ROTARY}
    return {
        ours: cells[theirs, SPT].get("value", 0.0) - cells[theirs, SCRATCH].get("value", 0.0)
        for ours, theirs in PRINTED.items()
    }


def never_from_scratch(results: Results, found: Sequence[Finding]) -> Iterator[str]:
    """The largest lift at equal steps that the rows leave room for, and what equal steps do to S4 and to the gap."""
    lifts, most = printed_lifts(), []
    for finding in found:
        task = finding.subject.partition("(")[2].rstrip(")")
        if finding.subject.startswith("and at equal steps") and finding.span:
            most.append((SHOWN[task], finding.span.high, lifts[task]))
    yield (
        f"At equal steps self-pretraining brought at most {_and(f'{high:.1f} points on {t}' for t, high, _ in most)} "
        f"(95 %, each question by itself); the paper prints lifts of {_and(f'{lift:.1f}' for *_, lift in most)} points "
        "at its size, of two arms whose steps are not equal. A lift of a point or two is neither shown nor excluded: "
        "these questions have no margin, so only a loss would be a no."
    )
    cells = {key: arm.mean for key, arm in Table.of(results.rows).cells.items()}
    for task in Table.of(results.rows).tasks:
        arms = {(m, p): cells.get(Key(task, m, p)) for m in (ROTARY, S4) for p in (SCRATCH, LONGER, SPT)}
        if None in arms.values():
            continue
        gaps = [(arms[S4, p] or 0.0) - (arms[ROTARY, p] or 0.0) for p in (SCRATCH, LONGER, SPT)]
        yield (
            f"On {SHOWN[task]}, S4 has {(arms[S4, SPT] or 0.0) - (arms[S4, LONGER] or 0.0):+.1f} points by it at equal "
            f"steps, and is {gaps[0]:+.1f} points from the Transformer from scratch, {gaps[1]:+.1f} where both have "
            f"the added steps and {gaps[2]:+.1f} where both are pretrained."
        )


def scarce_labels(results: Results, found: Sequence[Finding]) -> Iterator[str]:
    """What this answer is not: the claim needs two shares of labels on one task."""
    yield (
        "The claim itself is not asked yet, for each task has runs with one share of its labels alone. In-context "
        "recall is a positive control: its sequences repeat the pairs that are asked, so predicting the next symbol "
        "trains the very answer, and a harness that can show a lift must show it here. Pretraining reads all inputs "
        "while labels are scarce, where the paper's code takes one share of both; and all seeds have one and the same "
        "labelled part, whose luck no interval counts. The pictures are three seeds of the first section's."
    )


def local(results: Results, found: Sequence[Finding]) -> Iterator[str]:
    """How long the expressions are beside what the kernels see, and how the arms differ in size."""
    rows = [row for row in results.rows if row.get("task") == "listops"]
    counts = {at: row.get("n", 0) for row in rows if (at := row.get("at", "")).startswith("length=") and "," not in at}
    first, second, *_ = sorted(counts, key=_least)
    share, seen = counts[first] / sum(counts.values()), _sees("conv11")
    best = {model: _mean(rows, model, second) for model in ("conv11", "conv31", "gmlp")}
    yield (
        f"ListOps tests this little here: {100 * share:.0f} % of its test expressions have {_tokens(first)} tokens, "
        f"and two layers of kernel 11 see {seen}. On the {counts[second]:,} expressions of {_tokens(second)} tokens "
        f"kernel 11 has {best['conv11']:.1f} %, kernel 31 {best['conv31']:.1f} % and the gMLP {best['gmlp']:.1f} %. On "
        f"pictures the two layers see {seen} of 64 steps, a third; the paper's kernels of 61, in four to six layers, "
        "see 241 to 361 of 1,024 to 4,096. That kernels 3, 5 and 11 are at one half on marks is proved beforehand "
        "([reach](reach.md))."
    )
    sizes = {str(run): cost.get("parameters", 0) for run, cost in results.ledgers.items()}
    arms = {row.get("model", ""): sizes.get(row.get("run", ""), 0) for row in rows}
    counted = {size: model for model, size in arms.items() if size}
    small, large = min(counted), max(counted)
    yield (
        f"A shorter kernel is also a smaller model: parameters go from {small / 1e3:.0f} thousand (`{counted[small]}`) "
        f"to {large / 1e3:.0f} thousand (`{counted[large]}`)."
    )


def no_sum(results: Results) -> str:
    """Says that no arm has learnt the sum, of which no part of the arguments tells anything; "" where one has."""
    at = "root=SM"
    rows = [row for row in results.rows if row.get("task") == "listops" and row.get("split") == "test"]
    models = {row.get("model", "") for row in rows if row.get("seed") is not None and row.get("at") == at}
    rule, best = _mean(rows, "greedy_root", at), max(_mean(rows, model, at) for model in models)
    if best > rule + 5:
        return ""
    counts = {row.get("at", ""): row.get("n", 0) for row in rows}
    return (
        f"No arm learns the sum modulo 10 (`SM`, {100 * counts[at] / counts['']:.0f} % of the test): the best has "
        f"{best:.1f} %, the rule {rule:.1f} %. It is the one operator whose answer needs every argument. So scores on "
        "ListOps here are about the other three, where a part of the arguments already tells something.\n"
    )


def enriched(results: Results, found: Sequence[Finding], patient: Results | None) -> Iterator[str]:
    """How much of an answer may be the patience of training. patient: results of the same arm with more of it."""
    stops: dict[tuple[str, str], list[int]] = {}
    for row in results.rows:
        whole = row.get("task") == PICTURES and row.get("split") == "test" and not row.get("at")
        if whole and (cost := results.ledgers.get(row.get("run", ""))):
            stops.setdefault((row.get("model", ""), row.get("protocol", "")), []).append(int(cost.get("steps", 0)))
    steps = {arm: f"{median(each):,.0f}" for arm, each in stops.items()}
    longer = f" and {_scratch(patient):.1f} % with the finer patience of the first section" if patient else ""
    yield (
        "Every phase ended by a short patience, three validations, and these arms are not trained out: on the same "
        f"pictures rotary attention from scratch has {_scratch(results):.1f} % here{longer}. With enriched inputs S4 "
        f"stopped after {steps[S4, 'enriched']} steps and kernel 11 after {steps['conv11', 'enriched']}, with plain "
        f"ones after {steps[S4, SCRATCH]} and {steps['conv11', SCRATCH]}. So these answers are those of this patience. "
        "Attention without positions sees a picture as a bag of grey values, so that positions lift it is a control; "
        "the paper compares kinds of positions, which is not asked here."
    )


def beyond(results: Results, found: Sequence[Finding]) -> Iterator[str]:
    """The share of the gain over guessing that is left in the hardest haystack, by multiples of the training length."""
    form, trained = "format=pairs", 32
    rows = [row for row in results.rows if row.get("at", "").endswith(form) and row.get("at", "").count(",") == 1]
    lengths = {_least(at) for row in rows if (at := row.get("at", "")).startswith("length=")}
    longer = sorted(n for n in lengths if n > trained)
    floor = max(floors(results.rows).values())
    yield (
        "The rule asks at twice the length alone. The fall is further out, where the haystack is made of pairs like "
        "those that are asked. What is left there of the gain over guessing, medians over seeds; a description, no "
        "verdict:\n"
    )
    yield f"| among pairs | at {trained} (%) | " + " | ".join(f"{n // trained} x" for n in longer) + " |"
    yield "|---" * (len(longer) + 2) + "|"
    kept: dict[str, list[float]] = {}
    for model in dict.fromkeys(row.get("model", "") for row in rows if row.get("seed") is not None):
        scores = {n: median(_values(rows, model, f"length={n},{form}")) for n in (trained, *longer)}
        kept[model] = [(scores[n] - floor) / (scores[trained] - floor) for n in longer]
        yield f"| {model} | {scores[trained]:.1f} | " + " | ".join(f"{share:.2f}" for share in kept[model]) + " |"
    half = sum(shares[longer.index(4 * trained)] < 0.5 for shares in kept.values())
    quarter = sum(shares[-1] <= 0.25 for shares in kept.values())
    best = max(kept, key=lambda model: kept[model][-1])
    yield (
        f"\nAt four times the length {half} of {len(kept)} keep less than half; at {longer[-1] // trained} times "
        f"{quarter} keep a quarter or less, and {best} keeps {100 * kept[best][-1]:.0f} %. A window of {trained} steps "
        f"hides three quarters of the needles at {4 * trained}, so that windows and sinks do not help is known "
        "beforehand."
    )


def _scratch(results: Results) -> float:
    """The median of rotary attention from scratch on pictures, in percent."""
    return Table.of(results.rows).cells[Key(PICTURES, ROTARY, SCRATCH)].median


def _values(rows: Sequence[Row], model: str, at: str) -> list[float]:
    """Test accuracies of a model's runs, or of a rule, in percent."""
    own = [row for row in rows if row.get("model") == model and row.get("at") == at]
    return [100 * r.get("value", 0.0) for r in own if r.get("split") == "test" and r.get("metric") == "accuracy"]


def _mean(rows: Sequence[Row], model: str, at: str) -> float:
    return fmean(_values(rows, model, at))


def _least(at: str) -> int:
    """The length that a slice begins at: 24 of `length=24-36`."""
    return int(at.partition("=")[2].partition(",")[0].partition("-")[0])


def _tokens(at: str) -> str:
    return at.partition("=")[2].replace("-", " to ")


def _sees(model: str) -> int:
    return 1 + DEPTH * (int(model.removeprefix("conv")) - 1)


def _and(words: Iterator[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
