"""The contract of every task in the folder, checked on the tiny instances that each file offers as EXAMPLES."""

from __future__ import annotations

import atexit
import dataclasses
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import fingerprints
import numpy as np
import pytest
import torch
from fingerprints import fingerprint
from real_parts import part

from levelfield import tasks
from levelfield.data import conformance, prepared
from levelfield.data.batches import SplitOnDevice
from levelfield.spec import (
    SPLITS,
    Examples,
    Label,
    Signal,
    SplitName,
    StepLabels,
    Task,
    Tokens,
    Unlabelled,
    UserError,
    Values,
    digest,
)

MODULES = tasks.modules()
EXAMPLES: dict[str, Task] = {f"{n}-{i}": task for n, m in MODULES.items() for i, task in enumerate(m.EXAMPLES)}
every_task = pytest.mark.parametrize("task", [pytest.param(task, id=name) for name, task in EXAMPLES.items()])


def sources() -> Path | None:
    """Real data, of the largest sets a part: each of them is built several times below."""
    real = os.environ.get("LEVELFIELD_TEST_DATA")  # other files' tests set it to fixtures of their own
    return few(Path(real)) if real else None


@cache
def few(real: Path) -> Path:
    folder = tempfile.mkdtemp(prefix="levelfield-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return part(real, Path(folder))


@cache
def built(task: Task) -> Mapping[SplitName, Examples]:
    """The splits, built once; skips where the task reads official files and there are none."""
    try:
        return task.build(sources())
    except UserError as error:
        if sources() is not None:
            raise
        pytest.skip(f"needs official files, set LEVELFIELD_TEST_DATA: {error}")


@pytest.mark.parametrize("name", MODULES)
def test_the_file_is_named_after_its_task(name: str) -> None:
    """The default is; other settings of the same file, `pathx` in pathfinder.py, may have names of their own."""
    module = MODULES[name]
    assert next(iter(module.TASKS)) == module.TASKS[name].name == name
    assert {t.name for t in [*module.TASKS.values(), *module.EXAMPLES]} <= set(module.TASKS)
    assert module.EXAMPLES and all(tasks.find(key) == task for key, task in module.TASKS.items())


def test_names_are_distinct_and_one_file_makes_a_task() -> None:
    assert len(set(tasks.names())) == len(tasks.names()) == sum(len(m.TASKS) for m in MODULES.values())
    files = {p.stem for p in Path(tasks.__file__).parent.glob("*.py") if not p.stem.startswith("_")}
    assert files == set(MODULES)


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(UserError, match="did you mean 'listops'"):
        tasks.find("listop")
    with pytest.raises(
        UserError, match=rf"There is no task 'qqq': `levelfield list tasks` shows all {len(tasks.names())}\.$"
    ):
        tasks.find("qqq")


@pytest.mark.parametrize("name", tasks.names())
def test_named_settings_say_what_they_are(name: str) -> None:
    task = tasks.find(name)
    assert isinstance(task.version, int) and task.version >= 1
    assert task.source and task.split_rule
    assert task.max_length >= 1
    json.dumps(digest(task))
    assert len({digest(tasks.find(n)) for n in tasks.names()}) == len(tasks.names())


@every_task
def test_settings_are_frozen(task: Task) -> None:
    field = dataclasses.fields(task)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(task, field, getattr(task, field))
    assert dataclasses.replace(task) == task and hash(dataclasses.replace(task)) == hash(task)


@every_task
def test_splits_are_disjoint(task: Task) -> None:
    splits = built(task)
    assert set(splits) == set(SPLITS) and all(len(splits[s]) > 0 for s in SPLITS)
    rows = {s: {whole(splits[s], i) for i in range(len(splits[s]))} for s in SPLITS}
    assert not rows["train"] & rows["val"] and not rows["train"] & rows["test"] and not rows["val"] & rows["test"]


def whole(examples: Examples, i: int) -> tuple[bytes, ...]:
    """Every document of an example."""
    first = i * examples.documents
    return tuple(examples.sequence(j).tobytes() for j in range(first, first + examples.documents))


@every_task
def test_arrays_are_as_declared(task: Task) -> None:
    conformance.check(task, built(task))  # what refuses a user's own task lets every one of ours pass
    for examples in built(task).values():
        offsets = examples.offsets
        assert offsets.dtype == np.int64 and offsets[0] == 0 and offsets[-1] == len(examples.x)
        assert examples.lengths.min() >= 1 and examples.lengths.max() <= task.max_length
        assert examples.documents == task.documents and len(offsets) == len(examples) * task.documents + 1
        assert len(examples.y) == (len(examples.x) if examples.stepwise else len(examples))
        for name, column in examples.slices.items():
            assert column.shape == (len(examples),), name
            assert not column.dtype.hasobject, name


@every_task
def test_inputs_are_in_range(task: Task) -> None:
    spec = task.input
    for examples in built(task).values():
        x = examples.x
        if isinstance(spec, Tokens):
            assert x.ndim == 1 and np.issubdtype(x.dtype, np.integer) and 0 <= x.min() <= x.max() < spec.symbols
            continue
        assert isinstance(spec, Signal)
        assert x.shape == (examples.offsets[-1], spec.channels) and np.isfinite(x).all()
        assert len(spec.shift) == len(spec.scale) == spec.channels and min(spec.scale) > 0
        if spec.levels is not None:
            assert np.array_equal(x, np.round(x)) and 0 <= x.min() <= x.max() < spec.levels


@every_task
def test_targets_are_in_range(task: Task) -> None:
    spec = task.output
    for examples in built(task).values():
        y = examples.y
        if isinstance(spec, Label):
            assert y.ndim == 1 and np.issubdtype(y.dtype, np.integer) and 0 <= y.min() <= y.max() < spec.classes
        elif isinstance(spec, StepLabels):
            assert examples.stepwise and np.issubdtype(y.dtype, np.integer) and -1 <= y.min() <= y.max() < spec.classes
            assert (np.add.reduceat(y >= 0, examples.offsets[:-1]) > 0).all(), "nothing is asked of some example"
        elif isinstance(spec, Unlabelled):
            assert y.shape == (len(examples),) and not y.any() and examples.lengths.min() > 1
        else:
            assert isinstance(spec, Values) and y.shape == (len(examples), spec.dims) and np.isfinite(y).all()
    assert isinstance(spec, Unlabelled) or len(np.unique(built(task)["train"].y)) > 1


@every_task
def test_targets_worked_out_anew_are_the_targets(task: Task) -> None:
    for examples in built(task).values():
        again = task.recompute_labels(examples)
        if again is None:
            pytest.skip("the sequences do not determine the targets")
        assert again.shape == examples.y.shape
        np.testing.assert_array_equal(again, examples.y)


@every_task
def test_building_is_deterministic_and_touches_no_global_generator(task: Task) -> None:
    first = built(task)
    before = generators()
    second = task.build(sources())
    assert fingerprint(first) == fingerprint(second)
    assert generators() == before


def generators() -> list[object]:
    """The state of every global generator that a task must leave alone."""
    return [random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()]  # noqa: NPY002


def test_another_process_builds_the_same() -> None:
    """With another hash seed, so that no order of a set or dict decides anything."""
    environment = os.environ | {"PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, fingerprints.__file__]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    theirs = dict(line.split() for line in printed.splitlines())
    assert "listops-0" in theirs
    assert theirs == {name: fingerprint(EXAMPLES[name].build(None)) for name in theirs}


@every_task
def test_progress_that_is_told_adds_up(task: Task) -> None:
    built(task)
    heard: list[tuple[str, int, int]] = []
    task.build(sources(), lambda what, done, total: heard.append((what, done, total)))
    assert all(what and 0 <= done <= total for what, done, total in heard)
    assert not heard or heard[-1][1] == heard[-1][2]


@every_task
def test_prepared_arrays_are_the_built_ones(task: Task, tmp_path: Path) -> None:
    built(task)
    loaded = prepared.load(task, tmp_path, sources())
    assert fingerprint(loaded) == fingerprint(built(task))
    assert prepared.verify(prepared.folder(task, tmp_path)) == []


@every_task
def test_chance_and_baselines(task: Task) -> None:
    splits = built(task)
    expected = 1 / task.output.classes if isinstance(task.output, (Label, StepLabels)) else 0.0
    if isinstance(task.output, Unlabelled) and isinstance(task.input, Tokens):
        expected = 1 / task.input.symbols
    assert task.chance == pytest.approx(expected)
    scores = task.baselines(splits["train"], splits["test"])
    assert all(0 <= s <= 1 for s in scores.values())
    if isinstance(task.output, (Label, StepLabels)):
        asked = {split: examples.y[examples.y >= 0] for split, examples in splits.items()}
        values, counts = np.unique(asked["train"], return_counts=True)
        assert scores["label_prior"] == np.mean(asked["test"] == values[counts.argmax()])
    assert task.passage_only is None or task.chance < task.passage_only <= 1
    one = splits["test"].take(np.array([0]))
    assert all(0 <= s <= 1 for s in task.baselines(splits["train"], one).values())


@every_task
def test_augmentation(task: Task) -> None:
    examples = built(task)["train"]
    batch = SplitOnDevice(examples, torch.device("cpu")).gather(torch.arange(min(16, len(examples))))
    if task.augmentation is None:
        with pytest.raises(UserError, match="augment"):
            task.augment(batch.raw, batch.lengths, torch.Generator())
        return
    before = batch.raw.clone()
    out, again, other = (
        task.augment(batch.raw, batch.lengths, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(batch.raw, before), "the batch itself was changed"
    assert out.shape == before.shape and out.dtype == before.dtype and out.device == before.device
    assert torch.equal(out, again)
    assert not torch.equal(out, before) and not torch.equal(out, other)
    padding = torch.arange(before.shape[1]) >= batch.lengths[:, None]
    assert torch.equal(out[padding], before[padding])
    in_range(task, out)


def in_range(task: Task, x: torch.Tensor) -> None:
    limit = task.input.symbols if isinstance(task.input, Tokens) else task.input.levels
    assert limit is None or 0 <= int(x.min()) <= int(x.max()) < limit


@every_task
def test_augmentation_of_one_row_does_not_need_the_others(task: Task) -> None:
    """A batch of one is allowed, and padding added for a longer neighbour stays padding."""
    if task.augmentation is None:
        pytest.skip("no augmentation")
    examples = built(task)["train"]
    batch = SplitOnDevice(examples, torch.device("cpu")).gather(torch.tensor([0]))
    out = task.augment(batch.raw, batch.lengths, torch.Generator().manual_seed(0))
    assert out.shape == batch.raw.shape


@every_task
def test_other_lengths(task: Task) -> None:
    try:
        longer = task.at_length(2 * task.max_length, examples=8)
    except UserError as error:
        assert task.name in str(error).lower()
        return
    built(task)
    assert type(longer) is type(task) and digest(longer) != digest(task)
    splits = longer.build(sources())
    assert all(6 <= len(splits[s]) <= 8 for s in SPLITS)  # where sequences come in sixes, eight hold one six
    assert longer.max_length <= 2 * task.max_length
    assert max(int(splits[s].lengths.max()) for s in SPLITS) <= longer.max_length
    assert longer.input == task.input and longer.output == task.output


@every_task
def test_a_task_without_padding_has_sequences_of_one_length(task: Task) -> None:
    if not task.padded:
        lengths = {int(length) for examples in built(task).values() for length in set(examples.lengths.tolist())}
        assert lengths == {task.max_length}
