"""Settings that would silently be another experiment are refused, in a sentence that says what to write."""

from __future__ import annotations

import importlib
import math
import pkgutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_type_hints

import numpy as np
import pytest
from tiny import MODEL, recipe

from levelfield import mixers, objectives, tasks
from levelfield.mixers.s4 import S4
from levelfield.objectives import Classify, Masked, Sum
from levelfield.presets.options import Options
from levelfield.protocols import scratch
from levelfield.spec import (
    Block,
    Duration,
    Head,
    MixerConfig,
    Model,
    Numerics,
    Objective,
    Phase,
    Recipe,
    ReportView,
    Run,
    Task,
    UserError,
    digest,
)
from levelfield.spec.errors import check_literals
from levelfield.tasks.listops import ListOps


def kinds(base: type) -> Iterator[type]:
    """Yields the classes that derive from this one and ship: not those that other tests made, and that linger."""
    for each in base.__subclasses__():
        module = sys.modules.get(each.__module__)
        if each.__module__.startswith("levelfield.") and getattr(module, each.__name__, None) is each:
            yield each
        yield from kinds(each)


@pytest.mark.parametrize(
    ("make", "near"),
    [
        (lambda: Block(norm="layernorm"), "Block has no norm='layernorm': did you mean 'layer'?"),  # type: ignore[arg-type]
        (lambda: Block(activation="Gelu"), "did you mean 'gelu'?"),  # type: ignore[arg-type]
        (lambda: replace(MODEL, positions="sinusiodal"), "did you mean 'sinusoidal'?"),
        (lambda: replace(MODEL, pooling="avg"), "choose one of: mean, max, last."),
        (lambda: replace(MODEL, pair=None), "choose one of: concat, interaction."),
        (lambda: Phase(Classify(), recipe(), start="prevoius"), "did you mean 'previous'?"),  # type: ignore[arg-type]
        (lambda: replace(recipe(), schedule="cosin"), "did you mean 'cosine'?"),
        (lambda: Duration(3, "epoch"), "did you mean 'epochs'?"),  # type: ignore[arg-type]
        (lambda: Numerics(precision="bfloat16"), "did you mean 'float32'?|did you mean 'bf16'?"),  # type: ignore[arg-type]
        (lambda: Masked(ratio=0.3, scope="every"), "choose one of: hidden, all."),  # type: ignore[arg-type]
        (lambda: Masked(loss_kind="mse"), "choose one of: ce, l1."),  # type: ignore[arg-type]
        (lambda: S4(init="leg"), "did you mean 'legs'?"),  # type: ignore[arg-type]
        (lambda: Head("a", 2, "steps"), "did you mean 'step'?"),  # type: ignore[arg-type]
        (lambda: ReportView("bars", ""), "ReportView has no kind='bars'"),  # type: ignore[arg-type]
        (lambda: ListOps(origin="oficial"), "did you mean 'official'?"),  # type: ignore[arg-type]
    ],
)
def test_a_misspelt_setting_is_refused(make: Callable[[], object], near: str):
    with pytest.raises(UserError) as refused:
        make()
    assert any(each in str(refused.value) for each in near.split("|"))


@pytest.mark.parametrize(
    "numbers",
    [
        {"clip": -1.0},
        {"clip": 0.0},
        {"clip": math.inf},
        {"clip": math.nan},
        {"weight_decay": -1.0},
        {"weight_decay": math.nan},
        {"weight_decay": math.inf},
        {"betas": (1.0, 0.9)},
        {"betas": (0.9, 1.0)},
        {"betas": (-0.1, 0.9)},
        {"betas": (0.9, math.nan)},
        {"patience": 0},
        {"patience": -2},
        {"enough": math.inf},
        {"enough": -math.inf},
        {"enough": math.nan},
        {"batch": 2.5},
        {"batch": 32.0},
    ],
)
def test_numbers_that_invert_or_stop_training_are_refused(numbers: dict[str, Any]):
    (name,) = numbers
    with pytest.raises(UserError, match=f"A recipe with {name}="):
        replace(recipe(), **numbers)


