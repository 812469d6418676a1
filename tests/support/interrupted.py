"""A run of two phases that tests kill, or stop in the middle, and let go on."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from paced import slow_down
from tiny import MODEL, FirstSymbol, RunningMean, recipe

from levelfield import protocols
from levelfield.run import execute
from levelfield.runs import checkpoint, journal, store
from levelfield.spec import Run

DROPPING = dataclasses.replace(MODEL, mixers=(RunningMean(dropout=0.1),))
SPT = Run(FirstSymbol(), DROPPING, protocols.spt_masked(recipe(40), recipe(60), 0.3), 0)


def perform(out: Path, pace: float) -> None:
    slow_down(pace)
    execute(SPT, store.directory(out, SPT), out / "data", "cpu")


def stop_in_the_middle(where: Path, tmp_path: Path, after: int) -> None:
    """Raises inside the loop after some validations' worth of steps, with checkpoints written at every step."""

    class Stop(Exception):
        pass

    seen = 0
    save = checkpoint.write

    def counted(*arguments: Any) -> None:
        nonlocal seen
        save(*arguments)
        seen += 1
        if seen == after:
            raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "SAVE_EVERY_S", 0.0)
        patch.setattr(checkpoint, "write", counted)
        patch.setattr(journal.Journal, "_save", saving_always)
        with pytest.raises(Stop):
            execute(SPT, where, tmp_path / "data", "cpu")
    assert len(checkpoint.listing(where)) == 2
    assert not store.complete(where)


def saving_always(own: journal.Journal, state: Any, now: float) -> None:
    extra = {"wall_s": 1.0, "costs": own.costs, "threads": torch.get_num_threads(), "notes": own.notes}
    checkpoint.write(own.progress.where, own.number, state, extra)
