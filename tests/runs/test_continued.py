"""A run that is stopped and continued ends with the same bytes, however it is computed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tiny import MODEL, FirstSymbol, RunningMean, recipe

from levelfield import protocols
from levelfield.run import execute
from levelfield.runs import checkpoint, journal, store
from levelfield.runs.processes import Group
from levelfield.spec import Block, Numerics, Run
from levelfield.train import State

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
