"""Surveys of language models: the printed tables checked against themselves, evaluations, and ours beside them."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from flat_files import write_model

from levelfield import published
from levelfield.cli import app
from levelfield.longcontext.answers import predictions
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.predictions import PREDICTIONS
from levelfield.longcontext.rows import rows
from levelfield.longcontext.survey import ANATOMY, Checkpoint, Survey
from levelfield.presets.decoders import DECODERS
from levelfield.pretrained.anatomy import layers
from levelfield.report import longcontext as context
from levelfield.report import printed_tables
from levelfield.ruler import RULER
from levelfield.spec import Row
from levelfield.studies import huang2024_needles, huang2024_table1, huang2024_tasks

SURVEYS = {s.name: s for s in (huang2024_table1.survey, huang2024_tasks.survey, huang2024_needles.survey)}
MAMBA, LLAMA = "state-spaces/mamba2-2.7b", "princeton-nlp/Sheared-LLaMA-2.7B"
THREE = ("mamba2_2.7b", "mamba2attn_2.7b", "transformerpp_2.7b")


TABLE1, TASKS, NEEDLES = SURVEYS.values()


def printed(survey: Survey) -> list[Row]:
    return [row for p in survey.published for row in published.rows(p.paper, p.table)]


def disagreeing(survey: Survey) -> set[tuple[str, str, str]]:
    """Table, model and `at` of the printed cells that do not follow from the others as printed."""
    made = {printed_tables.cell_key(row): row.get("value", 0.0) for row in survey.recomputed()}
    values = {printed_tables.cell_key(row): row.get("value", 0.0) for row in printed(survey)}
    assert made.keys() <= values.keys()
    return {(p[0], p[1], p[3]) for p, value in made.items() if abs(value - values[p]) > printed_tables.AGREE}


def test_together_they_answer_to_every_printed_number_of_the_paper() -> None:
    tables = [p.table for survey in SURVEYS.values() for p in survey.published]
    assert sorted(tables, key=int) == ["1", "2", "3", "4", *map(str, range(6, 19))]
    assert sum(len(printed(survey)) for survey in SURVEYS.values()) == len(published.rows("huang2024"))


def test_table_1_follows_from_the_others_and_so_do_all_last_columns_of_tasks() -> None:
    assert disagreeing(SURVEYS["huang2024_table1"]) == set() == disagreeing(SURVEYS["huang2024_tasks"])
    assert len(TABLE1.recomputed()) == 48 and len(TASKS.recomputed()) == 104


def test_of_the_needles_five_averages_and_one_pooled_cell_do_not_follow() -> None:
    averages = {("2", m, "depth=average") for m in THREE} | {("3", m, "depth=average") for m in THREE[:2]}
    assert disagreeing(SURVEYS["huang2024_needles"]) == averages | {("2", "mamba2attn_2.7b", "depth=100")}
    assert len(NEEDLES.recomputed()) == 16 + 18


def marked(survey: Survey) -> dict[str, set[tuple[str, str, str]]]:
    found: dict[str, set[tuple[str, str, str]]] = {}
    for row in printed(survey):
        for sign in survey.marks(row):
            found.setdefault(sign, set()).add((row.get("table", ""), row.get("model", ""), row.get("at", "")))
    assert found.keys() <= survey.legend.keys()
    return found


def test_two_cells_are_of_fewer_samples_and_so_is_the_average_over_them() -> None:
    assert marked(SURVEYS["huang2024_tasks"])["f"] == {(t, "rwkv6_3b", "length=16384") for t in ("14", "16")}
    assert marked(SURVEYS["huang2024_table1"]) == {"f": {("1", "rwkv6_3b", "length=16384")}}


def test_cells_of_one_format_are_multiples_of_one_in_250_and_others_are_not_all() -> None:
    """The arithmetic from which it is inferred which cells are of the repeated lines alone."""
    signs = marked(SURVEYS["huang2024_needles"])
    values = {(r.get("table", ""), r.get("model", ""), r.get("at", "")): r.get("value", 0.0) for r in published.rows()}
    alone = [values[place] for place in signs["r"]]
    assert len(alone) == 2 * 5 * 4 and all(abs(v / 0.4 - round(v / 0.4)) < 1e-6 for v in alone)
    pooled = [values[place] for place in signs["p"]]
    assert all(abs(v * 7.5 - round(v * 7.5)) < 0.04 for v in pooled), "of 750"
    assert any(abs(v / 0.4 - round(v / 0.4)) > 0.01 for v in pooled)
    assert {model for _, model, _ in signs["w"]} == {"recurrentgemma_2b", "recurrentgemma_2b_it"}
    assert signs["a"] == {("2", m, "depth=average") for m in THREE} | {("3", m, "depth=average") for m in THREE[:2]}


def test_exams_are_the_papers() -> None:
    (evaluation,) = TABLE1.evaluations(TABLE1.find(LLAMA), "paper")
    assert (evaluation.tasks, evaluation.lengths, evaluation.count) == (RULER, (1024, 2048, 4096, 8192, 16384), 250)
    assert (evaluation.flavour, evaluation.template, evaluation.seed, evaluation.depths) == (
        "paper",
        "sheared_llama-chat",
        42,
        (),
    )
    assert TASKS.evaluations(TASKS.find(LLAMA), "paper") == (evaluation,)
    (places,) = NEEDLES.evaluations(NEEDLES.find(LLAMA), "paper")
    assert places.lengths == (4096, 8192) and places.prompts == 3 * 7 * 2 * 250
    assert sum(e.prompts for e in NEEDLES.evaluations(NEEDLES.find(MAMBA), "paper")) == 3 * 7 * 2 * 250 + 3 * 3 * 250
    templates = {c.printed: TABLE1.evaluations(c, "paper")[0].template for c in TABLE1.checkpoints}
    assert templates["rwkv6_3b"] == "RWKV" and templates["recurrentgemma_2b_it"] == "base"


@pytest.mark.parametrize("name", ["mamba2-2.7b", "models/Mamba2-2.7B/", MAMBA, "mamba2-2.7b-published-bug"])
def test_a_printed_model_is_known_by_its_name_wherever_it_lies(name: str) -> None:
    assert TABLE1.find(name).printed == "mamba2_2.7b"
    assert TABLE1.find(f"{name}x").printed == ""


def test_a_printed_model_is_recognised_by_what_it_is_made_of() -> None:
    """By layers and size, whatever the folder is called; a name chooses between models that are built alike."""
    mamba, llama = TABLE1.find(MAMBA), TABLE1.find(LLAMA)
    made = mamba.layers, mamba.parameters
    assert TABLE1.recognise("mamba2-2.7b", *made) == TABLE1.recognise("a-copy", *made) == mamba
    assert TABLE1.recognise("mamba2-2.7b", "attention x 5", 230_976).printed == ""
    assert TABLE1.recognise("mamba2-2.7b", mamba.layers, 1_300_000_000).printed == ""
    assert TABLE1.recognise("mamba2-2.7b", "", 0).printed == "", "nothing is known of it"
    assert TABLE1.recognise("Sheared-LLaMA-2.7B", llama.layers, llama.parameters) == llama
    tuned = TABLE1.recognise("Sheared-LLaMA-2.7B-ShareGPT", llama.layers, llama.parameters)
    assert tuned.printed == "sheared_llama_2.7b_sharegpt"
    assert TABLE1.recognise("some-llama", llama.layers, llama.parameters).printed == "", "which of the two is unknown"


def rwkv6_parameters(depth: int, width: int, hidden: int, vocabulary: int, mix: int, decay: int) -> int:
    """Counted by hand from peng2024: time mix, channel mix and two norms a layer, and the embedding twice."""
    time = 5 * width**2 + 2 * width * 5 * mix + 2 * width * decay + 6 * width + 2 * width + 2 * width
    channel = 2 * width * hidden + width**2 + 2 * width
    return depth * (time + channel + 4 * width) + 2 * vocabulary * width + 2 * width


def test_the_printed_models_are_as_large_as_their_architectures() -> None:
    sizes = {d.source: (layers(d.model), d.parameters) for d in (make() for make in DECODERS)}
    known = {c.source: (c.layers, c.parameters) for c in TABLE1.checkpoints}
    assert {source: known[source] for source in sizes} == sizes
    assert known["google/recurrentgemma-2b-it"] == sizes["google/recurrentgemma-2b"]
    assert known["princeton-nlp/Sheared-LLaMA-2.7B-ShareGPT"] == sizes["princeton-nlp/Sheared-LLaMA-2.7B"]
    rwkv = known["RWKV/rwkv-6-world-3b-v2.1"]
    assert rwkv == ("rwkv6 x 32, rwkv6_channel x 32", rwkv6_parameters(32, 2560, 8960, 65536, 32, 64))


def test_printed_names_are_those_of_the_tables() -> None:
    names = {row.get("model") for row in published.rows("huang2024")}
    assert {c.printed for c in TABLE1.checkpoints} == names


def measured(task: str, at: str, value: float, stderr: float = 1.0) -> Row:
    return Row(task=task, at=at, metric="accuracy", value=value, stderr=stderr, n=4, model="mine")


def test_averages_are_over_the_same_tasks_on_both_sides() -> None:
    mamba = TABLE1.find(MAMBA)
    rows = [measured("niah_single_1", "length=1024", 10), measured("qa_1", "length=1024", 30, stderr=2.0)]
    (answer,) = TABLE1.answers(mamba, [*rows, measured("qa_1", "length=1024,depth=0.5", 77)])
    assert answer.row.get("value") == 20 and answer.row.get("stderr") == pytest.approx(5**0.5 / 2)
    assert answer.label == "ours, 2 of 13 tasks" and answer.printed == pytest.approx((66.8 + 25.2) / 2)
    whole = [measured(t.name, f"length={n}", 50) for t in RULER for n in (1024, 2048, 4096, 8192, 16384)]
    found = {a.row.get("at"): (a.label, a.printed) for a in TABLE1.answers(mamba, whole)}
    assert found["length=1024"] == ("ours", pytest.approx(38.52, abs=0.01))
    assert found["length=average"] == ("ours", pytest.approx(18.2, abs=0.01))
    assert "length=average" not in {a.row.get("at") for a in TABLE1.answers(mamba, whole[:-1])}


def places(model: str, table: str, length: int) -> dict[tuple[str, str], tuple[float, float | None]]:
    """Ours in a table, from scores of 0 among repeated lines and 90 and 60 among essays."""
    values = {"niah_single_1": 0.0, "niah_single_2": 90.0, "niah_single_3": 60.0}
    depths = (0, 0.2, 0.4, 0.5, 0.6, 0.8, 1)
    rows = [measured(t, f"length={length},depth={d:g}", v) for t, v in values.items() for d in depths]
    found = NEEDLES.answers(NEEDLES.find(model), rows)
    mine = [a for a in found if a.row.get("table") == table]
    return {(a.label, a.row.get("at", "")): (a.row.get("value", 0.0), a.printed) for a in mine}


def test_cells_of_repeated_lines_alone_are_compared_with_ours_of_those_alone() -> None:
    mamba, llama = places(MAMBA, "2", 2048), places(LLAMA, "2", 4096)
    assert mamba["ours at 2048", "depth=20"] == (50, 31.47)
    assert mamba["ours at 2048", "depth=average"] == (50, pytest.approx(42.86, abs=0.01))
    assert llama["ours at 4096", "depth=20"] == (50, None)
    assert llama["ours at 4096, repeated lines", "depth=20"] == (0, 99.6)
    assert llama["ours at 4096", "depth=50"] == (50, 100)
    assert ("ours at 4096, repeated lines", "depth=50") not in llama
    assert places(MAMBA, "3", 2048) == {}


def test_a_model_that_no_table_has_stands_by_itself_at_its_shortest_length() -> None:
    assert places("mine", "2", 512)["ours at 512", "depth=20"] == (50, None)
    assert places("mine", "4", 512)["ours", "length=512;depth=100"][1] is None


def test_a_sheet_shows_print_check_sign_ours_and_difference() -> None:
    survey = SURVEYS["huang2024_table1"]
    rows = [measured(t.name, f"length={n}", 30) for t in RULER for n in (1024, 512)]
    answers = TABLE1.answers(TABLE1.find(MAMBA), rows) + TABLE1.answers(Checkpoint("", "x"), rows)
    recomputed = {printed_tables.cell_key(r): r.get("value", 0.0) for r in TABLE1.recomputed()}
    recomputed["1", "rwkv6_3b", "ruler_average", "length=1024"] = 1.0
    marks = {printed_tables.cell_key(r): TABLE1.marks(r) for r in printed(survey)}
    data = printed_tables.TableData(
        survey.name,
        survey.claim,
        ("One.",),
        printed(survey),
        recomputed,
        marks,
        TABLE1.legend,
        "length",
        answers,
        "No.",
    )
    text = printed_tables.summary(data)
    assert "48 printed cells follow from others; 47 of them agree." in text
    assert "| mamba2_2.7b | printed |  | 38.52 = | 32.91 = |" in text, "512 comes first"
    assert "| mine | ours | 30.0 (19.3 to 43.5) | 30.0 (19.3 to 43.5) |  |" in text
    assert "|  | difference |  | −8.5 |  |" in text
    assert "68.09 ≠ 1.00" in text and "13.81 = [f]" in text
    assert text.count("| difference |") == 1, "a model that no table has is compared with nothing"


def cells_csv(folder: Path, name: str) -> list[dict[str, Any]]:
    return list(csv.DictReader((folder / name).read_text().splitlines()))


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a tiny model was asked all of it at smoke, without the figures that every evaluation draws."""
    folder = tmp_path_factory.mktemp("asked")
    write_model(folder / "tiny", tied=False)
    (folder / "essays.txt").write_text("So it is said. It was a long day by the sea. " * 100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "build", lambda rows, baselines, to: iter(()))
        for name in ("huang2024_table1", "huang2024_needles"):
            words = ["--essays", str(folder / "essays.txt"), "--runs-dir", str(folder / "runs")]
            app.main(["ruler", str(folder / "tiny"), "--table", name, "--effort", "smoke", *words])
    return folder


