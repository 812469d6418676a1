"""A run that goes on with another number of threads says so: its sums are cut in another way from there on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from interrupted import SPT, stop_in_the_middle

from levelfield.run import execute
from levelfield.runs import store


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_threads_that_changed_are_in_the_ledger(tmp_path: Path):
    """Through a second kill as well; with as many threads as before nothing is noted."""
    notes = []
    for others in ((), (2, 1)):
        where = store.directory(tmp_path / str(len(others)), SPT)
        stop_in_the_middle(where, tmp_path, after=20)
        for threads in others:
            torch.set_num_threads(threads)
            stop_in_the_middle(where, tmp_path, after=20)
        torch.set_num_threads(1)
        execute(SPT, where, tmp_path / "data", "cpu")
        notes.append(json.loads((where / "ledger.json").read_text())["notes"])
    assert notes[0] == []
    assert [note.split(" at ")[0] for note in notes[1]] == [
        "Threads changed from 1 to 2",
        "Threads changed from 2 to 1",
    ]
