"""Records of other evaluators that are not whole are refused before anything is stored, and no sample is lost."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from levelfield.cli import app
from levelfield.longcontext import imported
from levelfield.longcontext.answers import predictions
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.exported import export
from levelfield.ruler import Bytes, named, score
from levelfield.ruler.official.records import records
from levelfield.spec import UserError

RECORD: dict[str, Any] = {"index": 812, "pred": " 7", "input": "One is: 7. What is it?", "outputs": ["7"]}


def written(path: Path, *lines: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def of_ruler(folder: Path, *changed: dict[str, Any], task: str = "niah_single_1") -> Path:
    return written(folder / "4096" / "pred" / f"{task}.jsonl", *({**RECORD, **each} for each in changed))


def exported_doc(folder: Path, task: str = "walks_bfs") -> dict[str, Any]:
    """A sample that levelfield exported."""
    (file,), _ = export(Evaluation((named(task),), (2000,), 1), Bytes(), "jsonl", folder)
    return json.loads(file.read_text())


def of_lm_eval(folder: Path, doc: dict[str, Any]) -> Path:
    return written(folder / "samples_x_2026-11-22T21-30-02.123456.jsonl", {"doc_id": 0, "doc": doc, "resps": [["x 7"]]})


@pytest.mark.parametrize("exported", [True, False])
def test_a_template_that_lm_eval_put_around_prompts_is_a_way_of_its_own(tmp_path: Path, exported: bool) -> None:
    """A log says what was sent. The beginning of the answer behind the prompt is no template."""
    doc = exported_doc(tmp_path, "vt") if exported else {"input": "Long.", "outputs": ["7"], "max_length": 4096}
    base = "base" if exported else "imported"
    sent = {
        doc["input"]: "lm-eval",
        doc["input"] + " The answer is": "lm-eval",
        "<|im_start|>user\n" + doc["input"] + "<|im_end|>\n<|im_start|>assistant\n": "chat-lm-eval",
        json.dumps([{"role": "user", "content": doc["input"]}]): "chat-lm-eval",
    }
    for prompt, source in sent.items():
        for arguments in ({"gen_args_0": {"arg_0": prompt, "arg_1": {"until": []}}}, [[prompt, {"until": []}]]):
            record = {"doc_id": 0, "doc": doc, "resps": [["x 7"]], "arguments": arguments}
            (found,) = imported.read(written(tmp_path / "samples_ruler_vt_2026-11-22T21-30-02.123456.jsonl", record))
            assert found.template == f"{base}-{source}"
            assert imported.sentence([found]) == {found.template: imported.SOURCES[source]}
    (found,) = imported.read(of_lm_eval(tmp_path, exported_doc(tmp_path)))
    assert found.template == "base-lm-eval"


def test_samples_with_one_index_are_all_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RULER writes where a needle's value stands over the number of the sample."""
    monkeypatch.chdir(tmp_path)
    changed = [{"input": f"{'. ' * 10 * i}One is: {i}. What is it?", "outputs": [str(i)]} for i in range(5)]
    path = of_ruler(tmp_path, *changed)
    app.main(["import", str(path), "--model", "m"])
    found = predictions(Path("runs/ruler/m-imported"))
    assert [(p.index, p.references) for p in found] == [(i, (str(i),)) for i in range(5)]
    depths = [p.depths[0] for p in found]
    assert depths == sorted(set(depths)), "the depth is still that of the value in the prompt"
    app.main(["import", str(path), "--model", "m"])
    assert len(predictions(Path("runs/ruler/m-imported"))) == 5


