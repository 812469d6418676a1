"""RULER asked of a language model: prompts, predictions as they come, and rows that can be made again without it.

    exam = Exam(tasks=RULER, lengths=(1024, 2048), count=100)
    for cell in exam.groups(): ...
    answer(model, tokenizer, exam, folder)          # appends to folder/predictions.jsonl; goes on after a kill
    rows(predictions(folder), "mamba2-2.7b")        # scores, by task, length and depth

A sample that does not fit its length is left out, and its cell says so. A prediction is stored under the hash of what
the model read (`Sample.key`), so asking for more lengths, tasks or samples later generates only what is missing, and
scoring again needs no model (`levelfield.longcontext.answers`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from levelfield.files import read_json, read_log, to_line, write_json, write_rows
from levelfield.longcontext.answers import LEFT_OUT as LEFT_OUT
from levelfield.longcontext.answers import PREDICTIONS as PREDICTIONS
from levelfield.longcontext.answers import LeftOut as LeftOut
from levelfield.longcontext.answers import Prediction as Prediction
from levelfield.longcontext.answers import Setting as Setting
from levelfield.longcontext.answers import by_setting as by_setting
from levelfield.longcontext.answers import left_out as left_out
from levelfield.longcontext.answers import predictions as predictions
from levelfield.longcontext.answers import row_of, settings_of, stored
from levelfield.longcontext.answers import rows as rows
from levelfield.ruler import RULER, Needle, RulerTask, Sample, Sources, Tokenizer, baselines, generate
from levelfield.ruler.early_stop import settled
from levelfield.spec import Row, UserError

if TYPE_CHECKING:
    from levelfield.pretrained import LanguageModel

BASELINES = "baselines.jsonl"
MODEL = "model.json"
BYTES = 1 << 20  # of the beginning and end of a file that go into its fingerprint
SHIPPED = Sources()
Told = Callable[[Prediction, bool], None]
"""told(answer, whether it was generated now)."""


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
        """Whether an answer is to one of its samples, or one of them was left out."""
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


def check(model: LanguageModel, exam: Exam) -> None:
    """Raises UserError for lengths of more steps than the model takes."""
    check_lengths(model.name, model.max_length, exam, len(model.begin))


def check_lengths(name: str, most: int | None, exam: Exam, before: int = 0) -> None:
    """Raises UserError for lengths of more than `most` steps, so many of which stand before the prompt."""
    if most is not None and max(exam.lengths) + before > most:
        raise UserError(
            f"{name} takes at most {most} steps and cannot be asked at a length of {max(exam.lengths)}: give --lengths "
            f"up to {most - before}."
        )


def _check_ids(model: LanguageModel, tokenizer: Tokenizer, samples: Sequence[Sample]) -> None:
    highest = max((int(sample.ids.max()) for sample in samples), default=0)
    if highest >= model.vocabulary:
        raise UserError(
            f"The tokenizer {tokenizer.name} gives the id {highest}, and {model.name} has only {model.vocabulary}: "
            "name the model's own with --tokenizer."
        )


def answer(
    model: LanguageModel, tokenizer: Tokenizer, exam: Exam, folder: Path, told: Told = lambda prediction, new: None
) -> list[LeftOut]:
    """Generates what `folder` does not hold yet and appends it, prompt by prompt. Returns the samples that do not fit.
    Raises UserError for lengths and ids that the model does not have.

    An answer that is there under the same prompt is taken over: it is appended again where another prompt has stood at
    its place since, or an earlier version of its task."""
    check(model, exam)
    left: list[LeftOut] = []
    found = stored(folder)
    known = {p.key: p for p in found}
    latest = {p.place: (p.key, p.version) for p in found}
    for name in (PREDICTIONS, BASELINES):
        _whole_lines(folder / name)
    with (folder / PREDICTIONS).open("a") as file:

        def keep(one: Prediction, new: bool) -> None:
            if latest.get(one.place) != (one.key, one.version):
                file.write(to_line(vars(one)))
                file.flush()
            known[one.key], latest[one.place] = one, (one.key, one.version)
            told(one, new)

        for task, _, samples in exam.groups(tokenizer, left.append):
            todo = [sample for sample in samples if sample.key not in known]
            _check_ids(model, tokenizer, todo)
            if todo:  # before the answers, so that no kill can come between
                _beside(folder, task, samples)
            for sample in samples:
                if old := known.get(sample.key):
                    keep(_prediction(task, sample, old.text, old.made, old.status), new=False)
            for one in _generated(model, tokenizer, task, todo):
                keep(one, new=True)
        os.fsync(file.fileno())
    return left


def _generated(
    model: LanguageModel, tokenizer: Tokenizer, task: RulerTask, todo: Sequence[Sample]
) -> Iterator[Prediction]:
    """The model's answers as they are done. One of them ends where nothing that may follow changes its score."""
    from levelfield.pretrained.decoding import Stop, either, ends, stream

    def done(number: int, made: Sequence[int]) -> bool:
        return settled(task, tokenizer.decode(made), todo[number].references)

    stop: Stop = either(ends(model.ends), done)
    prompts = [prompt_of(model, sample) for sample in todo]
    for number, made in stream(model, prompts, [s.answer_tokens for s in todo], stop):
        sample = todo[number]
        broken = len(made) < sample.answer_tokens and not (made and stop(number, made))
        text = tokenizer.decode([i for i in made if i not in model.ends])
        yield _prediction(task, sample, text, len(made), "diverged" if broken else "ok")


