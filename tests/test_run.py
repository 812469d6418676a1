"""One run: selection, rows, ledger, and above all that no kill, damage or crowd loses or repeats work."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import random
import signal
import time
from collections.abc import Mapping
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from interrupted import DROPPING, SPT, perform, stop_in_the_middle
from safetensors.torch import load_file
from tiny import MODEL, FirstSymbol, recipe

from levelfield import protocols
from levelfield import run as running
from levelfield.files import read_rows, write_text
from levelfield.objectives import Classify
from levelfield.probes.effective_context import EffectiveContext
from levelfield.run import execute, load_net
from levelfield.runs import checkpoint, journal, ledger, store
from levelfield.runs.claims import claim
from levelfield.spec import Duration, Examples, Run, SplitName, UserError
from levelfield.train import State, make_optimizer

TASK = FirstSymbol()
FILES = ("weights.safetensors", "rows.jsonl", "log.jsonl")
SERVER = multiprocessing.get_context("forkserver")  # its processes are forks of one that has imported and done nothing
SERVER.set_forkserver_preload(["levelfield.run", "pytest"])


def contents(where: Path) -> dict[str, bytes]:
    return {name: (where / name).read_bytes() for name in FILES}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run, done in another process without a disturbance."""
    out = tmp_path_factory.mktemp("undisturbed")
    assert exit_code(start(out, pace=0)) == 0
    return store.directory(out, SPT)


def start(out: Path, pace: float) -> ForkServerProcess:
    """The run in a process of its own: `pace` seconds a step, a checkpoint after every third."""
    process = SERVER.Process(target=perform, args=(out, pace))
    process.start()
    return process


def exit_code(process: ForkServerProcess) -> int | None:
    """Waits for its end."""
    process.join()
    return process.exitcode


