"""Measures how often a verdict is wrong where nothing can rightly be decided: every rule is fed with noise.

    python benchmarks/false_alarms.py                      writes results/false-alarms.csv
    python benchmarks/false_alarms.py --reports 200        a look
    python benchmarks/false_alarms.py --rule demo          renews the lines of one rule

Truth is put where no decision is right: all arms equal, or exactly at a margin. A report in which anything is decided
is a false alarm. Seeds scatter in five ways. `bell`: all arms alike. `unequal`: each arm by a spread of its own, up to
a hundred times another's. `loud`: one arm of a task two to twenty times as far as the others. `plateaus`: each seed 15
points up or down. `fail`: each seed learns or stays at guessing. Where the same weights are asked in several places,
there is a sixth, `places`: in each place each seed holds or fails by itself, as often as the truth there says. All arms
of a task answer the same test examples, of which some are hard for all, and verdicts compare them example by example.
Three studies were given seeds twice because questions were open: their reports are read each time, too.
The last column says what the same numbers do to the former rule: every seed above every other's.

Power is the difference that is decided in eight of ten reports, in standard deviations between seeds.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import get_args

import numpy as np
import tyro
from simulated_seeds import EXAMPLES, GUESS, LEVEL, Case, Cell, Law, measured, rows_of

from levelfield.files import write_text
from levelfield.presets import comparison
from levelfield.protocols import named_by_share
from levelfield.report.decisions import ALPHA, Seeds, difference, holm
from levelfield.report.scatter import Scatter
from levelfield.report.tables import to_csv
from levelfield.spec import Row
from levelfield.studies import (
    _huang2024_beyond,
    amos2025_arms,
    amos2025_figure2,
    amos2025_labels,
    amos2025_patience,
    amos2025_small,
    amos2025_starts,
    amos2025_table1,
    amos2025_table2,
    amos2025_table2_others,
    amos2025_table3,
    demo,
    every_task,
    huang2024_counting,
    huang2024_longer,
    huang2024_small,
    miralles2025_enriched,
    miralles2025_small,
    miralles2025_table1,
    miralles2025_table2,
    miralles2025_table3,
    miralles2025_table4,
    precision,
    scorecard,
)
from levelfield.tasks.frequent_word import FrequentWord
from levelfield.tasks.needle import Needle

NEEDLE = Needle(32, 2, 2, values=16)  # guessing there is as in the study
COUNTED = FrequentWord(32, words=16)  # as in the study
FOUND = 0.6  # of the way from guessing to all right, at the length of training
ARMS = 6  # of a task, where power is measured
FIELDS = ("rule", "truth", "law", "seeds", "reports", "false_alarms", "rate", "rate_before")


def findings(study: object) -> Callable[[Sequence[Row]], list[int]]:
    """What a study's module decides."""
    return lambda rows: [finding.decided for finding in study.findings(rows)]  # pyright: ignore


def _compared(rows: Sequence[Row]) -> list[int]:
    return list(holm(comparison.questions("mine", rows)).values())


def _guessed(rows: Sequence[Row]) -> list[int]:
    return [max(0, answer) for answer in holm(every_task.asked(rows)).values()]


