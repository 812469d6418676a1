"""Defines the commands that look at what is there: `list`, `check`, `probe`, `results`, `leaderboard`, `track`,
`cite` and `doctor`.

Each imports only what it needs.

    levelfield list mixers
    levelfield check mine.py:Mine
    levelfield results "SELECT task, model, median(value) FROM scores GROUP BY ALL"
"""

from __future__ import annotations

import inspect
from contextlib import nullcontext
from json import dumps
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from levelfield.cli.arguments import (
    DataFolder,
    Device,
    File,
    Folder,
    Folders,
    Kind,
    Page,
    Paths,
    StudyName,
    Switch,
    Text,
    Width,
)
from levelfield.cli.streams import ended, say
from levelfield.files import read_rows
from levelfield.spec import UserError, closest


def doctor() -> None:
    """Show what is installed here, which device and kernels would be used, and what is missing for which feature."""
    from levelfield.cli import doctor as shown

    for line in shown.lines():
        say(line)


def cite(study: StudyName) -> None:
    """Print BibTeX of what a study uses: levelfield, the papers it answers to, those of its mixers, sources of data.

    Args:
        study: a name, a Python file, a module (mypackage.study), or a mixer that is compared (FILE.py:Mixer)
    """
    from levelfield.cli import cite_command

    say("\n\n".join(cite_command.entries(study)))


def list_(kind: Kind = "", json: Switch = False) -> None:
    """List tasks, mixers, protocols, studies and probes.

    Args:
        kind: what to list: tasks, mixers, protocols, studies, probes, or kernels (which of them would run on this
            machine, and why); without it, everything except kernels
        json: print JSON: each kind, and a line about each name
    """
    from levelfield.cli import listing

    if kind and kind not in listing.ALL:
        raise UserError(f"There is no list of '{kind}': {closest(kind, list(listing.ALL))}")
    chosen = {
        name: [*lines()] for name, lines in listing.ALL.items() if kind == name or (not kind and name != "kernels")
    }
    if json:
        say(dumps({name: dict(found) for name, found in chosen.items()}, indent=1))
        return
    for name, found in chosen.items():
        if not kind:
            say(f"{name}:")
        width = max((len(label) for label, _ in found), default=0)
        for label, about in found:
            say(f"  {label:<{width}}  {about}")


def probe(
    probe: Annotated[Positional[str], arg(metavar="PROBE")],
    run_id: Annotated[Positional[str], arg(metavar="RUN_ID")],
    study: Annotated[Text, arg(metavar="FILE.py")] = "",
    runs_dir: Folder = Path("runs"),
    data: DataFolder = Path("data"),
    device: Device = "auto",
) -> None:
    """Run one more probe on a finished run.

    Args:
        probe: name of the probe, or FILE.py:Probe of your own
        run_id: name of the run's directory, or its path
        study: the file that defines the run, where it is not a study of levelfield
        runs_dir: folder of run directories
        data: folder of prepared data
        device: auto, cpu, cuda or cuda:1
    """
    from levelfield.engine.find import find_run
    from levelfield.presets import by_name
    from levelfield.run import execute
    from levelfield.runs import store
    from levelfield.user.values import user_errors

    runs_dir, run_id = store.located(runs_dir, run_id)
    named, found = by_name.probe(probe), find_run(run_id, runs_dir, study)
    where = store.directory(runs_dir, found)
    if not store.complete(where):
        raise UserError(f"{run_id} is not complete: run its study first.")
    if others := store.probed_otherwise(where, named):
        raise UserError(
            f"{others[0]} has rows of the probe {named.name} with other settings, such as those of its study, and "
            "reports would lose them: give FILE.py:Probe of your own with another name, or remove that file."
        )
    own = not type(named).__module__.startswith("levelfield.")  # a surprise in ours is told in full
    with user_errors(f"The probe {named.name}", inspect.getfile(type(named).measure)) if own else nullcontext():
        execute(found, where, data, device, [named])
    path = store.probe_file(where, named)
    rows = read_rows(path)
    if not rows:
        say(f"The probe {named.name} has no number of this run.")
    for row in rows:
        say(f"  {row.get('at', ''):<28} {row.get('metric', ''):<16} {row.get('value', float('nan')):.4g}")
    say(f"Wrote {path}")


def check(
    name: Annotated[Positional[str], arg(metavar="NAME")],
    width: Width = 32,
    sources: Annotated[File, arg(name="from")] = None,
) -> None:
    """Check a mixer, task, probe or study of your own, or of a plug-in, rule by rule.

    Args:
        name: its name, or FILE.py:Name or package.module:Name, with settings if it has any; of a study, its file or
            module
        width: features of a step, for a mixer
        sources: folder of official files, for a task that reads some
    """
    from levelfield.cli import check_command

    ended(check_command.check(name, width, sources, say))


def results(
    sql: Annotated[Positional[str], arg(metavar="SQL")], runs_dir: Folder = Path("runs"), json: Switch = False
) -> None:
    """Query numbers with SQL; prints a table on a terminal and CSV in a pipe.

    Tables: `scores` (the test score of every run, one row each), `rows` (all that was measured, slices and probes
    too), `studies` (which runs a study is made of), `published` (what the papers print). For example:

    levelfield results "SELECT task, model, protocol, median(value), count(*) FROM scores GROUP BY ALL ORDER BY ALL"

    Args:
        sql: the query; the column "table" is also a word of SQL and needs its quotes
        runs_dir: folder of run directories
        json: print JSON, one object for each record
    """
    from levelfield.cli import query_command

    query_command.answer(sql, runs_dir, json)


def leaderboard(folders: Positional[Folders] = (), out: Page = Path("leaderboard.html")) -> None:
    """Write one page of tasks by models from results folders, such as results/ of the repository.

    Args:
        folders: results folders, as levelfield report writes them, or folders of them (default: results)
        out: the page, one file that loads nothing; its links to rows are relative to where it lies
    """
    from levelfield.cli import leaderboard_command

    leaderboard_command.write(folders, out, say)


def track(runs: Positional[Paths], to: Annotated[str, arg(metavar="TRACKER")], follow: Switch = False) -> None:
    """Send a tracker what runs have written and it does not have yet; this changes no run.

    Args:
        runs: folders of runs, a run's own folder, or the index of a study, such as runs/studies/demo-minutes.json
        to: tensorboard, trackio, wandb or mlflow
        follow: keep sending what runs write, until standard input ends (Ctrl-D)
    """
    from levelfield.cli import track_command

    ended(track_command.track(runs, to, say, track_command.end_of_input() if follow else None))
