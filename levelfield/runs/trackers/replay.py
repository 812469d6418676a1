"""Reads a run's log and tells a tracker what it has not been told yet.

    Replayer(sink, state).catch_up(where)    # 200 the first time, 0 the second, 17 after 17 more records

How far a tracker is stands in a file for each run: the number of records that it has, and their SHA-256. A kill undoes
the records after the last checkpoint, and they are written again: nothing is told until the log is longer than before.
On a CPU they are the same bytes. Where they are not, because the folder was removed or a GPU gave other digits, the
tracker gets another run, `ID.2`, since what it was told of the first one cannot be taken back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypedDict

from levelfield.files import disk_errors, locked, read_json, remedy, to_line, write_json
from levelfield.runs import sound, store
from levelfield.runs.names import arm_of
from levelfield.runs.results import LogRecord
from levelfield.spec import UserError
from levelfield.spec.shapes import fault

VALUES = ("loss", "lr", "score")
Setting = str | int | float | bool


@dataclass(frozen=True)
class Tracked:
    """A run as trackers know it. arm: runs that differ in their seed alone. config: field of its spec -> value."""

    name: str
    arm: str
    config: Mapping[str, Setting]


@dataclass(frozen=True)
class Entry:
    """One record of a log. number: in the run, from 1. step: in its phase, from 1. values: "1-label/loss" -> 1.73."""

    number: int
    phase: str
    step: int
    values: Mapping[str, float]


class Sink(Protocol):
    """What takes the records of runs. Each method raises whatever the tracker raises.

    look: the command that shows them, "" where they are elsewhere.
    """

    look: str

    def log(self, run: Tracked, entries: Sequence[Entry]) -> bool:
        """Takes records in order. Returns whether they are safe; else they are once `conclude` or `close` returns.

        Records that it has already, by their number, are to change nothing.
        """
        ...

    def conclude(self, run: Tracked, facts: Mapping[str, float]) -> None:
        """Takes what a complete run came to: "test/accuracy" -> 0.52, "ledger/steps" -> 1600."""
        ...

    def close(self) -> None:
        """Ends everything that is open."""
        ...


class _Told(TypedDict):
    """What the file of a state holds."""

    records: int
    sha256: str
    attempt: int
    concluded: str


@dataclass(frozen=True)
class State:
    """How far a tracker is with a run. concluded: the SHA-256 of the facts that it was told, "" before."""

    records: int = 0
    sha256: str = hashlib.sha256().hexdigest()
    attempt: int = 1
    concluded: str = ""


@dataclass
class Replayer:
    """Brings a tracker up to date. folder: of the states."""

    sink: Sink
    folder: Path

    def __post_init__(self) -> None:
        self.unsafe: dict[Path, State] = {}  # what the tracker was told and may still lose

    def catch_up(self, where: Path) -> int:
        """Tells what is new of a run, and returns how many records that was. Raises what the tracker raises.

        Raises UserError where a file of the run is damaged; and where the log of a complete one is missing, after what
        it came to was told.
        """
        path = self.folder / f"{where.name}.json"
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        with locked(path.with_suffix(".lock")):
            complete = store.complete(where)  # asked first: what is complete now has its whole log
            records = _records(where)
            state = self.unsafe.get(path) or _read(path)
            lost = complete and not (where / store.LOG).exists() and _facts(where).get("ledger/steps", 0) > 0
            if len(records) < state.records and not complete:
                return 0
            if not lost and _digest(records[: state.records]) != state.sha256:
                state = State(attempt=state.attempt + 1)
            new = list(_entries(records, state.records))
            run = _tracked(where, state.attempt)
            if new:
                state = replace(state, records=len(records), sha256=_digest(records))
                self._keep(path, state, safe=self.sink.log(run, new))
            if complete:
                self._conclude(path, state, run, _facts(where))
        if lost:
            raise UserError(f"{where / store.LOG} is missing, and so is the training curve: {remedy(where)}.")
        return len(new)

    def _conclude(self, path: Path, state: State, run: Tracked, facts: Mapping[str, float]) -> None:
        digest = hashlib.sha256(to_line(facts).encode()).hexdigest()
        if digest != state.concluded:
            self.sink.conclude(run, facts)
            self._keep(path, replace(state, concluded=digest), safe=True)

    def _keep(self, path: Path, state: State, safe: bool) -> None:
        self.unsafe[path] = state
        if safe:
            write_json(path, asdict(self.unsafe.pop(path)))

    def close(self) -> None:
        """Ends the tracker, after which all that it was told is safe."""
        self.sink.close()
        for path in list(self.unsafe):
            self._keep(path, self.unsafe[path], safe=True)


def _read(path: Path) -> State:
    """Returns how far the tracker is. Raises UserError where the file is damaged."""
    if not path.exists():
        return State()
    advice = "remove it, and all records are told again"
    known = read_json(path, advice)
    if wrong := fault(known, _Told):
        raise UserError(f"{path} is damaged ({wrong}): {advice}.")
    return State(**known)


def _records(where: Path) -> list[LogRecord]:
    records, lacking = sound.curve(where / store.LOG)
    if lacking:
        raise UserError(f"{where / store.LOG} is damaged ({lacking}): take that out of it.")
    return records


def _digest(records: Sequence[LogRecord]) -> str:
    return hashlib.sha256("".join(map(to_line, records)).encode()).hexdigest()


def _entries(records: Sequence[LogRecord], first: int) -> Iterator[Entry]:
    """Yields the records from number `first` on, counted from 0. Numbers are those of the log, not rounded."""
    for number, record in enumerate(records[first:], start=first + 1):
        phase = f"{record['phase'] + 1}-{record.get('objective', 'phase')}"
        known = ((key, record.get(key)) for key in VALUES)
        values = {f"{phase}/{key}": value for key, value in known if value is not None}
        yield Entry(number, phase, record["step"], values)


def _tracked(where: Path, attempt: int) -> Tracked:
    spec = read_json(where / store.SPEC) if (where / store.SPEC).exists() else {}
    name = where.name if attempt == 1 else f"{where.name}.{attempt}"
    return Tracked(name, arm_of(where.name), dict(_flat(spec)))


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Setting]]:
    """Yields every leaf of a described value by its path: "protocol.phases.0.recipe.lr", 0.002."""
    named = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in named:
        yield from _flat(inner, f"{path}.{name}".lstrip("."))
    if isinstance(value, Setting):
        yield path, value


def _facts(where: Path) -> dict[str, float]:
    """Returns the scores of a complete run on whole splits, and its ledger. Raises UserError for damage."""
    found: dict[str, float] = {}
    for row in store.run_rows(where / store.ROWS):
        own = row.get("protocol") != "none" and row.get("metric") != "chance" and not row.get("at")
        if own and "value" in row:
            found[f"{row.get('split')}/{row.get('metric')}"] = row["value"]
    for name, value in read_json(where / store.LEDGER).items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[f"ledger/{name}"] = value
    return found
