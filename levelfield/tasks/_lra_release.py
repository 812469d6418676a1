"""Reads the release of Long Range Arena, an archive of 18.6 GB compressed to 7.7, without unpacking all of it.

    lra_release/listops-1000/...                         outer copies; of Pathfinder-128 a damaged one
    lra_release/lra_release/listops-1000/basic_train.tsv
    lra_release/lra_release/pathfinder32/curv_baseline/imgs/0/sample_0.png
    lra_release/lra_release/tsv_data/...

Only the inner folder is read: the official setup script takes that one, and models stay at chance on the outer
Pathfinder-128.
"""

from __future__ import annotations

import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from levelfield.files import atomic_folder, locked
from levelfield.spec import Archive, Progress, UserError, no_progress

URL = "https://storage.googleapis.com/long-range-arena/lra_release.gz"
RELEASE = (Archive("lra_release.gz", (URL,)),)  # no checksum was published
NAMES = ("lra_release.gz", "lra_release.tar.gz", "lra_release.tar")
INNER = "lra_release/lra_release/"
UNPACKED = "unpacked"  # folder beside the archive
MARK = b"\xef\xbb\xbf"  # the byte order mark before the text of some tables
STEP = 2**24  # bytes of the archive between two progress reports


def find(sources: Path) -> Path | None:
    """Returns the archive itself, or the one in the folder; None where there is none."""
    if sources.is_file():
        return itself(sources)
    return next((sources / name for name in NAMES if (sources / name).is_file()), None)


def itself(path: Path) -> Path:
    """Returns an archive that was named itself. Raises UserError for a table, which is only one of three."""
    if ".tsv" in path.suffixes:
        raise UserError(f"{path} is one table and no archive: name the folder that holds it.")
    return path


def members(path: Path, progress: Progress = no_progress) -> Iterator[tuple[str, IO[bytes]]]:
    """Yields name below the inner folder and content of each file, in the archive's order; read it before the next.

    Iterate within `damage(path)`, because an archive may end inside a file that the caller is reading. Raises UserError
    where a name leads out of its folder.
    """
    size, told = path.stat().st_size, 0
    with path.open("rb") as raw, _plain(raw) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        while (member := archive.next()) is not None:
            vars(archive)["members"].clear()  # or it would keep all two million
            name = member.name.removeprefix("./")
            if name.startswith("/") or ".." in name.split("/"):
                raise UserError(f"{path} has a file {name!r} outside its folder, so it is another one: {_again()}")
            if raw.tell() >= told:
                told = raw.tell() + STEP
                progress(f"reading {path.name}", raw.tell(), size)
            file = archive.extractfile(member) if name.startswith(INNER) and member.isfile() else None
            if file is not None:
                yield name.removeprefix(INNER), file


@contextmanager
def damage(path: Path) -> Iterator[None]:
    """Converts whatever a damaged archive or .xz file raises while it is read to UserError."""
    try:
        yield
    except (tarfile.TarError, gzip.BadGzipFile, lzma.LZMAError, EOFError, zlib.error) as error:
        raise UserError(f"{path} is truncated or damaged ({error}): {_again()}") from error


def unpack(path: Path, folder: str, wanted: Callable[[str], bool], progress: Progress = no_progress) -> Path:
    """Writes the files of one folder of the release beside the archive, once; returns the folder that holds them.

    folder: such as pathfinder32/curv_baseline. wanted: tells whether a name below it is one of the files. The folder
    gets its name only when it is complete. Raises UserError as `members` does, and where there is no such folder.
    """
    target = path.parent / UNPACKED / folder
    if target.is_dir():
        return target
    with locked(path):  # another process may be unpacking it
        return target if target.is_dir() else _unpack(path, folder, target, wanted, progress)


def _unpack(path: Path, folder: str, target: Path, wanted: Callable[[str], bool], progress: Progress) -> Path:
    try:
        with atomic_folder(target) as partial:
            with damage(path):
                for name, file in members(path, progress):
                    rest = name.removeprefix(f"{folder}/")
                    if rest != name and wanted(rest):
                        at = partial / rest
                        at.parent.mkdir(parents=True, exist_ok=True)
                        at.write_bytes(file.read())
            if not any(partial.iterdir()):
                raise UserError(f"{path} has no {INNER}{folder}: {_again()}")
    except OSError as error:
        raise UserError(
            f"Cannot unpack {folder} into {target.parent} ({error.strerror}): free some space there, or copy the "
            "archive to a folder that can be written."
        ) from error
    return target


def _plain(raw: IO[bytes]) -> IO[bytes] | gzip.GzipFile:
    packed = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    return gzip.GzipFile(fileobj=raw) if packed else raw


def _again() -> str:
    return f"download {NAMES[0]} again from {URL}."
