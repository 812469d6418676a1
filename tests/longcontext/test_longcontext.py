"""Asking a language model RULER: what is stored, what is asked again, and what rows come of it."""

from __future__ import annotations

import errno
import json
import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paced import wait_for
from toy_reader import EVALUATION, SINGLE, Saying, asked, knows, near, run
from toy_ruler import hotpot_file

from levelfield.cli import app, ruler_command
from levelfield.files import locked
from levelfield.longcontext import answers, model_record, runner
from levelfield.longcontext.answers import predictions
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.predictions import PREDICTIONS, LeftOut, Prediction, settings_of
from levelfield.longcontext.rows import middle_gaps, rows, score_cells
from levelfield.longcontext.runner import evaluate
from levelfield.report import longcontext as context
from levelfield.ruler import RULER, Bytes, Needle, Sources, generate, named, score
from levelfield.ruler.early_stop import is_final
from levelfield.spec import Row, UserError
from levelfield.spec.gap import Gap, Share


def test_a_reader_that_finds_every_needle_has_full_scores(tmp_path: Path) -> None:
    asked(knows, tmp_path)
    found = predictions(tmp_path)
    assert len(found) == 16
    assert all(p.text.strip().split()[0] in p.references for p in found)
    table = {(r["task"], r["at"], r["metric"]): r["value"] for r in map(dict, rows(found, "m"))}
    assert table["niah_single_1", "length=700", "accuracy"] == 100
    assert table["niah_single_1", "length=1000", "strict_accuracy"] == 100


def test_the_middle_gap_is_outer_thirds_less_the_middle_one() -> None:
    def told(index: int, depth: float, right: bool) -> Prediction:
        kept = settings_of(SINGLE)
        said = "77" if right else "no"
        return Prediction("k", SINGLE.name, kept, 64, index, "sound", "base", 0, 9, 1, (depth,), {}, ("77",), said)

    places = {0.1: True, 0.2: True, 0.4: False, 0.5: True, 0.6: False, 0.9: True, 1.0: False}
    found = [told(index, depth, right) for index, (depth, right) in enumerate(places.items())]
    made = rows(found, "m")
    (gap,) = [dict(r) for r in made if r.get("metric") == "middle_gap"]
    assert middle_gaps(score_cells(found)) == {(SINGLE.name, 64): Gap(Share(3 / 4, 4, 4), Share(1 / 3, 3, 3))}
    assert gap["value"] == pytest.approx(100 * (3 / 4 - 1 / 3))
    assert gap["stderr"] == pytest.approx(100 * ((0.25 / 4) + (1 / 3) / 3) ** 0.5)


def test_generation_stops_where_the_score_is_settled(tmp_path: Path) -> None:
    asked(knows, tmp_path)
    for p in predictions(tmp_path):
        assert p.made <= len(p.references[0]) + 3


def test_depths_are_told_apart(tmp_path: Path) -> None:
    evaluation = Evaluation((SINGLE,), (900,), count=4, depths=(0.0, 1.0))
    asked(near, tmp_path, evaluation)
    table = {r.get("at"): r.get("value") for r in rows(predictions(tmp_path), "m") if r.get("metric") == "accuracy"}
    assert table == {"length=900": 50.0, "length=900,depth=0": 0.0, "length=900,depth=1": 100.0}


def test_a_chosen_depth_keeps_its_name_and_leaves_the_whole_alone(tmp_path: Path) -> None:
    """Needles go to the nearest sentence end; those at depths of their own make the cell of the length."""
    essay = Needle()
    asked(near, tmp_path, Evaluation((essay,), (900,), count=3, depths=(0.2, 0.9)))
    found = predictions(tmp_path)
    assert {p.depths[0] for p in found} != {0.2, 0.9}
    asked(lambda prompt: "", tmp_path, Evaluation((essay,), (900,), count=5))
    table = {r.get("at"): r.get("value") for r in rows(predictions(tmp_path), "m") if r.get("metric") == "accuracy"}
    assert table == {"length=900": 0.0, "length=900,depth=0.2": 0.0, "length=900,depth=0.9": 100.0}


