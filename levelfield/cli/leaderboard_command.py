"""Writes the leaderboard of results folders: `levelfield leaderboard [FOLDER ...] --out PAGE.html`.

write((), Path("leaderboard.html"), say)    # of results/ here, else of the repository that levelfield is run from
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from levelfield.cli.streams import Say
from levelfield.report import leaderboard
from levelfield.spec import UserError

RESULTS = Path("results")
KEPT = Path(__file__).resolve().parents[2] / RESULTS  # where levelfield is run from its repository


def write(folders: Sequence[Path], out: Path, say: Say) -> None:
    """Writes the page and names it, with every folder that has no place on it.

    Raises UserError where a folder has no results or is damaged, and where there is no folder to take.
    """
    if out.is_dir():
        raise UserError(f"{out} is a folder: give --out the name of a page, such as {out / 'leaderboard.html'}.")
    path, left_out = leaderboard.build(folders or (_results(),), out)
    for sentence in left_out:
        say(f"Left out: {sentence}")
    say(f"Wrote {path}")


def _results() -> Path:
    for folder in (RESULTS, KEPT):
        if folder.is_dir():
            return folder
    raise UserError("There is no folder results here: name folders of results, such as report/demo-minutes.")