def test_the_last_import_of_a_sample_counts_and_says_what_it_replaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("levelfield.report.longcontext.Part.figures", {})
    asked = [{"input": f"One is: {i}. What is it?", "outputs": [str(i)]} for i in range(5)]
    doc = exported_doc(tmp_path / "export", "niah_single_2")

    def shares(right: bool, count: int) -> tuple[str, dict[str, float]]:
        """Imports so many answers of RULER and one of lm-eval; returns what is said, and how many are right."""
        lines = [each | {"pred": each["outputs"][0] if right else "no"} for each in asked[:count]]
        log = of_lm_eval(tmp_path / "run", doc)
        log.write_text(log.read_text().replace("x 7", doc["outputs"][0] if right else "no"))
        app.main(["import", str(of_ruler(tmp_path / "run", *lines)), str(log), "--model", "m"])
        found = predictions(Path("runs/ruler/m-imported"))
        hits = {
            name: [p.text == p.references[0] for p in found if p.task == name]
            for name in ("niah_single_1", doc["task"])
        }
        return capsys.readouterr().out, {name: sum(each) / len(each) for name, each in hits.items()}

    said, found = shares(right=False, count=5)
    assert set(found.values()) == {0.0} and "the place of" not in said
    said, found = shares(right=True, count=3)
    assert found == {"niah_single_1": 0.6, doc["task"]: 1.0}
    assert "4 answers took the place of an earlier one" in said
    assert "2 earlier answers to other questions of the same tasks and lengths stayed" in said
    said, found = shares(right=True, count=5)
    assert set(found.values()) == {1.0} and "2 answers took" in said and "stayed" not in said
    size = Path("runs/ruler/m-imported/predictions.jsonl").stat().st_size
    said, _ = shares(right=True, count=5)
    assert "took" not in said and Path("runs/ruler/m-imported/predictions.jsonl").stat().st_size == size


def test_files_whose_samples_would_replace_each_other_are_refused(tmp_path: Path) -> None:
    paths = [of_ruler(tmp_path / name, {"outputs": [name], "input": name}) for name in ("1", "2")]
    with pytest.raises(UserError, match=r"answers to two questions as number 0 of niah_single_1 at 4096"):
        imported.read_all(paths)
    assert len(imported.read_all([paths[0], paths[0]])) == 1


def test_a_folder_has_the_answers_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies beside them, such as lm-eval's own results, is left alone."""
    of_ruler(tmp_path / "a" / "off", {})
    of_ruler(tmp_path / "a" / "off", {}, task="niah_single_2")
    written(tmp_path / "a" / "off" / "4096" / "data" / "validation.jsonl", {"input": "x"})
    of_lm_eval(tmp_path / "a" / "lm-eval" / "m", {**exported_doc(tmp_path), "index": 7})
    written(tmp_path / "a" / "lm-eval" / "m" / "results_2026.json", {"results": {}})
    monkeypatch.chdir(tmp_path)
    app.main(["import", "a", "--model", "m"])
    found = predictions(Path("runs/ruler/m-imported"))
    assert sorted((p.task, p.index) for p in found) == [("niah_single_1", 0), ("niah_single_2", 0), ("walks_bfs", 7)]
    monkeypatch.chdir(tmp_path / "a" / "off" / "4096" / "pred")
    assert [path.name for path in imported.files_in(Path())] == ["niah_single_1.jsonl", "niah_single_2.jsonl"]


def test_a_folder_of_exported_lines_is_read_where_answers_were_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--tokenizer", "bytes", "--lengths", "700", "--tasks", "niah_single_1", "--format", "jsonl"]
    app.main(["export", "ruler", *words, "--folder", "e"])
    assert 'answer to each line as "pred", then: levelfield import e --model NAME' in capsys.readouterr().out
    assert "niah_single_1-700.jsonl has exported lines without an answer" in refused(capsys, "import", "e", "--model=m")
    (file,) = Path("e").iterdir()
    docs = [json.loads(line) for line in file.read_text().splitlines()]
    written(file, *(doc | {"pred": doc["outputs"][0]} for doc in docs))
    written(file.with_name("not_asked.jsonl"), docs[0])
    app.main(["import", "e", "--model", "m"])
    assert len(predictions(Path("runs/ruler/m-imported"))) == len(docs)


