"""The figure of docs/findings.md: its numbers are those of verdicts and papers, and its titles change with the rows."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from types import ModuleType

import pytest
from made_answers import Fake, pretrained
from printed_rows import measured
from repository import SCRIPTS

from levelfield.report.verdicts import Key, Table, power
from levelfield.spec import Row
from levelfield.studies import huang2024_small, miralles2025_small


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("findings_shown")


def test_lifts_have_the_intervals_of_the_verdict_and_stand_beside_the_printed_ones(shown: ModuleType) -> None:
    found = pretrained((40.0, 42.0, 43.5), "s4")
    lifts = {(lift.model, lift.task, lift.longer): lift for lift in shown.lifts(found)}
    assert len(lifts) == 8, "two models, two tasks, over scratch and at an equal allowance of steps"
    spans = {finding.subject: finding.span for finding in found.findings}
    asked = {"self-pretraining lifts the Transformer": ("transformer_rotary", False)}
    asked |= {
        "the Transformer's lift holds at an equal allowance of steps": ("transformer_rotary", True),
        "self-pretraining lifts S4": ("s4", False),
    }
    asked |= {"S4's lift holds at an equal allowance of steps": ("s4", True)}
    for question, (model, longer) in asked.items():
        for task in ("listops", "image8"):
            assert lifts[model, task, longer].contrast.span() == spans[f"{question} ({task})"]
    printed = {key[:2]: round(lift.printed, 2) for key, lift in lifts.items() if lift.printed is not None}
    assert printed == {  # table 2 of the paper: 47.90 to 61.49, 59.60 to 61.25, 75.04 to 86.04, 88.65 to 89.36
        ("transformer_rotary", "listops"): 13.59,
        ("s4", "listops"): 1.65,
        ("transformer_rotary", "image8"): 11.0,
        ("s4", "image8"): 0.71,
    }
    assert {lift.model for lift in shown.lifts(pretrained((40.0, 42.0, 43.5)))} == {"transformer_rotary"}


def test_lifts_of_committed_rows_are_compared_example_by_example_as_their_verdicts_are(
    shown: ModuleType,
) -> None:
    subjects = importlib.import_module("findings_subjects")
    found = subjects.answer(subjects.SUBJECTS[0])
    assert found.results.hits, "the folder says which examples each run has right"
    spans = {finding.subject: finding.span for finding in found.findings}
    called = {"transformer_rotary": "the Transformer", "s4": "S4"}
    lifts = shown.lifts(found)
    assert len(lifts) == 12
    for lift in lifts:
        name = called[lift.model]
        held = f"{name}'s lift holds {shown.ALLOWED}" if lift.longer else f"self-pretraining lifts {name}"
        assert lift.contrast.span() == spans[f"{held} ({lift.task})"]
    page = importlib.import_module("findings")
    told = "".join(page._answered(found, replace(subjects.SUBJECTS[0], lead=None)))
    rows, asked = found.results.compared, len(found.findings)
    sure, unsure = (power(Table.of(each), asked).partition(" by ")[2] for each in (rows, found.results.rows))
    assert sure != unsure
    assert re.findall(r"[\d.]+ points", sure) == re.findall(r"[\d.]+ points", told.partition("are told apart")[2])


@pytest.mark.parametrize(
    ("scores", "title"),
    [
        ((40.0, 42.0, 42.1), ": no lift of the Transformer shown at an equal allowance of steps"),
        ((40.0, 42.0, 62.0), " lifts the Transformer on ListOps, pictures at an equal allowance of steps"),
        ((40.0, 42.0, 22.0), " lowers the Transformer on ListOps, pictures at an equal allowance of steps"),
    ],
)
def test_the_first_title_says_what_is_decided(
    shown: ModuleType, scores: tuple[float, float, float], title: str
) -> None:
    assert shown.lift_head(pretrained(scores)).title == f"Self-pretraining{title}"


def test_shares_are_of_the_gain_of_the_model_that_sees_everything(shown: ModuleType) -> None:
    """Guessing has 17.1 and 50 %, so that 57.1 of 67.1 is four fifths of the gain, and 50 none of it."""
    scores = {"listops": {"11": 57.1, "61": 67.1, "all": 67.1}, "reach": {"11": 50.0, "61": 99.0, "all": 99.0}}
    cells = {
        Key(task, "gmlp" if place == "all" else "conv", "enriched", place): ("accuracy", score)
        for task, places in scores.items()
        for place, score in places.items()
    }
    rows = [Row(metric="receptive_field", at=f"kernel={k}", value=2 * k - 1, model="conv") for k in (11, 61)]
    half = Row(task="reach", protocol="none", model="chance", metric="accuracy", split="test", value=0.5)
    found = Fake(miralles2025_small, [*rows, half, *measured(cells, (0.0, 0.0, 0.0))])
    made = shown.shares(found)
    assert [made["listops"].places[steps] for steps in (21, 121, shown.ALL)] == [
        pytest.approx([percent] * 3) for percent in (80, 100, 100)
    ]
    assert made["reach"].places[21] == pytest.approx([0] * 3)
    assert (made["reach"].name, made["reach"].proved, made["listops"].proved) == ("marks 24 apart", 24, 0)
    assert shown.share_head(found).title == "Seeing 21 steps brings 80 % of the gMLP's gain on ListOps"


def test_recall_is_that_of_the_hardest_haystack_and_the_title_counts_who_loses_half(shown: ModuleType) -> None:
    """Of 85 points above guessing, 15 %, one model keeps 35 among pairs and another 75; elsewhere both keep all."""
    cells = {}
    for model, kept in (("rotary", 50.0), ("alibi", 90.0)):
        for length in (16, 32, 64):
            for end in ("", ",format=essay", ",format=pairs"):
                score = kept if length == 64 and end.endswith("pairs") else 100.0
                cells[Key("needle", model, "scratch", f"{length}{end}")] = ("accuracy", score)
    rows = [Row(row, at=row.get("at", "").replace("kernel=", "length=")) for row in measured(cells, (-0.2, -0.1, 0.0))]
    guess = Row(task="needle", protocol="none", model="chance", metric="accuracy", split="test", value=0.07)
    found = Fake(huang2024_small, [guess, *rows])
    made = shown.recall(found)
    assert (made.haystack, made.trained, made.longest) == ("pairs", 32, 64)
    assert made.floors == pytest.approx({16: 27.2, 32: 19.7, 64: 15.3}, abs=0.1), "of 7, 15 and 31 pairs"
    assert made.kept()["rotary"][2] == pytest.approx(35 / 85, abs=0.01)
    head = shown.recall_head(found)
    answers = [finding.decided for finding in made.falls(found, 2)]
    assert sorted(answers) == [-1, 1], "the study's own: one loses half, and one keeps it"
    assert head.title == "1 of 2 models are shown to lose over half at 2 × the length"
    assert head.verdict == "In some haystack; 1 shown to keep half in each, 0 open. Drawn: look-alike pairs."
    assert (head.marks, head.lines[1]) == ("medians", "Medians of 3 seeds; bands: lowest to highest")
