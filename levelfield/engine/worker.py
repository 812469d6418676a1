"""Runs a worker of the local engine: a process that loads a job for itself and does the units that its parent names.

    python -m levelfield.engine.worker JOB FINGERPRINT      (only `local.Local` calls this)

One unit a line comes in on standard input; one JSON object a line goes out: {"outcome": "done"}, "busy" (another
command has the unit) or "failed" with the reason. Before the first, "ready"; or "stop", where the job is no longer what
the parent planned.
"""

from __future__ import annotations

import gc
import json
import os
import queue
import sys
import threading
from collections.abc import Iterator
from typing import IO

from levelfield.engine import jobs
from levelfield.engine.jobs import Job
from levelfield.spec import UserError


def work(job: Job, fingerprint: str, answer: IO[str]) -> None:
    """Does the units that the parent names on standard input, until that ends."""

    def reply(outcome: str, why: str = "") -> None:
        answer.write(json.dumps({"outcome": outcome, "why": why}) + "\n")
        answer.flush()

    gc.disable()  # what loading imports stays: looking through it for garbage would take a sixth of the time
    try:
        units = job.loaded()
    except UserError as error:
        reply("stop", str(error))
        return
    finally:
        gc.freeze()
        gc.enable()
    if units.fingerprint != fingerprint:
        reply("stop", f"{units.name} was changed after its runs were planned: run the same command again.")
        return
    reply("ready")
    for unit in _asked():
        reply(*units.attempt(unit))


def _asked() -> Iterator[str]:
    """Yields units from standard input. Its end means that the parent is gone: this process then ends, mid-run."""
    asked: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            asked.put(line.strip())
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield asked.get()


def main() -> None:
    """Works with standard output kept for the answers."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not be taken for an answer
    work(jobs.read(sys.argv[1]), sys.argv[2], answer)


if __name__ == "__main__":
    main()
