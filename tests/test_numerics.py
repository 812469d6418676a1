"""How a run is computed: ids, split batches, recomputed blocks, bf16, fetched losses, and what a device lacks."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import MODEL, FirstSymbol, RunningMean, recipe, training_loss
from torch import Tensor, nn

from levelfield import protocols
from levelfield import train as training
from levelfield.data.batches import SplitOnDevice
from levelfield.files import read_json, read_rows
from levelfield.mixers.conv import Conv
from levelfield.model import Network
from levelfield.objectives import Causal, Classify, ClassifySteps, Masked, Sum, Trainable, heads
from levelfield.probes.effective_context import EffectiveContext
from levelfield.rng import generator
from levelfield.run import check, execute
from levelfield.runs import store
from levelfield.runs.compiled import compile_blocks
from levelfield.runs.numerics import check_device, computing
from levelfield.spec import Block, Examples, Model, Numerics, Run, StepLabels, UserError, digest
from levelfield.tasks.recall import Recall
from levelfield.train import Metrics, Plan, Rank, State, make_optimizer, part_losses, parts_of, train
from levelfield.user.mixer import user_mixer

CPU = torch.device("cpu")
TASK = FirstSymbol()
SPLIT = SplitOnDevice(TASK.build(None)["train"], CPU)
DROPPING = dataclasses.replace(MODEL, mixers=(RunningMean(dropout=0.2),))
RUN = Run(TASK, DROPPING, protocols.scratch(recipe(6)), 0)
OTHER = (
    Numerics("tf32"),
    Numerics("bf16"),
    Numerics(compile=True),
    Numerics(accumulate=2),
    Numerics(recompute=True),
    Numerics(nproc=2),
    Numerics(nproc=2, shard=True),
    Numerics(by_length=True),
)


def plan_of(steps: int, objective: Trainable | None = None, **changes: int) -> Plan:
    numbers = dataclasses.replace(recipe(lr=0.05), schedule="constant")
    made = Plan(objective or Classify(), numbers, TASK.input, steps, warmup=0, validate_every=100)
    return dataclasses.replace(made, **changes)


def state_of(numerics: Numerics, objective: Trainable | None = None, model: Model = DROPPING) -> State:
    given = heads(objective or Classify(), TASK)
    net = Network(model, TASK.input, given, mask_flag=False, seed=0, numerics=numerics)
    return State(net, make_optimizer(net, recipe(), net.rules()))


def trained(state: State, plan: Plan) -> list[Metrics]:
    return list(train(state, plan, SPLIT, 0, lambda: 0.0))


def same_weights(a: State, b: State) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.net.parameters(), b.net.parameters(), strict=True))


def test_the_default_is_not_in_the_id_and_everything_else_is() -> None:
    ids = [dataclasses.replace(RUN, numerics=each).id for each in (Numerics(), *OTHER)]
    assert ids[0] == RUN.id
    assert len(set(ids)) == len(ids)


def test_numerics_from_before_runs_had_several_processes_keep_their_hash() -> None:
    """Digests of numerics were taken when `nproc` was not yet a field, the last one when `shard` was not; those of
    runs, of what ships, when no class said its module."""
    run = Run(Recall(), Model((Conv(),), depth=1, width=8), protocols.scratch(recipe(6)), 0)
    assert digest(Numerics("bf16", accumulate=2)).startswith("60acbe4c6f08")
    assert digest(dataclasses.replace(run, numerics=Numerics("bf16"))).startswith("947713940e94")
    assert digest(Numerics(nproc=2)).startswith("ca4e86dabbc1")
    assert digest(dataclasses.replace(run, numerics=Numerics(nproc=2))).startswith("92599a2101d3")


def test_what_is_asked_for_stands_over_what_the_study_says() -> None:
    said = Numerics("bf16", accumulate=4)
    assert Numerics(compile=True).over(said) == Numerics("bf16", compile=True, accumulate=4)
    assert str(Numerics("bf16", compile=True, accumulate=4)) == "bf16-compile-accumulate4"
    assert (str(Numerics()), str(Numerics(recompute=True))) == ("float32", "float32-recompute")


def stepwise() -> tuple[SplitOnDevice, Network]:
    """Ragged sequences of which some steps ask for one of three labels, in float64."""
    draws = np.random.default_rng(0)
    lengths = [2, 7, 5, 1, 9, 4, 3]
    x = [draws.integers(0, 8, n, dtype=np.uint8) for n in lengths]
    y = np.concatenate([draws.integers(-1, 3, n) for n in lengths])
    flat = Examples.of_sequences(x, np.zeros(len(x), np.int64))
    examples = dataclasses.replace(flat, y=y, stepwise=True)
    task = dataclasses.replace(TASK, classes=3)
    head = ClassifySteps().head(task.input, StepLabels(3))
    return SplitOnDevice(examples, CPU), Network(MODEL, task.input, (head,), mask_flag=False, seed=0).double()


CASES = {
    "label": Classify(),
    "hidden": Masked(ratio=0.4),
    "everywhere": Masked(ratio=0.4, scope="all"),
    "next": Causal(),
    "sum": Sum((Classify(), Masked(ratio=0.3), Causal()), (1.0, 0.5, 2.0)),
    "steps": ClassifySteps(),
}


@pytest.mark.parametrize("by_length", [False, True])
@pytest.mark.parametrize(("parts", "nproc"), [(1, 1), (2, 1), (3, 1), (7, 1), (20, 1), (1, 3), (2, 2), (1, 9)])
@pytest.mark.parametrize("name", CASES)
def test_a_split_batch_has_the_loss_and_gradients_of_the_whole(
    name: str, parts: int, nproc: int, by_length: bool
) -> None:
    """Nine processes are more than there are examples: some have one that counts nothing."""
    objective = CASES[name]
    if name == "steps":
        split, net = stepwise()
    else:
        split, net = SPLIT, Network(MODEL, TASK.input, heads(objective, TASK), mask_flag=False, seed=0).double()
    batch, shares = split.gather(torch.arange(7)), [0.8] * len(objective.parts)
    whole = training_loss(net, batch, objective, TASK.input, generator(0, "mask"), shares=shares)
    wanted = torch.autograd.grad(whole, list(net.parameters()), allow_unused=True)
    plan, losses = plan_of(1, objective, accumulate=parts, by_length=by_length), []
    for rank in range(nproc):
        of_rank = dataclasses.replace(plan, rank=Rank(rank, nproc))
        for part in parts_of(batch, of_rank, generator(0, "mask"), shares):
            assert not by_length or part.batch.mask is None or part.counts == [0.0] * len(shares)
            loss = part_losses(net, part, objective, TASK.input).sum()
            loss.backward()
            losses.append(loss.detach())
    assert len(losses) >= (len(batch.lengths.unique()) if by_length else min(parts * nproc, 7))
    # Losses are means in float32, whatever the network computes in.
    torch.testing.assert_close(torch.stack(losses).sum(), whole.detach(), rtol=1e-6, atol=0)
    for parameter, grad in zip(net.parameters(), wanted, strict=True):
        if grad is not None:
            torch.testing.assert_close(parameter.grad, grad, rtol=1e-5, atol=1e-8)


def test_without_padding_the_ledger_counts_none_and_less_work(tmp_path: Path) -> None:
    ledgers = [read_json(executed(tmp_path, each) / store.LEDGER) for each in (Numerics(), Numerics(by_length=True))]
    assert ledgers[0]["padding"] > ledgers[1]["padding"] == 0
    assert ledgers[0]["tokens"] == ledgers[1]["tokens"] and ledgers[1]["numerics"] == "float32-by_length"
    assert ledgers[1]["flops"] < ledgers[0]["flops"]
    assert ledgers[1]["flops_useful"] == pytest.approx(ledgers[1]["flops"])


def test_recomputed_blocks_give_the_same_bytes_dropout_included() -> None:
    kept, again = state_of(Numerics()), state_of(Numerics(recompute=True))
    calls = []
    again.net.get_submodule("blocks.0.mixer").register_forward_pre_hook(lambda *_: calls.append(1))
    assert trained(kept, plan_of(6)) == trained(again, plan_of(6))
    assert same_weights(kept, again)
    assert len(calls) == 12  # forwards, and once more in each backward


def test_losses_fetched_at_intervals_change_nothing() -> None:
    each, some = state_of(Numerics()), state_of(Numerics())
    assert trained(each, plan_of(11)) == trained(some, plan_of(11, fetch_every=4))
    assert same_weights(each, some)
    counts = [(s.step, s.examples, s.positions, s.tokens) for s in (each, some)]
    assert counts[0] == counts[1]


def spoilt_at(state: State, step: int) -> None:
    """Has the network answer NaN in the step of that number, from 0."""
    head = state.net.heads["label"]

    def answer(module: nn.Module, given: object, out: Tensor) -> Tensor:
        return out * math.nan if state.step == step else out

    head.register_forward_hook(answer)


@pytest.mark.parametrize("spoilt", [0, 4, 5, 7])
def test_a_run_that_diverges_within_an_interval_ends_as_one_that_is_watched(spoilt: int) -> None:
    each, some = state_of(Numerics()), state_of(Numerics())
    for state in (each, some):
        spoilt_at(state, spoilt)
    watched, fetched = trained(each, plan_of(20)), trained(some, plan_of(20, fetch_every=4))
    assert [m.step for m in watched] == [m.step for m in fetched] == list(range(1, spoilt + 2))
    assert (each.stopped, each.step, each.tokens) == (some.stopped, some.step, some.tokens)
    assert (some.stopped, some.step) == ("diverged", spoilt + 1)
    assert same_weights(each, some)


def test_nothing_is_fetched_between_the_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop itself asks the device for values at intervals alone; the batches are laid out on the CPU."""
    state, asked = state_of(Numerics()), []
    for name in ("tolist", "item", "__bool__", "__float__"):
        plain = getattr(Tensor, name)

        def noted(self: Tensor, name: str = name, plain: Callable[[Tensor], object] = plain) -> object:
            if sys._getframe(1).f_code.co_filename == training.__file__:
                asked.append((name, state.step))
            return plain(self)

        monkeypatch.setattr(Tensor, name, noted)
    train_on = train(state, plan_of(100, fetch_every=5), SPLIT, 0, lambda: 0.0)
    for _ in range(20):
        next(train_on)
    assert asked == [("tolist", step) for step in (5, 10, 15, 20)]


