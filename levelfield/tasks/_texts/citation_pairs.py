"""Reads the citation pairs of Long Range Arena: three TSV files, or the release's one archive that holds them.

    1.0<TAB>P09-1104<TAB>P07-1003<TAB>Better word alignments ...<TAB>Automatic evaluation ...

A row has a label, two paper ids and two texts. There is no header and no quoting, as for the release's own reader. The
train file has gigabytes, so files are parsed in blocks: NumPy finds tabs and line ends, and each text is copied once.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from levelfield.spec import SPLITS, Progress, SplitName, UserError
from levelfield.tasks import _lra_release as release

ARCHIVE = release.NAMES[0]
NAMES: dict[SplitName, str] = {
    "train": "new_aan_pairs.train.tsv",
    "val": "new_aan_pairs.eval.tsv",
    "test": "new_aan_pairs.test.tsv",
}
DEPTH = 3  # folders below the one given: lra_release/lra_release/tsv_data
LABELS = {b"0": 0, b"1": 1, b"0.0": 0, b"1.0": 1}
BLOCK = 16 * 2**20
LONGEST_ROW = 256 * 2**20  # bytes without a line end; more than that is not a table of papers
TAB, LINE, RETURN = b"\t\n\r"

Encode = Callable[[np.ndarray], np.ndarray]
"""encode(text): what is kept of a text, symbols uint8, from its bytes uint8."""


@dataclass(frozen=True)
class Pairs:
    """The rows of one file.

    x: symbols of both texts of every row, end to end, (total,). lengths: (2N,) of the texts. y: (N,), 0 or 1. papers:
    the two ids of each row. sizes: (N,), bytes of both texts in the file, before truncation.
    """

    x: np.ndarray
    lengths: np.ndarray
    y: np.ndarray
    papers: list[tuple[bytes, bytes]]
    sizes: np.ndarray


def read(
    sources: Path | None, counts: dict[SplitName, int], encode: Encode, progress: Progress
) -> dict[SplitName, Pairs]:
    """Reads the first `counts[split]` rows of each file, from TSV files, plain or .xz, or else from the archive.

    The archive is streamed. Raises UserError where a file is missing, damaged or too short, and for the first bad row,
    with its line.
    """
    if sources is None:
        raise UserError(
            f"Retrieval needs the citation pairs of Long Range Arena: download {ARCHIVE} from {release.URL} into a "
            "folder and run `levelfield data prepare retrieval --from FOLDER`."
        )
    if sources.is_file():
        return _from_archive(release.itself(sources), counts, encode, progress)
    paths: dict[SplitName, Path] = {}
    for split in SPLITS:
        if found := _find(sources, (NAMES[split], f"{NAMES[split]}.xz")):
            paths[split] = found
    if len(paths) == len(SPLITS):
        return {split: _from_file(paths[split], counts[split], encode, progress) for split in SPLITS}
    if archive := _find(sources, release.NAMES):
        return _from_archive(archive, counts, encode, progress)
    missing = " nor ".join(NAMES[split] for split in SPLITS if split not in paths)
    raise UserError(f"{sources} holds neither {missing} nor {ARCHIVE}: get the archive at {release.URL}.")


def _find(sources: Path, names: tuple[str, ...]) -> Path | None:
    """Finds a file in the folder or up to DEPTH levels below it. Deeper trees of pictures are not walked."""
    for depth in range(DEPTH + 1):
        for name in names:
            if found := sorted(sources.glob("*/" * depth + name)):
                return found[0]
    return None


def _from_file(path: Path, count: int, encode: Encode, progress: Progress) -> Pairs:
    with release.damage(path), lzma.open(path) if path.suffix == ".xz" else path.open("rb") as stream:
        return parse(stream, path.name, count, encode, progress)


def _from_archive(
    path: Path, counts: dict[SplitName, int], encode: Encode, progress: Progress
) -> dict[SplitName, Pairs]:
    """Reads the three files from the archive, in a pass that ends with the third, without writing to disk."""
    wanted: dict[str, SplitName] = {f"tsv_data/{NAMES[split]}": split for split in SPLITS}
    found: dict[SplitName, Pairs] = {}
    with release.damage(path):
        for name, file in release.members(path):
            if split := wanted.pop(name, None):
                found[split] = parse(file, f"{NAMES[split]} in {path.name}", counts[split], encode, progress)
            if not wanted:
                return found
    raise UserError(f"{path} has no {' nor '.join(wanted)}: download {ARCHIVE} again from {release.URL}.")


def parse(stream: IO[bytes], where: str, count: int, encode: Encode, progress: Progress) -> Pairs:
    """Parses the first `count` rows of a stream, which messages call `where`. Raises UserError for a bad row."""
    x: list[np.ndarray] = []
    lengths, labels, sizes = (np.empty(shape, np.int64) for shape in (2 * count, count, count))
    papers: list[tuple[bytes, bytes]] = []
    for block, bounds in _blocks(stream, where, count):
        buffer, kept = np.frombuffer(block, np.uint8), []
        for start, first, second, text, other, end in bounds.tolist():
            row, line = len(papers), f"{where}, line {len(papers) + 1}"
            label = LABELS.get(block[start:first])
            if label is None:
                written = block[start:first][:20].decode(errors="replace")
                raise UserError(f"{line} has the label '{written}': it must be 0 or 1.")
            if text + 1 == other or other + 1 == end:
                raise UserError(f"{line} lacks one of its two texts: download {ARCHIVE} again from {release.URL}.")
            pair = encode(buffer[text + 1 : other]), encode(buffer[other + 1 : end])
            kept += pair
            lengths[2 * row : 2 * row + 2] = [len(document) for document in pair]
            labels[row], sizes[row] = label, end - text - 2
            papers.append((block[first + 1 : second], block[second + 1 : text]))
        x.append(np.concatenate(kept))
        progress(f"reading {where}", len(papers), count)
    if len(papers) < count:
        raise UserError(
            f"{where} has {len(papers):,} pairs and the task asks for {count:,}: it is cut short or another set; "
            f"download {ARCHIVE} again from {release.URL}, or ask for fewer."
        )
    return Pairs(_join(x), lengths, labels, papers, sizes)


def _blocks(stream: IO[bytes], where: str, count: int) -> Iterator[tuple[bytes, np.ndarray]]:
    """Yields `count` rows in blocks: the bytes, and the positions of each row's start, four tabs and end, (rows, 6)."""
    rest, done, mark = b"", 0, release.MARK
    while done < count:
        chunk = stream.read(BLOCK).removeprefix(mark)
        mark = b""
        block = rest + (chunk or (b"\n" if rest else b""))  # the last row may have no line end
        cut = block.rfind(b"\n") + 1
        block, rest = block[:cut], block[cut:]
        if len(rest) > LONGEST_ROW:
            raise UserError(
                f"{where}, line {done + 1} has no end: this is not a file of citation pairs from {release.URL}."
            )
        if block:
            bounds = _bounds(np.frombuffer(block, np.uint8), where, done, count - done)
            yield block, bounds
            done += len(bounds)
        if not chunk:
            return


