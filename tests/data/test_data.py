"""Prepared data survives what happens to disks and processes: kills, full disks, damage, two writers at once."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from gzip import BadGzipFile
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
from toy_data import SLOW, Parity

from levelfield.data import prepared
from levelfield.files import disk_errors
from levelfield.spec import SPLITS, Examples, Progress, SplitName, StepLabels, UserError, no_progress

TASK = Parity()


def child(code: str, log: Path, root: Path, seconds: float = 0.0) -> subprocess.Popen[str]:
    """A process that prepares `task` in `root` as `code` says; a build takes `seconds`."""
    lines = [
        "import sys, time",
        "from pathlib import Path",
        "import numpy",
        "from toy_data import Parity",
        "from levelfield.data import prepared as data",
        "task, root = Parity(log=sys.argv[1]), Path(sys.argv[2])",
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), SLOW: str(seconds)}
    command = [sys.executable, "-c", "\n".join([*lines, code]), str(log), str(root)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def leftovers(root: Path) -> list[str]:
    return [p.name for p in root.iterdir() if p.name.endswith(".partial")]


def test_what_is_loaded_is_what_was_built(tmp_path: Path) -> None:
    loaded, expected = prepared.load(TASK, tmp_path), TASK.build(None)
    for split in SPLITS:
        assert np.array_equal(loaded[split].x, expected[split].x) and loaded[split].x.dtype == np.uint8
        assert np.array_equal(loaded[split].offsets, expected[split].offsets)
        assert np.array_equal(loaded[split].y, expected[split].y)
        assert np.array_equal(loaded[split].slices["length"], expected[split].slices["length"])
        assert isinstance(loaded[split].x, np.memmap) and not loaded[split].x.flags.writeable
    assert prepared.verify(prepared.folder(TASK, tmp_path)) == [] and leftovers(tmp_path) == []


def test_the_manifest_says_what_it_is(tmp_path: Path) -> None:
    manifest = json.loads((prepared.prepare(TASK, tmp_path) / prepared.MANIFEST).read_text())
    assert manifest["counts"] == {"train": 20, "val": 5, "test": 5}
    assert manifest["settings"]["train"] == 20 and manifest["settings"]["version"] == 1
    assert manifest["source"] and manifest["split_rule"]


def test_built_once_and_again_for_another_setting(tmp_path: Path) -> None:
    task = Parity(log=str(tmp_path / "log"))
    for _ in range(3):
        prepared.load(task, tmp_path / "data")
    assert len((tmp_path / "log").read_text().split()) == 1
    prepared.load(replace(task, seed=1), tmp_path / "data")
    assert len((tmp_path / "log").read_text().split()) == 2


def test_another_version_is_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = prepared.folder(TASK, tmp_path)
    monkeypatch.setattr(Parity, "version", 2)
    assert prepared.folder(TASK, tmp_path) != before


@pytest.mark.parametrize("name", ["train.x", "val.offsets", "test.y", "train.slices.length"])
def test_a_flipped_byte_is_found(tmp_path: Path, name: str) -> None:
    path = prepared.prepare(TASK, tmp_path) / f"{name}.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    (fault,) = prepared.verify(path.parent)
    assert path.name in fault and "remove the folder" in fault


def test_a_missing_array_and_a_missing_manifest_are_found(tmp_path: Path) -> None:
    at = prepared.prepare(TASK, tmp_path)
    (at / "val.y.npy").unlink()
    assert "val.y.npy is missing" in prepared.verify(at)[0]
    with pytest.raises(UserError, match=r"val\.y\.npy cannot be read"):
        prepared.load(TASK, tmp_path)
    (at / prepared.MANIFEST).unlink()
    assert "no manifest" in prepared.verify(at)[0]


def test_a_truncated_array_is_told(tmp_path: Path) -> None:
    path = prepared.prepare(TASK, tmp_path) / "train.x.npy"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UserError, match=r"train\.x\.npy cannot be read"):
        prepared.load(TASK, tmp_path)


@pytest.mark.parametrize("name", ["train.offsets", "val.x", "test.y"])
def test_an_array_of_other_values_is_told_before_anything_reads_it(tmp_path: Path, name: str) -> None:
    """In a process that has read it before too; the offsets here would otherwise lead beyond the end."""
    path = prepared.prepare(TASK, tmp_path) / f"{name}.npy"
    prepared.load(TASK, tmp_path)
    values = np.load(path)
    np.save(path, np.where(np.arange(len(values)) == 1, 2**6 * np.ones_like(values), values))
    with pytest.raises(UserError, match=rf"{name}\.npy cannot be read .*remove .* and run again"):
        prepared.load(TASK, tmp_path)


def test_arrays_are_hashed_once_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared.load(TASK, tmp_path)
    monkeypatch.setattr(prepared, "checksum", lambda path: pytest.fail(f"{path} is hashed again"))
    prepared.load(TASK, tmp_path)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES])
def test_arrays_that_may_not_be_read_are_not_to_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(path: Path) -> str:
        raise OSError(number, "refused", str(path))

    prepared.prepare(TASK, tmp_path)
    monkeypatch.setattr(prepared, "checksum", refuse)
    with pytest.raises(UserError, match="npy") as caught:
        prepared.load(TASK, tmp_path)
    assert "remove" not in str(caught.value)


def test_a_folder_without_manifest_is_made_anew(tmp_path: Path) -> None:
    """Such as one whose making was cut off by something that does not rename, a copy for example."""
    at = prepared.prepare(TASK, tmp_path)
    (at / prepared.MANIFEST).unlink()
    (at / "train.x.npy").write_bytes(b"half")
    prepared.load(TASK, tmp_path)
    assert prepared.verify(at) == []


@pytest.mark.parametrize("seconds", [0.0, 30.0])
def test_killed_half_way_is_never_read(tmp_path: Path, seconds: float) -> None:
    """Killed with its first array written, which SIGKILL leaves where it is, or while it builds."""
    root, log = tmp_path / "data", tmp_path / "log"
    code = (
        "save = numpy.save\n"
        "def slow(path, array):\n"
        "    save(path, array)\n"
        "    time.sleep(60)\n"
        "numpy.save = slow\n"
        "data.prepare(task, root)\n"
    )
    process = child(code, log, root, seconds)
    deadline = time.monotonic() + 60
    while not (log.exists() if seconds else list(root.glob(".*.partial/train.x.npy"))):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    task = Parity(log=str(log))
    assert not prepared.folder(task, root).exists()
    assert bool(leftovers(root)) == (seconds == 0)
    assert len(prepared.load(task, root)["train"]) == 20
    assert prepared.verify(prepared.folder(task, root)) == [] and leftovers(root) == []


def test_a_failure_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_save(monkeypatch, errno.EIO)
    with pytest.raises(UserError, match=r"Input/output error.*see to the disk"):
        prepared.prepare(TASK, tmp_path)
    assert leftovers(tmp_path) == [] and not prepared.folder(TASK, tmp_path).exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    failing_save(monkeypatch, number)
    with pytest.raises(UserError, match=r"No room left in .* free some space"):
        prepared.prepare(TASK, tmp_path)
    assert leftovers(tmp_path) == []
    monkeypatch.undo()
    assert len(prepared.load(TASK, tmp_path)["train"]) == 20


@pytest.mark.parametrize(
    "write", ["save_array(root / 'a.npy', numpy.zeros(10**6))", "(root / 'a').write_bytes(bytes(10**6))"]
)
def test_a_file_that_may_not_grow_is_one_sentence(tmp_path: Path, write: str) -> None:
    """As on a full disk: NumPy says only how much it wrote, other writers have a number."""
    lines = [
        "import resource, signal",
        "from levelfield.files import disk_errors, save_array",
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)",
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))",
        "with disk_errors(root, '--data'):",
        f"    {write}",
    ]
    process = child("\n".join(lines), tmp_path / "log", tmp_path)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"UserError: No room left in {tmp_path}: free some space" in said.splitlines()[-1]


@pytest.mark.parametrize("error", [URLError("no such host"), BadGzipFile("CRC failed"), TimeoutError("timed out")])
def test_an_error_without_a_number_is_not_taken_for_a_full_disk(tmp_path: Path, error: OSError) -> None:
    with pytest.raises(type(error)) as raised, disk_errors(tmp_path, "--data"):
        raise error
    assert raised.value is error


def failing_save(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The third array does not fit."""
    save, calls = np.save, []

    def full(path: Path, array: np.ndarray) -> None:
        calls.append(path)
        if len(calls) == 3:
            raise OSError(number, os.strerror(number))
        save(path, array)

    monkeypatch.setattr(np, "save", full)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_folder_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*arguments: Any, **named: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(UserError, match=r"Cannot write to .* give another --data folder"):
        prepared.prepare(TASK, tmp_path / "data")


