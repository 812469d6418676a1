"""What the longer commands do, once their words have been understood.

execute(Order(source, "minutes", out, data), source.load(), jobs, say)   run a study in the local engine, on a screen
write_report(source, source.load(), "minutes", out, to, say)             its report
prepare("all", root, None, (), say), verify("all", root, say)            data
"""

from __future__ import annotations

import csv
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import TaskID
from rich.table import Table

from levelfield import tasks
from levelfield.cli import run_screen
from levelfield.data import card as cards
from levelfield.data import download, prepared
from levelfield.engine import tuning
from levelfield.engine.find import Source, choose, find_tasks, references
from levelfield.engine.local import Local, Outcome, devices
from levelfield.engine.worker import Order
from levelfield.files import made, write_text
from levelfield.report import committed
from levelfield.runs import store
from levelfield.spec import Effort, Progress, Run, Study, Task, UserError

Say = Callable[[str], None]


def tune(order: Order, study: Study, jobs: int | None, say: Say) -> bool:
    """Do what is left of the trials that the order's study needs first; whether all are complete, as where none are."""
    if study.search is None:
        return True
    if not tuning.trials(study, order.wanted).runs(order.effort):
        return True
    say(f"Tuning: {study.search.trials} trials an arm, scored on validation.")
    if execute(order.trials, study, jobs, say):
        return True
    say("The runs wait for their trials: mend what failed, then run the same command again to continue.")
    return False


def execute(order: Order, declared: Study, jobs: int | None, say: Say) -> bool:
    """Run what is left of the order's study, as its source declares it, whose trials `tune` has done, and name the
    files; whether every run is complete."""
    from levelfield.run import check

    study, runs = order.chosen(declared)
    for run in runs:
        check(run)
    if jobs is not None and jobs < 1:
        raise UserError(f"--jobs {jobs} leaves nobody to do the work: give 1 or more.")
    if order.threads < 1:
        raise UserError(f"--threads {order.threads} leaves a worker nothing to compute with: give 1 or more.")
    places = devices(order.device, jobs)[: len(runs)]
    made(order.out, "--out")
    made(order.data, "--data")
    tried = () if declared.search is None or order.trial else tuning.tried(declared, order.effort, order.out)
    adds = bool(order.source.mixer)
    store.index(order.out, study.name, order.effort, choose(study, order.effort), tried, order.source.trials, adds)
    console = Console()
    with run_screen.screen(console) as screen:
        outcome = Local(order, places).execute(runs, screen)
    _conclude(study.name, order, runs, outcome, say)
    return not outcome.failed


def _conclude(name: str, order: Order, runs: list[Run], outcome: Outcome, say: Say) -> None:
    say(f"{name} at effort {order.effort}: {len(outcome.done)} of {len(runs)} runs complete, in {order.out}/")
    if len(runs) <= 12:
        for run_id in sorted(outcome.done):
            say(f"  {order.out / run_id}/rows.jsonl")
    reasons: dict[str, list[str]] = {}
    for run_id, why in outcome.failed.items():
        reasons.setdefault(why, []).append(run_id)
    for why, (first, *others) in reasons.items():
        alike = f" and {len(others)} more alike" if others else ""
        say(f"  failed: {first}{alike}: {why} (see {order.out / first / store.ERROR})")


def reporting(order: Order) -> str:
    """The command that makes the report of an order's study."""
    words = ["levelfield", "report", order.source.mixer or order.source.study, "--effort", order.effort]
    words += ["--trials", str(order.source.trials)] if order.source.trials else []
    words += ["--out", str(order.out)] if order.out != Path("runs") else []
    return shlex.join(words)


def write_report(source: Source, study: Study, effort: Effort, out: Path, to: Path, say: Say) -> None:
    """The report of what has been measured so far of the study that the source declares."""
    from levelfield import report

    kept = committed.find(out, study.name, effort)
    results = committed.read(kept, study, effort) if kept else store.read(out, study.name, effort, str(source))
    study = source.recorded(study, results.specs)
    made(to, "--to")
    printed = references(study.published)
    for path in report.build(study, effort, results, to / f"{study.name}-{effort}", printed):
        if path.suffix != ".svg":  # each figure is there as .png too
            say(f"Wrote {path}")


def prepare(
    name: str, root: Path, sources: Path | None, mirrors: Sequence[str], say: Say, effort: Effort = "minutes"
) -> bool:
    """Build the arrays of a task, of all tasks of a study at an effort, or of all; whether all could be built. One task
    that cannot be raises UserError."""
    if name != "all":
        found = find_tasks(name, effort)
        for task in found:
            _prepare(name if len(found) == 1 else task.name, task, root, sources, mirrors, say)
        return True
    complete = True
    for each in tasks.names():
        try:
            _prepare(each, tasks.find(each), root, sources, mirrors, say)
        except UserError as error:
            complete = False
            say(f"{each}: {error}")
    return complete


