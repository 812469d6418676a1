"""Defines `levelfield audit`: facts, rules and runs of one dataset, with progress, then its report.

    levelfield audit reviews.csv --text body --label stars
    levelfield audit "reach(range=64)" --effort smoke

Whatever was done is kept as soon as it is done, so the same command continues after a kill.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from levelfield.cli.arguments import EXECUTION, Execution, Folder, Switch
from levelfield.cli.own_options import NO_COLUMNS, Columns
from levelfield.cli.streams import Say, say

if TYPE_CHECKING:
    from levelfield.engine.placement import Placement
    from levelfield.engine.training import Job
    from levelfield.spec import Study, Task


def audit(
    source: Annotated[Positional[str], arg(metavar="DATA")],
    columns: Columns = NO_COLUMNS,
    effort: Literal["smoke", "minutes", "overnight"] = "minutes",
    without_models: Switch = False,
    execution: Annotated[Execution, arg(name="")] = EXECUTION,
    report_dir: Folder = Path("report"),
    dry_run: Switch = False,
) -> None:
    """Measure how local, positional, trivial or leaky a dataset is; write rows, a page, a badge and a datasheet's text.

    Args:
        source: a file of data, a folder of them, OWNER/NAME of a dataset on the Hugging Face hub, which is downloaded
            once, the name of a task, such as listops or "reach(range=64)", or FILE.py:Task of your own
        effort: how much compute it may take
        without_models: train nothing; report in seconds on the data and on rules without a sequence model
        report_dir: folder of reports
        dry_run: show what it would take (data, rules, runs, FLOPs, time); train and write nothing
    """
    tracker = execution.checked_tracker()  # refused before torch is imported
    from levelfield.engine.find import AUDIT, Source, find_task
    from levelfield.engine.training import Job

    word = columns.source(source)
    job = Job(Source(AUDIT, word), effort, execution.runs_dir, execution.data, device=execution.device)
    if dry_run:
        _plan(find_task(word), job, without=without_models)
        return
    if not audited(find_task(word), job, execution.here, report_dir, say, without=without_models, track=tracker):
        raise SystemExit(1)


def _plan(task: Task, job: Job, *, without: bool) -> None:
    """Prints what an audit reads, scores and trains. without: it trains nothing. Raises UserError as `audited` does."""
    from levelfield.cli import data_commands, plan_screen
    from levelfield.engine import audit_plan
    from levelfield.engine.audit import Folders

    study = _study(job)
    with data_commands.bars() as bar:
        told = list(audit_plan.lines(task, job.effort, Folders(job.out, job.data), data_commands.shown(bar)))
    for line in told:
        say(line)
    if without:
        say("No model is trained.")
    else:
        plan_screen.show(job.source, study, job.effort, "", (job.out, job.data))


def _study(job: Job) -> Study:
    """Returns the study of an audit. Raises UserError for a device that is not there, or for runs that cannot work."""
    from levelfield.run import pick_device

    pick_device(job.device)
    study = job.source.load()
    study.runs(job.effort)
    return study


def audited(
    task: Task, job: Job, placement: Placement, report_dir: Path, say: Say, *, without: bool = False, track: str = ""
) -> bool:
    """Measures what is left of the audit and writes its report; returns whether all runs are complete.

    without: trains nothing; of models that were trained before, the report tells all the same.

    Raises UserError for a dataset that cannot be audited, before anything is trained.
    """
    from levelfield.cli import data_commands, train_commands
    from levelfield.engine import audit as auditing
    from levelfield.files import made, write_rows
    from levelfield.report.audit import page, words
    from levelfield.report.audit.reading import Reading

    study, folders = _study(job), auditing.Folders(job.out, job.data)
    made(report_dir, "--report-dir")
    data_commands.prepare_one(task.name, task, job.data, data_commands.Sources(), say)
    with data_commands.bars() as bar:
        auditing.measure(task, job.effort, folders, data_commands.shown(bar))
    complete = without or train_commands.execute(job, study, placement, say, track=track)
    rows = auditing.collect(task, job.effort, folders)
    write_rows(auditing.folder(task, job.effort, folders) / "rows.jsonl", rows)
    found = Reading.of(rows)
    for sentence in (words.lead(found), *words.details(found)):
        say(sentence)
    for path in page.build(rows, report_dir / auditing.report_name(task, job.effort)):
        if path.suffix != ".png":
            say(f"Wrote {path}")
    return complete
