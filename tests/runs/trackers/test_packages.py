"""What each tracker's own reader gives back is the log, unrounded. Nothing here needs a network.

Each test is skipped where its tracker is not installed: pip install 'levelfield[tensorboard]', and so on.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import toys
from runs_on_disk import FACTS, RUN, complete, points, records, write_log

from levelfield.cli.app import main
from levelfield.runs.trackers import open_sink
from levelfield.runs.trackers.replay import Replayer

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore"),  # of these packages, which are not ours
]
Points = dict[str, list[tuple[int, float]]]
SEVEN = 7  # a record that no power of two or phase begins with


def package(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed: pip install 'levelfield[{name}]'")


def told_in_parts(tracker: str, tmp_path: Path) -> Path:
    """The folder of a tracker that was told one run in four parts, forgot how far it was, and was told again."""
    where, kept = tmp_path / RUN, tmp_path / "kept"
    for count in (SEVEN, 45, 80):
        write_log(where, records(count))
        replayer = Replayer(open_sink(tracker, kept), kept / "state")
        assert replayer.catch_up(where)
        replayer.close()
        if count == 45:
            (kept / "state" / f"{RUN}.json").unlink()  # a crash before this was written
    complete(where)
    replayer = Replayer(open_sink(tracker, kept), kept / "state")
    assert replayer.catch_up(where) == 0
    replayer.close()
    return kept


def test_tensorboard_reads_what_the_log_says(tmp_path: Path) -> None:
    package("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util

    folder = told_in_parts("tensorboard", tmp_path) / "events" / RUN
    read = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    read.Reload()
    tags = read.Tags()["tensors"]
    found = {
        tag: [(e.step, tensor_util.make_ndarray(e.tensor_proto).item()) for e in read.Tensors(tag)] for tag in tags
    }
    assert found == points(records(80)) | {name: [(0, value)] for name, value in FACTS.items()}
    assert {read.SummaryMetadata(tag).plugin_data.plugin_name for tag in tags} == {"scalars"}


def test_the_pages_of_tensorboard_get_what_the_log_says(tmp_path: Path) -> None:
    """Its server reads events through another class than its library does, which turns them into curves."""
    package("tensorboard")
    from tensorboard import context
    from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer

    folder = told_in_parts("tensorboard", tmp_path) / "events"
    every = plugin_event_multiplexer.EventMultiplexer(tensor_size_guidance={"scalars": 0})
    every.AddRunsFromDirectory(str(folder))
    every.Reload()
    pages = data_provider.MultiplexerDataProvider(every, str(folder))
    asked = {"experiment_id": "", "plugin_name": "scalars", "downsample": 1000}
    read = pages.read_scalars(context.RequestContext(), **asked)
    assert list(read) == [RUN]
    found = {tag: [(point.step, point.value) for point in line] for tag, line in read[RUN].items()}
    assert found == points(records(80)) | {name: [(0, value)] for name, value in FACTS.items()}


def test_mlflow_reads_what_the_log_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    mlflow = package("mlflow")
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    folder = told_in_parts("mlflow", tmp_path)
    assert capfd.readouterr() == ("", "")  # MLflow would say how it makes its database
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("levelfield")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == RUN and run.info.status == "FINISHED"
    assert run.data.params["protocol.phases.0.lr"] == "0.002"
    histories = {tag: client.get_metric_history(run.info.run_id, tag) for tag in run.data.metrics}
    found = {tag: sorted((m.step, m.value) for m in history) for tag, history in histories.items()}
    assert found == points(records(80)) | {name: [(0, value)] for name, value in FACTS.items()}


def test_mlflow_gets_the_whole_spec_after_a_failure_in_the_middle_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = package("mlflow")
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("levelfield.runs.trackers.mlflow_runs.PARAMS", 2)
    where, kept = tmp_path / RUN, tmp_path / "kept"
    write_log(where, records(SEVEN))
    complete(where)
    sink: Any = open_sink("mlflow", kept)
    replayer, told, calls = Replayer(sink, kept / "state"), sink.client.log_batch, 0

    def fails_once(*words: Any, **given: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ConnectionError("the server went away")
        told(*words, **given)

    monkeypatch.setattr(sink.client, "log_batch", fails_once)
    with pytest.raises(ConnectionError):
        replayer.catch_up(where)
    assert replayer.catch_up(where) == SEVEN
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{kept / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name("levelfield").experiment_id])
    assert run.data.params == {"task.kind": "ListOps", "model.depth": "2", "protocol.phases.0.lr": "0.002", "seed": "0"}


def test_trackio_reads_what_the_log_says(tmp_path: Path) -> None:
    """It reads its folder when it is imported, so both happen in a process of their own."""
    package("trackio")
    where, kept = tmp_path / RUN, tmp_path / "kept"
    script = (
        "import sys, pathlib; from levelfield.runs.trackers import open_sink\n"
        "from levelfield.runs.trackers.replay import Replayer\n"
        "kept = pathlib.Path(sys.argv[2]); replayer = Replayer(open_sink('trackio', kept), kept)\n"
        "print(replayer.catch_up(pathlib.Path(sys.argv[1]))); replayer.close()\n"
    )
    read = (
        "import json; from trackio.sqlite_storage import SQLiteStorage as s\n"
        f"print(json.dumps([s.get_runs('levelfield'), s.get_logs('levelfield', {RUN!r})]))\n"
    )
    environment = os.environ | {"TRACKIO_DIR": str(tmp_path / "trackio"), "HF_HUB_OFFLINE": "1"}

    def run(*words: str) -> str:
        done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[-1]

    write_log(where, records(SEVEN))
    assert run("-c", script, str(where), str(kept)) == str(SEVEN)
    write_log(where, records(80))
    complete(where)
    assert run("-c", script, str(where), str(kept)) == str(80 - SEVEN)
    assert run("-c", script, str(where), str(kept)) == "0"
    runs, logs = json.loads(run("-c", read))
    assert runs == [RUN]
    found: Points = {}
    for line in logs:
        phase = next((key.removesuffix("/step") for key in line if key.endswith("/step")), "")
        for tag in line.keys() & {*points(records(80)), *FACTS}:
            found.setdefault(tag, []).append((line.get(f"{phase}/step", 0), line[tag]))
    assert found == points(records(80)) | {name: [(0, value)] for name, value in FACTS.items()}


def test_wandb_keeps_what_the_log_says_for_its_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline, each time it is opened is a file. What `wandb sync` sends is read from them, as its server takes it: of
    each number the first."""
    package("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("HOME", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    folder = told_in_parts("wandb", tmp_path)
    found: Points = {}
    numbers: set[int] = set()
    facts: dict[str, float] = {}
    names = set()
    for record in wandb_records(folder):
        if record.WhichOneof("record_type") == "run":
            names.add((record.run.display_name, record.run.run_group))
        for item in record.summary.update:
            facts[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
        line = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        if not line or record.history.step.num in numbers:
            continue
        numbers.add(record.history.step.num)
        (phase,) = (key.removesuffix("/step") for key in line if key.endswith("/step"))
        for tag in line.keys() & {*points(records(80))}:
            found.setdefault(tag, []).append((line[f"{phase}/step"], line[tag]))
    assert names == {(RUN, "listops-s4-spt_masked")} and numbers == set(range(1, 81))
    assert found == points(records(80)) and facts.items() >= FACTS.items()


def wandb_records(folder: Path) -> Iterator[Any]:
    """What wandb has written for its server, file by file, in order of time."""
    from wandb.proto import wandb_internal_pb2

    files = sorted(folder.rglob("*.wandb"), key=lambda path: path.stat().st_mtime_ns)
    assert len(files) == 4
    for path in files:
        for content in framed(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(content)
            yield record


def framed(file: bytes) -> Iterator[bytes]:
    """The records of a log in LevelDB's format: parts of blocks of 32 KiB, after a head of seven bytes."""
    place, parts = 7, b""
    while place < len(file):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", file, place)
        parts += file[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


@pytest.mark.slow
def test_a_study_that_trains_is_told_as_it_was_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way: the command trains in its workers, and another process tells what they write."""
    package("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util

    monkeypatch.chdir(tmp_path)
    toys.write(tmp_path / "toys.py", runs=2)
    words = ["run", "toys.py", "--effort", "smoke", "--device", "cpu", "--jobs", "1", "--track", "tensorboard"]
    main(words)
    logs = sorted(tmp_path.glob("runs/*/log.jsonl"))
    assert len(logs) == 2
    for log in logs:
        read = EventAccumulator(str(tmp_path / "runs/trackers/tensorboard/events" / log.parent.name))
        read.Reload()
        tags = [tag for tag in read.Tags()["tensors"] if tag.startswith("1-")]
        told = {
            tag: [(e.step, tensor_util.make_ndarray(e.tensor_proto).item()) for e in read.Tensors(tag)] for tag in tags
        }
        assert told and told == points([json.loads(line) for line in log.read_text().splitlines()])
        rows = [json.loads(line) for line in (log.parent / "rows.jsonl").read_text().splitlines()]
        (accuracy,) = (
            row["value"]
            for row in rows
            if row["split"] == "test" and row["metric"] == "accuracy" and row["protocol"] != "none" and "at" not in row
        )
        (point,) = read.Tensors("test/accuracy")
        assert tensor_util.make_ndarray(point.tensor_proto).item() == accuracy
