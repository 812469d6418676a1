"""The local engine against real worker processes: killed ones, failing ones, two engines at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from levelfield import engines, store
from levelfield.engines import Local, Outcome, cause
from levelfield.loading import Source, choose
from levelfield.spec import Run, UserError
from levelfield.worker import Order

STUDY = '''
"""A toy study: which of two symbols comes first. `TRAP` says what the layer of seed 1 does to its process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from torch import Generator, Tensor, nn

from levelfield.protocols import scratch
from levelfield.spec import (
    Duration, Examples, Label, MixerConfig, Model, Recipe, Report, Run, Study, Task, Tokens, silent
)

TRAP, STEPS, RUNS, PAUSE = "{trap}", {steps}, {runs}, {pause}
MARK = Path(__file__).with_name("died")


@dataclass(frozen=True)
class Toy(Task):
    name = "toy"
    version = 1
    source = "none"
    split_rule = "drawn"
    input = Tokens(2)
    output = Label(2)
    max_length = 6
    chance = 0.5

    def build(self, sources: Path | None, report: Report = silent) -> Mapping:
        codes = np.arange(64)
        x = ((codes[:, None] >> np.arange(6)) & 1).astype(np.uint8)
        parts = {{"train": codes % 4 < 2, "val": codes % 4 == 2, "test": codes % 4 == 3}}
        return {{k: Examples.of_equal_length(x[p], x[p][:, 0].astype(np.int64)) for k, p in parts.items()}}


class Layer(nn.Module):
    def __init__(self, width: int, trap: str) -> None:
        super().__init__()
        self.scale = nn.Parameter(nn.init.ones_(__import__("torch").empty(width)))
        self.trap = trap

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        time.sleep(PAUSE)
        if self.trap == "raise":
            raise ValueError("no such luck")
        if self.trap == "die" or (self.trap == "die once" and not MARK.exists()):
            MARK.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return x * self.scale


@dataclass(frozen=True)
class Trap(MixerConfig):
    kind: str = ""
    label: ClassVar[str] = "trap"
    paper: ClassVar[str] = ""

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        return Layer(width, self.kind)

    def state_size(self, width: int, length: int) -> int:
        return 0


def runs(effort: str) -> list[Run]:
    recipe = Recipe(lr=1e-2, weight_decay=0.0, batch=8, budget=Duration(STEPS, "steps"), warmup=Duration(0, "steps"),
                    schedule="constant", clip=None, validate_every=Duration(STEPS, "steps"))
    model = [Model(mixers=(Trap(TRAP if seed == 1 else ""),), depth=1, width=4) for seed in range(RUNS)]
    return [Run(Toy(), model[seed], scratch(recipe), seed) for seed in range(RUNS)]


