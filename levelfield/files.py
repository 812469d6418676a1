"""Reads and writes small files so that a full disk, a killed process or a damaged file is told in one sentence.

Everything that a run leaves behind goes through here: whatever is written takes its name only when it is whole, and
what the system refuses becomes a `UserError` that says how to mend it.

    with disk_errors(folder, "--data"):             # no room, no permission, or a file in its place
        ...
    with locked(folder / ".name.lock", "--data"):   # one process at a time
        ...
    with atomic(folder / "name.bin") as partial:    # readers see the earlier file or the whole new one
        partial.write_bytes(content)
    read_text(path, "remove it and run again")      # that advice is given for damage, and for nothing else
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from stat import S_ISDIR
from tempfile import TemporaryFile, gettempdir
from typing import IO, TYPE_CHECKING, Any
from uuid import uuid4

from levelfield.spec.errors import UserError

if TYPE_CHECKING:
    import numpy as np

try:
    import fcntl
except ImportError:  # Windows
    fcntl, msvcrt = None, import_module("msvcrt")

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_ROOM = "No room left in"  # begins the sentence for these
TOO_MANY = (errno.EMFILE, errno.ENFILE)
AGAIN = "remove it, then run the same command again"
UNLOCKABLE = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)  # as Lustre says that is mounted without flock
AWAY = (errno.EIO, getattr(errno, "ESTALE", errno.EIO))  # a disk or its server fails, perhaps for a moment
CLOSED = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.ENOENT,  # of mkdir where the system keeps a folder of its own, such as /proc
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.EINVAL,
)


def folder(text: str) -> Path:
    """Returns the folder of that name, whether it exists or not.

    Raises UserError where the name is that of a file, or cannot be a folder's.
    """
    path, reason = Path(text), ""
    try:
        reason = "" if S_ISDIR(path.stat().st_mode) else "it is a file"
    except FileNotFoundError:
        pass  # whoever writes makes it
    except OSError as error:
        reason = error.strerror or "the system refuses it"
    except ValueError as error:  # a NUL in the name
        reason = str(error)
    if reason:
        raise UserError(f"{abridged(text)} cannot be a folder here ({reason}): give another one.")
    return path


def made(where: Path, option: str) -> Path:
    """Makes the folder where it is missing, and returns it. Raises UserError where it cannot be written to.

    option: the flag that would choose another folder.
    """
    with disk_errors(where, option):
        where.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=where):
            return where


def abridged(text: object, most: int = 100) -> str:
    """Returns a text that fits into a sentence: of a long one, its beginning and its end."""
    shown = str(text)
    return shown if len(shown) <= most else f"{shown[: most - 23]}...{shown[-20:]}"


@contextmanager
def disk_errors(where: Path, option: str = "") -> Iterator[None]:
    """Turns a full disk and a folder that cannot be written to into a UserError. Other errors pass as they are.

    option: the flag that would choose another folder, where there is one.
    """
    other = f"give another {option} folder" if option else "choose another folder"
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            message = f"{NO_ROOM} {abridged(where)}: free some space and run the same command again, or {other}."
            raise UserError(message) from error
        if error.errno in CLOSED:
            raise UserError(f"Cannot write to {abridged(where)} ({error.strerror}): {other}.") from error
        if error.errno in AWAY:
            message = f"Cannot write to {abridged(where)} ({error.strerror}): see to the disk, then run again."
            raise UserError(message) from error
        if error.errno == errno.EISDIR:
            raise unreadable(Path(error.filename2 or error.filename or where), error, AGAIN) from error
        raise


def refusal(error: OSError) -> UserError:
    """Returns what the system refused, in one sentence, for errors that nothing nearer to them has caught."""
    where = f" {abridged(error.filename)}" if error.filename is not None else ""
    reason = error.strerror or str(error) or type(error).__name__
    return UserError(f"The system refuses{where or ' this'} ({reason}): mend that, then run the same command again.")


def unreadable(path: Path, error: OSError, remedy: str) -> UserError:
    """Returns why a file cannot be read, in one sentence.

    remedy: what mends damage, such as removing the file. It is advised where the file is missing or is a folder, and
    not where the file itself may be sound.
    """
    reason = error.strerror or str(error)
    if error.errno in TOO_MANY:
        return UserError(f"{path} cannot be read, too many files are open: raise `ulimit -n`, or take fewer --jobs.")
    if error.errno in (errno.EACCES, errno.EPERM):
        return UserError(f"{path} may not be read ({reason}): give yourself the right to read it.")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return UserError(f"{path} cannot be read, it is missing: {remedy}.")
    if error.errno == errno.EISDIR:
        return UserError(f"{path} is a folder where a file should be: {remedy}.")
    return UserError(f"{path} cannot be read ({reason}): see to the disk, then run the same command again.")


def read_text(path: Path, advice: str = "", expected: str = "") -> str:
    """Returns the text of a UTF-8 file. Raises UserError, with `advice` where the file is damaged or missing.

    advice: what mends that; by default, removing the folder that it lies in. expected: its SHA-256, where it is known.
    """
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is damaged (it is no UTF-8 text): {advice or remedy(path.parent)}.") from error
    except OSError as error:
        raise unreadable(path, error, advice or remedy(path.parent)) from error
    if expected and hashlib.sha256(text.encode()).hexdigest() != expected:
        raise changed(path, advice or remedy(path.parent))
    return text


def changed(path: Path, advice: str) -> UserError:
    """Returns what is said of a file that has another checksum than when it was written. advice: what mends that."""
    return UserError(f"{path} is damaged (it has changed since it was written): {advice}.")


@contextmanager
def locked(path: Path, option: str = "", busy: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Holds the lock on a file, after waiting where another process has it.

    A missing file is made, and what is in an existing one stays. The system releases the lock when the process ends,
    however it ends. Where the file system has no locks, one in this machine's folder of temporary files stands for it,
    so that processes of this machine still exclude each other; those of others do not, as with locks that a network
    file system keeps to each machine. Raises UserError where the file cannot be made. option: as of `disk_errors`.
    busy: is called before waiting.
    """
    while True:
        with _lock_file(path, option) as file:
            free = _locked(file, wait=False)
            if free is None:
                break
            if not free:
                busy()
                while not _locked(file, wait=True):  # Windows waits ten seconds at a time
                    pass
            if _is_at(path, file):  # and was not removed by whoever held it
                yield
                return
    with locked(_elsewhere(path), option, busy):
        yield