def test_a_file_in_the_place_of_the_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="Cannot write to"):
        prepared.prepare(TASK, tmp_path / "file" / "data")


def test_prepared_data_in_a_read_only_folder_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared.prepare(TASK, tmp_path)

    def refuse(*arguments: Any, **named: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(np, "save", refuse)
    assert len(prepared.load(TASK, tmp_path)["train"]) == 20


def test_two_processes_at_once_build_once(tmp_path: Path) -> None:
    root, log = tmp_path / "data", tmp_path / "log"
    code = "print(len(data.load(task, root)['train']))"
    processes = [child(code, log, root, seconds=1.0) for _ in range(3)]
    outputs = [p.communicate(timeout=60) for p in processes]
    assert [out for out, _ in outputs] == ["20\n"] * 3, outputs
    assert len(log.read_text().split()) == 1
    assert leftovers(root) == []


def test_a_damaged_manifest_is_one_sentence(tmp_path: Path) -> None:
    at = prepared.prepare(TASK, tmp_path)
    (at / prepared.MANIFEST).write_text('{"arrays": ')
    with pytest.raises(UserError, match=r"manifest\.json is damaged"):
        prepared.load(TASK, tmp_path)
    assert "damaged" in prepared.verify(at)[0]


def test_a_file_in_place_of_the_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(UserError, match="another --data folder"):
        prepared.prepare(TASK, tmp_path / "data")


def test_another_setting_finds_the_official_files_by_itself(tmp_path: Path) -> None:
    """Preparing one setting from a folder is enough for all settings of that task."""
    files = tmp_path / "official"
    files.mkdir()
    root = tmp_path / "data"
    task, other = FromFiles(), FromFiles(seed=6)
    with pytest.raises(UserError, match="--from"):
        prepared.load(other, root)
    prepared.prepare(task, root, files)
    assert len(prepared.load(other, root)["train"]) == 20


@pytest.mark.parametrize("content", ['{"parity": ', "[]", '{"parity": 3}', "\x00"])
def test_a_damaged_list_of_folders_is_one_sentence(tmp_path: Path, content: str) -> None:
    """Told before anything is built, whether a folder is given or remembered."""
    root = tmp_path / "data"
    root.mkdir()
    (root / prepared.SOURCES).write_text(content)
    for files in (None, tmp_path):
        with pytest.raises(UserError, match=r"sources\.json is damaged .*: remove it and .* --from again"):
            prepared.prepare(TASK, root, files)
    assert leftovers(root) == [] and not prepared.folder(TASK, root).exists()


def test_pairs_and_targets_of_steps_come_back_as_they_were(tmp_path: Path) -> None:
    for task in (Pairs(), Steps()):
        loaded, expected = prepared.load(task, tmp_path), task.build(None)
        for split in SPLITS:
            assert (loaded[split].documents, loaded[split].stepwise) == (task.documents, task.steps)
            assert len(loaded[split]) == len(expected[split]) and np.array_equal(loaded[split].y, expected[split].y)


def test_a_manifest_from_before_there_were_pairs_is_read(tmp_path: Path) -> None:
    at = prepared.prepare(TASK, tmp_path)
    manifest = json.loads((at / prepared.MANIFEST).read_text())
    for name in ("documents", "stepwise", "notes"):
        del manifest[name]
    (at / prepared.MANIFEST).write_text(json.dumps(manifest))
    assert prepared.load(TASK, tmp_path)["val"].documents == 1 and prepared.verify(at) == []


def test_what_a_task_warns_of_is_kept_and_still_heard(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="picture 172 is empty"):
        at = prepared.prepare(Faulty(), tmp_path)
    assert json.loads((at / prepared.MANIFEST).read_text())["notes"] == ["picture 172 is empty"]


def test_official_files_that_cannot_be_read_are_not_blamed_on_the_data_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Cannot read .*labels.bin \(Permission denied\): give another --from folder"):
        prepared.prepare(Closed(), tmp_path / "data", tmp_path)
    assert leftovers(tmp_path / "data") == []


class Closed(Parity):
    """Parity from a file that may not be opened."""

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), f"{sources}/labels.bin")


