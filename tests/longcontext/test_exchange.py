"""Samples for other evaluators, and the answers that those have stored: nothing changes on the way there and back."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tiny_llama import tiny_checkpoint
from toy_reader import SINGLE, asked, knows

from levelfield.cli import app
from levelfield.longcontext import imported
from levelfield.longcontext.answers import predictions
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.exported import export, scored
from levelfield.ruler import Bytes, Needle, PromptOptions, Tracking, Walk, generate, score
from levelfield.spec import UserError

TASKS = (SINGLE, Needle(values=4), Walk())
EVALUATION = Evaluation(TASKS, (1500,), count=3)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def logged(folder: Path, task: str, docs: list[dict[str, Any]], answers: list[str]) -> Path:
    """Writes a log as lm-evaluation-harness does with --log_samples, letters beyond ASCII as they are."""
    path = folder / f"samples_{task}_2026-11-22T21-30-02.123456.jsonl"
    records = [
        {
            "doc_id": n,
            "doc": doc,
            "target": doc["outputs"],
            "arguments": {},
            "resps": [[text]],
            "filtered_resps": [text],
        }
        for n, (doc, text) in enumerate(zip(docs, answers))
    ]
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    return path


def test_exported_lines_are_the_samples_and_score_as_here(tmp_path: Path) -> None:
    files, left = export(EVALUATION, Bytes(), "jsonl", tmp_path)
    assert left == []
    assert [path.name for path in files] == [f"{task.name}-1500.jsonl" for task in TASKS]
    for task, path in zip(TASKS, files):
        samples = list(generate(task, 1500, Bytes(), count=3))
        assert [(doc["input"], tuple(doc["outputs"])) for doc in lines(path)] == [
            (s.text, s.references) for s in samples
        ]
        for doc in lines(path):
            for said in (" ".join(doc["outputs"]), doc["outputs"][0], "nothing"):
                here = score(task, said, doc["outputs"])
                others = task.other_scores(said, doc["outputs"]) if isinstance(task, Walk) else {}
                assert scored(doc, said) == {"accuracy": here.match, "strict_accuracy": here.strict} | others


def test_answers_to_exported_samples_come_back_as_if_asked_here(tmp_path: Path) -> None:
    (file,), _ = export(Evaluation((SINGLE,), (700,), count=4), Bytes(), "jsonl", tmp_path)
    docs = lines(file)
    path = logged(tmp_path, "levelfield_niah_single_1_700", docs, [knows(doc["input"]) for doc in docs])
    back = imported.read(path)
    asked(knows, tmp_path / "here", Evaluation((SINGLE,), (700,), count=4))
    here = {p.index: p for p in predictions(tmp_path / "here")}
    for p in back:
        same = here[p.index]
        assert (p.ruler_task, p.length, p.references, p.depths, p.tokens, dict(p.slices)) == (
            same.ruler_task,
            same.length,
            same.references,
            same.depths,
            same.tokens,
            dict(same.slices),
        )
        assert p.text.split()[0] == same.text.split()[0]
        assert p.setting != same.setting, "another evaluator's answers are not averaged with ours"


TO_GENERATE = {"niah_single_1": 128, "vt": 30}  # tokens_to_generate in NVIDIA's constants.py, which lm-eval copied


def official(task: Any, count: int = 6) -> list[dict[str, Any]]:
    """Samples as RULER's own generator writes them: `length` counts the prompt and the tokens to generate."""
    made = generate(task, 2048, Bytes(), PromptOptions("official"), count=count)
    return [
        {"index": s.index, "input": s.text, "outputs": list(s.references), "depth": s.depths}
        | {"length": len(s.text.encode()) + TO_GENERATE[task.name]}
        for s in made
    ]


