"""RULER's average of eight language models at five lengths: huang2024, table 1, made anew from its tables 6 to 18.

    levelfield plan huang2024_table1
    levelfield ruler state-spaces/mamba2-2.7b --table huang2024_table1 --tokenizer EleutherAI/gpt-neox-20b
    levelfield report huang2024_table1

Its evaluation is that of `huang2024_tasks`; answers serve both. With tasks left out (questions need official files),
the printed average is taken over the same tasks before it is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from levelfield.longcontext.survey import Checkpoint, Survey
from levelfield.report.decisions import Contrast, Seeds
from levelfield.report.verdicts import Claim, Finding, judged, told
from levelfield.spec import Published, Row
from levelfield.spec.study import MeasuredCell
from levelfield.studies import _huang2024 as shared
from levelfield.studies._huang2024 import LENGTHS, TASKS

TABLE, AVERAGE = "1", "ruler_average"
NAMED = 3  # tasks of which a sentence says how often they were asked
LOST = 1 / 3
"""Of its score, which a model has to lose at the first doubling beyond its training length for a steep drop."""


def answers(checkpoint: Checkpoint, rows: Sequence[Row]) -> list[MeasuredCell]:
    """Averages of the tasks that were asked at each length, and of the five lengths where all have the same tasks."""
    found = shared.cells(rows)
    asked = {
        length: [t for t in TASKS.values() if (t, length) in found] for _, length in sorted(found, key=lambda c: c[1])
    }
    placed = [(f"length={length}", tasks, [length]) for length, tasks in asked.items()]
    every = [asked.get(length, []) for length in LENGTHS]
    if every[0] and all(tasks == every[0] for tasks in every):
        placed.append(("length=average", every[0], list(LENGTHS)))
    made = []
    for at, tasks, lengths in placed:
        parts = tuple(found[t, length] for t in tasks for length in lengths)
        row = shared.mean(parts, TABLE, AVERAGE, at)
        line = "ours" if len(tasks) == len(TASKS) else f"ours, {len(tasks)} of {len(TASKS)} tasks"
        made.append(MeasuredCell(row, checkpoint.printed, line, _printed(checkpoint.printed, tasks, at), parts))
    return made


def _printed(model: str, tasks: Sequence[str], at: str) -> float | None:
    """The paper's average over these tasks."""
    found = [shared.value(table, model, task, at) for table, task in TASKS.items() if task in tasks]
    values = [v for v in found if v is not None]
    return fmean(values) if values and len(values) == len(tasks) else None


def recomputed() -> Iterator[Row]:
    """Every cell from tables 6 to 18."""
    for checkpoint in shared.CHECKPOINTS:
        model, lengths = checkpoint.printed, []
        for length in LENGTHS:
            parts = [shared.printed()[table, model, task, f"length={length}"] for table, task in TASKS.items()]
            lengths.append(shared.mean(parts, TABLE, AVERAGE, f"length={length}"))
        yield from lengths
        yield shared.mean(lengths, TABLE, AVERAGE, "length=average")


def marks(row: Row) -> str:
    """Whether some of the thirteen cells behind it are of fewer samples."""
    model, at = row.get("model", ""), row.get("at", "")
    parts = [shared.printed()[table, model, task, at] for table, task in TASKS.items()]
    return "f" if at != "length=average" and any(shared.fewer(part) for part in parts) else ""


def findings(answers: Sequence[MeasuredCell]) -> list[Finding]:
    """Finds for each model whether it loses more than LOST of its average where texts become twice its training
    length, of the same questions."""
    return judged({model: _drop(model, cells, answers) for model, cells in shared.asked(answers).items()})


def _drop(model: str, cells: Mapping[tuple[str, str, str], Seeds], answers: Sequence[MeasuredCell]) -> Claim:
    context = shared.context(model, answers)
    within, beyond = (cells.get((TABLE, AVERAGE, f"length={times * context}")) for times in (1, 2))
    if not context:
        return Claim(None, f"The training length of {model} is not known.")
    if within is None or beyond is None:
        return Claim(None, f"{model} was not asked at {context} and {2 * context} tokens.")
    if apart := _apart(model, answers, context):
        return Claim(None, f"{model} was not asked the same at {context} and {2 * context} tokens: {apart}.")
    facts = f"{model}: {within} at its training length of {context} tokens, {beyond} at twice that."
    return Claim(Contrast(((1 - LOST, within), (-1.0, beyond))), facts)


def _apart(model: str, answers: Sequence[MeasuredCell], context: int) -> str:
    """Names the tasks with more answers at the training length than at twice that, or fewer; "" where there is none.

    A run that was interrupted has other tasks at one length than at the other, of which some are harder. A printed
    average is of all tasks at every length.
    """
    counts: dict[str, list[int]] = {}
    for place, times in enumerate((1, 2)):
        cells = (a for a in answers if (a.row.get("model"), a.row.get("at")) == (model, f"length={times * context}"))
        for part in (part for cell in cells for part in cell.parts):
            counts.setdefault(part.get("task", ""), [0, 0])[place] = part.get("n", 0)
    said = [f"{task} has {one} and {two} answers" for task, (one, two) in counts.items() if one != two]
    more = len(said) - NAMED
    return ", ".join([*said[:NAMED], *([f"and {more} more {'tasks' if more > 1 else 'task'}"] if more > 0 else [])])


survey = Survey(
    name="huang2024_table1",
    claim="All models, recurrent or not, drop steeply beyond the length they were trained at: by more than a third at "
    "twice that length.",
    published=(Published("huang2024", TABLE),),
    deviations=shared.DEVIATIONS,
    checkpoints=shared.CHECKPOINTS,
    evaluations=shared.ruler,
    answers=answers,
    recomputed=lambda: tuple(recomputed()),
    marks=marks,
    legend={"f": "Some of its tasks have fewer than 250 samples (time-outs, inferred): see huang2024_tasks."},
    across="length",
    verdict=lambda answers: told(findings(answers), more="samples"),
)
