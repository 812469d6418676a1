"""Writes event files for TensorBoard: a folder for each run, a file for what it was told at a time.

    runs/trackers/tensorboard/events/listops-s4-scratch-0-1a2b3c4d5e/events.out.tfevents.0000000001.levelfield
    tensorboard --logdir runs/trackers/tensorboard/events

TensorBoard's own writer rounds scalars to 32 bits; here they are tensors of 64, which its pages read alike. A file is
named by the number of its first record and takes its name when it is whole, so that a record told twice is there once.
"""

from __future__ import annotations

import io
import os
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from levelfield.runs.trackers.replay import Entry, Tracked

LAST = 10**10 - 1  # of the file of facts, which is read after all others


class TensorBoard:
    """Event files in a folder. Every record is safe when it has been told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "events"
        self.look = f"tensorboard --logdir {shlex.quote(str(self.folder))}"

    def log(self, run: Tracked, entries: Sequence[Entry]) -> bool:
        where, first = self.folder / run.name, entries[0].number
        for other in where.glob("events.out.tfevents.*.levelfield"):
            if int(other.name.split(".")[3]) >= first:  # told before, and how far was forgotten
                other.unlink()
        self._write(run, first, ((entry.step, entry.values) for entry in entries))
        return True

    def conclude(self, run: Tracked, facts: Mapping[str, float]) -> None:
        self._write(run, LAST, [(0, facts)])

    def close(self) -> None:
        pass

    def _write(self, run: Tracked, number: int, points: Iterable[tuple[int, Mapping[str, float]]]) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter  # pyright: ignore[reportMissingImports]

        content = io.BytesIO()
        writer = RecordWriter(content)
        for event in _events(points):
            writer.write(event.SerializeToString())
        partial = self.folder / f".{run.name}.partial"  # beside the run's folder, where no reader looks for events
        target = self.folder / run.name / f"events.out.tfevents.{number:010d}.levelfield"
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content.getvalue())
        os.replace(partial, target)


def _events(points: Iterable[tuple[int, Mapping[str, float]]]) -> Iterable[Any]:
    """Yields the head of a file, then a point for each value of each step."""
    from tensorboard.compat.proto import event_pb2, summary_pb2  # pyright: ignore[reportMissingImports]
    from tensorboard.plugins.scalar import metadata  # pyright: ignore[reportMissingImports]
    from tensorboard.util import tensor_util  # pyright: ignore[reportMissingImports]

    # protobuf makes these classes as it is imported
    Event, Summary = event_pb2.Event, summary_pb2.Summary  # pyright: ignore[reportAttributeAccessIssue]
    now = time.time()
    yield Event(wall_time=now, file_version="brain.Event:2")
    about = metadata.create_summary_metadata(display_name="", description="")
    for step, values in points:
        summary = Summary()
        for tag, value in values.items():
            tensor = tensor_util.make_tensor_proto(np.float64(value))
            summary.value.add(tag=tag, tensor=tensor, metadata=about)
        yield Event(wall_time=now, step=step, summary=summary)
