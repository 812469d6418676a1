"""Defines what a report is made from: rows and ledgers of finished runs, as plain values.

`store.read` fills a `Results`, `report` draws it, and neither imports torch. Everything is keyed by run id, so that a
row, the ledger of the run it came from, its training curve and its full description can be put side by side:

    results = store.read(Path("runs"), "demo", "minutes")
    results.rows[0]["run"]                      # "listops-attention-scratch-0-5f0c9a1e2b"
    results.ledgers[results.rows[0]["run"]]     # {"parameters": 804874, "steps": 2000, "flops": 3.1e13, ...}
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Required, TypedDict

from levelfield.runs.hits import Hits, with_hits
from levelfield.runs.names import names_in
from levelfield.runs.probed import probe_name
from levelfield.spec import Probe, Row, Run, Task, describe, digest


class Done(TypedDict, total=False):
    """What `done.json` holds: the version that wrote the run, and the SHA-256 of its weights where it has any.

    sha256: of other files, by name. probes: names of those that the study which completed it measures it by. Runs of
    earlier versions have neither.
    """

    version: str
    weights_sha256: str
    sha256: dict[str, str]
    probes: list[str]


class PhaseLedger(TypedDict, total=False):
    """What a phase or a whole run cost, as far as reports read it."""

    examples: int
    tokens: int
    padding: int
    steps: int
    flops: float
    wall_s: float
    tuning_trials: int
    stopped: str


class Ledger(PhaseLedger, total=False):
    """What `ledger.json` holds, as far as reports read it; `phases` are in the order of the protocol."""

    parameters: float
    state: float | None
    peak_memory_mb: float  # in MiB
    device: str
    threads: int
    numerics: str
    torch: str
    claims: int
    phases: Required[list[PhaseLedger]]


class LogRecord(TypedDict, total=False):
    """One line of `log.jsonl`."""

    phase: Required[int]
    step: Required[int]
    objective: str
    loss: float
    lr: float
    score: float


def once_each(records: Sequence[LogRecord]) -> list[LogRecord]:
    """Returns the records of a log in order, one of each step: two processes wrote it where one took the run over."""
    first: dict[tuple[int, int], LogRecord] = {}
    for record in records:
        first.setdefault((record["phase"], record["step"]), record)
    return [first[place] for place in sorted(first)]


class Kind(TypedDict):
    """A described value, as far as reports rely on it."""

    kind: str


class DescribedPhase(TypedDict):
    """A phase of a described protocol."""

    objective: Kind


class DescribedProtocol(TypedDict):
    """The protocol of a described run."""

    name: str
    phases: list[DescribedPhase]


class Described(TypedDict):
    """A run as `spec.describe` has it, as far as reports rely on it."""

    task: Kind
    model: Kind
    protocol: DescribedProtocol
    seed: int


class Trial(TypedDict, total=False):
    """One recipe that was tried, as `Results.trials` has it."""

    arm: Required[str]
    task: str
    model: str
    protocol: str
    lr: Required[float]
    weight_decay: Required[float]
    chosen: Required[bool]
    validation: float
    metric: Required[str]
    unit: Required[str]
    flops: Required[float]
    wall_s: Required[float]


class Record(TypedDict, total=False):
    """What `studies/NAME-EFFORT.json` holds: which runs a study at an effort is made of, and what was tried before."""

    study: Required[str]
    effort: Required[str]
    runs: Required[dict[str, Described]]
    trials: list[Trial]
    asked_trials: int
    shared: dict[str, str]
    sizes: str
    probes: dict[str, list[str]]
    contents: dict[str, str]


@dataclass(frozen=True)
class StudyIndex:
    """The runs that a study at an effort consists of. Its file, a `Record`, is what a report starts from.

    runs: run id -> `spec.describe(run)`. trials: the recipes that were tried before, by which the runs were chosen.
    asked_trials: how many trials of each arm the command line asked for, 0 where it asked for none. shared: name of a
    task, or what `contents` calls it -> a hash of what all its arms share: its content, sizes, number of trials. sizes:
    a hash of the sizes and the recipe that all runs share, whatever their task; "" where none was said. probes: run id
    -> the names of the files of the probes that it is measured by; a run of which that is not known, as from earlier
    versions, is absent. contents: run id -> "own_reviews@3f2a91", the name of its task and a part of the hash of what
    it reads, where those are files of the user's own; the run that was asked for last is the last one.
    """

    study: str
    effort: str
    runs: Mapping[str, Mapping[str, Any]]
    trials: Sequence[Mapping[str, Any]] = ()
    asked_trials: int = 0
    shared: Mapping[str, str] = field(default_factory=dict)
    sizes: str = ""
    probes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    contents: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(
        study: str,
        effort: str,
        runs: Sequence[Run],
        trials: Sequence[Mapping[str, Any]] = (),
        asked_trials: int = 0,
        sizes: Any = None,
        probes: Callable[[Run], Sequence[Probe]] | None = None,
    ) -> StudyIndex:
        """Returns the index of these runs. sizes: what their arms share besides the task, as `spec.digest` takes it.
        probes: returns those of a run, where they are known."""
        described = {run.id: describe(run) for run in runs}
        tasks: dict[str, list[Task]] = {}
        for task in dict.fromkeys(run.task for run in runs):
            tasks.setdefault(_told_apart(task), []).append(task)
        shared = {name: digest([of, sizes, asked_trials])[:10] for name, of in tasks.items()}
        alike = "" if sizes is None else digest([sizes])[:10]
        index = StudyIndex(study, effort, described, trials=trials, asked_trials=asked_trials)
        wanted = {run.id: [*map(probe_name, probes(run))] for run in runs} if probes else {}
        contents = {run.id: _told_apart(run.task) for run in runs if run.task.reads}
        return replace(index, shared=shared, sizes=alike, probes=wanted, contents=contents)

    @property
    def record(self) -> Record:
        """The content of its file; what is empty is left out."""
        whole: dict[str, Any] = {"study": self.study, "effort": self.effort, "runs": self.runs}
        whole |= {"trials": list(self.trials)} if self.trials else {}
        whole |= {"asked_trials": self.asked_trials} if self.asked_trials else {}
        whole |= {"shared": self.shared} if self.shared else {}
        whole |= {"sizes": self.sizes} if self.sizes else {}
        whole |= {"probes": self.probes} if self.probes else {}
        whole |= {"contents": self.contents} if self.contents else {}
        return Record(**whole)

    def task(self, run_id: str) -> str:
        """Returns the name of the task of a run, or what `contents` calls it."""
        return self.contents.get(run_id) or names_in(run_id, self.runs[run_id], self.shared).task


def _told_apart(task: Task) -> str:
    """Returns the name of a task, of one that reads files of the user's own with a part of the hash of its content."""
    return f"{task.name}@{digest(task)[:6]}" if task.reads else task.name


