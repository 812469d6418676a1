"""What preparing text costs: megabytes of raw text a second and core, from official files to prepared arrays.

    python benchmarks/prepare.py --data FOLDER [--only text] [--rounds 3]

FOLDER is laid out like LEVELFIELD_TEST_DATA. A case names a task, and a function that puts its files where the task is
to read them. Process CPU time of `data.prepare`: reading, decompressing, checking, converting, hashing, writing; the
least of several rounds. Writes results/speed-prepare.csv and docs/speed-prepare.md.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import io
import os
import platform
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from levelfield import data
from levelfield.spec import Task, UserError
from levelfield.tasks import _imdb
from levelfield.tasks.corpus import ImdbText
from levelfield.tasks.text import Text

Row = dict[str, str]
ROOT = Path(__file__).resolve().parent.parent
COLUMNS: tuple[str, ...] = ("case", "megabytes", "cpu_s", "floor_s", "mb_per_s", "rounds", "machine")
HEAD = """# Speed of preparing text

Process CPU time of `data.prepare` from files to finished arrays (reading, decompressing, checking, splitting, turning
into symbols, hashing, writing), on one core, the least of {rounds}, and raw text through it a second. Beside it, what
the same archive takes to be decompressed and its text to be hashed twice by the standard library, and nothing else:
less than that cannot be, because the copy is compared with the official one and the arrays are recorded by their
SHA-256. `python benchmarks/prepare.py --data FOLDER`; rows: `results/speed-prepare.csv`. Machine: {machine}.

| case | raw text, MB | CPU, s | library alone, s | MB/s |
|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Case:
    """place(data, scratch): where the task's files lie, made in `scratch` if need be, and bytes of raw text in them."""

    name: str
    task: Task
    place: Callable[[Path, Path], tuple[Path, int]]


def imdb(form: Literal["gz", "folder", "given"]) -> Callable[[Path, Path], tuple[Path, int]]:
    """The labelled reviews as a .tar.gz, unpacked, or as they lie in the data folder."""

    def place(source: Path, scratch: Path) -> tuple[Path, int]:
        reviews = _imdb.read(source, "text")
        size = sum(len(r.text) for r in reviews)
        if form == "given":
            return source, size
        if form == "gz":
            pack(reviews, scratch / _imdb.ARCHIVES[0].name)
        for review in reviews if form == "folder" else ():
            path = scratch / "aclImdb" / review.name.decode()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(review.text)
        return scratch, size

    return place


def pack(reviews: list[_imdb.Review], path: Path) -> None:
    with tarfile.open(path, "w:gz", compresslevel=6) as archive:
        for review in reviews:
            header = tarfile.TarInfo(f"aclImdb/{review.name.decode()}")
            header.size = len(review.text)
            archive.addfile(header, io.BytesIO(review.text))


CASES = (
    Case("text, bytes, from .tar.gz", Text(), imdb("gz")),
    Case("text, bytes, from unpacked files", Text(), imdb("folder")),
    Case("text, bytes, from .tar.xz", Text(), imdb("given")),
    Case("text, characters, from .tar.gz", Text("characters"), imdb("gz")),
    Case("imdb_text, windows of 1,024 bytes, from .tar.gz", ImdbText(), imdb("gz")),
)


def measure(case: Case, source: Path, rounds: int) -> Row:
    with tempfile.TemporaryDirectory() as scratch:
        place, size = case.place(source, Path(scratch))
        archive = next(place.glob("*.tar.gz"), None)
        times, least = [], []
        for round_ in range(rounds):
            start = time.process_time()
            data.prepare(case.task, Path(scratch) / f"prepared-{round_}", place)
            middle = time.process_time()
            floor(archive, size)
            times.append(middle - start)
            least.append(time.process_time() - middle)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    megabytes, best = size / 1e6, min(times)
    cells = (case.name, f"{megabytes:.1f}", f"{best:.2f}", f"{min(least):.2f}", f"{megabytes / best:.1f}")
    return dict(zip(COLUMNS, (*cells, str(rounds), machine), strict=True))


def floor(archive: Path | None, size: int) -> None:
    """Decompresses the archive, if it is one, and hashes as many bytes as there is text, twice."""
    if archive:
        with gzip.open(archive) as file:
            while file.read(1 << 20):
                pass
    for _ in range(2):
        hashlib.sha256(bytes(size)).hexdigest()


def write(rows: list[Row], rounds: int) -> None:
    """Replaces rows of the same case and keeps the others', in the table's order."""
    path = ROOT / "results" / "speed-prepare.csv"
    known: dict[str, Row] = {}
    if path.exists():
        with path.open(newline="") as file:
            known = {row["case"]: dict(row) for row in csv.DictReader(file)}
    known |= {row["case"]: row for row in rows}
    kept = [known[case.name] for case in CASES if case.name in known]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(COLUMNS), lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)
    lines = [
        f"| {row['case']} | {row['megabytes']} | {row['cpu_s']} | {row['floor_s']} | {row['mb_per_s']} |"
        for row in kept
    ]
    head = HEAD.format(rounds=rounds, machine=kept[0]["machine"])
    (ROOT / "docs" / "speed-prepare.md").write_text(head + "\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder laid out like LEVELFIELD_TEST_DATA")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    chosen = [case for case in CASES if options.only in case.name]
    if not chosen:
        raise SystemExit(f"No case holds '{options.only}': there are {', '.join(case.name for case in CASES)}.")
    rows: list[Row] = []
    for case in chosen:
        try:
            rows.append(measure(case, options.data, options.rounds))
        except UserError as error:
            print(f"{case.name}: left out, {error}")
            continue
        print(*rows[-1].values(), sep="  ")
    if rows:
        write(rows, options.rounds)


if __name__ == "__main__":
    main()
