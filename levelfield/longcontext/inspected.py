"""Makes exported samples a task of Inspect, scored as levelfield does, and reads the answers from Inspect's logs.

    inspect eval tasks/levelfield_ruler.py --model PROVIDER/NAME      # the file that `export` writes beside the samples
    levelfield import logs/*.eval --model NAME

A prompt is one message of the user. It ends with the beginning of the answer, as a completion would be asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

from levelfield.files import read_text
from levelfield.longcontext.exported import metrics_of_file, scored
from levelfield.longcontext.predictions import FILTERED, WITHHELD
from levelfield.spec import UserError
from levelfield.spec.errors import format_error

PLACE = ("task", "length", "index", "flavour", "template", "seed")
"""What a line must have to say which sample it is."""


def task_of_file(file: Path, tokens: int) -> Any:
    """Returns Inspect's task of the samples in a file of lines, each answered with at most so many tokens.

    Raises UserError where Inspect is not installed.
    """
    try:
        from inspect_ai import Task  # pyright: ignore[reportMissingImports]
        from inspect_ai.dataset import Sample, json_dataset  # pyright: ignore[reportMissingImports]
        from inspect_ai.model import GenerateConfig  # pyright: ignore[reportMissingImports]
        from inspect_ai.scorer import Score, mean, scorer, stderr  # pyright: ignore[reportMissingImports]
        from inspect_ai.solver import generate  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError("This needs Inspect: pip install 'levelfield[harness]'.") from error

    def sample(record: dict[str, Any]) -> Any:
        rest = {name: value for name, value in record.items() if name != "input"}
        return Sample(input=record["input"], target=record["outputs"], id=record["index"], metadata=rest)

    @scorer(metrics={metric: [mean(), stderr()] for metric in metrics_of_file(file)})
    def levelfield_scores() -> Callable[[Any, Any], Coroutine[Any, Any, Any]]:
        async def score(state: Any, target: Any) -> Any:
            said = state.output.completion
            return Score(value=scored(state.metadata, said), answer=said)

        return score

    return Task(
        dataset=json_dataset(str(file), sample),
        solver=generate(),
        scorer=levelfield_scores(),
        config=GenerateConfig(temperature=0.0, max_tokens=tokens),
    )


def answers(path: Path) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yields the line of every sample in a log that levelfield exported, and the answer to it, but what a content
    filter withheld.

    path: a log as .eval, which needs Inspect to be read, or as .json. Raises UserError.
    """
    samples = [sample for sample in _log(path).get("samples") or () if not sample.get("error")]
    if not samples:
        raise UserError(f"{path} has no answers: name a log of Inspect that has samples.")
    for sample in samples:
        if _filtered(sample["output"]):
            continue
        doc = {**(sample.get("metadata") or {}), "input": sample["input"], "outputs": sample["target"]}
        if "settings" not in doc:
            raise UserError(f"{path} is of samples that levelfield did not export: it can read no others from Inspect.")
        yield doc, _said(sample["output"])


def failed(path: Path) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yields the line of every exported sample that has no answer, and why: an error, or a content filter.

    path: as of `answers`. Raises UserError.
    """
    for sample in _log(path).get("samples") or ():
        doc, error = sample.get("metadata") or {}, sample.get("error")
        if not all(name in doc for name in PLACE):
            continue
        if error:
            why = str(error.get("message", "") if isinstance(error, dict) else error).partition("\n")[0]
            yield doc, f"Inspect has an error in place of an answer ({why}): let it try again, and import its new log."
        elif _filtered(sample["output"]):
            yield doc, WITHHELD


def _log(path: Path) -> Mapping[str, Any]:
    """Reads a log as JSON has it."""
    if path.suffix == ".json":
        try:
            found = json.loads(read_text(path, "name a log of Inspect"))
        except ValueError as error:
            raise UserError(f"{path} is no JSON ({error}): name a log of Inspect.") from error
    else:
        try:
            from inspect_ai.log import read_eval_log  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise UserError("Reading .eval needs Inspect: pip install 'levelfield[harness]'.") from error
        try:
            found = read_eval_log(str(path)).model_dump(mode="json")
        except Exception as error:  # of its archive, of its versions, or of the file
            raise UserError(f"{path} cannot be read as a log of Inspect: {format_error(error)}") from error
    if not isinstance(found, dict) or "eval" not in found:
        raise UserError(f"{path} is no log of Inspect: it has no part 'eval'.")
    return found


def _filtered(output: Mapping[str, Any]) -> bool:
    return any(choice.get("stop_reason") == FILTERED for choice in output.get("choices") or ())


def _said(output: Mapping[str, Any]) -> str:
    """Returns the text of the first answer, without reasoning."""
    content = output["choices"][0]["message"]["content"] if output.get("choices") else ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)  # parts of reasoning have none
