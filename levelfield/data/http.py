"""Downloads one address into a partial file over HTTP, continuing where an earlier attempt or process stopped.

    download_range("https://host/file.tar.gz", Path(".file.tar.gz.partial"))    # {"sha256": "...", "md5": "..."}

A note beside the partial file says which version of the file it is the beginning of: address, ETag, Last-Modified and
total size. The rest is asked for with Range and If-Range; a server that ignores Range, or has another version by now,
sends the whole, and the file starts over. The checksums are those of the whole file, computed as it arrives.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path

from levelfield.spec import Progress, UserError, no_progress

BLOCK = 2**20  # bytes
SPARE = 64 * 2**20  # bytes of the disk to leave free
AGENT = "levelfield (a benchmark of sequence models; Python urllib)"
_PAGE = re.compile(rb"\s*(<!doctype\s+html|<html)", re.IGNORECASE)


class Rejected(Exception):
    """This server does not have the right file, and asking again is of no use. The message begins with a verb."""


class _Interrupted(Exception):
    """The connection failed or ended early; another attempt may succeed."""


@dataclass(frozen=True)
class RetryPolicy:
    """Patience with a server.

    timeout: seconds without a byte. tries: consecutive attempts without progress before giving up. pause: seconds
    before the second attempt, and twice as many before each further one.
    """

    timeout: float = 30.0
    tries: int = 4
    pause: float = 1.0


RETRY = RetryPolicy()


@dataclass(frozen=True)
class Version:
    """The version of a file, as its server names it."""

    url: str
    etag: str | None
    modified: str | None
    total: int | None

    @property
    def validator(self) -> str | None:
        """What If-Range takes: an ETag that is not weak, or else the date."""
        return self.etag if self.etag and not self.etag.startswith("W/") else self.modified


class Partial:
    """The beginning of a file on disk, its note, and the checksums of what is there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size, self.version = 0, self._noted()
        self.hashes = {"sha256": hashlib.sha256(), "md5": hashlib.md5(usedforsecurity=False)}
        if self.version is None:
            self.remove()
        elif path.exists():
            with path.open("rb") as file:
                while block := file.read(BLOCK):
                    self._count(block)

    def _noted(self) -> Version | None:
        try:
            return Version(**json.loads(note_of(self.path).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    @property
    def complete(self) -> bool:
        return self.version is not None and self.size == self.version.total

    @property
    def digests(self) -> dict[str, str]:
        return {kind: state.hexdigest() for kind, state in self.hashes.items()}

    def start(self, version: Version) -> None:
        """Begins this version; nothing is there yet."""
        self.remove()
        note_of(self.path).write_text(json.dumps(asdict(version)))
        self.version = version

    def remove(self) -> None:
        discard(self.path)
        self.size, self.version = 0, None
        self.hashes = {"sha256": hashlib.sha256(), "md5": hashlib.md5(usedforsecurity=False)}

    def append(self, block: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(block)
        self._count(block)

    def _count(self, block: bytes) -> None:
        self.size += len(block)
        for state in self.hashes.values():
            state.update(block)


def discard(path: Path) -> None:
    """Removes a partial file and its note."""
    path.unlink(missing_ok=True)
    note_of(path).unlink(missing_ok=True)


def note_of(path: Path) -> Path:
    """Returns where the note of what is known of a file lies: beside it."""
    return path.with_name(f"{path.name}.json")


def download_range(
    url: str, path: Path, size: int | None = None, progress: Progress = no_progress, retry: RetryPolicy = RETRY
) -> dict[str, str]:
    """Fills `path` with all of `url`; returns its checksums by kind. size: in bytes, where it is known beforehand.

    The total of `progress` is 0 while the size is unknown. Raises Rejected where this server is of no use or gave up
    half-way; what has arrived stays for another time. Raises UserError where the disk has no room.
    """
    partial = Partial(path)
    failures = 0
    while not partial.complete:
        before = partial.size
        try:
            if _attempt(url, partial, size, progress, retry):
                break
        except _Interrupted as error:
            total = partial.version.total if partial.version else None
            failures = 1 if partial.size - before > (total or BLOCK) // 100 else failures + 1
            if failures >= retry.tries:
                raise Rejected(str(error)) from error
            time.sleep(retry.pause * 2 ** (failures - 1))
    return partial.digests


def _attempt(url: str, partial: Partial, size: int | None, progress: Progress, retry: RetryPolicy) -> bool:
    """One connection; returns True when the file is whole as far as can be told."""
    headers = {"User-Agent": AGENT, "Accept-Encoding": "identity"} | _continuing(url, partial)
    with _open(urllib.request.Request(url, headers=headers), partial, retry) as response:
        version = _version(url, response)
        if response.headers.get_content_type() == "text/html":
            raise Rejected("sent a web page instead of the file")
        if size is not None and version.total not in (None, size):
            raise Rejected(f"offers {version.total:,} bytes where {size:,} are expected")
        if version.total == 0:
            raise Rejected("sent an empty file")
        if response.status != 206 or partial.version is None or partial.version.url != url:
            partial.start(version)
        elif not _continues(response, version, partial):
            partial.remove()
            raise _Interrupted("has another version of the file by now")
        total = version.total or size or 0
        _check_room(partial.path.parent, total - partial.size)
        while block := _read(response, partial, total, retry):
            if not partial.size and _PAGE.match(block):
                partial.remove()
                raise Rejected("sent a web page instead of the file")
            partial.append(block)
            progress(
                partial.path.name.removeprefix(".").removesuffix(".partial"), partial.size, max(total, partial.size)
            )
    if total and partial.size < total:
        raise _Interrupted(f"broke off after {partial.size:,} of {total:,} bytes")
    if total and partial.size > total:
        partial.remove()
        raise Rejected(f"sent more than the {total:,} bytes that are expected")
    return True


def _continuing(url: str, partial: Partial) -> dict[str, str]:
    """Headers that ask for the rest, where there is a beginning and something to know its version by."""
    version = partial.version
    if not partial.size or version is None or version.url != url or version.validator is version.total is None:
        return {}
    condition = {"If-Range": version.validator} if version.validator else {}
    return {"Range": f"bytes={partial.size}-"} | condition


def _version(url: str, response: HTTPResponse) -> Version:
    headers = response.headers
    total = headers.get("Content-Range", "").rpartition("/")[2] or headers.get("Content-Length", "")
    return Version(url, headers.get("ETag"), headers.get("Last-Modified"), int(total) if total.isdecimal() else None)


def _continues(response: HTTPResponse, version: Version, partial: Partial) -> bool:
    """Tells whether a partial response is the rest of what is there."""
    known = partial.version
    assert known is not None
    pairs = ((version.etag, known.etag), (version.modified, known.modified), (version.total, known.total))
    same = all(a == b for a, b in pairs if a is not None and b is not None)
    return same and response.headers.get("Content-Range", "").startswith(f"bytes {partial.size}-")


def _open(request: urllib.request.Request, partial: Partial, retry: RetryPolicy) -> HTTPResponse:
    try:
        return urllib.request.urlopen(request, timeout=retry.timeout)
    except urllib.error.HTTPError as error:
        error.close()
        answer = f"answered {error.code} ({error.reason})"
        if error.code == 416:  # what is there is no beginning of what it has
            partial.remove()
            raise _Interrupted(answer) from error
        raise (_Interrupted if error.code in (408, 425, 429) or error.code >= 500 else Rejected)(answer) from error
    except urllib.error.URLError as error:
        reason = error.reason if isinstance(error.reason, Exception) else error
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise Rejected(f"has a certificate that cannot be verified ({reason.verify_message})") from error
        raise _Interrupted(_in_words(reason, retry)) from error
    except (OSError, HTTPException) as error:
        raise _Interrupted(_in_words(error, retry)) from error


def _read(response: HTTPResponse, partial: Partial, total: int, retry: RetryPolicy) -> bytes:
    try:
        return response.read1(BLOCK)
    except (OSError, HTTPException) as error:
        of = f" of {total:,}" if total else ""
        words = _in_words(error, retry) if isinstance(error, TimeoutError) else "broke off"
        raise _Interrupted(f"{words} after {partial.size:,}{of} bytes") from error


def _in_words(error: BaseException, retry: RetryPolicy) -> str:
    if isinstance(error, TimeoutError):
        return f"sent nothing for {retry.timeout:g} s"
    if isinstance(error, socket.gaierror):
        return "cannot be found (no network, or no such name)"
    if isinstance(error, ConnectionRefusedError):
        return "refuses connections"
    return f"cannot be read ({str(error) or type(error).__name__})"


def _check_room(folder: Path, missing: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < missing + SPARE:
        raise UserError(
            f"{missing / 1e9:.2f} GB more are to be downloaded and {free / 1e9:.2f} GB are free in {folder}: free some "
            "space and run the same command again, or give another --data folder."
        )