def test_what_is_stored_is_not_asked_again(tmp_path: Path) -> None:
    first = asked(knows, tmp_path, Evaluation((SINGLE,), (700,), count=3))
    more = asked(knows, tmp_path, Evaluation((SINGLE,), (700,), count=5))
    assert (first.prompts, more.prompts) == (3, 2)
    assert asked(knows, tmp_path, Evaluation((SINGLE,), (700,), count=5)).prompts == 0
    keys = [p.key for p in predictions(tmp_path)]
    assert len(set(keys)) == len(keys) == 5


@pytest.mark.parametrize("cut", [1, 40, 300])
def test_a_line_that_a_kill_cut_off_is_asked_again(cut: int, tmp_path: Path) -> None:
    asked(knows, tmp_path)
    path = tmp_path / PREDICTIONS
    whole = path.read_text()
    path.write_text(whole[:-cut])
    again = asked(knows, tmp_path)
    assert again.prompts >= 1
    assert sorted(path.read_text().splitlines()) == sorted(whole.splitlines())


def test_a_baseline_that_a_kill_cut_off_is_stored_again(tmp_path: Path) -> None:
    evaluation = Evaluation((SINGLE,), (700,), count=2)
    asked(knows, tmp_path, evaluation)
    path = tmp_path / answers.BASELINES
    path.write_text(path.read_text()[:-20])
    asked(knows, tmp_path, replace(evaluation, count=3))
    assert {row.get("n") for row in answers.baseline_rows(tmp_path)} == {3}


@pytest.mark.parametrize("logit", [float("nan"), float("inf")])
def test_logits_that_are_no_numbers_are_said_so(tmp_path: Path, logit: float) -> None:
    asked(knows, tmp_path, Evaluation((SINGLE,), (700,), count=2), logit=logit)
    found = predictions(tmp_path)
    assert [(p.status, p.text, p.made) for p in found] == [("diverged", "", 0)] * 2
    made = rows(found, "m")
    assert {r.get("status") for r in made} == {"diverged"}
    assert {r.get("value") for r in made} == {None}
    assert {r.get("n") for r in made if "depth" not in r.get("at", "")} == {2}


def test_nothing_counts_of_an_answer_that_ended_in_no_numbers(tmp_path: Path) -> None:
    asked(knows, tmp_path, Evaluation((SINGLE,), (700,), count=2))
    found = predictions(tmp_path)
    assert {r.get("value") for r in rows(found, "m")} == {100.0}
    broken = [replace(found[0], status="diverged"), found[1]]
    assert {r.get("value") for r in rows(broken, "m") if "depth" not in r.get("at", "")} == {50.0}


def test_a_reader_of_nothing_scores_nothing_and_a_parrot_only_by_the_lenient_score(tmp_path: Path) -> None:
    asked(lambda prompt: "", tmp_path / "a")
    assert {r.get("value") for r in rows(predictions(tmp_path / "a"), "m")} == {0.0}
    task = Needle(haystack="needles")
    evaluation = Evaluation((task,), (700,), count=4)
    asked(lambda prompt: " ".join(re.findall(r"\d{7}", prompt)), tmp_path / "b", evaluation)
    found = predictions(tmp_path / "b")
    first = [p for p in found if not p.text.strip().startswith(p.references[0])]
    assert first, "some answer must not be the first number"
    assert all(score(p.ruler_task, p.text, p.references).strict == 0 for p in first)
    assert all(score(p.ruler_task, p.text, p.references).match == 1 for p in first)


def test_damaged_predictions_and_another_model_are_refused(tmp_path: Path) -> None:
    (tmp_path / PREDICTIONS).write_text('{"key": 3}\n')
    with pytest.raises(UserError, match="is damaged"):
        predictions(tmp_path)
    model_record.claim(tmp_path, model="a", tokenizer="bytes", precision="float32")
    model_record.claim(tmp_path, model="a", tokenizer="bytes", precision="float32")
    with pytest.raises(UserError, match="another model"):
        model_record.claim(tmp_path, model="b", tokenizer="bytes", precision="float32")


