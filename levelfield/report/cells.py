"""Gathers rows into cells: one cell is an arm on a task, with all its seeds, its failures, and what it cost.

    table = gather(results, metric="accuracy")
    table.cells[0].arm            # Arm(task="listops", model="attention", protocol="scratch")
    table.cells[0].summary        # n, median, low, high, mean, interval over the seeds that finished
    table.cells[0].failures       # {"at chance": 1, "not finished": 1}
    table.baselines["listops"]    # {"chance": 10.0, "label_prior": 17.1}

Scores are shown in percent, whatever unit they were measured in; R2, errors and losses stay as they are. A run counts
as failed when it diverged, ended by an error, or ended no better than the higher of chance and the label prior,
allowing two binomial standard errors of the test set. A run that was never begun, or that was stopped and may go on,
has not failed: it is unfinished.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median
from typing import Any

from levelfield.report.arms import Arm, differences
from levelfield.report.links import marked
from levelfield.report.stats import SHARE, Summary, bounds, independent, summarise
from levelfield.runs.names import names_in
from levelfield.runs.results import Results
from levelfield.spec import Row, UserError
from levelfield.spec.study import GUESSES, guessed

PLAIN = frozenset({"r2"})  # a fraction by definition, never shown in percent
NONE = "none"  # the protocol of a baseline row
SCORED_BY = {  # kind of objective, with its loss where it has a choice: metrics of its rows (`levelfield.objectives`)
    "Classify": ("accuracy",),
    "ClassifySet": ("f1",),
    "ClassifySteps": ("accuracy",),
    "Regress": ("negative_mse", "r2"),
    **dict.fromkeys(("Maskedce", "Causalce"), ("step_accuracy",)),
    **dict.fromkeys(("Maskedl1", "Causall1"), ("negative_mae",)),
}
COSTS = (
    "parameters",
    "state",
    "examples",
    "tokens",
    "padding",
    "steps",
    "flops",
    "flops_useful",
    "wall_s",
    "peak_memory_mb",
)


@dataclass(frozen=True)
class Score:
    """One seed of one arm. value is None where the run has no finite score."""

    run: str
    seed: int
    value: float | None
    status: str  # ok, chance, diverged, failed (by an error), unfinished (never begun, or stopped without one)
    examples: int | None = None
    independent: float | None = None  # examples that these amount to: fewer, where they come in groups
    stderr: float | None = None  # over examples, in the unit of the value


@dataclass(frozen=True)
class Cell:
    """One arm on one task. anchor: where a page lists its rows, to which its marks in figures lead."""

    arm: Arm
    unit: str
    scores: tuple[Score, ...]
    floor: float | None  # the higher of chance and label prior, in `unit`
    ledgers: tuple[Mapping[str, Any], ...]
    within: tuple[float, float] = SHARE  # the range of the metric
    anchor: str = ""

    @cached_property
    def summary(self) -> Summary | None:
        errors = [s.stderr for s in self.scores if s.stderr]
        stderr = max(errors, default=None) if self.within != SHARE else None
        values = [s.value for s in self.scores if s.value is not None]
        return summarise(values, self.within, self.independent, stderr)

    @property
    def examples(self) -> int | None:
        """Test examples behind each score."""
        return max((s.examples for s in self.scores if s.examples), default=None)

    @property
    def independent(self) -> float | None:
        """Independent test examples that each score amounts to, of the seed with the fewest."""
        return min((s.independent for s in self.scores if s.independent), default=None)

    @property
    def failures(self) -> Counter[str]:
        """Returns how many seeds failed, by why; those that are unfinished have not."""
        return Counter(why for s in self.scores if s.status != "unfinished" and (why := self.failure(s)))

    @property
    def unfinished(self) -> int:
        """Returns how many of the planned seeds were never begun, or stopped without an error."""
        return sum(score.status == "unfinished" for score in self.scores)

    def failure(self, score: Score) -> str | None:
        """Returns why a seed has no score that counts, or None."""
        if score.status in ("unfinished", "failed", "diverged"):
            return score.status if score.status == "diverged" else "not finished"
        if score.status == "chance" or score.value is None:
            return "at chance" if score.value is not None else "no score"
        if self.floor is None or self.unit != "percent" or not score.independent:
            return None
        return "at chance" if guessed(score.value / 100, self.floor / 100, score.independent) else None

    def cost(self, key: str) -> float | None:
        """Median over seeds of one ledger entry; None where no seed has it."""
        values = [v for ledger in self.ledgers if isinstance(v := ledger.get(key), (int, float))]
        return float(median(values)) if values else None

    def words(self, key: str) -> str:
        """Distinct values of one ledger entry, such as the devices."""
        return ", ".join(dict.fromkeys(str(ledger[key]) for ledger in self.ledgers if ledger.get(key) is not None))


@dataclass(frozen=True)
class Cells:
    """Everything the main table holds, in the order of the study's runs. arms: as `arms_of` has them, of all runs."""

    metric: str
    unit: str
    cells: tuple[Cell, ...]
    baselines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    arms: Mapping[str, Arm] = field(default_factory=dict)

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*(c.arm.task for c in self.cells), *self.baselines]))

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(c.arm.model_label for c in self.cells))

    def of(self, task: str) -> tuple[Cell, ...]:
        return tuple(c for c in self.cells if c.arm.task == task)


