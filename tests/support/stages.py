"""A toy study in a folder of its own, executed by some engine: what the tests of all engines share."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import flat_files
import pytest
import refusals

from levelfield.cli.app import main
from levelfield.engine import pool
from levelfield.engine.driver import Driver, Engine, Outcome, Screen
from levelfield.engine.find import Source, choose
from levelfield.engine.local import Local
from levelfield.engine.pool import Workplace
from levelfield.engine.training import Job, attempt
from levelfield.runs import store
from levelfield.spec import Run

BYTES = ("weights.safetensors", "rows.jsonl", "log.jsonl")


@dataclass
class Heard:
    """A screen that remembers."""

    said: list[str] = field(default_factory=list)
    running: list[Path] = field(default_factory=list)

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def show(self, running: Sequence[Path], done: int, failed: int, total: int) -> None:
        self.running = list(running)


@dataclass
class Stage:
    """A toy study in a folder of its own."""

    folder: Path
    heard: Heard = field(default_factory=Heard)

    @property
    def path(self) -> Path:
        return self.folder / "toys.py"

    @property
    def job(self) -> Job:
        return Job(Source(str(self.path)), "smoke", out=self.folder / "runs", data=self.folder / "data")

    def runs(self) -> list[Run]:
        return choose(self.job.source.load(), "smoke")

    def execute(
        self, engine: Engine | None = None, screen: Screen | None = None, runs: Sequence[Run] | None = None
    ) -> Outcome:
        planned = self.runs() if runs is None else runs
        return Driver(self.job, engine or Local(["cpu"]), screen or self.heard).execute(planned)

    def where(self, seed: int) -> Path:
        return store.directory(self.job.out, self.runs()[seed])


@dataclass
class Threads:
    """A cluster whose workers are threads. broken: they end at once. in_turn: one after another, as runs that train at
    the same time in one process would draw from one generator."""

    broken: bool = False
    in_turn: bool = False
    turn: threading.Lock = field(default_factory=threading.Lock)
    started: list[threading.Thread] = field(default_factory=list)
    cancelled: int = 0
    said: list[str] = field(default_factory=list)

    def open(self, place: Workplace) -> None:
        self.place = place

    def start(self, count: int) -> None:
        for _ in range(count):
            self.started.append(threading.Thread(target=self._work, daemon=True))
            self.started[-1].start()

    def _work(self) -> None:
        if not self.broken:
            with self.turn if self.in_turn else nullcontext():
                self.said.append(pool.work(self.place.path))

    def alive(self) -> int:
        return sum(each.is_alive() for each in self.started)

    def last_words(self) -> str:
        return "no module named levelfield"

    def cancel(self) -> None:
        self.cancelled += 1

    def close(self) -> None:
        for each in self.started:
            each.join()


def undisturbed(stage: Stage, seed: int) -> dict[str, bytes]:
    alone, run = replace(stage.job, out=stage.folder / "alone"), stage.runs()[seed]
    assert attempt(run, alone, ()) == ("done", "")
    return {name: (alone.out / run.id / name).read_bytes() for name in BYTES}


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Returns the sentence with which the toy study of the current folder is refused on an engine."""
    return refusals.refused(capsys, "run", "toys.py", "--effort", "smoke", "--device", "cpu", *words)


def answers(runs: str, *words: str) -> list[str]:
    """Returns the lines of answers, sorted, of a small language model that is asked in the current folder."""
    flat_files.write_model(Path("tiny"))
    few = ("--tasks", "vt", "--lengths", "1200", "--count", "40", "--device", "cpu")
    main(["ruler", "tiny", *few, "--runs-dir", runs, *words])
    return sorted(Path(runs, "ruler", "tiny", "predictions.jsonl").read_text().splitlines())
