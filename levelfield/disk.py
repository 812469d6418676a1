"""What a disk can do to a run, in one sentence each, and who may write.

with explained(folder, "--out"):
    ...                             # a full disk, an unwritable folder or a file in its place raise UserError
with locked(folder / ".name.lock", "--data"):
    ...                             # one process at a time
"""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from levelfield.identity import UserError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, None)  # None: NumPy's `tofile` says only how little it wrote
CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)


@contextmanager
def explained(where: Path, option: str = "") -> Iterator[None]:
    """option: the flag that would choose another folder, where there is one."""
    other = f"give another {option} folder" if option else "choose another folder"
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            message = f"No room left in {where}: free some space and run the same command again, or {other}."
            raise UserError(message) from error
        if error.errno in CLOSED:
            raise UserError(f"Cannot write to {where} ({error.strerror}): {other}.") from error
        raise


@contextmanager
def locked(path: Path, option: str = "", busy: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Holds an exclusive lock; the system releases it when the process ends, however it ends. busy: is called where
    another process has it, before waiting for that."""
    with explained(path.parent, option):
        file = path.open("w")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            busy()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
