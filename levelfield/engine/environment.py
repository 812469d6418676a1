"""Says which environment variables a process needs that an engine starts, wherever it starts it.

subprocess.Popen(command, env=os.environ | environment(threads=1))
"""

from __future__ import annotations

import os
from pathlib import Path


def environment(threads: int) -> dict[str, str]:
    """Returns the variables that a worker needs besides: where this package lies, and how many threads it has."""
    folder = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(p for p in (folder, os.environ.get("PYTHONPATH", "")) if p)
    return {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": path}
