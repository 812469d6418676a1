"""Reads what the figure of docs/findings.md shows off the answers of three studies: numbers, and the words above them.

    lifts(found)[0].contrast.span()       # what self-pretraining adds, with the interval of the study's own verdict
    share_head(found).title               # "Seeing 21 steps brings 92 % of the gMLP's gain on ListOps, 86 % on ..."

Every title is an answer and is computed, so that new rows change what the figure says as well as what it draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from statistics import fmean, median
from typing import TYPE_CHECKING, NamedTuple

import findings_words as words

from levelfield import published
from levelfield.engine.find import Source
from levelfield.mixers.alibi import Alibi
from levelfield.mixers.attention import Attention
from levelfield.report.decisions import Contrast, Seeds, difference
from levelfield.report.verdicts import Finding, Key, Table
from levelfield.spec import Row
from levelfield.studies import _huang2024_small as needles
from levelfield.studies import huang2024_counting as counting
from levelfield.studies import huang2024_small
from levelfield.studies._amos2025_small import LONGER, SCRATCH, SPT, SSM, TRANSFORMER
from levelfield.studies._huang2024_beyond import FALL, TWICE, LengthScores
from levelfield.studies._miralles2025 import EVERYTHING
from levelfield.studies._miralles2025_small import SHORT
from levelfield.studies.miralles2025_enriched import BOUNDED, ENRICHED
from levelfield.studies.miralles2025_small import NEARLY
from levelfield.tasks.listops import ListOps
from levelfield.tasks.reach import Reach

if TYPE_CHECKING:
    from findings_subjects import Answer

ALLOWED = "at an equal allowance of steps"
WORDS = {1: "yes", -1: "no", 0: "open"}
TASKS = {"image8": "pictures", "listops": "ListOps", "text": "reviews", "in_context_recall": "in-context recall"}
PRINTED_FOR = {"image8": "image"}  # tasks here -> those of the paper that they are made from
MIXERS = {"gmlp": "gMLP"}
HAYSTACKS = {"pairs": "look-alike pairs", "essay": "other words", "repeat": "a repeated sentence", "": "all haystacks"}
ALL = math.inf  # steps that a model sees which sees everything


class Head(NamedTuple):
    """What stands above a panel: the answer, the verdict behind it, the seeds of each mark, and what else is drawn.

    marks: what a mark is of the scores of its seeds. note: what a caption says more, a sentence; "" for nothing.
    """

    title: str
    verdict: str
    seeds: Sequence[int]
    bars: str
    marks: str = "means"
    note: str = ""

    @property
    def lines(self) -> tuple[str, str]:
        return self.verdict, f"{self.marks.capitalize()} of {counted(self.seeds)}; {self.bars}"


class Lift(NamedTuple):
    """What self-pretraining adds over an arm from scratch. printed: the same in the paper; None where not printed."""

    model: str
    task: str
    longer: bool
    arms: tuple[Seeds, Seeds]
    contrast: Contrast
    printed: float | None


def _names(tasks: Iterable[str]) -> str:
    return ", ".join(TASKS.get(task, task) for task in tasks)


def counted(seeds: Sequence[int]) -> str:
    """Returns "3 seeds", or "3 to 5 seeds" where marks have different numbers of them."""
    least, most = min(seeds), max(seeds)
    return ("one seed" if most == 1 else f"{most} seeds") if least == most else f"{least} to {most} seeds"


def _by_answer(findings: Iterable[Finding]) -> dict[str, list[str]]:
    """Returns what is decided, and what of: only answers that something has."""
    found: dict[str, list[str]] = {}
    for finding in findings:
        word = WORDS[finding.decided] if finding.seen else "cannot be said"
        found.setdefault(word, []).append(finding.subject)
    return found


def lifts(found: Answer) -> list[Lift]:
    """Returns every lift that rows have, with the very question whose interval the study's verdict gives."""
    table, printed, made = Table.of(found.results.compared), _printed(), []
    for task, model in dict.fromkeys((key.task, key.model) for key in table.cells):
        arms = {p: table.cells.get(Key(task, model, p)) for p in (SCRATCH, LONGER, SPT)}
        theirs = [printed.get((PRINTED_FOR.get(task, task), model, p)) for p in (SCRATCH, SPT)]
        for before in (SCRATCH, LONGER):
            first, second = arms[SPT], arms[before]
            if first and second:
                lift = theirs[1] - theirs[0] if before == SCRATCH and theirs[0] and theirs[1] else None
                asked = difference(first, second, 0.0, table.scatter(task))
                made.append(Lift(model, task, before == LONGER, (first, second), asked, lift))
    return made