def test_bf16_keeps_parameters_gradients_moments_and_the_residual_stream_in_float32() -> None:
    objective = Sum((Classify(), Masked(ratio=0.3)))
    model = dataclasses.replace(DROPPING, block=Block(feedforward=32))
    state, seen = state_of(Numerics("bf16"), objective, model), []
    batch = SPLIT.gather(torch.arange(8))
    state.net.blocks[1].register_forward_hook(lambda module, given, out: seen.extend([given[0].dtype, out.dtype]))
    state.net.heads["denoise"].register_forward_hook(lambda module, given, out: seen.append(out.dtype))
    loss = training_loss(state.net, batch, objective, TASK.input, generator(0, "mask"))
    loss.backward()
    state.optimizer.step()
    assert seen == [torch.float32, torch.float32, torch.bfloat16]
    assert loss.dtype == torch.float32
    tensors = [t for p in state.net.parameters() for t in (p, p.grad) if t is not None]
    assert {t.dtype for t in tensors} == {torch.float32}
    assert {v.dtype for slot in state.optimizer.state.values() for v in slot.values()} == {torch.float32}
    plain = training_loss(state_of(Numerics(), objective).net, batch, objective, TASK.input, generator(0, "mask"))
    assert plain.dtype == torch.float32


def test_float32_products_are_set_for_a_run_and_put_back() -> None:
    matmul = torch.backends.cuda.matmul
    before, seen = matmul.fp32_precision, []
    for precision in ("float32", "tf32", "bf16"):
        with pytest.raises(KeyError), computing(Numerics(precision)):
            seen.append(matmul.fp32_precision)
            raise KeyError
    assert seen == ["ieee", "tf32", "ieee"]
    assert matmul.fp32_precision == before


