"""Tasks that ask for several needles have rows and a heat map by depth, where every value counts at its own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import pytest
from toy_reader import asked, run

from levelfield.longcontext import imported
from levelfield.longcontext.answers import predictions
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.predictions import Prediction, settings_of
from levelfield.longcontext.rows import failures, middle_gaps, rows, score_cells
from levelfield.report import longcontext
from levelfield.ruler import Bytes, Needle, PromptOptions, RulerTask, Tracking, generate, named, scores_of_references
from levelfield.spec import Row

SEVERAL = [named("niah_multivalue"), named("niah_multiquery")]
VALUES = ("71", "72", "73", "74")


def told(said: str, depths: tuple[float, ...], index: int = 0, task: RulerTask = SEVERAL[0]) -> Prediction:
    kept = settings_of(task)
    return Prediction(
        "k", task.name, kept, 64, index, "sound", "base", 0, 9, 1, depths, {}, VALUES[: len(depths)], said
    )


def by_depth(found: list[Prediction], metric: str = "accuracy") -> dict[str, Row]:
    made = [row for row in rows(found, "m") if row.get("metric") == metric]
    return {row.get("at", "").partition("depth=")[2]: row for row in made if "depth" in row.get("at", "")}


def late(prompt: str) -> str:
    """All values of the keys that are asked for, as far as they stand in the last half of the prompt."""
    asked_for = re.findall(r"magic numbers for ([^?]+?) mentioned in", prompt)
    keys = re.split(r", (?:and )?", asked_for[-1]) if asked_for else []
    half = prompt[len(prompt) // 2 :]
    return " " + ", ".join(value for key in keys for value in re.findall(rf"for {re.escape(key)} is: (\d+)", half))


@pytest.mark.parametrize("task", SEVERAL, ids=lambda task: task.name)
def test_values_in_the_last_half_are_found_and_the_others_are_not(task: Needle, tmp_path: Path) -> None:
    asked(late, tmp_path, Evaluation((task,), (1500,), count=12))
    found = predictions(tmp_path)
    assert {len(p.depths) for p in found} == {4}
    table = by_depth(found)
    assert sum(row.get("n", 0) for row in table.values()) == 48
    assert {table[depth].get("value") for depth in table if float(depth) > 0.65} == {100.0}
    assert {table[depth].get("value") for depth in table if float(depth) < 0.25} == {0.0}
    assert middle_gaps(score_cells(found)) == {}, "values of one question are not independent"
    drawing = longcontext.depths(rows(found, "m"))
    assert drawing is not None and task.name in drawing.alt
    chosen = [replace(p, task=f"{task.name}@0.5", settings=settings_of(replace(task, depth=0.5))) for p in found]
    assert list(by_depth(chosen)) == ["0.5"]


def test_a_value_counts_where_its_own_needle_is_and_errors_are_over_samples() -> None:
    table = by_depth([told("71, 72", (0.12, 0.5, 0.19, 0.9)), told("71 73", (0.15, 0.51, 0.16, 0.99), index=1)])
    shown = {depth: (row.get("value"), row.get("n")) for depth, row in table.items()}
    assert shown == {"0.1": (75.0, 4), "0.5": (50.0, 2), "0.9": (0.0, 2)}
    assert table["0.1"].get("stderr") == pytest.approx(25.0), "of two samples with 50 and 100, not of four values"
    assert table["0.5"].get("stderr") == pytest.approx(50.0)
    (alone,) = {row.get("n") for row in by_depth([told("71", (0.1, 0.1, 0.1, 0.1))]).values()}
    assert alone == 4 and "stderr" not in by_depth([told("71", (0.1, 0.1, 0.1, 0.1))])["0.1"]


def test_the_strict_score_of_a_value_reads_as_many_as_were_asked_for() -> None:
    found = [told("1 2 3 71 72", (0.1, 0.3, 0.5, 0.7))]
    assert [by_depth(found)[d].get("value") for d in ("0.1", "0.3", "0.5")] == [100.0, 100.0, 0.0]
    assert [by_depth(found, "strict_accuracy")[d].get("value") for d in ("0.1", "0.3")] == [100.0, 0.0]
    for said in ("71 72, 73", "7172", "", "74. 74. 73 and 5"):
        whole, each = told(said, (0.1, 0.3, 0.5, 0.7)), scores_of_references(SEVERAL[0], said, VALUES)
        (row,) = [r for r in rows([whole], "m") if r.get("at") == "length=64" and r.get("metric") == "strict_accuracy"]
        assert row.get("value") == 100 * fmean(one.strict for one in each)


def test_the_list_of_failures_has_all_depths_and_leads_to_the_stored_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(monkeypatch, tmp_path, "--tasks", "niah_multivalue", "--lengths", "1500", "--count", "2", says=lambda _: " no")
    report, answers = tmp_path / "report" / "ruler-model", tmp_path / "runs" / "ruler" / "model"
    page = (report / "report.html").read_text()
    for p in predictions(answers):
        assert f">{', '.join(f'{depth:.2f}' for depth in p.depths)}</td>" in page
    (link,) = re.findall('href="([^"]*predictions.jsonl)"', page)
    assert (report / link).resolve() == (answers / "predictions.jsonl").resolve()
    one = replace(told("72", (0.1, 0.3)), reasoning="Well.")
    assert [(f.depth, f.reasoning) for f in failures(score_cells([one]))] == [("0.10, 0.30", "Well.")]


def test_a_chain_of_variables_and_an_answer_without_depths_have_no_rows_by_depth() -> None:
    assert by_depth([told("71", (0.1, 0.2), task=Tracking())]) == {}
    one = told("71", (0.1, 0.2, 0.3, 0.4))
    assert by_depth([one]) and by_depth([one, replace(one, depths=(), index=1)]) == {}


def test_places_of_all_values_are_read_from_rulers_own_prompts(tmp_path: Path) -> None:
    folder = tmp_path / "4096" / "pred"
    folder.mkdir(parents=True)
    made = list(generate(SEVERAL[0], 5000, Bytes(), PromptOptions("official"), count=3))
    docs = [{"index": s.index, "input": s.text, "outputs": list(s.references), "pred": ""} for s in made]
    (folder / "niah_multivalue.jsonl").write_text("".join(json.dumps(doc) + "\n" for doc in docs))
    for p, sample in zip(imported.read(folder / "niah_multivalue.jsonl"), made, strict=True):
        order = sorted(range(4), key=sample.depths.__getitem__)
        assert sorted(range(4), key=p.depths.__getitem__) == order or len(set(sample.depths)) < 4
        assert all(abs(mine - theirs) < 0.3 for mine, theirs in zip(p.depths, sample.depths, strict=True))


def test_the_answers_to_one_sample_at_several_depths_are_no_independent_ones() -> None:
    """Where all depths agree, more of them tell no more; where the depth decides, samples do not differ at all."""

    def cell(right: Callable[[int, float], bool], depths: Sequence[float]) -> Row:
        found = [
            told("71" if right(index, depth) else "", (depth,), index, Needle(haystack="noise", depth=depth))
            for index in range(8)
            for depth in depths
        ]
        return next(row for row in rows(found, "m") if row.get("at") == "length=64")

    one, five = (cell(lambda index, depth: index < 3, depths) for depths in ([0.5], [0.0, 0.25, 0.5, 0.75, 1.0]))
    assert (one.get("value"), one.get("n"), five.get("value"), five.get("n")) == (37.5, 8, 37.5, 40)
    assert one.get("stderr") == pytest.approx(100 * stdev([1] * 3 + [0] * 5) / 8**0.5)
    assert five.get("stderr") == pytest.approx(one.get("stderr"))
    assert cell(lambda index, depth: depth > 0.3, [0.0, 1.0]).get("stderr") == 0.0