study = Study(name="toys", claim="none", runs=runs)
'''


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

    def write(self, trap: str = "", steps: int = 3, runs: int = 3, pause: float = 0.0) -> None:
        self.path.write_text(STUDY.format(trap=trap, steps=steps, runs=runs, pause=pause))

    @property
    def path(self) -> Path:
        return self.folder / "toys.py"

    @property
    def order(self) -> Order:
        return Order(Source(str(self.path)), "smoke", out=self.folder / "runs", data=self.folder / "data")

    def runs(self) -> list[Run]:
        return choose(self.order.source.load(), "smoke")

    def engine(self, jobs: int) -> Local:
        return Local(self.order, ["cpu"] * jobs)

    def execute(self, jobs: int = 1) -> Outcome:
        return self.engine(jobs).execute(self.runs(), self.heard)

    def where(self, seed: int) -> Path:
        return store.directory(self.order.out, self.runs()[seed])


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def wait_for(condition: object, seconds: float = 60.0) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def test_every_run_is_done_and_the_number_of_workers_changes_no_byte(stage: Stage, tmp_path: Path) -> None:
    stage.write(runs=2, steps=4)
    assert len(stage.execute(jobs=2).done) == 2
    (tmp_path / "other").mkdir()
    other = Stage(tmp_path / "other")
    other.path.write_text(stage.path.read_text())
    other.execute(jobs=1)
    for seed in (0, 1):
        for name in ("weights.safetensors", "rows.jsonl"):
            assert (stage.where(seed) / name).read_bytes() == (other.where(seed) / name).read_bytes()


def test_what_is_done_is_not_done_again(stage: Stage) -> None:
    stage.write(runs=1)
    stage.execute()
    before = (stage.where(0) / store.DONE).stat().st_mtime_ns
    engine = stage.engine(1)
    assert len(engine.execute(stage.runs(), stage.heard).done) == 1
    assert (stage.where(0) / store.DONE).stat().st_mtime_ns == before
    assert engine.fingerprint and not engine.heard.qsize()


def test_a_run_that_raises_fails_with_its_reason_and_the_others_go_on(stage: Stage) -> None:
    stage.write(trap="raise")
    outcome = stage.execute()
    assert len(outcome.done) == 2
    assert list(outcome.failed.values()) == ["ValueError: no such luck"]
    text = (stage.where(1) / "error.txt").read_text()
    assert text.splitlines()[0] == "ValueError: no such luck"
    assert "Traceback" in text
    assert len([s for s in stage.heard.said if "no such luck" in s]) == 1


def test_a_worker_that_dies_costs_its_run_one_retry(stage: Stage) -> None:
    stage.write(trap="die once")
    outcome = stage.execute()
    assert len(outcome.done) == 3
    assert not outcome.failed
    assert any("SIGKILL" in s and "once more" in s for s in stage.heard.said)


def test_a_worker_that_always_dies_fails_one_run_only(stage: Stage) -> None:
    stage.write(trap="die")
    outcome = stage.execute()
    assert len(outcome.done) == 2
    assert "twice" in outcome.failed[stage.runs()[1].id]
    assert "SIGKILL" in (stage.where(1) / "error.txt").read_text()


def test_a_failed_run_is_tried_again_by_the_next_command(stage: Stage) -> None:
    stage.write(trap="die once", runs=2)
    (stage.folder / "died").touch()
    stage.where(1).mkdir(parents=True)
    (stage.where(1) / "error.txt").write_text("It failed before.\n")
    assert len(stage.execute().done) == 2
    assert not (stage.where(1) / "error.txt").exists()


def test_two_engines_at_once_share_the_runs(stage: Stage) -> None:
    stage.write(runs=4, steps=8, pause=0.01)
    outcomes: list[Outcome] = []
    command = threading.Thread(target=lambda: outcomes.append(stage.execute()))
    command.start()
    outcomes.append(stage.engine(1).execute(stage.runs(), Heard()))
    command.join()
    assert [len(o.done) for o in outcomes] == [4, 4]
    for seed in range(4):
        steps = [json.loads(line)["step"] for line in (stage.where(seed) / "log.jsonl").read_text().splitlines()]
        assert steps == list(range(1, 9))


def test_the_worker_notices_that_the_study_changed_after_planning(stage: Stage) -> None:
    stage.write(runs=1)
    runs = stage.runs()
    engine = stage.engine(1)
    fingerprint = stage.order.source.fingerprint(runs)
    stage.write(runs=2)
    assert stage.order.source.fingerprint(stage.runs()) != fingerprint
    start = engine._start

    def start_late() -> engines._Worker:
        engine.fingerprint = fingerprint
        return start()

    engine._start = start_late  # type: ignore[method-assign]
    with pytest.raises(UserError, match="changed after its runs were planned"):
        engine.execute(runs, stage.heard)
    assert not store.complete(store.directory(stage.order.out, runs[0]))


def test_killing_the_parent_ends_the_workers_and_the_next_command_continues(stage: Stage) -> None:
    stage.write(runs=1, steps=4000, pause=0.01)
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_engines import Stage
stage = Stage(Path({str(stage.folder)!r}))
engine = stage.engine(1)
class Tell:
    def say(self, sentence): pass
    def show(self, running, done, failed, total): print(engine.workers[0].process.pid, flush=True)
engine.execute(stage.runs(), Tell())
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=stage.folder)
    assert parent.stdout
    worker = int(parent.stdout.readline())
    wait_for(lambda: (stage.where(0) / "log.jsonl").exists())
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    wait_for(lambda: not alive(worker), 10.0)
    with store.claim(stage.where(0)) as mine:
        assert mine


def test_interrupting_stops_the_workers(stage: Stage) -> None:
    stage.write(runs=2, steps=4000, pause=0.01)
    engine = stage.engine(2)
    pids: list[int] = []

    class Interrupt(Heard):
        def show(self, running: Sequence[Path], done: int, failed: int, total: int) -> None:
            pids[:] = [w.process.pid for w in engine.workers]
            if any((where / "log.jsonl").exists() for where in running):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.execute(stage.runs(), Interrupt())
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)


def test_a_worker_that_cannot_start_says_why(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.write(runs=1)
    runs = stage.runs()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(UserError, match="could not start"):
        stage.engine(1).execute(runs, stage.heard)


def test_an_order_survives_the_journey_to_a_worker() -> None:
    order = Order(Source("compare", "a.py:M", ("listops",), ()), "hours", Path("o"), Path("d"), "x*", "cuda:1", 3)
    assert Order.from_json(order.to_json()) == order


def test_causes_are_words() -> None:
    assert "SIGKILL" in cause(-9) and "memory" in cause(-9)
    assert "SIGSEGV" in cause(-11)
    assert "3" in cause(3)
