"""A run that is stopped and continued ends with the same bytes, however it is computed."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import MODEL, FirstSymbol, RunningMean, recipe

from levelfield import files, protocols
from levelfield import run as running
from levelfield._version import __version__
from levelfield.engine import jobs
from levelfield.objectives import Classify
from levelfield.run import execute
from levelfield.runs import checkpoint, journal, lease, ledger, sound, store
from levelfield.runs.claims import Folder, Lease
from levelfield.runs.journal import ProgressFile
from levelfield.runs.lease import Owner, perform
from levelfield.runs.processes import Group
from levelfield.spec import Block, Numerics, Run, UserError
from levelfield.train import State, make_optimizer

DROPPING = dataclasses.replace(MODEL, mixers=(RunningMean(dropout=0.1),), block=Block(feedforward=32, dropout=0.1))
PLAIN = Run(FirstSymbol(), DROPPING, protocols.spt_masked(recipe(6), recipe(10), 0.3), 0)
FILES = ("weights.safetensors", "rows.jsonl", "log.jsonl", "scores.npy")


class Stop(Exception):
    pass


def stop_in_the_second_phase(run: Run, where: Path, data: Path) -> None:
    """Executes a run until it has saved a checkpoint of its second phase."""
    save = checkpoint.write

    def stopping(where: Path, phase: int, state: State, extra: Mapping[str, Any], group: Group) -> None:
        save(where, phase, state, extra, group)
        if phase == 1:
            raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "SAVE_EVERY_S", 0.0)
        patch.setattr(checkpoint, "write", stopping)
        with pytest.raises(Stop):
            execute(run, where, data, "cpu")
    saved, _ = checkpoint.latest(where)
    assert saved is not None
    assert 0 < saved.numbers["step"] < 10


@pytest.mark.parametrize(
    "numerics",
    [
        Numerics("bf16"),
        Numerics(accumulate=4),
        Numerics("bf16", accumulate=2, recompute=True),
        Numerics(by_length=True),
    ],
    ids=str,
)
def test_a_run_that_continues_ends_with_the_same_bytes(numerics: Numerics, tmp_path: Path) -> None:
    run = dataclasses.replace(PLAIN, numerics=numerics)
    whole, parts = (store.directory(tmp_path / name, run) for name in ("whole", "parts"))
    execute(run, whole, tmp_path / "data", "cpu")
    stop_in_the_second_phase(run, parts, tmp_path / "data")
    execute(run, parts, tmp_path / "data", "cpu")
    for name in FILES:
        assert (whole / name).read_bytes() == (parts / name).read_bytes(), name


def test_what_the_first_part_was_computed_by_is_in_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are joined, and each thing that is another now is noted once; as on the same machine, nothing is."""
    where, kernels = tmp_path / "run", ["scan: a fast kernel", "norm: a fast kernel"]
    for kernel in kernels:
        monkeypatch.setattr(ledger.dispatch, "kernel_log", lambda kernel=kernel: [kernel])
        stop_in_the_second_phase(PLAIN, where, tmp_path / "data")
    monkeypatch.setattr(ledger.dispatch, "kernel_log", list)
    monkeypatch.setattr(running, "__version__", "99")
    load = checkpoint.latest

    def on_a_gpu(where: Path) -> Any:
        saved, complaints = load(where)
        assert saved is not None
        return dataclasses.replace(saved, extra={**saved.extra, "device": "a GPU", "torch": "1.0"}), complaints

    monkeypatch.setattr(checkpoint, "latest", on_a_gpu)
    execute(PLAIN, where, tmp_path / "data", "cpu")
    told = json.loads((where / store.LEDGER).read_text())
    assert told["kernels"] == "norm: a fast kernel; scan: a fast kernel"
    assert [note.split(" at step ")[0] for note in told["notes"]] == [
        "Device changed from a GPU to cpu",
        f"torch changed from 1.0 to {torch.__version__}",
        f"levelfield changed from {__version__} to 99",
    ]