def test_a_folder_with_nothing_to_read_is_told_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    of_ruler(tmp_path / "off", {})
    Path("empty").mkdir()
    kinds = ("RULER (4096/pred/vt.jsonl)", "lm-eval (samples_", "lighteval (details_", "Inspect (.eval)")
    shown = refused(capsys, "import", "empty", "--model", "m")
    assert "`levelfield export RUN_ID`" in shown and all(kind in shown for kind in kinds)
    shown = refused(capsys, "import", "off", "empty", "--model", "m")
    assert "empty has no answers of RULER" in shown and not Path("runs").exists()
    Path("layers.py").write_text("import torch\n")
    for words in (["layers.py"], ["layers.py", "--model", "m"]):
        shown = refused(capsys, "import", *words)
        assert "layers.py is neither an exported run nor has it answers of RULER" in shown and "damaged" not in shown


def test_the_answers_of_two_models_in_one_folder_are_refused(tmp_path: Path) -> None:
    for name, text in (("a", " 7"), ("b", " 8")):
        of_ruler(tmp_path / name, {"pred": text})
    with pytest.raises(UserError, match=r"different answers to the same question as number 0 of niah_single_1 at 4096"):
        imported.read_all(imported.files_in(tmp_path))
    of_ruler(tmp_path / "b", {"pred": " 7"})
    assert len(imported.read_all(imported.files_in(tmp_path))) == 1


