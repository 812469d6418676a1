"""The study of amos2025 table 3: its arms and what they are trained for."""

from __future__ import annotations

import pytest
from printed_rows import measured

from levelfield import published
from levelfield.objectives import Causal, Masked, Regress
from levelfield.report.against_printed import match
from levelfield.report.arms import Arm
from levelfield.report.verdicts import Key
from levelfield.spec import describe
from levelfield.studies.amos2025_table3 import findings, runs


def test_each_printed_cell_has_one_arm_and_each_arm_one_cell() -> None:
    """Causal and bidirectional models of one task are told apart, by their names and when matched with print."""
    arms = {}
    for run in runs("paper"):
        arms[Arm(run.task.name, run.model.label, run.protocol.name)] = describe(run)
    assert len(arms) == 24
    printed = published.rows("amos2025", "3")
    found = [[arm for arm, spec in arms.items() if match(arm, spec, row) is not None] for row in printed]
    assert [len(f) for f in found] == [1] * 24
    assert len({f[0] for f in found}) == 24
    for row, (arm,) in zip(printed, found):
        assert arm.model.endswith("_causal") == ("direction=causal" in row.get("at", ""))


def test_pretraining_is_masked_or_causal_as_the_model_is_and_bidmc_is_regression() -> None:
    for run in runs("paper"):
        assert run.task.archives
        if len(run.protocol.phases) == 2:
            first = run.protocol.phases[0].objective
            assert isinstance(first, Causal if run.model.causal else Masked) and first.loss_kind == "l1"
            assert not isinstance(first, Masked) or first.ratio == (0.5 if run.task.name == "scifar" else 0.25)
        assert isinstance(run.protocol.phases[-1].objective, Regress) == run.task.name.startswith("bidmc")


@pytest.mark.parametrize(
    ("transformer", "s4", "decided", "seen"),
    [
        ((50, 62), (60, 63), 1, 1),
        ((50, 66), (54, 56), 1, 1),  # it was behind and is ahead
        ((60, 70), (55, 58), 0, 0),  # it was ahead, and is farther ahead
        ((54, 70), (55, 58), 0, -1),  # it was behind by less than has to be made up
        ((50, 55), (60, 68), -1, -1),  # farther behind
        ((60, 55), (65, 58), -1, -1),  # nearer, because S4 has lost more
    ],
)
def test_a_distance_to_s4_narrows_only_for_a_transformer_that_was_behind(
    transformer: tuple[int, int], s4: tuple[int, int], decided: int, seen: int
) -> None:
    arms, protocols = {"transformer_rotary": transformer, "s4": s4}, ("scratch", "spt_masked")
    cells = {Key("speech", m, p): ("accuracy", float(v)) for m, own in arms.items() for p, v in zip(protocols, own)}
    (found,) = findings(measured(cells, (-0.1, -0.05, 0, 0.05, 0.1)))
    assert (found.decided, found.seen) == (decided, seen)
    assert ("transformer_rotary is not behind s4 from scratch" in found.facts) == (seen == 0)
