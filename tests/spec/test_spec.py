"""Values: identity, durations, seeds."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import MODEL, FirstSymbol, RunningMean, recipe

from levelfield import protocols
from levelfield.objectives import Classify
from levelfield.spec import (
    Block,
    Duration,
    Examples,
    Model,
    Run,
    UserError,
    closest,
    derive_seed,
    describe,
    digest,
)

RUN = Run(FirstSymbol(), MODEL, protocols.spt_masked(recipe(), recipe(), 0.3), 0)


def changed(value: Any) -> Any:
    """Some other value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if value is None:
        return 1
    return value + "x" if isinstance(value, str) else value


def variants(value: Any) -> list[Any]:
    """Every dataclass that differs from `value` in one leaf."""
    if isinstance(value, tuple):
        return [(*value[:i], v, *value[i + 1 :]) for i in range(len(value)) for v in variants(value[i])]
    if not dataclasses.is_dataclass(value):
        return [changed(value)]
    found = []
    for f in (f for f in dataclasses.fields(value) if f.metadata.get("identity", True)):
        for other in variants(getattr(value, f.name)):
            copy = object.__new__(type(value))
            for g in dataclasses.fields(value):
                object.__setattr__(copy, g.name, other if g.name == f.name else getattr(value, g.name))
            found.append(copy)
    return found


def test_changing_any_field_changes_the_id():
    digests = [digest(v) for v in variants(RUN)]
    assert len(digests) > 60
    assert len(set(digests)) == len(digests)
    assert digest(RUN) not in digests


def test_the_path_of_weights_is_described_but_only_their_hash_is_part_of_the_id(tmp_path: Path):
    (tmp_path / "w.safetensors").write_bytes(b"x")
    (tmp_path / "copy.safetensors").write_bytes(b"x")
    first, copy = (protocols.pretrained(tmp_path / f"{name}.safetensors") for name in ("w", "copy"))
    assert digest(first) == digest(copy)
    assert describe(first)["weights"] != describe(copy)["weights"]
    (tmp_path / "w.safetensors").write_bytes(b"y")
    assert digest(protocols.pretrained(tmp_path / "w.safetensors")) != digest(first)


def test_version_is_part_of_the_id(monkeypatch: pytest.MonkeyPatch):
    before = dataclasses.replace(RUN).id
    monkeypatch.setattr(FirstSymbol, "version", 2)
    assert dataclasses.replace(RUN).id != before


def test_id_is_the_same_in_another_process():
    code = "import sys; sys.path[:0] = ['tests/support', 'tests/spec']; from test_spec import RUN; print(RUN.id)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == RUN.id


def test_description_is_plain_json():
    text = json.dumps(describe(RUN), allow_nan=False)
    assert json.loads(text)["model"]["mixers"][0]["kind"] == "RunningMean"


def test_what_is_not_a_value_cannot_be_hashed():
    with pytest.raises(TypeError, match="function"):
        digest(dataclasses.replace(MODEL, mixers=(print,)))  # pyright: ignore


def test_unknown_field_is_an_error():
    with pytest.raises(TypeError, match="widht"):
        Model(mixers=(RunningMean(),), depth=1, widht=3)  # pyright: ignore


@pytest.mark.parametrize(
    ("duration", "steps"),
    [
        (Duration(7, "steps"), 7),
        (Duration(65, "examples"), 3),
        (Duration(640, "tokens"), 2),
        (Duration(1, "epochs"), 4),
        (Duration(0.5, "epochs"), 2),
        (Duration(0, "epochs"), 0),
        (Duration(3e9, "flops"), 3),
    ],
)
def test_durations_resolve_to_steps(duration: Duration, steps: int):
    # Batches of 32 sequences of 10 tokens, 100 examples, 1 GFLOP a step.
    assert duration.resolve(batch=32, examples=100, tokens_per_example=10, flops_per_step=1e9) == steps


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_a_duration_is_a_finite_number_from_0(value: float):
    with pytest.raises(UserError, match="give 0 or more"):
        Duration(value, "steps")


@pytest.mark.parametrize(
    "change", [{"batch": 0}, {"lr": 0.0}, {"lr": -1.0}, {"lr": float("nan")}, {"lr": float("inf")}]
)
def test_a_recipe_that_cannot_train_is_refused(change: dict[str, Any]):
    with pytest.raises(UserError, match=next(iter(change))):
        dataclasses.replace(recipe(), **change)


def test_a_duration_without_its_cost_says_so():
    with pytest.raises(UserError, match="flops"):
        Duration(1e9, "flops").resolve(batch=1, examples=1, tokens_per_example=1)


def test_seeds_differ_by_purpose_and_repeat():
    seeds = {derive_seed(s, name, i) for s in range(3) for name in ("mask", "order") for i in range(50)}
    assert len(seeds) == 300
    assert derive_seed(1, "mask", 2) == derive_seed(1, "mask", 2)
    assert max(seeds) < 2**63


def test_examples_keep_sequences_apart():
    sequences = [np.arange(3, dtype=np.uint8), np.zeros(0, np.uint8), np.full(2, 9, np.uint8)]
    examples = Examples.of_sequences(sequences, np.arange(3), {"kind": np.array(["a", "b", "c"])})
    assert [examples.sequence(i).tolist() for i in range(3)] == [[0, 1, 2], [], [9, 9]]
    part = examples.take(np.array([2, 0]))
    assert part.sequence(0).tolist() == [9, 9]
    assert part.y.tolist() == [2, 0]
    assert part.slices["kind"].tolist() == ["c", "a"]


def test_model_bound_is_the_tightest():
    bounded = Model((RunningMean(),), 1, 8, positions="learned", max_positions=50)
    assert bounded.max_length == 50
    assert MODEL.max_length is None


def test_hybrid_label_names_each_mixer_once():
    assert Model((RunningMean(), RunningMean(dropout=0.5)), 4, 8).label == "mean"
    assert dataclasses.replace(MODEL, name="mine").label == "mine"


def test_did_you_mean():
    assert closest("litsops", ["listops", "image"]) == "did you mean 'listops'?"
    assert closest("IMAGE", ["listops", "image", "Image"]) == "did you mean 'image' or 'Image'?"
    assert closest("zzz", ["listops", "image"]) == "choose one of: listops, image."
    named = [*(f"task{i}" for i in range(40)), "speech"]
    assert closest("zzz", named, "list") == "`list` shows all 41."
    assert closest("pages", named, "list") == "`list` shows all 41.", "no name is close"
    assert closest("pages", named[:3], "list") == "choose one of: task0, task1, task2."
    many = closest("zzz", [f"name{i}" for i in range(100)])
    assert many.startswith("choose one of: name0, ") and many.endswith("name9, ... (100 in all).")


def test_equal_values_are_one_object_between_arms():
    shared = recipe()
    scratch, spt = protocols.scratch(shared), protocols.spt_masked(recipe(50), shared, 0.3)
    assert scratch.phases[0].recipe is spt.phases[1].recipe
    assert spt.phases[1].start == "previous"
    assert isinstance(spt.phases[1].objective, Classify)
    assert Block() == Block()


def test_sequences_are_counted_as_pythons_are() -> None:
    """A negative index counts from the end, and none that is not there is an empty sequence."""
    found = Examples.of_sequences([np.array([1]), np.array([2, 3]), np.array([4, 5, 6])], np.arange(3))
    assert found.sequence(-1).tolist() == found.sequence(2).tolist() == [4, 5, 6]
    assert found.sequence(-3).tolist() == [1]
    for index in (3, -4):
        with pytest.raises(IndexError):
            found.sequence(index)
