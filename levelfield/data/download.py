"""Downloads official files: resumed after a kill, verified, and named only when whole and right.

    fetch((Archive("cifar-10-python.tar.gz", urls, md5="c58f..."),), Path("data/downloads/image"), progress=progress)

    data/downloads/image/
        cifar-10-python.tar.gz             there when it is complete and has its checksum
        cifar-10-python.tar.gz.json        where it came from, its size and SHA-256
        .cifar-10-python.tar.gz.partial    what has arrived so far, beside a note of which version of the file it is

A user's own mirrors are asked first, then the official address, then known mirrors; every one must give the same bytes.
Where nobody published a checksum, the SHA-256 of the first download is recorded and later ones are compared with it.
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from levelfield.data.http import RETRY, Rejected, RetryPolicy, discard, download_range, note_of
from levelfield.files import disk_errors, locked
from levelfield.spec import Archive, ForeignWeights, Progress, UserError, no_progress
from levelfield.spec.contents import checksum

MIRROR = "LEVELFIELD_MIRROR"  # environment: addresses of own mirrors, separated by blanks
CHUNK = 2**20
PUBLISHED = "published"
TARS = (".tar.gz", ".tgz", "lra_release.gz")  # the last is the one whose name does not say so


@dataclass(frozen=True)
class Record:
    """What is known of a downloaded file. `published` names the checksum that somebody else vouches for, if any."""

    url: str
    bytes: int
    sha256: str
    published: str | None = None


def fetch(
    archives: Iterable[Archive],
    folder: Path,
    mirrors: Sequence[str] = (),
    progress: Progress = no_progress,
    retry: RetryPolicy = RETRY,
) -> Path:
    """Downloads every archive into `folder` unless it is there already; returns the folder.

    Safe to call from several processes at once. Raises UserError, one sentence with what each server answered, where
    none gives the right file; also on a full disk and an unwritable folder.
    """
    own = [*mirrors, *os.environ.get(MIRROR, "").split()]
    for mirror in own:
        if urlsplit(mirror).scheme not in ("http", "https") or not urlsplit(mirror).netloc:
            raise UserError(f"The mirror {mirror!r} is no http or https address: give one, or a folder with --from.")
    with disk_errors(folder, "--data"):
        folder.mkdir(parents=True, exist_ok=True)
    for archive in archives:
        with locked(folder / f".{archive.name}.lock", "--data"), disk_errors(folder, "--data"):
            _one(archive, folder, own, progress, retry)
    return folder


def verify(archive: Archive, folder: Path) -> list[str]:
    """Reads and hashes an archive that lies in `folder`; returns what is wrong with it, one sentence each."""
    path = folder / archive.name
    expected = _expected(archive, path)
    if not path.exists() or expected is None:
        return []
    kind, digest, origin = expected
    if (found := checksum(path, kind)) == digest:
        return []
    return [f"{path} has the {kind} {found} where {digest} is {origin}: remove it and run the same command again."]


def archives_of(weights: ForeignWeights) -> tuple[Archive, ...]:
    """Returns the files of weights that others trained."""
    return tuple(Archive(name, (f"{weights.address}/{name}",), sha256=digest) for name, digest in weights.files)


def held(weights: ForeignWeights, folder: Path) -> Path:
    """Returns the folder, once every file of the weights in it has been hashed. Raises UserError where one is absent
    or wrong."""
    for archive in archives_of(weights):
        if not (folder / archive.name).is_file():
            raise UserError(
                f"{folder / archive.name} is not there: `levelfield data prepare STUDY --effort EFFORT` fetches it "
                f"with the data of the study, or put the file of {archive.urls[0]} there."
            )
        if faults := verify(archive, folder):
            raise UserError(faults[0])
    return folder


def _one(archive: Archive, folder: Path, mirrors: Sequence[str], progress: Progress, retry: RetryPolicy) -> None:
    path = folder / archive.name
    if path.exists():
        _accept(archive, path)
        return
    if _link(archive, path):
        return
    partial = folder / f".{archive.name}.partial"
    own = (f"{mirror.rstrip('/')}/{archive.name}" for mirror in mirrors)
    refusals: list[str] = []
    for url in dict.fromkeys([*own, *archive.urls]):
        try:
            found = download_range(url, partial, archive.bytes, progress, retry)
            _check(archive, path, partial, found, progress)
        except Rejected as error:
            refusals.append(f"{urlsplit(url).netloc} {error}")
            continue
        _keep(path, partial, Record(url, partial.stat().st_size, found["sha256"], _published(archive)))
        return
    raise UserError(
        f"{archive.name} could not be downloaded ({'; '.join(refusals)}): run the same command again later, or let "
        "`levelfield data prepare` of the task take it from elsewhere, with --mirror URL or --from FOLDER."
    )


def _keep(path: Path, partial: Path, record: Record) -> None:
    """Gives the file its name, once its bytes and what is known of it are on the disk."""
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    note_of(path).write_text(json.dumps(asdict(record), indent=1))
    os.replace(partial, path)
    discard(partial)


def _published(archive: Archive) -> str | None:
    return "sha256" if archive.sha256 else "md5" if archive.md5 else None


def _expected(archive: Archive, path: Path) -> tuple[str, str, str] | None:
    """The kind, digest and origin of the checksum that the file must have.

    It is None before the first download of a file whose checksum nobody published.
    """
    if archive.sha256:
        return "sha256", archive.sha256, PUBLISHED
    if archive.md5:
        return "md5", archive.md5, PUBLISHED
    record = _record(path)
    return ("sha256", record.sha256, "recorded at the first download") if record else None


def _check(archive: Archive, path: Path, partial: Path, found: Mapping[str, str], progress: Progress) -> None:
    """Raises Rejected, and removes what arrived, where it is not the file that was meant."""
    expected = _expected(archive, path)
    if expected is None:
        fault = broken(partial, archive.name, progress)
    else:
        kind, digest, origin = expected
        fault = None if found[kind] == digest else f"gave a file of {kind} {found[kind]} where {digest} is {origin}"
        if fault and origin != PUBLISHED:
            fault += f" (if the first was a wrong file, remove {note_of(path)} too)"
    if fault:
        discard(partial)
        raise Rejected(fault)


def broken(path: Path, name: str, progress: Progress = no_progress) -> str | None:
    """What is wrong with a packed file that has no checksum but those inside it; it is unpacked into nothing."""
    try:
        if name.endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                member = archive.testzip()
            return f"gave a damaged file (its {member} has a wrong checksum)" if member else None
        if not name.endswith((".gz", ".tgz", ".xz")):
            return None
        if name.endswith(TARS):
            with tarfile.open(path, "r|*") as archive:
                archive.next()
        done = 0
        with lzma.open(path) if name.endswith(".xz") else gzip.open(path) as file:
            while block := file.read(CHUNK):
                done += len(block)
                progress(f"checking {name}", done, 0)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError, ValueError) as error:
        return f"gave a truncated or damaged file ({str(error).rstrip('.')})"
    return None


def _accept(archive: Archive, path: Path) -> None:
    """Accepts a file that is there by its name: as it was downloaded, or put there by hand and then hashed.

    It is hashed, too, where a checksum is published that it has not been compared with.
    """
    record = _record(path)
    if record is not None and record.bytes != path.stat().st_size:
        raise UserError(f"{path} has changed since it was downloaded: remove it and run the same command again.")
    if record is not None and _compared(archive, record):
        return
    if faults := verify(archive, path.parent):
        raise UserError(faults[0])
    url, found = record.url if record else "", checksum(path)
    note_of(path).write_text(json.dumps(asdict(Record(url, path.stat().st_size, found, _published(archive))), indent=1))


def _compared(archive: Archive, record: Record) -> bool:
    """Tells whether a file has been compared with the published checksum before, or there is none."""
    return record.sha256 == archive.sha256 if archive.sha256 else _published(archive) in (None, record.published)


def _link(archive: Archive, path: Path) -> bool:
    """Links the same file from another task's downloads; returns whether it was there."""
    for other in sorted(path.parent.parent.glob(f"*/{archive.name}")):
        record = _record(other)
        if record is None or record.bytes != other.stat().st_size:
            continue
        if record.url not in archive.urls and record.sha256 != archive.sha256:
            continue
        published = archive.sha256 or archive.md5
        if published not in (None, record.sha256) and verify(archive, other.parent):
            continue
        try:
            os.link(other, path)
        except OSError:  # a file system without hard links
            path.symlink_to(other.resolve())
        shutil.copyfile(note_of(other), note_of(path))
        return True
    return False


def _record(path: Path) -> Record | None:
    try:
        return Record(**json.loads(note_of(path).read_text()))
    except (OSError, ValueError, TypeError):
        return None