def test_two_answers_of_one_file_to_the_same_question_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where two logs were joined. Two filters of lm-eval log one answer twice, which is none of these."""
    monkeypatch.chdir(tmp_path)
    log = of_lm_eval(tmp_path, exported_doc(tmp_path))
    line = log.read_text()
    for more, said in ((line, False), (line.replace("x 7", "x 8"), True)):
        log.write_text(line + more)
        app.main(["import", str(log), "--model", f"m{said}"])
        (found,) = predictions(Path(f"runs/ruler/m{said}-imported"))
        shown = capsys.readouterr().out
        assert found.text == ("x 8" if said else "x 7")
        assert ("1 answer of these files gave way to a later one" in shown) == said


def test_a_mark_of_the_byte_order_and_blank_lines_are_no_damage(tmp_path: Path) -> None:
    path = of_ruler(tmp_path, {})
    (one,) = imported.read(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n") + b"  \r\n")
    assert imported.read(path) == [one]


def test_a_compressed_file_is_told_so(tmp_path: Path) -> None:
    path = of_ruler(tmp_path, {}).with_suffix(".jsonl.gz")
    path.write_bytes(gzip.compress(b"{}"))
    with pytest.raises(UserError, match="is compressed: unpack it first"):
        imported.read(path)


def test_a_prediction_file_that_does_not_say_all_is_told_the_fix_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    written(Path("vt.jsonl"), RECORD)
    shown = refused(capsys, "import", "vt.jsonl", "--model", "m")
    assert "add --length" in shown and "neither" not in shown and "Error" not in shown
    app.main(["import", "vt.jsonl", "--model", "m", "--length", "4096"])
    written(Path("x.jsonl"), RECORD)
    assert "x.jsonl is called by no task of RULER: rename it" in refused(capsys, "import", "x.jsonl", "--model", "m")
    written(Path("fwe.jsonl"), {"answer": "7"})
    shown = refused(capsys, "import", "fwe.jsonl", "--model", "m")
    assert "neither a prediction file" in shown and "a record lacks 'pred'" in shown and "Error" not in shown


def test_a_length_is_given_where_nothing_says_another(tmp_path: Path) -> None:
    """A folder further up, such as that of a year, says nothing where a length is given."""
    far = written(tmp_path / "2026" / "runs" / "mine" / "vt.jsonl", RECORD)
    near = written(tmp_path / "2026" / "4096" / "vt.jsonl", RECORD)
    theirs = {"input": RECORD["input"], "outputs": ["7"], "max_length": 8192}
    log = written(
        tmp_path / "samples_ruler_vt_2026-11-22T21-30-02.1.jsonl", {"doc_id": 0, "doc": theirs, "resps": [["7"]]}
    )
    ours = of_lm_eval(tmp_path, exported_doc(tmp_path))
    files = {of_ruler(tmp_path / "2026", {}): 4096, near: 4096, log: 8192, ours: 2000}
    assert [found.length for found in imported.read(far, 512)] == [512]
    for path, length in files.items():
        assert [found.length for found in imported.read(path)] == [length]
        assert [found.length for found in imported.read(path, length)] == [length]
        with pytest.raises(UserError, match=f"says that the length is {length}, where --length says 512: leave out"):
            imported.read(path, 512)


def test_minus_one_is_rulers_word_for_a_prompt_of_unknown_length(tmp_path: Path) -> None:
    found = imported.read(of_ruler(tmp_path, {"length": -1}, {"length": 4000}, {}))
    assert [p.tokens for p in found] == [0, 4000 - 128, 0], "a known one counts the answer's tokens too"


def test_an_expected_answer_that_is_a_text_is_one_answer(tmp_path: Path) -> None:
    (found,) = imported.read(of_ruler(tmp_path, {"outputs": "abc", "pred": "a b c"}))
    assert found.references == ("abc",)
    assert score(found.ruler_task, found.text, found.references).match == 0
    doc = exported_doc(tmp_path, "niah_single_1")
    (found,) = imported.read(of_lm_eval(tmp_path, {**doc, "outputs": doc["outputs"][0]}))
    assert found.references == tuple(doc["outputs"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"outputs": []}, "no expected answer"),
        ({"outputs": [""]}, "no expected answer"),
        ({"outputs": None}, "expected answers that are no texts"),
        ({"outputs": [None]}, "expected answers that are no texts"),
        ({"pred": None}, "an answer that is no text"),
        ({"length": "long"}, "not a whole one"),
        ({"length": float("inf")}, "not a whole one"),
        ({"length": -2}, "has the tokens -2"),
    ],
)
def test_a_record_of_ruler_that_is_not_whole_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        app.main(["import", str(of_ruler(tmp_path, {}, change)), "--model", "m"])
    told = capsys.readouterr()
    assert stop.value.code == 2 and said in told.err and told.err.count("\n") == 1
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"outputs": []}, "no expected answer"),
        ({"version": "x"}, "has the version 'x', where a number from 1 should be"),
        ({"index": None}, "has the index None"),
        ({"seed": True}, "has the seed True"),
        ({"slices": "5"}, "slices that are no columns"),
        ({"depths": [2]}, "depths that are no numbers from 0 to 1"),
        ({"template": "../there"}, "the template '../there-lm-eval'"),
        ({"flavour": "sweet"}, "RULER has no variant 'sweet'"),
        ({"task": "walks_bfs@deep"}, "is of the task 'walks_bfs@deep' by its name"),
        ({"settings": '{"kind": "Tally"}', "task": "tallies_count", "outputs": ["many"]}, "cannot be scored"),
        ({"settings": "5"}, "not a whole one"),
        ({"outputs": 3.5, "task": 3}, "a task that is no text"),
    ],
)
def test_an_exported_sample_that_was_changed_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    doc = exported_doc(tmp_path)
    assert len(imported.read(of_lm_eval(tmp_path, doc))) == 1
    with pytest.raises(UserError) as stop:
        imported.read(of_lm_eval(tmp_path, {**doc, **change}))
    assert said in str(stop.value) and "\n" not in str(stop.value)


@pytest.mark.parametrize("task", ["niah_single_2", "walks_bfs"])
def test_exported_lines_with_answers_come_back_as_what_they_are(tmp_path: Path, task: str) -> None:
    """Whatever the file is called: by the name that it was given, or by one of RULER's."""
    doc = exported_doc(tmp_path, task)
    for path in (tmp_path / f"{task}-2000.jsonl", tmp_path / "4096" / "pred" / "vt.jsonl"):
        (found,) = imported.read(written(path, doc | {"pred": "x 7"}))
        same = ("task", "length", "index", "flavour", "seed", "tokens", "version")
        assert {name: getattr(found, name) for name in same} == {name: doc[name] for name in same}
        assert found.depths == tuple(doc["depths"]) and found.references == tuple(doc["outputs"])
        assert (found.template, found.text, found.flavour) == ("base-jsonl", "x 7", "sound")
    assert imported.sentence([found]) == {"base-jsonl": imported.SOURCES["jsonl"]}
    with pytest.raises(UserError, match='lines without an answer: add it to each of them as "pred"'):
        imported.read(written(path, doc))


