"""Reads the rows of an audit into what the page, the verdict and the ranking ask for.

found = Reading.of(rows)
found.shares["window9"]         # Share(0.97, 0.93, 1.0, "window", "9")
found.enough                    # (9, 5, 17): the window that has 95 %, and the least and the most that it may be

Of rows that know their lines on a page (`plain_lists`) every number knows where it leads, so that the sentences made of
them are full of links there, and plain text anywhere else.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from levelfield.report.audit.shares import FEWEST, FEWEST_GROUPS, FREE, RULE, WINDOW
from levelfield.report.links import marked
from levelfield.report.plain_lists import anchor_of
from levelfield.spec import SPLITS, Row

GRAMS = "-grams"  # how the names of rules end that count runs of so many symbols
PLACES, SHOWN = "positions", "shown"
FAR = (PLACES, SHOWN)  # rules that may know what is far away
LATEST = "latest "  # how those begin that know so many symbols, up to that of the step with an answer
MOST = 0.95  # share that counts as all
NEAR = 0.8  # share that a model which sees everything needs, for windows to be compared with it
Key = tuple[str, str, str]
"""A fact: metric, split, place."""
ALIKE = {"equal_groups": "equally large groups", "equal_inputs": "equally frequent inputs"}
"""What test examples have in common, of which a fact says how many they amount to."""
GUESSING, LEARNABLE = ("guessing", "test", ""), ("learnable", "test", "")


class Number(NamedTuple):
    """A value with its 95 % interval, the arm that it is of, and where a page has its row."""

    value: float
    low: float
    high: float
    kind: str = ""
    place: str = ""
    anchor: str = ""

    def percent(self) -> str:
        """Returns a share as "97 % (93 to 100)"."""
        return self.led(f"{100 * self.value:z.0f} % ({100 * self.low:z.0f} to {100 * self.high:z.0f})")

    def score(self, digits: int = 0) -> str:
        """Returns a score as "97 % (93 to 99.6)"."""
        value, low, high = (percent(each, digits) for each in (self.value, self.low, self.high))
        return self.led(f"{value} % ({low} to {high})")

    def plain(self) -> str:
        """Returns it as "-0.31 (-0.33 to -0.29)"."""
        return self.led(f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})")

    def led(self, text: str) -> str:
        """Returns a text about this number, which leads to its row."""
        return marked(text, self.anchor)


def percent(value: float, digits: int = 0) -> str:
    """Returns a score of 0 to 1 in percent: "97"; "99.6" of what is nearly all, since "100" is no error at all."""
    if 0.995 <= value < 1:
        return f"{math.floor(1_000 * value) / 10:.1f}"
    return f"{100 * value:z.{digits}f}"


class Guess(NamedTuple):
    """What guessing scores on other examples than all of test, how many they are, and the row of it."""

    guessing: float = 0.0
    tested: int = 0
    anchor: str = ""

    def led(self, text: str) -> str:
        """Returns a text about guessing, which leads to its row."""
        return marked(text, self.anchor)


class Window(NamedTuple):
    """The steps of the narrowest window that has a share of MOST, and the least and most that its interval leaves; inf
    where no window that was tried has it. Where a range is proved, all three are one step more than that."""

    steps: float
    least: float
    most: float


@dataclass(frozen=True)
class Reading:
    """What the rows of one audit say.

    facts: (metric, split, place) -> number. scores, shares: by arm, in the order of rows; shares are empty where
    nothing is learnable. validation: the mean score of each arm there. reference: the arm that is best on validation.
    one_answer: what always giving the one answer scores that is best on these very test examples, -inf where unknown.
    anchors: where a page has the rows of facts, of guessing and of what is learnable. unleaked: by arm, scores on the
    test examples that are not in train too, and fresh: what guessing scores there; empty where all are such. folds: by
    rule, scores of five-fold cross-validation on all examples, and folded: what guessing scores there; empty where the
    data bring a test split. surely: the best of these rules, where it is shown to be above guessing. later: of rules
    that know the latest few steps, what they score after so many, and commonest: what the commonest label does.
    """

    task: str
    effort: str
    facts: Mapping[Key, float]
    scores: Mapping[str, Number]
    shares: Mapping[str, Number]
    validation: Mapping[str, float]
    guessing: float
    tested: int
    learnable: bool
    reference: str
    one_answer: float = -math.inf
    anchors: Mapping[Key, str] = field(default_factory=dict)
    unleaked: Mapping[str, Number] = field(default_factory=dict)
    fresh: Guess = field(default_factory=Guess)
    folds: Mapping[str, Number] = field(default_factory=dict)
    folded: Guess = field(default_factory=Guess)
    surely: str = ""
    later: Mapping[str, Number] = field(default_factory=dict)
    commonest: Mapping[str, Number] = field(default_factory=dict)

    @staticmethod
    def of(rows: Iterable[Row]) -> Reading:
        """Returns what the rows say; ValueError where they are of no audit."""
        rows = list(rows)
        facts = {_key(row): row for row in rows if row.get("model") == "data"}
        learnable = next((row for row in rows if row.get("metric") == "learnable"), None)
        guesses = {row.get("metric"): row for row in rows if row.get("model") == "guessing"}
        guessing = guesses.get("score")
        if learnable is None or guessing is None:
            raise ValueError("these rows are of no audit, or of one that has not finished")
        return Reading(
            task=learnable.get("task", ""),
            effort=learnable.get("effort", ""),
            facts={key: row.get("value", 0.0) for key, row in facts.items()},
            scores=_numbers(rows, "score"),
            shares=_numbers(rows, "share"),
            validation={_model(row): row.get("value", 0.0) for row in rows if row.get("metric") == "validation"},
            guessing=guessing.get("value", 0.0),
            tested=learnable.get("n", 0),
            learnable=bool(learnable.get("value")),
            reference=learnable.get("model", ""),
            one_answer=guesses.get("one_answer", Row()).get("value", -math.inf),
            anchors={key: anchor_of(row) for key, row in facts.items()}
            | {GUESSING: anchor_of(guessing), LEARNABLE: anchor_of(learnable)},
            unleaked=_numbers(rows, "unleaked"),
            fresh=_guess(guesses.get("unleaked", Row())),
            folds=_numbers(rows, "folds"),
            folded=_guess(guesses.get("folds", Row())),
            surely=next((_model(r) for r in rows if r.get("metric") == "folds_learnt" and r.get("value")), ""),
            later=_numbers(rows, "later"),
            commonest={_model(row): _number(row, row, row) for row in rows if row.get("metric") == "later_commonest"},
        )

    @property
    def metric(self) -> str:
        """What scores are: accuracies, F1 of sets of labels, or minus squared errors."""
        if not self.in_percent:
            return "negative squared error"
        return "F1" if ("labels", "test", "") in self.facts else "accuracy"

    @property
    def in_percent(self) -> bool:
        """Whether scores are shares of 1: of minus squared errors guessing has one below 0."""
        return self.guessing >= 0

    @property
    def learnt(self) -> float:
        """What the reference has of all that lies between guessing and no error at all."""
        perfect = 1.0 if self.in_percent else 0.0
        return (self.scores[self.reference].value - self.guessing) / ((perfect - self.guessing) or 1.0)

    @property
    def matched(self) -> bool:
        """Whether some model that sees everything has learnt nearly as much as the best that was tried."""
        return any(share.value >= NEAR for share in self.of_kind(FREE).values())

    @property
    def settled(self) -> bool:
        """Whether nothing that is learnt from further away could matter: a model that sees everything has learnt nearly
        as much as windows did, or models were trained and nearly nothing is left to learn."""
        return self.matched or (self.trained and self.learnt >= MOST)

    @property
    def trained(self) -> bool:
        """Whether any model was trained, beside the rules that need none."""
        return any(number.kind != RULE for number in self.scores.values())

    @property
    def at_steps(self) -> bool:
        """Whether rules are scored at steps that have answers of their own, where windows are not pooled."""
        return any(name.startswith(LATEST) for name in self.scores)

    @property
    def too_small(self) -> bool:
        """Whether there are too few test examples, or of too few groups, for any claim."""
        return self.tested < FEWEST or (bool(self.alike) and self.fact(self.alike, "test") < FEWEST_GROUPS)

    @property
    def alike(self) -> str:
        """The fact that says to how many groups or inputs the test examples amount; "" where each stands by itself."""
        return next((name for name in ALIKE if (name, "test", "") in self.facts), "")

    @property
    def cut(self) -> float:
        """The sequences of which only the first `longest` steps were read."""
        return self.fact("cut")

    @property
    def longest(self) -> float:
        """The most steps of a sequence as it was read."""
        return max(self.fact("steps", split, "most") for split in SPLITS)

    def fact(self, metric: str, split: str = "all", place: str = "") -> float:
        """Returns a fact; 0 where there is none."""
        return self.facts.get((metric, split, place), 0.0)

    def led(self, text: str, metric: str, split: str = "all", place: str = "") -> str:
        """Returns a text about a fact, which leads to its row."""
        return marked(text, self.anchors.get((metric, split, place), ""))

    def of_kind(self, kind: str) -> dict[str, Number]:
        """Returns the shares of arms of one kind, in their order."""
        return {name: share for name, share in self.shares.items() if share.kind == kind}

    @property
    def windows(self) -> list[tuple[int, Number]]:
        """What windows have, by their steps: models and rules that see no more."""
        models = [(int(share.place), share) for share in self.of_kind(WINDOW).values()]
        rules = [(steps, share) for name, share in self.of_kind(RULE).items() if (steps := width(name))]
        return sorted(models + rules, key=lambda each: (each[0], -each[1].value))

    @property
    def proved(self) -> float:
        """The certified range: no window of so many steps tells anything, and one of a step more suffices; 0 where
        none is certified."""
        return self.fact("certified_range")

    @property
    def enough(self) -> Window:
        """The narrowest window that has MOST of what is learnable, by proof where there is one."""
        if self.proved:
            return Window(*[self.proved + 1] * 3)
        value, high, low = (self._first(which)[0] for which in ("value", "high", "low"))
        return Window(value, high, low)

    @property
    def narrowest(self) -> Number:
        """The share of the narrowest window that has MOST."""
        return self._first("value")[1]

    @property
    def between(self) -> tuple[Number, Number]:
        """The shares that say which window may be enough at least, and which at most."""
        return self._first("high")[1], self._first("low")[1]

    def _first(self, end: str) -> tuple[float, Number]:
        """Returns the steps and the share of the narrowest window of which this end is MOST; the widest one, and inf
        for its steps, where none is."""
        windows = self.windows
        found = [each for each in windows if getattr(each[1], end) >= MOST]
        return found[0] if found else (math.inf, windows[-1][1] if windows else Number(math.nan, math.nan, math.nan))

    @property
    def simplest(self) -> str:
        """The first rule, from simple to less so, that has MOST and whose interval stays above 80 %; "" for none."""
        return next(iter(self.sufficient), "")

    @property
    def sufficient(self) -> list[str]:
        """All rules, from simple to less so, that have MOST and whose intervals stay above 80 %."""
        rules = self.of_kind(RULE)
        return [name for name, share in rules.items() if share.value >= MOST and share.low >= 0.8]

    def best_rule(self, among: Collection[str] = ()) -> str:
        """Returns the rule that is best on validation, of all or of some, so that its score and its interval on test
        are those of no choice; "" where there is none."""
        rules = [name for name, number in self.scores.items() if number.kind == RULE and (not among or name in among)]
        return max(rules, key=lambda name: self.validation.get(name, self.scores[name].value), default="")

    @property
    def beyond(self) -> bool:
        """Whether no window has MOST, by intervals as well, where most sequences are longer than the widest one."""
        lacking = max((share.high for _, share in self.windows), default=math.inf) < MOST
        return lacking and self.fact("steps", "test", "median") > self.widest

    def far(self, rule: str) -> bool:
        """Whether a rule may know what is far away: the places of steps, or half of a sequence from one end."""
        return rule in FAR or 2 * _end(rule) >= (self.fact("steps", "test", "median") or math.inf)

    @property
    def widest(self) -> float:
        """Steps of the widest window that was tried."""
        return max((float(share.place) for share in self.scores.values() if share.kind == WINDOW), default=0)


def _end(rule: str) -> int:
    """Returns how many first or last steps of a sequence a rule knows; 0 where it is none of these."""
    end, _, steps = rule.partition(" ")
    return int(steps) if end in ("first", "last") else 0


def width(rule: str) -> int:
    """Returns the steps of the window that a rule sees: n for counts of n-grams and for the latest n symbols; 0 for
    what is no window."""
    if rule.endswith(GRAMS):
        return int(rule.removesuffix(GRAMS))
    return int(rule.removeprefix(LATEST)) if rule.startswith(LATEST) else 0


def _key(row: Row) -> Key:
    return row.get("metric", ""), row.get("split", ""), row.get("at", "").partition("=")[2]


def _model(row: Row) -> str:
    return row.get("model", "")


def _guess(row: Row) -> Guess:
    return Guess(row.get("value", 0.0), row.get("n", 0), anchor_of(row))


def _numbers(rows: Iterable[Row], metric: str) -> dict[str, Number]:
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        name, kind = _model(row), row.get("metric", "")
        if kind in (metric, f"{metric}_low", f"{metric}_high") and "at" in row:
            found.setdefault(name, {})[kind] = row
    return {name: _number(each[metric], each[f"{metric}_low"], each[f"{metric}_high"]) for name, each in found.items()}


def _number(row: Row, low: Row, high: Row) -> Number:
    kind, _, place = row.get("at", "").partition("=")
    value, least, most = (each.get("value", 0.0) for each in (row, low, high))
    return Number(value, least, most, kind=kind, place=place, anchor=anchor_of(row))
