"""Measures how fast text is prepared: megabytes of raw text per second and core, from official files to arrays.

    python benchmarks/prepare.py --data FOLDER [--only text] [--rounds 3]

FOLDER is laid out like LEVELFIELD_TEST_DATA. A case names a task, and a function that puts its files where the task
reads them. The time is the process CPU time of `data.prepare`, which reads, decompresses, checks, converts, hashes and
writes; it is the least of several rounds. Writes results/speed-prepare.csv and docs/speed-prepare.md.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import io
import lzma
import os
import platform
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from levelfield.data import prepared
from levelfield.spec import Task, UserError
from levelfield.tasks._texts import imdb as _imdb
from levelfield.tasks.corpus import ImdbText
from levelfield.tasks.retrieval import Retrieval
from levelfield.tasks.text import Text

Row = dict[str, str]
Place = Callable[[Path, Path], tuple[Path, int, int]]
PAIRS = Retrieval(train=2304, val=298, test=294)
ROOT = Path(__file__).resolve().parent.parent
COLUMNS: tuple[str, ...] = ("case", "megabytes", "cpu_s", "floor_s", "mb_per_s", "rounds", "machine")
HEAD = """# Speed of preparing text

Process CPU time of `data.prepare` from files to finished arrays (reading, decompressing, checking, splitting, turning
into symbols, hashing, writing), on one core, the least of {rounds}, and raw text through it a second. Beside it, what
decompressing and hashing alone take the standard library: less than that cannot be, because the reviews are compared
with the official ones and all arrays are recorded by their SHA-256. Citation pairs are a part of 2,896 from a stand-in,
46 MB and not the release's 2.9 GB. `python benchmarks/prepare.py --data FOLDER`; rows: `results/speed-prepare.csv`.
Machine: {machine}.

| case | raw text, MB | CPU, s | library alone, s | MB/s |
|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Case:
    """A task whose preparation is measured.

    place(data, scratch) returns the folder of the task's files, made in `scratch` if necessary, the number of bytes of
    raw text, and the number of bytes that are hashed.
    """

    name: str
    task: Task
    place: Place


def imdb(form: Literal["gz", "folder", "given"]) -> Place:
    """The labelled reviews as a .tar.gz, unpacked, or as they lie in the data folder: read, then their arrays."""

    def place(source: Path, scratch: Path) -> tuple[Path, int, int]:
        reviews = _imdb.read(source, "text")
        size = sum(len(r.text) for r in reviews)
        if form == "given":
            return source, size, 2 * size
        if form == "gz":
            pack(reviews, scratch / _imdb.ARCHIVES[0].name)
        for review in reviews if form == "folder" else ():
            path = scratch / "aclImdb" / review.name.decode()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(review.text)
        return scratch, size, 2 * size

    return place


def pack(reviews: list[_imdb.Review], path: Path) -> None:
    with tarfile.open(path, "w:gz", compresslevel=6) as archive:
        for review in reviews:
            header = tarfile.TarInfo(f"aclImdb/{review.name.decode()}")
            header.size = len(review.text)
            archive.addfile(header, io.BytesIO(review.text))


def pairs(source: Path, scratch: Path) -> tuple[Path, int, int]:
    """Citation pairs, decompressed. Only their arrays are hashed."""
    raw = hashed = 0
    for split in ("train", "eval", "test"):
        name = f"new_aan_pairs.{split}.tsv"
        content = lzma.decompress((source / "acl_citation_pairs" / f"{name}.xz").read_bytes())
        (scratch / name).write_bytes(content)
        raw += len(content)
        hashed += sum(min(len(text), PAIRS.length) for row in content.splitlines() for text in row.split(b"\t")[3:])
    return scratch, raw, hashed


CASES = (
    Case("text, bytes, from .tar.gz", Text(), imdb("gz")),
    Case("text, bytes, from unpacked files", Text(), imdb("folder")),
    Case("text, bytes, from .tar.xz", Text(), imdb("given")),
    Case("text, characters, from .tar.gz", Text("characters"), imdb("gz")),
    Case("imdb_text, windows of 1,024 bytes, from .tar.gz", ImdbText(), imdb("gz")),
    Case("retrieval, bytes, from .tsv", PAIRS, pairs),
    Case("retrieval, characters, from .tsv", replace(PAIRS, level="characters"), pairs),
)


def measure(case: Case, source: Path, rounds: int) -> Row:
    with tempfile.TemporaryDirectory() as scratch:
        place, size, hashed = case.place(source, Path(scratch))
        archive = next(place.glob("*.tar.gz"), None)
        times, least = [], []
        for round_ in range(rounds):
            start = time.process_time()
            prepared.prepare(case.task, Path(scratch) / f"prepared-{round_}", place)
            middle = time.process_time()
            floor(archive, hashed)
            times.append(middle - start)
            least.append(time.process_time() - middle)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    megabytes, best = size / 1e6, min(times)
    cells = (case.name, f"{megabytes:.1f}", f"{best:.2f}", f"{min(least):.2f}", f"{megabytes / best:.1f}")
    return dict(zip(COLUMNS, (*cells, str(rounds), machine), strict=True))


def floor(archive: Path | None, hashed: int) -> None:
    """Decompresses the archive, if there is one, and hashes as many bytes as preparing the task does."""
    if archive:
        with gzip.open(archive) as file:
            while file.read(1 << 20):
                pass
    hashlib.sha256(bytes(hashed)).hexdigest()


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