def shared_values() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Returns what makes one object of described values that are the same, wherever they stand, as a file is read.

    Runs differ in little, most in their seed alone: the descriptions of 100,000 took 600 MB, and now 50.
    """
    first: dict[Any, dict[str, Any]] = {}

    def shared(found: dict[str, Any]) -> dict[str, Any]:
        if found.get("kind") in (None, "Run"):  # no two runs are the same
            return found
        return first.setdefault((*found, *_exactly(found.values())), found)

    return shared


def _exactly(values: Collection[Any]) -> tuple[Any, ...]:
    """Returns what tells even equal values apart, such as 1 and True: their types, and which object each is."""
    return (*map(type, values), *[id(v) if type(v) is dict else _exactly(v) if type(v) is list else v for v in values])


@dataclass(frozen=True)
class Results:
    """Everything measured for one study at one effort. A run that has not finished is absent, never a placeholder.

    rows: every number measured. ledgers: run id -> what the run cost (parameters, state, examples, tokens, steps,
    flops, wall_s, device, tuning_trials, ..., and `phases`, the same per phase). curves: run id -> training log, one
    record per logged step (phase, step, loss, lr, and score where it was validated). specs: run id ->
    `spec.describe(run)`. failures: run id -> why it did not finish, or why what it left cannot be read, one sentence.
    trials: the recipes that were tried before, one record each (arm: the first run that uses what was chosen; task,
    model, protocol; the factors lr and weight_decay; chosen, validation, metric, unit, flops, wall_s).
    unbegun: arms, as task-model-protocol, that other commands asked for and nobody has begun; they are not in `specs`.
    remarks: sentences about what is lacking of runs that have finished.
    hits: run id -> which test examples it has right, where each is right or wrong.
    variants: run id -> what tells its arm apart from others that share all names, where a report said so and `specs`
    need not be asked.
    """

    rows: Sequence[Row] = ()
    ledgers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    curves: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    specs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    trials: Sequence[Mapping[str, Any]] = ()
    unbegun: Sequence[str] = ()
    remarks: Sequence[str] = ()
    hits: Mapping[str, Hits] = field(default_factory=dict)
    variants: Mapping[str, str] = field(default_factory=dict)

    @property
    def compared(self) -> list[Row]:
        """The rows, with the hits by which verdicts compare arms example by example."""
        return [with_hits(row, self.hits) for row in self.rows]
