"""Says how much memory this machine has, and puts into words that something does not fit into it.

    with fitting("Mine(width=65536)"):
        layer = nn.Linear(65_536, 65_536)
    # TooLarge: Mine(width=65536) does not fit into memory (17.2 GB are asked for at once, and 9.8 GB are free): take a
    # smaller width (--width).

Linux lends a process more memory than there is and ends it, or another one, once it is used. While something is built
or called for the first time, what is not there is therefore refused, so that there is an error to put into words.
Nothing here imports torch, which has errors of its own for this: they are known by their name and text.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock

from levelfield.spec.errors import UserError, format_error

try:
    import resource
except ImportError:  # Windows, which lends nothing that it does not have
    resource = None

FREE, OWN, GROUPS = Path("/proc/meminfo"), Path("/proc/self/status"), Path("/proc/self/cgroup")  # of Linux
CGROUP = Path("/sys/fs/cgroup")
NAMES = {  # by the kind of control groups: files of the limit and of what is used, and what of it can be had at once
    "v2": ("memory.max", "memory.current", {"active_file", "inactive_file"}),
    "v1": ("memory.limit_in_bytes", "memory.usage_in_bytes", {"total_active_file", "total_inactive_file"}),
}
NARROWER = "take a smaller width (--width)"
SHORTER = "take a smaller width (--width) or shorter sequences"
SMALLER = "take a smaller batch (--batch) or width (--width)"
WORDS = re.compile(r"can't allocate memory|not enough memory|out of memory|bad_alloc", re.IGNORECASE)
ASKED = re.compile(r"allocate ([\d.]+) ?(bytes|[KMGTP]iB)", re.IGNORECASE)
UNITS = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
_ONE_BY_ONE = RLock()  # the limit is that of the whole process


class TooLarge(UserError):
    """Something does not fit into memory: the fault is of a size that was chosen, and not of what was built."""


def total() -> int:
    """Returns the bytes of memory of this machine, or of the container or batch job of this process, if that is less.

    Where the system does not say it, as Windows, it is as large as a number can be.
    """
    return min([_of_machine(), *(limit for limit, _ in _limits())])


def _of_machine() -> int:
    """Returns the bytes of memory of this machine, or the largest number where the system does not say it."""
    with suppress(AttributeError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return sys.maxsize


def free() -> int:
    """Returns the bytes of memory that a process can still get, swap included; `total` where the system does not say
    it."""
    known, there = _sizes(FREE), [_of_machine()]
    if "MemAvailable" in known:
        there.append(known["MemAvailable"] + known.get("SwapFree", 0))
    return min([*there, *(room for limit, used in _limits() for room in (limit, max(0, limit - used)))])


def _limits() -> Iterator[tuple[int, int]]:
    """Yields limit and use, in bytes, of the control groups with a limit that this process is in: its container's, its
    batch job's. Pages of files that the system drops when it needs room are not counted as used."""
    lines = GROUPS.read_text().splitlines() if GROUPS.exists() else []
    for _, controllers, name in (line.split(":", 2) for line in lines):
        if controllers and "memory" not in controllers.split(","):
            continue
        root = CGROUP / "memory" if controllers else CGROUP
        limit, current, dropped = NAMES["v1" if controllers else "v2"]
        place = root / name.lstrip("/")
        for group in (place, *place.parents[: len(place.parts) - len(root.parts)]):
            with suppress(OSError, ValueError):  # no such file, or "max"
                most, used = (int((group / file).read_text()) for file in (limit, current))
                kept = [line.split() for line in (group / "memory.stat").read_text().splitlines()]
                yield most, used - sum(int(size) for kind, size in kept if kind in dropped)


@contextmanager
def fitting(what: str, remedy: str = NARROWER) -> Iterator[None]:
    """Raises TooLarge where the code inside asks for more memory than there is.

    what: it builds or calls, in words. remedy: what makes it smaller.
    """
    with _refusing():
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            if not is_shortage(error):
                raise
            raise TooLarge(f"{what} does not fit into memory{_figures(error)}: {remedy}.") from error


def is_shortage(error: BaseException) -> bool:
    """Tells whether an error, of Python, NumPy or torch, says that memory is at its end."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and bool(WORDS.search(str(error))))


def reason(error: BaseException, remedy: str = SMALLER) -> str:
    """Returns in one line why something failed: of a UserError its sentence, of memory that ended how to need less."""
    if isinstance(error, UserError):
        return " ".join(str(error).split())
    return f"Memory ends here{_figures(error)}: {remedy}." if is_shortage(error) else format_error(error)


def _figures(error: BaseException) -> str:
    """Returns what was asked for and what there is, as part of a sentence; "" where the error does not say it."""
    if (said := ASKED.search(str(error))) is None:
        return ""
    asked, there = float(said[1]) * UNITS[said[2][0].lower()], free()
    on_device = "CUDA" in str(error) or "HIP" in str(error)  # whose memory is another
    beside = "" if on_device or there == sys.maxsize else f", and {there / 1e9:,.1f} GB are free"
    return f" ({asked / 1e9:,.1f} GB are asked for at once{beside})"


@contextmanager
def _refusing() -> Iterator[None]:
    """Has the system refuse what this process cannot get, where the system can do that."""
    used = _sizes(OWN).get("VmData")
    if resource is None or used is None:
        yield
        return
    with _ONE_BY_ONE:
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        allowed = used + free()
        if allowed > sys.maxsize or (soft != resource.RLIM_INFINITY and soft < allowed):
            yield
            return
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _sizes(path: Path) -> dict[str, int]:
    """Returns the bytes by name in a file of /proc, whose lines are such as `VmData:  1234 kB`; {} where there is
    none."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {words[0].rstrip(":"): 1024 * int(words[1]) for words in lines if len(words) == 3 and words[2] == "kB"}
