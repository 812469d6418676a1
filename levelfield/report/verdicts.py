"""Makes verdicts: from scores over seeds and from rules that need no sequence model, what of a claim is decided.

    table = Table.of(rows)
    table.cells[Key("listops", "s4", "scratch")]       # Seeds(values=(59.6, 58.1), examples=2000), in percent
    table.rule("listops")                              # the best simple rule: greedy_root, 25.0 %
    table.learnt(Key("listops", "s4", "scratch"))      # whether every seed beats it beyond noise
    judged({"listops": Claim(difference(after, before), facts="...")})     # one Finding a subject
    told(findings)                                     # "Yes on listops; not decided on text. ..."

`decisions` has the arithmetic; docs/verdicts.md says what each study asks and how often an answer is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

from levelfield.report.decisions import (
    ALPHA,
    FEWEST,
    Contrast,
    Question,
    Seeds,
    Silent,
    Span,
    difference,
    holm,
    resolution,
)
from levelfield.report.links import common_anchor, computed, marked
from levelfield.report.same_examples import Right
from levelfield.report.scatter import Scatter
from levelfield.report.stats import independent
from levelfield.runs.hits import hits_of
from levelfield.spec import Row
from levelfield.spec.study import AT_CAP, GUESSES, PARTS, SHARES, fuller, percent

EXPLAINED = ("r2",)
CLOSE = 5.0
"""Points between the best and the worst seed of an arm that has not split into seeds that learn and others."""


class Key(NamedTuple):
    """A cell; `place` is where on the axis, "" for the whole test split."""

    task: str
    model: str
    protocol: str
    place: str = ""


@dataclass(frozen=True)
class Rule:
    """A rule that learns no sequence model, and its score; `examples` is None where it is known beforehand."""

    name: str
    score: Seeds

    def __str__(self) -> str:
        return f"{self.name.replace('_', ' ')} ({self.score})"


def scores(rows: Sequence[Row], axis: str = "", metrics: Sequence[str] = SHARES) -> dict[Key, Seeds]:
    """Measured test scores, of the whole split or at "axis=..."; a cell without a finite score is absent.

    metrics: shares, or R2 in percent of the variance. Two probes may ask a run at one place: it is one seed, scored by
    the probe with most examples.
    """
    found: dict[Key, dict[str, Row]] = {}
    for row in rows:
        at, _, place = row.get("at", "").partition("=")
        measured = "run" in row and row.get("protocol") != "none" and math.isfinite(row.get("value", math.nan))
        if _test(row, metrics) and at == axis and measured:
            key = Key(row.get("task", ""), row.get("model", ""), row.get("protocol", ""), place)
            by_run, run = found.setdefault(key, {}), row.get("run", "")
            by_run[run] = fuller(by_run.get(run), row)
    return {key: _seeds([*mine.values()], metrics) for key, mine in found.items()}


def _seeds(rows: Sequence[Row], metrics: Sequence[str]) -> Seeds:
    """Returns the scores of one arm; the noise of its test examples is that of the smallest test."""
    rows = sorted(rows, key=lambda row: row.get("seed", 0))
    values = tuple(map(percent, rows))
    told = {row["seed"] for row in rows if "seed" in row}
    made = Seeds(values, numbers=tuple(sorted(told)) if len(told) == len(rows) else (), anchor=common_anchor(rows))
    if metrics != SHARES:
        stderr = max((percent(row, "stderr") for row in rows if "stderr" in row), default=0.0)
        return replace(made, stderr=stderr or None)
    examples = min((n for row in rows if (n := independent(row))), default=None)
    return replace(made, examples=examples, right=Right.of([hits_of(row) for row in rows]))


def _diverged(rows: Sequence[Row], axis: str, metrics: Sequence[str]) -> dict[Key, list[int]]:
    """Returns the seeds of each arm whose outputs on the test split, or at "axis=...", were not finite, so that they
    have no score there."""
    found: dict[Key, list[int]] = {}
    for row in rows:
        at, _, place = row.get("at", "").partition("=")
        lost = row.get("status") == "diverged" and not math.isfinite(row.get("value", math.nan))
        if lost and _test(row, metrics) and "run" in row and at in ("", axis):
            arm = Key(row.get("task", ""), row.get("model", ""), row.get("protocol", ""), place)
            found.setdefault(arm, []).append(row.get("seed", 0))
    return found


def _rules(rows: Sequence[Row], metrics: Sequence[str]) -> dict[str, list[Rule]]:
    """Returns the simple rules of each task; a rule that several runs report counts once."""
    found: dict[str, dict[str, Rule]] = {}
    for row in rows:
        if _test(row, metrics) and not row.get("at") and row.get("protocol") == "none":
            name = row.get("model", "")
            examples = None if name in GUESSES or metrics != SHARES else independent(row)
            score = Seeds(
                (percent(row) if "value" in row else 0.0,), examples, trained=False, anchor=common_anchor([row])
            )
            found.setdefault(row.get("task", ""), {}).setdefault(name, Rule(name, score))
    return {task: list(rules.values()) for task, rules in found.items()}


def _test(row: Row, metrics: Sequence[str]) -> bool:
    return row.get("metric") in metrics and row.get("split") == "test"


@dataclass(frozen=True)
class Table:
    """Scores by cell, and simple rules by task."""

    cells: Mapping[Key, Seeds]
    rules: Mapping[str, Sequence[Rule]]

    @classmethod
    def of(cls, rows: Sequence[Row], axis: str = "", metrics: Sequence[str] = SHARES) -> Table:
        """Cells of the test split or along an axis; an arm of which some seeds have learnt is marked as unsteady.

        A seed that diverged, so that it has no score, counts as one that guesses: to leave it out would make an arm
        better that diverges than one that fails. Seeds within `CLOSE` of each other are one cluster, though what counts
        as learnt lies between them.
        """
        found = cls(scores(rows, axis, metrics), _rules(rows, metrics))
        for arm, seeds in _diverged(rows, axis, metrics).items():
            found = found._guessing_too(arm, seeds, everywhere=bool(axis) and not arm.place)
        known = {key: replace(arm, steady=found._one_cluster(key, arm)) for key, arm in found.cells.items()}
        return replace(found, cells=known)

    def _one_cluster(self, key: Key, arm: Seeds) -> bool:
        lowest, highest, rule = min(arm.values), max(arm.values), self.rule(key.task)
        if highest - lowest <= CLOSE:
            return True
        return self._beats(rule, lowest, arm) == self._beats(rule, highest, arm)  # those between are as one of the two

    @classmethod
    def of_all(cls, rows: Sequence[Row]) -> Table:
        """Cells of the test split of all tasks: shares, and where numbers are predicted, percent of their variance."""
        shares, explained = cls.of(rows), cls.of(rows, metrics=EXPLAINED)
        return cls({**shares.cells, **explained.cells}, {**shares.rules, **explained.rules})

    def _guessing_too(self, arm: Key, seeds: Sequence[int], *, everywhere: bool) -> Table:
        """Returns the table with seeds of an arm that guess, in its cell, or in all of its places. Such a cell leads to
        no list, as what it holds is no sum of the scores there."""
        places = [key for key in self.cells if key[:3] == arm[:3]] if everywhere else [arm]
        cells = dict(self.cells)
        for key in places:
            cell = cells.get(key, Seeds(()))
            if cell.values and not cell.numbers:
                continue
            new = [seed for seed in seeds if seed not in cell.numbers]
            scored = {**dict(zip(cell.numbers, cell.values)), **dict.fromkeys(new, self.floor(arm.task))}
            values, numbers = tuple(scored[seed] for seed in sorted(scored)), tuple(sorted(scored))
            cells[key] = replace(cell, values=values, numbers=numbers, diverged=len(new), right=None, anchor="")
        return replace(self, cells=cells)

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(key.task for key in self.cells))

    def rule(self, task: str, only: Sequence[str] = ()) -> Rule | None:
        """The best simple rule, of all but those that do a part of what is asked, or of those named."""
        known = [rule for rule in self.rules.get(task, ()) if (rule.name in only if only else rule.name not in PARTS)]
        return max(known, key=lambda rule: rule.score.mean, default=None)

    def floor(self, task: str) -> float:
        """The higher of chance and the label prior, in percent."""
        return self.guessing(task).mean

    def guessing(self, task: str) -> Seeds:
        """The higher of chance and the label prior, as scores; 0 where neither is known."""
        rule = self.rule(task, GUESSES)
        return rule.score if rule else Seeds((0.0,), trained=False)

    def learnt(self, key: Key, only: Sequence[str] = ()) -> bool:
        """Whether every seed beats the best simple rule, of all or of those named, beyond the noise of the test
        examples."""
        arm, rule = self.cells.get(key), self.rule(key.task, only)
        return arm is not None and all(self._beats(rule, value, arm) for value in arm.values)

    @staticmethod
    def _beats(rule: Rule | None, value: float, arm: Seeds) -> bool:
        own = replace(arm, values=(value,), trained=False, steady=True)
        return rule is None or difference(own, rule.score).decide(2 * ALPHA) > 0

    def scatter(self, task: str) -> Scatter:
        """Between seeds, of all arms of a task together."""
        return Scatter.pooled(arm.values for key, arm in self.cells.items() if key.task == task)


@dataclass(frozen=True)
class Claim:
    """What is asked of one subject, a task or a model: a question, or None where nothing can be said; and the numbers
    in a sentence."""

    question: Question | None
    facts: str


@dataclass(frozen=True)
class Finding:
    """What is found of one subject.

    decided: 1 where the claim holds beyond noise, -1 where its opposite does, 0 where neither is shown. seen: what
    the numbers say where each is taken as exact; 0 where nothing can be said. span: how far it is beyond the limit of
    the question, where one number says so."""

    subject: str
    decided: int
    seen: int
    facts: str
    span: Span | None = None


def judged(claims: Mapping[str, Claim]) -> list[Finding]:
    """All claims of one report, decided together.

    A question that cannot be asked counts among them: which ones those are depends on the same scores.
    """
    decided = holm({subject: claim.question or Silent() for subject, claim in claims.items()})
    return [_finding(subject, claim, decided[subject]) for subject, claim in claims.items()]


def judged_by_task(table: Table, claims: Callable[[str, Table], Iterable[tuple[str, Claim]]]) -> list[Finding]:
    """All tasks' claims, each named by its question and its task, decided together. Two of one name are a fault of the
    study that asks, and an AssertionError: one of them would be lost."""
    asked = [(f"{subject} ({task})", claim) for task in table.tasks for subject, claim in claims(task, table)]
    named = dict(asked)
    assert len(named) == len(asked), f"two questions of one name among {[subject for subject, _ in asked]}"
    return judged(named)


def _finding(subject: str, claim: Claim, decided: int) -> Finding:
    if claim.question is None:
        return Finding(subject, 0, 0, claim.facts)
    span = claim.question.span()
    beyond = f" Measured against what a yes needs: {span}." if span else ""
    return Finding(subject, decided, claim.question.seen(), claim.facts + beyond, span)


def told(
    findings: Sequence[Finding], nothing: str = "Nothing can be said yet: no run has finished.", more: str = "seeds"
) -> str:
    """The verdict: what is decided, what is only seen, and the numbers. more: what would decide the rest."""
    if not findings:
        return nothing
    open_ = [f for f in findings if f.seen and not f.decided]
    parts = [
        _part("yes", [f.subject for f in findings if f.decided > 0]),
        _part("no", [f.subject for f in findings if f.decided < 0]),
        _part("not decided", [f.subject for f in open_]),
        _part("nothing can be said", [f.subject for f in findings if not f.seen], asked="cannot be said"),
    ]
    head = "; ".join(part for part in parts if part)
    return " ".join([f"{head[0].upper()}{head[1:]}.", *_read(open_, more), *(f.facts for f in findings)])


def ahead(lead: Contrast) -> str:
    """Writes a lead in words: "ahead by 3.4 points", or of one below 0 "behind by 3.4 points"."""
    points = lead.told(f"{abs(lead.value):.1f}")
    return f"{'behind' if lead.value < 0 else 'ahead'} by {points} points"


def percent_of(part: Contrast, whole: Contrast) -> str:
    """Writes one value as a share of another, "83 %", marked where a page has the rows of both."""
    text = f"{100 * part.value / whole.value if whole.value > 0 else 0.0:.0f} %"
    return marked(text, computed(part.led, over=whole.led) if part.led and whole.led else "")


MANY = 4  # open questions of which not each is named again


def _part(words: str, names: Sequence[str], asked: str = "") -> str:
    """Joins an answer with what it answers: "yes on listops", or of a question in words "yes: positions help".

    asked: the answer to a question in words, where it is another.
    """
    in_words = any(" " in name.partition(" (")[0] for name in names)
    return f"{f'{asked or words}:' if in_words else f'{words} on'} {', '.join(_by_question(names))}" if names else ""


def _by_question(names: Sequence[str]) -> list[str]:
    """Names each question once: "a (x)" and "a (y)" become "a (x, y)"."""
    found: dict[str, list[str]] = {}
    for name in names:
        question, opened, place = name.removesuffix(")").partition(" (")
        found.setdefault(question if opened else name, []).extend([place] if opened else [])
    return [f"{question} ({', '.join(places)})" if places else question for question, places in found.items()]


def _read(open_: Sequence[Finding], more: str) -> list[str]:
    """What numbers that decide nothing say as they stand; of many, by naming those that say otherwise than most."""
    if not open_:
        return []
    sides = [("yes", [f.subject for f in open_ if f.seen > 0]), ("no", [f.subject for f in open_ if f.seen < 0])]
    (word, fewer), (most, _) = sorted(sides, key=lambda side: len(side[1]))
    if len(open_) < MANY:
        said = " and ".join(part for side, names in sides if (part := _part(side, names)))
    else:
        apart = f" except {', '.join(_by_question(fewer))}, where they say {word}" if fewer else ""
        said = f"{most} on all of these{apart}"
    return [f"The numbers say {said}, but noise alone could do the same; more {more} would tell."]


def summed_up(rows: Sequence[Row], findings: Sequence[Finding], nothing: str) -> str:
    """The verdict of a study whose phases end by themselves: who was cut short, what is found, what would be seen.

    nothing: what to say where there are no findings.
    """
    seen = power(Table.of(rows), len(findings)) if findings else ""
    return " ".join(filter(None, (capped(rows), told(findings, nothing), seen)))


def power(table: Table, questions: int) -> str:
    """Says of every task how far apart two of its arms have to be to be told apart: the pair that needs least, and the
    pair that needs most.

    questions: how many the report asks together.
    """
    seen: list[str] = []
    needs: list[float] = []
    for task in table.tasks:
        arms = [arm for key, arm in table.cells.items() if key.task == task]
        pairs = list(combinations(arms, 2)) or [(arms[0], arms[0])]
        own = [resolution(*pair, table.scatter(task), questions) for pair in pairs]
        needs += own
        if known := [need for need in own if need < math.inf]:
            ends = dict.fromkeys(f"{end:.1f}" for end in (min(known), max(known)))
            seeds = min(len(arm.values) for arm in arms if len(arm.values) >= FEWEST)
            seen.append(f"{' to '.join(ends)} points on {task} ({seeds} seeds)")
    if not seen:
        return ""
    asked = "With one question" if questions == 1 else f"With {questions} questions asked together"
    by = ", depending on how much the two scatter" if any(" to " in each for each in seen) else ""
    without = f" Left out are arms with fewer than {FEWEST} seeds, or of which only some seeds have learnt."
    return (
        f"{asked}, two arms are told apart where they differ by {', '.join(seen)}{by}.{without * (math.inf in needs)}"
    )


FEW = 0.1


def capped(rows: Sequence[Row]) -> str:
    """What has to be said first where more than a tenth of the runs did not stop improving before their cap."""
    shares = {row.get("run"): row.get("value", 0.0) for row in rows if row.get("metric") == AT_CAP}
    reached = sum(share > 0 for share in shares.values())
    if reached <= FEW * len(shares):
        return ""
    return f"{reached} of {len(shares)} runs had not stopped improving when they reached their cap of steps."
