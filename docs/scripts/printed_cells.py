"""Writes docs/coverage.md: which printed cells have a run at effort `paper`, and what the others lack.

    python docs/scripts/printed_cells.py           # writes docs/coverage.md
    python docs/scripts/printed_cells.py --check   # exit 1 if that would change anything

A cell has a run where a study that answers to its table plans one that `report.against_printed.match` takes for it. Of
language models that others trained it is a survey that has to ask for the cell. Nothing is trained and no file is read.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import contents

from levelfield import published
from levelfield.cli.survey_commands import FILES
from levelfield.engine.find import Source, listing
from levelfield.longcontext.survey import Checkpoint, Survey
from levelfield.longcontext.survey_answers import ESSAYS
from levelfield.report.against_printed import match
from levelfield.report.arms import Arm
from levelfield.report.printed_tables import cell_key
from levelfield.ruler import Needle, Questions
from levelfield.spec import Row, Study, describe

DOCS = Path(__file__).resolve().parents[1]

PAGE = DOCS / "coverage.md"
MEASURED = ("reported", "chance")  # a cross in print is a score at chance
NOT_MEASURED = {"infeasible": "infeasible", "unreported": "blank"}  # status -> word; what is neither is derived
NO_STUDY = "no study contains this run"
INTRODUCTION = """\
# Which printed cells have a run

`python docs/scripts/printed_cells.py` writes this page. A cell **has a run** where
`levelfield plan STUDY --effort paper` lists one with its model, protocol, task and size, so that one command starts it.
Whether anybody has run it is another question: [results](../results/README.md) holds what was measured.

Scores are cells that the paper reports, a cross (a score at chance) included. Counted apart are averages and ratios,
which follow from other cells, cells that the paper calls infeasible, and cells that are blank in print.

