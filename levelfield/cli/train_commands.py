"""Tunes and executes the runs of a study and writes its report: what `demo`, `run`, `compare` and `report` share.

execute(Job(source, "minutes", runs_dir, data), source.load(), HERE, say)    runs a study, on a screen
write_report(source, source.load(), ReportPlace("minutes", runs_dir, report_dir), say)    writes its report
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from levelfield.cli import run_screen, track_command
from levelfield.cli.console import Console
from levelfield.cli.streams import Say, patiently
from levelfield.engine import placement as placements
from levelfield.engine import tuning
from levelfield.engine.driver import Driver, Outcome
from levelfield.engine.find import AUDIT, Source, references, require_workable
from levelfield.engine.jobs import by_reason
from levelfield.engine.placement import Placement
from levelfield.engine.status import no_room, untold
from levelfield.engine.training import Job, checked, index_of
from levelfield.files import made
from levelfield.presets.options import USUAL
from levelfield.report import committed
from levelfield.runs import store
from levelfield.runs.records import name_of, of_last
from levelfield.runs.results import Results, StudyIndex
from levelfield.spec import Effort, Run, Study, UserError, describe
from levelfield.user.own_data import report_name


@dataclass(frozen=True)
class ReportPlace:
    """The runs that a report is of, and the folder of reports that it goes into."""

    effort: Effort
    runs_dir: Path
    report_dir: Path


def tune(job: Job, study: Study, placement: Placement, say: Say) -> bool:
    """Runs the trials that the job's study still needs; returns whether all are complete, as where there are none."""
    search = study.search_at(job.effort)
    if search is None or not tuning.trials(study, job.matches).runs(job.effort):
        return True
    say(f"Tuning: {search.trials} trials for each arm, scored on validation.")
    if execute(job.trials, study, placement, say):
        return True
    say("The runs wait for their trials: mend what failed, then run the same command again to continue.")
    return False


def execute(job: Job, declared: Study, placement: Placement, say: Say, track: str = "") -> bool:
    """Executes the runs of the job that are not complete and names their files; returns whether all are complete.

    declared: the study as its source declares it, whose trials `tune` has run. track: a tracker to tell them to.
    """
    from levelfield.presets import arm_remarks
    from levelfield.run import pick_device

    if placement.gpus and job.device == "auto":
        job = replace(job, device="cuda")  # which a worker without a GPU refuses
    pick_device(job.device, here=not placement.elsewhere)
    study, runs = job.selected(declared)
    told = arm_remarks.sentences(runs) if job.source.mixer and job.source.study != AUDIT else ()
    for sentence in (*checked(runs, job.out, job.data), *told):
        say(sentence)
    if not placement.elsewhere:
        job.check_device(runs)
    engine = placements.engine(placement, job, runs)
    made(job.out, "--runs-dir")
    if job.unprepared(runs):
        made(job.data, "--data")
    index = index_of(job, declared, study)
    tracked = track_command.alongside(track, store.index_file(job.out, study.name, job.effort), say)
    with tracked, run_screen.screen(Console()) as screen:
        record = partial(store.write_index, job.out, index, adds=bool(job.source.mixer))
        outcome = _readable(job, runs, Driver(job, engine, screen).execute(runs, opened=record))
    _conclude(job.source.title(study), job, runs, outcome, say)
    return not outcome.failed


def _readable(job: Job, runs: Sequence[Run], outcome: Outcome) -> Outcome:
    """Returns the outcome in which a complete run has failed where its files cannot be read, with the reason."""
    phases = {run.id: len(run.protocol.phases) for run in runs}
    read = {run_id: store.why_unreadable(job.out / run_id, phases[run_id]) for run_id in outcome.done}
    lost = {run_id: why for run_id, why in read.items() if why}
    return Outcome(tuple(run_id for run_id in outcome.done if run_id not in lost), {**outcome.failed, **lost})


def _conclude(name: str, job: Job, runs: list[Run], outcome: Outcome, say: Say) -> None:
    apart = sum(store.diverged(job.out / run_id) for run_id in outcome.done)
    complete = f"{len(outcome.done)} of {len(runs)} runs complete" + (f", {apart} of them diverged" if apart else "")
    say(f"{name} at effort {job.effort}: {complete}, in {job.out}/")
    if len(runs) <= 12:
        for run_id in sorted(outcome.done):
            say(f"  {job.out / run_id}/rows.jsonl")
    for why, (first, *others) in by_reason(outcome.failed, job.out):
        alike = f" and {len(others)} more for the same reason" if others else ""
        said = job.out / first / store.ERROR
        say(f"  failed: {first}{alike}: {why}{f' (see {said})' if said.exists() else ''}")
    if not all((job.out / run_id / store.ERROR).exists() for run_id in outcome.failed) and no_room(job.out):
        say(f"  {untold(job.out)}")


def command(verb: Literal["run", "report"], source: Source, effort: Effort, runs_dir: Path) -> str:
    """Returns the command that runs a source's study or makes its report, as one types it."""
    words = ["levelfield", verb, source.mixer or source.study, "--effort", effort, *source.flags]
    words += ["--runs-dir", str(runs_dir)] if runs_dir != Path("runs") else []
    return shlex.join(words)


def execute_and_report(
    job: Job, study: Study, placement: Placement, report_dir: Path, say: Say, *, track: str = ""
) -> bool:
    """Executes the runs of the job and writes the report into `report_dir`; returns whether all runs are complete."""
    from levelfield.run import pick_device

    pick_device(job.device)  # whatever is wrong is said before a folder is made
    with patiently(f"Checking the models of {job.source.title(study)}"):
        study.runs(job.effort)
    made(report_dir, "--report-dir")
    complete = execute(job, study, placement, say, track=track)
    asked = job.selected(study)[1] if job.source.mixer else ()
    readable = write_report(job.source, study, ReportPlace(job.effort, job.out, report_dir), say, asked=asked)
    return complete and readable