def test_prediction_files_of_ruler_are_read_with_length_and_depth(tmp_path: Path) -> None:
    folder = tmp_path / "model" / "synthetic" / "4096" / "pred"
    folder.mkdir(parents=True)
    docs = official(SINGLE)
    records = [{**doc, "pred": knows(doc["input"]) if doc["index"] else "no", "others": {}} for doc in docs]
    (folder / "niah_single_1.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    found = imported.read(folder / "niah_single_1.jsonl")
    assert [p.length for p in found] == [4096] * 6
    assert [p.tokens for p in found] == [len(doc["input"].encode()) for doc in docs]
    assert [score(p.ruler_task, p.text, p.references).match for p in found] == [0.0, *[1.0] * 5]
    for p, doc in zip(found, docs):
        assert abs(p.depths[0] - doc["depth"][0]) < 0.2  # the instruction and the question count as text here


@pytest.mark.parametrize(("name", "task"), [("niah_single_1", SINGLE), ("ruler_vt", Tracking())])
def test_logs_of_lm_evals_own_tasks_are_read(tmp_path: Path, name: str, task: Any) -> None:
    docs = [{**doc, "max_length": 2048, "gen_prefix": ""} for doc in official(task, 2)]
    path = logged(tmp_path, name, docs, ["\u2028".join(doc["outputs"]) + "\x85" for doc in docs])
    found = imported.read(path)
    assert [(p.task, p.length, p.template) for p in found] == [(task.name, 2048, "imported-lm-eval")] * 2
    assert [p.tokens for p in found] == [len(doc["input"].encode()) for doc in docs]
    assert all(p.text.endswith("\x85") for p in found), "no character ends a line of JSON but a line feed"
    assert all(score(p.ruler_task, p.text, p.references).match == 1 for p in found)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("vt.jsonl", "", "has no answers"),
        ("vt.jsonl", '{"a": 1}', "is neither a prediction file"),
        ("vt.jsonl", '{"a": 1}\nnot JSON', "let the evaluator write it again, or copy it again"),
        ("vt.jsonl", '{"index": 0, "pred": "x", "outputs": ["x"]}', "add --length"),
        ("samples_vt.jsonl", '{"doc_id": 0, "doc": {"outputs": ["x"]}, "resps": [["x"]]}', "does not say its task"),
        (
            "samples_vt_2026-11-22T21-30-02.1.jsonl",
            '{"doc_id": 0, "doc": {"outputs": ["x"]}, "resps": [["x"]]}',
            "add --length",
        ),
        ("4096/pred/nothing.jsonl", '{"index": 0, "pred": "x", "outputs": ["x"]}', "called by no task of RULER"),
    ],
)
def test_files_that_are_something_else_are_said_so(tmp_path: Path, name: str, content: str, said: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content + "\n" * bool(content))
    with pytest.raises(UserError, match=said):
        imported.read(path)


def test_the_commands_write_tasks_and_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--tokenizer", "bytes", "--tasks", "niah_single_1", "--lengths", "700", "--count", "3"]
    app.main(["export", "ruler", *words])
    assert sorted(path.name for path in Path("tasks").iterdir()) == [
        "levelfield_niah_single_1_700.yaml",
        "levelfield_ruler.yaml",
        "levelfield_scores.py",
        "niah_single_1-700.jsonl",
    ]
    assert "levelfield import" in capsys.readouterr().out
    docs = lines(Path("tasks/niah_single_1-700.jsonl"))
    log = logged(tmp_path, "levelfield_niah_single_1_700", docs, [knows(doc["input"]) for doc in docs])
    app.main(["import", str(log), "--model", "org/toy"])
    rows = lines(Path("runs/ruler/toy-imported/rows.jsonl"))
    assert {row["value"] for row in rows if row["metric"] == "accuracy"} == {100.0}
    assert {row["asked"] for row in rows} == {"lm-evaluation-harness, read from its log of samples"}
    assert Path("report/ruler-toy-imported/report.html").exists()


LM_EVAL = all(importlib.util.find_spec(name) for name in ("lm_eval", "datasets", "transformers"))