def test_numbers_at_the_edge_are_taken():
    edge = replace(recipe(), clip=None, weight_decay=0.0, betas=(0.0, 0.0), patience=1, batch=1)
    assert isinstance(edge, Recipe)
    assert Block(dropout=0.0).dropout == 0.0


@pytest.mark.parametrize(
    "sizes",
    [{"depth": 0}, {"depth": -1}, {"depth": 1.5}, {"width": 0}, {"width": -8}, {"width": "8"}],
)
def test_a_model_of_no_size_is_refused(sizes: dict[str, Any]):
    (name,) = sizes
    with pytest.raises(UserError, match=f"A model with {name}=.* cannot be: give a whole number of 1 or more"):
        replace(MODEL, **sizes)


def test_a_model_without_mixers_is_refused():
    with pytest.raises(UserError, match="A model without mixers cannot be"):
        replace(MODEL, mixers=())


def test_numbers_of_numpy_are_the_numbers_that_they_show():
    """Whatever their precision: the same value and the same id as Python's own."""
    made = replace(MODEL, depth=np.int64(3), width=np.uint8(16), mixers=(S4(state=np.int32(8)),))
    assert made == replace(MODEL, depth=3, width=16, mixers=(S4(state=8),)) and type(made.depth) is int
    rates = [replace(recipe(), lr=kind(0.001), betas=(kind(0.9), 0.999)) for kind in (np.float16, np.float32, float)]
    assert {each.lr for each in rates} == {0.001} and len(set(map(digest, rates))) == 1
    steps, asked = Duration(np.float32(2.5), "epochs"), Options(lr=np.float32(0.1), seeds=np.int16(2))
    assert steps == Duration(2.5, "epochs") and asked == Options(lr=0.1, seeds=2)
    run = Run(ListOps(train=np.int64(64)), MODEL, scratch(recipe()), np.arange(3)[2])
    assert run.id == Run(ListOps(train=64), MODEL, scratch(recipe()), 2).id


@pytest.mark.parametrize("dropout", [-0.1, 1.0, 2.0, math.nan])
def test_a_dropout_of_everything_is_refused(dropout: float):
    with pytest.raises(UserError, match="A block with dropout="):
        Block(dropout=dropout)


def test_a_sum_of_nothing_is_refused():
    with pytest.raises(UserError, match="Sum takes one objective or more"):
        Sum(())


def test_every_class_that_ships_is_checked():
    for package in (mixers, tasks, objectives):
        for each in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{each.name}")
    found = [each for base in (MixerConfig, Objective, Task) for each in kinds(base)]
    assert len(found) > 40
    for each in found:  # a class whose annotations cannot be read would be left unchecked
        get_type_hints(each)


@pytest.mark.parametrize("name", ["bidmc", "copying", "listops", "mqar", "pathfinder", "retrieval", "speech", "text"])
def test_the_settings_of_tasks_are_checked(name: str):
    task = tasks.find(name)
    hints = get_type_hints(type(task))
    few = [each for each, hint in hints.items() if getattr(hint, "__origin__", None) is Literal]
    few = [each for each in few if each in type(task).__dataclass_fields__]
    assert few
    for each in few:
        with pytest.raises(UserError):
            replace(task, **{each: "zzz"})


@pytest.mark.parametrize("name", tasks.names())
def test_no_task_leaves_out_the_check_of_settings(name: str, monkeypatch: pytest.MonkeyPatch):
    checked: list[object] = []
    monkeypatch.setattr("levelfield.spec.task.check_literals", checked.append)
    task = replace(tasks.find(name))
    assert checked == [task]


def test_none_and_other_hints_are_left_alone():
    @dataclass(frozen=True)
    class Own:
        kind: Literal["a", "b"] | None = None
        size: int | None = 3
        many: tuple[str, ...] = field(default=("x",))

    check_literals(Own())
    check_literals(Own("b"))
    check_literals(Model(MODEL.mixers, 1, 8))
