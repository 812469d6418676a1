"""The job of training: runs of a study, each trained, evaluated and probed by whichever worker takes it.

    job = Job(Source("demo"), "minutes", Path("runs"), Path("data"))
    study, runs = job.load()
    Driver(job, engine, screen).execute(runs)

`questions` has the other kind of job, which asks a language model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from levelfield.data import prepared
from levelfield.engine import jobs, torchrun, tuning
from levelfield.engine.find import Source, choose, matches
from levelfield.engine.jobs import Order
from levelfield.presets.options import Options
from levelfield.runs import store
from levelfield.runs.claims import Lease
from levelfield.runs.results import StudyIndex
from levelfield.spec import Effort, Numerics, Probe, Run, Study, Task, UserError


@dataclass(frozen=True)
class Job:
    """The runs of a study to execute and how: a `jobs.Job`, whose units are ids of runs.

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
        if study.search_at(self.effort) is None:
            return study, choose(study, self.effort, self.pattern)
        matching = tuning.with_best_recipes(study, self.out, self.matches)
        return tuning.with_best_recipes(study, self.out), choose(matching, self.effort)

    def matches(self, run: Run) -> bool:
        return matches(run, self.pattern)

    @property
    def identity(self) -> tuple[object, ...]:
        return self.source, self.effort, self.pattern, self.trial, str(self.data)

    def order(self, runs: Sequence[Run], /) -> Order:
        """Returns what is to be done of these runs. Raises UserError as `load` does."""
        study, _ = self.load()
        units = Runs.of(self, study, runs)
        return Order(self, list(units.runs), units.fingerprint, units.finished, self.processes(runs))

    @property
    def processes_flag(self) -> str:
        return "--nproc"

    def processes(self, runs: Sequence[Run], /) -> int:
        """Returns the most processes that one of these runs is trained by."""
        return max((run.numerics.nproc for run in runs), default=1)

    def check_device(self, runs: Sequence[Run]) -> None:
        """Raises UserError where the device is not on this machine, or lacks what the numerics of these runs ask."""
        check_on(self.device, runs)

    def on(self, device: str, workers: int) -> Job:
        return replace(self, device=device)

    def absolute(self) -> Job:
        return replace(self, out=self.out.absolute(), data=self.data.absolute())

    def unprepared(self, runs: Sequence[Run]) -> list[Task]:
        """Returns the tasks of these runs whose arrays are not there."""
        tasks = dict.fromkeys(task for run in runs for task in (run.task, *run.trained_on))
        return [task for task in tasks if not prepared.is_there(task, self.data)]

    def prepare(self, units: Sequence[str]) -> None:
        """Prepares data, for their lock may not hold between machines."""
        _, runs = self.load()
        for task in self.unprepared([run for run in runs if run.id in units]):
            prepared.load(task, self.data)

    def loaded(self) -> Runs:
        import torch

        study, runs = self.load()
        torch.set_num_threads(self.threads)
        if (count := self.processes(runs)) == 1:
            self.check_device(runs)
        elif self.device.startswith("cuda") and (here := torch.cuda.device_count()) < count:  # which takes no memory
            raise UserError(
                f"A run by {count} processes needs as many GPUs, and this machine has {here}: "
                f"give --gpus {count}, or --device cpu."
            )
        return Runs.of(self, study, runs)

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"out": str(self.out), "data": str(self.data)})

    @staticmethod
    def from_json(text: str) -> Job:
        fields: dict[str, Any] = json.loads(text)
        named = fields["source"]
        options: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in named["options"].items()}
        source = Source(**named | {"options": Options(**options), "numerics": Numerics(**named["numerics"])})
        return Job(**fields | {"source": source, "out": Path(fields["out"]), "data": Path(fields["data"])})