def cases() -> Iterator[Case]:
    """Every rule at every truth where it has nothing to decide."""
    six = tuple(f"task{i}" for i in range(6))
    models = ("mine", "attention", "s4", "conv")
    compared = tuple(Cell(t, m, p, LEVEL) for t in six[:3] for m in models for p in ("scratch", "spt_masked"))
    yield Case("compare", "all arms equal", compared, _compared)
    both = [(m, p) for m in ("transformer_rotary", "s4") for p in ("scratch", "spt_masked")]
    equal = tuple(Cell(t, m, p, LEVEL) for t in six for m, p in both)
    yield Case("amos2025_table2", "all arms equal", equal, findings(amos2025_table2))
    three = tuple(Cell(t, m, p, LEVEL) for t in six[:3] for m in ("transformer_rotary", "s4") for p in _SMALL)
    yield Case("amos2025_small", "all arms equal", three, findings(amos2025_small))
    whole = tuple(
        Cell("text", m, p, LEVEL)
        for m in amos2025_patience.MODELS
        for p in (*amos2025_patience.from_scratch(m), amos2025_small.SPT)
    )
    yield Case("amos2025_patience", "all arms equal", whole, findings(amos2025_patience))
    yield Case("amos2025_labels", "all arms equal", tuple(_scarce()), findings(amos2025_labels))
    lifts = {"scratch": LEVEL} | dict.fromkeys(("spt_masked", "spt_causal"), LEVEL + amos2025_arms.LIFT)
    protocols = {model: ("scratch", after) for model, after in amos2025_arms.PRETRAINED.items()}
    others = tuple(Cell("image", m, p, lifts[p]) for m, both in protocols.items() for p in both)
    yield Case("amos2025_arms", "all lifts at the margin", others, findings(amos2025_arms))
    yield Case("amos2025_starts", "all at their margins", tuple(_starts()), findings(amos2025_starts))
    lifted = {both[0]: 30.0, both[1]: LEVEL, both[2]: LEVEL, both[3]: LEVEL + amos2025_table2.LEVEL}
    margin = tuple(Cell(t, *place, lifted[place]) for t in six for place in both)
    yield Case("amos2025_table2", "S4 ahead by the margin", margin, findings(amos2025_table2))
    shrunk = {both[0]: 40.0, both[1]: LEVEL, both[2]: 50.0, both[3]: LEVEL + 10 - amos2025_table3.NARROWER}
    speech = tuple(Cell(t, *place, shrunk[place]) for t in six[:3] for place in both)
    explained = tuple(Cell(t, *place, amos2025_table3.SOLVED, metric="r2") for t in six[3:] for place in both)
    yield Case("amos2025_table3", "all at their margins", speech + explained, findings(amos2025_table3))
    yield Case("amos2025_table3", "shares at their margins", speech, findings(amos2025_table3))
    yield from _pretrained(six)
    yield Case("demo", "all at their margins", tuple(_demo()), findings(demo))
    share = miralles2025_table1.NEARLY
    kernels = [(str(k), GUESS + share * (LEVEL - GUESS)) for k in (5, 7, 11, 21, 31, 61)] + [("all", LEVEL)]
    local = tuple(
        Cell(t, "conv" if k != "all" else "gmlp", "enriched", v, f"kernel={k}") for t in six[:5] for k, v in kernels
    )
    yield Case("miralles2025_table1", "all kernels at the margin", local, findings(miralles2025_table1))
    yield from _enriched(six[:5])
    wide = [
        (str(k), GUESS + miralles2025_small.NEARLY * (LEVEL - GUESS) if k <= 11 else LEVEL) for k in (3, 5, 11, 31, 61)
    ]
    near = tuple(
        Cell(t, "conv" if k != "all" else "gmlp", "enriched", v, f"kernel={k}")
        for t in six[:3]
        for k, v in [*wide, ("all", LEVEL)]
    )
    yield Case("miralles2025_small", "short kernels at the margin", near, findings(miralles2025_small))
    level = tuple(
        Cell(t, m, p, LEVEL)
        for t in six[:2]
        for m in ("transformer_rotary", "transformer", f"conv{miralles2025_small.SHORT}", "s4")
        for p in ("scratch", "enriched")
    )
    yield Case("miralles2025_enriched", "all arms equal", level, findings(miralles2025_enriched))
    half = GUESS + _huang2024_beyond.CLIFF * (LEVEL - GUESS)
    places = [
        (f"length={n}{h}", _found(n, h, share * FOUND))
        for n, share in ((16, 1.0), (32, 1.0), (64, _huang2024_beyond.CLIFF), (512, _huang2024_beyond.CLIFF))
        for h in _HAYSTACKS
    ]
    places += [(f"length={32 * huang2024_small.FAR},remedy={name}", half) for name in _REMEDIES]
    needles = tuple(Cell("needle", f"model{i}", "scratch", v, at) for i in range(8) for at, v in places)
    yield Case("huang2024_small", "half is lost, no remedy helps", needles, _fallen, paired=True)
    needles = tuple(Cell("needle", f"model{i}", "scratch", v, at) for i in range(8) for at, v in _placed(i % 2))
    yield Case("huang2024_small", "middle and haystack at their margins", needles, _places, paired=True)
    counted = tuple(Cell("frequent_word", f"model{i}", "scratch", v, at) for i in range(9) for at, v in _counted())
    yield Case(
        "huang2024_counting", "half is lost, layout at its margin", counted, findings(huang2024_counting), paired=True
    )
    on = tuple(Cell("needle", f"model{i}", p, v, at) for i in range(3) for p, at, v in _went_on())
    yield Case("huang2024_longer", "half is given back, half is lost beyond", on, findings(huang2024_longer))
    carded = tuple(Cell(t, m, "scratch", LEVEL) for t in ("recall", "words", "reach") for m in scorecard.WEAK)
    yield Case("scorecard", "all arms equal", carded, findings(scorecard))
    both = ((precision.ROUNDED, LEVEL - precision.MARGIN), ("", LEVEL))
    rounded = tuple(Cell(precision.LISTOPS, m + end, "scratch", v) for m in precision.MIXERS for end, v in both)
    yield Case("precision", "bf16 behind by the margin", rounded, findings(precision))


