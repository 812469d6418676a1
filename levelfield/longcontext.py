"""RULER asked of a language model: prompts, predictions as they come, and rows that can be made again without it.

    exam = Exam(tasks=RULER, lengths=(1024, 2048), count=100)
    for cell in exam.groups(): ...
    answer(model, tokenizer, exam, folder)          # appends to folder/predictions.jsonl; goes on after a kill
    rows(predictions(folder), "mamba2-2.7b")        # scores, by task, length and depth

A sample that does not fit its length is left out, and its cell says so. A prediction is stored under the hash of what
the model read (`Sample.key`), so asking for more lengths, tasks or samples later generates only what is missing, and
scoring again needs no model.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from levelfield import store
from levelfield.ruler import RULER, Needle, RulerTask, Sample, Score, Sources, Tokenizer, baselines, generate, score
from levelfield.ruler.settled import settled
from levelfield.spec import Row, UserError

if TYPE_CHECKING:
    from levelfield.foreign import LanguageModel

PREDICTIONS = "predictions.jsonl"
BASELINES = "baselines.jsonl"
LEFT_OUT = "left_out.jsonl"
COLUMNS = {"match": "accuracy", "strict": "strict_accuracy"}
MODEL = "model.json"
TENTHS = 10
BYTES = 1 << 20  # of the beginning and end of a file that go into its fingerprint
SHIPPED = Sources()
Told = Callable[["Prediction"], None]
Scored = tuple["Prediction", Score]


@dataclass(frozen=True)
class Exam:
    """What is asked. count: samples of each task and length, from the first. depths: of single needles, each asked at
    every one of them; () leaves each sample its own."""

    tasks: tuple[RulerTask, ...] = RULER
    lengths: tuple[int, ...] = (1024, 2048, 4096)
    count: int = 100
    seed: int = 42
    flavour: str = "sound"
    template: str = "base"
    depths: tuple[float, ...] = ()
    sources: Sources = SHIPPED

    def __post_init__(self) -> None:
        if not self.tasks or not self.lengths or min(self.lengths) < 1 or self.count < 1:
            raise UserError("An exam needs tasks, lengths from 1 and at least one sample of each.")
        if self.depths and not any(isinstance(task, Needle) for task in self.tasks):
            raise UserError("Depths are of needle tasks: name one of them, or leave out the depths.")

    @property
    def prompts(self) -> int:
        return self.count * len(self.variants) * len(self.lengths)

    @property
    def variants(self) -> tuple[RulerTask, ...]:
        """Its tasks, those with a needle once for every depth."""
        return tuple(at for task in self.tasks for at in self._at_depths(task))

    def asks(self, found: Prediction | LeftOut) -> bool:
        """Whether an answer is to one of its prompts, or one of them was left out."""
        same = (found.flavour, found.template, found.seed) == (self.flavour, self.template, self.seed)
        there = found.length in self.lengths and found.index < self.count
        return same and there and found.task in {task.name for task in self.variants}

    def _at_depths(self, task: RulerTask) -> tuple[RulerTask, ...]:
        if isinstance(task, Needle) and self.depths:
            return tuple(replace(task, depth=depth) for depth in self.depths)
        return (task,)

    def groups(
        self, tokenizer: Tokenizer, missed: Callable[[LeftOut], None] | None = None
    ) -> Iterator[tuple[RulerTask, int, list[Sample]]]:
        """Task, length and all their samples; those at several depths together, since they begin alike. missed: is
        told of samples that do not fit, which otherwise raise UserError."""
        for length in sorted(self.lengths):
            for task in self.tasks:
                parts = (self._samples(at, length, tokenizer, missed) for at in self._at_depths(task))
                yield task, length, [sample for part in parts for sample in part]

    def _samples(
        self, task: RulerTask, length: int, tokenizer: Tokenizer, missed: Callable[[LeftOut], None] | None
    ) -> Iterator[Sample]:
        def tell(index: int, why: str) -> None:
            assert missed
            missed(LeftOut(task.name, length, index, self.flavour, self.template, self.seed, why))

        return generate(
            task,
            length,
            tokenizer,
            seed=self.seed,
            count=self.count,
            flavour=self.flavour,
            template=self.template,
            sources=self.sources,
            missed=tell if missed else None,
        )


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

    settings: the task's own. status: "ok", or "diverged" where a logit was no number.
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


def check(model: LanguageModel, exam: Exam) -> None:
    """Raises UserError for lengths of more steps than the model takes."""
    most, before = model.max_length, len(model.begin)
    if most is not None and max(exam.lengths) + before > most:
        raise UserError(
            f"{model.name} takes at most {most} steps and cannot be asked at a length of {max(exam.lengths)}: give "
            f"--lengths up to {most - before}."
        )


def _check_ids(model: LanguageModel, tokenizer: Tokenizer, samples: Sequence[Sample]) -> None:
    highest = max((int(sample.ids.max()) for sample in samples), default=0)
    if highest >= model.vocabulary:
        raise UserError(
            f"The tokenizer {tokenizer.name} gives the id {highest}, and {model.name} has only {model.vocabulary}: "
            "name the model's own with --tokenizer."
        )


def answer(
    model: LanguageModel, tokenizer: Tokenizer, exam: Exam, folder: Path, told: Told = lambda prediction: None
) -> list[LeftOut]:
    """Generates what `folder` does not hold yet and appends it, prompt by prompt. Returns the samples that do not fit.
    Raises UserError for lengths and ids that the model does not have."""
    from levelfield.foreign.greedy import Stop, either, ends, stream

    check(model, exam)
    left: list[LeftOut] = []
    known = {p.key for p in predictions(folder)}
    for name in (PREDICTIONS, BASELINES):
        _whole_lines(folder / name)
    with (folder / PREDICTIONS).open("a") as file:
        for task, _, samples in exam.groups(tokenizer, left.append):
            todo = [sample for sample in samples if sample.key not in known]
            known |= {sample.key for sample in todo}
            _check_ids(model, tokenizer, todo)

            def done(number: int, made: Sequence[int], todo: list[Sample] = todo, task: RulerTask = task) -> bool:
                return settled(task, tokenizer.decode(made), todo[number].references)

            if todo:  # before the answers, so that no kill can come between
                _beside(folder, task, samples)
            stop: Stop = either(ends(model.ends), done)
            prompts = [np.concatenate([np.array(model.begin, np.int32), sample.ids]) for sample in todo]
            for number, made in stream(model, prompts, [s.answer_tokens for s in todo], stop):
                sample = todo[number]
                broken = len(made) < sample.answer_tokens and not (made and stop(number, made))
                text = tokenizer.decode([i for i in made if i not in model.ends])
                found = _prediction(task, sample, text, len(made), "diverged" if broken else "ok")
                file.write(store.to_line(vars(found)))
                file.flush()
                told(found)
        os.fsync(file.fileno())
    return left


def leave_out(folder: Path, exams: Sequence[Exam], left: Sequence[LeftOut]) -> None:
    """Stores what these exams left out, in place of what they did before."""
    kept = [old for old in left_out(folder) if not any(exam.asks(old) for exam in exams)]
    if kept or left or (folder / LEFT_OUT).exists():
        store.write_rows(folder / LEFT_OUT, [vars(one) for one in dict.fromkeys([*kept, *left])])


def left_out(folder: Path) -> list[LeftOut]:
    return [LeftOut(**record) for record in store.read_rows(folder / LEFT_OUT)]


def _beside(folder: Path, task: RulerTask, samples: Sequence[Sample]) -> None:
    """Appends what readers that understand nothing score on the same samples."""
    with (folder / BASELINES).open("a") as file:
        for name, value in baselines(task, samples).items():
            at = f"length={samples[0].length}"
            row = _row(name, samples[0].task.partition("@")[0], at, "accuracy", [value], "ok")
            file.write(store.to_line(row | Row(protocol="none", n=len(samples))))


def _prediction(task: RulerTask, sample: Sample, text: str, made: int, status: str) -> Prediction:
    return Prediction(
        sample.key,
        sample.task,
        settings_of(task),
        sample.length,
        sample.index,
        sample.flavour,
        sample.template,
        sample.seed,
        len(sample.ids),
        made,
        sample.depths,
        dict(sample.slices),
        sample.references,
        text,
        status,
    )


def _whole_lines(path: Path) -> None:
    """Takes away a last line that a kill cut off, before more is appended."""
    if path.exists():
        with path.open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)


def predictions(folder: Path) -> list[Prediction]:
    """All that are stored, without a last line that is being written or that a kill cut off. Raises UserError."""
    path = folder / PREDICTIONS
    try:
        return [_restored(record) for record in store.read_log(path)]
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} is damaged ({error}): remove it and run again.") from error


def _restored(record: dict[str, Any]) -> Prediction:
    return Prediction(**{**record, "depths": tuple(record["depths"]), "references": tuple(record["references"])})


def rows(found: Iterable[Prediction], model: str, left: Iterable[LeftOut] = ()) -> list[Row]:
    """Scores in percent: of every task and length, by depth where one needle is asked for, and averages over RULER.
    Where samples were `left` out the status is "partial"; of cells without any other it is "left_out". An average has
    the worst status of its tasks.

    `accuracy` is RULER's match, `strict_accuracy` the score beside it; stderr is over samples, of an average over
    tasks. `middle_gap`: how much better the outer thirds of the text are than the middle one. Where needles were asked
    at chosen depths and at depths of their own, the former are shown by depth and the latter as a whole.
    """
    cells, chosen = {}, {}  # (task, length) -> scored answers
    for p in found:
        name, at, _ = p.task.partition("@")
        scored = p, score(p.ruler_task, p.text, p.references)
        (chosen if at else cells).setdefault((name, p.length), []).append(scored)
    made: list[Row] = []
    averages: dict[tuple[int, str], list[tuple[float, str]]] = {}
    fewer = {(one.task.partition("@")[0], one.length) for one in left}
    for (name, length), whole in ({**chosen, **cells}).items():
        placed = chosen.get((name, length), whole)
        status = "partial" if _status(whole) == "ok" and (name, length) in fewer else _status(whole)
        for metric, column in COLUMNS.items():
            values = [v for _, v in _percent(whole, metric)]
            made.append(_row(model, name, f"length={length}", column, values, status))
            made += _by_depth(name, length, column, _percent(placed, metric), model)
            averages.setdefault((length, column), []).append((fmean(values), status))
    for (length, metric), parts in averages.items():
        if len(parts) == len(RULER):
            means, statuses = zip(*parts, strict=True)
            worst = min(statuses, key=("diverged", "partial", "ok").index)
            made.append(_row(model, "ruler_average", f"length={length}", metric, means, worst))
    for name, length in sorted(fewer - {**chosen, **cells}.keys()):
        made += [_row(model, name, f"length={length}", column, [], "left_out") for column in COLUMNS.values()]
    return made


def _percent(group: Sequence[Scored], metric: str) -> list[tuple[Prediction, float]]:
    return [(p, 100 * getattr(scores, metric)) for p, scores in group]


def _status(values: Sequence[tuple[Prediction, object]]) -> str:
    return "diverged" if any(p.status == "diverged" for p, _ in values) else "ok"


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
        yield _row(model, name, f"{at},depth={depth}", metric, by_depth[depth], status)
    middle = [v for p, v in values if 1 / 3 <= p.depths[0] < 2 / 3]
    outer = [v for p, v in values if not 1 / 3 <= p.depths[0] < 2 / 3]
    if metric == "accuracy" and min(len(middle), len(outer)) > 1:
        spread = math.sqrt(_stderr(middle) ** 2 + _stderr(outer) ** 2)
        row = _row(model, name, at, "middle_gap", [fmean(outer) - fmean(middle)], status)
        yield row | Row(stderr=spread, n=len(values))


def _row(model: str, task: str, at: str, metric: str, values: Sequence[float], status: str) -> Row:
    row = Row(source="levelfield", task=task, model=model, protocol="pretrained", split="test", at=at, metric=metric)
    row |= Row(unit="percent", n=len(values), status=status)
    row |= Row(value=fmean(values)) if values else Row()
    return row | Row(stderr=_stderr(values)) if len(values) > 1 else row


def _stderr(values: Sequence[float]) -> float:
    return stdev(values) / math.sqrt(len(values))


def by_setting(found: Iterable[Prediction]) -> dict[tuple[str, str, int], list[Prediction]]:
    """Answers that may be averaged: of one flavour, template and seed."""
    groups: dict[tuple[str, str, int], list[Prediction]] = {}
    for p in found:
        groups.setdefault((p.flavour, p.template, p.seed), []).append(p)
    return groups


def baseline_rows(folder: Path) -> list[Row]:
    """The last that were stored for each task and length; a line that a kill cut off is left out."""
    found = store.read_log(folder / BASELINES)
    return list({(row["model"], row["task"], row["at"]): Row(**row) for row in found}.values())


def fingerprint(path: Path) -> str:
    """A hash of a model's files: names, sizes, and the first and last megabyte of each."""
    import hashlib

    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as data:
            digest.update(data.read(BYTES))
            data.seek(max(0, size - BYTES))
            digest.update(data.read(BYTES))
    return digest.hexdigest()[:16]


def claim(folder: Path, facts: Mapping[str, Any]) -> None:
    """Writes who answers here; raises UserError where another model, tokenizer or precision has answered already."""
    path, answers = folder / MODEL, folder / PREDICTIONS
    if path.exists() and answers.exists() and answers.stat().st_size:
        known = store.read_json(path)
        changed = [key for key, value in facts.items() if known.get(key) != value]
        if changed:
            raise UserError(
                f"{folder} holds predictions with another {' and '.join(changed)}: name another --out folder, or "
                "remove this one."
            )
        return
    store.write_json(path, {**facts, "since": time.strftime("%Y-%m-%d")})