def checked(runs: Sequence[Run], out: Path, data: Path) -> Iterator[str]:
    """Yields what to say before runs are executed into `out`: which data is missing, which batches are too large.

    Raises UserError for a run that cannot be executed, and where no data is there.
    """
    from levelfield.engine import forecast
    from levelfield.run import check

    for run in runs:
        check(run)
    yield from (*lacking(runs, out, data), *forecast.oversized(runs, data))


def check_on(device: str, runs: Sequence[Run]) -> None:
    """Raises UserError where the device is not on this machine, or lacks what the numerics of these runs ask."""
    from levelfield.run import pick_device
    from levelfield.runs.numerics import check_device

    here = pick_device(device)
    for numerics in {run.numerics for run in runs}:
        check_device(numerics, here)


def lacking(runs: Sequence[Run], out: Path, data: Path) -> Iterator[str]:
    """Yields a sentence for each task whose data is not there; the other runs are executed all the same.

    Raises UserError where that leaves none to execute.
    """
    left = [run for run in runs if not store.complete(store.directory(out, run))]
    there = {run.task: not prepared.lacks_files(run.task, data) for run in left}
    absent = [task.name for task, known in there.items() if not known]
    sentences = [f"{name} is not prepared: start with `{prepared.command(name, data)}`." for name in absent]
    if absent and not any(there.values()):
        raise UserError(" ".join(dict.fromkeys(sentences)))
    yield from dict.fromkeys(sentences)


def index_of(job: Job, declared: Study, study: Study) -> StudyIndex:
    """Returns the record of all runs of a job's study, with the trials that chose their recipes.

    declared: the study as its source declares it. study: what `Job.selected` makes of it.
    """
    tuned = declared.search_at(job.effort) is not None and not job.trial
    return StudyIndex.of(
        study.name,
        job.effort,
        choose(study, job.effort),
        trials=tuning.trial_records(declared, job.effort, job.out) if tuned else (),
        asked_trials=job.source.trials,
        sizes=job.source.sizes(job.effort),
        probes=study.probes,
    )


@dataclass(frozen=True)
class Runs:
    """The runs of a job by their ids, and their probes: its `jobs.Units`."""

    job: Job
    runs: Mapping[str, Run]
    probes: Mapping[str, Sequence[Probe]]

    @staticmethod
    def of(job: Job, study: Study, runs: Sequence[Run]) -> Runs:
        """Takes the runs of a study. Raises UserError for what goes wrong in its `probes`, and for two of one name."""
        probes = {run.id: study.probes(run) for run in runs}
        for run_id, each in probes.items():
            names = [probe.name for probe in each]
            if twice := {name for name in names if names.count(name) > 1}:
                raise UserError(f"{study.name} measures {run_id} by two probes called {min(twice)}: rename one.")
        return Runs(job, {run.id: run for run in runs}, probes)

    @property
    def name(self) -> str:
        return self.job.source.mixer or self.job.source.study

    @property
    def fingerprint(self) -> str:
        return self.job.source.fingerprint(list(self.runs.values()))

    def finished(self, unit: str) -> bool:
        """Tells whether the run and all its probes have been measured."""
        where = self.job.out / unit
        return store.complete(where) and all(store.probe_file(where, p).exists() for p in self.probes[unit])

    def attempt(self, unit: str, spared: jobs.Spared | None = None) -> tuple[str, str]:
        return attempt(self.runs[unit], self.job, self.probes[unit], spared)


def attempt(run: Run, job: Job, probes: Sequence[Probe], spared: jobs.Spared | None = None) -> tuple[str, str]:
    """Executes one run, if it is free, and returns the outcome and why, as `jobs.attempt` does."""
    from levelfield.run import execute

    where = store.directory(job.out, run)

    def train(mine: Lease) -> None:
        if run.numerics.nproc > 1:
            torchrun.execute(run, mine, words=(job.to_json(), run.id), threads=job.threads)
        else:
            execute(run, where, job.data, job.device, probes, tested=not job.trial, claim=mine)

    return jobs.attempt(where, train, spared)
