"""Answers to the questions of docs/findings.md from made-up rows, for tests of the page and of its figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from printed_rows import measured

from levelfield.report.verdicts import Finding, Key
from levelfield.spec import Row, Run
from levelfield.studies import amos2025_small

SPREAD = (-1.0, 0.0, 1.0)
PROTOCOLS = ("scratch", "scratch_matched", "spt_masked")


@dataclass(eq=False)
class Fake:
    """An answer of made-up rows; the rest is the study's own."""

    module: Any
    rows: list[Row]
    effort: str = "overnight"
    results: SimpleNamespace = field(init=False)

    def __post_init__(self) -> None:
        self.results, self.study = SimpleNamespace(rows=self.rows, compared=self.rows, ledgers={}), self.module.study

    @property
    def planned(self) -> Sequence[Run]:
        return self.study.runs(self.effort)

    @property
    def findings(self) -> list[Finding]:
        return self.module.findings(self.rows)


def pretrained(transformer: tuple[float, float, float], *models: str) -> Fake:
    """ListOps and pictures with the three protocols of every model; those of the Transformer are given."""
    scores = dict.fromkeys(models, (60.0, 60.5, 61.0)) | {"transformer_rotary": transformer}
    cells = {
        Key(task, model, protocol): ("accuracy", score)
        for task in ("listops", "image8")
        for model, own in scores.items()
        for protocol, score in zip(PROTOCOLS, own, strict=True)
    }
    return Fake(amos2025_small, measured(cells, SPREAD))
