"""Tunes all arms equally: each tries as many recipes as every other, and its runs use the one that did best.

    study = Study(..., search=Search(trials=6, lr=(0.1, 10)))
    trials(study)                    the study of all that is tried: one run per arm and recipe, at a seed of its own
    with_best_recipes(study, out)    the study with the chosen recipes, once all trials are complete in out/trials

The recipes are drawn before anything runs, the same changes for every arm, instead of searching arm by arm: so no arm
gets luckier draws, trials run side by side, and a killed search continues. A trial is trained like any run, is scored
on validation alone and never meets the test split. Both are studies like any other, so that all that works on a study
works on them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from levelfield.files import with_suffix
from levelfield.runs import store
from levelfield.spec import EFFORTS, UNTUNED, Effort, Recipe, Run, Search, Study, UserError

FOLDER = store.TRIALS
SUFFIX = "-tuned"  # of a study's name, where the command line asks for trials
SEED = 9_999  # of every trial, so that trials of an arm differ in their recipe alone
SHOWN = 12  # trials that a plan lists
RunFilter = Callable[[Run], bool]


def every_run(run: Run) -> bool:
    return True


@dataclass(frozen=True)
class Trial:
    """One recipe of one arm: what it multiplied, and the run that tries it."""

    lr: float
    weight_decay: float
    run: Run

    def recipe_of(self, run: Run, trials: int) -> Run:
        """Returns a run of its arm with this recipe. trials: how many were tried."""
        return replace(run, protocol=run.protocol.at_rates(self.lr, self.weight_decay, trials))


@dataclass(frozen=True)
class TunedArm:
    """Runs that differ in their seed alone, and what is tried for them: nothing where nothing is trained."""

    runs: tuple[Run, ...]
    trials: tuple[Trial, ...]

    def scores(self, out: Path) -> list[float]:
        """Returns the scores of its complete trials, in order."""
        return [found for trial in self.trials if (found := score(trial.run, out)) is not None]

    def tuned(self, scores: list[float]) -> list[Run]:
        """Returns the runs with the best recipe; `scores` are those of all trials."""
        if not self.trials:
            return list(self.runs)
        best = self.trials[_best(scores)]
        return [best.recipe_of(run, len(self.trials)) for run in self.runs]


def with_search(study: Study, count: int) -> Study:
    """Returns the study with a search of `count` trials an arm; the same where `count` is 0."""
    if not count:
        return study
    left = tuple(text for text in study.deviations if text != UNTUNED)
    name = with_suffix(study.name, SUFFIX)
    return replace(study, name=name, search=Search(count), tuned_at=EFFORTS, deviations=left)


def trials(study: Study, matches: RunFilter = every_run) -> Study:
    """Returns all trials, as a study, of the arms of which some run matches. Raises UserError where none does."""
    return replace(study, runs=lambda effort: _runs(_arms(study, effort, matches)), probes=lambda run: (), search=None)


def with_best_recipes(study: Study, out: Path, matches: RunFilter = every_run) -> Study:
    """Returns the study whose runs use what their arms' trials found best on validation; the same without a search.

    Its `runs` leave out arms whose trials are not all complete, and raise UserError where no arm has all of them.
    """
    if study.search is None:
        return study

    def runs(effort: Effort) -> list[Run]:
        found = [(arm, arm.scores(out)) for arm in _arms(study, effort, matches)]
        made = [run for arm, scores in found if len(scores) == len(arm.trials) for run in arm.tuned(scores)]
        if found and not made:
            done, total = sum(len(scores) for _, scores in found), sum(len(arm.trials) for arm, _ in found)
            raise UserError(
                f"{study.name} is tuned first, and {done} of {total} trials are done: `levelfield run` does the rest, "
                "then the runs."
            )
        return made

    return replace(study, runs=runs, search=None)


def progress(study: Study, effort: Effort, out: Path, matches: RunFilter = every_run) -> tuple[Study, list[str]]:
    """Returns the matching runs as far as their recipes are known, as a study, and lines that say how far that is."""
    search = study.search_at(effort)
    if search is None:
        return study, []
    found = _arms(study, effort, matches)
    total, done = len(_runs(found)), sum(len(arm.scores(out)) for arm in found)
    factors = [f"({lr:.3g}, {decay:.3g})" for lr, decay in search.factors()]
    more = f" and {len(factors) - SHOWN} more" if len(factors) > SHOWN else ""
    lines = [
        "",
        f"Tuning: {search.trials} trials for each arm, {total} in all, {done} done; scored on validation{_of(search)}.",
        f"  (lr, weight_decay) of every phase times {', '.join(factors[:SHOWN])}{more}",
    ]
    if done == total:
        return with_best_recipes(study, out, matches), lines
    return replace(study, runs=lambda effort: [run for arm in found for run in arm.runs]), lines


def trial_records(study: Study, effort: Effort, out: Path) -> list[dict[str, Any]]:
    """Returns trials as records, arm by arm where all are complete: factors, score (absent where it diverged) and cost.

    `arm` is the id of the first run that uses what was chosen.
    """
    records: list[dict[str, Any]] = []
    for arm in _arms(study, effort):
        scores = arm.scores(out)
        if not scores or len(scores) < len(arm.trials):
            continue
        best, first = _best(scores), arm.tuned(scores)[0].id
        for number, (trial, found) in enumerate(zip(arm.trials, scores, strict=True)):
            run = trial.run
            record = {"arm": first, "task": run.task.name, "model": run.model.label, "protocol": run.protocol.name}
            record |= {"lr": trial.lr, "weight_decay": trial.weight_decay, "chosen": number == best}
            record |= {"validation": found} if found > float("-inf") else {}
            row, ledger = _measured(run, out)
            record |= {key: row[key] for key in ("metric", "unit")}
            records.append(record | {"flops": ledger["flops"], "wall_s": ledger["wall_s"]})
    return records


def score(run: Run, out: Path) -> float | None:
    """Returns a trial's validation score: None where it is not complete, minus infinity where it diverged.

    Raises UserError where one of its files is damaged, for another recipe might be the best then.
    """
    if not store.complete(store.directory(out / FOLDER, run)):
        return None
    row, _ = _measured(run, out)
    return float("-inf") if row.get("status") == "diverged" else row.get("value", float("-inf"))


def _measured(run: Run, out: Path) -> tuple[Any, Any]:
    """Returns the one row of a complete trial, and its ledger. Raises UserError as `score` does."""
    found = store.measured(store.directory(out / FOLDER, run), len(run.protocol.phases))
    return found.rows[0], found.ledger


def _best(scores: list[float]) -> int:
    """Returns the index of the first highest score, so that the arm's own recipe stays where nothing is better."""
    return max(range(len(scores)), key=scores.__getitem__)


