"""Answers of a language model to RULER as they are stored, and the rows that are made of them, without the model.

    rows(predictions(folder), "mamba2-2.7b")        # scores, by task, length and depth

A task whose prompts change has a new version. Answers to the earlier ones are shown as `outdated` until they are asked
again, and then only those whose prompt really is another are generated anew (`levelfield.longcontext.exam.answer`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from levelfield.files import read_log, read_rows
from levelfield.ruler import RULER, RulerTask, Score, score
from levelfield.spec import Row, UserError

PREDICTIONS = "predictions.jsonl"
LEFT_OUT = "left_out.jsonl"
COLUMNS = {"match": "accuracy", "strict": "strict_accuracy"}
WORST_FIRST = ("diverged", "outdated", "partial", "ok")
TENTHS = 10
Scored = tuple["Prediction", Score]
Setting = tuple[str, str, int]
"""Flavour, template and seed: answers of one setting may be averaged."""


@dataclass(frozen=True)
class LeftOut:
    """A sample that could not be made, and why."""

    task: str
    length: int
    index: int
    flavour: str
    template: str
    seed: int
    why: str


@dataclass(frozen=True)
class Prediction:
    """What a model said to a sample. slices: its depth, haystack and so on. tokens: of the prompt; made: generated.

    settings: the task's own. status: "ok", or "diverged" where a logit was no number. version: of the task, when it was
    asked; lines without one are older than versions.
    """

    key: str
    task: str
    settings: Mapping[str, Any]
    length: int
    index: int
    flavour: str
    template: str
    seed: int
    tokens: int
    made: int
    depths: tuple[float, ...]
    slices: Mapping[str, str | int | float]
    references: tuple[str, ...]
    text: str
    status: str = "ok"
    version: int = 1

    @property
    def place(self) -> tuple[str, int, int, str, str, int]:
        """Which sample it is, whatever its prompt."""
        return self.task, self.length, self.index, self.flavour, self.template, self.seed

    @property
    def outdated(self) -> bool:
        """Whether its prompt may be another one in this version of its task."""
        return self.version < self.ruler_task.version(self.flavour)

    @property
    def said(self) -> str:
        """What is scored: nothing where logits were no numbers."""
        return self.text if self.status == "ok" else ""

    @property
    def ruler_task(self) -> RulerTask:
        """Raises UserError where this version has no such task."""
        kinds = {type(task).__name__: type(task) for task in RULER}
        given = dict(self.settings)
        kind = given.pop("kind", "")
        if kind not in kinds:
            raise UserError(f"A prediction is of the task kind '{kind}', which RULER here does not have.")
        return kinds[kind](**given)


def settings_of(task: RulerTask) -> dict[str, Any]:
    return {"kind": type(task).__name__, **vars(task)}


def stored(folder: Path) -> list[Prediction]:
    """All that were ever appended, without a last line that is being written or that a kill cut off. Raises
    UserError."""
    path = folder / PREDICTIONS
    try:
        return [_restored(record) for record in read_log(path)]
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} is damaged ({error}): remove it and run again.") from error


def _restored(record: dict[str, Any]) -> Prediction:
    return Prediction(**{**record, "depths": tuple(record["depths"]), "references": tuple(record["references"])})


def predictions(folder: Path) -> list[Prediction]:
    """One answer to each sample, the last that was appended: where a sample has become another prompt (by other texts,
    or a newer version of its task), the answer to the earlier one stands for nothing any more. Raises UserError."""
    return list({p.place: p for p in stored(folder)}.values())


def left_out(folder: Path) -> list[LeftOut]:
    return [LeftOut(**record) for record in read_rows(folder / LEFT_OUT)]


def rows(
    found: Iterable[Prediction], model: str, left: Iterable[LeftOut] = (), positions: int | None = None
) -> list[Row]:
    """Scores in percent: of every task and length, by depth where one needle is asked for, and averages over RULER.
    Where samples were `left` out the status is "partial"; of cells without any other it is "left_out"; where some
    answers are to prompts of an earlier version, "outdated". An average has the worst status of its tasks. positions:
    those that the model was made for, where that is known; every row has them.

    `accuracy` is RULER's match, `strict_accuracy` the score beside it; stderr is over samples, of an average over
    tasks. `middle_gap`: how much better the outer thirds of the text are than the middle one. Where needles were asked
    at chosen depths and at depths of their own, the former are shown by depth and the latter as a whole.
    """
    cells, chosen = {}, {}  # (task, length) -> scored answers
    for p in found:
        name, at, _ = p.task.partition("@")
        scored = p, score(p.ruler_task, p.said, p.references)
        (chosen if at else cells).setdefault((name, p.length), []).append(scored)
    made: list[Row] = []
    averages: dict[tuple[int, str], list[tuple[float, str]]] = {}
    fewer = {(one.task.partition("@")[0], one.length) for one in left}
    for (name, length), whole in ({**chosen, **cells}).items():
        placed = chosen.get((name, length), whole)
        status = "partial" if _status(whole) == "ok" and (name, length) in fewer else _status(whole)
        for metric, column in COLUMNS.items():
            values = [v for _, v in _percent(whole, metric)]
            made.append(row_of(model, name, f"length={length}", column, values, status))
            made += _by_depth(name, length, column, _percent(placed, metric), model)
            averages.setdefault((length, column), []).append((fmean(values), status))
    for (length, metric), parts in averages.items():
        if len(parts) == len(RULER):
            means, statuses = zip(*parts, strict=True)
            worst = min(statuses, key=WORST_FIRST.index)
            made.append(row_of(model, "ruler_average", f"length={length}", metric, means, worst))
    for name, length in sorted(fewer - {**chosen, **cells}.keys()):
        made += [row_of(model, name, f"length={length}", column, [], "left_out") for column in COLUMNS.values()]
    return made if positions is None else [row | Row(positions=positions) for row in made]


def _percent(group: Sequence[Scored], metric: str) -> list[tuple[Prediction, float]]:
    return [(p, 100 * getattr(scores, metric)) for p, scores in group]


def _status(values: Sequence[tuple[Prediction, object]]) -> str:
    if any(p.status == "diverged" for p, _ in values):
        return "diverged"
    return "outdated" if any(p.outdated for p, _ in values) else "ok"


def _by_depth(
    name: str, length: int, metric: str, values: Sequence[tuple[Prediction, float]], model: str
) -> Iterator[Row]:
    """By the depth that was chosen, where one was (the needle lies at the nearest sentence end), else in tenths."""
    at, status = f"length={length}", _status(values)
    if any(len(p.depths) != 1 for p, _ in values):
        return
    by_depth: dict[str, list[float]] = {}
    for p, value in values:
        tenth = f"{min(int(p.depths[0] * TENTHS), TENTHS - 1) / TENTHS:g}"
        by_depth.setdefault(p.task.partition("@")[2] or tenth, []).append(value)
    for depth in sorted(by_depth, key=float):
        yield row_of(model, name, f"{at},depth={depth}", metric, by_depth[depth], status)
    middle = [v for p, v in values if 1 / 3 <= p.depths[0] < 2 / 3]
    outer = [v for p, v in values if not 1 / 3 <= p.depths[0] < 2 / 3]
    if metric == "accuracy" and min(len(middle), len(outer)) > 1:
        spread = math.sqrt(_stderr(middle) ** 2 + _stderr(outer) ** 2)
        row = row_of(model, name, at, "middle_gap", [fmean(outer) - fmean(middle)], status)
        yield row | Row(stderr=spread, n=len(values))


def row_of(model: str, task: str, at: str, metric: str, values: Sequence[float], status: str) -> Row:
    row = Row(source="levelfield", task=task, model=model, protocol="pretrained", split="test", at=at, metric=metric)
    row |= Row(unit="percent", n=len(values), status=status)
    row |= Row(value=fmean(values)) if values else Row()
    return row | Row(stderr=_stderr(values)) if len(values) > 1 else row


def _stderr(values: Sequence[float]) -> float:
    return stdev(values) / math.sqrt(len(values))


def by_setting(found: Iterable[Prediction]) -> dict[Setting, list[Prediction]]:
    """Answers that may be averaged."""
    groups: dict[Setting, list[Prediction]] = {}
    for p in found:
        groups.setdefault((p.flavour, p.template, p.seed), []).append(p)
    return groups
