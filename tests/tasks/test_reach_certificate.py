"""The certificate of the task reach is about every class of twins, whether or not its windows are listed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from levelfield.cli.app import main
from levelfield.data import prepared
from levelfield.spec.contents import checksum
from levelfield.tasks import reach
from levelfield.tasks.reach import Reach

TASK = Reach(6, symbols=6, train=60, val=20, test=1_000)
UNLISTED = (1, 3, 8, 118, 492)  # of the 500 classes of test, of which every second or third one is listed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The prepared arrays of the task."""
    return prepared.prepare(TASK, tmp_path)


def forge(at: Path, rows: np.ndarray) -> None:
    """Puts rows, (N, T), in place of those of test, and their hash into the manifest."""
    path = at / "test.x.npy"
    np.save(path, rows.reshape(-1))
    about = json.loads((at / prepared.MANIFEST).read_text())
    about["arrays"]["test.x"]["sha256"] = checksum(path)
    (at / prepared.MANIFEST).write_text(json.dumps(about))


def verify(data: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Returns what is said of the folder, in which something must be wrong."""
    with pytest.raises(SystemExit):
        main(["data", "verify", "reach", "--data", str(data)])
    return capsys.readouterr().out


def test_twins_of_any_class_that_differ_at_width_two_are_found(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = np.load(folder / "test.x.npy").reshape(TASK.test, -1)
    assert not set(np.linspace(0, 499, reach.SAMPLE).astype(int)) & set(UNLISTED)
    for each in UNLISTED:  # the step before the first mark, in both twins
        twins = slice(2 * each, 2 * each + 2)
        place = int(np.flatnonzero(rows[2 * each] >= TASK.symbols)[0]) - 1
        rows[twins, place] = (rows[2 * each, place] + 1) % TASK.symbols
    forge(folder, rows)
    said = verify(folder.parent, capsys)
    assert "test: windows of 6 steps tell the twins of example 2 apart (and 4 more like it)" in said
    assert "exactly 50 %" not in said


@pytest.mark.parametrize("lost", ["the step before", "the step after"])
def test_a_sequence_without_a_step_around_its_gaps_is_found(lost: str) -> None:
    """The bound on a model that reads the last step, or the first, needs one there."""
    splits = dict(Reach(6, symbols=6, offset=2, train=60, val=20, test=20).build(None))
    test = splits["test"]
    kept = slice(1, None) if lost == "the step before" else slice(None, -1)
    cut = [test.sequence(row)[kept] for row in range(20)]
    splits["test"] = type(test).of_sequences(cut, test.y, test.slices)
    found = Reach(6, symbols=6, offset=2, train=60, val=20, test=20).certify(splits)
    assert found.faults == (
        "test: example 0 has no step before its first gap, or none after its last one (and 9 more like it)",
    )


def test_three_marks_are_evenly_spaced_in_every_class(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Reach(6, marks=3, symbols=4, train=60, val=12, test=24, seed=3)
    splits = dict(task.build(None))
    rows = splits["test"].x.reshape(24, -1).copy()
    last = int(np.flatnonzero(rows[6] >= 4)[-1])  # of the second class
    rows[6:12, [last, last + 1]] = rows[6:12, [last + 1, last]]
    splits["test"] = type(splits["test"]).of_equal_length(rows, splits["test"].y, splits["test"].slices)
    monkeypatch.setattr(reach, "SAMPLE", 1)
    assert task.certify(splits).faults == ("test: the marks of example 6 are 6 and 7 steps apart",)


@pytest.mark.parametrize("task", [TASK, Reach(6, marks=3, symbols=4, easiest=3, train=60, val=12, test=24)])
def test_twins_follow_one_another(task: Reach) -> None:
    """They are equal but for the names of their marks, and other classes are not."""
    for examples in task.build(None).values():
        unnamed = [np.minimum(examples.sequence(row), task.symbols).tobytes() for row in range(len(examples))]
        classes = [set(unnamed[at : at + task.twins]) for at in range(0, len(unnamed), task.twins)]
        assert {len(each) for each in classes} == {1} and len(set.union(*classes)) == len(classes)
