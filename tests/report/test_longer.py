"""What training at a longer length gives back: scores made up."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from levelfield.report.verdicts import Finding
from levelfield.spec import Row
from levelfield.studies import _huang2024_small as needles
from levelfield.studies import huang2024_longer, huang2024_small
from levelfield.studies.huang2024_longer import ARMS, BACK, LONGER

HAYSTACKS = ("", ",format=essay", ",format=pairs", ",format=repeat")


def rows(far: float, there: float, beyond: float, model: str = "rotary", seeds: int = 3) -> list[Row]:
    """A model with all right at 32 steps and, from 128 steps on, a share `far` of the gain over guessing; which goes on
    at 128 steps has `there` up to them, and `beyond` at longer ones. Seeds are 0.2 points apart."""
    guess = needles.length_scores([]).guess
    assert guess is not None
    made = [Row(task="needle", protocol="none", model="chance", metric="accuracy", split="test", value=1 / 16, n=3_000)]
    shorter = {n: 1.0 if n < 128 else far for n in (16, 32, 64, 128, 256, 512)}
    longer = {n: there if n <= 128 else beyond for n in (32, 64, 128, 256, 512, 1024, 2048)}
    for (protocol, shares), seed in product({"scratch": shorter, "extended": longer}.items(), range(seeds)):
        for (length, share), end in product(shares.items(), HAYSTACKS):
            floor = guess(length, end.partition("=")[2])
            value = floor + (share - 0.002 * seed) * (1 - floor)
            row = Row(task="needle", model=model, protocol=protocol, run=f"{protocol}-{seed}", seed=seed, status="ok")
            made.append(row | Row(metric="accuracy", split="test", at=f"length={length}{end}", value=value, n=900))
    return made


def decided(found: list[Finding]) -> dict[str, int]:
    return {finding.subject: finding.decided for finding in found}


@pytest.mark.parametrize(
    ("far", "there", "answer"),
    [
        (0.3, 1.0, 1),
        (0.3, 0.9, 1),
        (0.3, 0.65, 0),  # half of what is lost: just at the limit
        (0.3, 0.4, -1),  # training there hardly helps
        (0.98, 1.0, None),  # nothing is lost
        (0.98, 0.2, None),
    ],
)
def test_more_than_half_is_given_back(far: float, there: float, answer: int | None) -> None:
    (finding,) = huang2024_longer.given_back(rows(far, there, 0.2))
    assert finding.subject == BACK.format(LONGER, "rotary")
    assert finding.decided == (answer or 0)
    assert ("is not shown to lose more than 5 points" in finding.facts) == (answer is None)


def test_what_is_trained_longer_is_asked_for_its_fall_beyond_its_own_length() -> None:
    made = rows(0.3, 1.0, 0.2)
    names = [f"more than half is lost at {times} times the length (rotary)" for times in (2, 16)]
    assert decided(huang2024_longer.fallen(made)) == dict.fromkeys(names, 1)
    assert set(decided(huang2024_longer.fallen(rows(0.3, 1.0, 0.9))).values()) == {-1}
    text = huang2024_longer.verdict(made)
    assert "1 of 1 models are shown to lose more than half" in text
    assert huang2024_longer.verdict([]).startswith("Nothing can be said")


def test_arms_without_their_counterpart_are_not_asked() -> None:
    made = [row for row in rows(0.3, 1.0, 0.2) if row.get("protocol") != "extended"]
    assert huang2024_longer.given_back(made) == [] and "Nothing can be said" not in huang2024_longer.verdict(made)


def test_the_shorter_arms_are_those_of_the_study_of_needles() -> None:
    """Their runs and what is asked of them are the same, so that nothing is trained or asked again."""
    known = {run.id: needles.probes(run) for run in huang2024_small.runs("overnight")}
    mine = huang2024_longer.runs("overnight")
    short = [run for run in mine if run.id in known]
    assert len(short) == len(mine) / 2 == len(ARMS) * huang2024_longer.SEEDS
    assert all(set(huang2024_longer.probes(run)) <= set(known[run.id]) for run in short)
    longer = [run for run in mine if run.id not in known]
    assert {run.task.max_length for run in longer} == {LONGER * short[0].task.max_length}
    for one, other in zip(short, longer, strict=True):
        assert one.model == other.model and one.seed == other.seed
        before, _ = other.protocol.phases
        assert other.trained_on == (one.task, other.task) and (before,) == tuple(
            replace(phase, length=one.task.max_length) for phase in one.protocol.phases
        )