def prompt_of(model: LanguageModel, sample: Sample) -> np.ndarray:
    """(n,) int32: the model's begin, then the sample. What the sample's template begins with is not put there twice."""
    begin, ids = np.array(model.begin, np.int32), sample.ids
    shared = next((n for n in range(len(begin), 0, -1) if np.array_equal(begin[-n:], ids[:n])), 0)
    return np.concatenate([begin[: len(begin) - shared], ids])


def leave_out(folder: Path, exams: Sequence[Exam], left: Sequence[LeftOut]) -> None:
    """Stores what these exams left out, in place of what they did before."""
    kept = [old for old in left_out(folder) if not any(exam.asks(old) for exam in exams)]
    if kept or left or (folder / LEFT_OUT).exists():
        write_rows(folder / LEFT_OUT, [vars(one) for one in dict.fromkeys([*kept, *left])])


def _beside(folder: Path, task: RulerTask, samples: Sequence[Sample]) -> None:
    """Appends what readers that understand nothing score on the same samples."""
    with (folder / BASELINES).open("a") as file:
        for name, value in baselines(task, samples).items():
            at = f"length={samples[0].length}"
            row = row_of(name, samples[0].task.partition("@")[0], at, "accuracy", [value], "ok")
            setting = {"flavour": samples[0].flavour, "template": samples[0].template, "seed": samples[0].seed}
            file.write(to_line({**row, "protocol": "none", "n": len(samples), "setting": setting}))


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
        task.version(sample.flavour),
    )


def _whole_lines(path: Path) -> None:
    """Takes away a last line that a kill cut off, before more is appended."""
    if path.exists():
        with path.open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)


def baseline_rows(folder: Path, setting: Setting | None = None) -> list[Row]:
    """The last that were stored for each task and length, of this setting (None: of any), without a line that a kill
    cut off."""
    last: dict[tuple[str, str, str], Row] = {}
    for row in read_log(folder / BASELINES):
        own = row.pop("setting", None)  # older lines do not say
        if setting is None or own is None or tuple(own.values()) == setting:
            last[row["model"], row["task"], row["at"]] = Row(**row)
    return list(last.values())


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
        known = read_json(path)
        changed = [key for key, value in facts.items() if known.get(key) != value]
        if changed:
            raise UserError(
                f"{folder} holds predictions with another {' and '.join(changed)}: name another --runs-dir folder, or "
                "remove this one."
            )
        return
    write_json(path, {**facts, "since": time.strftime("%Y-%m-%d")})


def note_positions(folder: Path, made_for: int | None) -> None:
    """Keeps beside the answers how many positions the model was made for."""
    if made_for is not None and positions(folder) != made_for:
        write_json(folder / MODEL, read_json(folder / MODEL) | {"positions": made_for})


def positions(folder: Path) -> int | None:
    """Those that the model was made for, where that is known."""
    path = folder / MODEL
    return read_json(path).get("positions") if path.exists() else None
