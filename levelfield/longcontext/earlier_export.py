"""Removes what an earlier export left in a folder, so that whoever takes all its files takes those of one export.

    removed = clear(Path("tasks"), keep=files)     # [Path("tasks/vt-4096.jsonl"), ...]

A file goes only where both its name and its content are those of an export: lines to which answers were added stay, and
so does whatever another program wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

GROUP = "levelfield_ruler"
SCORES = "levelfield_scores"
LINES = re.compile(r".+-\d+")  # the task and the length, as a file of lines is called
FIELDS = {
    *("index", "task", "length", "input", "outputs", "answer_tokens", "tokens", "depths"),
    *("key", "flavour", "template", "seed", "version", "tokenizer", "settings", "slices"),
}
"""The fields of an exported line; a test compares them with what is written."""
BEGINNINGS = {
    f"{GROUP}.yaml": (f"group: {GROUP}\n",),
    f"{SCORES}.py": ('"""Scores answers as levelfield does: RULER\'s match, and the strict score."""\n',),
    f"{GROUP}.py": (
        '"""Describes the samples beside this file to lighteval.\n',
        '"""Asks the samples beside this file: inspect eval ',
    ),
    f"{GROUP}.txt": (f"{GROUP}:",),
}
"""How files begin that an export writes once."""


def clear(folder: Path, keep: Collection[Path]) -> list[Path]:
    """Removes the files of earlier exports that are not to be kept, and returns them."""
    kept = set(keep)
    old = [path for path in _exported(folder) if path not in kept]
    for path in old:
        path.unlink()
        if path.parent != folder:
            with suppress(OSError):  # of a folder in which something else lies
                path.parent.rmdir()
    return old


def _exported(folder: Path) -> Iterator[Path]:
    """Yields the files in a folder that an export has written."""
    for path in sorted(folder.glob("*.jsonl")):
        if LINES.fullmatch(path.stem) and _are_lines(path, path.stem):
            yield path
    for path in sorted(folder.glob("*/test.jsonl")):  # as lighteval takes them
        if LINES.fullmatch(path.parent.name) and _are_lines(path, path.parent.name):
            yield path
    for path in sorted(folder.glob("levelfield_*.yaml")):
        if _begins(path, f"task: {path.stem}\ndataset_path: json\n"):
            yield path
    for name, beginnings in BEGINNINGS.items():
        if any(_begins(folder / name, beginning) for beginning in beginnings):
            yield folder / name


def _begins(path: Path, text: str) -> bool:
    wanted = text.encode()
    with suppress(OSError), path.open("rb") as file:
        return file.read(len(wanted)) == wanted
    return False


def _are_lines(path: Path, name: str) -> bool:
    """Whether all lines of a file are samples as they are exported, of the task and length of its name."""
    with suppress(OSError, ValueError, RecursionError), path.open("rb") as file:
        for line in file:
            record = json.loads(line)
            if not isinstance(record, dict) or set(record) != FIELDS:
                return False
            if f"{record['task']}-{record['length']}" != name:
                return False
        return file.tell() > 0
    return False
