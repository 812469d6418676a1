"""The example in docs/add-a-task.md is a task: put into the folder, it is found and keeps the contract."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import test_tasks
from repository import ROOT

from levelfield import tasks
from levelfield.spec import Task, UserError

PAGE = ROOT / "docs" / "add-a-task.md"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Task]:
    """The page's only Python block as tasks/lookup.py, in a folder that counts as part of levelfield/tasks."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "lookup.py").write_text(code)
    monkeypatch.setattr(tasks, "__path__", [*tasks.__path__, str(tmp_path)])
    tasks._settings.cache_clear()
    yield tasks.modules()["lookup"].EXAMPLES[0]
    tasks._settings.cache_clear()
    sys.modules.pop("levelfield.tasks.lookup")
    delattr(tasks, "lookup")


def test_the_example_is_found_by_name(example: Task) -> None:
    assert tasks.find("lookup").max_length == 65
    assert tasks.find("lookup_long").max_length == 129
    with pytest.raises(UserError, match="did you mean 'lookup'"):
        tasks.find("lookp")


def test_the_example_keeps_the_contract(example: Task, tmp_path: Path) -> None:
    test_tasks.test_settings_are_frozen(example)
    test_tasks.test_splits_are_disjoint(example)
    test_tasks.test_arrays_are_as_declared(example)
    test_tasks.test_inputs_are_in_range(example)
    test_tasks.test_targets_are_in_range(example)
    test_tasks.test_building_is_deterministic_and_touches_no_global_generator(example)
    test_tasks.test_progress_that_is_told_adds_up(example)
    test_tasks.test_prepared_arrays_are_the_built_ones(example, tmp_path)
    test_tasks.test_chance_and_baselines(example)
    test_tasks.test_augmentation(example)
    test_tasks.test_other_lengths(example)


def test_the_example_can_be_solved_by_looking_back(example: Task) -> None:
    """What its docstring says: the query's key stood `distance` steps before the end, and its value one after that."""
    train = example.build(None)["train"]
    for i in range(len(train)):
        row, back = train.sequence(i), int(train.slices["distance"][i])
        assert row[-1 - back] == row[-1] and row[-back] - 64 == train.y[i]
        assert np.count_nonzero(row[:-1:2] == row[-1]) == 1
