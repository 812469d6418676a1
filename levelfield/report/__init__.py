"""Makes a report from rows and ledgers alone: offline, without torch, without starting a run.

    report.build(study, "minutes", store.read(Path("runs"), study.name, "minutes"), Path("report/demo-minutes"))
    # report.html  summary.csv  summary.md  rows.csv  hits.csv  figures/gap.svg  figures/gap.png ...

What a study shows is its `views`; the table of scores, its ledger, what differs between the arms, the failures and the
cost are in every report, asked for or not.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from levelfield.report import (
    axis_curves,
    certified_ranges,
    heatmaps,
    plots,
    scorecard,
    tables,
    task_lines,
    training_curves,
    tuning,
)
from levelfield.report.against_printed import Counterpart, PrintedSources, all_counterparts
from levelfield.report.arms import Arm
from levelfield.report.cells import Cells, is_baseline, tables_of, with_variants
from levelfield.report.page import FigureSection, PageData, page, paragraphs
from levelfield.report.page import remarks as page_remarks
from levelfield.report.plots import Figure
from levelfield.report.row_index import RowIndex
from levelfield.report.write import write
from levelfield.runs import hits
from levelfield.runs.results import Results
from levelfield.spec import Effort, ReportView, Row, Study, UserError
from levelfield.spec.errors import format_error

DEFAULT_VIEWS = (ReportView("compare", "Every seed of every arm"), ReportView("training", "Training curves"))


def build(
    study: Study,
    effort: Effort,
    results: Results,
    out: Path,
    references: Sequence[tuple[Arm, Mapping[str, Any]]] = (),
    *,
    by_metric: Sequence[Cells] | None = None,
) -> list[Path]:
    """Writes the report into the folder `out` and returns the files, the page first.

    references: the runs that have the settings of the printed cells, each an arm and its description; without one a
    printed number has no difference beside it. by_metric: what `tables_of` has returned, where it has been asked
    before, for it takes long over many runs.
    Raises UserError where nothing has finished, or a run has rows but no ledger.
    """
    if not any(not is_baseline(row) for row in results.rows):
        failed = next((f" One of {len(results.failures)} failures: {why}" for why in results.failures.values()), "")
        raise UserError(f"Nothing to report: no run of {study.name} at effort {effort} has finished yet.{failed}")
    by_metric = tables_of(results) if by_metric is None else by_metric
    printed = PrintedSources(study.published, references)
    counterparts = {cells.metric: all_counterparts(cells, results, printed) for cells in by_metric}
    rows = RowIndex.of(by_metric, results)
    measured = _Measured(
        study,
        effort,
        replace(results, rows=rows.rows),
        tables=rows.marked(by_metric),
        printed=printed,
        counterparts=counterparts,
    )
    sections = list(_sections(measured))
    cost = training_curves.cost(measured.tables[0])
    search = tuning.figure(results)
    figures = {p.file: p.figure for p in sections if p.figure} | ({"cost": cost} if cost else {})
    figures |= {"tuning": search} if search else {}
    texts = _texts(study, effort, results, by_metric, counterparts)
    names = [*texts, *(f"figures/{name}.{ending}" for name in figures for ending in ("svg", "png"))]
    contents = PageData(
        study,
        effort,
        results,
        tables=by_metric,
        counterparts=counterparts,
        figures=sections,
        cost=cost,
        search=search,
        verdict=_verdict(study, results, rows.rows),
        files=names,
        rows=rows,
    )
    stale = ("trials.csv", hits.FILE, "figures/*.svg", "figures/*.png")
    drawn = {f"figures/{name}": figure for name, figure in figures.items()}
    return write(out, {"report.html": page(contents), **texts}, drawn, stale)


def remarks(results: Results, by_metric: Sequence[Cells] | None = None) -> list[str]:
    """Returns, for whoever reads scores in a terminal, what `page.remarks` says. by_metric: as of `build`."""
    return page_remarks(results, tables_of(results) if by_metric is None else by_metric)


def verdict_lines(study: Study, results: Results) -> list[str]:
    """Returns the verdict for whoever reads it in a terminal, a line for each task; none where a study has no rule."""
    verdict = _verdict(study, results, results.compared)
    return paragraphs(f"Verdict: {verdict}") if verdict else []


def _verdict(study: Study, results: Results, rows: Sequence[Row]) -> str | None:
    """Returns the study's own verdict; where it cannot be drawn, a sentence that says why.

    That is because runs are missing, or else because the verdict itself fails, which is told with its line.
    rows: those of the results, each with the place on the page to which its number leads.
    """
    if study.verdict is None:
        return None
    try:
        return study.verdict(rows)
    except (LookupError, ValueError, ArithmeticError, TypeError) as error:
        missing = len(results.specs) - len(results.ledgers)
        if missing > 0:
            return f"No verdict yet: {missing} of {len(results.specs)} runs are missing ({format_error(error)})."
        place = traceback.extract_tb(error.__traceback__)[:2][-1]  # the verdict's own line, if it is written in Python
        return (
            f"No verdict: no run is missing, and it fails on their rows ({format_error(error)}, in "
            f"{Path(place.filename).name}, line {place.lineno})."
        )


@dataclass(frozen=True)
class _Measured:
    """Everything that the views of a study are drawn from. Rows and cells know where the page lists them."""

    study: Study
    effort: Effort
    results: Results
    tables: Sequence[Cells]  # one per metric
    printed: PrintedSources
    counterparts: Mapping[str, Mapping[Arm, Sequence[Counterpart]]]  # metric -> arm -> printed numbers


def _sections(measured: _Measured) -> Iterator[FigureSection]:
    """Yields the study's views under distinct names. A view that has nothing to show says so in its place."""
    used: set[str] = set()
    for view in measured.study.views or DEFAULT_VIEWS:
        cells = next((c for c in measured.tables if c.metric == view.metric), measured.tables[0])
        found = [(name, detail, figure) for name, detail, figure in _draw(view, measured, cells) if figure]
        for name, detail, figure in found:
            slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "figure"
            while slug in used:
                slug += "-2"
            used.add(slug)
            yield FigureSection(f"{view.title}: {detail}" if detail else view.title, view.note, slug, figure)
        if not found:
            yield FigureSection(view.title, NOT_DRAWN[view.kind].format(axis=view.axis, metric=view.metric), "", None)