@pytest.mark.parametrize("line", [b"\0" * 300, b'{"a": 1}', b"\xff\xfe", b'{"phase": 7, "step": 1}', b"[" * 5000])
def test_a_damaged_line_of_the_log_costs_that_line_of_the_curve(tmp_path: Path, line: bytes) -> None:
    """The line is of a step before the checkpoint, which nobody trains again."""
    whole, where = tmp_path / "whole", tmp_path / "damaged"
    execute(PLAIN, whole, tmp_path / "data", "cpu")
    stop_in_the_second_phase(PLAIN, where, tmp_path / "data")
    lines = (where / store.LOG).read_bytes().splitlines()
    (where / store.LOG).write_bytes(b"\n".join([lines[0], line, *lines[2:], b""]))
    execute(PLAIN, where, tmp_path / "data", "cpu")
    first, _, *others = (whole / store.LOG).read_bytes().splitlines()
    assert (where / store.LOG).read_bytes().splitlines() == [first, *others]
    for name in ("weights.safetensors", "rows.jsonl"):
        assert (where / name).read_bytes() == (whole / name).read_bytes()
    (note,) = json.loads((where / store.LEDGER).read_text())["notes"]
    assert "log.jsonl was damaged (its line 2 cannot be read)" in note


def test_a_log_that_is_gone_when_a_run_continues_is_in_its_ledger(tmp_path: Path) -> None:
    where = tmp_path / "run"
    stop_in_the_second_phase(PLAIN, where, tmp_path / "data")
    (where / store.LOG).unlink()
    execute(PLAIN, where, tmp_path / "data", "cpu")
    (note,) = json.loads((where / store.LEDGER).read_text())["notes"]
    assert "log.jsonl was damaged (it is missing)" in note
    assert {record["phase"] for record in sound.curve(where / store.LOG)[0]} == {1}


def test_a_file_system_that_fails_for_a_moment_fails_no_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(*_: object) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stale)
        ProgressFile(PLAIN, tmp_path).write(state="training")
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_that_cannot_be_opened_is_one_that_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = tmp_path / "run"
    monkeypatch.setattr(journal, "SAVE_EVERY_S", 0.0)
    monkeypatch.setattr(checkpoint, "remove", lambda _: None)
    stop_in_the_second_phase(PLAIN, where, tmp_path / "data")
    newest, before, *_ = checkpoint.listing(where)
    monkeypatch.undo()
    newest.unlink()
    newest.mkdir()
    saved, (complaint,) = checkpoint.latest(where)
    assert saved is not None and newest.name in complaint
    assert f"-{saved.phase}-{saved.numbers['step']:08d}-" in before.name
    execute(PLAIN, where, tmp_path / "data", "cpu")
    assert store.complete(where) and checkpoint.listing(where) == [newest]


