"""The study of arms from scratch that nothing ends early: what the arm with dropout shares with the one without."""

from __future__ import annotations

from dataclasses import replace

import pytest

from levelfield.spec import Effort
from levelfield.studies import amos2025_patience
from levelfield.studies.amos2025_patience import DROPOUT, DROPPED, from_scratch, runs


@pytest.mark.parametrize("effort", ["smoke", "overnight"])
def test_the_arm_with_dropout_differs_in_it_alone(effort: Effort) -> None:
    made = runs(effort)
    dropping = [run for run in made if run.protocol.name == DROPPED]
    assert dropping and {run.model.label for run in dropping} == set(DROPOUT)
    for run in dropping:
        block = run.model.block
        assert block.dropout == DROPOUT[run.model.label] > 0
        without = replace(run.model, block=replace(block, dropout=0.0))
        same = [other for other in made if (other.seed, other.model) == (run.seed, without)]
        twin = next(other for other in same if other.protocol.name == "scratch_whole")
        assert replace(run, model=without, protocol=twin.protocol) == twin
        assert replace(run.protocol, name=twin.protocol.name) == twin.protocol


def test_every_arm_from_scratch_is_run_and_asked_about() -> None:
    found = {model: {run.protocol.name for run in runs("smoke") if run.model.label == model} for model in DROPOUT}
    assert all(set(from_scratch(model)) < arms for model, arms in found.items())
    assert amos2025_patience.findings([]) == []
