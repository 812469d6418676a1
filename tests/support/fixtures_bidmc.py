"""BIDMC as its two publishers have it, in small: recordings whose pulse has a known rate, cut and written as they do.

recording(3)                              (60001, 2): eight minutes of PPG and ECG, and its rates
write_monash(folder, "HR", recordings=8)  BIDMC32HR_TRAIN.ts, BIDMC32HR_TEST.ts
write_physionet(folder, recordings=8)     bidmc_01_Signals.csv, bidmc_01_Numerics.csv, ...
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

RATE, LENGTH = 125, 4_000


def recording(number: int, seconds: int = 480) -> tuple[np.ndarray, dict[str, float]]:
    """Signals (seconds * 125 + 1, 2) with five decimals, and the monitor's values: narrow beats at `HR` a minute."""
    rng = np.random.default_rng(number)
    rates = {"HR": 60.0 + 7 * number, "PULSE": 60.0 + 7 * number, "RESP": 12.0 + number, "SpO2": 99.0 - number / 2}
    time = np.arange(seconds * RATE + 1) / RATE
    phase = (time * rates["HR"] / 60) % 1
    ecg = np.exp(-np.square((phase - 0.5) / 0.02)) + 0.01 * rng.normal(size=len(time))
    ppg = 0.5 + 0.2 * np.sin(2 * np.pi * phase) + 0.05 * np.sin(2 * np.pi * time * rates["RESP"] / 60)
    return np.stack([ppg + 0.002 * rng.normal(size=len(time)), ecg], axis=1).round(5), rates


def windows(number: int, stride: int, seconds: int) -> np.ndarray:
    """(N, 4000, 2)."""
    signals, _ = recording(number, seconds)
    return np.stack([signals[s : s + LENGTH] for s in range(0, len(signals) - LENGTH + 1, stride * RATE)])


def line(window: np.ndarray, target: float) -> str:
    channels = [",".join(f"{v:.5f}" for v in window[:, c]) for c in range(window.shape[1])]
    return ":".join([*channels, f"{target}"])


HEADER = """#a comment
@problemName BIDMC32{target}
@timeStamps false
@missing false
@univariate false
@dimension 2
@equalLength true
@seriesLength 4000
@targetlabel true
@data
"""


def write_monash(folder: Path, target: str, recordings: int = 8, stride: int = 8, seconds: int = 56) -> Path:
    """The last fourth of the recordings in the test file; targets differ a little from window to window."""
    folder.mkdir(parents=True, exist_ok=True)
    column = {"HR": "HR", "RR": "RESP", "SpO2": "SpO2"}[target]
    last = recordings - recordings // 4
    for split, numbers in (("TRAIN", range(1, last + 1)), ("TEST", range(last + 1, recordings + 1))):
        lines = []
        for number in numbers:
            rate = recording(number, 1)[1][column]
            lines += [line(w, rate + i / 8) for i, w in enumerate(windows(number, stride, seconds))]
        text = HEADER.format(target=target) + "\n".join(lines) + "\n"
        (folder / f"BIDMC32{target}_{split}.ts").write_text(text)
    return folder


def write_physionet(folder: Path, recordings: int = 8, seconds: int = 56) -> Path:
    """Numerics begin at second 0; the monitor has no value for the breaths of record 1 at second 3."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, recordings + 1):
        signals, rates = recording(number, seconds)
        rows = [f"{i / RATE:g},0,{p:.5f},0,0,{e:.5f}" for i, (p, e) in enumerate(signals)]
        _write(folder / f"bidmc_{number:02d}_Signals.csv", "Time [s], RESP, PLETH, V, AVR, II", rows)
        values = [",".join(f"{v:g}" for v in rates.values())] * (seconds + 1)
        rows = [f"{second},{v}" for second, v in enumerate(values)]
        if number == 1:
            cells = rows[3].split(",")
            rows[3] = ",".join([*cells[:3], "", cells[4]])
        _write(folder / f"bidmc_{number:02d}_Numerics.csv", "Time [s], HR, PULSE, RESP, SpO2", rows)
    return folder


def _write(path: Path, header: str, rows: list[str]) -> None:
    path.write_text("\n".join([header, *rows]) + "\n")