def _elsewhere(path: Path) -> Path:
    """Returns the file in this machine's folder of temporary files whose lock stands for that on a path."""
    here = Path(gettempdir())
    if path.parent == here:
        raise UserError(f"{here} has no locks (flock): set TMPDIR to a folder that has.")
    return here / f"levelfield-{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]}.lock"


def _lock_file(path: Path, option: str) -> IO[bytes]:
    with disk_errors(path.parent, option):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return path.open("ab")
        except PermissionError:
            if not path.is_file():
                raise
            return path.open("rb")  # a file that may only be read can be locked too


def _is_at(path: Path, file: IO[bytes]) -> bool:
    """Whether an open file is the one that has that name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _locked(file: IO[bytes], wait: bool) -> bool | None:
    """Locks an open file until it is closed; False where another process has it and the system waits no longer, None
    where the file system has no locks."""
    if fcntl is None:
        file.seek(0)
        with suppress(OSError):
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
            return True
        return False
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in UNLOCKABLE:
            return None
        raise
    return True


@contextmanager
def atomic(path: Path, durable: bool = False) -> Iterator[Path]:
    """Yields a path to write to, beside `path`, whose name the file takes when the block ends without an error.

    Whoever reads meanwhile finds the earlier file or the whole new one. After an error nothing is left of the new one.
    durable: that is so after a power cut too; it takes the time that the disk takes.
    """
    partial = path.with_name(f".{path.name}.{uuid4().hex[:12]}.partial")  # ids of processes differ on one machine only
    try:
        yield partial
        if durable:
            sync(partial)
        os.replace(partial, path)
    finally:
        with suppress(OSError):  # or it would hide why nothing could be written
            partial.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Waits until what a file holds is on the disk, and not in memory alone. Raises OSError."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yields an empty folder to fill, which takes the place of `path` when the block ends without an error.

    The caller holds a lock: two processes would fill the same folder. What a killed process left in it is removed.
    """
    partial = path.with_name(f".{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        yield partial
        shutil.rmtree(path, ignore_errors=True)
        os.replace(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_text(path: Path, text: str, durable: bool = False) -> None:
    """Writes a file atomically, and its folder where that is missing. Raises UserError on a full disk.

    durable: as of `atomic`.
    """
    with disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path, durable) as partial:
            partial.write_text(text, encoding="utf-8", newline="\n")  # the same bytes on every system


def save_array(path: Path, array: np.ndarray) -> None:
    """Writes an array in NumPy's own format. Raises OSError, with ENOSPC where only a part of it could be written.

    NumPy gives that error no number and says how little it wrote. Errors of other packages, such as of a network, have
    no number either, so only here is it taken for a full disk.
    """
    import numpy as np

    with path.open("wb") as file:
        try:
            np.save(file, array)
        except OSError as error:
            if error.errno is None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
            raise


def write_json(path: Path, value: Any) -> None:
    """Writes a value as JSON, without fields that are no finite numbers."""
    write_text(path, json.dumps(finite(value), indent=1, allow_nan=False) + "\n")


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes one JSON object a line, each as `to_line` has it."""
    write_text(path, "".join(to_line(row) for row in rows))


def to_line(row: Mapping[str, Any]) -> str:
    """Returns a row as one line of JSON, without fields that are no finite numbers, which JSON does not have."""
    return json.dumps(finite(row), allow_nan=False) + "\n"


def finite(value: Any) -> Any:
    """Returns the value without its fields, at any depth, that are no finite numbers.

    An item of a list leaves null in its place, so that the others keep theirs.
    """
    if isinstance(value, Mapping):
        kept = {key: finite(each) for key, each in value.items()}
        return {key: each for key, each in kept.items() if each is not None or value[key] is None}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_rows(path: Path, advice: str = "", expected: str = "") -> list[Any]:
    """Returns the objects of a .jsonl file; [] where there is none. Raises UserError on a damaged one.

    advice, expected: as of `read_text`.
    """
    return _lines(path, read_text(path, advice, expected), advice) if path.exists() else []


def read_log(path: Path) -> list[Any]:
    """Returns the objects of a log that may still be written to: without its last line where that is cut off."""
    text = read_text(path) if path.exists() else ""
    return _lines(path, text[: text.rfind("\n") + 1])


def read_json(
    path: Path, advice: str = "", made: Callable[[dict[str, Any]], Any] | None = None, expected: str = ""
) -> Any:
    """Returns the value of a JSON file. Raises UserError on a damaged one.

    advice, expected: as of `read_text`. made: returns what stands for an object, the inner ones first; by default the
    object itself.
    """
    return _parsed(path, read_text(path, advice, expected), advice, made)


def remedy(where: Path) -> str:
    """Returns what is advised where a file of a run or of prepared data is damaged."""
    return f"remove {where} and run again"


def _lines(path: Path, text: str, advice: str = "") -> list[Any]:
    lines = text.removeprefix("\ufeff").split("\n")  # not at U+2028 or U+0085, which others write into strings of JSON
    return [_parsed(path, line, advice) for line in lines if line.strip()]


def _parsed(path: Path, text: str, advice: str = "", made: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    try:
        return json.loads(text, object_hook=made)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({error}): {advice or remedy(path.parent)}.") from error


LONGEST_NAME = 60  # bytes; three names make that of a folder
NAME = re.compile(r"[\w.+-]+")


def check_name(kind: str, name: str) -> None:
    """Raises UserError for a name that cannot be part of a folder's name."""
    if not NAME.fullmatch(name) or len(name.encode()) > LONGEST_NAME:
        shown = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..."
        allowed = f"1 to {LONGEST_NAME} letters, digits, . _ + -"
        raise UserError(f"The {kind} name {shown!r} cannot name a folder: take {allowed}")


def with_suffix(name: str, suffix: str) -> str:
    """Returns a name with a suffix. One that `check_name` would find too long ends in a hash instead, by which it is
    told from others."""
    whole = f"{name}{suffix}".encode()
    if len(whole) <= LONGEST_NAME:
        return f"{name}{suffix}"
    ending = f"-{hashlib.sha256(whole).hexdigest()[:8]}"
    return whole[: LONGEST_NAME - len(ending)].decode(errors="ignore") + ending
