"""Digits: classify a handwritten digit from its 64 gray values, row after row; the pictures come with levelfield.

    task = Digits()               # 1,157 / 258 / 382 pictures of 8 x 8 pixels, each of 17 gray levels
    task = Digits(train=500)      # the first 500 training pictures

The pictures are the test file of UCI's "Optical Recognition of Handwritten Digits" (`_images/LICENCES.md`). Its labels
repeat one order of 130 digits fourteen times, sometimes with gaps, as if so many copies of one form had been filled in;
UCI counts 13 writers. The file names no writer, so splits are cut between forms: nine, two and three of them. Pictures
in different splits are of different forms, and hardly of one hand, so that a score says something of handwriting that
was not trained on, though of three forms alone. Printed results on these data mostly train on UCI's other file, too,
or cut these rows in another way, so none is a counterpart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from levelfield.spec import SPLITS, Examples, Label, Progress, Signal, SplitName, Task, UserError, no_progress

FILE = Path(__file__).parent / "_images" / "digits.csv.gz"  # a row for each picture: 64 values of 0..16, then the digit
SIDE = 8
FORMS = (0, 130, 256, 386, 516, 646, 776, 906, 1_029, 1_157, 1_287, 1_415, 1_545, 1_667)  # the first row of each
PARTS: dict[SplitName, range] = {"train": range(1_157), "val": range(1_157, 1_415), "test": range(1_415, 1_797)}


@dataclass(frozen=True)
class Digits(Task):
    """Handwritten digits of 8 x 8 pixels, 64 steps, ten classes.

    train, val, test: pictures, the first so many of each split.
    """

    train: int = len(PARTS["train"])
    val: int = len(PARTS["val"])
    test: int = len(PARTS["test"])

    name: ClassVar[str] = "digits"
    version: ClassVar[int] = 1
    padded: ClassVar[bool] = False
    source: ClassVar[str] = (
        "Alpaydin and Kaynak 1998, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository "
        "(doi 10.24432/C50P49), the test file, which comes with levelfield; SHA-256 of digits.csv.gz "
        "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22. Licence: Creative Commons BY 4.0."
    )
    licence: ClassVar[str] = "https://spdx.org/licenses/CC-BY-4.0"
    split_rule: ClassVar[str] = (
        "by the order of the file, cut between filled-in forms: the first nine are train (1,157 pictures), the next "
        "two val (258), the last three test (382). The file names no writer; two forms may be of one"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for split, part in PARTS.items():
            if not 1 <= getattr(self, split) <= len(part):
                raise UserError(f"Digits has 1 to {len(part):,} pictures in {split}, not {getattr(self, split)}.")

    @property
    def input(self) -> Signal:
        """Gray values, standardised by the mean and the deviation of the training pictures."""
        return Signal(1, shift=(4.9,), scale=(6.0,), levels=17)

    @property
    def output(self) -> Label:
        return Label(10)

    @property
    def max_length(self) -> int:
        return SIDE**2

    @property
    def chance(self) -> float:
        return 0.1

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        """Reads the file of the package. The slice `form` is the number of the form that a picture stood on, from 0."""
        rows = np.loadtxt(FILE, np.uint8, delimiter=",")
        form = np.searchsorted(FORMS, np.arange(len(rows)), side="right") - 1
        splits: dict[SplitName, Examples] = {}
        for split in SPLITS:
            part = PARTS[split][: getattr(self, split)]
            x, y = rows[part, :-1, None], rows[part, -1].astype(np.int64)
            splits[split] = Examples.of_equal_length(x, y, {"form": form[part]})
        return splits


TASKS: dict[str, Task] = {"digits": Digits()}
EXAMPLES: tuple[Task, ...] = (Digits(train=100, val=20, test=40),)