def _fallen(rows: Sequence[Row]) -> list[int]:
    return [finding.decided for finding in huang2024_small.fallen(rows) + huang2024_small.remedies(rows)]


def _places(rows: Sequence[Row]) -> list[int]:
    return [finding.decided for finding in huang2024_small.places(rows)]


def _placed(uneven: int) -> Iterator[tuple[str, float]]:
    """Yields places where the middle is just so far below the first fifth, and below the last or, if uneven, much
    further; and where two haystacks, beyond the training length, are what the third is at it."""
    middle, more = LEVEL - 2 * _huang2024_beyond.MIDDLE, _huang2024_beyond.MIDDLE
    first, central, last = _huang2024_beyond.FIFTHS
    depths = dict.fromkeys(first, middle + more) | dict.fromkeys(central, middle)
    depths |= dict.fromkeys(last, middle + more + 20 * uneven)
    near = {"essay": FOUND, "repeat": FOUND, "pairs": FOUND - 0.2}
    for length in (16, 32, 64, 128):
        yield f"length={length}", LEVEL
        yield from ((f"length={length},depth={depth}", share) for depth, share in depths.items())
        for name, share in near.items():
            end = f",format={name}"
            yield f"length={length}{end}", _found(length, end, share - 0.2 * (length > 32))


def _found(length: int, haystack: str, share: float) -> float:
    """Returns the percent that is found by who has come so far from guessing to all right in a haystack."""
    return _on_the_way(NEEDLE.at_length(length).keyless(haystack.partition("=")[2] or "pairs"), share)


def _on_the_way(guessing: float, share: float) -> float:
    """Returns the percent of who has come so far from guessing to all right."""
    floor = max(GUESS, 100 * guessing)
    return floor + share * (100 - floor)


def _went_on() -> Iterator[tuple[str, str, float]]:
    """Yields places where training at the longer length brings just half of what is lost there, and just half of that
    is left beyond it."""
    near, far = 0.9, 0.3
    back = huang2024_longer.CLIFF * (near + far)
    shares = {"scratch": {16: near, 32: near, 64: near, 128: far}}
    shares["extended"] = dict.fromkeys((32, 64, 128), back) | dict.fromkeys((256, 2_048), back / 2)
    for protocol, lengths in shares.items():
        for (length, share), end in product(lengths.items(), _HAYSTACKS):
            yield protocol, f"length={length}{end}", _found(length, end, share)


def _counted() -> Iterator[tuple[str, float]]:
    """Yields places where in one layout just half is left, and the other, where nothing is lost, is what it was."""
    apart = {"gathered": _huang2024_beyond.CLIFF, "spread": 1.0}
    for length in (16, 32, 64, 512):
        guessing = COUNTED.at_length(length).passage_only
        yield f"length={length}", _on_the_way(guessing, FOUND)
        for name, share in apart.items():
            left = share if length > 32 else 1.0
            yield f"length={length},format={name}", _on_the_way(guessing, left * FOUND)


def _demo() -> Iterator[Cell]:
    """Self-pretraining brings just what is asked for, the short kernel has just its share, and half is left."""
    gain = LEVEL - GUESS
    for protocol, level in ((demo.SCRATCH, LEVEL), (demo.SPT, LEVEL + demo.LIFT)):
        yield Cell(demo.RECALL, demo.ATTENTION, named_by_share(protocol, demo.LABELLED), level)
    for task in (demo.LISTOPS, demo.MARKS):
        yield Cell(task, demo.ATTENTION, demo.SCRATCH, LEVEL)
        yield Cell(task, f"conv{demo.SHORT}", demo.SCRATCH, GUESS + demo.ENOUGH * gain)
    for model in (demo.ATTENTION, demo.S4, "conv17"):
        if model != demo.ATTENTION:
            yield Cell(demo.MARKS, model, demo.SCRATCH, LEVEL)
        yield Cell(demo.MARKS, model, demo.SCRATCH, LEVEL, "length=52")
        yield Cell(demo.MARKS, model, demo.SCRATCH, GUESS + demo.LEFT * gain, "length=208")


