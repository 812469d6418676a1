"""Executes one run in several processes of this machine, which torchrun starts and ends together.

    execute(run, where, words=(job.to_json(), run.id), threads=1)       # ("done", ""), ("busy", "") or ("failed", why)

    worker --- starts ---> torchrun --- starts ---> run.numerics.nproc times `member.py`, joined as a group
      |                                                          |
      +--- a pipe to standard input, which ends with it ---------+

The first of these processes claims the run. Where one dies, torchrun ends the others, and all are started once more:
they continue from the last checkpoint. Where the worker dies, its pipe ends, and so do they. Where the worker is asked
to stop, it writes a byte into the pipe: they agree on a step, save the run, give it back and end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from levelfield.engine.environment import environment
from levelfield.files import disk_errors, write_text
from levelfield.runs import claims, store
from levelfield.spec import Run

ATTEMPTS = 2  # of a run one of whose processes dies
POLL_S = 0.5


def execute(run: Run, where: Path, *, words: tuple[str, str], threads: int) -> tuple[str, str]:
    """Executes a run, and returns the outcome and why, as `training.attempt` does.

    words: what `member.py` is told. threads: of each process. Raises UserError where the folder cannot be written to.
    """
    variables = os.environ | environment(threads)
    for _ in range(ATTEMPTS):
        if claims.stopping():
            break
        with disk_errors(where):
            (where / store.ERROR).unlink(missing_ok=True)
        with subprocess.Popen(_command(run, words), stdin=subprocess.PIPE, env=variables) as started:
            code = _ended(started)
        if code == 0:  # also where another process had the run
            return ("done" if store.complete(where) else "busy"), ""
        with suppress(FileNotFoundError, IndexError):
            return "failed", (where / store.ERROR).read_text(encoding="utf-8").splitlines()[0]
    if claims.stopping():
        return "busy", ""
    why = f"one of its {run.numerics.nproc} processes was killed, {ATTEMPTS} times; out of memory is the usual reason"
    write_text(where / store.ERROR, f"The run failed: {why}.\n")
    return "failed", why


def _ended(started: subprocess.Popen[bytes]) -> int:
    """Waits for torchrun, and returns its exit code. Passes on, once, that this process is asked to stop."""
    told = False
    while True:
        with suppress(subprocess.TimeoutExpired):
            return started.wait(POLL_S)
        if claims.stopping() and not told and started.stdin is not None:
            told = True
            with suppress(OSError):  # they have just ended
                started.stdin.write(b".")
                started.stdin.flush()


def _command(run: Run, words: tuple[str, str]) -> list[str]:
    launch = ["torch.distributed.run", "--standalone", f"--nproc-per-node={run.numerics.nproc}", "--no-python"]
    return [sys.executable, "-P", "-m", *launch, sys.executable, "-P", "-m", "levelfield.engine.member", *words]
