"""One run in several processes that share its parameters: as with whole ones, in less memory, resumed after a kill."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toys
from groups import CPU, ask_to_stop, contents, finish, kill_last
from safetensors.torch import load_file
from tiny import MODEL, FirstSymbol, RunningMean, recipe

from levelfield import protocols
from levelfield.cli.app import main
from levelfield.data.batches import SplitOnDevice
from levelfield.evaluate import evaluate
from levelfield.files import read_log, read_rows
from levelfield.model import Network
from levelfield.objectives import Classify, heads
from levelfield.run import check, load_net
from levelfield.runs import checkpoint, store
from levelfield.spec import Block, Numerics, Run, UserError

TASK = FirstSymbol(held_out=96)  # three batches of validation: one of two processes has one less to score
TWO = Numerics(nproc=2, shard=True)
PLAIN = Run(TASK, MODEL, protocols.spt_masked(recipe(8), recipe(12), 0.3), 0, TWO)
DROPPING = dataclasses.replace(PLAIN, model=dataclasses.replace(MODEL, mixers=(RunningMean(dropout=0.1),)))
SPLIT = SplitOnDevice(TASK.build(None)["train"], CPU)
EPS = torch.finfo(torch.float32).eps
STEPS = 8 + 12


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sharded run of two processes, with dropout."""
    return finish(DROPPING, tmp_path_factory.mktemp("undisturbed"))


OTHERS = (
    {"accumulate": 2},
    {"recompute": True},
    {"precision": "bf16"},
    {"precision": "bf16", "accumulate": 2, "recompute": True},
)


@pytest.mark.parametrize("more", [{}, *(pytest.param(each, marks=pytest.mark.slow) for each in OTHERS)], ids=str)
def test_sharded_processes_train_as_those_that_hold_the_whole_network(more: dict[str, object], tmp_path: Path) -> None:
    """Gradients are added up in another order, which moves a weight by some roundings of numbers below 2 in a step.

    In bf16, products may be rounded otherwise where factors differ in the last digit; a step is as long as the rate.
    """
    sharded = dataclasses.replace(PLAIN, numerics=dataclasses.replace(TWO, **more))  # pyright: ignore[reportArgumentType]
    plain = dataclasses.replace(sharded, numerics=dataclasses.replace(sharded.numerics, shard=False))
    assert plain.id != sharded.id
    mine, wanted = finish(sharded, tmp_path), finish(plain, tmp_path)
    rounding = STEPS * 0.01 * torch.finfo(torch.bfloat16).eps if "precision" in more else STEPS * 2 * EPS
    weights, other = (load_file(where / store.WEIGHTS) for where in (mine, wanted))
    assert weights.keys() == other.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(weight, other[name], rtol=0, atol=rounding)
    losses, others = ([record["loss"] for record in read_log(where / store.LOG)] for where in (mine, wanted))
    assert losses == pytest.approx(others, rel=rounding)
    assert len(losses) == STEPS


def test_two_executions_give_the_same_bytes(undisturbed: Path, tmp_path: Path) -> None:
    assert contents(finish(DROPPING, tmp_path)) == contents(undisturbed)


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_one_process_killed_and_all_started_again_ends_with_the_same_bytes(
    undisturbed: Path, tmp_path: Path, count: int
) -> None:
    run = dataclasses.replace(DROPPING, numerics=Numerics(nproc=count, shard=True))
    where = store.directory(tmp_path, run)
    wanted = undisturbed if count == 2 else finish(run, tmp_path / "undisturbed")
    kill_last(run, tmp_path)
    saved, complaints = checkpoint.latest(where)
    assert saved is not None and not complaints and saved.phase == 1
    shapes = {name: weight.shape for name, weight in load_file(wanted / store.WEIGHTS).items()}
    for kind in ("net", "best"):  # whole, as those of a single process are
        assert {n.removeprefix(f"{kind}/"): t.shape for n, t in saved.tensors.items() if n.startswith(kind)} == shapes
    finish(run, tmp_path)
    assert contents(where) == contents(wanted)


def test_one_process_that_is_asked_to_stop_has_the_run_saved_by_all(undisturbed: Path, tmp_path: Path) -> None:
    where = ask_to_stop(DROPPING, tmp_path)
    finish(DROPPING, tmp_path)
    assert contents(where) == contents(undisturbed)


def test_one_process_scores_the_stored_weights_as_the_run_did(undisturbed: Path) -> None:
    net = load_net(DROPPING, undisturbed)
    split = SplitOnDevice(TASK.build(None)["test"], CPU)
    scores = evaluate(net, split, Classify(), TASK.input, batch=32, seed=0)
    assert np.array_equal(scores.values, np.load(undisturbed / store.SCORES))
    means = [row.get("value") for row in read_rows(undisturbed / store.ROWS) if row.get("split") == "test"]
    assert scores.mean in means


def test_a_process_without_a_batch_left_computes_one_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sharded processes gather weights together, so each needs as many batches as the others; scores stay its own."""
    net = Network(MODEL, TASK.input, heads(Classify(), TASK), mask_flag=False, seed=0)
    split, seen = SplitOnDevice(TASK.build(None)["val"], CPU), []
    net.encoder.register_forward_pre_hook(lambda module, given: seen.append(1))
    score = partial(evaluate, net, split, Classify(), TASK.input, batch=32, seed=0)
    whole = score()
    parts = [score(turn=(k, 2)) for k in range(2)]
    assert len(seen) == 3 + 2 + 2
    assert np.array_equal(parts[0].values + parts[1].values, whole.values)
    assert np.array_equal(parts[0].weights + parts[1].weights, whole.weights)


def refused(message: str, **changes: Any) -> None:
    with pytest.raises(UserError, match=message):
        check(dataclasses.replace(PLAIN, **changes))


def test_what_cannot_be_sharded_is_refused_in_one_sentence() -> None:
    check(PLAIN)
    refused("over several processes, and here is one: raise nproc, or leave shard out", numerics=Numerics(shard=True))
    refused("are not compiled: leave compile or shard out", numerics=dataclasses.replace(TWO, compile=True))
    refused("is a single number", model=dataclasses.replace(MODEL, block=Block(norm="scale")))


def test_the_flag_asks_for_sharded_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    toys.write(tmp_path / "toys.py", runs=1)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(["run", "toys.py", "--effort", "smoke", "--shard"])
    assert stopped.value.code == 2 and "over several processes, and here is one" in capsys.readouterr().err
    assert not list((tmp_path / "runs").glob("*/spec.json"))
    main(["plan", "toys.py", "--effort", "smoke", "--shard", "--nproc", "2"])
    assert "toys-float32-nproc2-shard" in capsys.readouterr().out
