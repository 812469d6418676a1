"""A phase may train at another length than its run: on which sequences, with which weights, and at what cost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny import MODEL, recipe

from levelfield import protocols
from levelfield.data import prepared
from levelfield.engine import forecast, plan
from levelfield.evaluate import label_scores
from levelfield.files import read_rows
from levelfield.model import Network
from levelfield.objectives import ClassifySteps, Masked
from levelfield.run import check, execute, load_net
from levelfield.spec import Phase, Protocol, Run, UserError
from levelfield.tasks.digits import Digits
from levelfield.tasks.needle import Needle

TASK = Needle(length=64, needles=1, asked=1, words=8, keys=4, values=4, train=256, val=64, test=64)
STILL = replace(recipe(1, lr=1e-12), weight_decay=0.0)  # changes no weight that counts
EXTENDED = protocols.extended(recipe(30), STILL, 16, ClassifySteps())
RUN = Run(TASK, MODEL, EXTENDED, 0)


def done(run: Run, where: Path, data: Path) -> Network:
    execute(run, where, data, "cpu")
    return load_net(run, where)


def test_the_first_phase_is_training_at_the_shorter_length_and_the_second_keeps_all_weights(tmp_path: Path) -> None:
    short = Run(TASK.at_length(16), MODEL, protocols.scratch(recipe(30), ClassifySteps()), 0)
    alone, both = (done(run, tmp_path / run.id, tmp_path / "data") for run in (short, RUN))
    logs = [read_rows(tmp_path / run.id / "log.jsonl") for run in (short, RUN)]
    assert [r for r in logs[1] if r["phase"] == 0] == logs[0]
    for name, value in alone.state_dict().items():
        np.testing.assert_allclose(both.state_dict()[name].numpy(), value.numpy(), atol=1e-9, err_msg=name)
    test = prepared.load(TASK, tmp_path / "data")["test"]
    scored = [r for r in read_rows(tmp_path / RUN.id / "rows.jsonl") if r["split"] == "test" and r["model"] == "mean"]
    assert scored[0]["value"] == pytest.approx(label_scores(alone, TASK, test, batch=64).mean)


def test_the_ledger_and_the_plan_count_each_phase_at_its_length(tmp_path: Path) -> None:
    done(RUN, tmp_path / "run", tmp_path / "data")
    phases = json.loads((tmp_path / "run" / "ledger.json").read_text())["phases"]
    assert [phase["tokens"] / phase["examples"] for phase in phases] == [16, 64]
    assert plan.cost(RUN).total == pytest.approx(sum(phase["flops"] for phase in phases))
    assert plan.cost(RUN, tmp_path / "data").total == plan.cost(RUN).total
    assert plan.phases(RUN) == "steps 30 steps on sequences of 16 steps, then steps 1 steps"
    batch, each = recipe(30).batch, plan.cost(RUN).flops
    assert forecast.sequences(RUN, tmp_path / "data", each) == pytest.approx(batch * (30 * 16 / 64 + 1))


LABELS = (protocols.extended(recipe(2), recipe(2), length, ClassifySteps()) for length in (2, 900))
TABLE = replace(MODEL, positions="learned", max_positions=64)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (Run(Digits(), MODEL, protocols.extended(recipe(2), recipe(2), 16), 0), "has one length"),
        (replace(RUN, protocol=next(LABELS)), "takes at least 5 steps, not 2"),
        (replace(RUN, protocol=next(LABELS), model=TABLE), "takes 64 steps but needle has up to 900"),
        (replace(RUN, protocol=Protocol("odd", (Phase(ClassifySteps(), recipe(2), start="whole"),))), "from nothing"),
    ],
)
def test_what_cannot_be_is_said_before_any_training(run: Run, said: str) -> None:
    with pytest.raises(UserError, match=said):
        check(run)


def test_other_heads_cannot_be_kept() -> None:
    first = Phase(Masked(ratio=0.3), recipe(2))
    odd = Protocol("odd", (first, Phase(ClassifySteps(), recipe(2), start="whole")))
    with pytest.raises(UserError, match="other heads"):
        check(replace(RUN, protocol=odd))