NOT_DRAWN: Mapping[str, str] = {
    "scorecard": "Not drawn: fewer than two tasks have a test score by {metric}.",
    "compare": "Not drawn: no run has a test score by {metric}.",
    "gap": "Not drawn: no model was trained under two protocols and scored by {metric}.",
    "curve": "Not drawn: no score by {metric} has a place on the axis '{axis}', neither in its row nor in a field of "
    "its run, or all have the same place.",
    "ranges": "Not drawn: no model has been asked at the certified range of its training.",
    "training": "Not drawn: no run has a training log.",
    "slices": "Not drawn: no score by {metric} is of a slice{axis}. The probe `slices` measures them, on tasks whose "
    "examples have columns to slice by.",
    "heat": "Not drawn: no score by {metric} has both a length and a '{axis}'.",
}


def _draw(view: ReportView, measured: _Measured, cells: Cells) -> Iterator[tuple[str, str, Figure | None]]:
    """Yields file name, addition to the title and figure, for each figure that a view asks for."""
    results = measured.results
    match view.kind:
        case "scorecard":
            yield "scorecard", "", scorecard.draw(cells)
        case "compare":
            printed = measured.counterparts.get(cells.metric, {})
            yield "compare", "", (None if printed else task_lines.draw(cells)) or plots.compare(cells, printed)
        case "gap":
            yield "gap", "", plots.gap(cells)
        case "curve":
            yield f"curve-{view.axis}", "", axis_curves.curve(results, cells, view.axis, view.metric, measured.printed)
        case "ranges":
            draw = certified_ranges.beyond if view.axis == "asked" else certified_ranges.trained
            yield f"ranges-{view.axis}", "", draw(results.rows)
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


def _texts(
    study: Study,
    effort: Effort,
    results: Results,
    by_metric: Sequence[Cells],
    counterparts: Mapping[str, Mapping[Arm, Sequence[Counterpart]]],
) -> dict[str, str]:
    """Returns file name -> text of everything that is not a figure."""
    records = [r for c in by_metric for r in tables.summary_records(c, counterparts[c.metric], study.name, effort)]
    blocks = []
    for cells in by_metric:
        for task in (t for t in cells.tasks if cells.of(t)):
            scores, ledger = tables.main_tables(cells, counterparts[cells.metric], task)
            heading = f"### {task}: test {cells.metric.replace('_', ' ')}"
            blocks.append(f"{heading}\n\n{scores.markdown()}\nLedger, one run:\n\n{ledger.markdown()}")
    texts = {
        "summary.csv": tables.to_csv(records),
        "summary.md": "\n".join(blocks),
        "rows.csv": tables.to_csv(with_variants(results)),
    }
    texts |= {hits.FILE: hits.to_csv(results.hits)} if results.hits else {}
    return texts | ({"trials.csv": tables.to_csv(results.trials)} if results.trials else {})