@pytest.mark.peers
@pytest.mark.skipif(not LM_EVAL, reason="lm-evaluation-harness is not installed: pip install lm_eval")
@pytest.mark.timeout(300)
def test_lm_eval_runs_the_tasks_and_agrees_answer_by_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that knows the answers is asked by lm-eval itself; its log gives the scores that lm-eval counted."""
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    import lm_eval
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    class Knowing(LM):
        def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
            self.given = [r.args for r in requests]
            return [knows(r.args[0]) if r.doc_id % 2 else " no" for r in requests]

        def loglikelihood(self, requests: Any) -> Any: ...

        def loglikelihood_rolling(self, requests: Any) -> Any: ...

    export(Evaluation((SINGLE,), (700,), count=4), Bytes(), "lm-eval", tmp_path / "tasks")
    model = Knowing()
    found = lm_eval.simple_evaluate(
        model=model,
        tasks=["levelfield_ruler"],
        task_manager=TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False),
        log_samples=True,
        bootstrap_iters=0,
    )
    assert found is not None
    name = "levelfield_niah_single_1_700"
    samples = list(generate(SINGLE, 700, Bytes(), count=4))
    assert [args[0] for args in model.given] == [s.text for s in samples], "the very prompts"
    assert {args[1]["max_gen_toks"] for args in model.given} == {128}
    path = tmp_path / f"samples_{name}_2026-11-22T21-30-02.1.jsonl"
    path.write_text("".join(json.dumps(record, default=str) + "\n" for record in found["samples"][name]))
    back = {p.index: p for p in imported.read(path)}
    for record in found["samples"][name]:
        p = back[record["doc"]["index"]]
        assert record["accuracy"] == score(p.ruler_task, p.text, p.references).match == p.index % 2
    assert found["results"][name]["accuracy,none"] == 0.5


@pytest.mark.peers
@pytest.mark.skipif(not LM_EVAL, reason="lm-evaluation-harness is not installed: pip install lm_eval")
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")  # of its own dependencies
def test_a_tiny_model_gives_lm_eval_the_answers_that_it_gives_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours end as soon as nothing that follows can change a score, so they are the beginnings of its answers."""
    monkeypatch.chdir(tmp_path)
    for name, value in (("HF_HOME", str(tmp_path / "hub")), ("HF_DATASETS_OFFLINE", "1"), ("HF_HUB_OFFLINE", "1")):
        monkeypatch.setenv(name, value)
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    model = str(tiny_checkpoint(tmp_path / "tiny"))
    words = ["--tasks", "niah_single_1,niah_multikey_1", "--lengths", "700", "--count", "2"]
    app.main(["ruler", model, *words])
    app.main(["export", "ruler", "--tokenizer", model, *words])
    here = {(p.task, p.index): p for p in predictions(Path("runs/ruler/tiny"))}
    manager = TaskManager(include_path="tasks", include_defaults=False)
    asked = HFLM(pretrained=model, dtype="float32", max_length=1024, device="cpu", batch_size=1)
    found = lm_eval.simple_evaluate(model=asked, tasks=["levelfield_ruler"], task_manager=manager)
    assert found is not None
    records = [record for samples in found["samples"].values() for record in samples]
    assert len(records) == len(here) == 4
    for record in records:
        p, (text,) = here[record["doc"]["task"], record["doc"]["index"]], record["resps"][0]
        assert text and text.lstrip().startswith(p.text.lstrip())
        assert record["accuracy"] == score(p.ruler_task, p.text, p.references).match


def test_exported_tasks_of_inspect_are_functions_of_their_file(tmp_path: Path) -> None:
    files, _ = export(Evaluation((SINGLE, Needle(depth=0.5)), (700,), count=1), Bytes(), "inspect", tmp_path)
    code = files[-1].read_text()
    compile(code, "levelfield_ruler.py", "exec")
    assert code.count("@task\ndef levelfield_niah_") == 2
    assert 'task_of_file(HERE / "niah_single_1-700.jsonl", 128)' in code


