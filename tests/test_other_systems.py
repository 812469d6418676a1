"""The core without what only Unix has: a study runs, and is reported, where levelfield cannot have the modules, calls
and default encoding that Windows lacks.

A test machine is no Windows. What is simulated is what has been seen to break there: modules that cannot be imported,
functions of `os` that do not exist, a rename that refuses to replace a file, text that is not UTF-8 unless one says so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

from levelfield.runs import claims

LACKING = """
import builtins, os, signal, subprocess, sys, types
import asyncio  # on Unix it calls sysconf when it is imported

GONE = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline"}
real = builtins.__import__


def imported(name, globals=None, *more, **others):
    if name in GONE and str((globals or {}).get("__name__")).startswith("levelfield"):
        raise ImportError(f"No module named '{name}'", name=name)  # of other packages not: their platform is Unix
    return real(name, globals, *more, **others)


builtins.__import__ = imported
locks = types.ModuleType("msvcrt")
locks.LK_LOCK, locks.LK_NBLCK, locks.locking = os.F_LOCK, os.F_TLOCK, os.lockf
sys.modules["msvcrt"] = locks

for name in ("fork", "killpg", "sysconf", "getuid", "geteuid", "setsid", "getpgid", "getloadavg", "sched_getaffinity"):
    delattr(os, name)
subprocess.Popen.kill = lambda self, number=signal.SIGKILL: self.send_signal(number)
for name in ("SIGKILL", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGALRM", "SIGCHLD", "SIGQUIT"):
    delattr(signal, name)

rename = os.rename


def renamed(source, target, **more):
    if os.path.exists(target):
        raise FileExistsError(17, "File exists", str(target))
    rename(source, target, **more)


os.rename = renamed
"""
"""What every process of the study begins with, workers too: `sitecustomize`."""


@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform == "win32", reason="takes away what Windows does not have anyway")
def test_a_comparison_runs_without_what_windows_lacks(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(LACKING)
    rows = "".join(f"text {i} é,{'good' if i % 2 else 'bad'}\n" for i in range(40))
    (tmp_path / "reviews.csv").write_text(f"body,stars\n{rows}", encoding="utf-8")
    own = ["--own", "reviews.csv", "--text", "body", "--label", "stars", "--effort", "smoke", "--seeds", "1"]
    command = ["compare", "linear", *own, "--protocols", "scratch", "--baselines", "conv"]
    path = os.pathsep.join([str(tmp_path), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    windows = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "USERNAME": "user"}
    done = subprocess.run(
        [sys.executable, "-m", "levelfield", *command],
        cwd=tmp_path,
        env=os.environ | windows | {"PYTHONPATH": path},
        capture_output=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    assert len(list((tmp_path / "runs").glob("*/done.json"))) == 2
    page = next((tmp_path / "report").glob("*/report.html")).read_bytes()
    assert "\N{EN DASH}" in page.decode("utf-8") and b"\r" not in page


def test_where_nothing_says_when_a_process_started_none_counts_as_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process must not take the run of one that is alive: it waits for the heartbeat to fail."""
    monkeypatch.setattr(claims, "Path", lambda text: tmp_path / text.lstrip("/"))  # a system without /proc
    monkeypatch.setenv("PATH", str(tmp_path))  # and without ps
    assert claims.started(os.getpid()) == claims.started(2**22 + 1) == claims.UNTOLD
