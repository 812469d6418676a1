"""Writes the leaderboard of results folders: `levelfield leaderboard [FOLDER ...] --out PAGE.html`.

write((), Path("leaderboard.html"), say)    # of results/ here, else of the repository that levelfield is run from
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from levelfield.cli.streams import Say
from levelfield.report import leaderboard
from levelfield.spec import EFFORTS, Effort, UserError, describe

RESULTS = Path("results")
KEPT = Path(__file__).resolve().parents[2] / RESULTS  # where levelfield is run from its repository


def write(folders: Sequence[Path], out: Path, say: Say) -> None:
    """Writes the page and names it, with every folder that has no place on it.

    Raises UserError where a folder has no results or is damaged, and where there is no folder to take.
    """
    if out.is_dir():
        raise UserError(f"{out} is a folder: give --out the name of a page, such as {out / 'leaderboard.html'}.")
    if out.exists() and out.suffix not in (".html", ".htm"):
        raise UserError(f"{out} is there and is no page: give --out another name, such as {out.with_suffix('.html')}.")
    path, left_out = leaderboard.build(folders or (_results(say),), out, specs=_specs)
    for sentence in left_out:
        say(f"Left out: {sentence}")
    say(f"Wrote {path}")


def _results(say: Say) -> Path:
    """Returns the folder where none is named, and says so where it is not of the folder one is in."""
    if RESULTS.is_dir():
        return RESULTS
    if KEPT.is_dir():
        say(f"There is no folder {RESULTS} here: this shows levelfield's own, {KEPT}. Name yours, such as report.")
        return KEPT
    raise UserError("There is no folder results here: name folders of results, such as report/demo-minutes.")


@cache
def _specs(study: str, effort: str) -> Mapping[str, Mapping[str, Any]]:
    """Returns the settings of a study's runs by their ids: of one that is listed, as a results folder may name anything
    and a file that it names is not executed for that."""
    from levelfield.engine.find import Source, listed  # which import torch, and few folders need it

    known: dict[str, Effort] = {each: each for each in EFFORTS}
    if effort not in known or study not in listed():
        return {}
    return {run.id: describe(run) for run in Source(study).load().runs(known[effort])}