@pytest.mark.parametrize("wanted", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_killed_at_random_moments_it_ends_with_the_same_bytes(undisturbed: Path, tmp_path: Path, wanted: int):
    dice = random.Random(4)
    where = store.directory(tmp_path, SPT)
    kills = 0
    while not store.complete(where) and kills < wanted:
        process = start(tmp_path, pace=0.02)
        deadline = time.monotonic() + 60
        steps = dice.randrange(5, 60)
        while process.is_alive() and time.monotonic() < deadline and made(where) < (kills * 90 // wanted + steps) % 95:
            time.sleep(0.01)
        process.kill()
        assert exit_code(process) in (-signal.SIGKILL, 0)
        kills += 1
    assert exit_code(start(tmp_path, pace=0)) == 0
    assert kills >= 2
    assert contents(where) == contents(undisturbed)


def made(where: Path) -> int:
    """Steps in all phases, as far as the progress file tells."""
    try:
        shown = json.loads((where / "progress.json").read_text())
    except (OSError, ValueError):
        return 0
    return shown.get("step", 0) + 40 * (shown.get("phase", 1) - 1)


def test_a_damaged_checkpoint_falls_back_to_the_one_before(undisturbed: Path, tmp_path: Path):
    where = store.directory(tmp_path, SPT)
    stop_in_the_middle(where, tmp_path, after=70)
    newest = checkpoint.listing(where)[0]
    content = bytearray(newest.read_bytes())
    content[-5] ^= 1
    newest.write_bytes(content)
    execute(SPT, where, tmp_path / "data", "cpu")
    (note,) = json.loads((where / "ledger.json").read_text())["notes"]
    assert "is damaged" in note
    assert contents(where) == contents(undisturbed)


def test_with_all_checkpoints_damaged_it_starts_again(undisturbed: Path, tmp_path: Path):
    where = store.directory(tmp_path, SPT)
    stop_in_the_middle(where, tmp_path, after=70)
    for path in checkpoint.listing(where):
        path.write_bytes(b"x")
    execute(SPT, where, tmp_path / "data", "cpu")
    assert contents(where) == contents(undisturbed)


def test_a_finished_run_is_left_alone(undisturbed: Path, tmp_path: Path):
    before = {p.name: p.stat().st_mtime_ns for p in undisturbed.iterdir() if p.name in FILES}
    execute(SPT, undisturbed, tmp_path / "data", "cpu")
    assert before == {p.name: p.stat().st_mtime_ns for p in undisturbed.iterdir() if p.name in FILES}


def test_two_processes_cannot_have_one_run(tmp_path: Path):
    with claim(tmp_path / "run") as first, claim(tmp_path / "run") as second:
        assert first is not None and second is None
    with claim(tmp_path / "run") as again:
        assert again is not None


def test_test_is_read_once_and_validation_selects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    looked: list[str] = []
    sizes = {64: "val", 32: "test"}
    run = Run(SizedApart(), MODEL, protocols.spt_masked(recipe(20), recipe(30), 0.3), 0)
    evaluate = running.evaluate

    def noting(net: Any, split: Any, *arguments: Any, **named: Any) -> Any:
        looked.append(sizes[len(split)])
        return evaluate(net, split, *arguments, **named)

    monkeypatch.setattr(running, "evaluate", noting)
    execute(run, tmp_path / "run", tmp_path / "data", "cpu")
    assert looked == ["val"] * 5 + ["val", "test"]


@dataclasses.dataclass(frozen=True)
class SizedApart(FirstSymbol):
    """Validation and test of different sizes, to tell them apart."""

    def build(self, sources: Path | None, progress: Any = None) -> Mapping[SplitName, Examples]:
        splits = super().build(sources)
        return {**splits, "test": splits["test"].take(np.arange(32))}


def test_rows_and_ledger(undisturbed: Path):
    rows = read_rows(undisturbed / "rows.jsonl")
    test = next(r for r in rows if r["split"] == "test" and r["model"] == "mean")
    assert (test["task"], test["protocol"], test["n"], test["seed"]) == ("first_symbol", "spt_masked", 64, 0)
    assert test["stderr"] == pytest.approx((test["value"] * (1 - test["value"]) / 63) ** 0.5)
    ledger = json.loads((undisturbed / "ledger.json").read_text())
    assert (ledger["steps"], ledger["examples"], [p["steps"] for p in ledger["phases"]]) == (100, 1600, [40, 60])
    assert ledger["tokens"] == sum(p["tokens"] for p in ledger["phases"])
    assert 0 < ledger["tokens"] < 1600 * 12
    chance = next(r for r in rows if r["model"] == "chance")
    assert (chance["value"], chance["protocol"]) == (0.25, "none")


def test_the_memory_of_an_earlier_run_of_the_process_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Counts of a GPU, where there is none, go on until they are reset; before CUDA has begun, that would fail."""
    peak, gpu, reset = [9 * 2**20], torch.device("cuda"), ledger.new_peak_memory
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: peak.append(2**20))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: peak[-1])
    monkeypatch.setattr(running, "new_peak_memory", lambda device: reset(gpu))
    monkeypatch.setattr(running, "peak_memory", lambda device: ledger.peak_memory(gpu))
    run = Run(TASK, MODEL, protocols.scratch(recipe(2)), 0)
    execute(run, store.directory(tmp_path, run), tmp_path / "data", "cpu")
    assert json.loads((store.directory(tmp_path, run) / store.LEDGER).read_text())["peak_memory_mb"] == 1
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: pytest.fail("CUDA has not begun"))
    reset(gpu)


def test_the_test_score_is_that_of_the_selected_weights(undisturbed: Path):
    net = load_net(SPT, undisturbed)
    splits = TASK.build(None)
    right = 0
    for i in range(len(splits["test"])):
        ids = torch.from_numpy(splits["test"].sequence(i).astype(np.int64))[None] + 2
        right += int(net.head("label", net.hidden_states(ids, None), None).argmax() == splits["test"].y[i])
    rows = read_rows(undisturbed / "rows.jsonl")
    assert next(r["value"] for r in rows if r["split"] == "test") == pytest.approx(right / 64)


def test_pretraining_reads_no_row_of_validation_or_test(tmp_path: Path):
    """Another validation or test set changes which weights are selected, never the pretraining steps."""
    logs = []
    for offset in (0, 1):
        task = Offset(shift=offset)
        run = Run(task, MODEL, protocols.spt_masked(recipe(20), recipe(5), 0.3), 0)
        execute(run, tmp_path / str(offset), tmp_path / "data", "cpu")
        log = read_rows(tmp_path / str(offset) / "log.jsonl")
        logs.append([r["loss"] for r in log if r["phase"] == 0])
    assert logs[0] == logs[1]
    assert len(logs[0]) == 20


@dataclasses.dataclass(frozen=True)
class Offset(FirstSymbol):
    """Held-out symbols moved by `shift`, training ones not."""

    shift: int = 0

    def build(self, sources: Path | None, progress: Any = None) -> Mapping[SplitName, Examples]:
        splits = dict(super().build(sources))
        for name in ("val", "test"):
            x = (splits[name].x + self.shift) % 8
            splits[name] = dataclasses.replace(splits[name], x=x)
        return splits


def test_pretrained_weights_are_evaluated_as_given(undisturbed: Path, tmp_path: Path):
    weights = tmp_path / "given.safetensors"
    weights.write_bytes((undisturbed / "weights.safetensors").read_bytes())
    run = Run(TASK, DROPPING, protocols.pretrained(weights), 0)
    execute(run, tmp_path / "run", tmp_path / "data", "cpu")
    first, second = (read_rows(p / "rows.jsonl") for p in (undisturbed, tmp_path / "run"))
    values = [next(r["value"] for r in rows if r["split"] == "test") for rows in (first, second)]
    assert values[0] == values[1]
    assert json.loads((tmp_path / "run" / "ledger.json").read_text())["steps"] == 0
    weights.write_bytes(b"other")
    with pytest.raises(UserError, match="has changed"):
        execute(run, tmp_path / "again", tmp_path / "data", "cpu")


def test_pretrained_weights_can_be_fine_tuned(undisturbed: Path, tmp_path: Path):
    tune = dataclasses.replace(SPT.protocol.phases[1], start="previous")
    protocol = protocols.pretrained(undisturbed / "weights.safetensors", (tune,))
    execute(Run(TASK, DROPPING, protocol, 0), tmp_path / "run", tmp_path / "data", "cpu")
    trained = load_file(tmp_path / "run" / "weights.safetensors")
    given = load_file(undisturbed / "weights.safetensors")
    assert not torch.equal(trained["encoder.embed.weight"], given["encoder.embed.weight"])


def test_divergence_is_a_status_not_a_crash(tmp_path: Path):
    wild = dataclasses.replace(recipe(200, lr=1e20), clip=None, warmup=Duration(0, "steps"), schedule="constant")
    run = Run(FirstSymbol(continuous=True), MODEL, protocols.scratch(wild), 0)
    execute(run, tmp_path / "run", tmp_path / "data", "cpu")
    rows = read_rows(tmp_path / "run" / "rows.jsonl")
    assert {r["status"] for r in rows if r["model"] == "mean"} <= {"diverged", "chance"}
    assert all(np.isfinite(r.get("value", 0.0)) for r in rows)


def test_a_divergence_before_a_kill_is_not_forgotten(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The phase that diverged is over when the run resumes; that it did is in the checkpoint."""
    load = checkpoint.latest

    def diverged(where: Path) -> Any:
        saved, complaints = load(where)
        assert saved is not None
        costs = [{**saved.extra["costs"][0], "stopped": "diverged"}]
        return dataclasses.replace(saved, extra={**saved.extra, "costs": costs}), complaints

    where = store.directory(tmp_path, SPT)
    stop_in_the_middle(where, tmp_path, after=70)
    monkeypatch.setattr(checkpoint, "latest", diverged)
    execute(SPT, where, tmp_path / "data", "cpu")
    rows = read_rows(where / "rows.jsonl")
    assert {r["status"] for r in rows if r["model"] == "mean"} == {"diverged"}


def test_a_log_cut_off_in_its_last_line_loses_that_line(undisturbed: Path, tmp_path: Path):
    where = store.directory(tmp_path, SPT)
    stop_in_the_middle(where, tmp_path, after=70)
    with (where / "log.jsonl").open("a") as file:
        file.write('{"phase": 1, "st')
    execute(SPT, where, tmp_path / "data", "cpu")
    assert contents(where) == contents(undisturbed)


def test_a_probe_with_other_settings_measures_again(undisturbed: Path, tmp_path: Path):
    few, many = EffectiveContext(examples=2, steps=1), EffectiveContext(examples=3, steps=1)
    for probe in (few, many, many):
        execute(SPT, undisturbed, tmp_path / "data", "cpu", [probe])
    (path,) = undisturbed.glob("probe-effective_context-*.jsonl")
    assert {r["n"] for r in read_rows(path)} == {3}
    path.unlink()


def test_weights_of_another_phase_cannot_be_evaluated_as_given(undisturbed: Path, tmp_path: Path):
    weights = tmp_path / "given.safetensors"
    weights.write_bytes((undisturbed / "weights.safetensors").read_bytes())
    run = Run(TASK, dataclasses.replace(DROPPING, depth=3), protocols.pretrained(weights), 0)
    with pytest.raises(UserError, match="another model or phase"):
        execute(run, tmp_path / "run", tmp_path / "data", "cpu")


def test_a_full_disk_is_one_sentence_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Path
):
    where = store.directory(tmp_path, SPT)
    write = Path.write_bytes
    monkeypatch.setattr(journal, "SAVE_EVERY_S", 0.0)

    def full(path: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match="No room left"):
        execute(SPT, where, tmp_path / "data", "cpu")
    monkeypatch.setattr(Path, "write_bytes", write)
    execute(SPT, where, tmp_path / "data", "cpu")
    assert contents(where) == contents(undisturbed)


def test_bad_combinations_are_refused_before_any_compute():
    bounded = dataclasses.replace(MODEL, positions="learned", max_positions=5)
    with pytest.raises(UserError, match="5 steps"):
        running.check(Run(TASK, bounded, protocols.scratch(recipe()), 0))
    with pytest.raises(UserError, match="choose cpu"):
        running.pick_device("warp")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"positions": "learned"}, "max_positions"),
        ({"name": "a" * 300}, "model name 'a+... cannot name a folder"),
        ({"name": "../mine"}, "cannot name a folder"),
        ({"name": "a/b c"}, "cannot name a folder"),
        ({"name": "\u00e9" * 40}, "cannot name a folder"),  # 80 bytes
    ],
)
def test_models_that_cannot_be_are_refused(change: dict[str, Any], sentence: str):
    with pytest.raises(UserError, match=sentence.replace("...", r"\.\.\.'")):
        running.check(Run(TASK, dataclasses.replace(MODEL, **change), protocols.scratch(recipe()), 0))


def test_the_last_phase_must_train():
    spt = protocols.spt_masked(recipe(), recipe(), 0.3)
    first, last = (protocols.matched(spt, Duration(9, "steps"), shares) for shares in ((0.0, 1.0), (1.0, 0.0)))
    running.check(Run(TASK, MODEL, first, 0))
    with pytest.raises(UserError, match="trains for 0 steps"):
        running.check(Run(TASK, MODEL, last, 0))
    with pytest.raises(UserError, match="protocol name 'a b'"):
        running.check(Run(TASK, MODEL, dataclasses.replace(first, name="a b"), 0))


def test_a_file_in_the_place_of_a_folder_is_one_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="Cannot write to"):
        write_text(tmp_path / "file" / "progress.json", "{}")
    net = running.build_net(SPT, Classify())
    with pytest.raises(UserError, match="Cannot write to"):
        checkpoint.write(tmp_path / "file", 0, State(net, make_optimizer(net, recipe(), net.rules())), {})


def test_unfinished_runs_have_no_network(tmp_path: Path):
    with pytest.raises(UserError, match="not complete"):
        load_net(SPT, tmp_path / "nowhere")
