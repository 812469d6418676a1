"""A task that is not what it declares is refused in one sentence when it is prepared, and never reaches a model."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import FirstSymbol, SameSymbol

from levelfield.data import prepared
from levelfield.spec import (
    Examples,
    Input,
    Label,
    Output,
    Progress,
    Signal,
    SplitName,
    StepLabels,
    Tokens,
    UserError,
    Values,
    no_progress,
)

Change = Callable[[Examples], Examples]
CHANGES: dict[str, Change] = {}  # by name, so that the task below can be hashed
GRAY = Signal(1, (0.0,), (1.0,))


@dataclasses.dataclass(frozen=True)
class Changed(FirstSymbol):
    """The first symbol, with one split changed, and other declarations where they are given."""

    change: str = ""
    split: str = "val"
    declared: Input | None = None
    outcome: Output | None = None
    longest: int | None = None

    @property
    def input(self) -> Input:
        return self.declared or super().input

    @property
    def output(self) -> Output:
        return self.outcome or super().output

    @property
    def max_length(self) -> int:
        return self.length if self.longest is None else self.longest

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        splits: Any = dict(super().build(sources, progress))
        splits[self.split] = CHANGES[self.change](splits[self.split]) if self.change else splits[self.split]
        return splits


def put(array: np.ndarray, at: int, value: Any) -> np.ndarray:
    array = array.copy()
    array[at] = value
    return array


def signal(examples: Examples, value: float) -> Examples:
    return dataclasses.replace(examples, x=put(examples.x.astype(np.float32)[:, None], 3, value))


R = dataclasses.replace
FAULTS: dict[str, tuple[Change, dict[str, Any], str]] = {
    "empty": (lambda e: e.take(np.arange(0)), {}, "it is empty"),
    "no split": (lambda e: None, {}, "builds no split 'val'"),  # pyright: ignore
    "no steps": (lambda e: R(e, offsets=put(e.offsets, 1, 0)), {}, "sequence 0 has no steps"),
    "backwards": (lambda e: R(e, offsets=put(e.offsets, 3, 0)), {}, "sequence 2 has no steps"),
    "too few steps": (lambda e: R(e, x=e.x[:-1]), {}, "offsets run from 0 to"),
    "fractions": (lambda e: R(e, offsets=e.offsets.astype(float)), {}, "offsets must be whole numbers"),
    "longer": (lambda e: e, {"longest": 5}, "but max_length is 5"),
    "symbol": (lambda e: R(e, x=put(e.x, 5, 8)), {}, "symbols run from 0 to 8, but the input has 8"),
    "negative": (lambda e: R(e, x=put(e.x.astype(np.int8), 5, -1)), {}, "symbols run from -1"),
    "floats": (lambda e: R(e, x=e.x.astype(float)), {}, "give whole numbers, one a step"),
    "columns": (lambda e: R(e, x=e.x[:, None]), {}, "give whole numbers, one a step"),
    "list": (lambda e: R(e, y=e.y.tolist()), {}, "y is int64"),
    "objects": (lambda e: R(e, x=e.x.astype(object)), {}, "x is object"),
    "order of bytes": (lambda e: R(e, x=e.x.astype(">i4")), {}, "a type that torch has"),
    "label": (lambda e: R(e, y=put(e.y, 5, 4)), {}, "labels run from 0 to 4, but the output has 4 classes"),
    "unlabelled": (lambda e: R(e, y=put(e.y, 5, -1)), {}, "labels run from -1"),
    "real labels": (lambda e: R(e, y=e.y + 0.5), {}, "the output is labels: give whole numbers"),
    "one-hot": (lambda e: R(e, y=np.eye(4, dtype=int)[e.y]), {}, "the output is labels: give whole numbers"),
    "fewer labels": (lambda e: R(e, y=e.y[:-1]), {}, "y has 63 targets for 64 examples"),
    "texts": (lambda e: R(e, y=e.y.astype(str)), {}, "the output is labels: give whole numbers"),
    "slices": (lambda e: R(e, slices={"length": np.zeros(3)}), {}, "the slice 'length' must have one"),
    "a comma": (
        lambda e: R(e, slices={"city": np.array(["Paris, Texas"] * len(e))}),
        {},
        "the slice 'city' has 'Paris, Texas', but , ; < and = part places in rows",
    ),
    "at steps": (lambda e: e, {"outcome": StepLabels(4)}, "pass stepwise=True"),
    "not at steps": (lambda e: R(e, stepwise=True, y=e.x.astype(int)), {}, "pass stepwise=False"),
    "nothing asked": (
        lambda e: R(e, stepwise=True, y=np.full(len(e.x), -1)),
        {"outcome": StepLabels(8), "split": "train"},
        "no step has a target",
    ),
    "NaN": (lambda e: signal(e, math.nan), {"declared": GRAY, "split": "train"}, "values that are not finite"),
    "infinite": (lambda e: signal(e, math.inf), {"declared": GRAY, "split": "train"}, "values that are not finite"),
    "channels": (lambda e: e, {"declared": GRAY}, "give numbers of shape (steps, 1)"),
    "levels": (
        lambda e: signal(e, 8.0),
        {"declared": R(GRAY, levels=8), "split": "train"},
        "whole numbers, 0 to 7",
    ),
    "infinite target": (
        lambda e: R(e, y=put(e.y.astype(float), 1, math.inf)),
        {"outcome": Values(1), "split": "train"},
        "y has values that are not finite",
    ),
    "dimensions": (lambda e: e, {"outcome": Values(2)}, "the output is 2 values an example"),
    "documents": (lambda e: R(e, documents=2), {}, "pass documents=1"),
    "no symbols": (lambda e: e, {"declared": Tokens(0)}, "give 1 or more"),
    "scale": (lambda e: e, {"declared": Signal(1, (0.0,), (0.0,))}, "a scale of 0"),
    "shift": (lambda e: e, {"declared": Signal(2, (0.0,), (1.0,))}, "a shift and a scale for each"),
    "one class": (lambda e: e, {"outcome": Label(1)}, "give 2 or more"),
    "no length": (lambda e: e, {"longest": 0}, "max_length of 0"),
}
CHANGES |= {name: change for name, (change, _, _) in FAULTS.items()}
CHANGES["raises"] = lambda e: e.slices["nowhere"]  # pyright: ignore


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_not_as_declared_is_one_sentence(name: str, tmp_path: Path):
    _, declared, sentence = FAULTS[name]
    task = Changed(change=name, **declared)
    with pytest.raises(UserError) as caught:
        prepared.prepare(task, tmp_path)
    said = str(caught.value)
    assert sentence in said and said.startswith("Task first_symbol") and "\n" not in said
    assert not prepared.folder(task, tmp_path).exists()


def test_an_error_in_the_task_s_own_code_says_where(tmp_path: Path):
    with pytest.raises(UserError, match=r"cannot be built, KeyError in .*test_conformance.py, line \d+: 'nowhere'"):
        prepared.prepare(Changed(change="raises"), tmp_path)


@pytest.mark.parametrize("task", [FirstSymbol(), FirstSymbol(continuous=False, length=3), SameSymbol(), Changed()])
def test_what_is_as_declared_is_prepared(task: FirstSymbol | SameSymbol, tmp_path: Path):
    assert len(prepared.load(task, tmp_path)["train"]) == task.train


STUDY = """
from dataclasses import dataclass
import numpy as np
from levelfield.mixers.conv import Conv
from levelfield.protocols import scratch
from levelfield.spec import Duration, Examples, Label, Model, Recipe, Run, Study, Task, Tokens, no_progress

