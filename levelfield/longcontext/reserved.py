"""Keeps the folder of a model's answers to one process, and removes it again where a refusal leaves nothing in it.

with reserved(Path("runs/ruler/mamba2-2.7b"), Path("report"), print):
    ...                                       # where this is refused before an answer is stored, no folder stays
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from levelfield.files import disk_errors, locked
from levelfield.longcontext.answers import BASELINES
from levelfield.longcontext.model_record import ASKED, MODEL
from levelfield.longcontext.survey import ANATOMY

LOCK = ".lock"
BEFORE_ANSWERS = {LOCK, MODEL, ASKED, ANATOMY, BASELINES}
QUESTIONS = "questions-*.json"  # for copies of a model


@contextmanager
def reserved(folder: Path, report_dir: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Makes a folder and holds its lock; says so where another process holds it.

    After an error, folders are removed that hold nothing but what is written before the first answer: this one, and of
    the folders above it and of those of the report the ones that did not exist before.
    """
    missing = [each for path in (folder, report_dir) for each in (path, *path.parents) if not each.exists()]
    waits = f"Another process is evaluating in {folder}: waiting until it ends."
    try:
        with disk_errors(folder, "--runs-dir"):
            folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / LOCK, "--runs-dir", lambda: say(waits)):
            try:
                yield
            except Exception:
                if not _kept(folder):
                    shutil.rmtree(folder, ignore_errors=True)
                raise
    except Exception:
        for each in missing:
            with suppress(OSError):  # of one that is not empty, or was never made
                each.rmdir()
        raise


def _kept(folder: Path) -> bool:
    """Whether a folder holds more than what is written before the first answer."""
    files = (path for path in folder.rglob("*") if not path.is_dir())
    return any(path.name not in BEFORE_ANSWERS and not path.match(QUESTIONS) for path in files)
