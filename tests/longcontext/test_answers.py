"""Stored answers: which of them count, when prompts have changed since or several flavours were asked."""

from __future__ import annotations

import errno
import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from toy_reader import SINGLE, Saying, asked, knows, run

from levelfield.cli import app, ruler_command
from levelfield.files import write_json
from levelfield.longcontext import model_record, runner
from levelfield.longcontext.answers import Answers, predictions
from levelfield.longcontext.bill import Bill
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.predictions import PREDICTIONS, Prediction
from levelfield.longcontext.rows import by_setting, rows
from levelfield.longcontext.served.lengths import Approximate
from levelfield.report import heatmaps
from levelfield.report import longcontext as context
from levelfield.ruler import TEMPLATES, Bytes, Needle, Sources, generate, named
from levelfield.spec import Row, UserError


def test_models_that_differ_only_far_from_the_ends_of_a_file_are_two(tmp_path: Path) -> None:
    """As two that were trained further from one checkpoint, without its embedding and head."""
    whole, marks = bytes(range(256)) * 16_384, []
    for name, content in (("a", whole), ("b", whole[:1_500_000] + bytes(200_000) + whole[1_700_000:])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(content)
        marks.append(model_record.fingerprint(tmp_path / name))
    assert marks[0] != marks[1] and marks[0] == model_record.fingerprint(tmp_path / "a")
    folder = tmp_path / "answers"
    folder.mkdir()
    (folder / PREDICTIONS).write_text("{}\n")
    older = marks[0].partition("+")[0]  # as a folder has it that was begun before
    write_json(folder / model_record.MODEL, {"model": older, "tokenizer": "bytes", "precision": "float32"})
    model_record.claim(folder, model=marks[0], tokenizer="bytes", precision="float32")
    with pytest.raises(UserError, match="another model"):
        model_record.claim(folder, model=marks[1], tokenizer="bytes", precision="float32")


def test_answers_to_an_earlier_version_are_marked_until_they_are_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of three prompts has changed since: that one is read again, and its old answer counts no more."""
    words = ("--lengths", "2600", "--tasks", "vt", "--count", "3")
    run(monkeypatch, tmp_path, *words, says=lambda prompt: "VAR")
    path = tmp_path / "runs" / "ruler" / "model" / PREDICTIONS
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line.pop("version") for line in lines] == [2, 2, 2]
    lines[1] |= {"key": "of another prompt", "text": " ".join(lines[1]["references"])}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = rows(predictions(path.parent), "m")
    assert {r.get("status") for r in before} == {"outdated"} and dict(before[0])["value"] == pytest.approx(100 / 3)
    run(monkeypatch, tmp_path, *words, "--rescore")
    assert "3 answers of vt are to prompts of an earlier version of it: run again" in capsys.readouterr().out
    assert "†" in (tmp_path / "report" / "ruler-model" / "summary.md").read_text()
    model = asked(lambda prompt: "VAR", path.parent, Evaluation((named("vt"),), (2600,), count=3))
    assert model.prompts == 1
    after = rows(predictions(path.parent), "m")
    assert {(r.get("status"), r.get("n"), r.get("value")) for r in after} == {("ok", 3, 0.0)}
    assert asked(knows, path.parent, Evaluation((named("vt"),), (2600,), count=3)).prompts == 0


def test_a_line_for_which_there_is_no_room_leaves_no_part_of_itself(tmp_path: Path) -> None:
    """The system takes some of the line and then no more, as a full disk does; once there is room, all goes on."""
    resource = pytest.importorskip("resource", reason="this system does not limit the size of files")
    samples = generate(SINGLE, 700, Bytes(), count=3)
    one, two, three = (Prediction.of(s, SINGLE, text="7", made=1, status="ok") for s in samples)
    answers = Answers(tmp_path)
    answers.append(one)
    size, (soft, hard) = (tmp_path / PREDICTIONS).stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, hard))
    try:
        with pytest.raises(OSError) as stop:
            answers.append(two)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert stop.value.errno == errno.EFBIG
    assert (tmp_path / PREDICTIONS).stat().st_size == size
    answers.append(three)
    answers.append(two)
    assert [p.index for p in predictions(tmp_path)] == [0, 2, 1]


def test_other_texts_take_the_place_of_the_first_ones_and_give_it_back(tmp_path: Path) -> None:
    """A cell holds every sample once, whichever essays were asked last."""
    here = Evaluation((Needle(),), (900,), count=3)
    asked_first = asked(knows, tmp_path, here).prompts
    names = []
    for folder, sentence in (("a", "They walked to the sea. It was a long way back. "), ("b", "It rained for weeks. ")):
        other = tmp_path / folder / "other.txt"
        other.parent.mkdir()
        other.write_text(sentence * 400)
        there = replace(here, sources=Sources(essays=str(other)))
        assert asked(knows, tmp_path, there).prompts == asked_first == 3
        (name,) = {str(p.slices["essays"]) for p in predictions(tmp_path)}
        names.append(name)
    assert names[0] != names[1], "files of one name, but not of one text"
    assert all(name.startswith("other.txt ") for name in names)
    assert asked(knows, tmp_path, here).prompts == 0
    assert {p.slices["essays"] for p in predictions(tmp_path)} == {"emerson"}
    assert {r.get("n") for r in rows(predictions(tmp_path), "m") if r.get("at") == "length=900"} == {3}


def test_a_prompt_that_two_flavours_share_is_in_the_cells_of_both(tmp_path: Path) -> None:
    """And is read once."""
    evaluation = Evaluation((SINGLE,), (700,), count=2)
    asked(knows, tmp_path, evaluation)
    path = tmp_path / PREDICTIONS
    kept = [json.loads(line) | {"flavour": "official"} for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in kept))
    assert asked(knows, tmp_path, evaluation).prompts == 0
    assert {k[0]: len(v) for k, v in by_setting(predictions(tmp_path)).items()} == {
        "official": 2,
        "sound": 2,
    }


def test_lengths_beyond_the_positions_run_and_are_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the output, in every row, and at the length in table and figure; also when they are scored again."""
    monkeypatch.setattr(Saying, "made_for", 800)
    words = ("--lengths", "700,900", "--tasks", "niah_single_1", "--count", "2")
    run(monkeypatch, tmp_path, *words)
    said = "model was made for 800 positions: lengths of 900 tokens exceed them."
    assert said in capsys.readouterr().out
    monkeypatch.setattr(Saying, "made_for", None)
    run(monkeypatch, tmp_path, "--rescore")  # with other lengths by default
    assert said in capsys.readouterr().out
    lines = (tmp_path / "runs" / "ruler" / "model" / "rows.jsonl").read_text().splitlines()
    assert {json.loads(line)["positions"] for line in lines} == {800}
    report = tmp_path / "report" / "ruler-model"
    assert "| task | 700 | 900 ‡ |" in (report / "summary.md").read_text()
    assert all(">900 ‡<" in (report / f"{name}.svg").read_text() for name in ("tasks", "depth"))
    assert ">700 ‡<" not in (report / "tasks.svg").read_text()


def test_lengths_beyond_a_table_are_refused_before_weights_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ruler_command, "load", lambda *_: pytest.fail("no weights are needed"))
    monkeypatch.setattr(ruler_command, "max_length", lambda choice, out: 800)
    with pytest.raises(SystemExit) as end:
        app.main(
            [
                "ruler",
                "some/model",
                "--lengths",
                "700,900",
                "--runs-dir",
                str(tmp_path),
                "--report-dir",
                str(tmp_path / "to"),
            ]
        )
    assert end.value.code == 2 and "give --lengths up to 800" in capsys.readouterr().err


