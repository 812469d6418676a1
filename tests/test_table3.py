"""The study of amos2025 table 3: its arms, and a verdict that says yes, partly, no, or nothing."""

from __future__ import annotations

from levelfield import published
from levelfield.objectives import Causal, Masked, Regress
from levelfield.report.arms import Arm
from levelfield.report.compare import match
from levelfield.spec import Row, describe
from levelfield.studies.amos2025_table3 import runs, verdict


def cell(task: str, model: str, protocol: str, value: float, metric: str = "accuracy", seeds: int = 2) -> list[Row]:
    row = Row(task=task, model=model, protocol=protocol, metric=metric, split="test", status="ok", n=100)
    return [row | Row(seed=s, value=value + 0.001 * s, run=f"{task}-{model}-{protocol}-{s}") for s in range(seeds)]


def column(
    task: str, values: tuple[float, float, float, float], metric: str = "accuracy", end: str = "", seeds: int = 2
) -> list[Row]:
    """Transformer from scratch and self-pretrained, then S4."""
    spt = "spt_causal" if end else "spt_masked"
    places = [(m + end, p) for m in ("transformer_rotary", "s4") for p in ("scratch", spt)]
    return [row for (m, p), value in zip(places, values) for row in cell(task, m, p, value, metric, seeds)]


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


def test_the_verdict_tells_columns_that_rise_from_those_that_do_not() -> None:
    rises, falls = column("scifar", (0.79, 0.90, 0.91, 0.92)), column("speech", (0.8, 0.7, 0.9, 0.9))
    assert verdict(rises).startswith("Yes. Self-pretraining lifted")
    assert verdict(falls).startswith("No.")
    both = verdict([*rises, *falls])
    assert both.startswith("Partly.") and "on 1 of 2 columns" in both
    assert "s4 is ahead by 12.0 points and then by 2.0" in both


def test_the_two_directions_of_speech_are_two_columns() -> None:
    rows = column("speech", (0.8, 0.9, 0.9, 0.9)) + column("speech", (0.8, 0.7, 0.9, 0.9), end="_causal")
    text = verdict(rows)
    assert "on 1 of 2 columns" in text and "speech (causal): transformer_rotary 80" in text


def test_columns_with_nothing_left_to_add_do_not_count_against_the_claim() -> None:
    """As printed: on BIDMC both models are near the top and self-pretraining lowers the Transformer a little."""
    bidmc = column("bidmc_hr", (0.998, 0.992, 0.999, 0.999), metric="r2")
    assert verdict(bidmc).startswith("Nothing is left to add")
    text = verdict([*bidmc, *column("scifar", (0.79, 0.90, 0.91, 0.92))])
    assert text.startswith("Yes.") and "on 1 of 1 columns" in text and "bidmc_hr: transformer_rotary 99" in text


def test_one_seed_or_a_missing_cell_says_nothing() -> None:
    nothing = "Nothing can be said: no column has all four of its cells with two seeds each."
    assert verdict(column("scifar", (0.7, 0.9, 0.9, 0.9), seeds=1)) == nothing
    assert verdict(column("scifar", (0.7, 0.9, 0.9, 0.9))[:-2]) == nothing
    assert verdict([]) == nothing
