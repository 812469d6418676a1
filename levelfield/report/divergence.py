"""Says which arms diverged, since a score of a model that came apart reads like any other.

    sentences(results, cells)
    # ["mine diverged at step 3 of 6 in 1 of 2 seeds of recall (scratch): ..."]

A run diverges where its loss, its weights or its outputs are NaN or infinite. Training stops there, and what is scored
is the weights that were kept before (`levelfield.train`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from levelfield.report.arms import Arm
from levelfield.report.cells import Cell, Cells
from levelfield.runs.results import Results

LISTED = 5  # arms


def sentences(results: Results, tables: Iterable[Cells]) -> list[str]:
    """Returns a sentence for each arm of which a seed diverged, once though it is in several tables."""
    found: dict[Arm, str] = {}
    for cell in (cell for table in tables for cell in table.cells):
        runs = [score.run for score in cell.scores if score.status == "diverged"]
        if runs and cell.arm not in found:
            found[cell.arm] = _sentence(cell, runs, results)
    lines, more = [*found.values()][:LISTED], len(found) - LISTED
    return lines + ([f"{more} more arms diverged: the report lists them."] if more > 0 else [])


def _sentence(cell: Cell, runs: list[str], results: Results) -> str:
    arm, where = cell.arm, sorted(place for run in runs for place in _places(run, results))
    seeds = f"in {len(runs)} of {len(cell.scores)} seeds of {arm.task} ({arm.protocol})"
    if not where:
        return f"{arm.model_label} gave outputs that are NaN or infinite {seeds}."
    steps = [step for step, _ in where]
    planned = {most for _, most in where}
    of = f" of {most:,}" if len(planned) == 1 and (most := max(planned)) else ""
    at = f"step {steps[0]:,}{of}" if steps[0] == steps[-1] else f"steps {steps[0]:,} to {steps[-1]:,}{of}"
    return (
        f"{arm.model_label} diverged at {at} {seeds}: its loss or its weights were NaN or infinite, and its score is "
        "of the weights kept before."
    )


def _places(run: str, results: Results) -> Iterator[tuple[int, int]]:
    """Yields at which step a phase of a run diverged, and of how many; 0 where its length is not given in steps."""
    phases = results.specs.get(run, {}).get("protocol", {}).get("phases", [])
    for number, cost in enumerate(results.ledgers.get(run, {}).get("phases", [])):
        if cost.get("stopped") == "diverged":
            budget = phases[number]["recipe"]["budget"] if number < len(phases) else {}
            yield cost.get("steps", 0), int(budget["value"]) if budget.get("unit") == "steps" else 0
