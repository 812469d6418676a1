"""Tells the files apart that a task's prompts are made of, by what is in them and not by their names.

    fingerprint(LongMemEval(), Sources(longmemeval="longmemeval_s_cleaned.json"), 131072)      # "3f0c9a1e2b77"

Answers to prompts from one file are not averaged with those from another, and are no answers to its questions.
"""

from __future__ import annotations

import hashlib
import lzma
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from levelfield.ruler.official import OfficialSet
from levelfield.ruler.sources import Sources
from levelfield.ruler.tasks import CommonWords, Questions, RulerTask
from levelfield.spec import UserError

SHOWN = 12  # digits
CHUNK = 1 << 20


def fingerprint(task: RulerTask, sources: Sources, length: int) -> str:
    """Returns a hash of the user's files that the prompts of a length are made of; "" where there are none.

    Essays have a column of their own. Raises UserError for a file that is absent or damaged.
    """
    hashes = [_hash_of(path) for path in _files(task, sources, length)]
    return hashlib.sha256("".join(hashes).encode()).hexdigest()[:SHOWN] if hashes else ""


def _files(task: RulerTask, sources: Sources, length: int) -> Sequence[str]:
    match task:
        case Questions():
            named = sources.squad if task.dataset == "squad" else sources.hotpot
        case CommonWords():
            named = sources.words
        case OfficialSet():
            return task.files(sources, length)
        case _:
            return ()
    return () if named is None else (named,)


@cache
def _hash_of(path: str) -> str:
    """Hashes the bytes of a file, unpacked if it is .xz. It is read once, as the questions in it are."""
    file, found = Path(path).expanduser(), hashlib.sha256()
    try:
        with lzma.open(file) if file.suffix == ".xz" else file.open("rb") as content:
            while chunk := content.read(CHUNK):
                found.update(chunk)
    except (lzma.LZMAError, EOFError) as error:
        raise UserError(f"{path} is damaged ({error}): copy it again.") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): give the path of a file that can.") from error
    return found.hexdigest()
