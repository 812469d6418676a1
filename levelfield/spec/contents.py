"""Hashes files, and those that a task reads once until they change.

contents([Path("reviews.csv")])             # ["3f2a..."]
checksum(Path("reviews.csv"))               # "3f2a...", read again each time
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from levelfield.spec.errors import UserError


def contents(files: Sequence[Path]) -> list[str]:
    """Returns the SHA-256 of each file. Raises UserError where one cannot be read."""
    try:
        return [_content(str(path.resolve()), *_stamp(path)) for path in files]
    except OSError as error:
        raise UserError(
            f"{error.filename} cannot be read ({error.strerror}), and a task is known by its files: give the path of a "
            "file that is there and that you may read."
        ) from error


def _stamp(path: Path) -> tuple[int, ...]:
    """Returns numbers that change whenever a file does."""
    now = path.stat()
    return now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns


@cache
def _content(path: str, *stamp: int) -> str:
    return checksum(Path(path))


def checksum(path: Path, kind: str = "sha256") -> str:
    """Returns a checksum of a file's content, in hexadecimal, without holding it in memory. Raises OSError.

    kind: a name that hashlib knows.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()