def _prepare(name: str, task: Task, root: Path, sources: Path | None, mirrors: Sequence[str], say: Say) -> None:
    with Bars(console=Console(stderr=True), transient=True) as bar:
        show = _shown(bar)
        if sources is None and prepared.wants_files(task, root):
            sources = download.fetch(task.archives, prepared.downloads(task, root), mirrors, show)
        at = prepared.prepare(task, root, sources, show)
    say(f"{name}: {at}")


def _shown(bar: Bars) -> Progress:
    """Progress as rows of `bar`; a total of 0 is not known."""
    rows: dict[str, TaskID] = {}

    def show(what: str, done: int, total: int) -> None:
        if what not in rows:
            rows[what] = bar.add_task(what, total=None)
        bar.update(rows[what], completed=done, total=total or None)

    return show


def verify(name: str, root: Path, say: Say, effort: Effort = "minutes") -> bool:
    """Check every prepared folder of a task, whatever its settings, of the tasks of a study, or of all, and say what is
    in it; whether all are sound."""
    given = [] if name == "all" else find_tasks(name, effort)
    own = {task.name for task in given}
    folders = [at for at in sorted(root.glob("*-*")) if at.is_dir() and not at.name.startswith(".")]
    folders = [at for at in folders if not own or at.name.rsplit("-", 1)[0] in own]
    if not folders:
        raise UserError(f"Nothing of {name} is prepared in {root}: start with `levelfield data prepare {name}`.")
    sound = True
    for at in folders:
        faults = prepared.verify(at)
        card = None if faults else _card(at, given)
        if card is not None:
            faults = [f"{fault} (in {at.name})" for fault in card.faults]
        sound &= not faults
        say(f"{at}: {'sound' if not faults else ''.join(f'{chr(10)}  {fault}' for fault in faults)}")
        if card is not None:
            say(f"\n{cards.markdown(card)}")
    return _downloads(own, root, say) and sound


def _card(at: Path, given: Sequence[Task]) -> cards.Card | None:
    """The folder's card, also kept in it; None where its task is of another version, or a user's own and not given."""
    about = prepared.manifest(at)
    known = [task for task in (*given, _restore(about["settings"])) if task and prepared.folder(task, at.parent) == at]
    if not known:
        return None
    with Bars(console=Console(stderr=True), transient=True) as bar:
        card = cards.make(known[0], prepared.read(at), about.get("notes", ()), bool(about.get("files")), _shown(bar))
    with suppress(UserError):  # data in a folder that cannot be written is checked as well
        write_text(at / cards.CARD, cards.to_json(card))
    return card


def _restore(settings: Mapping[str, Any]) -> Task | None:
    """The task that a description is of, among those of levelfield."""
    known = {type(task).__name__: type(task) for task in map(tasks.find, tasks.names())}
    if settings["kind"] not in known:
        return None
    kind = known[settings["kind"]]
    names = {field.name for field in fields(kind)}
    given = {name: tuple(v) if isinstance(v, list) else v for name, v in settings.items() if name in names}
    return kind(**given) if given.keys() == names else None


def _downloads(own: set[str], root: Path, say: Say) -> bool:
    """Check the official files that were downloaded against their checksums; whether all are right."""
    right = True
    for folder, archives in {prepared.downloads(t, root): t.archives for t in map(tasks.find, tasks.names())}.items():
        for archive in archives if (not own or folder.name in own) and folder.is_dir() else ():
            faults = download.verify(archive, folder)
            right &= not faults
            if (folder / archive.name).exists():
                say(f"{folder / archive.name}: {faults[0] if faults else 'sound'}")
    return right


def answer(sql: str, out: Path) -> None:
    """Prints what a query over measured and printed rows gives."""
    from levelfield.report.query import collect, query

    measured = collect(out)
    for complaint in measured.complaints:
        print(f"Left out: {complaint}", file=sys.stderr)
    columns, records = query(sql, measured)
    if not measured.rows:
        print(f"Nothing is measured in {out}/: `rows` is empty. Name another folder with --out.", file=sys.stderr)
    console = Console()
    if not console.is_terminal:
        csv.writer(sys.stdout, lineterminator="\n").writerows([columns, *records])
        return
    table = Table(*columns)
    for record in records:
        table.add_row(*("" if v is None else f"{v:g}" if isinstance(v, float) else str(v) for v in record))
    console.print(table)