@cache
def _printed() -> dict[tuple[str, str, str], float]:
    """Returns what the paper prints, in percent, by task, model and protocol."""
    tables = Source("amos2025_table2").load().published
    rows = (row for table in tables for row in published.rows(table.paper, table.table))
    return {
        (row.get("task", ""), row.get("model", ""), row.get("protocol", "")): row["value"]
        for row in rows
        if "value" in row and row.get("status") == "reported"
    }


def lift_head(found: Answer) -> Head:
    findings = found.findings
    equal = [finding for finding in findings if f"lift holds {ALLOWED}" in finding.subject]
    asked = [finding for finding in equal if "S4" not in finding.subject]
    plain = [finding for finding in findings if finding.subject.startswith("self-pretraining lifts")]
    parts = []
    for verb, sign in (("lifts", 1), ("lowers", -1)):
        shown = [finding.subject.partition("(")[2].rstrip(")") for finding in asked if finding.decided == sign]
        parts += [f"{verb} the Transformer on {_names(shown)}"] if shown else []
    table = Table.of(found.results.rows)
    lifted = [finding.subject.partition("(")[2].rstrip(")") for finding in asked if finding.decided > 0]
    low = [task for task in lifted if not table.learnt(Key(task, TRANSFORMER, SPT))]
    rule = f" On {_names(low)} still below the best simple rule." if low else ""
    said = f"Self-pretraining {' and '.join(parts)}"
    if not parts:
        said = f"Self-pretraining: {'no lift of the Transformer shown' if equal else 'nothing asked'}"
    over, at = (f"{sum(f.decided > 0 for f in each)} of {len(each)}" for each in (plain, equal))
    return Head(
        f"{said} {ALLOWED}",
        f"More than noise: {over} lifts over scratch, {at} with as many steps allowed.{rule}",
        [len(arm.values) for lift in lifts(found) for arm in lift.arms],
        "bars: 95 % interval of each",
    )


class Share(NamedTuple):
    """The part of the gain over guessing that models have, of that of the model that sees everything.

    places: steps that a model sees, `ALL` for everything -> percents, one per seed. whole: the model that sees
    everything. best and floor: the scores that are 100 and 0 percent. proved: how far a model may see and is proved to
    be at guessing.
    """

    name: str
    places: Mapping[float, Sequence[float]]
    whole: str
    best: float
    floor: float
    proved: int


def shares(found: Answer) -> dict[str, Share]:
    """Returns the shares by task. A task without a model that sees everything, and has learnt, is left out."""
    rows, made = found.results.rows, {}
    table, seen = Table.of(rows, "kernel"), steps_seen(rows)
    ranges = {run.task.name: run.task.range for run in found.study.runs(found.effort) if isinstance(run.task, Reach)}
    for task in table.tasks:
        arms = {key.place: (key, arm) for key, arm in table.cells.items() if key.task == task}
        if EVERYTHING not in arms or not table.learnt(arms[EVERYTHING][0]):
            continue
        floor, (whole, best) = table.floor(task), arms[EVERYTHING]
        places = {
            seen.get(place, ALL): [100 * (value - floor) / (best.mean - floor) for value in arm.values]
            for place, (_, arm) in arms.items()
        }
        name = f"marks {ranges[task]} apart" if task in ranges else TASKS.get(task, task)
        made[task] = Share(name, dict(sorted(places.items())), whole.model, best.mean, floor, ranges.get(task, 0))
    return made