@contextmanager
def float64_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "around",
    [float64_by_default, partial(torch.autocast, "cpu", torch.bfloat16), torch.no_grad, torch.inference_mode],
    ids=["float64", "autocast", "no_grad", "inference"],
)
def test_a_run_computes_the_same_wherever_it_is_called(tmp_path: Path, around: Callable[[], Any]) -> None:
    """By its weights, byte for byte; and what was set outside is set again afterwards."""

    def state() -> tuple[object, ...]:
        return torch.get_default_dtype(), torch.is_autocast_enabled("cpu"), torch.is_grad_enabled()

    weights: list[bytes] = []
    for number, scope in enumerate((nullcontext, around)):
        with scope():
            before = state()
            execute(RUN, tmp_path / str(number), tmp_path / "data", device="cpu")
            assert state() == before
        weights += [file.read_bytes() for file in sorted((tmp_path / str(number)).glob("*.safetensors"))]
    assert len(weights) == 2 and weights[0] == weights[1]


def test_what_a_device_lacks_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    check_device(Numerics("bf16"), CPU)
    with pytest.raises(UserError, match=r"tf32 is of NVIDIA GPUs, and this is cpu: take float32 or bf16"):
        check_device(Numerics("tf32"), CPU)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla V100")
    for precision in ("tf32", "bf16"):
        with pytest.raises(UserError, match=f"Tesla V100 has no {precision}"):
            check_device(Numerics(precision), torch.device("cuda"))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UserError, match="needs a C\\+\\+ compiler: install"):
        check_device(Numerics(compile=True), CPU)