def told(name: str, text: str, index: int = 0) -> Prediction:
    task = named(name)
    kept = settings_of(task)
    version = task.version("sound")
    return Prediction(name, name, kept, 64, index, "sound", "base", 0, 9, 1, (), {}, ("12", "34"), text, "ok", version)


def test_the_error_of_the_average_is_over_samples_and_not_over_tasks() -> None:
    """With one of two samples right in every task, tasks do not differ; 26 samples of 0 or 100 do."""
    found = [told(task.name, text, i) for task in RULER for i, text in enumerate(("12 34", ""))]
    row = next(r for r in rows(found, "m") if r.get("task") == "ruler_average" and r.get("metric") == "accuracy")
    assert (row.get("value"), row.get("n")) == (50, 26)
    assert row.get("stderr") == pytest.approx(50 / len(RULER) ** 0.5)  # a task's mean of two has 50
    single = [row for row in rows(found[::2], "m") if row.get("task") == "ruler_average"]
    assert [row.get("n") for row in single] == [13, 13] and not any("stderr" in row for row in single)


def test_the_average_is_of_all_thirteen_or_absent() -> None:
    names = [task.name for task in RULER]
    found = [told(name, "12 34" if i % 2 else "12") for i, name in enumerate(names)]
    scores = [score(p.ruler_task, p.text, p.references).match for p in found]
    table = {(r["task"], r["metric"]): r["value"] for r in map(dict, rows(found, "m"))}
    assert table["ruler_average", "accuracy"] == pytest.approx(100 * fmean(scores))
    assert ("ruler_average", "accuracy") not in {(r.get("task"), r.get("metric")) for r in rows(found[:-1], "m")}

    def worst(rows: Sequence[Row]) -> set[str]:
        return {r.get("status", "") for r in rows if r.get("task") == "ruler_average"}

    left = [LeftOut(names[3], 64, 1, "sound", "base", 0, "it does not fit")]
    assert worst(rows(found, "m")) == {"ok"} and worst(rows(found, "m", left)) == {"partial"}
    found[5] = replace(found[5], status="diverged")
    assert worst(rows(found, "m", left)) == {"diverged"}


@settings(max_examples=300, deadline=None)
@given(st.text("12 aband.,\n-", max_size=12), st.text("12 aband.,\n-", max_size=8))
def test_a_final_score_stays(text: str, more: str) -> None:
    """Whatever is generated after, both scores are the same."""
    cases = [("niah_single_1", ("12",)), ("niah_multiquery", ("12", "2")), ("qa_1", ("ab",)), ("cwe", ("ab", "a"))]
    for name, references in cases:
        if is_final(named(name), text, references):
            assert score(name, text, references) == score(name, text + more, references)


def test_a_score_becomes_final() -> None:
    assert is_final(named("niah_single_1"), " 7319284. T", ("7319284",))
    assert not is_final(named("niah_single_1"), " 7319284", ("7319284",))
    assert not is_final(named("niah_single_1"), " 7319285. The", ("7319284",))
    assert is_final(named("qa_1"), " in May\nQ", ("May",))


