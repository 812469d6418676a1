"""Parts of a training split: nested, with labels in their shares, the same for every seed; and the ids of such runs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import MODEL, FirstSymbol, recipe

from levelfield import protocols
from levelfield import run as running
from levelfield.objectives import Classify
from levelfield.run import execute
from levelfield.spec import Examples, Phase, Protocol, Run, UserError, describe, digest


def labelled(y: list[int]) -> Examples:
    """One step each, whose symbol is the number of the example."""
    return Examples.of_equal_length(np.arange(len(y))[:, None], np.array(y))


@given(st.lists(st.sampled_from([0, 0, 0, 0, 1, 1, 2, 5]), min_size=1, max_size=200), st.data())
def test_every_beginning_has_each_label_and_has_them_in_proportion(y: list[int], data: st.DataObject):
    chosen = labelled(y).stratified(0)
    assert sorted(chosen.tolist()) == list(range(len(y)))
    count = data.draw(st.integers(1, len(y)))
    found, whole = Counter(np.array(y)[chosen[:count]].tolist()), Counter(y)
    assert len(found) == min(count, len(whole))
    for label, size in whole.items():  # the rare ones come once, for which the others make room
        wanted = size * count / len(y)
        assert abs(found[label] - wanted) <= 1 + len(whole) / 2


def test_a_tenth_of_few_examples_has_every_class():
    """Of 203 examples of ten classes, 20 drawn without looking at the labels leave out one class on average."""
    y = [i % 10 for i in range(203)]
    assert set(Counter(np.array(y)[labelled(y).stratified(3)[:20]].tolist()).values()) == {2}


def test_a_smaller_fraction_is_part_of_a_larger_one():
    train = FirstSymbol().build(None)["train"]
    small, large = train.subset(0.1), train.subset(0.5)
    assert (len(small), len(large)) == (26, 128)
    assert np.array_equal(small.x, large.x[: len(small.x)])
    assert train.subset(1.0) is train


def test_targets_that_are_no_labels_are_only_shuffled():
    steps = dataclasses.replace(labelled([0] * 50), stepwise=True)
    values = dataclasses.replace(labelled([0] * 50), y=np.linspace(0, 1, 50)[:, None])
    for examples in (steps, values):
        assert sorted(examples.stratified(1).tolist()) == list(range(50))
        assert examples.stratified(1).tolist() != list(range(50))


def test_every_seed_and_phase_trains_on_the_same_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[bytes] = []
    resolve = running.resolve

    def noting(phase: Phase, task: Any, batches: Any, *rest: Any) -> Any:
        seen.append(b"" if phase.fraction == 1 else bytes([batches.count]))
        return resolve(phase, task, batches, *rest)

    take = Examples.take

    def taken(self: Examples, indices: np.ndarray) -> Examples:
        seen.append(indices.tobytes())
        return take(self, indices)

    monkeypatch.setattr(running, "resolve", noting)
    monkeypatch.setattr(Examples, "take", taken)
    phases = tuple(dataclasses.replace(p, fraction=0.1) for p in protocols.spt_masked(recipe(2), recipe(2), 0.3).phases)
    for seed in (0, 1):
        run = Run(FirstSymbol(), MODEL, Protocol("spt_masked", phases), seed)
        execute(run, tmp_path / str(seed), tmp_path / "data", "cpu")
    chosen = {part for part in seen if len(part) == 26 * 8}
    assert len(chosen) == 1 and bytes([26]) in seen


@pytest.mark.parametrize("fraction", [0.0, -0.5, 1.5])
def test_no_part_and_more_than_all_are_refused(fraction: float):
    with pytest.raises(UserError, match="more than 0, at most 1"):
        Phase(Classify(), recipe(), fraction=fraction)


def plainly(value: Phase) -> str:
    """The hash as it was before settings had versions, of what was shown before recipes had cuts and a least gain, and
    phases a length."""
    shown = describe(value)
    for added in ("cuts", "patience_after", "least_gain", "enough"):
        del shown["recipe"][added]
    del shown["length"]
    text = json.dumps(shown, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def test_ids_change_only_where_what_they_name_has_changed():
    """A part of the data and bucketed batches mean something else than before; nothing else does."""
    phase = Phase(Classify(), recipe())
    part = dataclasses.replace(phase, fraction=0.1)
    bucketed = dataclasses.replace(phase, recipe=dataclasses.replace(phase.recipe, bucketed=True))
    assert describe(part, identity=True)["fraction.version"] == 2
    assert describe(bucketed, identity=True)["recipe"]["bucketed.version"] == 2
    assert len({digest(phase), digest(part), digest(bucketed)}) == 3 and digest(phase) == plainly(phase)
    assert describe(part) == describe(phase) | {"fraction": 0.1}  # what is shown has no versions of fields
