"""Scores that a set of questions has beside levelfield's two, as other evaluators count them for exported samples."""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from toy_reader import SINGLE

from levelfield.longcontext import lighteval_tasks
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.exported import Format, export
from levelfield.ruler import Bytes, Walk

TWO = ["accuracy", "strict_accuracy"]
THREE = [*TWO, "last_line_f1"]


def exported(form: Format, folder: Path) -> list[dict[str, Any]]:
    """Exports two walks and a needle, and returns the lines of the walks."""
    files, _ = export(Evaluation((Walk(), SINGLE), (1500,), count=2), Bytes(), form, folder)
    return [json.loads(line) for line in files[0].read_text().splitlines()]


def said(doc: dict[str, Any]) -> tuple[str, str]:
    """Answers to a walk: one that ends with its list, and one that goes on after it."""
    listed = ", ".join(doc["outputs"]) + "]"
    return listed, listed + "\nThat was it."


SCORES = [dict(zip(THREE, (1.0, 1.0, last))) for last in (1.0, 0.0)]


def test_tasks_of_lm_eval_list_the_metrics_that_their_function_gives(tmp_path: Path) -> None:
    doc, _ = exported("lm-eval", tmp_path)
    process = runpy.run_path(str(tmp_path / "levelfield_scores.py"))["process"]
    assert [process(doc, [text]) for text in said(doc)] == SCORES
    for task, metrics in (("walks_bfs", THREE), ("niah_single_1", TWO)):
        text = (tmp_path / f"levelfield_{task}_1500.yaml").read_text()
        assert re.findall(r"- metric: (\w+)\n    aggregation: mean\n    higher_is_better: true\n", text) == metrics


def test_tasks_of_lighteval_have_all_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With classes that note what they are given in place of lighteval's."""
    for name, members in {
        "metrics.metrics_sample": {"SampleLevelComputation": object},
        "metrics.utils.metric_utils": {"SampleLevelMetricGrouping": SimpleNamespace},
        "tasks.lighteval_task": {"LightevalTaskConfig": SimpleNamespace},
        "tasks.requests": {"SamplingMethod": SimpleNamespace(GENERATIVE="generative")},
    }.items():
        parts = ["lighteval", *name.split(".")]
        for size in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:size]), module := ModuleType(parts[size - 1]))
        vars(module).update(members)
    doc, _ = exported("lighteval", tmp_path)
    for task, metrics in (("walks_bfs", THREE), ("niah_single_1", TWO)):
        file = tmp_path / f"{task}-1500" / "test.jsonl"
        (found,) = lighteval_tasks.task_of_file(file, task, tokens=96, version=2).metrics
        assert [found.metric_name, list(found.higher_is_better), list(found.corpus_level_fn)] == [metrics] * 3
        if task == "walks_bfs":
            asked = SimpleNamespace(specific={name: value for name, value in doc.items() if name != "input"})
            answers = [SimpleNamespace(final_text=[text]) for text in said(doc)]
            assert [found.sample_level_fn.compute(asked, answer) for answer in answers] == SCORES


@pytest.mark.peers
@pytest.mark.skipif(not importlib.util.find_spec("lm_eval"), reason="not installed: pip install lm_eval")
@pytest.mark.timeout(300)
def test_lm_eval_averages_all_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    import lm_eval
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    docs = exported("lm-eval", tmp_path / "tasks")

    class Saying(LM):
        def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
            return [said(docs[r.doc_id])[r.doc_id] for r in requests]

        def loglikelihood(self, requests: Any) -> Any: ...

        def loglikelihood_rolling(self, requests: Any) -> Any: ...

    manager = TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False)
    name = "levelfield_walks_bfs_1500"
    found = lm_eval.simple_evaluate(model=Saying(), tasks=[name], task_manager=manager, bootstrap_iters=0)
    assert found is not None
    assert [found["results"][name][f"{metric},none"] for metric in THREE] == [1.0, 1.0, 0.5]


@pytest.mark.peers
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")  # of its own dependencies
def test_inspect_averages_all_metrics(tmp_path: Path, inspected: Callable[[str, Sequence[str]], Any]) -> None:
    texts = [said(doc)[n] for n, doc in enumerate(exported("inspect", tmp_path / "tasks"))]
    log = inspected("tasks/levelfield_ruler.py@levelfield_walks_bfs_1500", texts)
    assert {each.name: each.metrics["mean"].value for each in log.results.scores} == dict(zip(THREE, (1.0, 1.0, 0.5)))
