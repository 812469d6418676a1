"""Samples as tasks of lighteval: what it is given, what comes back of its details, and that it scores as we do."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tiny_llama import tiny_checkpoint
from toy_reader import SINGLE, knows

from levelfield.cli import app
from levelfield.longcontext import imported, lighteval_tasks
from levelfield.longcontext.answers import predictions
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.exported import export
from levelfield.ruler import Bytes, Needle, Tracking, generate, score
from levelfield.spec import UserError

SAID = "lighteval, read from its details"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_module_and_the_list_name_every_file_of_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = (SINGLE, Needle(depth=0.5), Tracking())
    files, _ = export(Evaluation(tasks, (2048,), count=2), Bytes(), "lighteval", tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in files} == {
        "niah_single_1-2048/test.jsonl",
        "niah_single_2@0.5-2048/test.jsonl",
        "vt-2048/test.jsonl",
        "levelfield_ruler.py",
        "levelfield_ruler.txt",
    }
    described: list[tuple[Path, str, int, int]] = []

    def note(file: Path, name: str, *, tokens: int, version: int) -> None:
        described.append((file, name, tokens, version))

    monkeypatch.setattr(lighteval_tasks, "task_of_file", note)
    exec(
        compile((tmp_path / "levelfield_ruler.py").read_text(), str(tmp_path / "levelfield_ruler.py"), "exec"),
        {"__file__": str(tmp_path / "levelfield_ruler.py")},
    )
    assert (tmp_path / "levelfield_ruler.txt").read_text().split() == [name for _, name, _, _ in described]
    assert [(name, tokens, version) for _, name, tokens, version in described] == [
        ("levelfield_ruler:niah_single_1_2048", 128, 1),
        ("levelfield_ruler:niah_single_2_0_5_2048", 128, 1),  # an @ would begin a metric's settings there
        ("levelfield_ruler:vt_2048", 30, 2),
    ]
    for task, (file, *_) in zip(tasks, described):
        assert [line["input"] for line in lines(file)] == [s.text for s in generate(task, 2048, Bytes(), count=2)]


def details(path: Path, docs: list[dict[str, Any]], said: list[str], thought: list[str | None]) -> Path:
    """Writes answers as lighteval does with --save-details: a structure each of question, answer and scores."""
    records = [
        {
            "doc": {"query": doc["input"], "specific": {k: v for k, v in doc.items() if k != "input"}},
            "model_response": {"text": [text], "text_post_processed": after and [after]},
            "metric": {"accuracy": 0.0},
        }
        for doc, text, after in zip(docs, said, thought)
    ]
    source = path.with_suffix(".json")
    source.write_text(json.dumps(records))
    duckdb.sql(f"COPY (SELECT * FROM read_json('{source}')) TO '{path}' (FORMAT parquet)")
    return path


def test_details_are_read_with_reasoning_taken_off_and_others_are_refused(tmp_path: Path) -> None:
    (file, *_), _ = export(Evaluation((SINGLE,), (700,), count=3), Bytes(), "lighteval", tmp_path)
    docs = lines(file)
    said, after = [knows(docs[0]["input"]), "<think>Hm.</think> no", "no"], [None, knows(docs[1]["input"]), None]
    found = imported.read(details(tmp_path / "details_vt_2026.parquet", docs, said, after))
    assert [score(p.ruler_task, p.text, p.references).match for p in found] == [1.0, 1.0, 0.0]
    assert [(p.index, p.length, p.tokens, list(p.depths)) for p in found] == [
        (doc["index"], doc["length"], doc["tokens"], doc["depths"]) for doc in docs
    ]
    assert imported.sentence(found) == {"base-lighteval": SAID}
    for doc in docs:
        del doc["settings"]
    with pytest.raises(UserError, match="levelfield did not export"):
        imported.read(details(tmp_path / "others.parquet", docs, said, after))
    (tmp_path / "text.parquet").write_text("no parquet")
    for name in ("text", "missing"):
        with pytest.raises(UserError, match=f"{name}.parquet cannot be read as lighteval's details"):
            imported.read(tmp_path / f"{name}.parquet")


NEEDED = ("lighteval", "transformers", "tokenizers", "accelerate", "datasets")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"lighteval cannot run: {', '.join(MISSING)} not installed")
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")  # of its own dependencies
def test_lighteval_runs_the_tasks_and_agrees_answer_by_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny model gives lighteval the answers that it gives here; a changed line makes half of what it says right."""
    monkeypatch.chdir(tmp_path)
    for name, value in (("HF_HOME", str(tmp_path / "hub")), ("HF_HUB_OFFLINE", "1")):
        monkeypatch.setenv(name, value)
    model = str(tiny_checkpoint(tmp_path / "tiny"))
    words = ["--tasks", "niah_single_1,niah_multikey_1", "--lengths", "700", "--count", "2"]
    app.main(["ruler", model, *words, "--precision", "float32"])
    here = {p.place: p for p in predictions(Path("runs/ruler/tiny"))}
    app.main(["export", "ruler", "--tokenizer", model, *words, "--format", "lighteval"])
    for name in ("niah_single_1", "niah_multikey_1"):
        file = Path(f"tasks/{name}-700/test.jsonl")
        docs = lines(file)
        docs[1]["outputs"] = [next(p.text.strip()[:5] for p in here.values() if (p.task, p.index) == (name, 1))]
        file.write_text("".join(json.dumps(doc) + "\n" for doc in docs))
    averages = asked_by_lighteval(model, tmp_path)
    found = [p for file in tmp_path.rglob("details_*.parquet") for p in imported.read(file)]
    assert {(p.task, p.index) for p in found} == {(q.task, q.index) for q in here.values()}
    assert len(found) == 4
    for p in found:
        same = next(q for q in here.values() if (q.task, q.index) == (p.task, p.index))
        assert p.text.startswith(same.text) and (p.tokens, p.depths) == (same.tokens, same.depths)
        assert score(p.ruler_task, p.text, p.references).match == p.index
    assert averages == {f"levelfield_ruler:{name}_700|0": 0.5 for name in ("niah_single_1", "niah_multikey_1")}


def asked_by_lighteval(model: str, folder: Path) -> dict[str, float]:
    """Has lighteval ask the tasks in this folder, and returns the accuracy that it counts for each."""
    from lighteval.logging.evaluation_tracker import EvaluationTracker
    from lighteval.models.transformers.transformers_model import TransformersModelConfig
    from lighteval.pipeline import ParallelismManager, Pipeline, PipelineParameters
    from lighteval.tasks.registry import Registry

    with pytest.MonkeyPatch.context() as patch:  # some of its own tasks load from the network when they are imported
        patch.setattr(Registry, "_load_from_files", staticmethod(lambda files, prefix: {}))
        patch.setattr(Registry, "_load_from_subdirs", staticmethod(lambda folders: {}))
        pipeline = Pipeline(
            tasks="tasks/levelfield_ruler.txt",
            pipeline_parameters=PipelineParameters(
                launcher_type=ParallelismManager.ACCELERATE, custom_tasks_directory="tasks/levelfield_ruler.py"
            ),
            evaluation_tracker=EvaluationTracker(output_dir=str(folder / "results"), save_details=True),
            model_config=TransformersModelConfig(
                model_name=model,
                batch_size=1,
                dtype="float32",
                override_chat_template=False,
                cache_dir=str(folder / "cache"),
            ),
        )
        pipeline.evaluate()
        pipeline.save_and_push_results()
    (file,) = (folder / "results").rglob("results_*.json")
    found = json.loads(file.read_text())["results"]
    return {name: values["accuracy"] for name, values in found.items() if "_700|" in name}
