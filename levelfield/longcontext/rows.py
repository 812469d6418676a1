"""Computes rows from stored answers: scores by task, length and depth, averages, and the lost-in-the-middle gap.

    cells = score_cells(predictions(folder))          # every answer is scored once
    rows_of(cells, "mamba2-2.7b")                     # accuracy and strict_accuracy in percent
    middle_gaps(cells)                                # {("niah_single_2", 4096): Gap(...)}

Scoring needs no model, so stored answers can be scored again when a score changes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean, stdev

from levelfield.longcontext.predictions import WITHHELD, LeftOut, Prediction, Setting
from levelfield.ruler import RULER, Needle, QuestionSet, Score, score, scores_of_references
from levelfield.spec import Row
from levelfield.spec.failure import Failure
from levelfield.spec.gap import Gap, Share
from levelfield.spec.groups import counted

COLUMNS = {"match": "accuracy", "strict": "strict_accuracy"}
WORST_FIRST = ("diverged", "outdated", "partial", "ok")
OF_RULER = frozenset(task.name for task in RULER)
TENTHS = 10
ENDED_THINKING = "(nothing: tokens ran out while it was thinking)"
NO_MARK = re.compile(r"[,;=<]+ *")  # what separates the parts of a location


@dataclass(frozen=True)
class ScoredPrediction:
    """An answer and its scores: of the whole, or of one expected value alone (`at_depths`)."""

    prediction: Prediction
    score: Score

    def percent(self, metric: str) -> float:
        return 100 * getattr(self.score, metric)

    @property
    def in_middle(self) -> bool:
        """Whether its needle lies in the middle third of the text."""
        return 1 / 3 <= self.prediction.depths[0] < 2 / 3

    @property
    def at_depths(self) -> list[tuple[float, ScoredPrediction]]:
        """The answer at the depth of its needle; where several needles are asked for, every value at that of its own.

        [] without needles. A chain of variables is none of several needles: a variable's depth tells its hop, too.
        """
        p, task = self.prediction, self.prediction.ruler_task
        if len(p.depths) == 1:
            return [(p.depths[0], self)]
        if not isinstance(task, Needle) or len(p.depths) != len(p.references):
            return []
        values = scores_of_references(task, p.scored_text, p.references)
        return [(depth, ScoredPrediction(p, value)) for depth, value in zip(p.depths, values, strict=True)]


@dataclass(frozen=True)
class Cell:
    """The answers to one task at one length.

    whole: those of the cell's own score. placed: those of its rows by depth. They differ where needles were placed both
    at chosen depths and at random ones. status, placed_status: of these.
    """

    task: str
    length: int
    whole: Sequence[ScoredPrediction]
    placed: Sequence[ScoredPrediction]
    status: str
    placed_status: str

    @property
    def at(self) -> str:
        return f"length={self.length}"

    @property
    def thirds(self) -> tuple[list[ScoredPrediction], list[ScoredPrediction]]:
        """The answers with the needle in the outer thirds of the text, and those with it in the middle third.

        Both are empty where samples do not have exactly one needle, and where the model's logits were no numbers in all
        samples of one of them.
        """
        if any(len(one.prediction.depths) != 1 for one in self.placed):
            return [], []
        outer = [one for one in self.placed if not one.in_middle]
        middle = [one for one in self.placed if one.in_middle]
        return ([], []) if _broken(outer) or _broken(middle) else (outer, middle)


def failures(cells: Iterable[Cell]) -> list[Failure]:
    """Returns the answers of all cells whose match is below 1."""
    return [
        Failure(
            task=p.task,
            length=p.length,
            sample=p.index,
            depth=p.shown_depths,
            expected=", ".join(p.references),
            answered=ENDED_THINKING if p.ended_thinking else p.scored_text,
            score=one.percent("match"),
            question=p.question,
            reasoning=p.reasoning,
        )
        for cell in cells
        for one in {id(one): one for one in (*cell.whole, *cell.placed)}.values()
        if one.score.match < 1
        for p in (one.prediction,)
    ]


def rows(
    found: Iterable[Prediction], model: str, left: Iterable[LeftOut] = (), positions: int | None = None
) -> list[Row]:
    """Scores answers and returns their rows, see `rows_of`."""
    left = list(left)
    return rows_of(score_cells(found, left), model, left, positions)


def score_cells(found: Iterable[Prediction], left: Iterable[LeftOut] = ()) -> list[Cell]:
    """Scores every answer once, by task and length. A cell is "partial" where samples were skipped."""
    whole: dict[tuple[str, int], list[ScoredPrediction]] = {}
    chosen: dict[tuple[str, int], list[ScoredPrediction]] = {}
    for p in found:
        scored = ScoredPrediction(p, score(p.ruler_task, p.scored_text, p.references))
        (chosen if p.chosen_depth else whole).setdefault((p.base_task, p.length), []).append(scored)
    fewer = {(one.base_task, one.length) for one in left}
    cells = []
    for place, group in {**chosen, **whole}.items():
        placed = chosen.get(place, group)
        status, of_placed = (_status(some, fewer=place in fewer) for some in (group, placed))
        cells.append(Cell(*place, group, placed, status, of_placed))
    return cells


def rows_of(cells: Sequence[Cell], model: str, left: Iterable[LeftOut] = (), positions: int | None = None) -> list[Row]:
    """Computes rows in percent: for every cell, by depth where there are needles, and averages over RULER.

    `accuracy` is RULER's match, `strict_accuracy` the strict score, and `middle_gap` the lost-in-the-middle gap: how
    much better the outer thirds of the text are than the middle third. stderr is over samples, that of an average too,
    whose tasks are fixed and whose n counts answers. Where a sample asks for several needles, rows by depth count
    values, found or not, each at the depth of its own needle; where its needle was put at several depths, n of the cell
    counts its answers at each. Their stderr still is over samples, and n_effective is how many independent answers
    would tell as much. status: "partial" where samples were skipped, "left_out" where all were, "outdated" where
    answers are to prompts of an earlier version, "diverged" where logits were no numbers: such answers count as wrong,
    and where all are such there is no value; an average has the worst status of its tasks. Question sets may have
    further scores of their own, such as `last_line_f1`. `thinking_tokens` is what a model wrote before its answers, on
    average, `ended_thinking` how many answers are empty because tokens ran out while it was thinking, and `withheld`
    how many answers a server's content filter withheld, which are left out. positions: the number that the model was
    made for, where it is known; it is added to every row.
    """
    left = list(left)
    made = [
        row
        for cell in cells
        for metric, column in COLUMNS.items()
        for row in (
            _whole_row(cell, model, metric, column),
            *_depth_rows(cell, model, metric, column),
            *_sliced_rows(cell, model, metric, column),
        )
    ]
    made += [row for cell in cells for row in _other_rows(cell, model)]
    made += _average_rows(cells, model)
    made += _thinking_rows(cells, model)
    withheld = Counter((one.base_task, one.length) for one in left if one.why == WITHHELD)
    made += [_number_row(model, *place, metric="withheld", number=number) for place, number in withheld.items()]
    missing = {(one.base_task, one.length) for one in left} - {(cell.task, cell.length) for cell in cells}
    for name, length in sorted(missing):
        made += [
            row_of(model, name, f"length={length}", metric=column, values=[], status="left_out")
            for column in COLUMNS.values()
        ]
    return made if positions is None else [row | Row(positions=positions) for row in made]


def _whole_row(cell: Cell, model: str, metric: str, column: str) -> Row:
    return _scored_row(model, cell.task, cell.at, metric=metric, column=column, group=cell.whole) | Row(
        status=cell.status
    )


def _depth_rows(cell: Cell, model: str, metric: str, column: str) -> Iterator[Row]:
    """Yields rows by chosen depth (the needle is at the nearest end of a sentence), or else by tenths of the text."""
    status = cell.placed_status
    placed = [one.at_depths for one in cell.placed]
    if not all(placed):
        return
    by_depth: dict[str, list[ScoredPrediction]] = {}
    for depth, one in chain.from_iterable(placed):
        tenth = f"{min(int(depth * TENTHS), TENTHS - 1) / TENTHS:g}"
        by_depth.setdefault(one.prediction.chosen_depth or tenth, []).append(one)
    for depth in sorted(by_depth, key=float):
        at, group = f"{cell.at},depth={depth}", by_depth[depth]
        yield _scored_row(model, cell.task, at, metric=metric, column=column, group=group) | Row(status=status)
    outer, middle = cell.thirds
    if column == "accuracy" and min(len(middle), len(outer)) > 1:
        gap = fmean(one.percent(metric) for one in outer) - fmean(one.percent(metric) for one in middle)
        row = row_of(model, cell.task, cell.at, metric="middle_gap", values=[gap], status=status)
        error = _error_of_gap(outer, middle, metric)
        yield row | Row(n=len(cell.placed)) | (Row() if error is None else Row(stderr=error))


def _error_over_samples(group: Sequence[ScoredPrediction], metric: str) -> float | None:
    """Returns the standard error of the mean of some values in percent over their samples; None where they are of one.

    A sample has several values where its needle was put at several depths, or where several needles were asked for.
    They are not independent, so that what they differ from the mean by is added up for each sample.
    """
    apart = _apart(group, metric)
    count = len(apart)
    return math.hypot(*apart.values()) * math.sqrt(count / (count - 1)) / len(group) if count > 1 else None


def _apart(group: Sequence[ScoredPrediction], metric: str) -> dict[int, float]:
    """Returns by how much the values of each sample differ from the mean of all, in percent, added up."""
    mean = fmean(one.percent(metric) for one in group)
    apart: dict[int, float] = {}
    for one in group:
        number = one.prediction.index
        apart[number] = apart.get(number, 0.0) + one.percent(metric) - mean
    return apart


def _error_of_gap(outer: Sequence[ScoredPrediction], middle: Sequence[ScoredPrediction], metric: str) -> float | None:
    """Returns the standard error of the difference of two means in percent; None where all values are of one sample.

    Where samples have values on both sides, or several on one, what each adds to the difference is taken together.
    """
    here, there = _apart(outer, metric), _apart(middle, metric)
    samples = here.keys() | there.keys()
    count = len(samples)
    if count == len(outer) + len(middle):
        first, second = ([one.percent(metric) for one in group] for group in (middle, outer))
        return math.sqrt(_stderr(first) ** 2 + _stderr(second) ** 2)
    apart = [here.get(one, 0.0) / len(outer) - there.get(one, 0.0) / len(middle) for one in sorted(samples)]
    return math.hypot(*apart) * math.sqrt(count / (count - 1)) if count > 1 else None


def _sliced_rows(cell: Cell, model: str, metric: str, column: str) -> Iterator[Row]:
    """Yields rows by the columns that a question set names, such as the difficulty of a question."""
    task = cell.whole[0].prediction.ruler_task if cell.whole else None
    for name in task.sliced_by if isinstance(task, QuestionSet) else ():
        by_value: dict[str, list[ScoredPrediction]] = {}
        for one in cell.whole:
            value = NO_MARK.sub(" ", str(one.prediction.slices.get(name, "")))
            by_value.setdefault(value, []).append(one)
        for value in sorted(by_value):
            at, group = f"{cell.at},{name}={value}", by_value[value]
            yield _scored_row(model, cell.task, at, metric=metric, column=column, group=group) | Row(status=cell.status)


def _other_rows(cell: Cell, model: str) -> Iterator[Row]:
    """Yields rows of the further scores that a question set has."""
    found: dict[str, list[float]] = {}
    for p in (one.prediction for one in cell.whole):
        if isinstance(task := p.ruler_task, QuestionSet):
            for metric, value in task.other_scores(p.scored_text, p.references).items():
                found.setdefault(metric, []).append(100 * value)
    for metric, values in found.items():
        values = [] if _broken(cell.whole) else values
        row = row_of(model, cell.task, cell.at, metric=metric, values=values, status=cell.status)
        yield row | Row(n=len(cell.whole))


def middle_gaps(cells: Iterable[Cell]) -> dict[tuple[str, int], Gap]:
    """Returns match in the outer thirds and in the middle third, by task and length, where both have samples.

    The difference of these two shares is the row `middle_gap`; its interval needs both shares with their counts,
    and how alike they are where both are of the same samples.
    """
    found = {}
    for cell in cells:
        outer, middle = cell.thirds
        if min(len(outer), len(middle)) > 1:
            found[cell.task, cell.length] = Gap(_share(outer), _share(middle), _alike(outer, middle))
    return found


def _share(group: Sequence[ScoredPrediction]) -> Share:
    row = _counted(group, "match")
    return Share(fmean(one.score.match for one in group), len(group), row.get("n_effective", len(group)))


def _alike(outer: Sequence[ScoredPrediction], middle: Sequence[ScoredPrediction]) -> float:
    """Returns the correlation of two means over k samples, times (k - 1) / k, as few may go together by chance."""
    here, there = _apart(outer, "match"), _apart(middle, "match")
    count, both = len(here.keys() | there.keys()), here.keys() & there.keys()
    spread = math.hypot(*here.values()) * math.hypot(*there.values())
    return sum(here[one] * there[one] for one in both) / spread * (count - 1) / count if spread else 0.0


def _counted(group: Sequence[ScoredPrediction], metric: str) -> Row:
    """Returns how many answers there are, and how many independent ones tell as much where samples have several."""
    return counted([one.percent(metric) for one in group], [one.prediction.index for one in group])


def _average_rows(cells: Sequence[Cell], model: str) -> Iterator[Row]:
    """Yields means over tasks, at lengths for which all of RULER was evaluated.

    The 13 tasks are the benchmark and no sample of one, so that how far they lie apart is no error: the standard error
    joins those of the tasks, whose samples are independent. It is left out where a task has one sample.
    """
    for length in dict.fromkeys(cell.length for cell in cells):
        group = [cell for cell in cells if cell.length == length and cell.task in OF_RULER]
        if len(group) != len(RULER):
            continue
        worst = min((cell.status for cell in group), key=WORST_FIRST.index)
        for metric, column in COLUMNS.items():
            scores = [fmean(one.percent(metric) for one in cell.whole) for cell in group]
            broken = all(_broken(cell.whole) for cell in group)
            mean = [] if broken else [fmean(scores)]
            row = row_of(model, "ruler_average", f"length={length}", metric=column, values=mean, status=worst)
            row |= Row(n=sum(len(cell.whole) for cell in group))
            errors = [_error_over_samples(cell.whole, metric) for cell in group]
            known = [error for error in errors if error is not None]
            if not broken and len(known) == len(group):
                row |= Row(stderr=math.hypot(*known) / len(group))
            yield row


def _thinking_rows(cells: Sequence[Cell], model: str) -> Iterator[Row]:
    """Yields the mean number of tokens that a model behind a server thought, for cells in which it thought, and
    how many answers are empty because it had not come to an end."""
    for cell in cells:
        if ended := sum(one.prediction.ended_thinking for one in cell.whole):
            yield _number_row(model, cell.task, cell.length, metric="ended_thinking", number=ended) | Row(
                n=len(cell.whole), status=cell.status
            )
        thought = [float(one.prediction.counted.get("thought", 0)) for one in cell.whole]
        if any(thought):
            row = row_of(model, cell.task, cell.at, metric="thinking_tokens", values=thought, status=cell.status)
            yield row | Row(unit="tokens")


def _number_row(model: str, task: str, length: int, *, metric: str, number: int) -> Row:
    """Makes a row that says of how many answers of a task and length something is so."""
    row = row_of(model, task, f"length={length}", metric=metric, values=[number], status="partial")
    return row | Row(unit="answers", n=number)


def _broken(group: Sequence[ScoredPrediction]) -> bool:
    """Whether the model's logits were no numbers in all of these answers, so that no score of them means anything."""
    return bool(group) and all(one.prediction.status == "diverged" for one in group)


