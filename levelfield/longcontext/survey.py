"""Defines surveys: studies that evaluate pretrained language models and train none.

    survey = Survey(name="huang2024_table1", claim="...", published=(...), checkpoints=(...), evaluations=..., ...)

    levelfield plan huang2024_table1                          the commands that make the numbers
    levelfield ruler MODEL --table huang2024_table1           asks one model exactly what the paper asked
    levelfield report huang2024_table1                        the printed tables, and beside them whoever was asked

A survey knows the printed models, the evaluations that make their rows, which printed numbers follow from others, and
which are not what their table says. A study that trains its models is a `levelfield.spec.Study`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from levelfield.spec import Effort, Published, Row
from levelfield.spec.study import MeasuredCell

if TYPE_CHECKING:
    from levelfield.longcontext.evaluation import Evaluation

ANATOMY = "anatomy.json"  # beside a model's answers: {"layers": ..., "parameters": ...} of who gave them
BUG = "-published-bug"  # how a folder's name ends where the hybrid ran as its own code decodes


@dataclass(frozen=True)
class Checkpoint:
    """A model, and how it was asked.

    printed: its name in published/results.csv; "" for a model that no table has. source: OWNER/MODEL. context: the
    steps it was trained on, as the paper has it; 0 where unknown. tokenizer: where it is not beside the model. bug:
    whether its own code decodes wrongly, so that it is to be asked both ways. layers, parameters: what it is made of,
    by which it is recognised (`levelfield.pretrained.anatomy`).
    """

    printed: str
    source: str
    context: int = 0
    template: str = "base"
    tokenizer: str = ""
    bug: bool = False
    layers: str = ""
    parameters: int = 0

    @property
    def folder(self) -> str:
        return self.source.rstrip("/").rsplit("/", 1)[-1]


@final
@dataclass(frozen=True)
class Survey:
    """The claim, the printed rows it answers to, and how their models are asked.

    evaluations: of a checkpoint at an effort. answers: its measured rows (`longcontext.rows`) in the places of the
    tables.

    recomputed: values of printed cells that follow from other printed cells, in the same places. marks: signs of a
    printed cell, which `legend` explains. across: which key of `at` runs to the right in all tables. verdict: of models
    by their answers, which printed rows may stand for.
    """

    name: str
    claim: str
    published: tuple[Published, ...]
    deviations: tuple[str, ...]  # where it knowingly differs from the printed experiment
    checkpoints: tuple[Checkpoint, ...]
    evaluations: Callable[[Checkpoint, Effort], tuple[Evaluation, ...]]
    answers: Callable[[Checkpoint, Sequence[Row]], list[MeasuredCell]]
    recomputed: Callable[[], Sequence[Row]]
    marks: Callable[[Row], str]
    legend: Mapping[str, str]
    across: str
    verdict: Callable[[Sequence[MeasuredCell]], str]

    def recognise(self, name: str, layers: str, parameters: int) -> Checkpoint:
        """The printed model with these layers and so many parameters; else one that no table has.

        A name alone is no proof: it only chooses between printed models that are built alike, as one and what was tuned
        from it are.
        """
        alike = [c for c in self.checkpoints if c.layers == layers and _near(c.parameters, parameters)]
        named = [c for c in alike if c == self.find(name)]
        return named[0] if named else alike[0] if len(alike) == 1 else Checkpoint("", name)

    def find(self, name: str) -> Checkpoint:
        """The model that a hub's name or a folder's asks for, by the last part of it; else one that no table has."""
        wanted = Checkpoint("", name).folder.removesuffix(BUG)
        found = (c for c in self.checkpoints if c.folder.casefold() == wanted.casefold())
        return next(found, Checkpoint("", name))


def _near(printed: int, parameters: int) -> bool:
    """Within half a percent: files differ in what they keep beside the weights, and in rows that pad a vocabulary."""
    return printed > 0 and abs(parameters - printed) <= 0.005 * printed