def _bounds(buffer: np.ndarray, where: str, done: int, most: int) -> np.ndarray:
    """Finds start, four tabs and end of at most `most` rows: (rows, 6). Raises UserError for a row without 5 columns.

    done: rows before these, for the line number in messages.
    """
    ends = np.flatnonzero(buffer == LINE)[:most]
    tabs = np.flatnonzero(buffer[: ends[-1]] == TAB)
    columns = np.diff(np.searchsorted(tabs, ends), prepend=0) + 1
    wrong = np.flatnonzero(columns != 5)
    if len(wrong):
        raise UserError(
            f"{where}, line {done + wrong[0] + 1} has {columns[wrong[0]]} columns, not the five label, id1, id2, "
            f"text1, text2: it is cut short or another set; download {ARCHIVE} again from {release.URL}."
        )
    starts = np.concatenate([[0], ends[:-1] + 1])
    return np.column_stack([starts, tabs.reshape(-1, 4), ends - (buffer[ends - 1] == RETURN)])


def _join(parts: list[np.ndarray]) -> np.ndarray:
    """Concatenates parts, and frees each once it is copied, so that memory holds everything once and not twice."""
    whole = np.empty(sum(map(len, parts)), np.uint8)
    at = len(whole)
    while parts:
        part = parts.pop()
        at -= len(part)
        whole[at : at + len(part)] = part
    return whole
