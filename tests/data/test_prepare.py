"""`levelfield data prepare`: what is downloaded, what is built from it, and what is said where that cannot be."""

from __future__ import annotations

import gzip
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import fixtures_cifar
import numpy as np
import pytest
from fixtures_server import Served, Server, serving
from tiny import FirstSymbol, SameSymbol

from levelfield import tasks
from levelfield.cli import data_commands, interrupts
from levelfield.cli.app import main
from levelfield.data import download, prepared
from levelfield.data.audit.view import View
from levelfield.jit import compiled
from levelfield.spec import Archive, Task, UserError
from levelfield.spec.interrupt import raise_interrupt
from levelfield.tasks._listops import expressions
from levelfield.tasks.image import Image
from levelfield.tasks.recall import Recall


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv(download.MIRROR, raising=False)
    with serving() as started:
        yield started


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if not p.name.endswith(".lock"))


@pytest.fixture
def small_image(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    """`image`, of 100 pictures, whose archive the server has."""
    packed = fixtures_cifar.pack(fixtures_cifar.write(tmp_path / "made", "python"), "python").read_bytes()
    server.files["/cifar-10-python.tar.gz"] = Served(packed)
    task = Image(train=100, test=40)
    archive = Archive("cifar-10-python.tar.gz", (f"{server.url}/cifar-10-python.tar.gz",))
    monkeypatch.setattr(Image, "archives", (archive,))
    monkeypatch.setattr(tasks, "find", lambda name: task)
    return task


def test_prepare_downloads_and_builds(server: Server, small_image: Task, tmp_path: Path) -> None:
    said: list[str] = []
    assert data_commands.prepare("image", tmp_path / "data", data_commands.Sources(), said.append)
    loaded = prepared.load(small_image, tmp_path / "data")
    expected = small_image.build(tmp_path / "made")
    assert np.array_equal(loaded["train"].x, expected["train"].x)
    assert names(tmp_path / "data" / "downloads" / "image") == ["cifar-10-python.tar.gz", "cifar-10-python.tar.gz.json"]
    assert len(server.asked) == 1
    assert data_commands.prepare("image", tmp_path / "data", data_commands.Sources(), said.append)
    assert not prepared.wants_files(Image(train=50, test=40), tmp_path / "data") or len(server.asked) == 1


def test_prepare_from_a_folder_asks_nobody(server: Server, small_image: Task, tmp_path: Path) -> None:
    assert data_commands.prepare(
        "image", tmp_path / "data", data_commands.Sources(tmp_path / "made"), lambda text: None
    )
    assert server.asked == []
    (tmp_path / "data" / prepared.folder(small_image, tmp_path).name / prepared.MANIFEST).unlink()
    assert data_commands.prepare("image", tmp_path / "data", data_commands.Sources(), lambda text: None), (
        "the folder is remembered"
    )
    assert server.asked == []


def test_folders_of_two_tasks_are_remembered_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = prepared.write_text

    def slow(path: Path, text: str) -> None:
        time.sleep(0.1)
        write(path, text)

    monkeypatch.setattr(prepared, "write_text", slow)
    with ThreadPoolExecutor(2) as both:
        list(both.map(lambda name: prepared._remember(tmp_path, name, tmp_path), ("one", "two")))
    assert prepared._remembered(tmp_path) == {"one": str(tmp_path), "two": str(tmp_path)}


def test_of_a_study_all_that_can_be_built_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first task of this study lacks its files, so that the command ends with 1, and the others are there."""
    first, *others = (Image(train=100, test=40), FirstSymbol(), SameSymbol())
    monkeypatch.setattr(data_commands, "find_tasks", lambda name, effort: [first, *others])
    monkeypatch.setattr(data_commands, "find_weights", lambda name, effort: [])
    (tmp_path / "files").mkdir()
    sources, said = data_commands.Sources(tmp_path / "files"), list[str]()
    assert not data_commands.prepare("mine", tmp_path / "data", sources, said.append)
    assert said[0].startswith("image: ") and "holds no CIFAR-10 files" in said[0]
    assert all(prepared.load(task, tmp_path / "data") for task in others)
    monkeypatch.setattr(data_commands, "find_tasks", lambda name, effort: [first])
    with pytest.raises(UserError, match="holds no CIFAR-10 files"):
        data_commands.prepare("mine", tmp_path / "data", sources, said.append)


def test_running_does_not_download(small_image: Task, server: Server, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="levelfield data prepare image"):
        prepared.load(small_image, tmp_path / "data")
    assert server.asked == []


def test_a_wrong_layout_in_the_archive_is_one_sentence(server: Server, small_image: Task, tmp_path: Path) -> None:
    server.files["/cifar-10-python.tar.gz"] = Served(gzip.compress(b"no pictures"))
    with pytest.raises(UserError, match=r"cifar-10-python\.tar\.gz"):
        data_commands.prepare("image", tmp_path / "data", data_commands.Sources(), lambda text: None)
    assert not list((tmp_path / "data").glob("image-*"))


@pytest.mark.parametrize("name", [n for n in tasks.names() if tasks.find(n).archives])
def test_a_task_with_archives_says_how_to_get_them(name: str) -> None:
    """As a run without the data does; and the name in the sentence is one that downloads."""
    with pytest.raises(UserError, match=r"levelfield data prepare \w+") as caught:
        tasks.find(name).build(None)
    named = str(caught.value).partition("levelfield data prepare ")[2].split("`")[0].split()[0]
    assert tasks.find(named).archives == tasks.find(name).archives
    assert type(tasks.find(named)) is type(tasks.find(name))


def test_the_mirror_option_reaches_the_download(
    server: Server, small_image: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["/m/cifar-10-python.tar.gz"] = server.files.pop("/cifar-10-python.tar.gz")
    main(["data", "prepare", "image", "--data", str(tmp_path / "data"), "--mirror", f"{server.url}/m"])
    assert server.asked == [("/m/cifar-10-python.tar.gz", None)]


DAMAGED: dict[str, Callable[[Path], object]] = {
    "lost": lambda path: path.unlink(),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-5]),
    "empty": lambda path: path.write_bytes(b""),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "another": lambda path: np.save(path, np.zeros(1)),
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_what_is_prepared_already_is_looked_at_without_being_read(
    tmp_path: Path, damage: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = prepared.prepare(FirstSymbol(), tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(prepared, "checksum", lambda path: pytest.fail(f"{path} is hashed"))
        assert prepared.prepare(FirstSymbol(), tmp_path) == at
        damage(at / "val.y.npy")
        with pytest.raises(UserError, match=r"val\.y\.npy .*: remove .* and run again\.$"):
            prepared.prepare(FirstSymbol(), tmp_path)
    assert len(prepared.verify(at)) == 1


@compiled
def count_up(n: int) -> tuple[float, np.ndarray]:
    total = 0.0
    for i in range(n):
        total += np.sin(i)
    return total, np.zeros(1)


@pytest.mark.parametrize("words", [["data", "prepare"], ["audit", "--without-models"], ["check"]])
def test_ctrl_c_in_compiled_code_ends_the_command(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled code makes of it a SystemError, which would be taken for a fault of the task."""

    def interrupted(*_: object) -> object:
        count_up(1)
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        return count_up(50_000_000)

    monkeypatch.setattr(expressions, "survey", interrupted)
    monkeypatch.chdir(tmp_path)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # where the tests were started in the background
    try:
        with pytest.raises(SystemExit) as stop:
            main([*words, "listops(train=64,val=32,test=32)"])
    finally:
        signal.signal(signal.SIGINT, before)
    assert (stop.value.code, capsys.readouterr().err.strip()) == (130, interrupts.STOPPED)


def chained(*errors: BaseException) -> BaseException:
    """The first of some errors, each of which has the next as its cause."""
    for error, cause in pairwise(errors):
        error.__cause__ = cause
    return errors[0]


def test_ctrl_c_is_found_behind_every_call_of_c_that_it_passed_through() -> None:
    for calls in (1, 2, 3):
        with pytest.raises(KeyboardInterrupt):
            raise_interrupt(chained(*(SystemError("exception set") for _ in range(calls)), KeyboardInterrupt()))
    for error in (
        SystemError("x"),
        chained(SystemError("x"), ValueError()),
        chained(ValueError(), KeyboardInterrupt()),
    ):
        raise_interrupt(error)


def test_in_a_folder_that_cannot_be_written_to_what_is_missing_is_built_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    task = Recall(train=8, val=4, test=4)
    longer = task.at_length(2 * task.max_length, 4)
    there, kept = prepared.load(task, tmp_path / "data"), prepared.load(longer, tmp_path / "other")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    assert prepared.load(task, tmp_path / "data")["train"].x.tobytes() == there["train"].x.tobytes()
    found = prepared.load(longer, tmp_path / "data")
    assert all(np.array_equal(found[split].x, kept[split].x) for split in found)
    assert all(np.array_equal(found[split].y, kept[split].y) for split in found)
    assert [each.name for each in (tmp_path / "data").glob("[!.]*")] == [prepared.folder(task, tmp_path).name]


@pytest.mark.parametrize("most", [None, (10, 4, 4)])
@pytest.mark.parametrize("first", ["the task", "the same part in order"])
def test_a_view_is_made_of_arrays_that_are_there(most, first: str, tmp_path: Path, monkeypatch) -> None:
    task = Recall(train=30, val=10, test=10)
    shuffled, kept = View(task, most=most, order="within", block=4), View(task, most=most)
    built = prepared.manifest(prepared.prepare(shuffled, tmp_path / "alone"))["arrays"]
    prepared.prepare(task if first == "the task" else kept, tmp_path / "beside")
    monkeypatch.setattr(Recall, "build", None)
    assert prepared.manifest(prepared.prepare(shuffled, tmp_path / "beside"))["arrays"] == built
    if first == "the task":
        assert len(prepared.load(kept, tmp_path / "beside")["train"]) == (most or [30])[0]
