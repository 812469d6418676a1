"""A report, made from rows and ledgers alone: offline, without torch, without starting a run.

    report.build(study, "minutes", store.read(Path("runs"), study.name, "minutes"), Path("report/demo-minutes"))
    # report.html  summary.csv  summary.md  rows.csv  figures/gap.svg  figures/gap.png ...

What a study shows is its `views`; the table of scores, its ledger, what differs between the arms, the failures and the
cost are in every report, asked for or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from levelfield.report import axis_curves, heatmaps, plots, tables, training_curves, tuning
from levelfield.report.against_printed import Beside, Match, all_beside
from levelfield.report.arms import Arm
from levelfield.report.cells import Cells, gather, is_baseline, is_test
from levelfield.report.page import Contents, Picture, page
from levelfield.report.plots import Drawing
from levelfield.runs.results import Results
from levelfield.spec import Effort, Study, UserError, View

DEFAULT_VIEWS = (View("compare", "Every seed of every arm"), View("training", "Training curves"))


def build(
    study: Study, effort: Effort, results: Results, out: Path, references: Sequence[tuple[Arm, Mapping[str, Any]]] = ()
) -> list[Path]:
    """Writes the report into the folder `out` and returns the files, the page first.

    references: the runs that have the settings of the printed cells, each an arm and its description; without one a
    printed number has no difference beside it.
    Raises UserError where nothing has finished, or a run has rows but no ledger.
    """
    if not any(not is_baseline(row) for row in results.rows):
        failed = next((f" One of {len(results.failures)} failures: {why}" for why in results.failures.values()), "")
        raise UserError(f"Nothing to report: no run of {study.name} at effort {effort} has finished yet.{failed}")
    by_metric = [gather(results, metric) for metric in _metrics(results)]
    theirs = Beside(study.published, references)
    beside = {cells.metric: all_beside(cells, results, theirs) for cells in by_metric}
    pictures = list(_pictures(_Measured(study, effort, results, by_metric, theirs, beside)))
    cost = training_curves.cost(results, by_metric[0])
    search = tuning.figure(results)
    drawings = {p.file: p.drawing for p in pictures if p.drawing} | ({"cost": cost} if cost else {})
    drawings |= {"tuning": search} if search else {}
    texts = _texts(study, effort, results, by_metric, beside)
    names = [*texts, *(f"figures/{name}.{ending}" for name in drawings for ending in ("svg", "png"))]
    verdict = _verdict(study, results)
    contents = Contents(study, effort, results, by_metric, beside, pictures, cost, search, verdict, names)
    return _write(out, {"report.html": page(contents), **texts}, drawings)


def _metrics(results: Results) -> list[str]:
    """What runs were scored by, as a whole, on test: accuracy first."""
    found = dict.fromkeys(
        row.get("metric", "")
        for row in results.rows
        if not is_baseline(row) and is_test(row) and not row.get("at") and row.get("metric") != "chance"
    )
    return sorted(found, key=lambda metric: metric != "accuracy") or ["accuracy"]


def _verdict(study: Study, results: Results) -> str | None:
    """The study's own sentence; where the runs do not suffice yet, one that says so."""
    if study.verdict is None:
        return None
    try:
        return study.verdict(results.rows)
    except (LookupError, ValueError, ArithmeticError, TypeError) as error:
        missing = len(results.specs) - len(results.ledgers)
        return f"No verdict yet: {missing} of {len(results.specs)} runs are missing ({type(error).__name__}: {error})."


@dataclass(frozen=True)
class _Measured:
    """What the views of a study are drawn from."""

    study: Study
    effort: Effort
    results: Results
    tables: Sequence[Cells]  # one per metric
    theirs: Beside
    beside: Mapping[str, Mapping[Arm, Sequence[Match]]]  # metric -> arm -> printed numbers