@dataclass(frozen=True)
class Mine(Task):
    name, version, source, split_rule = "mine", 1, "here", "none"
    input, output, max_length, chance = Tokens(4), Label(2), 8, 0.5
    def build(self, sources, progress=no_progress):
        make = lambda n: Examples.of_sequences([np.zeros(4, np.uint8)] * n, np.zeros(n, int) + 2 * (n == 3))
        return {"train": make(8), "val": make(3), "test": make(4)}

recipe = Recipe(lr=1e-2, weight_decay=0.0, batch=4, budget=Duration(2, "steps"), warmup=Duration(0, "steps"),
                schedule="constant", clip=None, validate_every=Duration(2, "steps"))
study = Study(name="mine", claim="none",
              runs=lambda effort: [Run(Mine(), Model(mixers=(Conv(3, 8),), depth=1, width=8), scratch(recipe), 0)])
"""


def test_the_command_line_says_it_without_a_traceback(tmp_path: Path):
    (tmp_path / "mine.py").write_text(STUDY)
    command = [sys.executable, "-m", "levelfield", "run", "mine.py", "--effort", "smoke"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    told = done.stdout + done.stderr
    assert done.returncode != 0 and "labels run from 2 to 2, but the output has 2 classes" in told
    assert "Traceback" not in told
