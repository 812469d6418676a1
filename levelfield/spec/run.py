"""A run: one task, one model, one protocol, one seed; its id is a hash of every field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from levelfield.spec.identity import digest
from levelfield.spec.model import Model
from levelfield.spec.protocol import Protocol
from levelfield.spec.task import Task

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Run:
    """One cell, one seed: the frozen value from which everything that reaches the device derives."""

    task: Task
    model: Model
    protocol: Protocol
    seed: int

    @property
    def id(self) -> str:
        """Names for the eye, then ten hex digits of a hash over every field and version."""
        names = f"{self.task.name}-{self.model.label}-{self.protocol.name}-{self.seed}"
        return f"{names}-{digest(self)[:10]}"
