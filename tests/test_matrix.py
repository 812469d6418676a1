"""Every mixer trained on every task: a few steps through the whole path of a run, at tiny sizes.

Official tasks read the invented files of their fixtures, so nothing has to be there. Two tasks are in the ordinary
suite; the whole matrix is slow.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import fixtures_bidmc
import fixtures_cifar
import fixtures_imdb
import fixtures_speech
import numpy as np
import pytest

from levelfield import protocols, tasks
from levelfield.data import prepared as data
from levelfield.files import read_log, read_rows
from levelfield.mixers import classes
from levelfield.objectives import default_objective
from levelfield.run import execute
from levelfield.runs import store
from levelfield.spec import Duration, MixerConfig, Model, Recipe, Run, StepLabels, Task, Unlabelled
from levelfield.studies import every_task
from levelfield.tasks.bidmc import Bidmc
from levelfield.tasks.corpus import Corpus, ImdbText
from levelfield.tasks.image import Image
from levelfield.tasks.retrieval import Retrieval
from levelfield.tasks.scifar import SCifar
from levelfield.tasks.speech import Speech
from levelfield.tasks.text import Text

WIDTH, STEPS = 16, 2
RECIPE = Recipe(
    lr=1e-3,
    weight_decay=0.01,
    batch=4,
    budget=Duration(STEPS, "steps"),
    warmup=Duration(0, "steps"),
    schedule="constant",
    clip=1.0,
    validate_every=Duration(STEPS, "steps"),
)


def pairs(folder: Path) -> None:
    """Twelve pairs of documents in each split of LRA's tables."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for split in ("train", "eval", "test"):
        texts = [" ".join(rng.choice(["state", "space", "long", split], 12)) + f" {i}" for i in range(24)]
        rows = [f"{i % 2}.0\tA{i}\tB{i}\t{texts[2 * i]}\t{texts[2 * i + 1]}\n" for i in range(12)]
        (folder / f"new_aan_pairs.{split}.tsv").write_text("".join(rows))


def books(folder: Path) -> None:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(40):
        (folder / f"{number}.txt").write_bytes(bytes(rng.choice(list(b"abc d\n"), 100).astype(np.uint8)))


def reviews(folder: Path) -> None:
    fixtures_imdb.write(folder, "folder", fixtures_imdb.reviews(unlabelled=20))


OFFICIAL: dict[Task, Callable[[Path], object]] = {
    Image(train=20, test=10): lambda folder: fixtures_cifar.write(folder, "binary"),
    Image(tokenised=True, train=20, test=10): lambda folder: fixtures_cifar.write(folder, "binary"),
    SCifar(train=20, test=10): lambda folder: fixtures_cifar.write(folder, "binary"),
    Text(length=128, train=20, val=4, test=10): reviews,
    Retrieval(length=48, train=12, val=8, test=8): pairs,
    Speech(steps=2_000, train=8, val=4, test=4): fixtures_speech.write,
    Bidmc("hr", stride=24): fixtures_bidmc.write_physionet,
    Corpus(64, most=40, by="documents"): books,
    ImdbText(64, most=20): reviews,
}
"""A small setting of each task that reads files, and what writes them."""
GENERATED = [
    m.EXAMPLES[0] for m in tasks.modules().values() if not any(type(t) in map(type, m.EXAMPLES) for t in OFFICIAL)
]
QUICK = ("recall", "pulse")
CASES = [
    pytest.param(mixer, task, id=f"{mixer.label}-{task.name}", marks=() if task.name in QUICK else pytest.mark.slow)
    for task in [*GENERATED, *OFFICIAL]
    for mixer in classes()
    if "causal" in mixer.directions or not isinstance(task.output, Unlabelled)
]


@cache
def prepared(task: Task, root: Path) -> Path:
    """The root, with the task's arrays in it."""
    files = root / f"files-{len(list(root.iterdir()))}"
    if write := OFFICIAL.get(task):
        write(files)
    data.prepare(task, root, files if write else None)
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


def instance(mixer: type[MixerConfig], task: Task) -> MixerConfig:
    """The first example of its file, as long as the task needs it."""
    first: MixerConfig = sys.modules[mixer.__module__].EXAMPLES[0]
    if first.max_length is None:
        return first
    assert "bound" in {field.name for field in dataclasses.fields(first)}
    return replace(first, bound=task.max_length)


def a_run(mixer: type[MixerConfig], task: Task) -> Run:
    """Causal where the task is (a label at every step, or none) and where the mixer is nothing else."""
    wanted = "causal" if isinstance(task.output, (StepLabels, Unlabelled)) else "bidirectional"
    causal = (wanted if wanted in mixer.directions else min(mixer.directions)) == "causal"
    model = Model((instance(mixer, task),), depth=1, width=WIDTH, causal=causal)
    return Run(task, model, protocols.scratch(RECIPE, default_objective(task)), seed=0)


@pytest.mark.parametrize("mixer, task", CASES)
def test_a_run_ends_with_finite_losses_and_scores(
    mixer: type[MixerConfig], task: Task, root: Path, tmp_path: Path
) -> None:
    run = a_run(mixer, task)
    execute(run, tmp_path, prepared(task, root), device="cpu")
    assert store.complete(tmp_path)
    losses = [record["loss"] for record in read_log(tmp_path / "log.jsonl")]
    assert len(losses) == STEPS and all(math.isfinite(loss) for loss in losses)
    rows = [row for row in read_rows(tmp_path / "rows.jsonl") if row.get("protocol") == "scratch"]
    assert rows and all(math.isfinite(row.get("value", math.nan)) for row in rows)
    assert not any(row.get("status") == "diverged" for row in rows)


def test_every_task_is_in_the_matrix() -> None:
    kinds = {type(task) for module in tasks.modules().values() for task in module.TASKS.values()}
    assert {type(task) for task in [*GENERATED, *OFFICIAL]} == kinds


def test_the_study_of_every_task_has_a_run_of_each_kind_but_texts_of_ones_own() -> None:
    kinds = {type(task) for module in tasks.modules().values() for task in module.TASKS.values()} - {Corpus}
    assert {type(run.task) for run in every_task.study.runs("minutes")} == kinds
