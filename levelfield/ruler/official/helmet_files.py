"""Finds HELMET's own files: a file for each task and length, in the folder that its data.tar.gz unpacks to.

    read("HELMET/data", RECALL["json_kv"], 16384)      # the records of data/json_kv/test_k220_dep6.jsonl

Names and numbers are those of the configurations of princeton-nlp/HELMET at 4526dfb (Yen et al. 2025). Its lengths are
counted in tokens of Llama 2.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from levelfield.ruler.official.records import Record, records
from levelfield.ruler.official.whole_questions import OfficialSet
from levelfield.ruler.sources import Sources
from levelfield.spec import UserError

LENGTHS: tuple[int, ...] = (8192, 16384, 32768, 65536, 131072)
SAME: Mapping[int, int] = dict(zip(LENGTHS, LENGTHS, strict=True))
PAIRS: Mapping[int, int] = dict(zip(LENGTHS, (105, 220, 440, 900, 1800), strict=True))  # keys and values of json_kv
PASSAGES: Mapping[int, int] = dict(zip(LENGTHS, (50, 105, 220, 440, 1000), strict=True))
FOLDER = "the folder that HELMET's data.tar.gz unpacks to"


@dataclass(frozen=True)
class Files:
    """The files of a task. pattern: with `{n}` for the number that a length has in their names."""

    pattern: str
    numbers: Mapping[int, int]
    needed: tuple[str, ...]

    def name(self, length: int) -> str:
        """Returns the name of a length's file. Raises UserError for a length that has none."""
        if length not in self.numbers:
            known = ", ".join(map(str, self.numbers))
            raise UserError(f"HELMET has no files for {length} tokens: give --lengths of {known}.")
        return self.pattern.format(n=self.numbers[length])


class Helmet(OfficialSet):
    """What HELMET's tasks share: `helmet_` before their names, and one folder."""

    option: ClassVar[str] = "helmet"
    file: ClassVar[str] = FOLDER
    task: str

    @property
    def name(self) -> str:
        return f"helmet_{self.task}"

    def path(self, sources: Sources) -> str | None:
        return sources.helmet

    @abstractmethod
    def names(self, length: int) -> tuple[str, ...]:
        """Returns the names of the files of a length. Raises UserError for a length that has none."""

    def files(self, sources: Sources, length: int) -> tuple[str, ...]:
        return tuple(str(place(self.named(sources), name)) for name in self.names(length))


def read(folder: str, files: Files, length: int) -> Sequence[Record]:
    """Reads the records of a length. Raises UserError for a length that has no file, and for an absent file."""
    return found(folder, files.name(length), files.needed)


def found(folder: str, name: str, needed: Sequence[str]) -> Sequence[Record]:
    """Reads a file of the folder, or of the folder `data` in it. Raises UserError."""
    return records(str(place(folder, name)), needed, f"HELMET's {name}")


def place(folder: str, name: str) -> Path:
    """Returns where a file of the folder lies, or of the folder `data` in it. Raises UserError where it is absent."""
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise UserError(f"{folder} is no folder: give {FOLDER}.")
    for path in (root / name, root / "data" / name):
        if path.is_file():
            return path
    raise UserError(f"{folder} has no file {name}: give {FOLDER}.")
