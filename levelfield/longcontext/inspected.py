"""Makes exported samples a task of Inspect, scored as levelfield does.

    inspect eval tasks/levelfield_ruler.py --model PROVIDER/NAME      # the file that `export` writes beside the samples

A prompt is one message of the user. It ends with the beginning of the answer, as a completion would be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from levelfield.longcontext.exported import scored
from levelfield.spec import UserError


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

    @scorer(metrics={"accuracy": [mean(), stderr()], "strict_accuracy": [mean(), stderr()]})
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
