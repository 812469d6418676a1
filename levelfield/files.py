"""What a disk can do to a run, in one sentence each, and who may write.

folder("runs")                      # Path("runs"), where that is or can be a folder
with disk_errors(folder, "--runs-dir"):
    ...                             # a full disk, an unwritable folder or a file in its place raise UserError
with locked(folder / ".name.lock", "--data"):
    ...                             # one process at a time
read_text(path, "remove it and run again")      # that advice is given for damage, and for nothing else
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISDIR
from tempfile import TemporaryFile
from typing import Any

from levelfield.spec import UserError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, None)  # None: NumPy's `tofile` says only how little it wrote
TOO_MANY = (errno.EMFILE, errno.ENFILE)
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
    """The folder of that name, there or not. Raises UserError for what is something else, or cannot be one."""
    path, reason = Path(text), ""
    try:
        reason = "" if S_ISDIR(path.stat().st_mode) else "it is a file"
    except FileNotFoundError:
        pass  # whoever writes makes it
    except OSError as error:
        reason = error.strerror or "the system refuses it"
    except ValueError as error:  # of a NUL in it
        reason = str(error)
    if reason:
        raise UserError(f"{shortened(text)} cannot be a folder here ({reason}): give another one.")
    return path


def made(where: Path, option: str) -> Path:
    """The same folder, which is there now and can be written to. Raises UserError where that cannot be."""
    with disk_errors(where, option):
        where.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=where):
            return where


def shortened(text: object, most: int = 100) -> str:
    """What fits into a sentence: the begin and the end of what is longer."""
    shown = str(text)
    return shown if len(shown) <= most else f"{shown[: most - 23]}...{shown[-20:]}"


@contextmanager
def disk_errors(where: Path, option: str = "") -> Iterator[None]:
    """option: the flag that would choose another folder, where there is one."""
    other = f"give another {option} folder" if option else "choose another folder"
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            message = f"No room left in {shortened(where)}: free some space and run the same command again, or {other}."
            raise UserError(message) from error
        if error.errno in CLOSED:
            raise UserError(f"Cannot write to {shortened(where)} ({error.strerror}): {other}.") from error
        raise


def refusal(error: OSError) -> UserError:
    """What the system refused, in a sentence; for errors that nobody expected at a certain place."""
    where = f" {shortened(error.filename)}" if error.filename is not None else ""
    reason = error.strerror or str(error) or type(error).__name__
    return UserError(f"The system refuses{where or ' this'} ({reason}): mend that, then run the same command again.")


def unreadable(path: Path, error: OSError, remedy: str) -> UserError:
    """Why a file cannot be read. remedy: what mends damage, such as removing it; nothing else is answered with that."""
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


def read_text(path: Path, remedy: str) -> str:
    """The text of a UTF-8 file. Raises UserError, with `remedy` where the file is damaged or missing."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is damaged (it is no UTF-8 text): {remedy}.") from error
    except OSError as error:
        raise unreadable(path, error, remedy) from error


def sha256(path: Path) -> str:
    """Of a file's content, hex. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def locked(path: Path, option: str = "", busy: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Holds an exclusive lock; the system releases it when the process ends, however it ends. busy: is called where
    another process has it, before waiting for that."""
    with disk_errors(path.parent, option):
        file = path.open("w")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            busy()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_text(path: Path, text: str) -> None:
    """Atomically. Raises UserError on a full disk."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with disk_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(text)
            os.replace(partial, path)
    finally:
        with suppress(OSError):  # or it would hide why nothing could be written
            partial.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Without fields that are no finite numbers."""
    write_text(path, json.dumps(finite(value), indent=1, allow_nan=False) + "\n")


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """One JSON object a line."""
    write_text(path, "".join(to_line(row) for row in rows))


def to_line(row: Mapping[str, Any]) -> str:
    """Without fields that are no finite numbers, which JSON does not have."""
    return json.dumps(finite(row), allow_nan=False) + "\n"


def finite(value: Any) -> Any:
    """The value without its fields, at any depth, that are no finite numbers; in a list, null stands in their place."""
    if isinstance(value, Mapping):
        kept = {key: finite(each) for key, each in value.items()}
        return {key: each for key, each in kept.items() if each is not None or value[key] is None}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_rows(path: Path) -> list[Any]:
    """The objects of a .jsonl file; [] where there is none. Raises UserError on a damaged one."""
    return _lines(path, read_text(path, _remedy(path.parent))) if path.exists() else []


def read_log(path: Path) -> list[Any]:
    """A log that is being written: its last line may be cut off, and is left out then."""
    text = read_text(path, _remedy(path.parent)) if path.exists() else ""
    return _lines(path, text[: text.rfind("\n") + 1])


def read_json(path: Path) -> Any:
    """Raises UserError on a damaged file."""
    return _parsed(path, read_text(path, _remedy(path.parent)), _remedy(path.parent))


def _lines(path: Path, text: str) -> list[Any]:
    return [_parsed(path, line, _remedy(path.parent)) for line in text.splitlines() if line]


def _parsed(path: Path, text: str, remedy: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({error}): {remedy}.") from error


def _remedy(where: Path) -> str:
    return f"remove {where} and run again"