def test_a_length_whose_answers_are_forgotten_needs_positions_for_them(tmp_path: Path) -> None:
    """Prompts of frequent words fill the whole length in `paper`, so that 50 tokens follow."""
    fwe, other = named("fwe"), named("vt")
    plain = Evaluation((fwe, other), (700,), 2)
    forgets = replace(plain, flavour="paper")
    assert [each.longest for each in (plain, forgets, replace(forgets, tasks=(other,)))] == [700, 750, 700]
    runner.check_lengths("m", 700, plain)
    runner.check_lengths("m", 750, forgets)
    with pytest.raises(UserError, match="at a length of 700: give --lengths up to 699, or leave out fwe"):
        runner.check_lengths("m", 749, forgets)
    read = [Bill.of(Approximate(), [replace(each, tasks=(fwe,))], tmp_path).read for each in (plain, forgets)]
    assert read == [2 * (700 - 50), 2 * 700]


def test_one_page_holds_every_flavour_and_nothing_stale_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked in a second flavour, the first one's figures get its name, and no folder of an earlier state is left."""
    words = ("--lengths", "1500", "--tasks", "niah_single_1", "--count", "2")
    run(monkeypatch, tmp_path, *words)
    folder = tmp_path / "report" / "ruler-model"
    first = {path.name for path in folder.iterdir()}
    figures = {"tasks.png", "tasks.svg", "depth.png", "depth.svg"}
    assert first == {"report.html", "rows.csv", "summary.md"} | figures
    assert (folder / "report.html").read_text().count("<svg") == 2
    run(monkeypatch, tmp_path, *words, "--variant", "official")
    assert [path.name for path in (tmp_path / "report").iterdir()] == ["ruler-model"]
    settings = ("sound-base-42", "official-base-42")
    named_ = {f"{Path(name).stem}-{setting}{Path(name).suffix}" for name in figures for setting in settings}
    assert {path.name for path in folder.iterdir()} == {"report.html", "rows.csv", "summary.md"} | named_
    page = (folder / "report.html").read_text()
    assert page.count("<svg") == 4 and all(f"<h2>{setting}</h2>" in page for setting in settings)


