"""Asks a language model questions in several workers, each with a copy of it: units are blocks of questions.

    job = plan(named, named.text(), evaluations, folder)
    Driver(job, Local(["cuda:0", "cuda:1"]), screen).execute(list(job.asked().blocks))
    runner.collect(tokenizer, evaluations, folder, job.ask())          # joins the answers of all workers

runs/ruler/NAME/shards/0a1b2c3d4e/        of one model, tokenizer and precision
    questions-5f0c9a1e2b.json             what is asked: the model, the evaluations and the blocks that are left
    anatomy.json                          the model's layers, parameters and positions, which its first worker writes
    vt-4096-32-1e2b5f0c9a/part-1.jsonl    answers as they come; done.json where the block is complete

Units of runs and of questions share leases, engines and what happens when something dies (docs/cluster.md). An answer
is written as soon as it is there, so a worker that takes a block over asks only what is left of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from levelfield.engine import jobs
from levelfield.engine.jobs import Order
from levelfield.engine.models import Named, Text
from levelfield.files import disk_errors, read_json, sync, to_line, write_json
from levelfield.longcontext import finite_logits, runner
from levelfield.longcontext.answers import stored
from levelfield.longcontext.blocks import PART, Block, collected, cut
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.predictions import Prediction
from levelfield.longcontext.survey import ANATOMY
from levelfield.ruler import RulerTask, Sample
from levelfield.runs import store
from levelfield.runs.claims import Lease, Stopped, stopping

FOLDER = "shards"  # in the folder of a model's answers


class QuestionFile(NamedTuple):
    """The content of a file of questions. folder: of the answers that are there already."""

    model: Named
    evaluations: tuple[Evaluation, ...]
    blocks: Mapping[str, Block]
    folder: Path


def plan(named: Named, text: Text, evaluations: Sequence[Evaluation], folder: Path) -> Job:
    """Writes down which questions a folder has no answers to, and returns the job of asking them.

    What workers have answered since does not count, so that a command that is given again has the same job.
    """
    out = _out(named, text, folder)
    known = {one.key for one in stored(folder)}
    blocks = cut(evaluations, text.tokenizer, known.__contains__)
    asked = {"model": named.record, "folder": str(folder), "blocks": blocks}
    asked["evaluations"] = [each.record for each in evaluations]
    path = out / f"questions-{_hash(json.dumps(asked))}.json"
    write_json(path, asked)
    return Job(path, spread=named.spread)


def answered(named: Named, folder: Path) -> list[Prediction]:
    """Returns what copies of a model have answered in a folder, also where they ended before it was joined there."""
    return [*collected(_out(named, named.text(), folder)).values()] if (folder / FOLDER).exists() else []


def _out(named: Named, text: Text, folder: Path) -> Path:
    return folder / FOLDER / _hash(text.mark, text.tokenizer.name, named.precision)


def _hash(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:10]


@dataclass(frozen=True)
class Job:
    """Questions and who answers them: a `jobs.Job`. path: of the file of questions.

    copies: of the model on the device of a worker. spread: devices of each copy.
    """

    path: Path
    device: str = "cpu"
    threads: int = 1
    copies: int = 1
    spread: int = 1

    @property
    def out(self) -> Path:
        return self.path.parent

    @property
    def identity(self) -> tuple[object, ...]:
        return "questions", self.path.name, self.copies, self.spread

    def asked(self) -> QuestionFile:
        """Reads the file of questions. Raises UserError."""
        known = read_json(self.path)
        evaluations = tuple(Evaluation.restored(record) for record in known["evaluations"])
        blocks = {name: Block(*block) for name, block in known["blocks"].items()}
        return QuestionFile(Named.restored(known["model"]), evaluations, blocks, Path(known["folder"]))

    def order(self, units: Sequence[str], /) -> Order:
        return Order(self, units, self.path.name, self.finished, self.spread)

    def finished(self, unit: str) -> bool:
        return store.complete(self.out / unit)

    @property
    def processes_flag(self) -> str:
        return "--spread"

    def processes(self, units: Sequence[str], /) -> int:
        """Returns how many devices a copy of the model takes."""
        return self.spread

    def on(self, device: str, workers: int) -> Job:
        return replace(self, device=device, copies=workers)

    def absolute(self) -> Job:
        return replace(self, path=self.path.absolute())

    def prepare(self, units: Sequence[str]) -> None:
        """Does nothing: texts that ship and a user's own are there."""

    def loaded(self) -> Copy:
        """Loads the model, and notes its anatomy beside the questions. Raises UserError where it cannot be loaded."""
        import torch

        from levelfield.pretrained.anatomy import anatomy

        torch.set_num_threads(self.threads)
        asked = self.asked()
        found = Copy(self, asked)
        layers, parameters = anatomy(found.loaded.model)
        facts = {"layers": layers, "parameters": parameters, "positions": found.loaded.model.made_for}
        write_json(self.out / ANATOMY, facts)
        return found

    def ask(self) -> runner.Ask:
        """Returns what answers by what the workers have written so far; questions without an answer are left out."""
        found = collected(self.out)

        def ask(task: RulerTask, samples: Sequence[Sample]) -> Iterator[Prediction]:
            for sample in samples:
                if old := found.get(sample.key):
                    yield old.restated(sample, task)

        return ask

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"path": str(self.path), "kind": "questions"})

    @staticmethod
    def from_json(text: str) -> Job:
        fields = json.loads(text)
        del fields["kind"]
        return Job(**fields | {"path": Path(fields["path"])})


