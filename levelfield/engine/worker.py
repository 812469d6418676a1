"""Runs a worker of the local engine: a process that loads a study for itself and executes the runs its parent names.

    python -m levelfield.engine.worker JOB FINGERPRINT      (only `local.Local` calls this)

One run id a line comes in on standard input; one JSON object a line goes out: {"outcome": "done"}, "busy" (another
command has the run) or "failed" with the reason. Before the first, "ready"; or "stop", where the study is no longer
what the parent planned.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from levelfield.engine import torchrun, tuning
from levelfield.engine.find import Source, choose, matches
from levelfield.files import write_text
from levelfield.presets.options import Options
from levelfield.runs import store
from levelfield.runs.claims import Lost, Stopped, claim
from levelfield.spec import Effort, Numerics, Probe, Run, Study, UserError
from levelfield.spec.errors import format_error


@dataclass(frozen=True)
class Job:
    """The runs to execute and how, in text and numbers only, so that it travels to a worker as JSON.

    pattern: of run ids; "" is every run. A study with a search is two jobs: its trials, then its runs with the best
    recipes.
    """

    source: Source
    effort: Effort
    out: Path
    data: Path
    pattern: str = ""
    device: str = "cpu"
    threads: int = 1
    trial: bool = False

    @property
    def trials(self) -> Job:
        """Returns the job of the trials that this one needs first, in a folder of their own."""
        return replace(self, out=self.out / tuning.FOLDER, trial=True)

    def load(self) -> tuple[Study, list[Run]]:
        """Returns `selected` of the study that the source has now. Raises UserError as `Source.load` does too."""
        return self.selected(self.source.load())

    def selected(self, study: Study) -> tuple[Study, list[Run]]:
        """Returns the study with its best recipes, or that of its trials, and those of its runs that match `pattern`.

        A run that a search changes has two ids, and both name it. Raises UserError where nothing is named.
        """
        if self.trial:
            study = tuning.trials(study, self.matches)
            return study, choose(study, self.effort)
        if study.search is None:
            return study, choose(study, self.effort, self.pattern)
        matching = tuning.with_best_recipes(study, self.out, self.matches)
        return tuning.with_best_recipes(study, self.out), choose(matching, self.effort)

    def matches(self, run: Run) -> bool:
        return matches(run, self.pattern)

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"out": str(self.out), "data": str(self.data)})

    @staticmethod
    def from_json(text: str) -> Job:
        fields: dict[str, Any] = json.loads(text)
        named = fields["source"]
        options: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in named["options"].items()}
        source = Source(**named | {"options": Options(**options), "numerics": Numerics(**named["numerics"])})
        return Job(**fields | {"source": source, "out": Path(fields["out"]), "data": Path(fields["data"])})


def work(job: Job, fingerprint: str, answer: IO[str]) -> None:
    """Executes the runs that the parent names on standard input, until that ends."""

    def reply(outcome: str, why: str = "") -> None:
        answer.write(json.dumps({"outcome": outcome, "why": why}) + "\n")
        answer.flush()

    try:
        study, runs = job.load()
    except UserError as error:
        reply("stop", str(error))
        return
    if job.source.fingerprint(runs) != fingerprint:
        name = job.source.mixer or job.source.study
        reply("stop", f"{name} was changed after its runs were planned: run the same command again.")
        return
    import torch

    torch.set_num_threads(job.threads)
    known = {run.id: run for run in runs}
    reply("ready")
    for run_id in _asked():
        reply(*attempt(known[run_id], job, study.probes(known[run_id])))


def attempt(run: Run, job: Job, probes: Sequence[Probe]) -> tuple[str, str]:
    """Executes one run, if it is free, and returns the outcome and why. Whatever it raises is kept in its directory."""
    from levelfield.run import execute

    where = store.directory(job.out, run)
    if run.numerics.nproc > 1:
        return torchrun.execute(run, where, words=(job.to_json(), run.id), threads=job.threads)
    try:
        with claim(where) as mine:
            if mine is None:
                return "busy", ""
            (where / store.ERROR).unlink(missing_ok=True)
            try:
                execute(run, where, job.data, job.device, probes, tested=not job.trial, claim=mine)
            except (Lost, Stopped):
                return "busy", ""
            except Exception as error:
                why = " ".join(str(error).split()) if isinstance(error, UserError) else format_error(error)
                detail = "" if isinstance(error, UserError) else f"\n{traceback.format_exc()}"
                write_text(where / store.ERROR, f"{why}\n{detail}")
                return "failed", why
    except UserError as error:  # a full disk or an unwritable folder
        return "failed", str(error)
    return "done", ""


def _asked() -> Iterator[str]:
    """Yields run ids from standard input. Its end means that the parent is gone: this process then ends, mid-run."""
    asked: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            asked.put(line.strip())
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield asked.get()


def main() -> None:
    """Works with standard output kept for the answers."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not be taken for an answer
    work(Job.from_json(sys.argv[1]), sys.argv[2], answer)


if __name__ == "__main__":
    main()
