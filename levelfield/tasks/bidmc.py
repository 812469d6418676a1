"""BIDMC: heart rate, breathing rate and oxygen saturation from 32 seconds of two signals, 4,000 steps (regression).

    task = Bidmc("hr", "windows", "monash")    # bidmc_hr, the papers': windows of the Monash archive, shuffled
    task = Bidmc("hr", "patients", "monash")   # the same windows; no recording is in two splits
    task = Bidmc()                             # all three values at once, from PhysioNet's own records, by patient

The papers' split pools the archive's train and test files and shuffles windows (S4's preparation, kept by amos2025).
There are 7,949 windows of 53 recordings of eight minutes, one every three seconds. Neighbours share 29 of 32 seconds,
so nearly every test window has a neighbour in the training split. `split="patients"` keeps recordings apart. The
baseline `nearest_window` is the R2 of copying the target of the training window that shares most seconds.

Inputs stay as they are in the files. Targets are rescaled so that the training split spans [-1, 1], as in amos2025
(2024 version, appendix C.3). This does not change R2; an error of e is e (high - low) / 2 in the original unit.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from levelfield.spec import SPLITS, Archive, Examples, Progress, Signal, SplitName, Task, UserError, Values, no_progress
from levelfield.tasks._bidmc import overlap, records
from levelfield.tasks._bidmc import ts_format as ts
from levelfield.tasks._bidmc.records import CHANNELS, LENGTH, RATE, SECONDS

PAGE = "https://physionet.org/content/bidmc/1.0.0/"
ZENODO = {"hr": ("HR", 4001456), "rr": ("RR", 4001463), "spo2": ("SpO2", 4001464)}
WINDOWS = 7_949  # in both files of a target
DEPOSIT = "https://zenodo.org/record"
RELEASE = Archive(records.ARCHIVE, (f"https://physionet.org/static/published-projects/bidmc/{records.ARCHIVE}",))


@dataclass(frozen=True)
class Bidmc(Task):
    """Vital signs from 32 seconds of two signals.

    target: heart rate and breaths per minute, oxygen saturation in percent, all three (PhysioNet only), or `beats`, the
    heart rate counted from the R peaks of the second signal, for records without the monitor's values. stride: seconds
    from one window to the next (PhysioNet only; the archive's windows are fixed).
    """

    target: Literal["all", "hr", "rr", "spo2", "beats"] = "all"
    split: Literal["windows", "patients"] = "patients"
    origin: Literal["monash", "physionet"] = "physionet"
    stride: int = 3
    rescale: bool = True

    version: ClassVar[int] = 1
    padded: ClassVar[bool] = False
    source: ClassVar[str] = (
        "Pimentel et al. 2016, BIDMC PPG and Respiration Dataset 1.0.0 (PhysioNet, ODC-By 1.0); windows: Tan et al. "
        "2020, Monash UEA & UCR time series extrinsic regression archive (arXiv 2006.10996, CC BY 4.0)"
    )
    licence: ClassVar[str] = "ODC-By 1.0 of the recordings, CC BY 4.0 of the windows"
    split_rule: ClassVar[str] = (
        "windows: all of them (the archive's train file, then its test file) permuted by scikit-learn's "
        "train_test_split, 30 % aside with random_state 0, of which half test with random_state 1, as in the code of "
        "amos2025 and S4; windows of one recording are then in train and test alike. patients: the same rule over "
        "recordings; in the archive's files, which name no patients, windows that share a second are of one"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.origin == "monash" and self.target not in ZENODO:
            raise UserError(
                f"The Monash archive has the targets {', '.join(ZENODO)}: '{self.target}' is for PhysioNet's."
            )
        if self.stride < 1:
            raise UserError(f"Windows begin whole seconds after one another: stride={self.stride} must be 1 or more.")

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The papers' tasks are bidmc_hr, bidmc_rr and bidmc_spo2; other names say in what a task differs."""
        monash = self.origin == "monash"
        named = monash or self.target in ("all", "beats")
        parts = ["bidmc", "" if self.target == "all" else self.target, "" if named else "physionet"]
        parts.append("" if self.split == ("windows" if monash else "patients") else self.split)
        return "_".join(part for part in parts if part)

    @property
    def archives(self) -> tuple[Archive, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        if self.origin == "physionet":
            return (RELEASE,)
        return tuple(Archive(name, (f"{DEPOSIT}/{ZENODO[self.target][1]}/files/{name}",)) for name in self._files)

    @property
    def _files(self) -> tuple[str, str]:
        stem = f"BIDMC32{ZENODO[self.target][0]}"
        return f"{stem}_TRAIN.ts", f"{stem}_TEST.ts"

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(records.COLUMNS) if self.target == "all" else (self.target,)

    @property
    def input(self) -> Signal:
        return Signal(len(CHANNELS), shift=(0.0, 0.0), scale=(1.0, 1.0))

    @property
    def output(self) -> Values:
        return Values(len(self.targets))

    @property
    def max_length(self) -> int:
        return LENGTH

    @property
    def chance(self) -> float:
        return 0.0

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        windows = self._windows(sources, progress)
        keys = overlap.seconds(windows.x, RATE)
        rows = self._rows(windows, keys)
        low, high = target_range(windows.y[rows["train"]])
        if self.rescale and not (high > low).all():
            raise UserError(f"Every training window of {self.name} has one target: there is nothing to learn.")
        splits: dict[SplitName, Examples] = {}
        for split in SPLITS:
            x, y = windows.x[rows[split]], windows.y[rows[split]]
            shared = overlap.nearest([keys[i] for i in rows["train"]], [keys[i] for i in rows[split]])[1]
            slices = {"shared": _shares(shared)} if split != "train" else {"shared": np.full(len(x), "trained on")}
            scaled = (y - low) / (high - low) * 2 - 1 if self.rescale else y
            splits[split] = Examples.of_equal_length(x, scaled.astype(np.float32), slices)
        return splits

    def _windows(self, sources: Path | None, progress: Progress) -> records.Windows:
        if sources is None:
            wanted = " and ".join(archive.name for archive in self.archives)
            raise UserError(
                f"Task {self.name} needs {wanted}: run `levelfield data prepare {self.name}`, or download from "
                f"{self.archives[0].urls[0].rsplit('/', 1)[0]} into a folder and add --from FOLDER to it."
            )
        if not sources.exists():
            raise UserError(f"{sources} does not exist: name the folder that holds the BIDMC files.")
        if self.origin == "physionet":
            at = records.find(sources)
            if at is None:
                raise UserError(f"{sources} holds neither {records.ARCHIVE} nor bidmc_NN_Signals.csv: see {PAGE}.")
            return records.read(at, self.targets, self.stride, progress)
        parts = [ts.read(_locate(sources, name), LENGTH, len(CHANNELS), progress) for name in self._files]
        x, y = np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
        progress(f"reading {self.name}", len(x), len(x))
        if len(x) != WINDOWS:
            warnings.warn(
                f"{' and '.join(self._files)} are only a part of the official files: {len(x):,} windows, where there "
                f"should be {WINDOWS:,}.",
                stacklevel=2,
            )
        return records.Windows(x, y[:, None], np.full(len(x), -1))

    def _rows(self, windows: records.Windows, keys: list[set[int]]) -> dict[SplitName, np.ndarray]:
        """Returns the indices of each split's windows."""
        if self.split == "windows":
            return carve(len(windows.x))
        record = windows.record if self.origin == "physionet" else overlap.recordings(keys)
        found = np.unique(record)
        if self.origin == "monash" and len(found) > len(record) / 2:
            raise UserError(
                "Most windows of these files share no second with another, so recordings cannot be told apart: use "
                "PhysioNet's records, origin='physionet'."
            )
        return {split: np.flatnonzero(np.isin(record, found[part])) for split, part in carve(len(found)).items()}

    def baselines(self, train: Examples, test: Examples) -> dict[str, float]:
        """Returns `nearest_window`: the R2 of the target of the training window that shares most seconds, at least 0.

        A test window that shares none gets the mean of the training targets.
        """
        windows = [e.x.reshape(len(e), LENGTH, len(CHANNELS)) for e in (train, test)]
        best, _ = overlap.nearest(*(overlap.seconds(np.asarray(x), RATE) for x in windows))
        guess = np.where((best < 0)[:, None], train.y.mean(0), train.y[best])
        spread = np.square(test.y - test.y.mean(0)).mean()
        return {"nearest_window": max(0.0, float(1 - np.square(guess - test.y).mean() / spread)) if spread else 0.0}


def carve(count: int) -> dict[SplitName, np.ndarray]:
    """Returns indices of train, val and test among `count`, as scikit-learn's train_test_split draws; see split_rule.

    Raises UserError for fewer than four windows, which would leave a split empty.
    """
    if count < 4:
        raise UserError(
            f"{count} cannot be split in three: BIDMC's recordings are {records.RECORDS}, their windows {WINDOWS:,}."
        )
    order = np.random.RandomState(0).permutation(count)
    aside = order[: -(-3 * count // 10)]
    second = np.random.RandomState(1).permutation(len(aside))
    half = -(-len(aside) // 2)
    return {"train": order[len(aside) :], "val": aside[second[half:]], "test": aside[second[:half]]}


def target_range(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the lowest and highest magnitude of each training target, (dims,) each, as in the original code."""
    return np.abs(y).min(0), np.abs(y).max(0)


def _shares(shared: np.ndarray) -> np.ndarray:
    """Says in words how many of each window's 32 seconds are in one training window: (N,) str."""
    names = np.array(["none", "under half", "half or more"])
    return names[(shared > 0).astype(int) + (2 * shared >= SECONDS)]


def _locate(sources: Path, name: str) -> Path:
    """Finds a file, plain or xz-compressed, in the folder or up to two levels below it. Raises UserError."""
    if sources.is_dir():
        for pattern in ("", "*/", "*/*/"):
            for ending in ("", ".xz"):
                if found := sorted(sources.glob(f"{pattern}{name}{ending}")):
                    return found[0]
    raise UserError(f"{sources} holds no {name}: get it from {DEPOSIT}.")


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Bidmc(),
        *(Bidmc(target, "windows", "monash") for target in ("hr", "rr", "spo2")),
        *(Bidmc(target, "patients", "monash") for target in ("hr", "rr", "spo2")),
        Bidmc("beats"),
        Bidmc("beats", "windows"),
    )
}
EXAMPLES: tuple[Task, ...] = (Bidmc("beats", "windows", stride=4),)
