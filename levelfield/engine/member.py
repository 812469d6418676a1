"""Runs one of several processes of a run, which find each other by what torchrun tells them in the environment.

    python -m levelfield.engine.member JOB RUN_ID CLAIM     (only torchrun calls this, which `torchrun.execute` starts)
    torchrun ... -m levelfield run STUDY --filter RUN       (`take_part`, for whoever places processes by torchrun)

CLAIM is the number of the claim on the run, which the worker has and the first process shares. The exit code is 0 where
the run is complete, where another process has it, and where it was saved to be given back, as any of the processes may
be asked to: by SIGTERM, or by a byte on standard input. Otherwise the reason is staged for the worker, which has it
moved into the run's folder, unless the process was killed.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from levelfield.engine.driver import check_folder
from levelfield.engine.jobs import failure
from levelfield.engine.training import Job, index_of
from levelfield.runs import claims, store
from levelfield.runs.claims import Folder, Lost, Stopped, claim, shared
from levelfield.spec import Numerics, UserError

FIRST_S = 3.0  # seconds within which torchrun ends this process, if it failed because another one had ended


def device_of(name: str, rank: int) -> str:
    """Returns the device of a process: each has a GPU of its own, counted from the one that the run was given.

    "auto" is the CPU where this machine has fewer GPUs than processes of the run. rank: among those of this machine.
    """
    if name == "auto":
        import torch

        name = "cuda" if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]) else "cpu"
    kind, _, first = name.partition(":")
    return name if kind != "cuda" else f"cuda:{int(first or 0) + rank}"


def world_size() -> int:
    """Returns how many processes torchrun has started for this command, with this one; 1 where it has started none."""
    return int(os.environ.get("WORLD_SIZE", 1)) if "TORCHELASTIC_RUN_ID" in os.environ else 1


def together(numerics: Numerics) -> Numerics:
    """Returns the numerics for as many processes as torchrun has started; as they are where it has started none, for
    workers then start their own. Raises UserError where they ask for another number."""
    count = world_size()
    if count == 1:
        return numerics
    if numerics.nproc not in (1, count):
        raise UserError(f"torchrun has started {count} processes, not {numerics.nproc}: leave --nproc out.")
    return replace(numerics, nproc=count)


def take_part(job: Job) -> bool:
    """Executes the one run of a job together with the processes that torchrun has started, of which this is one.

    Returns whether the run is complete. Raises UserError as `work` does, and where the job has another number of runs:
    each run is a group of its own.
    """
    from levelfield.run import check

    declared = job.source.load()
    study, runs = job.selected(declared)
    if len(runs) != 1:
        raise UserError(f"torchrun trains one run at a time, and this names {len(runs)}: choose one by --filter.")
    check(runs[0])
    if os.environ["RANK"] == "0":
        check_folder(job.out)
        store.write_index(job.out, index_of(job, declared, study), adds=bool(job.source.mixer))
    return work(job, runs[0].id)


def work(job: Job, run_id: str, number: int = 0) -> bool:
    """Does this process's part of a run, and returns whether the run is complete, which another process may have.

    number: of the claim that the worker has on the run; 0 where the first process is to claim it. Raises UserError as
    `run.execute` does, and where the study has changed; Lost where another process has taken the run over.
    """
    import torch

    from levelfield.run import execute, pick_device
    from levelfield.runs.processes import joined

    study, runs = job.load()
    run = next((run for run in runs if run.id == run_id), None)
    if run is None:
        raise UserError(f"{job.source} was changed after its runs were planned: run the same command again.")
    torch.set_num_threads(job.threads)
    device = device_of(job.device, int(os.environ["LOCAL_RANK"]))
    where, probes = store.directory(job.out, run), study.probes(run)
    with (
        joined(run.numerics, pick_device(device)) as group,
        (shared(where, number) if number else claim(where)) if group.leads else nullcontext() as mine,
    ):
        if group.agreed(mine is not None):
            with suppress(Stopped):  # in all processes, after the same step
                execute(run, where, job.data, device, probes, tested=not job.trial, claim=mine, group=group)
        return group.agreed(store.complete(where))


def _heed_parent() -> None:
    """Ends this process when standard input does, which means that the worker is gone; stops its run at a byte there.

    All processes of a run read the same pipe, so one of them gets the byte. On SIGTERM the run is stopped, too: a
    scheduler may send it to all, and torchrun passes its own on and waits for 30 s.
    """

    def wait() -> None:
        while os.read(0, 1):
            claims.stop()
        os._exit(1)

    signal.signal(signal.SIGTERM, lambda number, frame: claims.stop())

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    """Works, and leaves why it failed, unless another process failed first: that it ended is why the others fail."""
    gc.set_threshold(10_000)  # as in `levelfield/__main__.py`, and for the same reason
    job, run_id, number = Job.from_json(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    _heed_parent()
    try:
        work(job, run_id, number)
    except Lost:
        raise SystemExit(1) from None
    except Exception as error:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if claims.stopping():  # torchrun has sent it, because another process failed or this machine is wanted back
            raise SystemExit(1) from error
        if not isinstance(error, UserError):
            time.sleep(FIRST_S)
        _stage(job.out / run_id, number, failure(error))
        raise SystemExit(1) from error


def _stage(where: Path, number: int, why: str) -> None:
    """Stages the reason of a failure, unless another process of the run has; where the claim is gone, nothing is."""
    disk = Folder(where)
    if (entry := disk.read(number)) is None:
        return
    with suppress(FileExistsError, FileNotFoundError):
        folder = disk.staging(entry.owner.token)
        folder.mkdir(exist_ok=True)
        with (folder / store.ERROR).open("x", encoding="utf-8") as file:
            file.write(why)


if __name__ == "__main__":
    main()
