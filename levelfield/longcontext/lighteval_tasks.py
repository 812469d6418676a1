"""Makes exported samples tasks of lighteval, scored as levelfield does, and reads the answers from lighteval's details.

    cd tasks      # what `export` has written: the samples, a list of tasks and a module with their table
    lighteval accelerate model_name=MODEL levelfield_ruler.txt --custom-tasks levelfield_ruler.py \\
        --save-details --output-dir answers
    levelfield import answers/details/MODEL/*/*.parquet --model NAME

A prompt is asked as it stands. lighteval wraps it in a tokenizer's chat template, where there is one, unless
`model_name=MODEL,override_chat_template=false` is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from levelfield.longcontext.exported import metrics_of_file, scored
from levelfield.spec import UserError
from levelfield.spec.contents import checksum


def task_of_file(file: Path, name: str, *, tokens: int, version: int) -> Any:
    """Returns lighteval's description of a task, whose samples are the lines of a file called after its split.

    tokens: of an answer, at most. Raises UserError where lighteval is not installed.
    """
    try:
        from lighteval.metrics.metrics_sample import SampleLevelComputation  # pyright: ignore[reportMissingImports]
        from lighteval.metrics.utils.metric_utils import (  # pyright: ignore[reportMissingImports]
            SampleLevelMetricGrouping,
        )
        from lighteval.tasks.lighteval_task import LightevalTaskConfig  # pyright: ignore[reportMissingImports]
        from lighteval.tasks.requests import SamplingMethod  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError("This needs lighteval: pip install 'levelfield[lighteval]'.") from error

    class LevelfieldScores(SampleLevelComputation):
        def __init__(self, samples: str) -> None:
            self.samples = samples  # lighteval stores answers under what it prints of a task, and asks none again

        def compute(self, doc: Any, model_response: Any, **_: Any) -> dict[str, float]:
            return scored(doc.specific, model_response.final_text[0])

    metrics = metrics_of_file(file)
    metric = SampleLevelMetricGrouping(
        metric_name=metrics,
        higher_is_better=dict.fromkeys(metrics, True),
        category=SamplingMethod.GENERATIVE,
        sample_level_fn=LevelfieldScores(checksum(file)[:12]),
        corpus_level_fn=dict.fromkeys(metrics, _mean),
    )
    return LightevalTaskConfig(
        name=name,
        prompt_function=_doc,
        hf_repo=str(file.parent),
        hf_subset="default",
        hf_avail_splits=[file.stem],
        evaluation_splits=[file.stem],
        few_shots_split=file.stem,
        metrics=[metric],
        generation_size=tokens,
        stop_sequence=[],
        version=version,
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _doc(record: dict[str, Any], task_name: str) -> Any:
    """Returns an exported line as lighteval asks it; what levelfield needs of it is stored beside the answer."""
    from lighteval.tasks.requests import Doc  # pyright: ignore[reportMissingImports]

    rest = {name: value for name, value in record.items() if name != "input" and not name.startswith("__")}
    outputs = record["outputs"]
    return Doc(
        query=record["input"], choices=outputs, gold_index=list(range(len(outputs))), specific=rest, task_name=task_name
    )


class Answered(NamedTuple):
    """The line of an exported sample, and the answer to it.

    put: "plain-lighteval" or "chat-lighteval" where the details hold what the model was given, as they do with vLLM and
    with services: the prompt as it stands, or anything else. "lighteval" where they do not, as with transformers.
    counted: as `prompt` how many tokens the model was given, where the details have them: lighteval cuts off the
    beginning of a prompt that is longer than its model takes, and says nothing.
    """

    doc: Mapping[str, Any]
    text: str
    put: str
    counted: dict[str, int]


def answers(path: Path) -> Iterator[Answered]:
    """Yields the samples in a file of details, of a task that levelfield exported.

    path: a file as `--save-details` writes it, details_TASK_DATE.parquet. Raises UserError.
    """
    for doc, response in _details(path):
        if not isinstance(doc, dict) or "settings" not in (doc.get("specific") or {}):
            raise UserError(
                f"{path} is of samples that levelfield did not export: it can read no others from lighteval."
            )
        given = len(response.get("input_tokens") or ()) - (response.get("padded_tokens_count") or 0)
        said = (response["text_post_processed"] or response["text"])[0]
        line, counted = {**doc["specific"], "input": doc["query"]}, {"prompt": given} if given > 0 else {}
        yield Answered(line, said, _put(doc["query"], response.get("input")), counted)


def _put(prompt: str, given: Any) -> str:
    """Returns how a prompt was put. given: the text that the model was given, messages to it, or None."""
    if not given:
        return "lighteval"
    plain = isinstance(given, str) and given.strip() == prompt.strip()
    return "plain-lighteval" if plain else "chat-lighteval"


def _details(path: Path) -> list[tuple[Any, Any]]:
    """Returns what was asked and what was answered. Raises UserError."""
    import duckdb

    try:
        with duckdb.connect(config={"threads": 1}) as base:
            return base.execute("SELECT doc, model_response FROM read_parquet(?)", [str(path)]).fetchall()
    except duckdb.Error as error:
        why = str(error).partition("\n")[0]  # further lines quote the query
        raise UserError(
            f"{path} cannot be read as lighteval's details ({why}): name a file details_TASK_DATE.parquet."
        ) from error
