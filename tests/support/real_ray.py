"""A real Ray of two nodes on this machine, for tests: a head and a second raylet, each of which may be killed whole.

with cluster() as found:            # found.address for RAY_ADDRESS
    found.kill(found.second)        # the raylet and every worker of it, as when a machine is lost
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from paced import wait_for
from repository import TESTS

CPUS = 1  # of each node, so that each has one worker
STARTS_S = 180.0
OPEN = {"RAY_AUTH_MODE": "disabled"}  # else a token in the home of whoever runs the test decides
WAITS = """
import sys, time, ray
ray.init(sys.argv[1], logging_level="ERROR")
while sum(node["Alive"] for node in ray.nodes()) < 2:
    time.sleep(0.5)
"""


@dataclass(frozen=True)
class Cluster:
    """Two nodes: processes that lead sessions of their own, in which everything of a node is."""

    environment: Mapping[str, str]
    head: subprocess.Popen[bytes]
    second: subprocess.Popen[bytes]

    @staticmethod
    def kill(node: subprocess.Popen[bytes]) -> None:
        """Kills all processes of a node, which are in several groups."""
        for pid in [node.pid, *(int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())]:
            with suppress(ProcessLookupError):
                if os.getsid(pid) == node.pid:
                    os.kill(pid, signal.SIGKILL)
        node.wait()


@contextmanager
def cluster() -> Iterator[Cluster]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    folder = tempfile.mkdtemp(prefix="ray")  # a short name, since names of sockets are short
    head = _node("--head", f"--port={address.rpartition(':')[2]}", f"--temp-dir={folder}", "--include-dashboard=false")
    nodes = [head]
    try:
        wait_for(lambda: _listens(address) or head.poll() is not None, STARTS_S)
        nodes.append(_node(f"--address={address}"))
        subprocess.run([sys.executable, "-c", WAITS, address], env=os.environ | OPEN, check=True, timeout=STARTS_S)
        yield Cluster({"RAY_ADDRESS": address, **OPEN}, *nodes)
    finally:
        for node in reversed(nodes):
            Cluster.kill(node)
        shutil.rmtree(folder, ignore_errors=True)


def _node(*words: str) -> subprocess.Popen[bytes]:
    fixed = ["--block", f"--num-cpus={CPUS}", "--num-gpus=0", "--object-store-memory=80000000"]
    path = os.pathsep.join([str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", "ray.scripts.scripts", "start", *fixed, *words],
        env=os.environ | {"PYTHONPATH": path, **OPEN},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as made:
        return made.connect_ex((host, int(port))) == 0
