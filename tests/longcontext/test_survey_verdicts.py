"""Verdicts on language models: printed numbers give the papers' claims or say why not; others, and noise, do not."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import numpy as np
import pytest

from levelfield import published
from levelfield.cli import survey_commands
from levelfield.engine import find
from levelfield.longcontext.survey import Survey
from levelfield.report.verdicts import Finding
from levelfield.spec import Row
from levelfield.spec.study import MeasuredCell
from levelfield.studies import _huang2024, huang2024_needles, huang2024_table1, huang2024_tasks

MODULES = {m.survey.name: m for m in (huang2024_table1, huang2024_tasks, huang2024_needles)}
ALL = tuple(checkpoint.printed for checkpoint in _huang2024.CHECKPOINTS)
FOUND = {"mamba2_2.7b", "mamba2attn_2.7b", "transformerpp_2.7b", "rwkv6_3b"}  # lose needles in the middle
WHOLE = tuple(f"{name} (format)" for name in huang2024_needles.WHOLE)


def printed(survey: Survey) -> list[MeasuredCell]:
    rows = [row for p in survey.published for row in published.rows(p.paper, p.table)]
    return [MeasuredCell(row, row.get("model", ""), "printed", None) for row in rows]


def answers(name: str, found: Sequence[MeasuredCell]) -> dict[str, Finding]:
    return {finding.subject: finding for finding in MODULES[name].findings(found)}


def test_every_survey_has_a_verdict_and_is_fed_here() -> None:
    found = [find.Source(name).find() for name in find.listing("studies")]
    assert {each.name for each in found if isinstance(each, Survey)} == set(MODULES)


def test_all_models_drop_and_rwkv_mildly_as_the_paper_says() -> None:
    found = answers("huang2024_table1", printed(huang2024_table1.survey))
    assert {model: finding.seen for model, finding in found.items()} == dict.fromkeys(ALL, 1)
    assert {model for model, finding in found.items() if not finding.decided} == {"rwkv6_3b"}


def test_how_far_a_model_sees_depends_on_the_task() -> None:
    """Of seven; the pure Transformer keeps half of every task at 2,048 tokens and of none at 4,096."""
    found = answers("huang2024_tasks", printed(huang2024_tasks.survey))
    assert {model for model, finding in found.items() if finding.decided > 0} == set(ALL) - {"transformerpp_2.7b"}
    assert "13 of 13 at 2048, 0 of 13 at 4096" in found["transformerpp_2.7b"].facts


def test_half_of_the_models_lose_the_middle_and_all_three_depend_on_the_format() -> None:
    """The paper calls it common to all; four of its eight find every needle at their training length."""
    found = answers("huang2024_needles", printed(huang2024_needles.survey))
    assert {m for m in ALL if found[f"{m} (middle)"].seen > 0} == FOUND
    assert {m for m in ALL if found[f"{m} (middle)"].decided < 0} == set(ALL) - FOUND
    assert all(found[name].decided == 1 for name in WHOLE)


@pytest.mark.parametrize("name", MODULES)
def test_lengths_and_places_permuted_do_not_give_the_claim(name: str) -> None:
    """Columns of each model dealt anew, so that a training length, a depth and a format mean nothing."""
    rows = [answer.row for answer in printed(MODULES[name].survey)]
    deal, said = random.Random(0), 0
    true = {subject: finding.seen for subject, finding in answers(name, printed(MODULES[name].survey)).items()}
    for _ in range(10):
        dealt: list[MeasuredCell] = []
        for model in ALL:
            mine = [row for row in rows if row.get("model") == model]
            values = [row.get("value", 0.0) for row in mine]
            deal.shuffle(values)
            dealt += [MeasuredCell(r | Row(value=v), model, "", None) for r, v in zip(mine, values, strict=True)]
        said += {subject: finding.seen for subject, finding in answers(name, dealt).items()} == true
    assert said == 0 or name == "huang2024_tasks"  # of which no order of lengths is claimed


def noise(truth: dict[tuple[str, str, str], float], draw: np.random.Generator) -> list[MeasuredCell]:
    """Eight models with these true percents by table, task and place, each of 250 samples."""
    made = []
    for model in ALL:
        for (table, task, at), percent in truth.items():
            row = Row(table=table, task=task, at=at, model=model, metric="accuracy")
            count = _huang2024.samples(row)
            value = 100 * draw.binomial(count, percent / 100) / count
            made.append(MeasuredCell(row | Row(value=value, n=count), model, "", None))
    return made


def at_margin(name: str) -> dict[tuple[str, str, str], float]:
    """Truths of which nothing can rightly be decided."""
    if name == "huang2024_table1":
        share = 1 - huang2024_table1.LOST
        return {("1", "ruler_average", f"length={n}"): 60 * share**i for i, n in enumerate(_huang2024.LENGTHS)}
    if name == "huang2024_tasks":
        lengths = enumerate(_huang2024.LENGTHS)
        return {
            (table, task, f"length={n}"): 80 * (huang2024_tasks.KEPT if i else 1)
            for i, n in lengths
            for table, task in list(_huang2024.TASKS.items())[:4]
        }
    task = huang2024_needles.PLACES["2"][0]
    middle = {("2", task, f"depth={d}"): 50.0 - huang2024_needles.MIDDLE * (d == 50) for d in (0, 50, 100)}
    formats = zip(huang2024_needles.FORMATS.values(), (50.0, 50.0, 50.0 + huang2024_needles.FORMAT), strict=True)
    return middle | {("4", name, "length=1024;depth=0"): value for name, value in formats}


@pytest.mark.parametrize("name", MODULES)
def test_noise_at_the_margin_is_decided_in_few_reports(name: str) -> None:
    """Of formats, two are as far apart as the margin, and a third is no farther."""
    draw, reports = np.random.default_rng(0), 40
    truth = at_margin(name)
    wrong = sum(any(f.decided for f in MODULES[name].findings(noise(truth, draw))) for _ in range(reports))
    assert wrong <= 8, "5 % of 40 are two; nine come once in ten thousand times"


def test_models_of_no_known_length_or_asked_elsewhere_get_no_verdict() -> None:
    row = Row(table="1", task="ruler_average", at="length=1024", model="mine", value=50.0, n=100)
    (found,) = huang2024_table1.findings([MeasuredCell(row, "", "ours", None)])
    assert found.seen == 0 and "is not known" in found.facts
    (found,) = huang2024_table1.findings([MeasuredCell(row, "mamba2_2.7b", "ours", None)])
    assert found.seen == 0 and "was not asked at 2048 and 4096" in found.facts


def asked(scores: dict[tuple[str, int], float], short: tuple[str, int] = ("", 0)) -> list[MeasuredCell]:
    """The averages of the first model, whose training length is 2,048 tokens. scores: by task and length.

    short: the task and length of which not all questions were asked.
    """
    model = huang2024_table1.survey.checkpoints[0]
    rows = [
        Row(task=task, at=f"length={length}", metric="accuracy", model=model.printed, value=value)
        | Row(n=7 if (task, length) == short else 250)
        for (task, length), value in scores.items()
    ]
    return huang2024_table1.answers(model, rows)


def test_a_drop_is_asked_of_the_same_questions_alone() -> None:
    """An interrupted run has other tasks at one length than at the other, and of one task fewer questions."""
    tasks = list(_huang2024.TASKS.values())
    level = {t: 90.0 if t.startswith("niah") else 20.0 for t in tasks}  # of which nothing is lost
    kept = {(t, n): score for n in (2048, 4096) for t, score in level.items()}
    (found,) = huang2024_table1.findings(asked(kept))
    assert found.decided == -1
    hard = {place: score for place, score in kept.items() if place[1] == 2048 or score < 50}
    (found,) = huang2024_table1.findings(asked(hard))
    assert found.decided == found.seen == 0
    assert "not asked the same at 2048 and 4096 tokens: niah_single_1 has 250 and 0 answers, " in found.facts
    assert found.facts.endswith("niah_single_3 has 250 and 0 answers, and 5 more tasks.")

    lost = {(t, n): score * (1.0 if n == 2048 else 0.55) for (t, n), score in kept.items()}
    (found,) = huang2024_table1.findings(asked(lost))
    assert found.decided == 1
    easy = {(t, n): score for (t, n), score in lost.items() if n == 2048 or t in tasks[:3]}
    assert [finding.seen for finding in huang2024_table1.findings(asked(easy))] == [0]
    (found,) = huang2024_table1.findings(asked(lost, ("vt", 4096)))
    assert found.seen == 0 and found.facts.endswith("tokens: vt has 250 and 7 answers.")
    few = {place: score for place, score in lost.items() if not place[0].startswith("qa")}
    assert [finding.decided for finding in huang2024_table1.findings(asked(few))] == [1], "left out at both lengths"


@pytest.mark.parametrize("name", MODULES)
def test_the_page_leads_with_the_verdict_and_calls_the_claim_a_claim(name: str, tmp_path) -> None:
    said: list[str] = []
    survey = MODULES[name].survey
    survey_commands.write_report(survey, tmp_path, tmp_path, said.append)
    page = (tmp_path / name / "report.html").read_text()
    assert re.search(r"<h1>By the printed numbers: [^<]+</h1>", page)
    assert page.count("Claim: ") == 1 and "Claim: " in said[0]
    assert survey.claim not in page.split("Claim: ")[0].split("</title>")[1]
