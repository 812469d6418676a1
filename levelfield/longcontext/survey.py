"""Defines surveys: studies that evaluate pretrained language models and train none.

    survey = Survey(name="huang2024_table1", claim="...", published=(...), checkpoints=(...), evaluations=..., ...)

    levelfield plan huang2024_table1                          prints the commands that evaluate its models
    levelfield ruler MODEL --table huang2024_table1           evaluates a model exactly as the paper did
    levelfield report huang2024_table1                        shows the printed tables beside the evaluated models

A survey has the printed models, the evaluations behind their rows, and the printed numbers that follow from others or
are not what their table says. A study that trains its models is a `levelfield.spec.Study`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from levelfield.spec import Effort, Published, Row
from levelfield.spec.study import MeasuredCell

if TYPE_CHECKING:
    from levelfield.longcontext.evaluation import Evaluation

ANATOMY = "anatomy.json"  # beside a model's answers: {"layers": ..., "parameters": ...} of the model
BUG = "-published-bug"  # ends the name of a folder whose hybrid ran with the decoding bug of its own code


@dataclass(frozen=True)
class Checkpoint:
    """A model, and how the paper evaluated it.

    printed: its name in published/results.csv; "" for a model that is in no table. source: OWNER/MODEL. context: its
    training length in tokens, as the paper states it; 0 where unknown. tokenizer: its name; "" where it is beside the
    model. bug: whether its own code has a decoding bug, so that it is to be evaluated with and without. layers,
    parameters: its anatomy, by which it is recognised (`levelfield.pretrained.anatomy`).
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
    """A claim, the printed rows that it is about, and how their models are evaluated.

    evaluations: those of a checkpoint at an effort. answers: turns its measured rows (`longcontext.rows`) into cells of
    the tables. recomputed: values of printed cells that follow from other printed cells. marks: the sign of a printed
    cell, which `legend` explains. across: the key of `at` that is the columns of all tables. verdict: on models by
    their cells, measured or printed.
    """

    name: str
    claim: str
    published: tuple[Published, ...]
    deviations: tuple[str, ...]  # known differences from the printed experiment
    checkpoints: tuple[Checkpoint, ...]
    evaluations: Callable[[Checkpoint, Effort], tuple[Evaluation, ...]]
    answers: Callable[[Checkpoint, Sequence[Row]], list[MeasuredCell]]
    recomputed: Callable[[], Sequence[Row]]
    marks: Callable[[Row], str]
    legend: Mapping[str, str]
    across: str
    verdict: Callable[[Sequence[MeasuredCell]], str]

    def recognise(self, name: str, layers: str, parameters: int) -> Checkpoint:
        """Finds the printed model with these layers and parameters; otherwise returns one that is in no table.

        A name is no proof. It only chooses between printed models with the same architecture, such as a model and its
        tuned version.
        """
        alike = [c for c in self.checkpoints if c.layers == layers and _near(c.parameters, parameters)]
        named = [c for c in alike if c == self.find(name)]
        return named[0] if named else alike[0] if len(alike) == 1 else Checkpoint("", name)

    def find(self, name: str) -> Checkpoint:
        """Finds a printed model by the last part of a name or path; otherwise returns one that is in no table."""
        wanted = Checkpoint("", name).folder.removesuffix(BUG)
        found = (c for c in self.checkpoints if c.folder.casefold() == wanted.casefold())
        return next(found, Checkpoint("", name))


def _near(printed: int, parameters: int) -> bool:
    """Whether two counts differ by at most half a percent, as files do in buffers and in rows that pad a vocabulary."""
    return printed > 0 and abs(parameters - printed) <= 0.005 * printed
