"""Defines `levelfield status`: what of a study is done, who works on what since when, what waits and what failed.

levelfield status demo                  from any machine that sees the folder of runs, while others execute them
levelfield status demo --json           the same for other programs
levelfield status demo --exit-code      ends with code 1 where runs have failed, for scripts
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from levelfield.cli.arguments import NUMERICS, Folder, NumericsOptions, StudyName, Switch, Trials
from levelfield.cli.streams import ended, say
from levelfield.spec import Effort

if TYPE_CHECKING:
    from levelfield.engine.status import RunStatus, StudyStatus

LISTED = 40  # runs of one state at most


def status(
    study: StudyName,
    effort: Effort = "minutes",
    runs_dir: Folder = Path("runs"),
    json: Switch = False,
    trials: Trials = 0,
    numerics: Annotated[NumericsOptions, arg(name="")] = NUMERICS,
    exit_code: Switch = False,
) -> None:
    """Show which runs of a study are done, who works on which, which wait and which failed; this changes nothing.

    Args:
        study: a name, a Python file, or FILE.py:Mixer
        effort: the effort that it is run at
        runs_dir: folder of run directories
        json: print JSON, with every run
        trials: the --trials that it is run with
        exit_code: end with code 1 where runs or trials have failed; otherwise the code is 0 whatever they have done
    """
    from levelfield.engine.find import Source, require_workable
    from levelfield.engine.status import study_status, to_json
    from levelfield.runs.store import TRIALS, index_file

    source = Source.of(study, trials, numerics.numerics())
    declared = source.load()
    require_workable(declared, effort, runs_dir)
    tuning = index_file(runs_dir / TRIALS, declared.name, effort).exists()
    started = index_file(runs_dir, declared.name, effort).exists() or not tuning
    tried = study_status(runs_dir / TRIALS, declared.name, effort, str(source)) if tuning else None
    runs = study_status(runs_dir, declared.name, effort, str(source)) if started else None
    both = ((tried, runs_dir / TRIALS, "trials"), (runs, runs_dir, "runs"))
    if json:
        say(to_json(runs, tried))
    for found, folder, what in both if not json else ():
        if found:
            say("\n".join(_lines(source.title(declared), found, folder, what)))
    ended(not (exit_code and any(found.counts["failed"] for found, *_ in both if found)))


def _lines(title: str, found: StudyStatus, folder: Path, what: str) -> Iterator[str]:
    from levelfield.engine.status import untold

    counts = ", ".join(f"{count} {state}" for state, count in found.counts.items())
    again = f"; claimed again {found.taken_over} times" if found.taken_over else ""
    apart = f"; {found.diverged} of those done diverged" if found.diverged else ""
    yield f"{title} at effort {found.effort}, {len(found.runs)} {what}: {counts}{apart}{again}"
    if found.no_room and found.counts["waiting"] + found.counts["silent"]:
        yield f"  {untold(folder)}"
    for state in ("running", "silent", "failed"):
        named = [(run_id, run) for run_id, run in found.runs.items() if run.state == state]
        for run_id, run in named[:LISTED]:
            yield "  ".join([f"  {state:<8}", run_id, *filter(None, _facts(run, folder / run_id))])
        if len(named) > LISTED:
            yield f"  and {len(named) - LISTED} more {state}: --json has all"


def _facts(run: RunStatus, where: Path) -> Iterator[str]:
    from levelfield.cli.run_screen import columns, read

    if run.why:
        yield run.why
    if run.host:
        yield f"{run.host} pid {run.pid}" + (f" ({run.job})" if run.job else "")
        yield f"since {time.strftime('%m-%d %H:%M', time.localtime(run.since))}"
        yield f"heard {run.heartbeat_s:.0f} s ago"
        yield from columns(read(where))
