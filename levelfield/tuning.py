"""Equal tuning: every arm of a study tries as many recipes as every other, and its runs use the one that did best.

    study = Study(..., search=Search(trials=6, lr=(0.1, 10)))
    trials(study)           the study of all that is tried: one run per arm and recipe, at a seed of its own
    settled(study, out)     the study with the chosen recipes, once all trials are complete in out/trials

The recipes are drawn before anything runs, the same changes for every arm, instead of searching arm by arm: so nobody
gets luckier draws, trials run side by side, and a killed search goes on. A trial is trained like any run, is scored
on validation alone and never meets the test split. Both are studies like any other, so that all that works on a study
works on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from levelfield import store
from levelfield.spec import Effort, Protocol, Run, Search, Study, UserError

FOLDER = "trials"  # of the folder of runs
SUFFIX = "-tuned"  # of a study's name, where the command line asks for trials
SEED = 9_999  # of every trial, so that trials of an arm differ in their recipe alone


@dataclass(frozen=True)
class Trial:
    """One recipe of one arm: what it multiplied, and the run that tries it."""

    lr: float
    weight_decay: float
    run: Run


def tuned_by(study: Study, count: int) -> Study:
    """The study with a search of `count` trials an arm; the same where `count` is 0."""
    return replace(study, name=f"{study.name}{SUFFIX}", search=Search(count)) if count else study


def trials(study: Study, wanted: Callable[[Run], bool] = lambda run: True) -> Study:
    """All trials, as a study; of the arms some run of which is `wanted`. Raises UserError where none is."""

    def runs(effort: Effort) -> list[Run]:
        found = [trial.run for _, tried in _arms(study, effort, wanted) for trial in tried]
        if not found:
            raise UserError(f"No arm of {study.name} is chosen: --only takes patterns of its run ids.")
        return found

    return replace(study, runs=runs, probes=lambda run: (), search=None)


def settled(study: Study, out: Path) -> Study:
    """The study whose runs use what their arms' trials found best on validation; the same where there is no search.

    Its `runs` leave out arms of which no trial is complete, and raise UserError where some are and some are not.
    """
    if study.search is None:
        return study

    def runs(effort: Effort) -> list[Run]:
        made: list[Run] = []
        for own, tried in _arms(study, effort):
            scores = [score(trial.run, out) for trial in tried]
            if not tried:
                made += own
            elif any(found is not None for found in scores):
                made += _chosen(own, tried, scores)
        if not made:
            raise UserError(f"{study.name} is tuned first: `levelfield run` does its trials, then its runs.")
        return made

    return replace(study, runs=runs, search=None)


def state(study: Study, effort: Effort, out: Path) -> tuple[Study, list[str]]:
    """The study as far as its trials have settled it, and lines that say how far that is."""
    search = study.search
    if search is None:
        return study, []
    runs = [trial.run for _, tried in _arms(study, effort) for trial in tried]
    done = sum(score(run, out) is not None for run in runs)
    factors = ", ".join(f"({lr:.3g}, {decay:.3g})" for lr, decay in search.factors())
    lines = [
        "",
        f"Tuning: {search.trials} trials an arm, {len(runs)} in all, {done} done; scored on validation.",
        f"  (lr, weight_decay) of every phase times {factors}",
    ]
    return (settled(study, out) if done == len(runs) else study), lines


def _chosen(own: Sequence[Run], tried: Sequence[Trial], scores: Sequence[float | None]) -> Iterator[Run]:
    done = [found for found in scores if found is not None]
    if len(done) < len(tried):
        raise UserError(f"{len(done)} of {len(tried)} trials of {tried[0].run.id} are done: run the study again.")
    best = tried[max(range(len(tried)), key=done.__getitem__)]
    for run in own:
        yield _with(run, best.lr, best.weight_decay, len(tried), run.seed)


def tried(study: Study, effort: Effort, out: Path) -> list[dict[str, Any]]:
    """Every complete trial as a record: its arm, factors, validation score (absent where it diverged) and cost."""
    records: list[dict[str, Any]] = []
    for _, arm in _arms(study, effort):
        done = [(trial, found) for trial in arm if (found := score(trial.run, out)) is not None]
        best = max(done, key=lambda pair: pair[1], default=None)
        for trial, found in done:
            run = trial.run
            record = {"task": run.task.name, "model": run.model.label, "protocol": run.protocol.name, "lr": trial.lr}
            record |= {"weight_decay": trial.weight_decay, "chosen": best == (trial, found)}
            record |= {"validation": found} if found > float("-inf") else {}
            record |= {key: _row(run, out)[key] for key in ("metric", "unit")}
            ledger = store.read_json(store.directory(out / FOLDER, run) / "ledger.json")
            records.append(record | {"flops": ledger["flops"], "wall_s": ledger["wall_s"]})
    return records


def score(run: Run, out: Path) -> float | None:
    """A trial's validation score: None where it is not complete, minus infinity where it diverged."""
    if not store.complete(store.directory(out / FOLDER, run)):
        return None
    row = _row(run, out)
    return float("-inf") if row["status"] == "diverged" else row.get("value", float("-inf"))


def _row(run: Run, out: Path) -> Any:
    return store.read_rows(store.directory(out / FOLDER, run) / "rows.jsonl")[0]


def _arms(
    study: Study, effort: Effort, wanted: Callable[[Run], bool] = lambda run: True
) -> Iterator[tuple[list[Run], list[Trial]]]:
    """The runs of each arm, which differ in their seed alone, and its trials; none where nothing is trained."""
    search = study.search
    assert search is not None
    arms: dict[str, list[Run]] = {}
    for run in study.runs(effort):
        if run.seed == SEED:
            raise UserError(f"Seed {SEED} is that of trials: take another for {run.id}.")
        arms.setdefault(replace(run, seed=SEED).id, []).append(run)
    for runs in arms.values():
        if any(wanted(run) for run in runs):
            factors = search.factors() if runs[0].protocol.phases else []
            yield runs, [Trial(a, b, _with(runs[0], a, b, search.trials, SEED)) for a, b in factors]


def _with(run: Run, lr: float, weight_decay: float, trials: int, seed: int) -> Run:
    """The run with its rates multiplied, in every phase."""
    phases = tuple(
        replace(
            phase,
            recipe=replace(
                phase.recipe,
                lr=lr * phase.recipe.lr,
                weight_decay=weight_decay * phase.recipe.weight_decay,
                tuning_trials=trials,
            ),
        )
        for phase in run.protocol.phases
    )
    protocol: Protocol = replace(run.protocol, phases=phases)
    return replace(run, protocol=protocol, seed=seed)