def test_logs_of_inspect_are_read_with_answers_in_parts_and_without_failed_samples(tmp_path: Path) -> None:
    (file,), _ = export(Evaluation((SINGLE,), (700,), count=4), Bytes(), "jsonl", tmp_path)
    docs = lines(file)
    thought = [{"type": "reasoning", "reasoning": "Hm."}, {"type": "text", "text": knows(docs[1]["input"])}]
    said = [knows(docs[0]["input"]), thought, "no", "lost"]
    samples = [
        {
            "id": doc["index"],
            "input": doc["input"],
            "target": doc["outputs"],
            "metadata": {name: value for name, value in doc.items() if name != "input"},
            "output": {"choices": [{"message": {"role": "assistant", "content": content}}]},
            "error": {"message": "time-out"} if content == "lost" else None,
        }
        for doc, content in zip(docs, said)
    ]
    log = tmp_path / "logs" / "2026-11-22T21-30-02_levelfield.json"
    log.parent.mkdir()
    log.write_text(json.dumps({"version": 2, "status": "success", "eval": {"task": "t"}, "samples": samples}))
    found = imported.read(log)
    assert [score(p.ruler_task, p.text, p.references).match for p in found] == [1.0, 1.0, 0.0]
    assert {(p.template, p.length, p.task) for p in found} == {("base-inspect", 700, SINGLE.name)}
    assert imported.sentence(found) == {"base-inspect": "Inspect, as a message of a user, read from its log"}
    for content, why in (
        ({"samples": samples}, "no part 'eval'"),
        ({"eval": {}, "samples": []}, "has no answers"),
        ({"eval": {}, "samples": [{**samples[0], "metadata": {}}]}, "levelfield did not export"),
    ):
        log.write_text(json.dumps(content))
        with pytest.raises(UserError, match=why):
            imported.read(log)


def test_what_a_filter_withheld_is_no_answer_in_a_log_of_inspect(tmp_path: Path) -> None:
    (file,), _ = export(Evaluation((SINGLE,), (700,), count=2), Bytes(), "jsonl", tmp_path)
    samples = [
        {
            "input": doc["input"],
            "target": doc["outputs"],
            "metadata": doc,
            "output": {"choices": [{"message": {"content": knows(doc["input"])}, "stop_reason": reason}]},
        }
        for doc, reason in zip(lines(file), ("content_filter", "stop"))
    ]
    log = tmp_path / "log.json"
    log.write_text(json.dumps({"eval": {}, "samples": samples}))
    assert [p.index for p in imported.read(log)] == [1]


@pytest.mark.peers
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")  # of its own dependencies
def test_inspect_runs_the_tasks_and_agrees_answer_by_answer(
    tmp_path: Path, inspected: Callable[[str, Sequence[str]], Any]
) -> None:
    """A model whose answers are given beforehand, every second one of them right."""
    export(Evaluation((SINGLE,), (700,), count=4), Bytes(), "inspect", tmp_path / "tasks")
    docs = lines(tmp_path / "tasks" / "niah_single_1-700.jsonl")
    said = [knows(doc["input"]) if doc["index"] % 2 else " no" for doc in docs]
    log = inspected("tasks/levelfield_ruler.py", said)
    assert log.samples
    assert log.eval.task == "levelfield_niah_single_1_700"
    for sample, doc, text in zip(log.samples, docs, said):
        assert (sample.input, sample.target) == (doc["input"], doc["outputs"])
        assert sample.scores
        assert sample.scores["levelfield_scores"].value == scored(doc, text)
    assert {each.name: each.metrics["mean"].value for each in log.results.scores} == {
        "accuracy": 0.5,
        "strict_accuracy": 0.5,
    }
