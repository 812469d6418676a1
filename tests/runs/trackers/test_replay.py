"""A tracker is told every record of a log once, in order and unrounded, whatever happens to it or to the run."""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from runs_on_disk import FACTS, RUN, complete, points, records, write_log

from levelfield.cli import track_command
from levelfield.cli.app import main
from levelfield.files import read_log
from levelfield.runs.trackers.replay import Entry, Replayer, Tracked
from levelfield.spec import UserError


class Ear:
    """A tracker that remembers, and fails where it is told to."""

    look = ""

    def __init__(self, safe: bool = True) -> None:
        self.safe, self.failing = safe, False
        self.heard: dict[str, list[Entry]] = {}
        self.facts: list[tuple[str, Mapping[str, float]]] = []
        self.runs: dict[str, Tracked] = {}

    def log(self, run: Tracked, entries: Sequence[Entry]) -> bool:
        if self.failing:
            raise ConnectionError("no route")
        self.runs[run.name] = run
        self.heard.setdefault(run.name, []).extend(entries)
        return self.safe

    def conclude(self, run: Tracked, facts: Mapping[str, float]) -> None:
        if self.failing:
            raise ConnectionError("no route")
        self.facts.append((run.name, facts))

    def close(self) -> None:
        pass

    def points(self, name: str = RUN) -> dict[str, list[tuple[int, float]]]:
        found: dict[str, list[tuple[int, float]]] = {}
        for entry in self.heard.get(name, ()):
            for tag, value in entry.values.items():
                found.setdefault(tag, []).append((entry.step, value))
        return found

    def numbers(self, name: str = RUN) -> list[int]:
        return [entry.number for entry in self.heard.get(name, ())]


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / "runs" / RUN


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def replayer(ear: Ear, tmp_path: Path) -> Replayer:
    return Replayer(ear, tmp_path / "state")


def test_each_record_is_told_once_and_unrounded(where: Path, ear: Ear, replayer: Replayer) -> None:
    write_log(where, records(50), cut='{"phase": 1, "st')
    assert replayer.catch_up(where) == 50
    assert replayer.catch_up(where) == 0
    write_log(where, records(80))
    again = Replayer(ear, replayer.folder)  # another process
    assert again.catch_up(where) == 30 and ear.facts == []
    assert ear.points() == points(read_log(where / "log.jsonl")) == points(records(80))
    assert ear.numbers() == list(range(1, 81))
    assert ear.runs[RUN].arm == "listops-s4-spt_masked"
    assert ear.runs[RUN].config["protocol.phases.0.lr"] == 0.002


def test_what_a_complete_run_came_to_is_told_once_and_again_when_it_changes(
    where: Path, ear: Ear, replayer: Replayer
) -> None:
    write_log(where, records(80))
    complete(where)
    assert (replayer.catch_up(where), replayer.catch_up(where)) == (80, 0)
    assert ear.facts == [(RUN, FACTS)]
    complete(where, accuracy=0.53)
    replayer.catch_up(where)
    assert ear.facts[1:] == [(RUN, FACTS | {"test/accuracy": 0.53})] and ear.numbers() == list(range(1, 81))


def test_an_outage_is_caught_up_with(where: Path, ear: Ear, replayer: Replayer) -> None:
    write_log(where, records(10))
    replayer.catch_up(where)
    write_log(where, records(30))
    ear.failing = True
    for _ in range(2):
        with pytest.raises(ConnectionError):
            replayer.catch_up(where)
    ear.failing = False
    assert replayer.catch_up(where) == 20 and ear.numbers() == list(range(1, 31))


def test_records_that_a_kill_undid_are_not_told_twice(where: Path, ear: Ear, replayer: Replayer) -> None:
    write_log(where, records(50))
    replayer.catch_up(where)
    for count in (30, 49, 50, 60):
        write_log(where, records(count))
        replayer.catch_up(where)
    assert ear.points() == points(records(60)) and list(ear.heard) == [RUN]


def test_a_log_that_says_something_else_is_another_run_of_the_tracker(
    where: Path, ear: Ear, replayer: Replayer
) -> None:
    write_log(where, records(50))
    replayer.catch_up(where)
    other = [*records(20), *({**line, "lr": 0.5} for line in records(40, first=20))]
    write_log(where, other)
    assert replayer.catch_up(where) == 60
    assert ear.points() == points(records(50)) and ear.points(f"{RUN}.2") == points(other)
    write_log(where, short := records(5))
    complete(where)  # the folder was removed, and the run is shorter now
    assert replayer.catch_up(where) == 5 and ear.points(f"{RUN}.3") == points(short)


def test_records_that_two_processes_wrote_are_told_once(where: Path, ear: Ear, replayer: Replayer) -> None:
    write_log(where, [*records(20), *records(10, first=12)])
    replayer.catch_up(where)
    assert ear.points() == points(records(22))


