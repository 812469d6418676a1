"""Question sets beside RULER's: the command line asks a sample of each, and the stored answers score as they should."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy_reader import run

from levelfield.longcontext.predictions import task_of
from levelfield.ruler import BEYOND, Bytes, generate

LENGTH = 6000


def test_the_command_asks_a_sample_of_each_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that knows every answer has full scores in both, and its settings make the same task again."""
    samples = {task: next(generate(task, LENGTH, Bytes())) for task in BEYOND}
    known = {sample.text: " " + ", ".join(sample.references) for sample in samples.values()}
    words = ("--lengths", str(LENGTH), "--tasks", "beyond", "--count", "1")
    run(monkeypatch, tmp_path, *words, says=lambda prompt: known.get(prompt, ""))
    folder = tmp_path / "runs" / "ruler" / "model"
    stored = [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]
    assert [task_of(line["settings"]) for line in stored] == list(BEYOND)
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    of_model = [row for row in rows if row.get("model") == "model" and row["at"] == f"length={LENGTH}"]
    scores = {(row["task"], row["metric"]): row["value"] for row in of_model}
    others = {place: scores.pop(place) for place in list(scores) if place[1] == "last_line_f1"}
    assert others == {(f"walks_{kind}", "last_line_f1"): 0 for kind in ("parents", "bfs")}, "which go on after the list"
    assert scores == {(task.name, metric): 100 for task in BEYOND for metric in ("accuracy", "strict_accuracy")}
    page = (tmp_path / "report" / "ruler-model" / "summary.md").read_text()
    assert "| walks_bfs, last line | 0.0 |" in page and "| walks_bfs | 100.0 (100.0) |" in page
