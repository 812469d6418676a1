"""Cuts windows and targets from the records of the BIDMC PPG and Respiration Dataset, as PhysioNet publishes them.

    bidmc_csv/bidmc_01_Signals.csv      Time [s], RESP, PLETH, V, AVR, II      125 a second, eight minutes
    bidmc_csv/bidmc_01_Numerics.csv     Time [s], HR, PULSE, RESP, SpO2        one a second, by the bedside monitor

Files may be plain, xz-compressed, or in the release's zip. A window is 32 seconds of PLETH (the photoplethysmogram) and
lead II (the electrocardiogram). The next one begins `stride` seconds later. Its target is the mean of the monitor's
values during it. A window with a missing value is left out. Where there are no Numerics, the target `beats` is the
heart rate counted from the R peaks of lead II.
"""

from __future__ import annotations

import csv
import io
import lzma
import re
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from levelfield.spec import Progress, UserError

ARCHIVE = "bidmc-ppg-and-respiration-dataset-1.0.0.zip"
RATE = 125  # samples per second
SECONDS = 32
LENGTH = RATE * SECONDS
CHANNELS = ("PLETH", "II")
COLUMNS = {"hr": "HR", "rr": "RESP", "spo2": "SpO2"}
RECORDS, ROWS = 53, 60_001  # records in the release, and samples in each
SIGNALS = re.compile(r"bidmc_(\d+)_Signals\.csv(\.xz)?")


@dataclass(frozen=True)
class Windows:
    """Windows with their targets.

    x: (N, 4000, 2) float32. y: (N, targets) float64, in the monitor's units. record: (N,), the number of each window's
    record.
    """

    x: np.ndarray
    y: np.ndarray
    record: np.ndarray


def find(sources: Path) -> Path | None:
    """Finds the zip, or the folder with the Signals files; None where there is neither."""
    if sources.is_file():
        return sources if sources.suffix == ".zip" else None
    below = sorted(p for p in sources.iterdir() if p.is_dir())
    for folder in (sources, *below, *(p / "bidmc_csv" for p in below)):
        if (folder / ARCHIVE).is_file():
            return folder / ARCHIVE
        if any(folder.glob("bidmc_*_Signals.csv*")):
            return folder
    return None


def read(at: Path, targets: tuple[str, ...], stride: int, progress: Progress) -> Windows:
    """Reads all windows, record by record. targets: keys of COLUMNS, or ("beats",).

    Raises UserError for missing and damaged files.
    """
    files = _listing(at)
    parts: list[Windows] = []
    whole_records = 0
    for done, (record, name) in enumerate(sorted(_signals(files).items()), start=1):
        signals = _table(files[name](), CHANNELS, name)
        whole_records += len(signals) == ROWS
        starts = np.arange(0, len(signals) - LENGTH + 1, stride * RATE)
        if not len(starts):
            raise UserError(
                f"{name} has {len(signals):,} samples, fewer than a window's {LENGTH:,}: download it again."
            )
        x = np.stack([signals[s : s + LENGTH] for s in starts]).astype(np.float32)
        y = _targets(files, name, targets, starts // RATE, x)
        whole = np.isfinite(x).all((1, 2)) & np.isfinite(y).all(1)
        parts.append(Windows(x[whole], y[whole], np.full(int(whole.sum()), record)))
        progress(f"reading records of {at.name}", done, len(_signals(files)))
    if not any(len(part.x) for part in parts):
        raise UserError(f"No window of {at.name} has every value of {', '.join(targets)}: get the whole release.")
    if not whole_records == len(parts) == RECORDS:
        warnings.warn(
            f"{at.name} is only a part of the official release: {len(parts)} records, {whole_records} of them of "
            f"{ROWS:,} samples, where there should be {RECORDS} of {ROWS:,}.",
            stacklevel=2,
        )
    return Windows(*(np.concatenate([getattr(p, f) for p in parts]) for f in ("x", "y", "record")))


def beats(ecg: np.ndarray) -> float:
    """Counts the heart rate per minute from the mean distance of R peaks. ecg: (T,), a window of lead II at 125 Hz.

    The squared difference over 0.04 s, smoothed over 0.12 s, is large where the signal is steep. A peak is a maximum of
    it within 0.25 s that exceeds a quarter of the 98th percentile. NaN for fewer than three peaks. After Pan and
    Tompkins (1985).
    """
    steep = np.square(ecg[5:] - ecg[:-5])
    energy = np.convolve(steep, np.ones(15) / 15, "same")
    reach = RATE // 4
    padded = np.pad(energy, reach, constant_values=-1)
    largest = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1).max(1)
    peaks = np.flatnonzero((energy == largest) & (energy > np.percentile(energy, 98) / 4))
    peaks = peaks[np.diff(peaks, prepend=-LENGTH) > reach]  # the first of equal neighbours
    return 60 * RATE / float(np.diff(peaks).mean()) if len(peaks) > 2 else float("nan")