def test_what_a_tracker_may_lose_is_told_again_after_a_crash(where: Path, tmp_path: Path) -> None:
    ear = Ear(safe=False)
    write_log(where, records(10))
    first = Replayer(ear, tmp_path / "state")
    assert (first.catch_up(where), first.catch_up(where)) == (10, 0)
    assert Replayer(ear, tmp_path / "state").catch_up(where) == 10
    first.close()
    assert Replayer(ear, tmp_path / "state").catch_up(where) == 0


def test_any_order_of_writing_killing_and_failing_ends_with_the_log(tmp_path: Path) -> None:
    for seed in range(8):
        draw, ear = random.Random(seed), Ear()
        where, count = tmp_path / str(seed) / RUN, 1
        for _ in range(12):
            count = min(60, count + draw.randrange(12)) if draw.random() < 0.7 else draw.randrange(count + 1)
            write_log(where, records(count))
            ear.failing = draw.random() < 0.3
            with suppress(ConnectionError):
                Replayer(ear, where.parent / "state").catch_up(where)
        ear.failing = False
        write_log(where, records(60))
        complete(where)
        Replayer(ear, where.parent / "state").catch_up(where)
        assert ear.numbers() == list(range(1, 61)) and ear.points() == points(records(60)), f"seed {seed}"
        assert ear.facts == [(RUN, FACTS)]