def test_the_command_writes_rows_and_figures_and_scores_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--lengths", "700,900", "--tasks", "niah_single_1", "--count", "3")
    run(monkeypatch, tmp_path, *words)
    assert "100.0" in capsys.readouterr().out
    report = tmp_path / "report" / "ruler-model"
    assert {p.name for p in report.iterdir()} >= {"rows.csv", "summary.md", "tasks.png", "depth.png"}
    assert "| niah_single_1 | 100.0 (100.0) | 100.0 (100.0) |" in (report / "summary.md").read_text()
    assert "guess, mean of the tasks" in (report / "summary.md").read_text()
    place = tmp_path / "runs" / "ruler" / "model" / PREDICTIONS
    lines = [json.loads(line) | {"text": "nothing"} for line in place.read_text().splitlines()]
    place.write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(ruler_command, "load", lambda *_: pytest.fail("no model is needed"))
    app.main(
        [
            "ruler",
            "some/model",
            "--runs-dir",
            str(tmp_path / "runs"),
            "--report-dir",
            str(tmp_path / "report"),
            "--rescore",
            *words,
        ]
    )
    assert "| niah_single_1 | 0.0 (0.0) | 0.0 (0.0) |" in (report / "summary.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--tasks", "niah_singel_1"), "niah_single_1"),
        (("--tasks", "qa_1"), "add --squad FILE"),
        (("--tasks", "walk"), "did you mean 'walks'?"),
        (("--lengths", "4kb"), "--lengths '4kb' is no whole number"),
        (("--lengths", "40"), "length"),
        (("--variant", "pure"), "no variant 'pure'"),
        (("--template", "meta-llama4"), "did you mean 'meta-llama3'"),
        (("--template", "ours"), "qwen2_instruct, own."),
        (("--rescore",), "no predictions"),
        (("--tasks", "vt", "--depths", "0.5"), "Depths are of needle tasks"),
        (("--tasks", "niah_single_1", "--depths", "2"), "--depths '2' is no number from 0 to 1"),
        (("--count", "0"), "--count 0 is out of range: give a whole number from 1 to"),
        (("--lengths", "10,900"), "A length of 10 has no room"),
        (("--lengths", "0"), "is out of range"),
        (("--lengths", "900,1000000"), "takes at most 20000 tokens"),
        (("--tasks", "vt", "--lengths", "300"), "No prompt fits. The smallest prompt takes"),
        (("--essays", "no/essays"), "no/essays does not exist"),
        (("--tasks", "cwe", "--words", "no/words"), "no/words does not exist"),
        (("--tasks", "qa_1", "--squad", "no.json"), "no.json does not exist"),
    ],
)
def test_bad_words_are_one_sentence_and_code_2(
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        run(monkeypatch, tmp_path, *words)
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_the_summary_shows_what_the_middle_loses() -> None:
    row = Row(task="a", model="m", at="length=64", value=12.0)
    rows_ = [row | Row(metric="accuracy"), row | Row(metric="strict_accuracy")]
    text = context.summary(context.Part("", rows_, [], {("a", 64): Gap(Share(0.9, 20, 20), Share(0.6, 10, 10))}))
    assert "| a | 64 | +30.0 (-0.7 to +59.6) |" in text
    text = context.summary(context.Part("", rows_, [], {("a", 64): Gap(Share(1.0, 20, 20), Share(1.0, 10, 10))}))
    assert "| a | 64 | +0.0 (-16.1 to +27.8) |" in text, "all found, yet not known exactly"


def test_samples_at_depths_begin_alike() -> None:
    """So that generation reads their beginnings once."""
    evaluation = Evaluation((SINGLE,), (900,), count=1, depths=(0.5, 1.0))
    ((_, _, samples),) = evaluation.groups(Bytes())
    first, second = (s.ids.tolist() for s in samples)
    alike = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    assert alike > 300
    assert next(iter(generate(SINGLE, 900, Bytes(), count=1))).references == samples[0].references


def test_cells_that_do_not_fit_are_left_out_and_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The chain, with its example, takes more than 700 bytes."""
    words = ("--lengths", "700,1500", "--tasks", "vt,niah_single_1", "--count", "2")
    run(monkeypatch, tmp_path, *words)
    assert "Left out of vt at 700: 2 samples. The smallest prompt takes" in capsys.readouterr().out
    folder = tmp_path / "runs" / "ruler" / "model"
    table = {(r["task"], r["at"]): r for r in map(json.loads, (folder / "rows.jsonl").read_text().splitlines())}
    assert table["vt", "length=700"]["status"] == "left_out" and "value" not in table["vt", "length=700"]
    assert {table[place]["status"] for place in table if place != ("vt", "length=700")} == {"ok"}
    summary = (tmp_path / "report" / "ruler-model" / "summary.md").read_text()
    assert "| vt | left out | 0.0 (0.0) |" in summary
    run(monkeypatch, tmp_path, *words)
    assert len(answers.left_out(folder)) == 2


def test_of_a_cell_only_the_samples_that_do_not_fit_are_left_out(tmp_path: Path) -> None:
    """Of the questions the first ten fit, whose documents are a little shorter."""
    evaluation = Evaluation(
        (named("qa_2"),), (3180,), 12, flavour="official", sources=Sources(hotpot=hotpot_file(tmp_path))
    )
    left = evaluate(Saying(lambda prompt: ""), Bytes(), [evaluation], tmp_path)
    found = predictions(tmp_path)
    assert sorted(p.index for p in found) == list(range(10))
    assert [one.index for one in left] == [10, 11]
    made = [dict(r) for r in rows(found, "m", left)]
    assert {(r["status"], r["n"], r["value"]) for r in made} == {("partial", 10, 0.0)}
    assert "| qa_2 | 0.0 (0.0) * |" in context.summary(context.Part("", rows(found, "m", left), []))
    answers.leave_out(tmp_path, [evaluation], left)
    answers.leave_out(tmp_path, [evaluation], left[:1])  # made since, with another file
    assert answers.left_out(tmp_path) == left[:1]
    answers.leave_out(tmp_path, [replace(evaluation, seed=1)], left[1:])
    assert answers.left_out(tmp_path) == left


def test_what_the_model_has_no_place_for_is_refused_before_a_prompt_is_read(tmp_path: Path) -> None:
    model = Saying(knows)
    with pytest.raises(UserError, match="give --lengths up to 20000"):
        evaluate(model, Bytes(), [Evaluation((SINGLE,), (700, 20_001), count=1)], tmp_path)
    model.vocabulary = 100
    with pytest.raises(UserError, match=r"The tokenizer bytes gives the id 1\d\d, and saying has only 100"):
        evaluate(model, Bytes(), [EVALUATION], tmp_path)
    assert model.prompts == 0 and predictions(tmp_path) == []


def test_a_disk_that_is_full_is_one_sentence_and_what_was_answered_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether answers, figures or rows find no room."""
    words = ("--lengths", "700", "--tasks", "niah_single_1", "--count", "3")
    folder = tmp_path / "runs" / "ruler" / "model"

    def full(*anything: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    for module, name in ((runner, "append_baselines"), (context, "build"), (ruler_command, "write_rows")):
        with monkeypatch.context() as patch, pytest.raises(SystemExit) as end:
            patch.setattr(module, name, full)
            run(patch, tmp_path, *words)
        assert end.value.code == 2
        assert "No room left in" in capsys.readouterr().err
        assert len(predictions(folder)) == (0 if name == "append_baselines" else 3)  # which comes before the answers
    run(monkeypatch, tmp_path, *words)
    assert len(predictions(folder)) == 3


def test_who_was_refused_has_not_claimed_the_folder(tmp_path: Path) -> None:
    model_record.claim(tmp_path, model="m", tokenizer="a", precision="float32")
    model_record.claim(tmp_path, model="m", tokenizer="b", precision="float32")
    asked(knows, tmp_path)
    with pytest.raises(UserError, match=r"another tokenizer \(b there, a here\)"):
        model_record.claim(tmp_path, model="m", tokenizer="a", precision="float32")


def test_a_second_process_says_that_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs" / "ruler" / "model"
    folder.mkdir(parents=True)
    words = ("--lengths", "700", "--tasks", "niah_single_1", "--count", "2")
    with locked(folder / ".lock"):
        thread = threading.Thread(target=lambda: run(monkeypatch, tmp_path, *words))
        thread.start()
        wait_for(lambda: "Another process is evaluating in" in capsys.readouterr().out)
        assert thread.is_alive() and predictions(folder) == []
    thread.join()
    assert len(predictions(folder)) == 2
