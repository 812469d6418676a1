"""Checkpoints are ordered by the numbers in their names, and the last two that a run continues from are kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny import MODEL, FirstSymbol, recipe

from levelfield.objectives import Classify
from levelfield.protocols import scratch
from levelfield.run import build_net
from levelfield.runs import checkpoint
from levelfield.spec import Run
from levelfield.train import State, make_optimizer


def save(where: Path, step: int) -> Path:
    net = build_net(Run(FirstSymbol(), MODEL, scratch(recipe()), 0), Classify())
    state = State(net, make_optimizer(net, recipe(), net.rules()), step=step)
    checkpoint.write(where, 0, state, {})
    (path,) = where.glob(f"checkpoint-0-{step:08d}-*")
    return path


def test_the_tenth_phase_comes_after_the_ninth(tmp_path: Path):
    for phase, step in ((8, 3), (9, 1), (10, 1), (10, 100_000_000), (10, 99_999_999)):
        (tmp_path / f"checkpoint-{phase}-{step:08d}-0a1b2c3d4e5f.safetensors").write_bytes(b"")
    (tmp_path / "checkpoint-best.safetensors").write_bytes(b"of another tool")
    found = [tuple(map(int, path.name.split("-")[1:3])) for path in checkpoint.listing(tmp_path)]
    assert found == [(10, 100_000_000), (10, 99_999_999), (10, 1), (9, 1), (8, 3)]


def test_one_that_was_damaged_leaves_room_for_two_sound_ones(tmp_path: Path):
    """The run goes on from the one before, whose steps are lower than that of the damaged one."""
    first, damaged = save(tmp_path, 100), save(tmp_path, 200)
    damaged.write_bytes(damaged.read_bytes()[:-3])
    second = save(tmp_path, 120)
    assert checkpoint.listing(tmp_path) == [second, first]
    third = save(tmp_path, 140)
    assert checkpoint.listing(tmp_path) == [third, second]
    third.write_bytes(b"")
    saved, (complaint,) = checkpoint.latest(tmp_path)
    assert saved is not None and saved.numbers["step"] == 120 and third.name in complaint


def test_an_owner_that_is_behind_removes_no_sound_one_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nor one that cannot be opened for now."""
    ahead = [save(tmp_path, step) for step in (200, 220)]
    behind = [save(tmp_path, step) for step in (100, 120, 140)]
    assert checkpoint.listing(tmp_path) == [*reversed(ahead), *reversed(behind[1:])]
    monkeypatch.setattr(Path, "read_bytes", lambda _: (_ for _ in ()).throw(OSError("away")))
    last = save(tmp_path, 160)
    assert checkpoint.listing(tmp_path) == [*reversed(ahead), last, behind[2]]
