"""RULER task by task: huang2024, tables 6 to 18, on which its table 1 rests.

levelfield plan huang2024_tasks
levelfield ruler state-spaces/mamba2-2.7b --table huang2024_tasks --tokenizer EleutherAI/gpt-neox-20b
levelfield report huang2024_tasks
"""

from __future__ import annotations

from collections.abc import Iterator

from levelfield.spec import Published, Row, Study
from levelfield.studies import _huang2024 as shared
from levelfield.studies._huang2024 import LENGTHS, TASKS
from levelfield.surveys import Survey


def recomputed() -> Iterator[Row]:
    """The last columns: means of the five lengths."""
    for checkpoint in shared.CHECKPOINTS:
        for table, task in TASKS.items():
            parts = [shared.printed()[table, checkpoint.printed, task, f"length={length}"] for length in LENGTHS]
            yield shared.mean(parts, table, task, "length=average")


study = Study(
    name="huang2024_tasks",
    claim="How far a model sees depends on what is asked: the same text at the same length is enough for one task and "
    "not for another.",
    runs=lambda effort: (),
    published=tuple(Published("huang2024", table) for table in TASKS),
    deviations=(
        *shared.DEVIATIONS,
        "Word lists, needles and documents lie in one order for all samples of a size, as in the fork; the answer to a "
        "question is at about the same place in every sample.",
    ),
    survey=Survey(
        checkpoints=shared.CHECKPOINTS,
        exams=shared.ruler,
        answers=shared.task_answers,
        recomputed=lambda: tuple(recomputed()),
        marks=shared.task_marks,
        legend=shared.LEGEND,
        across="length",
    ),
)