def test_what_a_kill_left_of_a_checkpoint_goes_with_the_next_one_and_with_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `atomic` writes to at the moment of a kill stays."""
    where = tmp_path / "run"

    def killed(_: Path) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        patch.setattr(files, "sync", killed)
        with pytest.raises(SystemExit):
            stop_in_the_second_phase(PLAIN, where, tmp_path / "data")
    (left,) = where.glob(".checkpoint-*.partial")
    content = left.read_bytes()
    stop_in_the_second_phase(PLAIN, where, tmp_path / "data")
    assert not left.exists()
    left.write_bytes(content)
    execute(PLAIN, where, tmp_path / "data", "cpu")
    assert [path.name for path in where.iterdir() if "checkpoint" in path.name] == []


def test_checkpoints_go_where_the_owner_that_completed_the_run_was_killed_before_it_removed_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = tmp_path / "run"
    stop_in_the_second_phase(PLAIN, where, tmp_path / "data")
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "clear", lambda _: None)
        execute(PLAIN, where, tmp_path / "data", "cpu")
    assert checkpoint.listing(where)
    execute(PLAIN, where, tmp_path / "data", "cpu")
    assert checkpoint.listing(where) == []


def test_a_holder_that_wakes_up_while_another_one_saves_the_run_takes_nothing_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was paused while it saved, was taken over, and goes on saving before its heartbeat tells it."""
    where, sync, saves = tmp_path / "run", files.sync, list[str]()

    def woken(partial: Path) -> None:
        """Has another process save a state of the same run, between what this one has written and its name."""
        saves.append(partial.name)
        if partial.name.startswith(".checkpoint") and len(saves) % 2:
            net = running.build_net(PLAIN, Classify())
            checkpoint.write(where, 0, State(net, make_optimizer(net, recipe(), net.rules())), {"costs": []})
        sync(partial)

    monkeypatch.setattr(journal, "SAVE_EVERY_S", 0.0)
    monkeypatch.setattr(files, "sync", woken)
    execute(PLAIN, where, tmp_path / "data", "cpu")
    assert store.complete(where) and len(saves) > 2


def taken_over_and_completed(where: Path, data: Path) -> None:
    """Has another machine take the run over and complete it, which this process does not notice."""
    other = Owner("other", host="node9")
    assert perform(lease.take(other, lambda *asked: True), Folder(where)) > 1
    elsewhere = where.with_name(f"{where.name}-elsewhere")
    execute(PLAIN, elsewhere, data, "cpu")
    for path in elsewhere.iterdir():
        path.replace(where / path.name)


@pytest.mark.parametrize("late", ["build_net", "write"])
def test_an_owner_that_wakes_up_when_another_one_has_completed_the_run_changes_and_leaves_nothing(
    late: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was paused while it built the network of a phase, or while it saved."""
    where, data = tmp_path / "run", tmp_path / "data"
    module: Any = checkpoint if late == "write" else running
    function, content = getattr(module, late), dict[str, bytes]()

    def paused(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(module, late, function)
        found = function(*given, **named)
        taken_over_and_completed(where, data)
        content.update({path.name: path.read_bytes() for path in where.iterdir() if path.is_file()})
        return found if late != "write" else function(*given, **named)

    monkeypatch.setattr(journal, "SAVE_EVERY_S", 0.0)
    monkeypatch.setattr(module, late, paused)

    def train(mine: Lease) -> None:
        execute(PLAIN, where, data, "cpu", claim=mine)

    assert jobs.attempt(where, train) == ("busy", "")
    assert content and checkpoint.listing(where) == []
    kept = [store.DONE, *store.SEALED, store.WEIGHTS]
    assert [name for name in kept if (where / name).read_bytes() != content[name]] == []
    (tmp_path / "log").write_bytes(content[store.LOG])
    assert sound.curve(where / store.LOG) == sound.curve(tmp_path / "log") != ([], "")


def test_an_owner_that_was_taken_over_before_it_began_removes_nothing_that_the_other_one_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, pick = tmp_path / "run", running.pick_device
    saving = where / ".checkpoint-0-00000004-0f.safetensors.1.partial"

    def paused(name: str) -> torch.device:
        assert perform(lease.take(Owner("other", host="node9"), lambda *asked: True), Folder(where)) > 1
        saving.touch()
        return pick(name)

    monkeypatch.setattr(running, "pick_device", paused)
    assert jobs.attempt(where, lambda mine: execute(PLAIN, where, tmp_path, "cpu", claim=mine)) == ("busy", "")
    assert saving.exists()


def test_where_no_checkpoint_is_whole_one_that_may_be_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training from the beginning would remove it."""
    path = tmp_path / "checkpoint-0-00000001-0a1b2c3d4e5f.safetensors"
    path.touch()

    def failing(_: Path) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "read_bytes", failing)
    with pytest.raises(UserError, match="see to the disk"):
        checkpoint.latest(tmp_path)
    assert path.exists()
