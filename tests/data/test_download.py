"""Official files come whole and right, or not at all, whatever servers, networks, disks and kills do."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fixtures_server import Manner, Served, Server, serving

from levelfield.data import download, http
from levelfield.data.http import RetryPolicy
from levelfield.spec import Archive, UserError

CONTENT = gzip.compress(np.random.default_rng(0).bytes(300_000), mtime=0)
MD5, SHA256 = hashlib.md5(CONTENT).hexdigest(), hashlib.sha256(CONTENT).hexdigest()
PATIENT = RetryPolicy(timeout=20.0, tries=3, pause=0.01)
HASTY = RetryPolicy(timeout=0.5, tries=3, pause=0.01)  # for a server that falls silent; a busy machine does, too


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as started:
        yield started


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """A folder alone in its parent, as downloads look at their neighbours."""
    (tmp_path / "alone").mkdir()
    return tmp_path / "alone"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv(download.MIRROR, raising=False)


def at(server: Server, *places: str, sha256: str | None = SHA256, md5: str | None = None) -> Archive:
    """a.gz, which each of `places` serves at "/place/a.gz"."""
    return Archive("a.gz", tuple(f"{server.url}/{place}/a.gz" for place in places), sha256=sha256, md5=md5)


def fetch(archive: Archive, folder: Path, *mirrors: str, retry: RetryPolicy = PATIENT) -> bytes:
    download.fetch((archive,), folder, mirrors, retry=retry)
    return (folder / archive.name).read_bytes()


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if not p.name.endswith(".lock"))


GOOD: tuple[Manner, ...] = ("good", "no range", "no etag", "no length", "chunked", "busy once", "dies", "dies chunked")


@pytest.mark.parametrize("manner", GOOD)
@pytest.mark.parametrize("known", ["sha256", "md5", "nothing"])
def test_what_comes_is_what_was_served(server: Server, tmp_path: Path, manner: Manner, known: str) -> None:
    server.files["/x/a.gz"] = Served(CONTENT, manner)
    archive = at(server, "x", sha256=SHA256 if known == "sha256" else None, md5=MD5 if known == "md5" else None)
    assert fetch(archive, tmp_path) == CONTENT
    assert names(tmp_path) == ["a.gz", "a.gz.json"]
    record = json.loads((tmp_path / "a.gz.json").read_text())
    assert record["sha256"] == SHA256 and record["bytes"] == len(CONTENT) and record["url"] == archive.urls[0]
    assert record["published"] == (None if known == "nothing" else known)
    assert download.verify(archive, tmp_path) == []


def test_a_redirection_is_followed(server: Server, tmp_path: Path) -> None:
    server.files["/x/a.gz"], server.files["/real/x/a.gz"] = Served(b"", "moved"), Served(CONTENT)
    assert fetch(at(server, "x"), tmp_path) == CONTENT


def test_a_file_that_is_there_is_not_asked_for_again(server: Server, tmp_path: Path) -> None:
    server.files["/x/a.gz"] = Served(CONTENT)
    for _ in range(3):
        fetch(at(server, "x"), tmp_path)
    assert len(server.asked) == 1


def test_progress_adds_up(server: Server, tmp_path: Path) -> None:
    heard: list[tuple[str, int, int]] = []
    for i, manner in enumerate(("good", "no length")):
        server.files["/x/a.gz"] = Served(CONTENT, manner)
        folder = tmp_path / str(i) / "x"
        download.fetch((at(server, "x"),), folder, progress=lambda *told: heard.append(told), retry=PATIENT)
        assert [name for name, _, _ in heard] == ["a.gz"] * len(heard)
        assert [done for _, done, _ in heard] == sorted(done for _, done, _ in heard)
        assert heard[-1][1] == heard[-1][2] == len(CONTENT)
        assert {total for _, _, total in heard[:-1]} <= (
            {len(CONTENT)} if manner == "good" else {d for _, d, _ in heard}
        )
        heard.clear()


def test_a_file_put_there_by_hand_is_hashed_and_taken(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(CONTENT)
    fetch(at(server, "x"), tmp_path)
    assert server.asked == [] and names(tmp_path) == ["a.gz", "a.gz.json"]


def test_a_wrong_file_put_there_by_hand_is_told_and_left_alone(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(b"mine")
    with pytest.raises(UserError, match=r"a\.gz has the sha256 .* where .* is published: remove it"):
        fetch(at(server, "x"), tmp_path)
    assert (tmp_path / "a.gz").read_bytes() == b"mine"


def test_two_tasks_share_one_download(server: Server, tmp_path: Path) -> None:
    server.files["/x/a.gz"] = Served(CONTENT)
    for task, checksum in (("one", SHA256), ("two", SHA256), ("three", None)):
        assert fetch(at(server, "x", sha256=checksum), tmp_path / task) == CONTENT
    assert len(server.asked) == 1


@pytest.mark.parametrize("wrong", [{"sha256": "0" * 64}, {"sha256": None, "md5": "0" * 32}])
def test_a_downloaded_file_with_another_published_checksum_is_neither_kept_nor_shared(
    server: Server, tmp_path: Path, wrong: dict[str, str | None]
) -> None:
    server.files["/x/a.gz"] = Served(CONTENT)
    fetch(at(server, "x", sha256=None), tmp_path / "one")
    with pytest.raises(UserError, match=r"a\.gz has the .* where 0+ is published: remove it"):
        fetch(at(server, "x", **wrong), tmp_path / "one")
    with pytest.raises(UserError, match=r"gave a file of .* where 0+ is published"):
        fetch(at(server, "x", **wrong), tmp_path / "two")
    assert names(tmp_path / "two") == []


def test_a_file_that_came_without_a_checksum_is_compared_once_with_one_that_is_published_later(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["/x/a.gz"] = Served(CONTENT)
    fetch(at(server, "x", sha256=None), tmp_path / "one")
    for task in ("one", "two"):
        assert fetch(at(server, "x", sha256=None, md5=MD5), tmp_path / task) == CONTENT
        assert json.loads((tmp_path / task / "a.gz.json").read_text())["published"] == "md5"
    assert len(server.asked) == 1
    monkeypatch.setattr(download, "checksum", lambda *_: pytest.fail("it was compared before"))
    fetch(at(server, "x", sha256=None, md5=MD5), tmp_path / "one")


def beginning(server: Server, folder: Path) -> int:
    """Leaves a partial file behind, as a failed command does; returns its size."""
    server.files["/x/a.gz"].manner = "dies"
    with pytest.raises(UserError, match="broke off after"):
        download.fetch((at(server, "x"),), folder, retry=replace(PATIENT, tries=1))
    server.files["/x/a.gz"].manner = "good"
    server.asked.clear()
    return (folder / ".a.gz.partial").stat().st_size


def test_the_rest_alone_is_asked_for(server: Server, tmp_path: Path) -> None:
    server.files["/x/a.gz"] = Served(CONTENT)
    size = beginning(server, tmp_path)
    assert 0 < size < len(CONTENT) and "a.gz" not in names(tmp_path)
    assert fetch(at(server, "x"), tmp_path) == CONTENT
    assert server.asked == [("/x/a.gz", f"bytes={size}-")]


@pytest.mark.parametrize("manner", ["no range", "wrong range", "refuses range"])
def test_a_server_that_does_not_continue_gives_the_whole(server: Server, tmp_path: Path, manner: Manner) -> None:
    server.files["/x/a.gz"] = Served(CONTENT)
    beginning(server, tmp_path)
    server.files["/x/a.gz"].manner = manner
    assert fetch(at(server, "x"), tmp_path) == CONTENT


@pytest.mark.parametrize("manner", ["good", "no etag"])
def test_another_version_of_the_file_starts_over(server: Server, tmp_path: Path, manner: Manner) -> None:
    """Told by its ETag, or by its size where there is none; nothing of the old version is left in it."""
    server.files["/x/a.gz"] = Served(CONTENT)
    beginning(server, tmp_path)
    other = gzip.compress(np.random.default_rng(1).bytes(250_000))
    server.files["/x/a.gz"] = Served(other, manner, etag='"2"')
    assert fetch(at(server, "x", sha256=None), tmp_path) == other


def test_a_beginning_without_a_note_is_not_trusted(server: Server, tmp_path: Path) -> None:
    server.files["/x/a.gz"] = Served(CONTENT)
    (tmp_path / ".a.gz.partial").write_bytes(b"something else")
    assert fetch(at(server, "x"), tmp_path) == CONTENT
    assert server.asked == [("/x/a.gz", None)]


def test_killed_half_way_it_continues(server: Server, tmp_path: Path) -> None:
    server.files["/x/a.gz"] = Served(CONTENT, pause=0.1)
    code = (
        "import sys; from pathlib import Path\n"
        "from levelfield.data import download; from levelfield.spec import Archive\n"
        "download.fetch((Archive('a.gz', (sys.argv[1],)),), Path(sys.argv[2]))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, f"{server.url}/x/a.gz", str(tmp_path)]
    process = subprocess.Popen(command, env=environment)
    partial = tmp_path / ".a.gz.partial"
    deadline = time.monotonic() + 60
    while not partial.exists() or partial.stat().st_size < 8192:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    size = partial.stat().st_size
    server.files["/x/a.gz"].pause = 0
    assert fetch(at(server, "x"), tmp_path) == CONTENT
    assert server.asked[-1] == ("/x/a.gz", f"bytes={size}-")


def test_killed_between_the_last_byte_and_the_name(server: Server, tmp_path: Path) -> None:
    server.files["/x/a.gz"] = Served(CONTENT)
    http.download_range(f"{server.url}/x/a.gz", tmp_path / ".a.gz.partial")
    server.asked.clear()
    assert fetch(at(server, "x"), tmp_path) == CONTENT and server.asked == []


WRONG: dict[Manner, str] = {
    "missing": r"answered 404 \(Not Found\)",
    "page": "sent a web page instead of the file",
    "hidden page": "sent a web page instead of the file",
    "dies at once": "cannot be read",
    "silent": r"sent nothing for 0.5 s after [\d,]+ of [\d,]+ bytes",
    "refuses range": r"broke off after|answered 416",
}


@pytest.mark.parametrize("manner", [m for m in WRONG if m != "refuses range"])
def test_what_is_wrong_is_one_sentence_and_leaves_no_file(server: Server, tmp_path: Path, manner: Manner) -> None:
    server.files["/x/a.gz"] = Served(CONTENT, manner)
    with pytest.raises(
        UserError, match=rf"a\.gz could not be downloaded \(127.*{WRONG[manner]}.*\): .*--mirror"
    ) as caught:
        fetch(at(server, "x"), tmp_path, retry=HASTY if manner == "silent" else PATIENT)
    assert "\n" not in str(caught.value) and "a.gz" not in names(tmp_path)


@pytest.mark.parametrize("manner", WRONG)
def test_the_next_place_is_asked(server: Server, tmp_path: Path, manner: Manner) -> None:
    server.files["/x/a.gz"], server.files["/y/a.gz"] = Served(CONTENT, manner), Served(CONTENT)
    assert fetch(at(server, "x", "y"), tmp_path, retry=HASTY if manner == "silent" else PATIENT) == CONTENT
    assert json.loads((tmp_path / "a.gz.json").read_text())["url"].endswith("a.gz")


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_a_wrong_checksum_names_both_and_keeps_nothing(server: Server, tmp_path: Path, kind: str) -> None:
    other = CONTENT[:-1] + b"?"
    server.files["/x/a.gz"] = Served(other)
    archive = at(server, "x", sha256=SHA256 if kind == "sha256" else None, md5=MD5 if kind == "md5" else None)
    found, expected = hashlib.new(kind, other).hexdigest(), hashlib.new(kind, CONTENT).hexdigest()
    with pytest.raises(UserError, match=f"gave a file of {kind} {found} where {expected} is published"):
        fetch(archive, tmp_path)
    assert names(tmp_path) == []
    server.files["/y/a.gz"] = Served(CONTENT)
    assert fetch(Archive("a.gz", (*archive.urls, f"{server.url}/y/a.gz"), SHA256), tmp_path) == CONTENT


def test_without_a_checksum_the_first_download_is_the_measure(server: Server, tmp_path: Path) -> None:
    server.files["/x/a.gz"] = Served(CONTENT)
    archive = at(server, "x", sha256=None)
    fetch(archive, tmp_path)
    (tmp_path / "a.gz").unlink()
    server.files["/x/a.gz"] = Served(gzip.compress(b"another"), etag='"2"')
    with pytest.raises(UserError, match=rf"where {SHA256} is recorded at the first download .*remove .*a\.gz\.json"):
        fetch(archive, tmp_path)
    assert names(tmp_path) == ["a.gz.json"]


@pytest.mark.parametrize("name", ["a.gz", "a.zip"])
@pytest.mark.parametrize("manner", ["good", "dies without length"])
def test_without_a_checksum_what_is_truncated_is_found(
    server: Server, tmp_path: Path, manner: Manner, name: str
) -> None:
    """At the server itself, or on the way where the server does not say how much there is."""
    whole = CONTENT if name == "a.gz" else zipped()
    server.files["/x"] = Served(whole[:-9] if manner == "good" else whole, manner)
    with pytest.raises(UserError, match="gave a truncated or damaged file"):
        fetch(Archive(name, (f"{server.url}/x",)), tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", ["lra_release.gz", "a.tar.gz", "a.tgz"])
def test_without_a_checksum_what_is_packed_but_no_archive_is_found(server: Server, tmp_path: Path, name: str) -> None:
    """Such as a web page that the server compressed."""
    server.files["/x"] = Served(gzip.compress(b"<html>Sign in</html>" * 100))
    with pytest.raises(UserError, match="gave a truncated or damaged file"):
        fetch(Archive(name, (f"{server.url}/x",)), tmp_path)
    assert names(tmp_path) == []
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("a"))
    server.files["/x"] = Served(made.getvalue(), etag='"2"')
    assert fetch(Archive(name, (f"{server.url}/x",)), tmp_path) == made.getvalue()


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", np.random.default_rng(0).bytes(60_000))
    return file.getvalue()


def test_a_size_that_is_known_is_compared(server: Server, tmp_path: Path) -> None:
    for manner in ("good", "no length"):
        server.files["/x/a.gz"] = Served(CONTENT, manner)
        with pytest.raises(UserError, match=r"offers .* bytes where 99 are expected|sent more than the 99 bytes"):
            fetch(Archive("a.gz", (f"{server.url}/x/a.gz",), SHA256, bytes=99), tmp_path)
        assert "a.gz" not in names(tmp_path)


def test_an_empty_file_is_refused(server: Server, tmp_path: Path) -> None:
    server.files["/x/a.gz"] = Served(b"")
    with pytest.raises(UserError, match="sent an empty file"):
        fetch(at(server, "x", sha256=None), tmp_path)


def test_no_network_is_one_sentence(tmp_path: Path) -> None:
    places = ("http://127.0.0.1:9/a.gz", "http://nowhere.invalid/a.gz")
    with pytest.raises(UserError, match=r"127.0.0.1:9 refuses connections; nowhere.invalid (cannot|sent|answered)"):
        fetch(Archive("a.gz", places), tmp_path)


def test_a_full_disk_is_one_sentence(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files["/x/a.gz"] = Served(CONTENT)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=10_000))
    with pytest.raises(UserError, match=r"GB more are to be downloaded and 0.00 GB are free .*: free some space"):
        fetch(at(server, "x"), tmp_path)
    monkeypatch.undo()

    def full(partial: http.Partial, block: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(http.Partial, "append", full)
    with pytest.raises(UserError, match=r"No room left in .* free some space"):
        fetch(at(server, "x"), tmp_path)
    assert "a.gz" not in names(tmp_path)
    monkeypatch.undo()
    assert fetch(at(server, "x"), tmp_path) == CONTENT


def test_a_folder_that_cannot_be_made_is_one_sentence(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"Cannot write to .*: give another --data folder"):
        fetch(at(server, "x"), tmp_path / "file" / "a")


def test_own_mirrors_come_first(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files["/mine/a.gz"] = server.files["/x/a.gz"] = Served(CONTENT)
    fetch(at(server, "x"), tmp_path / "flag" / "x", f"{server.url}/mine/")
    monkeypatch.setenv(download.MIRROR, f"{server.url}/none {server.url}/mine")
    fetch(at(server, "x"), tmp_path / "variable" / "x")
    assert [path for path, _ in server.asked] == ["/mine/a.gz", "/none/a.gz", "/mine/a.gz"]


@pytest.mark.parametrize("mirror", ["file://localhost/etc", "ftp://x/y", "data/downloads", "http://"])
def test_a_mirror_that_is_none_is_told(tmp_path: Path, mirror: str) -> None:
    with pytest.raises(UserError, match="is no http or https address"):
        fetch(Archive("a.gz", ("http://127.0.0.1:9/a.gz",)), tmp_path, mirror)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "../a.gz"},
        {"name": "a/b.gz"},
        {"urls": ()},
        {"urls": ("file://localhost/a",)},
        {"sha256": "abc"},
        {"md5": MD5.upper()},
        {"bytes": 0},
    ],
    ids=str,
)
def test_an_archive_that_makes_no_sense_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(UserError):
        Archive(**({"name": "a.gz", "urls": ("https://x/a.gz",)} | fields))  # pyright: ignore[reportArgumentType]
