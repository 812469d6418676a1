"""Defines a run: one task, one model, one protocol and one seed, under an id that is a hash of every field."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from levelfield.spec.errors import check_literals
from levelfield.spec.identity import digest
from levelfield.spec.model import Model
from levelfield.spec.numerics import PLAIN, Numerics
from levelfield.spec.protocol import Protocol
from levelfield.spec.task import Task


@dataclass(frozen=True)
class Run:
    """One cell of a table at one seed: the frozen value from which everything that reaches the device derives."""

    task: Task
    model: Model
    protocol: Protocol
    seed: int
    numerics: Numerics = field(default=PLAIN, metadata={"added": True})

    def __post_init__(self) -> None:
        check_literals(self)

    @property
    def trained_on(self) -> tuple[Task, ...]:
        """The task of each phase: the run's own, but where a phase has a length of its own.

        Raises UserError where a task has one length alone.
        """
        lengths = [phase.length for phase in self.protocol.phases]
        return tuple(self.task if length is None else self.task.at_length(length) for length in lengths)

    @cached_property
    def id(self) -> str:
        """Readable names, then ten hexadecimal digits of a hash over every field and version, and of files it reads.

        It is computed once, because a study of many thousand runs asks for it again and again.
        """
        names = f"{self.task.name}-{self.model.label}-{self.protocol.name}-{self.seed}"
        return f"{names}-{digest(self)[:10]}"
