"""Tells runs to MLflow: to the server that MLFLOW_TRACKING_URI names, else to a SQLite file beside the runs.

    mlflow ui --backend-store-uri sqlite:///runs/trackers/mlflow/mlflow.db

A metric's point is known to MLflow by its key, step, value and time. Times here are made from the number of the record,
so that a point told twice is there once.
"""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from levelfield.runs.trackers.replay import Entry, Tracked

METRICS, PARAMS = 1000, 100  # of one call at most, as MLflow has it
TAG = "levelfield.run"
HASTE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""How long a server is waited for unless the user says otherwise: MLflow's own settings wait for many minutes."""


class MLflow:
    """Runs of one experiment: MLFLOW_EXPERIMENT_NAME, or levelfield. Every record is safe when it has been told."""

    def __init__(self, folder: Path) -> None:
        for setting, value in HASTE.items():
            os.environ.setdefault(setting, value)
        from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]

        logging.getLogger("mlflow").setLevel(logging.WARNING)  # what it does to its own database is no output of ours
        here = f"sqlite:///{(folder / 'mlflow.db').resolve().as_posix()}"
        there = os.environ.get("MLFLOW_TRACKING_URI")
        self.client = MlflowClient(tracking_uri=there or here)
        self.look = "" if there else f"mlflow ui --backend-store-uri {shlex.quote(here)}"
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "levelfield"
        known = self.client.get_experiment_by_name(name)
        kept = (folder / "artifacts").resolve().as_uri()
        self.experiment = known.experiment_id if known else self.client.create_experiment(name, artifact_location=kept)

    def log(self, run: Tracked, entries: Sequence[Entry]) -> bool:
        from mlflow.entities import Metric  # pyright: ignore[reportMissingImports]

        to = self._open(run)
        points = (
            Metric(key, value, to.start_time + entry.number, entry.step)
            for entry in entries
            for key, value in entry.values.items()
        )
        for part in _parts(points, METRICS):
            self.client.log_batch(to.run_id, metrics=part)
        return True

    def conclude(self, run: Tracked, facts: Mapping[str, float]) -> None:
        from mlflow.entities import Metric  # pyright: ignore[reportMissingImports]

        to = self._open(run)
        for part in _parts((Metric(key, value, to.start_time, 0) for key, value in facts.items()), METRICS):
            self.client.log_batch(to.run_id, metrics=part)
        self.client.set_terminated(to.run_id)

    def close(self) -> None:
        pass

    def _open(self, run: Tracked) -> Any:
        """Returns MLflow's facts about the run, which is made where it is not there yet, and has its whole config."""
        from mlflow.entities import Param  # pyright: ignore[reportMissingImports]

        found = self.client.search_runs([self.experiment], filter_string=f"tags.`{TAG}` = '{run.name}'", max_results=1)
        tags = {TAG: run.name, "arm": run.arm}
        to = found[0] if found else self.client.create_run(self.experiment, run_name=run.name, tags=tags)
        params = (Param(key, str(value)) for key, value in run.config.items() if key not in to.data.params)
        for part in _parts(params, PARAMS):
            self.client.log_batch(to.info.run_id, params=part)
        return to.info


def _parts(items: Iterator[Any], most: int) -> Iterator[list[Any]]:
    while part := list(islice(items, most)):
        yield part
