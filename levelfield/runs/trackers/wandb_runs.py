"""Tells runs to Weights & Biases, as its own settings say: WANDB_PROJECT, WANDB_ENTITY, WANDB_MODE=offline.

A record is told under its number in the run, of which wandb takes each once and in order. So what was told before an
outage and is told again changes nothing. Curves are drawn over the step of their phase.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from levelfield.runs.trackers.replay import Entry, Tracked

WAIT_S = "20"  # for the server to take a run, unless WANDB_INIT_TIMEOUT says otherwise; wandb's own is 90


class Wandb:
    """Runs of one project, each open from its first record until it is complete. folder: of wandb's own files."""

    def __init__(self, folder: Path) -> None:
        os.environ.setdefault("WANDB_INIT_TIMEOUT", WAIT_S)
        offline = os.environ.get("WANDB_MODE") in ("offline", "dryrun")
        kept = shlex.quote(str(folder / "wandb"))
        self.folder, self.look = folder, f"wandb sync {kept}/offline-run-*" if offline else ""
        self.runs: dict[str, Any] = {}

    def log(self, run: Tracked, entries: Sequence[Entry]) -> bool:
        to = self._open(run)
        for phase in dict.fromkeys(entry.phase for entry in entries):
            to.define_metric(f"{phase}/step")
            to.define_metric(f"{phase}/*", step_metric=f"{phase}/step")
        for entry in entries:
            to.log({**entry.values, f"{entry.phase}/step": entry.step}, step=entry.number)
        return False  # a process of wandb's own has them until the run is finished

    def conclude(self, run: Tracked, facts: Mapping[str, float]) -> None:
        to = self._open(run)
        to.summary.update(dict(facts))
        to.finish()
        del self.runs[run.name]

    def close(self) -> None:
        while self.runs:
            self.runs.popitem()[1].finish()

    def _open(self, run: Tracked) -> Any:
        """Returns the open run of that name, which is gone on with where it exists."""
        import wandb  # pyright: ignore[reportMissingImports]

        if run.name not in self.runs:
            self.runs[run.name] = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "levelfield"),
                id=hashlib.sha256(run.name.encode()).hexdigest()[:32],  # names may be longer than ids
                name=run.name,
                group=run.arm,
                config=dict(run.config),
                dir=self.folder,
                resume="allow",
                reinit="create_new",  # runs train side by side
                settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
            )
        return self.runs[run.name]