def steps_seen(rows: Sequence[Row]) -> dict[str, float]:
    """Returns how many steps the whole model sees, by the kernel of its layers."""
    measured = [row for row in rows if row.get("metric") == "receptive_field"]
    return {row.get("at", "").partition("=")[2]: row.get("value", ALL) for row in measured}


def share_head(found: Answer) -> Head:
    made, seen = shares(found), steps_seen(found.results.rows)
    short = max(steps for kernel, steps in seen.items() if int(kernel) <= SHORT)
    had = [(fmean(share.places[short]), share) for share in made.values() if short in share.places]
    whole = " or ".join(dict.fromkeys(MIXERS.get(share.whole, share.whole) for _, share in had))
    parts = [f"{percent:.0f} % of the {whole}'s gain on {share.name}" for percent, share in had if short > share.proved]
    parts[1:] = [part.replace(f" of the {whole}'s gain", "") for part in parts[1:]]
    names = {task: share.name for task, share in made.items()}
    said = "; ".join(
        f"{word}: {', '.join(names.get(task, task) for task in tasks)}"
        for word, tasks in _by_answer(found.findings).items()
    )
    return Head(
        f"Seeing {short:.0f} steps brings {', '.join(parts) or 'no gain'}",
        f"Is it {100 * NEARLY:.0f} % or more? {said[:1].upper()}{said[1:]}. All enriched; features are averaged over "
        "the sequence.",
        [len(values) for share in made.values() for values in share.places.values()],
        "bands: lowest to highest",
        note=f"In the middle, the axis is how many steps a feature sees, and the answer is read from the mean of all "
        f"features; all models there, the {whole} too, had enriched training.",
    )


def cost(found: Answer, key: Key) -> tuple[float, float] | None:
    """Returns the steps and the FLOPs of a run of an arm, medians over its seeds; None where no ledger is known."""
    runs = {
        row.get("run", "")
        for row in found.results.rows
        if (row.get("task"), row.get("model"), row.get("protocol")) == (key.task, key.model, key.protocol)
    }
    ledgers = [found.results.ledgers[run] for run in runs if run in found.results.ledgers]
    if not ledgers:
        return None
    return median(ledger["steps"] for ledger in ledgers), median(ledger["flops"] for ledger in ledgers)


def plain(found: Answer) -> dict[str, tuple[float, float]]:
    """Returns model -> its scores on pictures with plain and with enriched training, means of seeds in percent."""
    cells = {key: arm.mean for key, arm in Table.of(found.results.rows).cells.items() if key.task == "image8"}
    scores = {key.model: [cells.get(key._replace(protocol=p)) for p in (SCRATCH, ENRICHED)] for key in cells}
    return {model: (one, two) for model, (one, two) in scores.items() if one is not None and two is not None}


def plain_share(found: Answer, others: Answer) -> float:
    """Returns how much of what S4 gains over guessing on pictures the short kernel has, both with plain training, in
    percent. others: the study that trains them plainly."""
    scores, floor = plain(others), shares(found)["image8"].floor
    short, whole = (scores[model][0] - floor for model in (BOUNDED, SSM))
    return 100 * short / whole