def _pretrained(tasks: Sequence[str]) -> Iterator[Case]:
    """Table 1, the other models of table 2 and figure 2 of amos2025, with every difference at its margin."""
    plain = {(m, "scratch"): LEVEL for m in (amos2025_table1.TRANSFORMER, *amos2025_table1.EFFICIENT)}
    plain |= {(amos2025_table1.TRANSFORMER, p): LEVEL + amos2025_table1.LEAD for p in amos2025_table1.PRETRAINED}
    others = {(amos2025_table2_others.TRANSFORMER, p): LEVEL for p in ("scratch", "spt_masked")}
    others |= {(m, "scratch"): LEVEL + amos2025_table2_others.LEVEL for m in amos2025_table2_others.AUGMENTED}
    states = {(amos2025_figure2.SSM, p): LEVEL for p in ("scratch", "spt_masked")}
    states |= {(amos2025_figure2.DIAGONAL, p): LEVEL - amos2025_figure2.LEVEL for p in ("scratch", "spt_masked")}
    for study, arms, names in (
        (amos2025_table1, plain, tasks),
        (amos2025_table2_others, others, tasks),
        (amos2025_figure2, states, tasks[:4]),
    ):
        cells = tuple(Cell(task, *arm, truth) for task in names for arm, truth in arms.items())
        yield Case(study.study.name, "all at their margins", cells, findings(study))


def _enriched(tasks: Sequence[str]) -> Iterator[Case]:
    """Tables 2 to 4 of miralles2025, where every difference that is asked for is at its margin."""
    level, gain = LEVEL - miralles2025_table2.LEVEL, LEVEL + miralles2025_table2.LITTLE
    mega = {("mega", "scratch"): LEVEL, ("mega", "enriched"): gain, ("transformer", "scratch"): 30.0}
    rotary = {("transformer_rotary", "spt_masked"): LEVEL, ("transformer_rotary", "enriched"): level}
    below = LEVEL - miralles2025_table3.MARGIN
    free = {("gmlp", "enriched"): below}
    free |= {(m, p): v for m in ("s4", "s5") for p, v in (("scratch", below), ("enriched", LEVEL))}
    places = {(f"transformer_{kind}", "enriched"): LEVEL for kind in miralles2025_table4.POSITIONS}
    places |= {("transformer_rotary", "scratch"): LEVEL - miralles2025_table4.MASSIVE}
    for study, arms in (
        (miralles2025_table2, mega | rotary),
        (miralles2025_table3, free),
        (miralles2025_table4, places),
    ):
        cells = tuple(Cell(task, *arm, truth) for task in tasks for arm, truth in arms.items())
        yield Case(study.study.name, "all at their margins", cells, findings(study))


def _scarce() -> Iterator[Cell]:
    """Yields both arms with every share of the labels."""
    for task, shares in amos2025_labels.SHARES.items():
        for protocol in (amos2025_labels.SCRATCH, amos2025_labels.pretrained(task)):
            for share in shares:
                yield Cell(task, amos2025_labels.TRANSFORMER, named_by_share(protocol, share), LEVEL)


def _starts() -> Iterator[Cell]:
    """Yields S4 ahead of all others by the margin, from scratch and pretrained."""
    for model in (amos2025_starts.SSM, *amos2025_starts.OTHERS):
        for protocol in (amos2025_starts.SCRATCH, amos2025_starts.SPT):
            yield Cell("image", model, protocol, LEVEL + amos2025_starts.MARGIN * (model == amos2025_starts.SSM))


_SMALL = (amos2025_small.SCRATCH, amos2025_small.LONGER, amos2025_small.SPT)
_REMEDIES = ("none", "interpolate", "base", "window", "sinks")
_HAYSTACKS = ("", ",format=essay", ",format=pairs", ",format=repeat")


def guessing(reports: int, draw: np.random.Generator) -> int:
    """Counts the reports of `every_task` that find a run that has learnt, where all sixteen guess."""
    tasks = [Cell(f"task{i}", "m", "scratch", GUESS) for i in range(16)]
    rules = [
        Row(task=c.task, protocol="none", model="chance", metric="accuracy", split="test", value=0.1) for c in tasks
    ]
    wrong = 0
    for _ in range(reports):
        hard = {c.task: draw.standard_normal(EXAMPLES, np.float32) for c in tasks}
        wrong += any(_guessed([*rules, *(row for c in tasks for row in measured(c, 0, GUESS / 100, draw, hard))]))
    return wrong


