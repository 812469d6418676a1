"""A Slurm of one machine without limits, for tests: sbatch, squeue, scancel and scontrol requeue as one script.

    install(folder)      puts the commands into folder/bin, and their state into folder/state

A task is a process; it is RUNNING while that lives. Nothing is requeued by itself, as where a node dies.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def install(folder: Path) -> Path:
    """Writes the commands, and returns the folder to put before PATH."""
    (folder / "state").mkdir(parents=True)
    (folder / "bin").mkdir()
    for name in ("sbatch", "squeue", "scancel", "scontrol"):
        path = folder / "bin" / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{__file__}" {name} "{folder}/state" "$@"\n')
        path.chmod(0o755)
    return folder / "bin"


def flags(words: Sequence[str]) -> dict[str, str]:
    return dict(word.removeprefix("--").split("=", 1) for word in words if "=" in word)


def sbatch(state: Path, words: Sequence[str]) -> None:
    given = flags(words)
    if given.get("partition") == "nowhere":
        sys.exit("sbatch: error: invalid partition specified: nowhere")
    if int(given["cpus-per-task"]) > 256 and not (state / "waits").exists():
        print("sbatch: error: CPU count per node can not be satisfied", file=sys.stderr)
        sys.exit("sbatch: error: Batch job submission failed: Requested node configuration is not available")
    number = 1 + len(list(state.glob("*.job")))
    (state / f"{number}.job").write_text("\n".join(words))
    (state / f"{number}.sh").write_text(sys.stdin.read())
    for index in range(int(given["array"].split("-")[1]) + 1):
        begin(state, f"{number}_{index}")
    print(number)


def begin(state: Path, task: str) -> None:
    number, index = task.split("_")
    given = flags((state / f"{number}.job").read_text().splitlines())
    output = given["output"].replace("%A", number).replace("%a", index)
    names = {"SLURM_ARRAY_JOB_ID": number, "SLURM_ARRAY_TASK_ID": index}
    with open(output, "a") as log:
        process = subprocess.Popen(
            ["sh", str(state / f"{number}.sh")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | names,
            start_new_session=True,
        )
    with (state / f"{task}.pids").open("a") as file:
        file.write(f"{process.pid}\n")


def running(state: Path) -> dict[str, int]:
    """The process of each task that lives."""
    newest = {path.stem: int(path.read_text().split()[-1]) for path in state.glob("*.pids")}
    return {task: pid for task, pid in newest.items() if lives(pid)}


def meant(state: Path, words: Sequence[str], tasks: dict[str, int]) -> dict[str, int]:
    """Those of the tasks that are of the name or the jobs that the words of a command give, or all."""
    jobs = {word for word in words if word.isdigit()}
    name = words[words.index("--name") + 1] if "--name" in words else ""

    def asked(job: str) -> bool:
        given = flags((state / f"{job}.job").read_text().splitlines())
        return (not jobs or job in jobs) and (not name or given["job-name"] == name)

    return {task: pid for task, pid in tasks.items() if asked(task.split("_")[0])}


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def main(command: str, state: Path, words: Sequence[str]) -> None:
    if (state / "away").exists():
        sys.exit(f"{command}: error: Unable to contact slurm controller (connect failure)")
    if command == "sbatch":
        sbatch(state, words)
    elif command == "squeue":
        alive = meant(state, words, running(state))
        gone = meant(state, words, {path.stem: 0 for path in state.glob("*.cancelled")}) if "all" in words else {}
        waits = state / "waits"  # for the reason that is its content
        told = f"PENDING {waits.read_text()}" if waits.exists() else "RUNNING None"
        print("\n".join(f"{task} {told if task in alive else 'CANCELLED None'}" for task in gone | alive))
    elif command == "scancel":
        for task, pid in meant(state, words, running(state)).items():
            (state / f"{task}.cancelled").touch()
            os.kill(pid, signal.SIGTERM)
    elif words[0] == "requeue":  # the caller is the task itself, which has done its work
        (state / f"{words[1]}.requeued").touch()
        begin(state, words[1])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
