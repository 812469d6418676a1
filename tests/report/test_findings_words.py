"""The page of findings says what is asked and what is answered in words that need no knowledge of the code."""

from __future__ import annotations

import importlib
import re
from types import ModuleType

import pytest
from made_answers import pretrained
from repository import ROOT

PAGE = (ROOT / "docs" / "findings.md").read_text()
SECTIONS = dict(re.findall(r"^## (\d+)\. .*?\n(.*?)(?=^## )", PAGE, flags=re.DOTALL | re.MULTILINE))


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module(name)


@pytest.mark.parametrize(
    ("subject", "sentence"),
    [
        (
            "the Transformer's lift holds at equal steps (image8)",
            "At equal steps, self-pretraining lifts the Transformer on pictures",
        ),
        ("self-pretraining lifts S4 (text)", "Self-pretraining lifts S4 on reviews"),
        (
            "self-pretraining lifts the Transformer with 1 % of the labels (image8)",
            "Self-pretraining lifts the Transformer on pictures with 1 % of the labels",
        ),
        (
            "dlr is level with S4 once both are pretrained (image8)",
            "Self-pretrained, DLR is at most 3 points behind S4 on",
        ),
        (
            "sinks helps rotary",
            "A window with attention sinks helps rotary attention at four times its training length",
        ),
        ("what no pattern fits", "What no pattern fits"),
        ("sLSTM and GRU hold all", "sLSTM and GRU hold all"),
    ],
)
def test_a_question_stands_by_itself(monkeypatch: pytest.MonkeyPatch, subject: str, sentence: str) -> None:
    assert script("findings_words", monkeypatch).asked(subject).startswith(sentence)


def test_scores_name_models_and_tasks_as_a_reader_does(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = script("findings_words", monkeypatch).scores
    facts = "On image8, conv11 has 44.4 % and s4 51.0 %. Measured against what a yes needs: +1.0 points."
    assert scores(facts) == "On pictures, kernel 11 has 44.4 % and S4 51.0 %."
    assert (
        scores("s4 is +1.2 points from rotary attention at first.")
        == "S4 is +1.2 points from rotary attention at first."
    )
    assert scores("At equal steps that is +0.0 points.") == "–"


def test_no_question_or_answer_of_the_page_uses_names_of_the_code() -> None:
    cells = [
        row.split(" | ")[0] for text in SECTIONS.values() for row in text.splitlines() if re.match(r"\| [A-Zs]", row)
    ]
    answers = re.findall(r"^\*\*Our answer\.\*\* (.*)$", PAGE, flags=re.MULTILINE)
    assert len(cells) > 60 and len(answers) == len(SECTIONS)
    assert [
        text
        for text in [*cells, *answers]
        if re.search(r"\b(image8|listops|transformer_rotary|conv\d|\w+_\w+)\b", text)
    ] == []


def test_the_overview_counts_the_answers_of_each_section() -> None:
    rows = re.findall(r"^\| \[.*?\]\(#(\d+)-.*\| (\d+) yes, (\d+) no, (\d+) open \|", PAGE, flags=re.MULTILINE)
    assert len(rows) == len(SECTIONS) > 5
    for number, *said in rows:
        text = SECTIONS[number]
        told = [
            len(re.findall(rf"^\|.*\| {word} (?:\(\w+\) )?\|", text, flags=re.MULTILINE))
            for word in (r"\*\*yes\*\*", r"\*\*no\*\*", "(?:open|nothing can be said)")
        ]
        assert told == [int(count) for count in said], number


def test_the_answer_in_short_changes_with_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both made-up tasks gain 20 points, then none; the second sentence must not go on saying yes."""
    short = script("findings_summary", monkeypatch).never_from_scratch
    lifted, level, lower = (short(pretrained((40.0, 42.0, after), "s4")) for after in (62.0, 42.1, 22.0))
    assert lifted.startswith("Yes on ListOps: a small Transformer rises from 42.0 to 62.0 %") and "Open" not in lifted
    assert level.startswith("Open on ListOps (+0.1 points) and pictures (+0.1 points).")
    assert lower.startswith("The opposite is shown on ListOps and pictures.")