class _Reader:
    """Reads the bytes of one file of a folder or a zip. Raises UserError for a damaged one."""

    def __init__(self, at: Path, name: str) -> None:
        self.at, self.name = at, name

    def __call__(self) -> bytes:
        try:
            if self.at.is_file():
                with zipfile.ZipFile(self.at) as archive:
                    return archive.read(self.name)
            data = (self.at / self.name).read_bytes()
            return lzma.decompress(data) if self.name.endswith(".xz") else data
        except (zipfile.BadZipFile, lzma.LZMAError, EOFError, OSError) as error:
            raise UserError(f"{self.name} of {self.at} is damaged ({error}): download it again.") from error


def _listing(at: Path) -> dict[str, _Reader]:
    """Maps base names to readers. Raises UserError for a damaged zip."""
    if at.is_dir():
        return {path.name: _Reader(at, path.name) for path in at.iterdir()}
    try:
        with zipfile.ZipFile(at) as archive:
            return {Path(name).name: _Reader(at, name) for name in archive.namelist()}
    except (zipfile.BadZipFile, OSError) as error:
        raise UserError(f"{at} is truncated or damaged ({error}): download it again.") from error


def _signals(files: Mapping[str, _Reader]) -> dict[int, str]:
    """Maps numbers of records to names of their Signals files. Raises UserError where there are none."""
    found = {int(match[1]): name for name in files if (match := SIGNALS.fullmatch(name))}
    if not found:
        raise UserError("There is no bidmc_NN_Signals.csv: get the release's csv files.")
    return found


def _targets(
    files: Mapping[str, _Reader], signals: str, targets: tuple[str, ...], starts: np.ndarray, x: np.ndarray
) -> np.ndarray:
    """Returns the targets of one record: (windows, targets) float64, NaN where a value is missing.

    signals: name of the Signals file. starts: of the windows, in seconds. x: (windows, 4000, 2).
    """
    if targets == ("beats",):
        return np.array([[beats(window[:, CHANNELS.index("II")])] for window in x])
    name = signals.replace("Signals", "Numerics")
    reader = files.get(name) or files.get(name.removesuffix(".xz"))
    if reader is None:
        raise UserError(f"{signals} has no {name} beside it, which holds the monitor's values: get the whole release.")
    table = _table(reader(), ("Time [s]", *(COLUMNS[target] for target in targets)), name)
    if not len(table):
        raise UserError(f"{name} has a header and no values: download it again.")
    second, values = np.floor(table[:, 0] + 1e-6).astype(int), table[:, 1:]
    inside = [(second >= start) & (second < start + SECONDS) for start in starts]
    return np.array([values[here].mean(0) if here.any() else np.full(len(targets), np.nan) for here in inside])


def _table(data: bytes, wanted: tuple[str, ...], name: str) -> np.ndarray:
    """Reads columns of a table: (rows, wanted) float64; empty cells are NaN. Raises UserError for a damaged table.

    The header has a blank after each comma.
    """
    rows = csv.reader(io.StringIO(data.decode("utf-8-sig", errors="replace")))
    try:
        header = [cell.strip() for cell in next(rows, [])]
        if missing := [column for column in wanted if column not in header]:
            raise UserError(f"{name} has no column {missing[0]}: it has {', '.join(header)}.")
        places = [header.index(column) for column in wanted]
        table = np.array([[float(row[place].strip() or "nan") for place in places] for row in rows if row])
    except (ValueError, IndexError, csv.Error) as error:
        raise UserError(f"{name} is damaged ({error}): download it again.") from error
    return table.reshape(-1, len(wanted))