def test_the_answers_say_what_the_model_is_made_of(asked: Path) -> None:
    """As many parameters as the file has numbers, but for the tables of rotations, which are computed."""
    known = json.loads((asked / "runs" / "ruler" / "tiny" / ANATOMY).read_text())
    weights = write_model(asked / "again", tied=False)
    counted = sum(w.numel() for name, w in weights.items() if not name.startswith("freq_"))
    assert known == {"layers": f"attention x {len(weights['wq'])}", "parameters": counted}


def test_smoke_asks_the_exams_without_the_questions_that_have_no_file(asked: Path) -> None:
    found = predictions(asked / "runs" / "ruler" / "tiny")
    evaluations = [e for s in (TABLE1, NEEDLES) for e in s.evaluations(Checkpoint("", "tiny"), "smoke")]
    without = [
        (t.name, n) for e in evaluations for t in e.tasks_at_depths for n in e.lengths if t.name not in ("qa_1", "qa_2")
    ]
    assert sorted((p.task, p.length) for p in found) == sorted(without)
    assert {(p.flavour, p.template) for p in found} == {("paper", "base")}


def test_every_format_comes_back_at_the_depths_that_were_asked(asked: Path) -> None:
    made = rows(predictions(asked / "runs" / "ruler" / "tiny"), "tiny")
    cells = {(a.row.get("table"), a.row.get("at")) for a in NEEDLES.answers(Checkpoint("", "tiny"), made)}
    assert cells == {("2", f"depth={d}") for d in (0, 50, 100)} | {("3", f"depth={d}") for d in (0, 50, 100)} | {
        ("4", f"length={n};depth={d}") for n in (1024, 2048) for d in (0, 50, 100)
    }


