"""Defines the commands: each parses its words, loads what was named, calls, and says what went wrong in one sentence.

    levelfield demo
    levelfield plan demo --effort minutes
    levelfield run mine/study.py --filter "*attention*" --jobs 4

Exit codes: 0 all is well, 1 some runs failed, 2 the input was wrong, 130 stopped with Ctrl-C, 141 the reader of a pipe
had enough (docs/terminal.md). Everything that takes time to import is imported by the command that needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from levelfield._version import __version__
from levelfield.cli import overview, plan_screen
from levelfield.cli.arguments import (
    CLUSTER,
    COMPARE_OPTIONS,
    EXECUTION,
    NUMERICS,
    REACH_OPTIONS,
    AnyEffort,
    ClusterOptions,
    CompareOptions,
    DataFolder,
    EngineName,
    Execution,
    Folder,
    NumericsOptions,
    Pattern,
    ReachOptions,
    RunId,
    StudyName,
    Switch,
    Threads,
    Trials,
    check_text,
)
from levelfield.cli.audit_command import audit
from levelfield.cli.dispatch import Group, dispatch
from levelfield.cli.interrupts import end_stopped
from levelfield.cli.looking_commands import check, cite, doctor, leaderboard, list_, probe, results, track
from levelfield.cli.model_commands import export_ruler, export_run, import_, report_ruler, ruler
from levelfield.cli.own_options import NO_FILE, Own
from levelfield.cli.status_command import status
from levelfield.cli.streams import ended, guarded, patiently, say
from levelfield.cli.task_commands import croissant, prepare, verify
from levelfield.files import made
from levelfield.spec import Effort, UserError

Shell = Literal["bash", "zsh", "fish", "tcsh"]
DESCRIPTION = "A level playing field for long-sequence models."


def demo(execution: Annotated[Execution, arg(name="")] = EXECUTION, report_dir: Folder = Path("report")) -> None:
    """Run the quick study from end to end, then write its report.

    Args:
        report_dir: folder of reports
    """
    tracker = execution.checked_tracker()  # refused before torch is imported
    from levelfield.cli import train_commands
    from levelfield.engine.find import Source
    from levelfield.engine.training import Job

    job = Job(Source("demo"), "minutes", execution.runs_dir, execution.data, device=execution.device)
    study = job.source.load()
    ended(train_commands.execute_and_report(job, study, execution.here, report_dir, say, track=tracker))


def plan(
    study: StudyName,
    effort: AnyEffort = None,
    pattern: Annotated[Pattern, arg(name="filter")] = "",
    runs_dir: Folder = Path("runs"),
    data: DataFolder = Path("data"),
    json: Switch = False,
    trials: Trials = 0,
    numerics: Annotated[NumericsOptions, arg(name="")] = NUMERICS,
    options: Annotated[CompareOptions, arg(name="")] = COMPARE_OPTIONS,
    own: Own = NO_FILE,
) -> None:
    """Show the runs of a study, their cost, what their arms share, and missing data; this trains nothing.

    Args:
        study: a name, a Python file, a module (mypackage.study), or a mixer that is compared (FILE.py:Mixer)
        effort: how much compute the study may take (default: minutes; paper for a study that evaluates existing models)
        pattern: pattern of run ids, such as "*attention*", or of the models that it evaluates
        runs_dir: folder of run directories, to see what is done
        data: folder of prepared data, whose lengths FLOPs are counted at, to see what is there
        json: print JSON, with every run and whether it is done
        trials: recipes to try for every arm first (default: 0, as the study says)
    """
    from levelfield.engine.find import Source
    from levelfield.longcontext.survey import Survey

    source = Source.of(study, trials, numerics.numerics(), own.added(options.options()))
    if isinstance(loaded := source.find(), Survey):
        from levelfield.cli import survey_commands

        asked = (loaded, effort or "paper", pattern, runs_dir)
        say(survey_commands.to_json(*asked) if json else "\n".join(survey_commands.lines(*asked)))
        return
    plan_screen.show(source, loaded, effort or "minutes", pattern, (runs_dir, data), json=json)


def run(
    study: StudyName,
    effort: Effort = "minutes",
    pattern: Annotated[Pattern, arg(name="filter")] = "",
    only: RunId = "",
    engine: EngineName = "local",
    cluster: Annotated[ClusterOptions, arg(name="")] = CLUSTER,
    execution: Annotated[Execution, arg(name="")] = EXECUTION,
    threads: Threads = 1,
    trials: Trials = 0,
    numerics: Annotated[NumericsOptions, arg(name="")] = NUMERICS,
    options: Annotated[CompareOptions, arg(name="")] = COMPARE_OPTIONS,
    own: Own = NO_FILE,
) -> None:
    """Train, evaluate and probe all runs of a study that are not done yet.

    Args:
        study: a name, a Python file, a module (mypackage.study), or a mixer that is compared (FILE.py:Mixer)
        effort: how much compute the study may take
        pattern: pattern of run ids, such as "*attention*"
        only: id of the one run to execute
        engine: where runs execute: local, ray (RAY_ADDRESS names the cluster), slurm
        threads: processor threads of each worker; each thread takes a core
        trials: recipes to try for every arm first, equally many (default: 0, as the study says)
    """
    tracker = execution.checked_tracker()  # refused before torch is imported
    from levelfield.cli import train_commands
    from levelfield.engine import member
    from levelfield.engine.find import Source
    from levelfield.engine.training import Job

    if only and pattern:
        raise UserError("--only names one run and --filter any number: give one of them.")
    places = (execution.runs_dir, execution.data)
    numbers = member.together(numerics.numerics())
    source = Source.of(study, trials, numbers, own.added(options.options()))
    job = Job(source, effort, *places, only or pattern, device=execution.device, threads=threads)
    if member.world_size() > 1:
        ended(member.take_part(job))
        return
    declared, placement = job.source.load(), cluster.placement(engine, execution.jobs)
    tuned = train_commands.tune(job, declared, placement, say)
    complete = tuned and train_commands.execute(job, declared, placement, say, track=tracker)
    say(f"Write its report with: {train_commands.command('report', source, effort, execution.runs_dir)}")
    ended(complete)


def compare(
    mixer: Annotated[Positional[str], arg(metavar="MIXER")],
    options: Annotated[CompareOptions, arg(name="")] = COMPARE_OPTIONS,
    own: Own = NO_FILE,
    effort: Effort = "minutes",
    execution: Annotated[Execution, arg(name="")] = EXECUTION,
    report_dir: Folder = Path("report"),
    trials: Trials = 0,
    numerics: Annotated[NumericsOptions, arg(name="")] = NUMERICS,
    dry_run: Switch = False,
) -> None:
    """Compare your own nn.Module with baselines at equal budget, then write the report.

    Args:
        mixer: FILE.py:Class or package.module:Class, mapping (B, T, D) to (B, T, D), with settings if it has any, as
            torch.nn:GRU(num_layers=2); or the name of a mixer
        effort: how much compute the study may take
        report_dir: folder of reports
        trials: recipes to try for every arm first, your own and the baselines alike (default: 0, none)
        dry_run: show what it would take (runs, FLOPs, time, what differs between the arms); train nothing
    """
    tracker = execution.checked_tracker()  # refused before torch is imported
    from levelfield.cli import train_commands
    from levelfield.engine.find import Source
    from levelfield.engine.training import Job
    from levelfield.presets import by_name

    by_name.mixer(mixer)  # or the reason why there is none
    source = Source("compare", mixer, own.added(options.options()), trials, numerics.numerics())
    job = Job(source, effort, execution.runs_dir, execution.data, device=execution.device)
    study = source.load()
    with patiently(f"Checking the models of {mixer}"):
        study.runs(effort)  # whatever is wrong with the mixer is said before a folder is made
    if dry_run:
        plan_screen.show(source, study, effort, "", (execution.runs_dir, execution.data))
        return
    made(report_dir, "--report-dir")
    ended(train_commands.tune(job, study, execution.here, say))
    ended(train_commands.execute_and_report(job, study, execution.here, report_dir, say, track=tracker))


def reach(
    mixer: Annotated[Positional[str], arg(metavar="MODEL")],
    effort: Effort = "minutes",
    options: Annotated[ReachOptions, arg(name="")] = REACH_OPTIONS,
    execution: Annotated[Execution, arg(name="")] = EXECUTION,
    report_dir: Folder = Path("report"),
    dry_run: Switch = False,
) -> None:
    """Find the longest certified range that a mixer learns, beside attention, S4 and convolutions; write the report.

    Args:
        mixer: the name of a mixer, or FILE.py:Class or package.module:Class of your own, mapping (B, T, D) to (B, T, D)
        effort: how much compute it may take, and so how long the ranges are
        report_dir: folder of reports
        dry_run: show what it would take (runs, FLOPs, time, what differs between the arms); train nothing
    """
    tracker = execution.checked_tracker()  # refused before torch is imported
    from levelfield.cli import train_commands
    from levelfield.engine.find import REACH, Source
    from levelfield.engine.training import Job

    source = Source(REACH, mixer, options.options())
    job = Job(source, effort, execution.runs_dir, execution.data, device=execution.device)
    study = source.load()
    if dry_run:
        plan_screen.show(source, study, effort, "", (execution.runs_dir, execution.data))
        return
    ended(train_commands.execute_and_report(job, study, execution.here, report_dir, say, track=tracker))


def report(
    study: StudyName,
    effort: Effort = "minutes",
    runs_dir: Folder = Path("runs"),
    report_dir: Folder = Path("report"),
    trials: Trials = 0,
    numerics: Annotated[NumericsOptions, arg(name="")] = NUMERICS,
    options: Annotated[CompareOptions, arg(name="")] = COMPARE_OPTIONS,
    own: Own = NO_FILE,
) -> None:
    """Write HTML, CSV and figures from stored rows; of a comparison of all that is recorded, or as its flags choose.

    Args:
        study: a name, a Python file, a module (mypackage.study), or a mixer that is compared (FILE.py:Mixer)
        effort: the effort it was run at; a study of existing models shows all answers
        runs_dir: folder of run directories, or of committed results, such as results/demo-minutes
        report_dir: folder of reports
        trials: the --trials that it was run with (default: 0, as the study says)
    """
    from levelfield.cli import train_commands
    from levelfield.engine.find import Source
    from levelfield.longcontext.survey import Survey

    source = Source.of(study, trials, numerics.numerics(), own.added(options.options()))
    if isinstance(loaded := source.find(ids=False), Survey):
        from levelfield.cli import survey_commands

        survey_commands.write_report(loaded, runs_dir, report_dir, say)
    else:
        place = train_commands.ReportPlace(effort, runs_dir, report_dir)
        asked = train_commands.asked_again(source, loaded, place)
        ended(train_commands.write_report(source, loaded, place, say, asked=asked))


def completion(shell: Annotated[Positional[Shell], arg(metavar="SHELL")]) -> None:
    """Print the script by which a shell completes commands and options at the tab key.

    Args:
        shell: bash, zsh, fish or tcsh; docs/terminal.md says where each of them looks for its script
    """
    if shell == "tcsh" and find_spec("shtab") is None:
        raise UserError("The script for tcsh needs the package shtab: pip install shtab.")
    dispatch(COMMANDS, "levelfield", ["--tyro-print-completion", shell])


COMMANDS = Group(
    DESCRIPTION,
    {
        "demo": demo,
        "list": list_,
        "plan": plan,
        "run": run,
        "status": status,
        "report": Group(
            "Write HTML, CSV and figures from stored rows of a study, or from stored answers to RULER.",
            {"study": report, "ruler": report_ruler},
            otherwise=report,
        ),
        "compare": compare,
        "reach": reach,
        "audit": audit,
        "probe": probe,
        "ruler": ruler,
        "export": Group(
            "Write a run as a folder that stands by itself, or samples for other evaluators.",
            {"run": export_run, "ruler": export_ruler},
            otherwise=export_run,
        ),
        "import": import_,
        "data": Group(
            "Prepare the arrays of a task, check them, or describe them.",
            {"prepare": prepare, "verify": verify, "croissant": croissant},
        ),
        "check": check,
        "results": results,
        "leaderboard": leaderboard,
        "track": track,
        "cite": cite,
        "doctor": doctor,
        "completion": completion,
    },
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command that the words name; ends the process with an exit code unless all is well."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with guarded():
            check_text(words)
            if words[:1] == ["help"]:  # `levelfield help compare` is `levelfield compare --help`
                words = [*words[1:], "--help"]
            if words in (["--version"], ["version"]):
                say(__version__)
            elif words in ([], ["--help"], ["-h"]):
                say(overview.text())
            else:
                dispatch(COMMANDS, "levelfield", words)
    except UserError as error:
        print(f"levelfield: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt as stop:
        end_stopped(stop)
    except BrokenPipeError:  # whoever read our output has had enough
        raise SystemExit(141) from None
