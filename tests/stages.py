"""A toy study in a folder of its own, executed by some engine: what the tests of all engines share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from levelfield.engine.driver import Driver, Engine, Outcome, Screen
from levelfield.engine.find import Source, choose
from levelfield.engine.local import Local
from levelfield.engine.worker import Job, attempt
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

    def execute(self, engine: Engine | None = None, screen: Screen | None = None) -> Outcome:
        return Driver(self.job, engine or Local(["cpu"]), screen or self.heard).execute(self.runs())

    def where(self, seed: int) -> Path:
        return store.directory(self.job.out, self.runs()[seed])


def undisturbed(stage: Stage, seed: int) -> dict[str, bytes]:
    alone, run = replace(stage.job, out=stage.folder / "alone"), stage.runs()[seed]
    assert attempt(run, alone, ()) == ("done", "")
    return {name: (alone.out / run.id / name).read_bytes() for name in BYTES}


def wait_for(condition: object, seconds: float = 60.0) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
