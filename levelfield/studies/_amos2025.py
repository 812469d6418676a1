"""Holds what the studies of Amos et al. (2025) on Long Range Arena share: tasks, protocols, runs and findings.

task("image", "paper")              # Image(): 1,024 gray values
task("image", "overnight")          # Image(side=8)
protocols(amos2025.s4("image"))     # scratch, and masked self-pretraining
runs_of(arms, LRA, "paper")         # of all tasks, and of all seeds of an arm
findings_by_task(rows, claim)       # one claim of every task that has its cells
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from levelfield.protocols import scratch, spt_masked
from levelfield.recipes import amos2025
from levelfield.report.verdicts import Claim, Finding, Table, judged
from levelfield.spec import Effort, Model, Protocol, Row, Run, Task
from levelfield.tasks.image import Image
from levelfield.tasks.listops import ListOps
from levelfield.tasks.pathfinder import Pathfinder
from levelfield.tasks.retrieval import Retrieval
from levelfield.tasks.text import Text

SEEDS: dict[Effort, int] = {"smoke": 1, "minutes": 2, "overnight": 3, "hours": 3, "paper": 3}
LRA = ("listops", "pathfinder", "pathx", "text", "retrieval", "image")
"""The six tasks of the averages; what needs official files comes after what does not."""


class Arm(NamedTuple):
    """What a run is made of, but for its seed."""

    task: Task
    model: Model
    protocol: Protocol


def runs_of(arms: Callable[[str, Effort], Iterable[Arm]], names: Iterable[str], effort: Effort) -> tuple[Run, ...]:
    """Returns, name by name, every arm at every seed."""
    return tuple(Run(*arm, seed) for name in names for arm in arms(name, effort) for seed in range(SEEDS[effort]))


def findings_by_task(rows: Sequence[Row], claim: Callable[[str, Table], Claim | None]) -> list[Finding]:
    """Judges the claim of every task together; a task whose claim is None has no finding."""
    table = Table.of(rows)
    return judged({name: found for name in table.tasks if (found := claim(name, table)) is not None})


def task(name: str, effort: Effort) -> Task:
    """The printed task, or a smaller one below `hours`. The paper feeds gray values as numbers, texts as characters."""
    if effort == "smoke":
        small = ListOps(minimum=10, length=60, max_depth=4, train=64, val=16, test=16)
        return small if name == "listops" else Pathfinder(16, train=64, val=16, test=16)
    if effort in ("minutes", "overnight"):
        return {
            "listops": ListOps(minimum=20, length=200, max_depth=5, max_args=6, train=20_000, val=1_000, test=2_000),
            "pathfinder": Pathfinder(16, "easy", train=20_000, val=1_000, test=2_000),
            "image": Image(side=8),
        }[name]
    return {
        "listops": ListOps(),
        "pathfinder": Pathfinder(),
        "pathx": Pathfinder(128),
        "pathx256": Pathfinder(256),
        "text": Text("characters"),
        "retrieval": Retrieval(level="characters"),
        "image": Image(),
    }[name]


def protocols(setting: amos2025.Setting) -> tuple[Protocol, Protocol]:
    """Training from scratch, and masked self-pretraining with fine-tuning."""
    pretrained = spt_masked(setting.pretrain, setting.finetune, setting.ratio, loss=setting.loss)
    return scratch(setting.scratch), pretrained
