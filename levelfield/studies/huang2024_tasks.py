"""RULER task by task: huang2024, tables 6 to 18, on which its table 1 rests.

levelfield plan huang2024_tasks
levelfield ruler state-spaces/mamba2-2.7b --table huang2024_tasks --tokenizer EleutherAI/gpt-neox-20b
levelfield report huang2024_tasks
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from levelfield.longcontext.survey import Survey
from levelfield.report.decisions import Contrast, Every, Flipped, Seeds, some
from levelfield.report.verdicts import Claim, Finding, judged, told
from levelfield.spec import Published, Row
from levelfield.spec.study import MeasuredCell
from levelfield.studies import _huang2024 as shared
from levelfield.studies._huang2024 import LENGTHS, TASKS

KEPT = 0.5  # of the score at the shortest length


def recomputed() -> Iterator[Row]:
    """The last columns: means of the five lengths."""
    for checkpoint in shared.CHECKPOINTS:
        for table, task in TASKS.items():
            parts = [shared.printed()[table, checkpoint.printed, task, f"length={length}"] for length in LENGTHS]
            yield shared.mean(parts, table, task, "length=average")


def findings(answers: Sequence[MeasuredCell]) -> list[Finding]:
    """Finds for each model whether at one length some task keeps more than KEPT of its score at the shortest, another
    less."""
    return judged({model: _spread(model, cells) for model, cells in shared.asked(answers).items()})


def _spread(model: str, cells: Mapping[tuple[str, str, str], Seeds]) -> Claim:
    kept: dict[int, dict[str, Contrast]] = {}
    for (table, task, at), score in cells.items():
        length, shortest = at.partition("=")[2], cells.get((table, task, f"length={LENGTHS[0]}"))
        if length.isdigit() and int(length) > LENGTHS[0] and shortest is not None:
            kept.setdefault(int(length), {})[task] = Contrast(((1.0, score), (-KEPT, shortest)))
    several = {length: tasks for length, tasks in sorted(kept.items()) if len(tasks) > 1}
    if not several:
        return Claim(None, f"{model} was not asked several tasks at {LENGTHS[0]} tokens and at another length.")
    ask = [Every((some([*t.values()]), some([Flipped(one) for one in t.values()]))) for t in several.values()]
    counts = [f"{sum(q.seen() > 0 for q in t.values())} of {len(t)} at {n}" for n, t in several.items()]
    return Claim(some(ask), f"{model}: half of the score at {LENGTHS[0]} tokens is kept on {', '.join(counts)}.")


survey = Survey(
    name="huang2024_tasks",
    claim="How far a model sees depends on what is asked: the same text at the same length is enough for one task and "
    "not for another.",
    published=tuple(Published("huang2024", table) for table in TASKS),
    deviations=(
        *shared.DEVIATIONS,
        "Word lists, needles and documents lie in one order for all samples of a size, as in the fork; the answer to a "
        "question is at about the same place in every sample.",
    ),
    checkpoints=shared.CHECKPOINTS,
    evaluations=shared.ruler,
    answers=shared.task_answers,
    recomputed=lambda: tuple(recomputed()),
    marks=shared.task_marks,
    legend=shared.LEGEND,
    across="length",
    verdict=lambda answers: told(findings(answers), more="samples"),
)