def shown(value: float | None, unit: str, metric: str) -> float | None:
    """Converts a value to the unit of the table, percent for fractions. None where it is absent or not finite."""
    if value is None or not math.isfinite(value):
        return None
    return 100 * value if unit == "fraction" and metric not in PLAIN else value


def shown_unit(rows: Iterable[Row], metric: str) -> str:
    """Returns "percent", or the unit the metric was measured in."""
    units = [r.get("unit", "fraction") for r in rows if r.get("metric") == metric]
    return "percent" if metric not in PLAIN and {"fraction", "percent"} & set(units) else next(iter(units), "")


def row_value(row: Row) -> float | None:
    return shown(row.get("value"), row.get("unit", "fraction"), row.get("metric", ""))


def is_baseline(row: Row) -> bool:
    return row.get("protocol") == NONE or "run" not in row


def is_test(row: Row) -> bool:
    return row.get("split", "test") == "test"


def is_score(row: Row) -> bool:
    """Whether a row is a score on a whole test split, of a run or of a simple rule."""
    return is_test(row) and not row.get("at") and row.get("metric") != "chance"


def arms_of(results: Results) -> dict[str, Arm]:
    """Run id -> arm, for planned and measured runs alike; runs that share all names get a `variant`."""
    tasks = tuple(dict.fromkeys(row.get("task", "") for row in results.rows))
    named = {run: Arm(*names_in(run, spec, tasks)) for run, spec in results.specs.items()}
    for row in (row for row in results.rows if not is_baseline(row)):
        arm = Arm(row.get("task", ""), row.get("model", ""), row.get("protocol", ""))
        if row.get("at"):  # a probe may name what it draws, such as conv for conv5 and conv9 alike
            named.setdefault(row.get("run", ""), arm)
        else:
            named[row.get("run", "")] = arm
    groups: dict[Arm, list[str]] = {}
    for run, arm in named.items():
        groups.setdefault(arm, []).append(run)
    for arm, runs in groups.items():
        for run, variant in _variants({r: results.specs[r] for r in runs if r in results.specs}).items():
            named[run] = Arm(arm.task, arm.model, arm.protocol, variant)
    return named | {run: replace(named[run], variant=told) for run, told in results.variants.items() if run in named}


def with_variants(results: Results) -> list[Mapping[str, Any]]:
    """Returns the rows, those of arms that share all names with what tells the arm apart as `variant`."""
    told = {run: {"variant": arm.variant} for run, arm in arms_of(results).items() if arm.variant}
    return [{**row, **told.get(row.get("run", ""), {})} for row in results.rows]