def _pictures(measured: _Measured) -> Iterator[Picture]:
    """The study's views; a name is never used twice. One that has nothing to show says so in its place."""
    used: set[str] = set()
    for view in measured.study.views or DEFAULT_VIEWS:
        cells = next((c for c in measured.tables if c.metric == view.metric), measured.tables[0])
        found = [(name, detail, drawing) for name, detail, drawing in _draw(view, measured, cells) if drawing]
        for name, detail, drawing in found:
            slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "figure"
            while slug in used:
                slug += "-2"
            used.add(slug)
            yield Picture(f"{view.title}: {detail}" if detail else view.title, view.note, slug, drawing)
        if not found:
            yield Picture(view.title, NOT_DRAWN[view.kind].format(axis=view.axis, metric=view.metric), "", None)


NOT_DRAWN: Mapping[str, str] = {
    "compare": "Not drawn: no run has a test score by {metric}.",
    "gap": "Not drawn: no model was trained under two protocols and scored by {metric}.",
    "curve": "Not drawn: no score by {metric} has a place on the axis '{axis}', neither in its row nor in a field of "
    "its run, or all have the same place.",
    "training": "Not drawn: no run has a training log.",
    "slices": "Not drawn: no score by {metric} is of a slice{axis}. The probe `slices` measures them, on tasks whose "
    "examples have columns to slice by.",
    "heat": "Not drawn: no score by {metric} has both a length and a '{axis}'.",
}


def _draw(view: View, measured: _Measured, cells: Cells) -> Iterator[tuple[str, str, Drawing | None]]:
    """(file name, what to add to the title, drawing) of each figure that a view asks for."""
    results = measured.results
    match view.kind:
        case "compare":
            yield "compare", "", plots.compare(cells, measured.beside.get(cells.metric, {}))
        case "gap":
            yield "gap", "", plots.gap(cells)
        case "curve":
            yield f"curve-{view.axis}", "", axis_curves.curve(results, cells, view.axis, view.metric, measured.theirs)
        case "training":
            for task in cells.tasks:
                yield (
                    f"training-{task}",
                    task if len(cells.tasks) > 1 else "",
                    training_curves.training(results, cells, task),
                )
        case "slices":
            for axis, numeric in training_curves.slice_axes(results, view.metric).items():
                if view.axis not in ("", axis):
                    continue
                along = axis_curves.curve(results, cells, axis, view.metric) if numeric else None
                yield f"slices-{axis}", f"by {axis}", along or training_curves.slices(results, cells, axis)
        case "heat":
            yield f"heat-{view.axis}", "", heatmaps.heat(results, cells, view.axis)
        case "samples":
            raise UserError(f"Study {measured.study.name} asks for samples, which results do not hold: drop the view.")


def _texts(
    study: Study,
    effort: Effort,
    results: Results,
    by_metric: Sequence[Cells],
    beside: Mapping[str, Mapping[Arm, Sequence[Match]]],
) -> dict[str, str]:
    """File name -> text of everything that is not a picture."""
    records = [r for c in by_metric for r in tables.summary_records(c, beside[c.metric], study.name, effort)]
    blocks = []
    for cells in by_metric:
        for task in (t for t in cells.tasks if cells.of(t)):
            scores, ledger = tables.main_tables(cells, beside[cells.metric], task)
            heading = f"### {task}: test {cells.metric.replace('_', ' ')}"
            blocks.append(f"{heading}\n\n{scores.markdown()}\nLedger, one run:\n\n{ledger.markdown()}")
    texts = {
        "summary.csv": tables.to_csv(records),
        "summary.md": "\n".join(blocks),
        "rows.csv": tables.to_csv(results.rows),
    }
    return texts | ({"trials.csv": tables.to_csv(results.trials)} if results.trials else {})


def _write(out: Path, texts: Mapping[str, str], drawings: Mapping[str, Drawing]) -> list[Path]:
    written: list[Path] = []
    try:
        (out / "figures").mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            written.append(out / name)
            written[-1].write_text(text, encoding="utf-8")
        for name, drawing in drawings.items():
            written += drawing.write(out / "figures", name)
        for path in {out / "trials.csv", *(out / "figures").glob("*.svg"), *(out / "figures").glob("*.png")}:
            if path not in written:  # of an earlier report, which showed other things
                path.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"Cannot write the report to {out} ({error.strerror}): choose another folder.") from error
    return written
