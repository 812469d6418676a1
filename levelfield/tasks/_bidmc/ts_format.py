"""Reads the `.ts` files of the Monash archive of time series regression, strictly.

    @problemName BIDMC32HR
    @timeStamps false
    @dimension 2
    @seriesLength 4000
    @targetlabel true
    @data
    0.36,0.35,...,0.41:0.52,0.53,...,0.49:83.5        one series a line: channels by ":", then its target

`read` returns the series, (N, T, C) float32, and their targets, (N,) float64. Lines that begin with "#" are comments.
Time stamps, missing values and series of several lengths, which other data sets of the archive have, are refused with
their line.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from levelfield.spec import Progress, UserError, no_progress

TEXT = "utf-8-sig"  # with or without a byte order mark


def read(path: Path, length: int, channels: int, progress: Progress = no_progress) -> tuple[np.ndarray, np.ndarray]:
    """Reads all series: (N, length, channels) float32 and their targets (N,) float64.

    Raises UserError with file and line for anything else.
    """
    series: list[np.ndarray] = []
    targets: list[float] = []
    try:
        for number, line in _data(path):
            where = f"{path.name}, line {number}"
            *parts, target = line.split(":")
            if len(parts) != channels:
                raise UserError(f"{where} has {len(parts)} channels and a target instead of {channels} channels.")
            series.append(np.stack([_numbers(part, length, where) for part in parts], axis=1))
            targets.append(float(_numbers(target, 1, where)[0]))
            if len(series) % 100 == 0:
                progress(f"reading {path.name}", len(series), max(len(series), 5_550))
    except (lzma.LZMAError, EOFError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is damaged after {len(series)} series ({error}): download it again.") from error
    if not series:
        raise UserError(f"{path} holds no series after @data: download it again.")
    return np.stack(series), np.array(targets)


def _data(path: Path) -> Iterator[tuple[int, str]]:
    """Yields number and text of every line after @data. Raises UserError for a header of another data set."""
    tags: dict[str, str] = {}
    begun = False
    with lzma.open(path, "rt", encoding=TEXT) if path.suffix == ".xz" else path.open(encoding=TEXT) as file:
        for number, text in enumerate(file, start=1):
            line = text.strip()
            if not line or line.startswith("#"):
                continue
            if begun:
                yield number, line
            elif line.lower() == "@data":
                begun = True
                _check(tags, path)
            elif line.startswith("@"):
                tag, _, value = line.partition(" ")
                tags[tag.lower()] = value.strip().lower()
            else:
                raise UserError(
                    f"{path.name}, line {number} comes before @data and is not a tag: this is not a .ts file."
                )


def _check(tags: dict[str, str], path: Path) -> None:
    if tags.get("@timestamps", "false") != "false":
        raise UserError(f"{path.name} has time stamps, which the BIDMC files do not have: download it again.")
    if tags.get("@targetlabel", "true") != "true" or tags.get("@classlabel", "false") != "false":
        raise UserError(f"{path.name} has no @targetlabel true: it is not a file for regression.")


def _numbers(text: str, count: int, where: str) -> np.ndarray:
    """Parses numbers between commas: (count,) float32, or float64 for a single one, which keeps a target's digits."""
    try:
        values = np.array(text.split(","), np.float64)
    except ValueError:
        wrong = next(v for v in text.split(",") if not _is_number(v))
        raise UserError(f"{where} has '{wrong[:20]}' where a number should be: missing values are not expected here.")
    if len(values) != count or not np.isfinite(values).all():
        finite = "" if np.isfinite(values).all() else ", not all of them finite,"
        raise UserError(f"{where} has {len(values)} numbers{finite} where {count} should be.")
    return values if count == 1 else values.astype(np.float32)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
