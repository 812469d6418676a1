"""Defines the commands of tasks' data, `data prepare`, `verify` and `croissant`, importing nothing of them yet.

levelfield data prepare listops
levelfield data verify all
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from levelfield.cli.arguments import DataFolder, File, Names, TaskName, Text
from levelfield.cli.own_options import NO_COLUMNS, Columns
from levelfield.cli.streams import ended, say
from levelfield.spec import Effort


def prepare(
    task: TaskName,
    data: DataFolder = Path("data"),
    sources: Annotated[File, arg(name="from")] = None,
    mirror: Annotated[Names, arg(metavar="ADDRESS ...")] = (),
    effort: Effort = "minutes",
    columns: Columns = NO_COLUMNS,
) -> None:
    """Build the arrays of a task, or of your own file. Official files are downloaded where a task needs them.

    Args:
        task: name of the task, FILE.py:Task, package.module:Task or a file of data of your own, a study (its name or
            file) for all its tasks, or all
        data: folder of prepared data
        sources: folder of official files that are here already; nothing is downloaded then
        mirror: addresses to ask for official files first; the name of a file is appended
        effort: of a study, at which effort
    """
    from levelfield.cli import data_commands

    task = columns.source(task)
    ended(data_commands.prepare(task, data, data_commands.Sources(sources, mirror), say, effort))


def verify(
    task: TaskName, data: DataFolder = Path("data"), effort: Effort = "minutes", columns: Columns = NO_COLUMNS
) -> None:
    """Check the arrays of a task that are prepared, and print their data card.

    A bare name means every folder of that task, whatever its settings; one with settings, such as "reach(range=16)",
    means that folder alone.

    Args:
        task: name of the task, FILE.py:Task, package.module:Task or a file of data of your own, a study (its name or
            file) for all its tasks, or all
        data: folder of prepared data
        effort: of a study, at which effort
    """
    from levelfield.cli import data_commands

    ended(data_commands.verify(columns.source(task), data, say, effort))


def croissant(
    task: TaskName,
    data: DataFolder = Path("data"),
    url: Text = "",
    published: Text = "",
    effort: Effort = "minutes",
    columns: Columns = NO_COLUMNS,
) -> None:
    """Write croissant.json beside the arrays of a task: a description that catalogues of datasets read.

    Args:
        task: name of the task, FILE.py:Task, package.module:Task or a file of data of your own, or a study (its name or
            file) for all its tasks
        data: folder of prepared data
        url: address that the data are published at (default: levelfield's own)
        published: day on which they are published, such as 2026-11-23 (default: none is said)
        effort: of a study, at which effort
    """
    from levelfield.cli import data_commands
    from levelfield.data.croissant import Publication

    data_commands.describe(columns.source(task), data, say, Publication(url, published), effort)
