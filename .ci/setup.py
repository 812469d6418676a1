"""Makes .venv ready to work in: `python3 .ci/setup.py`, which `make` calls before every job.

With `--without-dev`, tests, linters and type checkers are left out, which running levelfield does not need; a later
call without it adds them. With `--peers`, the environment is .venv-peers, which has the packages of others too that
some tests compare with or ask.

The stamp `.ready` in the environment says what it was made from: this folder and the interpreter, a hash of
pyproject.toml and of the constraints, and what it is for. So a second call returns at once, and a changed file installs
again. While packages are being installed `.unfinished` stands there; an environment that still has it was killed
half-way and is made anew. Two calls at once wait for each other.

Nothing here may be newer than Python 3.6, whose users are told in one sentence that theirs is too old.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from glob import glob
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS = "--peers" in sys.argv
VENV = ROOT / (".venv-peers" if PEERS else ".venv")
PYTHON = str(VENV / "bin" / "python")
READY = VENV / ".ready"
UNFINISHED = VENV / ".unfinished"
CONSTRAINTS = ROOT / ("constraints-peers.txt" if PEERS else "constraints.txt")
WHOLE, RUN_ONLY = ".[dev,peers]" if PEERS else ".[dev]", "."


def wanted(packages):
    """The stamp of an environment made here and now, three lines."""
    content = (ROOT / "pyproject.toml").read_bytes() + CONSTRAINTS.read_bytes()
    return f"{ROOT} {sys.version.split()[0]}\n{hashlib.sha256(content).hexdigest()}\n{packages}\n"


def stamp():
    """The stamp of the environment that is there; empty where there is none."""
    return READY.read_text() if READY.exists() else ""


def works():
    """Whether the environment has an interpreter that starts and has pip."""
    try:
        return subprocess.call([PYTHON, "-c", "import pip"], stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def ready(packages):
    """Whether nothing is left to do. An environment with everything serves whoever wants less."""
    return stamp() in {wanted(packages), wanted(WHOLE)} and not UNFINISHED.exists() and works()


def make(packages):
    """Installs everything in one call, with torch by name: no other release of it, of whatever size, is then taken."""
    moved = stamp() and stamp().splitlines()[0] != wanted(packages).splitlines()[0]
    if UNFINISHED.exists() or moved or not works():
        shutil.rmtree(VENV, ignore_errors=True)
    VENV.mkdir(exist_ok=True)
    UNFINISHED.touch()
    if not works():
        subprocess.check_call([sys.executable, "-m", "venv", str(VENV)])
    torch = next(line for line in CONSTRAINTS.read_text().splitlines() if line.startswith("torch=="))
    pip = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile", "-c", CONSTRAINTS.name]
    pip += [] if sys.stdout.isatty() else ["-qq"]
    print(f"Installing {torch} and the rest into {VENV.name}: minutes now, a moment next time.", flush=True)
    subprocess.check_call([*pip, torch, "-e", packages], cwd=str(ROOT))
    if not PEERS:  # most of what those bring is never imported
        compile_packages()
    UNFINISHED.write_text(wanted(packages))
    os.replace(str(UNFINISHED), str(READY))


def compile_packages():
    """Writes byte code by all cores, where pip would use one, and not that of packages' tests, which nobody imports.

    A file that is no Python of this version, as some packages have, is left as it is.
    """
    quietly = [PYTHON, "-m", "compileall", "-qq", "-j", "0", "-x", r"[/\\]tests?[/\\]"]
    subprocess.call([*quietly, *glob(str(VENV / "lib" / "python3*" / "site-packages"))])


def main(arguments):
    """What went wrong, in one sentence, or None."""
    packages = RUN_ONLY if "--without-dev" in arguments else WHOLE
    if sys.version_info < (3, 11):  # noqa: UP036
        return f"levelfield needs Python 3.11 or newer and this is {sys.version.split()[0]}: make PYTHON=python3.12"
    try:
        import ensurepip  # noqa: F401
        import fcntl
        import venv  # noqa: F401
    except ImportError as error:
        return f"This Python lacks its '{error.name}' module; on Debian and Ubuntu: apt install python3-venv"
    with (ROOT / ".setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if ready(packages):
            return None
        try:
            make(packages)
        except subprocess.CalledProcessError as error:
            return f"Set-up stopped at '{' '.join(error.cmd[1:4])}' (see above): mend that, then run the same make."
        except KeyboardInterrupt:
            return "stopped; run the same command again to continue"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
