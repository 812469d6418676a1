"""Decides which differences between arms are more than noise, at a false-alarm rate that holds for a whole report.

    a, b = Seeds((58.1, 59.6, 60.2), examples=2000), Seeds((47.9, 48.3, 50.0), examples=2000)
    holm({"s4 over attention": difference(a, b), "level": difference(a, b, 5.0)})
    # {"s4 over attention": 1, "level": 1}      1: more, -1: less, 0: not decided

Two things make scores differ by luck, and both are counted: seeds, by a t-test for unequal variances, none of which is
taken to be below that of all arms together, and test examples, of arms that answered the same ones together
(`same_examples`), else by Wilson's interval. A report asks several questions;
Holm's rule keeps the chance of a single wrong answer among all of them below 5 %. docs/verdicts.md states the rates,
which `benchmarks/false_alarms.py` simulates, and what so few seeds can see.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean, median, variance
from typing import Protocol, TypeVar

from levelfield.report.intervals import wilson
from levelfield.report.links import Terms, computed, marked
from levelfield.report.same_examples import Right, reach
from levelfield.report.scatter import UNKNOWN, Scatter
from levelfield.spec.quantiles import t_quantile, z_quantile

ALPHA = 0.025
"""The significance level of a whole report. A t-test with three seeds and very unequal spreads can err twice as
often as its nominal level (docs/verdicts.md), so half of 5 % is taken."""

FEWEST = 3
"""Seeds of an arm that can decide anything. Two of a model that learns half of the time are alike half of the time, and
two of a quiet one see only differences of thirty standard deviations."""

SPAN = 0.05
"""Of the intervals that stand beside a question: each is of 95 % and of that question alone."""

GRID = 20  # degrees of freedom are rounded down to a twentieth, so that quantiles are looked up


@dataclass(frozen=True)
class Seeds:
    """Scores of one arm in percent, one per seed, in the order of seeds.

    numbers: those of the seeds, where they are known. diverged: how many of them ended without a finite score, and
    count as guessing. examples: independent test examples that each score amounts to, where it is a share. stderr: over
    examples, in points, where it is none. trained: False for what has no other seeds, such as a checkpoint or a simple
    rule. steady: False where some seeds have learnt and others have not, so that they do not scatter like a bell.
    right: which test examples each seed has right, where that is known. anchor: where a page has the rows, to which the
    text of the scores leads.
    """

    values: tuple[float, ...]
    examples: float | None = None
    stderr: float | None = None
    trained: bool = True
    steady: bool = True
    numbers: tuple[int, ...] = ()
    diverged: int = 0
    right: Right | None = field(default=None, compare=False, repr=False)
    anchor: str = field(default="", compare=False)

    @cached_property
    def mean(self) -> float:
        return fmean(self.values) if self.values else math.nan

    @property
    def median(self) -> float:
        return median(self.values) if self.values else math.nan

    @cached_property
    def variance(self) -> float:
        """Between seeds; 0 for a single one."""
        return variance(self.values) if len(self.values) > 1 else 0.0

    def __str__(self) -> str:
        """Returns "41.3 % (40.9 to 44.0 over 3 seeds)", marked where a page has its rows."""
        if not self.values:
            return "no score"
        text = f"{self.median:.1f} %"
        if len(self.values) > 1:
            text += f" ({min(self.values):.1f} to {max(self.values):.1f} over {len(self.values)} seeds{self._lost})"
        alone = f" with one seed{self._lost}" if self.trained and len(self.values) < 2 else ""
        return marked(text + alone, self.anchor)

    @property
    def _lost(self) -> str:
        return f", of which {self.diverged} diverged and count as guessing" if self.diverged else ""

    def only(self, numbers: Collection[int]) -> Seeds:
        """Returns the arm with the seeds of these numbers alone."""
        kept = [place for place, number in enumerate(self.numbers) if number in numbers]
        values, own = (tuple(each[place] for place in kept) for each in (self.values, self.numbers))
        return replace(self, values=values, numbers=own, right=self.right and self.right.only(kept))

    def reach(self, alpha: float, up: bool) -> float:
        """Returns how far the upper or lower limit over test examples lies from the mean, in points; 0 where
        unknown."""
        if self.examples:
            share = min(1.0, max(0.0, self.mean / 100))
            return 100 * abs(wilson(share, self.examples, alpha)[up] - share)
        return z_quantile(alpha) * (self.stderr or 0.0)


@dataclass(frozen=True)
class Span:
    """How far a question is beyond its limit, in points: what was measured, and the ends of an interval.

    terms: weights and anchors of what it is the sum of, where a page has the rows.
    """

    value: float
    low: float
    high: float
    terms: Terms = field(default=(), compare=False)

    def __str__(self) -> str:
        """Returns "+3.1 points (95 % interval +1.0 to +5.2)", marked where a page has its rows."""
        text = f"{self.value:+z.1f} points ({1 - SPAN:.0%} interval {self.low:+z.1f} to {self.high:+z.1f})"
        return marked(text.replace("%", " %"), computed(self.terms))


class Question(Protocol):
    """Something that scores may answer."""

    def decide(self, level: float) -> int:
        """1 for more, -1 for less, 0 for neither: wrong in no more than this share of cases."""
        ...

    def seen(self) -> int:
        """1 or -1: what the numbers say where each is taken as exact; 0 where there are none."""
        ...

    def span(self) -> Span | None:
        """The interval of this question alone; None where no one number answers it, or too few seeds."""
        ...


@dataclass(frozen=True)
class Contrast:
    """Whether a weighted sum of arms' means is above or below a number, in points.

    scatter: a lower bound on the standard deviation between seeds: that of all arms of the task, or where arms are
    paired of the same contrast of all models. Two seeds of a model that learns half of the time are often alike; other
    arms say that they need not be. How well it is known, from all of them, says how far a mean of few seeds may be off.
    paired: the arms are the same trained models in several places: each seed is compared with itself (`same_weights`).
    """

    terms: tuple[tuple[float, Seeds], ...]
    against: float = 0.0
    scatter: Scatter = UNKNOWN
    paired: bool = False

    @property
    def value(self) -> float:
        """NaN where an arm has no score, such as one without a seed in common with the others."""
        return sum(weight * arm.mean for weight, arm in self.terms)

    @property
    def by_seed(self) -> tuple[float, ...]:
        """The weighted sum of each seed; of paired arms."""
        trained = [[weight * value for value in arm.values] for weight, arm in self.terms if arm.trained]
        return tuple(map(sum, zip(*trained, strict=True)))

    @property
    def led(self) -> Terms:
        """Weights and anchors of the arms; () where a page does not have the rows of all of them."""
        terms = tuple((weight, arm.anchor) for weight, arm in self.terms)
        return terms if all(anchor for _, anchor in terms) else ()

    @property
    def shown(self) -> str:
        """The value as "+3.1", see `told`."""
        return self.told(f"{self.value:+z.1f}")

    def told(self, text: str) -> str:
        """Returns a text about the value, marked where a page has its rows."""
        return marked(text, computed(self.led))

    def seen(self) -> int:
        if math.isnan(self.value):
            return 0
        return 1 if self.value > self.against else -1

    def decide(self, level: float) -> int:
        if self._few:
            return 0
        apart = self.value - self.against
        beyond = abs(apart) > self._limit(level, up=apart < 0)
        answer = (1 if apart > 0 else -1) if beyond else 0
        return answer if self._steady or self._separate(level) == answer else 0

    def span(self) -> Span | None:
        if self._few or not self._steady:
            return None
        (down, up), apart = (self._limit(SPAN, up=up) for up in (False, True)), self.value - self.against
        limit = ((-self.against, ""),) if self.against and self.led else ()
        return Span(apart, apart - down, apart + up, self.led + limit)

    @property
    def _few(self) -> bool:
        return any(len(arm.values) < (FEWEST if arm.trained else 1) for _, arm in self.terms)

    @property
    def _steady(self) -> bool:
        return self.paired or all(arm.steady for _, arm in self.terms)

    def _limit(self, level: float, *, up: bool) -> float:
        """How far the truth may lie above the value, or else below it, over seeds and over test examples together."""
        return math.hypot(self.over_seeds(level) if self._steady else 0.0, *self._over_examples(level, up=up))

    def _over_examples(self, level: float, *, up: bool) -> Iterator[float]:
        """Yields how far the test examples may be off, of the arms of one exam together, of others each by itself."""
        exams: dict[object, list[tuple[float, Seeds]]] = {}
        for place, (weight, arm) in enumerate(self.terms):
            exams.setdefault(arm.right.exam if arm.right and arm.examples else place, []).append((weight, arm))
        for terms in exams.values():
            if len(terms) > 1:
                fewest = min(arm.examples or 0.0 for _, arm in terms)
                yield reach([(weight, arm.right) for weight, arm in terms if arm.right], fewest, level, up=up)
            else:
                yield from (weight * arm.reach(level, up=(weight > 0) == up) for weight, arm in terms)

    def over_seeds(self, level: float) -> float:
        """Returns half of the interval over seeds alone: Welch's t, or Student's where seeds are paired."""
        trained = [(weight, arm) for weight, arm in self.terms if arm.trained]
        if self.paired:
            trained = [(1.0, Seeds(self.by_seed))]
        least, known = self.scatter.deviation**2, self.scatter.degrees
        parts = [
            (weight**2 * max(arm.variance, least) / n, max(n - 1, known if arm.variance <= least else 0))
            for weight, arm in trained
            for n in (len(arm.values),)
        ]
        total = sum(part for part, _ in parts)
        if not total:
            return 0.0
        degrees = total**2 / sum(part**2 / count for part, count in parts)
        return t_quantile(level, max(1.0, math.floor(GRID * degrees) / GRID)) * math.sqrt(total)

    def _separate(self, level: float) -> int:
        """All seeds of one arm above all of the other, with enough of them; exact where both arms have one law."""
        signs = dict(self.terms)
        if len(self.terms) != 2 or signs.keys() != {1, -1}:
            return 0
        own, other = signs[1], signs[-1]
        if 2 / math.comb(len(own.values) + len(other.values), len(own.values)) > level:
            return 0
        above = min(own.values) - max(other.values) > self.against
        below = max(own.values) - min(other.values) < self.against
        return above - below


def difference(first: Seeds, second: Seeds, against: float = 0.0, scatter: Scatter = UNKNOWN) -> Contrast:
    """Whether the first is above the second by more than `against` points, or by less."""
    return Contrast(((1.0, first), (-1.0, second)), against, scatter)


def resolution(one: Seeds, other: Seeds, scatter: Scatter, questions: int) -> float:
    """How far apart, in points, the means of two arms have to be for the rule to tell them apart.

    scatter: between seeds, of all arms of the task. questions: how many are asked together, the first of which Holm's
    rule holds to `ALPHA` divided by their number. Infinite where an arm has too few seeds to decide anything, or some
    that have learnt and others that have not, so that no difference of means does.
    """
    asked = difference(one, other, scatter=scatter)
    limits = (asked._limit(ALPHA / questions, up=up) for up in (False, True))
    return max(limits) if asked._steady and not asked._few else math.inf


@dataclass(frozen=True)
class Flipped:
    """The same question the other way round."""

    part: Question

    def decide(self, level: float) -> int:
        return -self.part.decide(level)

    def seen(self) -> int:
        return -self.part.seen()

    def span(self) -> Span | None:
        found = self.part.span()
        turned = tuple((-weight, anchor) for weight, anchor in found.terms) if found else ()
        return found and Span(-found.value, -found.high, -found.low, turned)


@dataclass(frozen=True)
class Every:
    """More where every part is more, which costs nothing; less where some part is less, of which there are several.

    Raises ValueError without parts, as nothing would be more.
    """

    parts: tuple[Question, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("Every() asks nothing: give one question or more.")

    def decide(self, level: float) -> int:
        if all(part.decide(level) > 0 for part in self.parts):
            return 1
        return -1 if any(part.decide(level / len(self.parts)) < 0 for part in self.parts) else 0

    def seen(self) -> int:
        return min(part.seen() for part in self.parts)

    def span(self) -> Span | None:
        return self.parts[0].span() if len(self.parts) == 1 else None


@dataclass(frozen=True)
class AtMost:
    """The same question of an arm that has not learnt, or has lost: it can be found worse, but never better."""

    part: Question

    def decide(self, level: float) -> int:
        return min(0, self.part.decide(level))

    def seen(self) -> int:
        return -1

    def span(self) -> Span | None:
        return self.part.span()


@dataclass(frozen=True)
class Silent:
    """A question that the scores do not allow to be asked: it is never decided."""

    def decide(self, level: float) -> int:
        return 0

    def seen(self) -> int:
        return 0

    def span(self) -> Span | None:
        return None


def some(parts: Sequence[Question]) -> Question:
    """More where some part is more; less where every part is less."""
    return Flipped(Every(tuple(Flipped(part) for part in parts)))


@dataclass(frozen=True)
class Narrower:
    """More where two arms come closer and the one that was behind has not lost, less where they come apart.

    before, after: the two arms. The gap shrinks where (before - after) and (before + after) have one sign. Where both
    lose, and the one ahead the most, nothing has been brought nearer to it: that is never found to be more.
    """

    before: tuple[Seeds, Seeds]
    after: tuple[Seeds, Seeds]
    scatter: Scatter = UNKNOWN

    def _both(self) -> tuple[Contrast, Contrast]:
        (a, b), (c, d) = self.before, self.after
        less = Contrast(((1, a), (-1, b), (-1, c), (1, d)), 0.0, self.scatter)
        more = Contrast(((1, a), (-1, b), (1, c), (-1, d)), 0.0, self.scatter)
        return less, more

    def _lost(self) -> bool:
        behind = min((0, 1), key=lambda arm: self.before[arm].mean)
        return self.after[behind].mean < self.before[behind].mean

    def decide(self, level: float) -> int:
        less, more = (contrast.decide(level) for contrast in self._both())
        return min(0, less * more) if self._lost() else less * more

    def seen(self) -> int:
        less, more = (contrast.value for contrast in self._both())
        return 1 if less * more > 0 and not self._lost() else -1

    def span(self) -> Span | None:
        """Returns by how many points the distance shrinks: the lesser of the two is that, whoever is ahead after."""
        (a, b), both = self.before, self._both()
        spans = [(each if a.mean > b.mean else Flipped(each)).span() for each in both]
        return min((span for span in spans if span), key=lambda span: span.value, default=None)


K = TypeVar("K", bound=Hashable)


def holm(questions: Mapping[K, Question], alpha: float = ALPHA) -> dict[K, int]:
    """What is decided, so that in at most `alpha` of all reports something is decided wrongly (Holm, 1979)."""
    decided: dict[K, int] = {}
    while open_ := [key for key in questions if key not in decided]:
        new = {key: answer for key in open_ if (answer := questions[key].decide(alpha / len(open_)))}
        if not new:
            break
        decided |= new
    return {key: decided.get(key, 0) for key in questions}
