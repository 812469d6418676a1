"""A real Slurm on this machine, for tests: one slurmctld and two slurmd on 127.0.0.1, without munge or a database.

    with cluster(folder) as environment:        # SLURM_CONF of a cluster with the nodes n1 and n2
        ...

Jobs of the partition `urgent` preempt those of `test`, which is the default.

It needs the programs of Debian's slurm-wlm, and root, since slurmd starts jobs of users.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue")

CONF = """
ClusterName=levelfield
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/none
CryptoType=crypto/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=1,sched_interval=5
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MailProg=/bin/true
ReturnToService=2
SlurmdTimeout=10
KillWait=5
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cpus}
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs={cpus}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=test Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=n1,n2 MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


def missing() -> str:
    """Why there can be no Slurm here, "" where there can."""
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"no {absent[0]} here: apt-get install slurm-wlm"
    return "" if os.geteuid() == 0 else "slurmd needs root"


@contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    host, ports = socket.gethostname().split(".")[0], [_free_port() for _ in range(3)]
    for name in ("state", "spool-n1", "spool-n2"):
        (folder / name).mkdir(parents=True)
    conf = folder / "slurm.conf"
    conf.write_text(CONF.format(host=host, folder=folder, ports=ports, cpus=os.cpu_count()))
    environment = os.environ | {"SLURM_CONF": str(conf)}
    daemons = [_start(["slurmctld", "-D", "-f", str(conf)], environment)]
    daemons += [_start(["slurmd", "-D", "-N", node, "-f", str(conf)], environment) for node in ("n1", "n2")]
    try:
        _wait(environment)
        yield {"SLURM_CONF": str(conf)}
    finally:
        for daemon in reversed(daemons):
            daemon.kill()
            daemon.wait()


def _start(words: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen(words, env=environment, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)


def _wait(environment: dict[str, str]) -> None:
    """Waits until both nodes are idle."""
    end = time.monotonic() + 60
    while True:
        words = ["sinfo", "--noheader", "--Node", "--partition=test", "--format", "%T"]
        said = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        if said.stdout.split() == ["idle", "idle"]:
            return
        assert time.monotonic() < end, f"Slurm did not start: {said.stdout} {said.stderr}"
        time.sleep(0.5)


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]