class Recall(NamedTuple):
    """Needles found in the haystack that is hardest at the longest length, by model and by steps asked.

    floors: what guessing has there, in percent, by steps asked."""

    haystack: str
    cells: Mapping[str, Mapping[int, Seeds]]
    trained: int
    floors: Mapping[int, float]

    @property
    def longest(self) -> int:
        return max(length for arms in self.cells.values() for length in arms)

    def kept(self) -> dict[str, dict[int, float]]:
        """Model -> multiple of the training length -> what is left there of the median's way from guessing to 100 %."""
        gains = {
            model: {n: (arm.median - self.floors[n]) / (100 - self.floors[n]) for n, arm in arms.items()}
            for model, arms in self.cells.items()
        }
        return {
            model: {n // self.trained: gain / mine[self.trained] for n, gain in mine.items() if n > self.trained}
            for model, mine in gains.items()
        }

    def falls(self, found: Answer, times: int) -> list[Finding]:
        """The answers on whether models lose more than half, in some haystack, at so many times the training length."""
        asked = {FALL.format(times, model) for model in self.cells}
        return [finding for finding in found.findings if finding.subject in asked]


def recall(found: Answer, haystack: str | None = None) -> Recall:
    """Returns a haystack, by default the hardest; that of all together where rows do not tell them apart."""
    asked = length_scores(found)
    cells: dict[str, dict[str, dict[int, Seeds]]] = {}
    for key, arm in asked.table.cells.items():
        length, _, rest = key.place.partition(",")
        name, _, here = rest.partition("=")
        if length.isdigit() and (name, "," in here) in (("", False), ("format", False)):
            cells.setdefault(here, {}).setdefault(key.model, {})[int(length)] = arm
    lengths = sorted({length for arms in cells[""].values() for length in arms})
    if haystack is None:
        haystack = min(cells, key=lambda name: fmean(arms[lengths[-1]].mean for arms in cells[name].values()))
    end = f",format={haystack}" if haystack else ""
    return Recall(haystack, cells[haystack], lengths[1], {n: asked.floor(n, end) for n in lengths})


@cache
def length_scores(found: Answer) -> LengthScores:
    """Returns the scores by length, with what the study takes for guessing."""
    of = needles.length_scores if found.study.name == huang2024_small.study.name else counting.length_scores
    return of(found.results.rows)


def recall_head(found: Answer) -> Head:
    made = recall(found)
    last = made.longest // made.trained
    lost, *rest = (
        {sign: sum(finding.decided == sign for finding in made.falls(found, times)) for sign in (1, -1, 0)}
        for times in dict.fromkeys((last, TWICE))
    )
    twice = "".join(f" At {TWICE} ×: {each[1]} lose it, {each[-1]} keep it, {each[0]} open." for each in rest)
    return Head(
        f"{lost[1]} of {sum(lost.values())} models are shown to lose over half at {last} × the length",
        f"In some haystack; {lost[-1]} shown to keep half in each, {lost[0]} open.{twice} Drawn: "
        f"{HAYSTACKS.get(made.haystack, made.haystack)}.",
        [len(arm.values) for arms in made.cells.values() for arm in arms.values()],
        "bands: lowest to highest",
        marks="medians",
    )


@cache
def longest(found: Answer) -> int:
    """Returns the steps of the longest sequence that the answer rests on, at training or, where asked, beyond it."""
    tasks = Table.of(found.results.rows).tasks
    trained = max(run.task.max_length for run in found.study.runs(found.effort) if run.task.name in tasks)
    asked = [int(key.place) for key in Table.of(found.results.rows, "length").cells if key.place.isdigit()]
    return max([trained, *asked])


def families(found: Answer) -> dict[str, str]:
    """Model -> what moves information along the sequence: attention, a recurrence, or both."""
    made = {}
    for run in found.study.runs(found.effort):
        kinds = {isinstance(mixer, (Attention, Alibi)) for mixer in run.model.mixers}
        made[run.model.label] = (
            "attention and recurrence" if len(kinds) > 1 else "attention" if True in kinds else "recurrence"
        )
    return made


def sized(found: Answer, task: str) -> str:
    """Returns the name of a task, of ListOps with its lengths, which differ between studies: "ListOps of 11 to 63
    tokens"."""
    sizes = {(run.task.minimum + 1, run.task.max_length) for run in found.planned if isinstance(run.task, ListOps)}
    of = " and ".join(f"{least} to {most} tokens" for least, most in sorted(sizes))
    return words.named(task) + (f" of {of}" if sizes and task == ListOps.name else "")
