"""What a study asks of language models that exist, where it trains none.

    study = Study(name="huang2024_table1", ..., runs=lambda effort: (), survey=Survey(checkpoints, exams, ...))

    levelfield plan huang2024_table1                          the commands that make the numbers
    levelfield ruler MODEL --table huang2024_table1           asks one model exactly what the paper asked
    levelfield report huang2024_table1                        the printed tables, and beside them whoever was asked

A survey knows the printed models, the exams that make their rows, which printed numbers follow from others, and which
are not what their table says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from levelfield.longcontext import Exam
from levelfield.results import Answer
from levelfield.spec import Effort, Row

BUG = "-published-bug"  # how a folder's name ends where the hybrid ran as its own code decodes


@dataclass(frozen=True)
class Checkpoint:
    """A model, and how it was asked.

    printed: its name in published/results.csv; "" for a model that no table has. source: OWNER/MODEL. context: the
    steps it was trained on, as the paper has it; 0 where unknown. tokenizer: where it is not beside the model. bug:
    whether its own code decodes wrongly, so that it is to be asked both ways.
    """

    printed: str
    source: str
    context: int = 0
    template: str = "base"
    tokenizer: str = ""
    bug: bool = False

    @property
    def folder(self) -> str:
        return self.source.rstrip("/").rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Survey:
    """exams: of a checkpoint at an effort. answers: its measured rows, `longcontext.rows`, in the places of the tables.

    recomputed: values of printed cells that follow from other printed cells, in the same places. marks: signs of a
    printed cell, which `legend` explains. across: which key of `at` runs to the right in all tables.
    """

    checkpoints: tuple[Checkpoint, ...]
    exams: Callable[[Checkpoint, Effort], tuple[Exam, ...]]
    answers: Callable[[Checkpoint, Sequence[Row]], list[Answer]]
    recomputed: Callable[[], Sequence[Row]]
    marks: Callable[[Row], str]
    legend: Mapping[str, str]
    across: str

    def find(self, name: str) -> Checkpoint:
        """The printed model of a hub's name or of a folder, by the last part of it; else one that no table has."""
        wanted = Checkpoint("", name).folder.removesuffix(BUG)
        found = (c for c in self.checkpoints if c.folder.casefold() == wanted.casefold())
        return next(found, Checkpoint("", name))