def _runs(found: list[TunedArm]) -> list[Run]:
    return [trial.run for arm in found for trial in arm.trials]


def _arms(study: Study, effort: Effort, matches: RunFilter = every_run) -> list[TunedArm]:
    """Returns the arms of a study, each with those of its runs that match as the study has them or as any trial would
    leave them; without trials where the effort is not tuned. Raises UserError where none matches."""
    search = study.search_at(effort)
    grouped: dict[str, list[Run]] = {}
    for run in study.runs(effort):
        if run.seed == SEED:
            raise UserError(f"Seed {SEED} is that of trials: take another for {run.id}.")
        grouped.setdefault(replace(run, seed=SEED).id, []).append(run)
    found: list[TunedArm] = []
    for runs in grouped.values():
        tried = _trials(runs[0], search) if search and runs[0].protocol.phases else ()
        own = tuple(r for r in runs if matches(r) or any(matches(each.recipe_of(r, len(tried))) for each in tried))
        if own:
            found.append(TunedArm(own, tried))
    if grouped and not found:
        raise UserError(
            f"No run of {study.name} is chosen: with the same options, `levelfield plan --json` lists its runs."
        )
    return found


def _of(search: Search) -> str:
    return f" after {search.share:.0%} of the budget" if search.share < 1 else ""


def _trials(run: Run, search: Search) -> tuple[Trial, ...]:
    return tuple(Trial(*factors, _tried(run, factors, search)) for factors in search.factors())


def _tried(run: Run, factors: tuple[float, float], search: Search) -> Run:
    """Returns the run as a trial: at the seed of trials, for the share of its budgets that the search has."""
    made = replace(run, protocol=run.protocol.at_rates(*factors, search.trials), seed=SEED)
    if search.share == 1:
        return made
    phases = tuple(replace(each, recipe=_shortened(each.recipe, search.share)) for each in made.protocol.phases)
    return replace(made, protocol=replace(made.protocol, phases=phases))


def _shortened(recipe: Recipe, share: float) -> Recipe:
    after = recipe.patience_after
    parts = {"budget": recipe.budget, **({"patience_after": after} if after else {})}
    return replace(recipe, **{name: replace(whole, value=share * whole.value) for name, whole in parts.items()})