def test_a_damaged_log_is_one_sentence_and_the_other_runs_are_told(
    tmp_path: Path, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(track_command, "open_sink", lambda name, folder: ear)
    for name in ("a", "b"):
        write_log(tmp_path / name, records(3))
    (tmp_path / "a" / "log.jsonl").write_text('{"phase": "one", "step": 1}\n')
    telling = track_command.Telling("ear")
    telling.catch_up(track_command.run_folders(tmp_path))
    assert list(telling.failures) == ["a"] and "is damaged" in telling.failures["a"] and ear.numbers("b") == [1, 2, 3]


def test_a_log_that_is_gone_is_told_and_leaves_the_tracker_what_it_has(
    where: Path, ear: Ear, replayer: Replayer
) -> None:
    write_log(where, records(3))
    replayer.catch_up(where)
    complete(where)
    ledger = where / "ledger.json"
    ledger.write_text(json.dumps(json.loads(ledger.read_text()) | {"steps": 3}))
    (where / "log.jsonl").unlink()
    for _ in range(2):
        with pytest.raises(UserError, match=r"log.jsonl is missing, and so is the training curve: remove .* run again"):
            replayer.catch_up(where)
    assert ear.numbers() == [1, 2, 3] and [run for run, _ in ear.facts] == [RUN]


def test_a_tracker_that_is_away_is_left_alone_until_the_next_time(
    tmp_path: Path, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(track_command, "open_sink", lambda name, folder: ear)
    monkeypatch.setattr(track_command, "check", lambda name: None)
    monkeypatch.setattr(track_command, "EVERY_S", 0.01)
    monkeypatch.setattr(track_command, "SLOW_S", 0.0)
    for number in range(5):
        write_log(tmp_path / f"run{number}", records(2))
    ear.failing = True
    said: list[str] = []
    assert track_command.track([tmp_path], "ear", said.append) is False
    untold = "and was not told of run1, run2, run3 and 1 more"
    assert said == [f"ear did not take run0, {untold}: ConnectionError: no route"]
    ended = threading.Event()
    telling = threading.Thread(target=track_command.track, args=([tmp_path], "ear", said.append, ended))
    telling.start()
    ear.failing = False
    while len(ear.heard) < 5:
        pass
    ended.set()
    telling.join()
    assert said[1:] == ["Told ear 10 new records of 5 runs."]


def test_runs_that_a_tracker_refuses_keep_no_other_from_it(
    tmp_path: Path, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses the first four for good, and takes longer to open than failures may take."""

    def refuses(run: Tracked, entries: Sequence[Entry]) -> bool:
        if run.name < "run4":
            raise ValueError("no such key")
        return Ear.log(ear, run, entries)

    def opened(name: str, folder: Path) -> Ear:
        time.sleep(0.6)
        return ear

    monkeypatch.setattr(ear, "log", refuses)
    monkeypatch.setattr(track_command, "open_sink", opened)
    monkeypatch.setattr(track_command, "check", lambda name: None)
    monkeypatch.setattr(track_command, "SLOW_S", 0.5)
    for number in range(6):
        write_log(tmp_path / f"run{number}", records(2))
    said: list[str] = []
    assert track_command.track([tmp_path], "ear", said.append) is False
    assert list(ear.heard) == ["run4", "run5"]
    assert said == ["ear did not take run0, run1, run2 and 1 more: ValueError: no such key"]


def test_a_server_that_cannot_be_reached_is_tried_once_and_waited_for_aloud(
    tmp_path: Path, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    said: list[str] = []

    def unreachable(name: str, folder: Path) -> Ear:
        tried.append(name)
        while not said:  # until the user is told
            pass
        raise ConnectionError("no route")

    monkeypatch.setattr(track_command, "open_sink", unreachable)
    monkeypatch.setattr(track_command, "check", lambda name: None)
    monkeypatch.setattr(track_command, "SOON_S", 0.01)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:secret@here.example:5000/mlflow")
    for number in range(2):
        write_log(tmp_path / f"run{number}", records(2))
    assert track_command.track([tmp_path], "mlflow", said.append) is False and tried == ["mlflow"]
    waiting = "Waiting for mlflow at https://here.example:5000; Ctrl-C is safe."
    assert said == [waiting, "mlflow did not take run0, and was not told of run1: ConnectionError: no route"]


def test_a_study_names_its_runs_and_a_folder_all_but_its_trials(tmp_path: Path) -> None:
    for name in (RUN, "trials/" + RUN, "other"):
        write_log(tmp_path / name, records(1))
    (tmp_path / "studies").mkdir()
    index = tmp_path / "studies" / "demo-minutes.json"
    kind, protocol = {"kind": "Toy"}, {"name": "scratch", "phases": []}
    spec = {"task": kind, "model": kind, "protocol": protocol, "seed": 0}
    specs = dict.fromkeys((RUN, "not-yet"), spec)
    index.write_text(json.dumps({"study": "demo", "effort": "minutes", "runs": specs}))
    assert track_command.run_folders(index) == [tmp_path / RUN] == track_command.run_folders(tmp_path / RUN)
    assert track_command.run_folders(tmp_path) == [tmp_path / RUN, tmp_path / "other"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["track", "nowhere", "--to", "tensorboardd"],
            "There is no tracker 'tensorboardd': did you mean 'tensorboard'?",
        ),
        (["track", ".", "--to", "here"], "The package here is not installed: pip install 'levelfield[here]'."),
        (["track", "nowhere", "--to", "json"], "There is no folder nowhere"),
        (["track", ".", "--to", "json"], "There are no runs in ."),
        (["track", "--to", "json"], "Name what to tell"),
        (["track", __file__, "--to", "json"], "test_replay.py is no folder of runs, and no index of a study that can"),
        (["run", "demo", "--track", "wand"], "There is no tracker 'wand': did you mean 'wandb'?"),
    ],
)
def test_wrong_words_are_one_sentence_before_anything_runs(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from levelfield.runs import trackers

    for name in ("here", "json"):  # a package that is missing, and one that is there
        monkeypatch.setitem(trackers.SINKS, name, trackers.SINKS["trackio"])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(words)
    said = capsys.readouterr().err
    assert stop.value.code == 2 and sentence in said and said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_tracker_that_fails_is_one_warning_after_the_runs(tmp_path: Path) -> None:
    index = tmp_path / "runs" / "studies" / "demo-smoke.json"
    said: list[str] = []
    with track_command.alongside("", index, said.append):
        pass
    assert said == [] and not index.parent.parent.exists()
    with track_command.alongside("nothing", index, said.append):
        write_log(tmp_path / "runs" / RUN, records(3))
    (warning,) = said
    assert "There is no tracker 'nothing'" in warning and "catch up with: levelfield track" in warning
    assert list(tmp_path.glob("runs/*/log.jsonl")) == [tmp_path / "runs" / RUN / "log.jsonl"]
    with pytest.raises(UserError, match="of the block"), track_command.alongside("nothing", index, said.append):
        raise UserError("of the block")


@pytest.mark.skipif(sys.platform == "win32", reason="the process that stands in for ours is a script of a shell")
@pytest.mark.parametrize(
    ("does", "why"), [("exec sleep 60", "had not taken everything"), ("kill -9 $$", "with code -9")]
)
def test_a_tracker_that_hangs_or_crashes_holds_nothing_up(
    does: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\n{does}\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr(track_command, "PATIENCE_S", 20.0 if "kill" in does else 0.2)
    said: list[str] = []
    with track_command.alongside("wandb", tmp_path / "runs" / "studies" / "demo-smoke.json", said.append):
        pass
    said = [line for line in said if not line.startswith("Waiting")]
    assert len(said) == 1 and why in said[0] and "The runs are as they are without it" in said[0]


@pytest.mark.skipif(sys.platform == "win32", reason="the process that stands in for ours is a script of a shell")
def test_the_process_that_tells_a_tracker_finds_this_very_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "python"
    script.write_text('#!/bin/sh\necho "${PYTHONPATH%%:*}"\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.delenv("PYTHONPATH", raising=False)  # as where the package lies in the current folder
    with track_command.alongside("wandb", tmp_path / "runs" / "studies" / "demo-smoke.json", print):
        pass
    said = (tmp_path / "runs" / "trackers" / "wandb.log").read_text()
    assert said == f"{Path(track_command.__file__).parents[2]}\n"
