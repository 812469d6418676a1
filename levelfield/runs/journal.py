"""Logs, saves and times one phase while it trains, and says what it cost.

    journal = Journal(progress, number=0, plan=plan, before={}, costs=[], notes=[], machine={"device": "cpu"})
    notes += journal.open(state.step)
    for metrics in train(state, plan, ...):
        journal.note(state, metrics)
    cost = journal.close(state, meter, phase)

The training loop yields after every step and knows nothing of files; this is what its driver does with each step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from levelfield.files import atomic, disk_errors, to_line, write_json
from levelfield.runs import checkpoint, claims, sound, store
from levelfield.runs.claims import Lease, Stopped
from levelfield.runs.flops import Meter
from levelfield.runs.ledger import new_kernels
from levelfield.runs.processes import ALONE, Group
from levelfield.spec import Phase, Run, UserError
from levelfield.train import Metrics, Plan, State

SAVE_EVERY_S = 5.0  # seconds between checkpoints at least; more where saving itself is slow
SHOW_EVERY_S = 0.5
LOG_POINTS = 200  # about how many records of its training curve a phase leaves
CALLED = {"device": "Device", "threads": "Threads", "torch": "torch", "version": "levelfield"}  # in notes of changes


@dataclass(frozen=True)
class ProgressFile:
    """Tells whoever watches how far a run is, in a file of its folder."""

    run: Run
    where: Path
    told: bool = True  # whether anything is: of several processes of a run, the first one tells

    def write(self, **facts: Any) -> None:
        """Replaces what was told before. No run fails because this cannot be written."""
        if not self.told:
            return
        with suppress(UserError, OSError):
            write_json(self.where / store.PROGRESS, {"run": self.run.id, "time": time.time(), **facts})


def resumed(saved: checkpoint.Saved, machine: Mapping[str, Any]) -> list[str]:
    """Returns the notes of a run that continues: the earlier ones, and one for each thing by which it is computed that
    is another now. machine: as of `Journal`. Checkpoints of earlier versions say less of it.
    """
    at = f"step {saved.numbers['step']} of phase {saved.phase + 1}"
    changed = [(name, saved.extra[name], now) for name, now in machine.items() if saved.extra.get(name, now) != now]
    return list(saved.extra.get("notes", [])) + [
        f"{CALLED[name]} changed from {before} to {now} at {at}: an undisturbed run may have other last digits."
        for name, before, now in changed
    ]


class Journal:
    """What is written about one phase of a run.

    number: of the phase, from 0. before: what the checkpoint that it continues from says beside its state: the seconds
    and kernels of the phase until then; {} where the phase begins. costs: of the phases before. notes: what the ledger
    will say. machine: what computes it, by the keys of CALLED. All travel in checkpoints. group: the processes of the
    run, which all note the same steps.
    """

    def __init__(
        self,
        progress: ProgressFile,
        *,
        number: int,
        plan: Plan,
        before: Mapping[str, Any],
        costs: Sequence[Mapping[str, Any]],
        notes: Sequence[str],
        machine: Mapping[str, Any],
        group: Group = ALONE,
    ) -> None:
        self.progress, self.number, self.plan = progress, number, plan
        self.costs, self.notes, self.machine, self.group = list(costs), notes, machine, group
        self.wall_s, self.kernels = float(before.get("wall_s", 0.0)), list[str](before.get("kernels", []))
        self.every = max(1, plan.steps // LOG_POINTS)
        self.started = time.monotonic()
        self.shown = self.saved = self.started
        self.pause = SAVE_EVERY_S
        self.path = progress.where / store.LOG

    def open(self, step: int, claim: Lease | None = None) -> list[str]:
        """Drops the records of steps that a kill undid: of this phase, those after `step`; and those that are damaged.

        Returns a sentence, for the ledger, where there are damaged ones, or no log of the steps before this one. claim:
        of this process. Raises Lost where another owner has the run: of what that one has logged while this process was
        paused, no step is undone.
        """
        if not self.progress.told:
            return []
        phases, begun = len(self.progress.run.protocol.phases), self.number > 0 or step > 0
        records, lacking = sound.curve(self.path, phases, begun=begun)
        kept = [to_line(r) for r in records if (r["phase"], r["step"]) <= (self.number, step)]
        with disk_errors(self.path.parent), atomic(self.path) as partial:
            partial.write_text("".join(kept), encoding="utf-8", newline="\n")
            if claim is not None:
                claim.look()
        return sound.without(self.path, lacking)

    def note(self, state: State, metrics: Metrics) -> None:
        """Writes what is due after a step.

        Raises UserError on a full disk, and Stopped where the run is to be given back, after saving a checkpoint.
        """
        last = metrics.step == self.plan.steps or bool(state.stopped)
        current = metrics.step == state.step  # or losses were fetched of several steps, and this is not the last
        if self.progress.told:
            self._write_due(state, metrics, last=last)
        if last or not current:
            return
        due = self.progress.told and time.monotonic() - self.saved > self.pause
        stopping, saves = self.group.any(claims.stopping(), due)
        if stopping or saves:
            self._save(state, time.monotonic())
        if stopping:
            raise Stopped(f"{self.progress.where} was saved at step {state.step}, and is free for others.")

    def _write_due(self, state: State, metrics: Metrics, *, last: bool) -> None:
        if metrics.step % self.every == 0 or metrics.score is not None or last:
            self._log(metrics)
        now = time.monotonic()
        if now - self.shown > SHOW_EVERY_S or last:
            self.shown = now
            self._show(state, metrics, now)

    def _log(self, metrics: Metrics) -> None:
        record = {"phase": self.number, "objective": self.plan.objective.key, **asdict(metrics)}
        with disk_errors(self.path.parent), self.path.open("a") as file:
            file.write(to_line({k: v for k, v in record.items() if v is not None}))

    def _save(self, state: State, now: float) -> None:
        extra = {"wall_s": self.wall_s + now - self.started, "costs": self.costs}
        extra |= {"kernels": self._kernels(), "notes": list(self.notes), **self.machine}
        checkpoint.write(self.progress.where, self.number, state, extra, self.group)
        self.saved = time.monotonic()
        self.pause = max(SAVE_EVERY_S, 20 * (self.saved - now))

    def _kernels(self) -> list[str]:
        """Returns the notes of `new_kernels` in this phase so far, before it was interrupted too."""
        self.kernels = sorted({*self.kernels, *new_kernels()})
        return self.kernels

    def _show(self, state: State, metrics: Metrics, now: float) -> None:
        best = {"best": state.best_score} if state.best_step >= 0 else {}
        self.progress.write(
            state="training",
            phase=self.number + 1,
            phases=len(self.progress.run.protocol.phases),
            objective=self.plan.objective.key,
            step=metrics.step,
            steps=self.plan.steps,
            loss=metrics.loss if math.isfinite(metrics.loss) else "not finite",
            elapsed_s=self.wall_s + now - self.started,
            **best,
        )

    def close(self, state: State, meter: Meter, phase: Phase) -> dict[str, Any]:
        """Returns what the phase cost, as the ledger has it."""
        work = meter.work(state.step)
        return {
            "objective": self.plan.objective.key,
            "steps": state.step,
            "examples": state.examples,
            "tokens": state.tokens,
            "padding": state.positions - state.tokens,
            "flops": work.dispatched,
            "flops_useful": work.useful,
            "wall_s": round(self.wall_s + time.monotonic() - self.started, 2),
            "tuning_trials": phase.recipe.tuning_trials,
            "best_step": state.best_step,
            "stopped": state.stopped,
            "kernels": self._kernels(),
        }