class Copy:
    """A copy of the model with the blocks that it may be asked: `jobs.Units`."""

    def __init__(self, job: Job, asked: QuestionFile) -> None:
        self.job, self.asked = job, asked
        longest = max(each.longest for each in asked.evaluations)
        self.loaded = asked.model.load(job.device, longest, job.copies)
        for each in asked.evaluations:
            runner.check(self.loaded.model, each)
        known = [*stored(asked.folder), *collected(job.out).values()]
        named, (model, tokenizer, *_) = asked.model, self.loaded
        finite_logits.check(
            model, tokenizer, asked.evaluations, known, named.precision, trained_here=named.trained_here
        )
        self.known = {one.key for one in known}

    @property
    def name(self) -> str:
        return self.job.path.name

    @property
    def fingerprint(self) -> str:
        return self.job.path.name  # which has the hash of what is in it

    def finished(self, unit: str) -> bool:
        return self.job.finished(unit)

    def attempt(self, unit: str, spared: jobs.Spared | None = None) -> tuple[str, str]:
        return jobs.attempt(self.job.out / unit, lambda mine: self._answer(unit, mine), spared)

    def _answer(self, unit: str, mine: Lease) -> None:
        """Asks what is left of a block. Raises Stopped where this process is to end, and Lost."""
        where, block = self.job.out / unit, self.asked.blocks[unit]
        if store.complete(where):
            return
        samples = block.samples(self.asked.evaluations, self.loaded.tokenizer, unit)
        known = self.known | collected(self.job.out, unit).keys()
        todo = [sample for sample in samples if sample.key not in known]
        task = block.task_of(self.asked.evaluations)
        model, tokenizer, _, batching = self.loaded
        found = runner.answered(model, tokenizer, task, todo, batching=batching)
        with disk_errors(where), (where / PART.format(mine.number)).open("a") as file:
            for count, one in enumerate(found, len(samples) - len(todo) + 1):
                mine.check()
                file.write(to_line(one.record()))
                file.flush()
                write_json(where / store.PROGRESS, {"state": f"{count} of {len(samples)} answered"})
                if stopping():
                    raise Stopped
        with disk_errors(where):
            for part in where.glob(PART.format("*")):
                sync(part)  # or a power cut could leave `done.json` beside fewer answers, which nobody asks again
        write_json(mine.staging / store.DONE, {"answers": len(samples)})
        mine.commit()