@pytest.mark.parametrize(
    "spoil",
    [lambda sample: sample.pop("input"), lambda sample: sample.pop("output"), lambda sample: sample.update(output=[])],
)
def test_a_log_of_inspect_that_is_not_whole_is_refused(tmp_path: Path, spoil: Callable[[Any], Any]) -> None:
    doc = exported_doc(tmp_path)
    sample = {"input": doc["input"], "target": doc["outputs"], "metadata": doc, "output": {}}
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"eval": {}, "samples": [sample]}))
    assert len(imported.read(path)) == 1
    spoil(sample)
    path.write_text(json.dumps({"eval": {}, "samples": [sample]}))
    with pytest.raises(UserError, match=r"is no log of Inspect, or not a whole one \("):
        imported.read(path)


def test_a_sample_that_failed_in_inspect_makes_its_cell_partial_until_it_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("levelfield.report.longcontext.Part.figures", {})
    (file,), _ = export(Evaluation((named("walks_bfs"),), (2000,), 3), Bytes(), "jsonl", tmp_path / "tasks")
    docs = [json.loads(line) for line in file.read_text().splitlines()]

    def status(error: Any) -> tuple[set[tuple[Any, Any]], str]:
        """Imports a log whose last sample has this error; returns status and number of its rows, and what is said."""
        samples = [{"input": d["input"], "target": d["outputs"], "metadata": d, "output": {}} for d in docs]
        samples[-1]["error"] = error
        Path("log.json").write_text(json.dumps({"eval": {}, "samples": samples}))
        app.main(["import", "log.json", "--model", "m"])
        found = [json.loads(line) for line in Path("runs/ruler/m-imported/rows.jsonl").read_text().splitlines()]
        of_all = {(row["status"], row["n"]) for row in found if row["at"] == "length=2000" and row["n"]}
        return of_all, capsys.readouterr().out

    for error in ({"message": "time-out\nof a request"}, "time-out"):
        found, said = status(error)
        assert found == {("partial", 2)}
        assert "Left out of walks_bfs at 2000: 1 sample. Inspect has an error in place of an answer (time-out)" in said
    found, said = status(None)
    assert found == {("ok", 3)} and "Left out" not in said


def test_what_a_filter_withheld_in_inspect_is_left_out_and_told(tmp_path: Path) -> None:
    (file,), _ = export(Evaluation((named("walks_bfs"),), (2000,), 2), Bytes(), "jsonl", tmp_path)
    docs = [json.loads(line) for line in file.read_text().splitlines()]
    outputs = [{"choices": [{"message": {"content": "no"}, "stop_reason": why}]} for why in ("content_filter", "stop")]
    samples = [
        {"input": doc["input"], "target": doc["outputs"], "metadata": doc, "output": output}
        for doc, output in zip(docs, outputs, strict=True)
    ]
    log = tmp_path / "log.json"
    log.write_text(json.dumps({"eval": {}, "samples": samples}))
    answered = imported.read(log)
    assert [one.index for one in answered] == [1]
    (left,) = imported.failed([log], answered).left
    assert (left.index, left.why) == (0, "The server's content filter withheld the answer.")


def test_a_damaged_parquet_file_is_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    path.write_bytes(b"PAR1")
    for read in (imported.read, lambda file: records(str(file), (), "data.json")):
        with pytest.raises(UserError) as stop:
            read(path)
        assert "\n" not in str(stop.value) and "SELECT" not in str(stop.value)
