"""Reads the official ListOps files, from the release of Long Range Arena or written by its generator.

    Source<TAB>Target
    ( ( ( [MAX 2 ) 9 ) ] )<TAB>9

Files may be plain or xz-compressed, with either kind of line end. Everything is checked: every token is looked up,
every label is computed again, and the first error is reported with its file and line.
"""

from __future__ import annotations

import lzma
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np

from levelfield.spec import Examples, Progress, SplitName, UserError, no_progress
from levelfield.tasks import _lra_release as release
from levelfield.tasks._listops.expressions import CLOSE, tokenize

HOMES = ("", "listops", "listops-1000", "lra_release/lra_release/listops-1000", "lra_release/listops-1000")

Rows = tuple[Path, np.ndarray, np.ndarray, np.ndarray]
"""The rows of one file: its path for messages, tokens (total,) uint8, offsets (N + 1,), stored labels (N,)."""


def read_all(
    sources: Path | None, counts: Sequence[tuple[SplitName, int]], progress: Progress
) -> dict[SplitName, Rows]:
    """Reads the first rows of the three files. Where only the release's archive is there, it is read in one pass.

    Raises UserError for missing and damaged files.
    """
    archive = release.find(sources) if sources is not None else None
    if sources is None or archive is None or _paths(sources, "train"):
        return {split: read(find(sources, split), count, progress) for split, count in counts}
    found: dict[SplitName, Rows] = {}
    wanted: dict[str, tuple[SplitName, int]]
    wanted = {f"listops-1000/basic_{split}.tsv": (split, count) for split, count in counts}
    with release.damage(archive):
        for name, file in release.members(archive, progress):
            if name in wanted:
                split, count = wanted.pop(name)
                found[split] = parse(file, archive / name, count, progress)
            if not wanted:
                return found
    raise UserError(f"{archive} has no {' nor '.join(wanted)}: download it again from {release.URL}.")


def find(sources: Path | None, split: str) -> Path:
    """Finds the file of a split, plain or xz-compressed, in the folder or where the release's archive puts it.

    Raises UserError where there is none.
    """
    if sources is None:
        raise UserError(
            "ListOps with origin='official' reads basic_train.tsv, basic_val.tsv and basic_test.tsv: "
            "`levelfield data prepare listops_official` downloads the release of Long Range Arena (7.7 GB), or takes "
            "them from a folder that holds them with --from FOLDER."
        )
    if paths := _paths(sources, split):
        return paths[0]
    raise UserError(f"There is no basic_{split}.tsv (or .tsv.xz) in {sources} nor in {', '.join(HOMES[1:])} below it.")


def _paths(sources: Path, split: str) -> list[Path]:
    places = [sources / home / f"basic_{split}.{ending}" for home in HOMES for ending in ("tsv", "tsv.xz")]
    return [path for path in places if path.exists()]


def read(path: Path, count: int, progress: Progress = no_progress) -> Rows:
    """Reads the first `count` rows of an official file, see `parse`."""
    with lzma.open(path) if path.suffix == ".xz" else path.open("rb") as file:
        return parse(file, path, count, progress)


def parse(file: IO[bytes], path: Path, count: int, progress: Progress = no_progress) -> Rows:
    """Reads the first `count` rows of an open file, which messages call `path`.

    Raises UserError with file and line where a row is not an expression, a tab and a digit.
    """
    sequences: list[np.ndarray] = []
    labels = np.zeros(count, np.int64)
    try:
        _check_header(path, file)
        for line in file:
            if len(sequences) == count:
                break
            where = f"{path.name}, line {len(sequences) + 2}"
            tokens, labels[len(sequences)] = _parse(line.rstrip(b"\r\n"), where)
            sequences.append(tokens)
            if len(sequences) % 1000 == 0 or len(sequences) == count:
                progress(f"reading {path.name}", len(sequences), count)
    except (lzma.LZMAError, EOFError) as error:
        raise UserError(f"{path} is damaged after line {len(sequences) + 1} ({error}): copy it again.")
    if len(sequences) < count:
        fix = "get the whole release, or ask for fewer by the task's setting train, val or test"
        raise UserError(f"{path} has {len(sequences)} expressions and the task asks for {count}: {fix}.")
    offsets = np.concatenate([[0], np.cumsum([len(s) for s in sequences])]).astype(np.int64)
    return path, np.concatenate(sequences), offsets, labels


def _check_header(path: Path, file: IO[bytes]) -> None:
    if file.readline().removeprefix(release.MARK).rstrip(b"\r\n") != b"Source\tTarget":
        raise UserError(f"{path.name}, line 1 is not the header 'Source<TAB>Target' of the official ListOps files.")


def _parse(line: bytes, where: str) -> tuple[np.ndarray, int]:
    """Parses a row into its tokens, (n,) uint8, and its label. Raises UserError, which names `where`."""
    source, tab, label = line.partition(b"\t")
    if not tab or not source.strip():
        raise UserError(f"{where} is cut short: it must be an expression, a tab and a label.")
    if len(label) != 1 or not label.isdigit():
        raise UserError(f"{where} has the label '{label.decode(errors='replace')}': it must be one digit.")
    text = np.frombuffer(source, np.uint8)
    tokens = np.empty(len(text), np.uint8)
    size = tokenize(text, tokens)
    if size < 0:
        word = source[-1 - size :].split(b" ")[0].decode(errors="replace")
        raise UserError(f"{where} has the unknown token '{word}': tokens are 0-9 [MAX [MED [MIN [SM ] ( and ).")
    return tokens[:size].copy(), int(label)


def check(path: Path, examples: Examples, written: np.ndarray, length: int) -> None:
    """Raises UserError for the first row that is not an expression, is too long, or has a wrong label.

    written: (N,), the labels in the file, which are compared with those computed here, `examples.y`.
    """
    wrong = np.flatnonzero((examples.y != written) | (examples.lengths >= length))
    if not len(wrong):
        return
    row = int(wrong[0])
    where, value = f"{path.name}, line {row + 2}", int(examples.y[row])
    if value < 0 and CLOSE not in examples.x[examples.offsets[row] : examples.offsets[row + 1]]:
        raise UserError(
            f"{where} is not a complete expression: it has no closing bracket, as some tokenisers drop them, and "
            "without them different expressions look the same; read the official file."
        )
    if value < 0:
        raise UserError(
            f"{where} is not a complete expression: its brackets do not match or an operator has no argument."
        )
    if value != written[row]:
        raise UserError(f"{where} has the label {written[row]}, but its expression is worth {value}.")
    raise UserError(f"{where} has {examples.lengths[row]} tokens: set length to more than that (it is {length}).")


def check_distinct(path: Path, keys: np.ndarray, owners: dict[int, str]) -> None:
    """Raises UserError for an expression that occurred before, in this file or another.

    keys: (N,), hashes of this file's expressions. owners: file and line of each hash so far; these are added.
    """
    for line, key in enumerate(keys.tolist(), start=2):
        if key in owners:
            raise UserError(f"{path.name}, line {line} repeats {owners[key]}: splits must not share expressions.")
        owners[key] = f"{path.name}, line {line}"