def simulate(case: Case, law: Law, looks: Sequence[int], reports: int) -> dict[str, object]:
    """One line of the results file. looks: the seeds after each of which a report is read; it is wrong if it is at any
    of them."""
    draw = np.random.default_rng([sum(map(ord, case.rule + case.truth + law)), *looks])
    wrong = before = 0
    for _ in range(reports):
        rows = rows_of(case, law, max(looks), draw)
        wrong += any(any(case.decided([row for row in rows if row.get("seed", 0) < seeds])) for seeds in looks)
        before += any_separate(case, rows)
    line = (case.rule, case.truth, law, ", then ".join(map(str, looks)), reports, wrong, wrong / reports)
    return dict(zip(FIELDS, (*line, before / reports if case.rule == "compare" else ""), strict=True))


def any_separate(case: Case, rows: Sequence[Row]) -> bool:
    """Whether the old rule called the mixer above the best baseline somewhere: every seed above every seed of it."""
    if case.rule != "compare":
        return False
    cells: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in rows:
        place = cells.setdefault((row.get("task", ""), row.get("protocol", "")), {})
        place.setdefault(row.get("model", ""), []).append(row.get("value", 0.0))
    for arms in (arms for (_, protocol), arms in cells.items() if protocol != "none"):
        best = max((arm for name, arm in arms.items() if name != "mine"), key=np.median)
        if len(best) > 1 and min(arms["mine"]) > max(best):
            return True
    return False


def power(seeds: int, comparisons: int, reports: int = 20_000) -> float:
    """The difference in standard deviations between seeds that is decided in 80 % of reports, of one of so many
    comparisons, where `ARMS` arms of the task scatter alike; test examples are many."""
    draw = np.random.default_rng(seeds)
    needs = []
    for arms in draw.normal(50, 1, (reports, ARMS, seeds)).tolist():
        one, two = (Seeds(tuple(arm)) for arm in arms[:2])
        asked = difference(one, two, scatter=Scatter.pooled(arms))
        needs.append(asked.over_seeds(ALPHA / comparisons) - asked.value)
    return float(np.quantile(needs, 0.8))


def main(reports: int = 2_000, to: Path = Path("results/false-alarms.csv"), rule: str = "") -> None:
    """Writes every rule's rate of false alarms, and prints power; of a single rule, renews its lines alone."""
    lines: list[dict[str, object]] = []
    for case in cases():
        for law in filter(case.has, get_args(Law)) if rule in ("", case.rule) else ():
            for looks in _looks(case):
                lines.append(simulate(case, law, looks, reports))
                print(*lines[-1].values(), flush=True)
    if rule:
        write_text(to, to_csv(_renewed(to, rule, lines)))
        return
    wrong = guessing(reports, np.random.default_rng(0))
    values = ("every_task", "all guess", "examples", 1, reports, wrong, wrong / reports, "")
    write_text(to, to_csv([*lines, dict(zip(FIELDS, values, strict=True))]))
    for seeds in (2, 3, 4, 5, 10):
        print(seeds, *(f"{power(seeds, m):.1f}" for m in (1, 6, 12)))


def _looks(case: Case) -> Sequence[tuple[int, ...]]:
    """Returns seeds to simulate: those that studies have, and the way in which four of them got theirs."""
    looks = {
        "compare": [(2,)],
        "amos2025_small": [(3, 5)],
        "huang2024_small": [(3, 5)],
        "huang2024_longer": [(3, 5)],
        "huang2024_counting": [(10,), (3, 5, 10)],
    }
    return sorted([(3,), (5,), *looks.get(case.rule, [])], key=max)


def _renewed(file: Path, rule: str, lines: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """The lines of the file, those of the rule in their place renewed."""
    with file.open(newline="") as opened:
        old: list[dict[str, object]] = [*csv.DictReader(opened)]
    place = next((n for n, line in enumerate(old) if line["rule"] == rule), len(old))
    kept = [line for line in old if line["rule"] != rule]
    return [*kept[:place], *lines, *kept[place:]]


if __name__ == "__main__":
    tyro.cli(main)
