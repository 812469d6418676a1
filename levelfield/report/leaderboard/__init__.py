"""Writes the leaderboard: one page of every cell, tasks by models, that any number of results folders hold.

    written, left_out = build([Path("results")], Path("leaderboard.html"))

A results folder holds `rows.csv` and `summary.csv`, as `levelfield report` writes them and as those in results/ of the
repository do. Each is a table of its own, of one study at one effort, since arms were trained alike within it and
nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from levelfield.report.leaderboard.page import page
from levelfield.report.leaderboard.reading import Specs, find, nothing_known, read
from levelfield.report.write import write


def build(folders: Sequence[Path], out: Path, specs: Specs = nothing_known) -> tuple[Path, Sequence[str]]:
    """Writes the page and returns where it is, with a sentence for every folder that was left out.

    folders: results folders, or folders of them. specs: the settings of a study's runs at an effort, by run id, which
    tell apart arms that share all names. Raises UserError where a folder has no results or is damaged.
    """
    found = find(folders, specs)
    boards = [read(folder, specs) for folder in found.folders]
    (written,) = write(out.parent, {out.name: page(boards, found.left_out, out.parent)}, {})
    return written, found.left_out