Runs on ListOps and Pathfinder draw their examples by the rules of the official generators. A run that reads files or a
checkpoint waits until they lie where [data.md](data.md) and [pretrained.md](pretrained.md) say. Each table is followed
by the files that its cells wait for.
"""


@dataclass(frozen=True)
class Answer:
    """What makes a printed cell: a run of a study or a question of a survey.

    arm: our label of the model. reads: official files or the checkpoint that it waits for. reader: what reads them, a
    task or a model of others.
    """

    study: str
    arm: str
    reads: tuple[str, ...]
    reader: str


@dataclass(frozen=True)
class Cell:
    """A printed row, and everything that makes it at effort `paper`; () where nothing does."""

    row: Row
    answers: tuple[Answer, ...]

    @property
    def measured(self) -> bool:
        return self.row.get("status") in MEASURED

    @property
    def table(self) -> tuple[str, str]:
        return self.row.get("source", ""), self.row.get("table", "")

    @property
    def line(self) -> tuple[str, str]:
        return self.row.get("model", ""), self.row.get("protocol", "")


Planned = Mapping[tuple[str, str], Sequence[tuple[Arm, Mapping[str, Any], Answer]]]  # by paper and table
Asked = Mapping[tuple[str, ...], Answer]  # by paper, table, model, task and `at`


def shipped() -> list[Study | Survey]:
    """Returns every study and survey of the package."""
    return [Source(name).find() for name in listing("studies")]


def cells(studies: Iterable[Study | Survey]) -> list[Cell]:
    """Returns every printed row, in the order of `published/results.csv`, with what the studies have for it."""
    studies = list(studies)
    planned, asked = _planned(studies), _asked(studies)
    return [Cell(row, tuple(dict.fromkeys(_answers(row, planned, asked)))) for row in published.rows()]


def _answers(row: Row, planned: Planned, asked: Asked) -> Iterator[Answer]:
    """Yields what makes a printed cell; an average is made by the runs on every task of its arm."""
    paper, (average, *tasks) = row.get("source", ""), row.get("task", "").split("_")
    for arm, spec, answer in planned.get((paper, row.get("table", "")), ()):
        inside = average == "average" and (not tasks or arm.task in tasks)  # figure 2's is of four tasks
        if match(arm, spec, row | Row(task=arm.task) if inside else row) is not None:
            yield answer
    if (key := (paper, *cell_key(row))) in asked:
        yield asked[key]


def _planned(studies: Iterable[Study | Survey]) -> Planned:
    """Returns the runs at `paper`, one of each arm, by every table that their study answers to."""
    found: dict[tuple[str, str], list[tuple[Arm, Mapping[str, Any], Answer]]] = {}
    for study in studies:
        if not isinstance(study, Study) or not study.published:
            continue
        for run in dict.fromkeys(replace(run, seed=0) for run in study.runs("paper")):
            arm = Arm(run.task.name, run.model.label, run.protocol.name)
            weights = run.protocol.foreign
            files = tuple(archive.name for archive in run.task.archives) + ((weights.name,) if weights else ())
            answer = Answer(study.name, arm.model, files, arm.task)
            for table in study.published:
                found.setdefault((table.paper, table.table), []).append((arm, describe(run), answer))
    return found


def _asked(studies: Iterable[Study | Survey]) -> Asked:
    """Returns the cells that a survey fills once its checkpoint has answered all of its questions at `paper`."""
    found = {}
    for survey in (study for study in studies if isinstance(study, Survey)):
        paper = {table.table: table.paper for table in survey.published}
        for checkpoint in survey.checkpoints:
            files = _files(survey, checkpoint)
            every = tuple(dict.fromkeys(name for names in files.values() for name in names))
            own = (checkpoint.source, *([checkpoint.tokenizer] if checkpoint.tokenizer else []))
            for cell in survey.answers(checkpoint, list(_questions(survey, checkpoint))):
                table, _, task, at = cell_key(cell.row)
                answer = Answer(survey.name, checkpoint.printed, own + files.get(task, every), checkpoint.printed)
                found[paper[table], table, cell.printed_model, task, at] = answer
    return found


def _files(survey: Survey, checkpoint: Checkpoint) -> dict[str, tuple[str, ...]]:
    """Returns the files of others that the prompts of each task are made of, by its name without a depth. A printed
    task of another name, such as a mean over depths, is made of all tasks of its survey."""
    found: dict[str, tuple[str, ...]] = {}
    for evaluation in survey.evaluations(checkpoint, "paper"):
        for task in evaluation.tasks:
            essays = isinstance(task, Needle) and task.haystack == "essay"
            official = (FILES[task.dataset],) if isinstance(task, Questions) else ()
            found[task.name.split("@")[0]] = (f"{ESSAYS}.json",) if essays else official
    return found


def _questions(survey: Survey, checkpoint: Checkpoint) -> Iterator[Row]:
    """Yields rows like those that the answers of a checkpoint give, with 0 for every score."""
    for evaluation in survey.evaluations(checkpoint, "paper"):
        for task in evaluation.tasks_at_depths:
            for length in evaluation.lengths:
                depth = task.depth if isinstance(task, Needle) else None
                at = f"length={length}" if depth is None else f"length={length};depth={depth}"
                base, *_ = task.name.split("@")  # a needle's depth stands behind it
                yield Row(task=base, at=at, metric="accuracy", value=0.0, n=evaluation.count)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [" | ".join(head), " | ".join("---" for _ in head), *(" | ".join(row) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def _apart(found: Sequence[Cell]) -> str:
    """Counts what is not measured: "5 averages, 30 ratios"."""
    kinds = Counter(
        "ratios" if "ratio" in cell.row.get("metric", "") else NOT_MEASURED.get(cell.row.get("status", ""), "averages")
        for cell in found
        if not cell.measured
    )
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "–"


def _names(found: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in dict.fromkeys(found)) or "–"


def _studies(found: Sequence[Cell]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(answer.study for cell in found for answer in cell.answers))


def _by_table(found: Sequence[Cell]) -> dict[tuple[str, str], list[Cell]]:
    tables: dict[tuple[str, str], list[Cell]] = {}
    for cell in found:
        tables.setdefault(cell.table, []).append(cell)
    return tables


def counts(found: Sequence[Cell]) -> tuple[int, int, int]:
    """Returns how many cells are printed, how many of them are measured, and how many of these have a run."""
    measured = [cell for cell in found if cell.measured]
    return len(found), len(measured), sum(bool(cell.answers) for cell in measured)


def _summary(found: Sequence[Cell]) -> str:
    """One line for each table of a paper, and one for all together."""
    head = ("paper", "table", "printed numbers", "scores", "one command starts", "counted apart", "studies")
    rows = []
    for (paper, table), mine in _by_table(found).items():
        rows.append((paper, table, *map(str, counts(mine)), _apart(mine), _names(_studies(mine))))
    return _table(head, [*rows, ("all", "", *(f"{count:,}" for count in counts(found)), _apart(found), "")])


def _sections(found: Sequence[Cell]) -> Iterator[str]:
    """One section for each table; tables of one survey, which have the same models, share one."""
    joined: dict[tuple[str, ...], list[Cell]] = {}
    for (paper, table), mine in _by_table(found).items():
        others = {cell.row.get("protocol") for cell in mine} == {"pretrained"}
        joined.setdefault((paper, *_studies(mine)) if others else (paper, table), []).extend(mine)
    for (paper, *_), mine in joined.items():
        tables = list(dict.fromkeys(cell.row.get("table", "") for cell in mine))
        name = f"table{'s' * (len(tables) > 1)} {', '.join(tables)}" if tables[0].isdigit() else tables[0]
        head = ("printed model", "protocol", "scores", "one command starts", "run by", "missing, and why")
        yield "\n".join((f"## {paper}, {name}\n", _table(head, _lines(mine)), *_waits(mine)))


def _lines(found: Sequence[Cell]) -> Iterator[Sequence[str]]:
    """One line for each printed model and protocol."""
    lines: dict[tuple[str, str], list[Cell]] = {}
    for cell in found:
        lines.setdefault(cell.line, []).append(cell)
    for (model, protocol), mine in lines.items():
        arms: dict[str, list[str]] = {}
        for answer in (answer for cell in mine for answer in cell.answers):
            arms.setdefault(answer.study, []).append(answer.arm)
        run_by = "; ".join(f"`{study}`: {', '.join(dict.fromkeys(names))}" for study, names in arms.items()) or "–"
        _, measured, run = counts(mine)
        yield f"`{model}`", protocol, str(measured), str(run), run_by, _missing(mine)


def _missing(found: Sequence[Cell]) -> str:
    """Names the tasks of the measured cells without a run and says what they lack; infeasible and blank ones too."""
    said: dict[str, list[str]] = {}
    for cell in found:
        row, status = cell.row, cell.row.get("status", "")
        if cell.measured and not cell.answers:
            why = NO_STUDY
        elif status in NOT_MEASURED:
            why = f"{NOT_MEASURED[status]} in print"
        else:
            continue
        said.setdefault(why, []).append(" ".join(filter(None, (row.get("task", ""), row.get("at", "")))))
    return "; ".join(f"{', '.join(dict.fromkeys(tasks))}: {why}" for why, tasks in said.items()) or "–"


def _waits(found: Sequence[Cell]) -> Iterator[str]:
    """One line for each file or checkpoint that cells of a section wait for."""
    readers: dict[str, dict[str, int]] = {}
    for cell in (cell for cell in found if cell.measured):
        for name, reader in dict.fromkeys((name, a.reader) for a in cell.answers for name in a.reads):
            counted = readers.setdefault(name, {})
            counted[reader] = counted.get(reader, 0) + 1
    for name, counted in readers.items():
        cells_of = ", ".join(f"{count} cell{'s' * (count > 1)} of `{reader}`" for reader, count in counted.items())
        yield f"- `{name}`: {cells_of} wait{'s' * (sum(counted.values()) == 1)} for it."
    if readers:
        yield ""


def page(studies: Iterable[Study | Survey]) -> str:
    """Returns the whole page."""
    found = cells(studies)
    return contents.filled("\n".join((INTRODUCTION, _summary(found), *_sections(found))))


if __name__ == "__main__":
    after = page(shipped())
    if "--check" in sys.argv:
        sys.exit(
            (not PAGE.exists() or PAGE.read_text() != after) and "Out of date: run python docs/scripts/printed_cells.py"
        )
    PAGE.write_text(after)
