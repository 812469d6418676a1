"""Holds what is asked of models that are trained here at one length and read at others: huang2024, section 5.

    asked = LengthScores.of(rows)
    judged(falls(asked))                   # who loses more than half beyond the training length, in some haystack
    judged(middles(asked, beyond=True))    # whose scores are lower in the middle of the text than at either end
    judged(haystacks(asked))               # whose easy haystack beyond the training length is above a hard one at it

Each is a claim of its own, and its questions are a family of their own. Nothing is asked of a model that has not learnt
the task. Scores are corrected for guessing, in each haystack at each length: 0 is guessing, and 100 all right.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from operator import mul
from typing import TypeVar

from levelfield.report.decisions import Contrast, Every, Question, Seeds, difference, some
from levelfield.report.same_weights import aligned, alike, contrast
from levelfield.report.verdicts import Claim, Finding, Key, Table, told
from levelfield.spec import Row

LEARNT = 0.5  # of what guessing leaves at the training length, from which a fall beyond it can be spoken of
CLIFF = 0.5  # of what a model is above guessing at the training length, lost beyond it
MIDDLE = 5.0  # points by which the middle has to be below either end, as in huang2024_needles below their mean
TWICE = 2  # the multiple of the training length that huang2024's claim is asked at
FALL = "more than half is lost at {} times the length ({})"  # the name of a question: multiple, model
DIFFER = "Whether that is shown depends on what guessing is taken to be."
EASIER = "a {} beyond the training length is easier than another at it ({})"  # haystack or layout, model
K = TypeVar("K", bound=Hashable)
FIFTHS = ((0, 1), (4, 5), (8, 9))  # the first, the middle and the last, in tenths of the text


@dataclass(frozen=True)
class LengthScores:
    """Scores by length, depth and haystack. trained: the training length; 0 where no length is known.

    guess: the score of one who guesses as well as can be at a length, in a haystack, or in all where it is "", 0 to 1;
    None where chance and the label prior are as good everywhere. protocol: of the runs that are asked."""

    table: Table
    trained: int
    guess: Callable[[int, str], float] | None = None
    protocol: str = "scratch"

    @classmethod
    def of(cls, rows: Sequence[Row], guess: Callable[[int, str], float] | None = None) -> LengthScores:
        """Takes the second of the lengths asked as that of training: they begin at its half."""
        table = Table.of(rows, "length")
        lengths = sorted({int(key.place) for key in table.cells if key.place.isdigit()})
        return cls(table, lengths[1] if len(lengths) > 1 else 0, guess)

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(key.model for key in self.table.cells if key.protocol == self.protocol))

    @property
    def farther(self) -> list[int]:
        """The lengths asked beyond that of training, in order."""
        return sorted({int(k.place) for k in self.table.cells if k.place.isdigit() and int(k.place) > self.trained})

    @property
    def multiples(self) -> list[int]:
        """The multiples of the training length at which a fall is asked for: twice that length and the longest one."""
        longest = [length // self.trained for length in self.farther[-1:] if length % self.trained == 0]
        return sorted({TWICE, *longest})

    @property
    def haystacks(self) -> list[str]:
        """Ends of places that name a haystack, such as ",format=essay"; "" alone where the probe knows none."""
        ends = {key.place.partition(",")[2] for key in self.table.cells}
        return sorted(f",{end}" for end in ends if end.startswith("format=") and "," not in end) or [""]

    def key(self, model: str, length: int, end: str = "") -> Key:
        return Key(next(iter(self.table.tasks), ""), model, self.protocol, f"{length}{end}")

    def cell(self, model: str, length: int, end: str = "") -> Seeds | None:
        return self.table.cells.get(self.key(model, length, end))

    def floor(self, length: int, end: str) -> float:
        """Percent that guessing has there: in a haystack, or in all of them together."""
        floor = self.table.floor(self.table.tasks[0])
        if self.guess is None:
            return floor
        return max(floor, 100 * self.guess(length, _name(end)))

    def corrected(self, parts: Sequence[tuple[float, int, str, Seeds]]) -> Contrast:
        """Returns a sum of scores corrected for guessing. parts: weight, length, haystack and score of each."""
        terms, guessed = [], 0.0
        for weight, length, end, cell in parts:
            floor = self.floor(length, end)
            share = weight / (1 - floor / 100)
            terms.append((share, cell))
            guessed += share * floor
        return contrast(tuple(terms), guessed)

    def able(self, model: str) -> bool:
        """Whether a model finds enough at the training length, and beats the best simple rule there."""
        short, floor = self.cell(model, self.trained), self.floor(self.trained, "")
        enough = floor + LEARNT * (100 - floor)
        return short is not None and short.median >= enough and self.table.learnt(self.key(model, self.trained))

    @property
    def learnt(self) -> list[str]:
        return [model for model in self.models if self.able(model)]

    @property
    def unlearnt(self) -> str:
        """What is said where no model has learnt the task."""
        return f"Nothing can be said: no model has learnt the task at the training length, {self.trained} steps."

    def falls(self, length: int, end: str) -> dict[str, Contrast]:
        """Returns a contrast for every model that was asked in a haystack at both lengths: more where less than CLIFF
        of the score at the training length is left. All that have learnt the task share their scatter."""
        found = dict[str, Contrast]()
        for model in self.models:
            one, more = self.cell(model, self.trained, end), self.cell(model, length, end)
            if one and more:
                found[model] = self.corrected([(CLIFF, self.trained, end, one), (-1.0, length, end, more)])
        return found | together({model: found[model] for model in self.learnt if model in found})


def held_by_both(found: Sequence[Finding], other: Sequence[Finding]) -> list[Finding]:
    """Returns findings with the answers that two ways of guessing both give; where they differ, it is open."""
    return [
        one if one.decided == two.decided else replace(one, decided=0, facts=f"{one.facts} {DIFFER}")
        for one, two in zip(found, other, strict=True)
    ]


def together(asked: Mapping[K, Contrast]) -> dict[K, Contrast]:
    """Returns contrasts of the same trained weights with the scatter between seeds of them all."""
    return dict(zip(asked, alike([*asked.values()]), strict=True))


def falls(asked: LengthScores) -> dict[str, Claim]:
    """Asks of each model whether, in some haystack, it loses more than half at twice the training length, and at the
    longest one that was asked."""
    made = {}
    for times in asked.multiples:
        losses = {end: asked.falls(times * asked.trained, end) for end in asked.haystacks}
        for model in asked.models:
            mine = {end: found[model] for end, found in losses.items() if model in found}
            made[FALL.format(times, model)] = _fall(asked, model, times * asked.trained, mine)
    return made


def told_falls(asked: LengthScores, findings: Sequence[Finding], word: str = "haystack") -> str:
    """Tells in a first line how many models fall, and then, a line for each multiple, which; numbers are left out.

    word: what the task calls a haystack."""
    counts, lines = [], []
    for times in asked.multiples:
        names = {FALL.format(times, model): model for model in asked.models}
        mine = [replace(finding, subject=names[finding.subject]) for finding in findings if finding.subject in names]
        able = [finding for finding in mine if finding.seen]
        lose, keep = (sum(finding.decided == sign for finding in able) for sign in (1, -1))
        counts.append(
            f"at {times} times the training length {lose} of {len(able)} models are shown to lose more than half in "
            f"some {word} and {keep} to keep half in each"
        )
        lines.append(f"More than half lost at {times} times the length? {brief(mine)}")
    head = "; ".join(counts)
    return "\n".join([f"{head[0].upper()}{head[1:]}.", *lines])


def _fall(asked: LengthScores, model: str, length: int, losses: Mapping[str, Contrast]) -> Claim:
    if not losses:
        return Claim(None, f"{model} was not asked at {asked.trained} and {length} steps.")
    worst = max(losses, key=lambda haystack: _beyond(losses[haystack]))
    scores = [f"{asked.cell(model, steps, worst)} at {steps}" for steps in (asked.trained, length)]
    guessed = f", where guessing has {asked.floor(length, worst):.0f} %" if asked.guess else ""
    facts = f"{model}{_among(worst)}: {scores[0]} steps, {scores[1]}{guessed}."
    if not asked.able(model):
        return Claim(None, f"{facts} It has not learnt the task.")
    return Claim(some([*losses.values()]), facts)


def middles(asked: LengthScores, *, beyond: bool) -> dict[str, Claim]:
    """Asks of each model whether the middle fifth of the text is MIDDLE points below the first and below the last.

    beyond: over the lengths beyond that of training (huang2024, table 3), not at that one (table 2). Empty where rows
    do not tell depths apart.
    """
    lengths, name = (asked.farther, "beyond it") if beyond else ([asked.trained], "at the training length")
    parts = {model: [fifth(asked, model, lengths, tenths) for tenths in FIFTHS] for model in asked.models}
    whole = {model: [part for part in fifths if part] for model, fifths in parts.items() if all(fifths)}
    able = {model: fifths for model, fifths in whole.items() if asked.able(model)}
    above = [
        together({model: contrast(((1.0, fifths[end]), (-1.0, fifths[1])), MIDDLE) for model, fifths in able.items()})
        for end in (0, 2)
    ]
    return {
        f"the middle is lost {name} ({model})": _middle(f"{model} {name}", fifths, [each[model] for each in above])
        if model in able
        else _unlearnt(model)
        for model, fifths in whole.items()
    }


def fifth(asked: LengthScores, model: str, lengths: Sequence[int], tenths: Sequence[int]) -> Seeds | None:
    """The share found among all needles of some lengths and tenths of the text; None where there are none."""
    cells = [cell for n in lengths for tenth in tenths if (cell := asked.cell(model, n, f",depth={tenth}"))]
    if not cells:
        return None
    cells = aligned(cells)
    counts = [cell.examples or 1 for cell in cells]
    seeds = zip(*(cell.values for cell in cells), strict=True)
    values = tuple(sum(map(mul, counts, values)) / sum(counts) for values in seeds)
    return Seeds(values, sum(counts), numbers=cells[0].numbers)


def _middle(name: str, fifths: Sequence[Seeds], above: Sequence[Contrast]) -> Claim:
    """Tells the fifths, the first, the middle and the last. above: whether the two ends are far enough above it."""
    first, middle, last = fifths
    spans = [str(replace(each, against=0.0).span() or "too few seeds for an interval") for each in above]
    facts = (
        f"{name}: first fifth {first}, middle {middle}, last {last}. "
        f"First less middle: {spans[0]}; last less middle: {spans[1]}."
    )
    return Claim(Every(tuple(above)), facts)


def lost(first: Seeds, middle: Seeds, last: Seeds) -> Question:
    """Whether the middle is MIDDLE points below either end, of scores that are of no seeds."""
    return Every(tuple(difference(end, middle, MIDDLE) for end in (first, last)))


def haystacks(asked: LengthScores, word: str = "haystack") -> dict[str, Claim]:
    """Asks of each model whether some haystack beyond the training length is still easier than another at it. Empty of
    a single haystack.

    That is so where the haystack changes scores more than the length does, both as main effects in these two haystacks;
    so it cannot be where no haystack is hard at the training length, whatever happens beyond it. word: what the task
    calls a haystack."""
    ends, lengths = asked.haystacks, (asked.trained, *asked.farther)
    found = {model: {(n, end): asked.cell(model, n, end) for n in lengths for end in ends} for model in asked.models}
    whole = {model: {k: c for k, c in cells.items() if c} for model, cells in found.items() if all(cells.values())}
    read = {model: _Read.of(cells, asked) for model, cells in whole.items() if asked.able(model)}
    apart = {
        pair: together({model: mine.above(*pair) for model, mine in read.items()}) for pair in permutations(ends, 2)
    }
    return {
        EASIER.format(word, model): _compared(
            f"{model} {_names(asked)}", read[model], {pair: above[model] for pair, above in apart.items()}
        )
        if model in read
        else _unlearnt(model)
        for model in whole
        if len(ends) > 1
    }


@dataclass(frozen=True)
class _Read:
    """Scores of one model by length and haystack, each of the same seeds."""

    cells: Mapping[tuple[int, str], Seeds]
    asked: LengthScores

    @classmethod
    def of(cls, cells: Mapping[tuple[int, str], Seeds], asked: LengthScores) -> _Read:
        return cls(dict(zip(cells, aligned([*cells.values()]), strict=True)), asked)

    def near(self, end: str) -> Seeds:
        return self.cells[self.asked.trained, end]

    def far(self, end: str) -> Contrast:
        """The mean over lengths beyond that of training."""
        lengths = self.asked.farther
        return Contrast(tuple((1 / len(lengths), self.cells[n, end]) for n in lengths))

    def above(self, easy: str, hard: str) -> Contrast:
        """How far one haystack, beyond the training length, is above another at it."""
        lengths = self.asked.farther
        far = [(1 / len(lengths), n, easy, self.cells[n, easy]) for n in lengths]
        return self.asked.corrected([*far, (-1.0, self.asked.trained, hard, self.near(hard))])


def _compared(name: str, read: _Read, apart: Mapping[tuple[str, str], Contrast]) -> Claim:
    """Tells the two haystacks that speak most for a yes. apart: how far the first, beyond the training length, is above
    the second at it, for each pair of haystacks."""
    if not all(cell.values for cell in read.cells.values()):
        return Claim(None, f"{name}: no seed has a score in every haystack at every length.")
    (easy, hard), most = max(apart.items(), key=lambda item: _beyond(item[1]))
    far, near = read.far(easy), Contrast(((1.0, read.near(hard)),))
    facts = (
        f"{name}: {_percent(far)}{_among(easy)}; at the training length {_percent(near)}{_among(hard)}: "
        f"{most.span() or 'too few seeds for an interval'} between the two, corrected for guessing."
    )
    return Claim(some([*apart.values()]), facts)


def _beyond(asked: Contrast) -> float:
    """How far a question is beyond its limit, which is another in each haystack, as guessing is."""
    return asked.value - asked.against


def _percent(score: Contrast) -> str:
    return score.told(f"{score.value:.1f} %")


def _names(asked: LengthScores) -> str:
    lengths = [str(length) for length in asked.farther]
    return f"at {', '.join(lengths[:-1])} and {lengths[-1]} steps" if len(lengths) > 1 else f"at {lengths[0]} steps"


def _name(end: str) -> str:
    return end.partition("=")[2] or end


def _unlearnt(model: str) -> Claim:
    return Claim(None, f"{model} has not learnt the task.")


def farther(asked: LengthScores) -> str:
    """Describes, haystack by haystack, who loses more than half from which length on; no answers."""
    learnt = set(asked.learnt)
    seen = {
        (model, haystack, length): fall.seen()
        for haystack in asked.haystacks
        for length in asked.farther
        for model, fall in asked.falls(length, haystack).items()
        if model in learnt
    }
    return f"As it stands, more than half is lost {_first(seen)}."


def _first(answers: Mapping[tuple[str, str, int], int]) -> str:
    """Haystack by haystack, the models for which the answer is yes, by the first length where it is."""
    firsts: dict[tuple[str, str], int] = {}
    for (model, haystack, length), answer in answers.items():
        if answer > 0:
            firsts.setdefault((haystack, model), length)
    parts = []
    for haystack in sorted({haystack for haystack, _ in firsts}):
        found = {model: length for (where, model), length in firsts.items() if where == haystack}
        starts = [
            f"from {length} steps on by {', '.join(model for model in found if found[model] == length)}"
            for length in sorted(set(found.values()))
        ]
        parts.append(f"{_among(haystack)} {' and '.join(starts)}".strip())
    return "; ".join(parts) or "by none"


def _among(haystack: str) -> str:
    return f" among {_name(haystack)}" if haystack else ""


def brief(findings: Sequence[Finding]) -> str:
    """The verdict without the numbers, which a page of findings has."""
    return told([replace(finding, facts="") for finding in findings]).strip() if findings else ""
