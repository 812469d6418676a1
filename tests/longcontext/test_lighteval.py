"""Samples as tasks of lighteval: what it is given, what comes back of its details, and that it scores as we do."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from glob import glob
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

SAID = "lighteval, read from its details, which do not say whether it added a chat template"


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


def details(
    path: Path,
    docs: list[dict[str, Any]],
    said: list[str],
    thought: list[str | None],
    given: list[int] | None = None,
    put: list[Any] | None = None,
) -> Path:
    """Writes answers as lighteval does with --save-details: a structure each of question, answer and scores.

    given: tokens of each prompt that the model was given, of which two are padding; put: what it was given, a text or
    messages. None where the details have none.
    """
    records = [
        {
            "doc": {"query": doc["input"], "specific": {k: v for k, v in doc.items() if k != "input"}},
            "model_response": {"text": [text], "text_post_processed": after and [after]},
            "metric": {"accuracy": 0.0},
        }
        for doc, text, after in zip(docs, said, thought)
    ]
    for record, count in zip(records, given or []):
        record["model_response"] |= {"input_tokens": [7] * (count + 2), "padded_tokens_count": 2}
    for record, input_ in zip(records, put or []):
        record["model_response"] |= {"input": input_}
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


def test_prompts_that_lighteval_cut_off_are_told_by_the_tokens_that_it_gave_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    files, _ = export(Evaluation((SINGLE,), (700, 1400), count=2), Bytes(), "lighteval", tmp_path / "tasks")
    whole, long = map(lines, files[:2])
    details(tmp_path / "details_a.parquet", whole, ["", ""], [None, None], [doc["tokens"] for doc in whole])
    details(tmp_path / "details_b.parquet", long, ["", ""], [None, None], [700, 699])
    app.main(["import", "details_a.parquet", "details_b.parquet", "--model", "m"])
    most = max(doc["tokens"] for doc in long)
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("At ")]
    assert told == [
        f"At 1400 the model was given 700 tokens or fewer of 2 prompts with up to {most:,}: unless its tokenizer "
        "differs from that of the export, they were cut off, and their scores say nothing about this length."
    ]
    asked = {row["at"].partition(",")[0]: row["asked"] for row in lines(Path("runs/ruler/m-imported/rows.jsonl"))}
    assert asked["length=700"] == SAID
    assert asked["length=1400"].startswith(SAID + "; at a length of 1400 far fewer tokens were counted")


@pytest.mark.parametrize(
    ("put", "label", "asked"),
    [
        (lambda text: text, "base-plain-lighteval", "lighteval, as it stands"),
        (lambda text: f"<s>[INST] {text} [/INST]", "base-chat-lighteval", "lighteval in a template of its own"),
        (lambda text: [{"role": "user", "content": text}], "base-chat-lighteval", "lighteval in a template of its own"),
        (lambda text: None, "base-lighteval", "lighteval, read from its details, which do not say"),
    ],
)
def test_rows_say_whether_lighteval_added_a_template_only_where_its_details_do(
    put: Callable[[str], Any], label: str, asked: str, tmp_path: Path
) -> None:
    """The details have what the model was given with vLLM and with services, and not with transformers."""
    (file, *_), _ = export(Evaluation((SINGLE,), (700,), count=2), Bytes(), "lighteval", tmp_path)
    docs = lines(file)
    written = details(
        tmp_path / "details_a.parquet", docs, ["", ""], [None, None], None, [put(d["input"]) for d in docs]
    )
    found = imported.read(written)
    assert {p.template for p in found} == {label}
    assert imported.sentence(found)[label].startswith(asked)


NEEDED = ("lighteval", "transformers", "tokenizers", "accelerate", "datasets")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
WHY = f"not installed: {', '.join(MISSING)}; lighteval pins old packages, so it needs an environment of its own"
CODE = """
from lighteval.tasks.registry import Registry

# Some of its own tasks download files when they are imported.
Registry._load_from_files = staticmethod(lambda files, prefix: {})
Registry._load_from_subdirs = staticmethod(lambda folders: {})
from lighteval.__main__ import app
app()
"""


@pytest.mark.peers
@pytest.mark.skipif(bool(MISSING), reason=WHY)
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")  # of its own dependencies
def test_the_commands_that_export_prints_run_and_agree_answer_by_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tiny model, which takes 1,024 tokens, gives lighteval the answers that it gives here. A changed line of each
    task makes half of what it says right."""
    monkeypatch.chdir(tmp_path)
    model = str(tiny_checkpoint(Path("models/tiny")))
    names = ("niah_single_1", "niah_multikey_1", "walks_bfs")
    words = ["--tasks", ",".join(names), "--count", "2"]
    app.main(["ruler", model, *words, "--lengths", "900", "--precision", "float32"])
    here = {(p.task, p.index): p for p in predictions(Path("runs/ruler/tiny"))}
    capsys.readouterr()
    app.main(["export", "ruler", "--tokenizer", model, *words, "--lengths", "900,2048", "--format", "lighteval"])
    evaluate, import_ = capsys.readouterr().out.replace("MODEL", model).splitlines()[-2:]
    for name in names[:2]:
        file = Path(f"tasks/{name}-900/test.jsonl")
        docs = lines(file)
        docs[1]["outputs"] = [here[name, 1].text.strip()[:5]]
        file.write_text("".join(json.dumps(doc) + "\n" for doc in docs))
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub"), "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", CODE, *shlex.split(evaluate)[1:]], env=env, check=True)
    (results,) = tmp_path.rglob("results_*.json")
    averages = {name: row["accuracy"] for name, row in json.loads(results.read_text())["results"].items()}
    for name, share in zip(names, (0.5, 0.5, 0.0)):
        assert averages[f"levelfield_ruler:{name}_900|0"] == share

    program, command, pattern, *rest = shlex.split(import_)
    app.main([command, *glob(pattern), "--model", "tiny"])
    assert (program, rest) == ("levelfield", ["--model", model])
    told = capsys.readouterr().out
    assert "At 2048 the model was given 1,024 tokens or fewer of 6 prompts" in told and "At 900" not in told
    found = predictions(Path("runs/ruler/tiny-imported"))
    assert {(p.task, p.index) for p in found if p.length == 900} == here.keys()
    for p in found:
        if p.length == 900:
            same = here[p.task, p.index]
            assert p.text.startswith(same.text) and (p.tokens, p.depths) == (same.tokens, same.depths)
            assert score(p.ruler_task, p.text, p.references).match == (p.index if p.task in names[:2] else 0)