def _variants(specs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Returns what tells runs of one name apart, other than the seed: "kernel=5", and no field that tells no more."""
    told: dict[str, tuple[str, ...]] = dict.fromkeys(specs, ())
    for difference in differences({Arm("", run, ""): spec for run, spec in specs.items()}):
        field = difference.field.rsplit(".", 1)[-1]
        values = {arm.model: (f"{field}={value}",) for value, arms in difference.values.items() for arm in arms}
        finer = {run: (*texts, *values.get(run, ())) for run, texts in told.items()}
        if len({*finer.values()}) > len({*told.values()}):
            told = finer
    return {run: ", ".join(texts) for run, texts in told.items() if texts}


def metrics_of(results: Results) -> list[str]:
    """Returns the metrics that runs have whole test scores by, accuracy first."""
    found = dict.fromkeys(row.get("metric", "") for row in results.rows if is_score(row) and not is_baseline(row))
    return sorted(found, key=lambda metric: metric != "accuracy") or ["accuracy"]


def check_ledgers(results: Results) -> None:
    """Raises UserError if some measured run has no ledger: a table without its ledger does not render."""
    for row in results.rows:
        run = row.get("run")
        if not is_baseline(row) and run and not results.ledgers.get(run):
            raise UserError(
                f"Run {run} has rows but no ledger, so no table is made: remove its folder and run it again."
            )


def rule_of(row: Row, metric: str) -> str:
    """Returns which rule that learns no sequence model has this score by a metric; "" where it is no such score."""
    if row.get("metric") == "chance":
        name = "chance"
    else:
        name = row.get("model", "") if is_baseline(row) and row.get("metric") == metric else ""
    return name if is_test(row) and not row.get("at") else ""


def baselines_of(rows: Iterable[Row], metric: str) -> dict[str, dict[str, float]]:
    """Returns task -> rule -> score of rules that learn no sequence model, chance first."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        if name := rule_of(row, metric):
            value = shown(row.get("value"), row.get("unit", "fraction"), metric)
            if value is not None:
                found.setdefault(row.get("task", ""), {}).setdefault(name, value)
    return {task: dict(sorted(rules.items(), key=lambda r: (r[0] != "chance", r[1]))) for task, rules in found.items()}


def tables_of(results: Results) -> list[Cells]:
    """Returns the main tables of a report, one for each metric. Raises UserError for a missing ledger."""
    arms = arms_of(results)
    return [gather(results, metric, arms) for metric in metrics_of(results)]


def gather(results: Results, metric: str = "accuracy", arms: Mapping[str, Arm] | None = None) -> Cells:
    """Cells of the main table: test scores measured at no particular place. Raises UserError for a missing ledger.

    arms: what `arms_of` has returned, where it has been asked before, for it takes long over many runs.
    """
    check_ledgers(results)
    arms = arms_of(results) if arms is None else arms
    baselines = baselines_of(results.rows, metric)
    rows = [r for r in results.rows if not is_baseline(r) and is_test(r) and not r.get("at")]
    by_run = {r.get("run", ""): r for r in rows if r.get("metric") == metric}
    grouped: dict[Arm, list[str]] = {}
    for run, arm in arms.items():
        grouped.setdefault(arm, []).append(run)
    unit = shown_unit(results.rows, metric)
    cells = []
    for arm, runs in grouped.items():
        rules = baselines.get(arm.task, {})
        floor = max((value for name, value in rules.items() if name in GUESSES), default=None)
        scores = sorted((_score(run, by_run.get(run), results) for run in runs), key=lambda score: score.seed)
        ledgers = tuple(results.ledgers[run] for run in runs if run in results.ledgers)
        cells.append(Cell(arm, unit, tuple(scores), floor, ledgers, within=bounds(unit, metric)))
    # An arm of another metric only (a regression beside classifications) belongs to another table, failed or not.
    metrics = _metrics(arms, results)
    other = {run for run in arms if metric not in (metrics[run] or {metric})}
    cells = [c for c in cells if any(s.value is not None or s.run not in other for s in c.scores)]
    return Cells(metric, unit, tuple(cells), baselines, arms)


def _metrics(arms: Mapping[str, Arm], results: Results) -> dict[str, set[str]]:
    """Returns run -> its metrics: those of its rows, else those of its objective, else all of its task."""
    own: dict[str, set[str]] = {}
    of_task: dict[str, set[str]] = {}
    for row in results.rows:
        if is_score(row):
            of_task.setdefault(row.get("task", ""), set()).add(row.get("metric", ""))
            if not is_baseline(row):
                own.setdefault(row.get("run", ""), set()).add(row.get("metric", ""))
    return {
        run: own.get(run) or _objective_metrics(results.specs.get(run, {})) or of_task.get(arm.task, set())
        for run, arm in arms.items()
    }


def _objective_metrics(spec: Mapping[str, Any]) -> set[str]:
    """Returns the metrics of the objective of a run's last phase; of a sum, the first part is scored."""
    phases = spec.get("protocol", {}).get("phases", [])
    objective = phases[-1].get("objective", {}) if phases else {}
    objective = objective.get("of", [objective])[0]
    return set(SCORED_BY.get(objective.get("kind", "") + objective.get("loss_kind", ""), ()))


def _score(run: str, row: Row | None, results: Results) -> Score:
    """Returns the score of one run from its row, which is None where the run has not finished."""
    seed = row.get("seed") if row else None
    seed = seed if seed is not None else results.specs.get(run, {}).get("seed", 0)
    if row is None:
        begun = run in results.failures or run in results.ledgers
        return Score(run, seed, None, "failed" if begun else "unfinished")
    stderr = shown(row.get("stderr"), row.get("unit", "fraction"), row.get("metric", ""))
    status = row.get("status", "ok")
    return Score(run, seed, row_value(row), status, row.get("n"), independent=independent(row), stderr=stderr)


def unequal(tables: Iterable[Cells], anchor: Callable[[Arm], str] = lambda arm: "") -> str:
    """Says by how much parameter counts differ, on the task where they differ most; "" where it is less than a tenth.

    anchor: where a page has the rows of an arm, to which its count leads; "" for nowhere.

    A model is counted as it is trained, with its head. Models are matched by widths, which are whole numbers that heads
    and groups divide, so that a few percent are always left, and more where a model takes few widths.
    """
    return unequal_counts(((cell.cost("parameters") or 0, cell.arm) for of in tables for cell in of.cells), anchor)


def unequal_counts(counts: Iterable[tuple[float, Arm]], anchor: Callable[[Arm], str] = lambda arm: "") -> str:
    """Says what `unequal` does, of the numbers of parameters of arms, 0 where they are not known."""
    by_task: dict[str, list[tuple[float, Arm]]] = {}
    for count, arm in counts:
        by_task.setdefault(arm.task, []).extend([(count, arm)] if count else [])
    ordered = [sorted(found, key=lambda each: (each[0], each[1].model_label)) for found in by_task.values() if found]
    furthest = max(ordered, key=lambda found: found[-1][0] / found[0][0], default=[(1.0, Arm("", "", ""))])
    (least, fewer), (most, more) = furthest[0], furthest[-1]
    if most < 1.1 * least:
        return ""
    return (
        f"Parameter counts are not equal: on {more.task}, {more.model_label} has "
        f"{marked(f'{most:,.0f}', anchor(more))}, {most / least:.3g} times as many as {fewer.model_label} with "
        f"{marked(f'{least:,.0f}', anchor(fewer))}."
    )


def left_out(results: Results) -> str:
    """Says which arms other commands of a comparison asked for that nobody has begun; "" where there are none."""
    arms = results.unbegun
    if not arms:
        return ""
    more = f" and {len(arms) - 3} more" if len(arms) > 3 else ""
    return f"Asked for by earlier commands and not begun, so not counted here: {', '.join(arms[:3])}{more}."