def test_what_cannot_be_computed_so_is_refused_before_any_compute() -> None:
    with pytest.raises(UserError, match="A batch of 16 has no 3 equal parts"):
        check(dataclasses.replace(RUN, numerics=Numerics(accumulate=3)))
    with pytest.raises(UserError, match=r"each length by itself \(by_length\): leave shard out"):
        check(dataclasses.replace(RUN, numerics=Numerics(nproc=2, shard=True, by_length=True)))
    batch = dataclasses.replace(RUN, model=dataclasses.replace(RUN.model, block=Block(norm="batch")))
    with pytest.raises(UserError, match="norm='batch', a few examples of one length are no batch"):
        check(dataclasses.replace(batch, numerics=Numerics(by_length=True)))
    with pytest.raises(UserError, match="no 6 equal parts: let accumulate times nproc divide it"):
        check(dataclasses.replace(RUN, numerics=Numerics(accumulate=2, nproc=3)))
    with pytest.raises(UserError, match="give 1 or more"):
        Numerics(accumulate=0)
    with pytest.raises(UserError, match="give 1 or more"):
        Numerics(nproc=0)
    norm = dataclasses.replace(RUN.model, block=Block(norm="batch"))
    with pytest.raises(UserError, match="count each batch twice"):
        check(dataclasses.replace(RUN, model=norm, numerics=Numerics(recompute=True)))


class Normed(nn.Module):
    """Normalises over the batch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


class Counter(nn.Module):
    """Counts the batches that it was trained on."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.map = nn.Linear(width, width)
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen += 1
        return self.map(x)


def test_a_mixer_that_counts_batches_is_refused_where_they_would_be_others() -> None:
    normed, counter = (
        dataclasses.replace(RUN, model=Model((RunningMean(), user_mixer(cls)), 2, 8)) for cls in (Normed, Counter)
    )
    again, apart = Numerics(recompute=True), Numerics(by_length=True)
    with pytest.raises(
        UserError, match=r"twice in inner.norm.running_mean of the mixer normed, .* leave recompute out"
    ):
        check(dataclasses.replace(normed, numerics=again))
    with pytest.raises(UserError, match=r"twice in inner.seen of the mixer counter, .* leave recompute out"):
        check(dataclasses.replace(counter, numerics=again))
    with pytest.raises(UserError, match=r"batch normalisation \(inner.norm of the mixer normed\), .* leave by_length"):
        check(dataclasses.replace(normed, numerics=apart))
    check(dataclasses.replace(counter, numerics=apart))
    for run in (normed, counter):
        check(run)


def executed(folder: Path, numerics: Numerics) -> Path:
    run = dataclasses.replace(RUN, numerics=numerics)
    where = store.directory(folder / "runs", run)
    execute(run, where, folder / "data", "cpu")
    return where


def test_ledger_rows_and_description_say_how_a_run_was_computed(tmp_path: Path) -> None:
    plain, split = executed(tmp_path, Numerics()), executed(tmp_path, Numerics("bf16", accumulate=2))
    assert read_json(plain / store.LEDGER)["numerics"] == "float32"
    assert read_json(split / store.LEDGER)["numerics"] == "bf16-accumulate2"
    assert {row.get("numerics") for row in read_rows(plain / store.ROWS)} == {None}
    assert {row.get("numerics") for row in read_rows(split / store.ROWS)} == {"bf16-accumulate2"}
    assert read_json(split / store.SPEC)["numerics"]["precision"] == "bf16"


def test_a_complete_run_is_probed_by_one_process_on_a_device_that_could_not_train_it(tmp_path: Path) -> None:
    """Weights of a plain run stand for those of two processes, or of a GPU in TF32: their files are alike."""
    where = executed(tmp_path, Numerics())
    for examples, numerics in enumerate((Numerics("tf32"), Numerics(nproc=2), Numerics(nproc=2, shard=True)), 2):
        run, probe = dataclasses.replace(RUN, numerics=numerics), EffectiveContext(examples=examples, steps=1)
        with pytest.raises(UserError, match=r"tf32 is of NVIDIA GPUs|is for 2 processes"):
            execute(run, tmp_path / "untrained", tmp_path / "data", "cpu", [probe])
        execute(run, where, tmp_path / "data", "cpu", [probe])
        assert {row["n"] for row in read_rows(store.probe_file(where, probe))} == {examples}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore")  # torch's compiler uses parts of torch that are deprecated
def test_compiled_blocks_train_as_plain_ones_do() -> None:
    plain, compiled = state_of(Numerics()), state_of(Numerics(compile=True))
    compile_blocks(compiled.net, ragged=True)
    for state in (plain, compiled):
        for block in state.net.blocks:
            block.dropout.p = 0.0  # pyright: ignore
            block.mixer.dropout.p = 0.0  # pyright: ignore
    losses: Sequence[list[float]] = [[m.loss for m in trained(state, plan_of(5))] for state in (plain, compiled)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert plain.net.state_dict().keys() == compiled.net.state_dict().keys()
