"""Tells runs to trackio: on this machine, or where TRACKIO_SPACE_ID or TRACKIO_SERVER_URL say.

    trackio show --project levelfield

The project is levelfield, or what TRACKIO_PROJECT says. A point's step is the number of its record; the step of its
phase stands beside it.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

from levelfield.runs.trackers.replay import Entry, Tracked


class Trackio:
    """Runs of one project. trackio has one run at a time, so each is opened, told and finished; then it is safe."""

    def __init__(self) -> None:
        self.look = f"trackio show --project {shlex.quote(_project())}"

    def log(self, run: Tracked, entries: Sequence[Entry]) -> bool:
        with _opened(run) as to:
            for entry in entries:
                to.log({**entry.values, f"{entry.phase}/step": entry.step}, step=entry.number)
        return True

    def conclude(self, run: Tracked, facts: Mapping[str, float]) -> None:
        with _opened(run) as to:
            to.log(dict(facts))

    def close(self) -> None:
        pass


def _project() -> str:
    return os.environ.get("TRACKIO_PROJECT") or "levelfield"


@contextmanager
def _opened(run: Tracked) -> Iterator[Any]:
    """Yields the run of that name, which is gone on with where it exists. What trackio prints is no output of ours."""
    import trackio  # pyright: ignore[reportMissingImports]

    with redirect_stdout(sys.stderr):
        to = trackio.init(
            project=_project(),
            name=run.name,
            group=run.arm,
            config=dict(run.config),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        try:
            yield to
        finally:
            trackio.finish()
