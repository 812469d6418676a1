"""Shows runs where one sees all one's runs: replays what they wrote on disk to TensorBoard, Weights & Biases, MLflow or
trackio.

    check("tensorboard")                                  # or the reason why it cannot be used, before anything runs
    replayer = Replayer(open_sink("tensorboard", folder), folder / "state")
    replayer.catch_up(Path("runs/listops-s4-scratch-0-1a2b3c4d5e"))     # how many records it had not taken yet

The files of a run are the truth. A tracker is told what they say, afterwards and from another process, so that it can
neither change nor stop a run; what it has missed is told once it is there again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from levelfield.runs.trackers.replay import Sink
from levelfield.spec import UserError, closest


def _tensorboard(folder: Path) -> Sink:
    from levelfield.runs.trackers.tensorboard_files import TensorBoard

    return TensorBoard(folder)


def _wandb(folder: Path) -> Sink:
    from levelfield.runs.trackers.wandb_runs import Wandb

    return Wandb(folder)


def _mlflow(folder: Path) -> Sink:
    from levelfield.runs.trackers.mlflow_runs import MLflow

    return MLflow(folder)


def _trackio(folder: Path) -> Sink:
    from levelfield.runs.trackers.trackio_runs import Trackio

    return Trackio()


SINKS: dict[str, Callable[[Path], Sink]] = {
    "tensorboard": _tensorboard,
    "trackio": _trackio,
    "wandb": _wandb,
    "mlflow": _mlflow,
}
"""Every tracker, by the name of its package and of its extra."""


def check(name: str) -> None:
    """Raises UserError for a tracker that is not known, and for one whose package is not installed."""
    if name not in SINKS:
        raise UserError(f"There is no tracker '{name}': {closest(name, list(SINKS))}")
    if find_spec(name) is None:
        raise UserError(f"The package {name} is not installed: pip install 'levelfield[{name}]'.")


ADDRESSES = {"mlflow": "MLFLOW_TRACKING_URI", "trackio": "TRACKIO_SERVER_URL", "wandb": "WANDB_BASE_URL"}
"""The variable that says where a tracker's server is, by its name."""


def address(name: str) -> str:
    """Returns " at " and the server that a tracker is told to use, without passwords; "" where none is named."""
    server = urlsplit(os.environ.get(ADDRESSES.get(name, ""), ""))
    return f" at {server.scheme}://{server.netloc.rpartition('@')[2]}" if server.netloc else ""


def open_sink(name: str, folder: Path) -> Sink:
    """Returns the tracker, which keeps what it keeps on this machine in `folder`. Raises UserError as `check` does."""
    check(name)
    folder.mkdir(parents=True, exist_ok=True)
    return SINKS[name](folder)
