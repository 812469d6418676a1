"""Reads the documents of a user's text from a file, a folder or an archive.

    documents(Path("books"))                 # every .txt and .jsonl file below it, in order of path
    documents(Path("books.tar.gz"))          # the same files in an archive
    documents(Path("corpus.jsonl.xz"))       # one document per line, in the field "text"
    documents(Path("essays.json"))           # one such object or a list of them; only where the file itself is named

Texts stay the bytes that they are. Files may be compressed with gzip or xz. At most MOST bytes are unpacked, whatever
size a file claims.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from levelfield.spec import Progress, UserError

ENDINGS, ARCHIVES = (".txt", ".jsonl"), (".tar", ".tgz", ".txz", ".zip")
PACKED = (".gz", ".xz")
MOST = 2**31  # bytes of all documents together, which are held in memory
DAMAGED = (  # RuntimeError is what zipfile raises for a password and for an unknown method
    gzip.BadGzipFile,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    tarfile.TarError,
    zipfile.BadZipFile,
    RuntimeError,
)


def documents(place: Path, progress: Progress) -> list[bytes]:
    """Reads all documents of a file or folder, except empty ones. Raises UserError for none and for a damaged one."""
    paths = (
        [place]
        if place.is_file()
        else sorted(
            p
            for p in place.rglob("*")
            if p.is_file() and _kind(p.name) in (*ENDINGS, *ARCHIVES) and not _hidden(p.name)
        )
    )
    found: list[bytes] = []
    room = _Room(MOST)
    for done, path in enumerate(paths, start=1):
        try:
            found += [text for text in _in_file(path, place.is_file(), room) if text]
        except DAMAGED as error:
            raise UserError(
                f"{path} cannot be read ({str(error).splitlines()[0]}): copy it again, or unpack it."
            ) from error
        progress("reading text", done, len(paths))
    if not found:
        raise UserError(
            f"There is no text in {place}: give a folder or archive with .txt or .jsonl files, or one file."
        )
    return found


@dataclass
class _Room:
    """Counts how many bytes may still be read."""

    left: int

    def read(self, file: IO[bytes] | gzip.GzipFile, name: str) -> bytes:
        """Reads the rest of a file. Raises UserError where it is too large, after no more bytes than are allowed."""
        data = file.read(self.left + 1)
        if len(data) > self.left:
            raise UserError(f"{name} makes more than {MOST / 2**30:.3g} GiB of text: give a part of it.")
        self.left -= len(data)
        return data


def _hidden(name: str) -> bool:
    """Whether a file is hidden, such as the ._book.txt that macOS puts beside a book.txt, even into archives."""
    return name.rpartition("/")[2].startswith(".")


def _kind(name: str) -> str:
    """Returns the ending of a name without that of its compression, such as ".jsonl"; "" for unknown endings."""
    for packed in PACKED:
        name = name.removesuffix(packed)
    return next((ending for ending in (*ENDINGS, *ARCHIVES, ".json") if name.lower().endswith(ending)), "")


def _in_file(path: Path, whole: bool, room: _Room) -> Iterator[bytes]:
    """Yields the documents of a file or archive. whole: read it as text even if its ending is unknown."""
    kind = _kind(path.name)
    if kind == ".zip":
        with zipfile.ZipFile(path) as archive:
            for name in sorted(name for name in archive.namelist() if not _hidden(name)):
                with archive.open(name) as file:
                    yield from _documents(name, file, room)
    elif kind in ARCHIVES:
        with tarfile.open(path) as archive:
            for member in sorted(archive.getmembers(), key=lambda m: m.name):
                file = archive.extractfile(member) if member.isfile() and not _hidden(member.name) else None
                if file is not None:
                    yield from _documents(member.name, file, room)
    elif kind in ENDINGS or whole:
        with path.open("rb") as file:
            yield from _documents(path.name if kind else "text.txt", file, room, (*ENDINGS, ".json"))


def _documents(name: str, file: IO[bytes], room: _Room, kinds: Sequence[str] = ENDINGS) -> Iterator[bytes]:
    """Yields the documents of an open file, read as its name demands; none if its ending is not among `kinds`."""
    kind = _kind(name)
    if kind not in kinds:
        return
    begin = file.read(6)
    file.seek(0)
    if begin.startswith((b"BZh", b"\x28\xb5\x2f\xfd")):
        raise UserError(f"{name} is packed with bzip2 or zstd, which is not read here: unpack it, or use gzip or xz.")
    if begin.startswith(b"\x1f\x8b"):
        with gzip.open(file) as unpacked:
            data = room.read(unpacked, name)
    elif begin.startswith(b"\xfd7zXZ\0"):
        with lzma.open(file) as unpacked:
            data = room.read(unpacked, name)
    else:
        data = room.read(file, name)
    if kind == ".txt":
        yield data
    elif kind == ".json":
        rows = _parsed(data, name)
        yield from (
            _text(row, f"{name}, entry {i}") for i, row in enumerate(rows if isinstance(rows, list) else [rows])
        )
    else:
        for number, line in enumerate(io.BytesIO(data), start=1):
            where = f"{name}, line {number}"
            if line.strip():
                yield _text(_parsed(line, where), where)


def _parsed(data: bytes, where: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not JSON ({error}).") from error


def _text(row: Any, where: str) -> bytes:
    text = row.get("text") if isinstance(row, dict) else None
    if not isinstance(text, str):
        raise UserError(f'{where} has no text: it must be an object with the field "text".')
    return text.encode("utf-8", "surrogatepass")
