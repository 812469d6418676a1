"""What a report says two arms are told apart by is what its rule needs, of quiet arms and of loud ones."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Hashable, Mapping
from dataclasses import replace
from itertools import combinations

import pytest
from printed_rows import measured
from repository import ROOT, SCRIPTS

from levelfield.report import verdicts
from levelfield.report.decisions import ALPHA, Contrast, Question, Seeds, difference, holm, resolution
from levelfield.report.scatter import Scatter
from levelfield.report.verdicts import Key, Table, power

PAGE = (ROOT / "docs" / "findings.md").read_text()


def test_what_two_arms_are_told_apart_by_is_what_the_rule_decides() -> None:
    """One hair more than the resolution is decided, one hair less is not, also where an arm is louder than all."""
    for deviation in (2.0, 1.0):
        arm = Seeds((48.0, 50.0, 52.0), examples=5_000)
        for questions in (1, 6):
            points = resolution(arm, arm, Scatter(deviation, 12.0), questions)
            for much, answer in ((1.001, 1), (0.97, 0)):
                other = replace(arm, values=tuple(value + much * points for value in arm.values))
                asked = {n: difference(other, arm, 0.0, Scatter(deviation, 12.0)) for n in range(questions)}
                assert set(holm(asked).values()) == {answer}
    assert resolution(arm, Seeds((1.0, 2.0)), Scatter(1.0), 1) == math.inf
    assert resolution(arm, replace(arm, steady=False), Scatter(1.0), 1) == math.inf


def test_the_sentence_goes_from_the_pair_that_needs_least_to_the_one_that_needs_most() -> None:
    cells = {Key("listops", model, "scratch"): ("accuracy", 50.0) for model in ("one", "two")}
    loud = {Key("listops", "loud", "scratch"): ("accuracy", 50.0)}
    quiet = measured(cells, (-0.1, 0.0, 0.1))
    assert re.search(r"differ by [\d.]+ points on listops \(3 seeds\)\.$", power(Table.of(quiet), 1))
    told = power(Table.of([*quiet, *measured(loud, (-2.0, 0.0, 2.0))]), 3)
    said = re.fullmatch(
        r"With 3 questions asked together, two arms are told apart where they differ by ([\d.]+) to ([\d.]+) points on "
        r"listops \(3 seeds\), depending on how much the two scatter\.",
        told,
    )
    assert said and float(said[2]) > 1.5 * float(said[1])


def test_no_pair_that_is_open_on_the_page_differs_by_more_than_its_sentence_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    subjects, words = (importlib.import_module(name) for name in ("findings_subjects", "findings_words"))
    checked = {1: 0, 0: 0}
    for subject in subjects.SUBJECTS:
        found = subjects.answer(subject)
        if subject.paired or not found:
            continue
        table, number = Table.of(found.results.compared), len(found.findings)
        sentence = words.spelt(power(table, number))
        assert PAGE.count(sentence) == 1, f"the page does not say once: {sentence}"
        needs = {
            task: [float(points) for points in re.split(" to ", ends)]
            for ends, task in re.findall(r"([\d.]+(?: to [\d.]+)?) points on ([\w\- ]+) \(", sentence)
        }
        for task in table.tasks:
            least, most = needs[words.named(task)][0], needs[words.named(task)][-1]
            arms = [arm for key, arm in table.cells.items() if key.task == task and len(arm.values) >= 3]
            for one, other in combinations(arms, 2):
                pair = difference(one, other, scatter=table.scatter(task))
                answer = abs(pair.decide(ALPHA / number))
                assert abs(pair.value) >= least - 0.05 if answer else abs(pair.value) <= most + 0.05
        asked: dict[Hashable, Question] = {}

        def noted(questions: Mapping[Hashable, Question], asked: dict[Hashable, Question] = asked) -> dict:
            asked |= questions
            return holm(questions)

        monkeypatch.setattr(verdicts, "holm", noted)
        findings = importlib.import_module(f"levelfield.studies.{found.study.name}").findings(found.results.compared)
        for finding in findings:
            question = asked[finding.subject]
            if isinstance(question, Contrast) and len(question.terms) == 2 and not question._few:
                most = needs[words.named(finding.subject.rpartition(" (")[2].rstrip(")"))][-1]
                checked[abs(finding.decided)] += 1
                assert finding.decided or abs(question.value - question.against) <= most + 0.05, finding.subject
    assert min(checked.values()) > 10