def asked_again(source: Source, study: Study, place: ReportPlace) -> Sequence[Run]:
    """Returns the runs of a comparison that its flags choose, as of the command that executed them; () without flags.

    Raises UserError where none of these has been begun.
    """
    if source.options == USUAL:
        return ()
    _, runs = Job(source, place.effort, place.runs_dir, Path("data")).selected(study)
    if not any(store.directory(place.runs_dir, run).is_dir() for run in runs):
        raise UserError(
            f"No runs of {source} with these flags at effort {place.effort} in {place.runs_dir}: give those of the "
            "command that trained them, or none for a report of all that is recorded."
        )
    return runs


def write_report(source: Source, study: Study, place: ReportPlace, say: Say, *, asked: Sequence[Run] = ()) -> bool:
    """Writes the report of what has been measured so far of the study that the source declares.

    Returns whether every run that has finished could be read.

    asked: the runs of a comparison that this command has executed, which the report is of: other commands, with other
    tasks or baselines, add to the same record. Without them it is of all that is recorded, where several files of the
    user's own have one name of the last of them, and arms that nobody has begun are named and not counted. The name of
    its folder says which data of the user's own were asked for; the name of a study that is a file already does.
    """
    from levelfield import report
    from levelfield.presets import arm_remarks

    effort, runs_dir = place.effort, place.runs_dir
    kept = committed.find(runs_dir, study.name, effort)
    if kept:
        results = committed.read(kept, source.load(), effort)  # which asks for the ids of the study's runs
    elif asked:
        described = {run.id: describe(run) for run in asked}
        results = store.read(runs_dir, study.name, effort, str(source), runs=described)
        study = replace(study, runs=lambda effort: tuple(asked))
    elif source.mixer:
        require_workable(study, effort, runs_dir)
        known = store.started(runs_dir, study.name, effort, str(source))
        last = of_last(known)
        results = store.without_unbegun(store.read(runs_dir, study.name, effort, runs=last.runs), runs_dir)
        results = replace(results, remarks=[*results.remarks, *_other_contents(known, last)])
    else:
        require_workable(study, effort, runs_dir)
        results = store.read(runs_dir, study.name, effort, str(source))
    study = study if asked else source.recorded(study, results.specs)
    unlike = tuple(arm_remarks.sentences(study.runs(effort))) if source.mixer else ()
    study = replace(study, deviations=(*study.deviations, *unlike))
    made(place.report_dir, "--report-dir")
    printed, tables = references(study.published), report.tables_of(results)
    to = place.report_dir / report_name(study.name, effort, {run.task for run in asked})
    for path in report.build(study, effort, results, to, printed, by_metric=tables):
        if path.suffix != ".svg":  # each figure is there as .png too
            say(f"Wrote {path}")
    unreadable = _unreadable(results, source, place)
    measured = [*results.remarks, *report.remarks(results, tables), *unlike]
    for remark in [*_progress(results), *unreadable, *measured]:
        say(remark)
    for line in report.verdict_lines(study, results):
        say(line)
    if asked and not kept:
        for line in _left_out(source, study, place, {run.id for run in asked}):
            say(line)
    return not unreadable


def _other_contents(known: StudyIndex, last: StudyIndex) -> Iterator[str]:
    """Yields a sentence for each name of several files of the user's own, of which `last` has one."""
    left = {content for run_id, content in known.contents.items() if run_id not in last.runs}
    for name, several in Counter(name_of(content) for content in left).items():
        yield (
            f"{name} stands for {several + 1} files, or columns of one, and this report is of the last one compared: "
            "for another, give --own and the flags of its columns."
        )


LISTED = 5  # runs that are named


def _progress(results: Results) -> Iterator[str]:
    """Yields how many runs a report is of, where some have not finished or cannot be read."""
    done, planned = len(results.ledgers), len(results.specs)
    if done < planned and results.failures.keys() <= results.specs.keys():
        failed = sum(not why.startswith(store.UNREADABLE) for why in results.failures.values())
        yield f"The report is of {done} of {planned} runs" + (f"; {failed} failed." if failed else ".")


def _unreadable(results: Results, source: Source, place: ReportPlace) -> list[str]:
    """Returns a sentence for each finished run of which a file is lost or damaged, and the command that mends it."""
    lost = [(run, why) for run, why in results.failures.items() if why.startswith(store.UNREADABLE)]
    lines = [f"{run} is {why}" for run, why in lost[:LISTED]]
    lines += [f"{len(lost) - LISTED} more finished runs are not readable: the report lists them."] * (
        len(lost) > LISTED
    )
    if lost and not source.mixer:
        again = command("run", source, place.effort, place.runs_dir)
        lines.append(f"To run again what was removed: `{again}`.")
    return lines


def _left_out(source: Source, study: Study, place: ReportPlace, asked: Collection[str]) -> Iterator[str]:
    """Yields a sentence where earlier commands have completed runs of the same record that were not asked for now."""
    known = of_last(store.started(place.runs_dir, study.name, place.effort, str(source)), asked)
    others = [run_id for run_id in known.runs if run_id not in asked and store.complete(place.runs_dir / run_id)]
    if not others or source.study != "compare":  # nothing but a comparison is named by its mixer alone
        return
    whole = command("report", source, place.effort, place.runs_dir)
    many = f"{len(others)} runs of earlier commands are" if len(others) > 1 else "1 run of earlier commands is"
    yield f"The report is of what was asked for now; {many} left out: `{whole}` writes it of all."