def _scored_row(model: str, task: str, at: str, *, metric: str, column: str, group: Sequence[ScoredPrediction]) -> Row:
    """Makes the row of some answers, without a value where all of them are broken."""
    if _broken(group):
        return row_of(model, task, at, metric=column, values=[], status="") | _counted(group, metric)
    mean = [fmean(one.percent(metric) for one in group)]
    row = row_of(model, task, at, metric=column, values=mean, status="") | _counted(group, metric)
    error = _error_over_samples(group, metric)
    return row if error is None else row | Row(stderr=error)


def _status(group: Sequence[ScoredPrediction], *, fewer: bool) -> str:
    """Returns the worst that is true of some answers. fewer: whether samples were skipped beside them."""
    if any(one.prediction.status == "diverged" for one in group):
        return "diverged"
    if any(one.prediction.outdated for one in group):
        return "outdated"
    return "partial" if fewer else "ok"


def row_of(model: str, task: str, at: str, *, metric: str, values: Sequence[float], status: str) -> Row:
    """Makes a row of the mean of `values`, with its standard error if there are several; without values it has none."""
    row = Row(source="levelfield", task=task, model=model, protocol="pretrained", split="test", at=at, metric=metric)
    row |= Row(unit="percent", n=len(values), status=status)
    row |= Row(value=fmean(values)) if values else Row()
    return row | Row(stderr=_stderr(values)) if len(values) > 1 else row


def _stderr(values: Sequence[float]) -> float:
    return stdev(values) / math.sqrt(len(values))


def by_setting(found: Iterable[Prediction]) -> dict[Setting, list[Prediction]]:
    """Groups answers that may be averaged."""
    groups: dict[Setting, list[Prediction]] = {}
    for p in found:
        groups.setdefault(p.setting, []).append(p)
    return groups