@pytest.mark.parametrize("name", SURVEYS)
def test_reports_have_a_model_that_no_table_has(
    name: str, asked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app.main(["report", name, "--runs-dir", str(asked / "runs"), "--report-dir", str(tmp_path)])
    assert re.search(r"tiny \(paper, base, n=1, essays\.txt [0-9a-f]{8}\)", capsys.readouterr().out)
    assert {p.name for p in (tmp_path / name).iterdir()} >= {"report.html", "summary.md", "cells.csv", "answers.csv"}
    assert len(cells_csv(tmp_path / name, "cells.csv")) == len(printed(SURVEYS[name]))
    assert cells_csv(tmp_path / name, "answers.csv")
    assert "<script" not in (tmp_path / name / "report.html").read_text()


def asked_folder(folder: Path) -> None:
    """Answers once as the paper asked and once with another template."""
    folder.mkdir(parents=True)
    lines = []
    for task in RULER:
        for template in ("base", "RWKV"):
            kept = {"kind": type(task).__name__, **vars(task)}
            about = {"task": task.name, "settings": kept, "length": 1024, "index": 0, "flavour": "paper", "seed": 42}
            about |= {"key": f"{task.name}{template}", "template": template, "tokens": 1, "made": 1, "depths": []}
            about["version"] = task.version("paper")
            lines.append(about | {"slices": {}, "references": ["7"], "text": " 7", "status": "ok"})
    (folder / PREDICTIONS).write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_folder_called_like_a_printed_model_stands_beside_nothing_unless_it_is_that_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs" / "ruler" / "mamba2-2.7b"
    asked_folder(folder)
    words = [
        "report",
        "huang2024_table1",
        "--runs-dir",
        str(tmp_path / "runs"),
        "--report-dir",
        str(tmp_path / "report"),
    ]
    app.main(words)
    said = capsys.readouterr().out
    assert "not beside mamba2_2.7b: what the model is made of is not recorded" in said and "| difference |" not in said
    (folder / ANATOMY).write_text(json.dumps({"layers": "attention x 5", "parameters": 230_976}))
    app.main(words)
    said = capsys.readouterr().out
    assert "230,976 parameters in attention x 5 instead of 2,702,599,680 in mamba2 x 64" in said
    assert "| difference |" not in said


def test_only_answers_in_the_papers_way_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a printed model, asked once as the paper did and once with another template."""
    folder, made = tmp_path / "runs" / "ruler" / "mamba2-2.7b", TABLE1.find(MAMBA)
    asked_folder(folder)
    (folder / ANATOMY).write_text(json.dumps({"layers": made.layers, "parameters": made.parameters}))
    app.main(
        ["report", "huang2024_table1", "--runs-dir", str(tmp_path / "runs"), "--report-dir", str(tmp_path / "report")]
    )
    said = capsys.readouterr().out
    assert "| mamba2-2.7b (paper, base, n=1) | ours | 100.0 (77.2 to 100.0) |" in said
    assert "| mamba2-2.7b (paper, RWKV, n=1) | ours | 100.0 (77.2 to 100.0) |" in said
    assert said.count("| difference | +61.5 |") == 1
    app.main(["plan", "huang2024_table1", "--runs-dir", str(tmp_path / "runs"), "--filter", "*/mamba2-*"])
    said = capsys.readouterr().out
    assert "13 of 16,250 answers are there" in said
    assert f"levelfield ruler {MAMBA} --table huang2024_table1 --tokenizer EleutherAI/gpt-neox-20b --squad" in said


def test_the_commands_of_a_plan_are_understood(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """And ask the very evaluations that were planned."""
    from levelfield.cli import ruler_command

    asked: list[tuple[str, tuple[Evaluation, ...]]] = []

    def evaluate(who: Any, evaluations: tuple[Evaluation, ...], *rest: Any, **by: Any) -> bool:
        asked.append((who.name, evaluations))
        return True

    monkeypatch.setattr(ruler_command, "evaluate", evaluate)
    for name, survey in SURVEYS.items():
        app.main(["plan", name])
        lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("  levelfield ")]
        assert len(lines) == 8 + 1  # one of them is asked with its bug, too
        asked.clear()
        for words in lines:
            app.main(words[1:])
        assert len({model for model, _ in asked}) == 8
        for model, evaluations in asked:
            planned = survey.evaluations(survey.find(model), "paper")
            assert [(e.tasks, e.lengths, e.count, e.depths, e.template) for e in evaluations] == [
                (e.tasks, e.lengths, e.count, e.depths, e.template) for e in planned
            ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "huang2024_table1"), "trains nothing"),
        (("ruler", "x", "--table", "demo"), "trains its models"),
        (("ruler", "x", "--table", "huang2024_table1", "--tasks", "vt"), "leave out --tasks"),
        (("plan", "huang2024_table1", "--filter", "gpt*"), "no model that matches"),
    ],
)
def test_bad_words_are_one_sentence(words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        app.main(list(words))
    assert end.value.code == 2
    assert message in capsys.readouterr().err