class Pairs(Parity):
    """Two rows of digits an example."""

    documents = 2
    steps = False

    def _draw(self, rng: np.random.Generator, count: int) -> Examples:
        rows = super()._draw(rng, 2 * count)
        return Examples(rows.x, rows.offsets, rows.y[:count], documents=2)


class Steps(Parity):
    """The parity of each digit, but for the first."""

    documents = 1
    steps = True
    output = StepLabels(2)

    def _draw(self, rng: np.random.Generator, count: int) -> Examples:
        rows = super()._draw(rng, count)
        y = rows.x.astype(np.int64) % 2
        y[rows.offsets[:-1]] = -1
        return Examples(rows.x, rows.offsets, y, stepwise=True)


class Faulty(Parity):
    """Parity of files with a known fault."""

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        for _ in range(2):
            warnings.warn("picture 172 is empty", stacklevel=1)
        return super().build(sources, progress)


class FromFiles(Parity):
    """Parity that wants a folder of files, which it does not read."""

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        if sources is None or not sources.is_dir():
            raise UserError("Give the files as --from FOLDER.")
        return super().build(sources, progress)


def test_arrays_are_not_passed_off_as_made_from_other_files(tmp_path: Path) -> None:
    """Two folders of a user's own text: the second is told that the first is what is there."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    at = prepared.prepare(TASK, tmp_path / "data", sources=first)
    assert prepared.prepare(TASK, tmp_path / "data") == prepared.prepare(TASK, tmp_path / "data", sources=first) == at
    with pytest.raises(UserError, match=r"was made from .*first: remove it"):
        prepared.prepare(TASK, tmp_path / "data", sources=second)
