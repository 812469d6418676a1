"""Executes one run in several processes of this machine, which torchrun starts and ends together.

    execute(run, mine, words=(job.to_json(), run.id), threads=1)

    worker --- starts ---> torchrun --- starts ---> run.numerics.nproc times `member.py`, joined as a group
      |                                                          |
      +--- a pipe to standard input, which ends with it ---------+

The worker has the claim on the run, and the first of these processes shares it. Where one dies, torchrun ends the
others, and all are started again: they continue from the last checkpoint. Where the worker dies, its pipe ends, and so
do they. Where the worker is asked to stop, it writes a byte into the pipe: they agree on a step and save the run, and
the worker gives it back.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from contextlib import suppress

from levelfield.engine.environment import environment
from levelfield.engine.jobs import LOSSES, NO_PROGRESS
from levelfield.files import read_text
from levelfield.runs import claims, store
from levelfield.runs.claims import Lease, Stopped
from levelfield.spec import Run, UserError

USUAL = "out of memory is the usual reason"
POLL_S = 0.5


def execute(run: Run, mine: Lease, *, words: tuple[str, str], threads: int) -> None:
    """Executes a run that this process has claimed.

    words: what `member.py` is told, beside the number of the claim. threads: of each process. Raises UserError where
    the run fails, with the reason that `member.py` has staged, if any; Stopped where it was saved to be given back;
    Lost where another process has taken it over.
    """
    variables, where, died = os.environ | environment(threads), mine.disk.where, Counter[str]()
    while not claims.stopping():
        command = _command(run, (*words, str(mine.number)))
        with subprocess.Popen(command, stdin=subprocess.PIPE, env=variables) as started:
            code = _ended(started)
        mine.look()  # the first process may have added to the list, as others may
        if code == 0 and store.complete(where):
            return
        if code == 0:  # one of them was asked to stop
            break
        if (said := mine.staging / store.ERROR).exists():
            raise UserError(read_text(said).split("\n")[0])
        died[at := claims.saved(where)] += 1
        if died[at] >= LOSSES and not claims.stopping():
            count = run.numerics.nproc
            raise UserError(f"one of its {count} processes was killed, {LOSSES} times {NO_PROGRESS}: {USUAL}.")
    raise Stopped


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


def _command(run: Run, words: tuple[str, ...]) -> list[str]:
    launch = ["torch.distributed.run", "--standalone", f"--nproc-per-node={run.numerics.nproc}", "--no-python"]
    return [sys.executable, "-P", "-m", *launch, sys.executable, "-P", "-m", "levelfield.engine.member", *words]