def test_panels_have_the_same_depths_a_count_in_every_cell_and_titles_apart() -> None:
    """Depths that one task lacks are empty there, and no title reaches into the next panel's."""
    names = [f"niah_needles_word_uuid_{n}" for n in range(5)]
    rows_ = [
        Row(task=name, model="m", at=f"length={length},depth={depth}", metric="accuracy", value=50.0, n=length // 100)
        for name in names
        for length in (1000, 2000, 4000)
        for depth in (("0", "0.5", "1") if name == names[0] else ("0", "1"))
    ]
    drawing = context.depths(rows_)
    assert drawing is not None
    texts = re.findall(r"translate\(([\d.]+) ([\d.]+)\)[^>]*>([^<]+)</text>", drawing.svg)
    texts += [(x, y, t) for x, y, t in re.findall(r'x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]+)</text>', drawing.svg)]
    shown = [text for _, _, text in texts]
    assert shown.count("0.5") == len(names)
    assert [shown.count(f"n={n}") for n in (10, 20, 40)] == [3 + 2 * 4] * 3
    titles = sorted((float(y), float(x), t) for x, y, t in texts if t.startswith("niah"))
    assert len(titles) == len(names)
    for (y, x, title), (below, right, _) in pairwise(titles):
        assert below > y or right - x > len(title) * 9 * 0.6


def test_help_lists_every_template(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        app.main(["ruler", "--help"])
    shown = capsys.readouterr().out
    assert [name for name in TEMPLATES if name not in shown] == []


def test_panels_of_names_show_their_own_and_long_ones_leave_room() -> None:
    """Models that were measured have no empty lines among the printed ones."""
    long = "a-model (paper, base, n=1) that stands beside nothing, since what it is made of is not recorded"
    grids = {"printed": {("mamba", 1024.0): [1.0]}, "measured": {(long, 1024.0): [2.0], (long, 2048.0): [3.0]}}
    shown = re.findall(r">([^<]+)</text>", heatmaps.draw(grids, "", (0.0, 100.0), "%").svg)
    assert shown.count("mamba") == 1 and shown.count("2048") == 1
    assert not any(len(text) > 60 for text in shown) and any(text.startswith("a-model") for text in shown)


def test_answers_to_other_essays_are_not_averaged_with_these(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three questions in some essays, two are asked in others: rows are of these, until the first are asked."""
    for name in ("rivers", "hills"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(f"The {name} are far away. Nobody goes there today. " * 200)
    folder = tmp_path / "runs" / "ruler" / "model"

    def ask(name: str, *more: str) -> list[tuple[str, int]]:
        words = ("--lengths", "1500", "--tasks", "niah_single_2", "--essays", str(tmp_path / name), *more)
        run(monkeypatch, tmp_path, *words)
        return sorted((p.essays.split()[0], p.index) for p in predictions(folder))

    rivers = ask("rivers", "--count", "3")
    assert rivers == [("rivers", index) for index in range(3)]
    bill = Bill.of(Bytes(), [Evaluation((named("niah_single_2"),), (1500,), 3)], folder)
    assert bill.answered == 0, "questions in the essays that ship are not answered yet"
    assert ask("hills", "--count", "2") == [("hills", 0), ("hills", 1)]
    assert {r.get("n") for r in rows(predictions(folder), "m") if r.get("at") == "length=1500"} == {2}
    lines = len((folder / PREDICTIONS).read_text().splitlines())
    assert ask("rivers", "--count", "3") == rivers
    assert len((folder / PREDICTIONS).read_text().splitlines()) == lines + 2
