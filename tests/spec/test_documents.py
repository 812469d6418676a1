"""Models of two documents: each is read by itself, pooled, and only then compared, from the batch to the ledger."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from tiny import MODEL, FirstSymbol, RunningMean, SameSymbol, recipe, training_loss
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from levelfield import protocols
from levelfield.data import prepared
from levelfield.data.batches import Batch, Buckets, SplitOnDevice, encode
from levelfield.evaluate import evaluate, label_scores, validation_scores
from levelfield.files import read_json, read_rows
from levelfield.mixers.attention import Attention
from levelfield.mixers.conv import Conv
from levelfield.mixers.s4 import S4
from levelfield.model import Network
from levelfield.objectives import Causal, Classify, Masked, Sum, Trainable, heads
from levelfield.probes.effective_context import EffectiveContext
from levelfield.probes.extrapolation import Extrapolation
from levelfield.probes.locality import Locality
from levelfield.probes.slices import Slices
from levelfield.rng import generator
from levelfield.run import execute, load_net
from levelfield.runs import checkpoint, journal, store
from levelfield.runs.flops import cost
from levelfield.spec import Block, Examples, MixerConfig, Model, Probe, Run, Task, Tokens, UserError, derive_seed
from levelfield.train import Plan, part_losses, parts_of

CPU = torch.device("cpu")
TASK = SameSymbol()
Pair = Literal["concat", "interaction"]
DENOISE = Masked(ratio=0.3, random=1 / 3, scope="all")
PAIRS: tuple[Pair, ...] = ("concat", "interaction")
MIXERS: dict[str, MixerConfig] = {
    "mean": RunningMean(),
    "attention": Attention(heads=2, rotary="per_head"),
    "conv": Conv(5, hidden=16),
    "s4": S4(state=8, form="diagonal", init="lin"),
}
each_mixer = pytest.mark.parametrize("mixer", [pytest.param(m, id=name) for name, m in MIXERS.items()])
each_pair = pytest.mark.parametrize("pair", PAIRS)


def ragged(lengths: list[int], documents: int = 2, symbols: int = 4) -> Examples:
    """Random documents of these lengths, with alternating labels."""
    rng = np.random.default_rng(len(lengths))
    sequences = [rng.integers(0, symbols, n).astype(np.uint8) for n in lengths]
    return Examples.of_sequences(sequences, np.arange(len(lengths) // documents) % 2, documents=documents)


UNEQUAL = ragged([3, 9, 8, 8, 1, 12, 12, 1, 5, 4])


def model(mixer: MixerConfig, pair: Pair = "concat", pooling: Any = "mean", hidden: int = 0) -> Model:
    block = Block(feedforward=16)
    return Model((mixer,), depth=2, width=8, block=block, pooling=pooling, head_hidden=hidden, pair=pair)


def build(config: Model, objective: Trainable | None = None, documents: int = 2) -> Network:
    """In float64 and evaluation mode, with every parameter off its special initial value."""
    found = [dataclasses.replace(head, documents=documents) for head in heads(objective or Classify(), TASK)]
    net = Network(config, TASK.input, tuple(found), mask_flag=False, seed=1).double().eval()
    draws = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draws, dtype=torch.float64).to(parameter.dtype))
    return net


def batch_of(examples: Examples) -> Batch:
    return SplitOnDevice(examples, CPU).gather(torch.arange(len(examples)))


def logits(net: Network, batch: Batch) -> Tensor:
    return net.head("label", net.hidden_states(encode(batch.raw, batch.mask, TASK.input), batch.mask), batch.mask)


def pooled_alone(net: Network, document: np.ndarray) -> Tensor:
    """One document through the trunk with nothing beside it, pooled by hand: (D,)."""
    ids = torch.from_numpy(document.astype(np.int64))[None] + Tokens.OFFSET
    steps = net.hidden_states(ids, None)[0]
    return {"mean": steps.mean(0), "max": steps.max(0).values, "last": steps[-1]}[net.model.pooling]


def layers(net: Network) -> list[nn.Linear]:
    return [module for module in net.heads["label"].modules() if isinstance(module, nn.Linear)]


@each_mixer
@each_pair
@pytest.mark.parametrize(("pooling", "hidden"), [("mean", 0), ("max", 6), ("last", 0)])
def test_logits_are_those_put_together_by_hand(mixer: MixerConfig, pair: Pair, pooling: str, hidden: int) -> None:
    """Each document alone through the trunk, pooled; [x, y] or [x, y, x*y, x-y]; the head's weights."""
    net = build(model(mixer, pair, pooling, hidden))
    ours = logits(net, batch_of(UNEQUAL))
    assert ours.shape == (5, 2)
    for i in range(len(UNEQUAL)):
        x, y = (pooled_alone(net, UNEQUAL.sequence(2 * i + j)) for j in (0, 1))
        seen = torch.cat([x, y] if pair == "concat" else [x, y, x * y, x - y])
        first, *second = layers(net)
        out = linear(seen, first.weight, first.bias)
        for layer in second:
            out = linear(out.clamp(min=0), layer.weight, layer.bias)
        torch.testing.assert_close(ours[i], out, rtol=1e-9, atol=1e-9)


@each_mixer
def test_a_document_knows_nothing_of_the_other(mixer: MixerConfig) -> None:
    """Neither its symbols nor its length move a feature, and no gradient passes between them."""
    net = build(model(mixer, "interaction"))
    others = [UNEQUAL.sequence(i) if i % 2 == 0 else np.full(3 * i, 2, np.uint8) for i in range(10)]
    before, after = batch_of(UNEQUAL), batch_of(Examples.of_sequences(others, UNEQUAL.y, documents=2))
    hidden_states = [net.hidden_states(encode(b.raw, b.mask, TASK.input), b.mask) for b in (before, after)]
    for i in range(0, 10, 2):
        length = int(before.lengths[i])
        torch.testing.assert_close(hidden_states[0][i, :length], hidden_states[1][i, :length], rtol=1e-9, atol=1e-9)
    encoded: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        encoded.append(output)

    net.encoder.register_forward_hook(keep)
    hidden_states = net.hidden_states(encode(before.raw, before.mask, TASK.input), before.mask)
    (gradient,) = torch.autograd.grad(hidden_states[0].square().sum(), encoded[-1])
    assert gradient[0].abs().sum() > 0 and gradient[1:].abs().sum() == 0


@each_pair
def test_a_pair_scores_the_same_in_any_company(pair: Pair) -> None:
    """Alone, or padded to a far longer neighbour's length, in any order of the batch."""
    net = build(model(MIXERS["attention"], pair))
    together = logits(net, batch_of(UNEQUAL))
    for i in range(len(UNEQUAL)):
        alone = logits(net, batch_of(UNEQUAL.take(np.array([i]))))
        torch.testing.assert_close(alone[0], together[i], rtol=1e-9, atol=1e-9)
    long = ragged([*UNEQUAL.lengths.tolist(), 60, 2])
    joined = dataclasses.replace(long, x=np.concatenate([UNEQUAL.x, long.x[len(UNEQUAL.x) :]]))
    torch.testing.assert_close(logits(net, batch_of(joined))[:5], together, rtol=1e-9, atol=1e-9)
    turned = logits(net, batch_of(UNEQUAL.take(np.array([4, 2, 0, 1, 3]))))
    torch.testing.assert_close(turned, together[[4, 2, 0, 1, 3]], rtol=1e-9, atol=1e-9)


def test_the_order_of_the_two_documents_is_not_lost() -> None:
    net = build(model(MIXERS["mean"]))
    swapped = Examples.of_sequences([UNEQUAL.sequence(i ^ 1) for i in range(10)], UNEQUAL.y, documents=2)
    assert not torch.allclose(logits(net, batch_of(UNEQUAL)), logits(net, batch_of(swapped)))


def as_singles(examples: Examples) -> Examples:
    return Examples(examples.x, examples.offsets, np.zeros(len(examples.offsets) - 1, np.int64))


@pytest.mark.parametrize("objective", [Masked(ratio=0.4), DENOISE, Causal()])
def test_pretraining_sees_the_documents_as_sequences(objective: Trainable) -> None:
    """The loss of B pairs is that of their 2B documents as examples of their own, hidden steps and all."""
    config = dataclasses.replace(model(MIXERS["mean"]), causal=isinstance(objective, Causal))
    net, single = build(config, objective), build(config, objective, documents=1)
    losses = [
        training_loss(which, batch_of(examples), objective, TASK.input, generator(3, "loss"))
        for which, examples in ((net, UNEQUAL), (single, as_singles(UNEQUAL)))
    ]
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-12, atol=0)


@pytest.mark.parametrize("objective", [Classify(), Masked(ratio=0.4), Causal()], ids=lambda each: each.key)
def test_pairs_of_each_length_have_the_gradients_of_the_whole_batch(objective: Trainable) -> None:
    """Pairs are as long as their longer document, so the shorter one alone is padded."""
    config = dataclasses.replace(model(MIXERS["attention"]), causal=isinstance(objective, Causal))
    net, batch = build(config, objective), batch_of(UNEQUAL)
    whole = training_loss(net, batch, objective, TASK.input, generator(3, "loss"))
    wanted = torch.autograd.grad(whole, list(net.parameters()), allow_unused=True)
    plan = Plan(objective, recipe(), TASK.input, 1, warmup=0, validate_every=1, by_length=True)
    parts = parts_of(batch, plan, generator(3, "loss"), [1.0])
    assert [tuple(part.batch.raw.shape) for part in parts] == [(2, 5), (2, 8), (2, 9), (4, 12)]
    for part in parts:
        part_losses(net, part, objective, TASK.input).sum().backward()
    for parameter, grad in zip(net.parameters(), wanted, strict=True):
        if grad is not None:
            torch.testing.assert_close(parameter.grad, grad, rtol=1e-5, atol=1e-8)


def test_the_causal_loss_by_hand() -> None:
    """The mean over all documents' steps but the first of each."""
    config = dataclasses.replace(model(MIXERS["attention"]), causal=True)
    net = build(config, Causal())
    total, count = torch.zeros((), dtype=torch.float64), 0
    for i in range(10):
        document = torch.from_numpy(UNEQUAL.sequence(i).astype(np.int64))
        outputs = net.head("next", net.hidden_states(document[None] + Tokens.OFFSET, None), None)[0]
        total = total + cross_entropy(outputs[:-1], document[1:], reduction="sum")
        count += len(document) - 1
    ours = training_loss(net, batch_of(UNEQUAL), Causal(), TASK.input, generator(0, "unused"))
    torch.testing.assert_close(ours.double(), total / count, rtol=1e-6, atol=1e-6)


def test_enriched_training_sums_both_losses() -> None:
    """The label of a pair, and the denoising of both its documents, in one pass."""
    objective = Sum((Classify(), DENOISE))
    net = build(model(MIXERS["mean"]), objective)
    batch = batch_of(UNEQUAL)
    view = objective.model_input(batch, TASK.input, generator(5, "sum"))
    hidden_states = net.hidden_states(view.x, batch.mask, view.masked)
    label = cross_entropy(net.head("label", hidden_states, batch.mask), batch.y.long())
    hidden = DENOISE.loss(net.head(DENOISE.key, hidden_states, batch.mask), batch, view, TASK.input)
    whole = training_loss(net, batch, objective, TASK.input, generator(5, "sum"))
    torch.testing.assert_close(whole.double(), (label + hidden).double(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("objective", [Classify(), Masked(ratio=0.4), Causal()])
def test_evaluation_gives_one_score_a_pair_in_the_splits_order(objective: Trainable) -> None:
    config = dataclasses.replace(model(MIXERS["mean"]), causal=isinstance(objective, Causal))
    net = build(config, objective)
    scores = evaluate(net, SplitOnDevice(UNEQUAL, CPU), objective, TASK.input, batch=2, seed=0)
    assert scores.values.shape == scores.weights.shape == (5,)
    if isinstance(objective, Masked):
        assert scores.weights.sum() > 0 and all(scores.weights <= UNEQUAL.sizes)
        return
    for i in range(5):
        one = batch_of(UNEQUAL.take(np.array([i])))
        alone = validation_scores(net, one, objective, TASK.input, generator(0, "alone"))
        assert scores.values[i] == pytest.approx(float(alone.values[0]))
    steps = [1] * 5 if isinstance(objective, Classify) else (UNEQUAL.sizes - 2).tolist()
    assert scores.weights.tolist() == steps


WIDE = dataclasses.replace(MODEL, pair="interaction", mixers=(RunningMean(dropout=0.1),))
SPT = Run(TASK, WIDE, protocols.spt_masked(recipe(12), recipe(18), 0.3), 0)
BUCKETED = Run(TASK, WIDE, protocols.scratch(dataclasses.replace(recipe(20), bucketed=True)), 1)
FILES = ("weights.safetensors", "rows.jsonl", "log.jsonl")


class Stop(Exception):
    pass


@pytest.mark.parametrize("run", [SPT, BUCKETED], ids=["spt", "bucketed"])
def test_stopped_and_resumed_runs_end_with_the_same_bytes(run: Run, tmp_path: Path) -> None:
    ends = []
    for name, stops in (("whole", ()), ("stopped", (3, 9, 5))):
        where = store.directory(tmp_path / name, run)
        for after in stops:
            stop_after(run, where, tmp_path / "data", after)
        execute(run, where, tmp_path / "data", "cpu")
        ends.append([(where / file).read_bytes() for file in FILES])
    assert ends[0] == ends[1]


def stop_after(run: Run, where: Path, root: Path, saves: int) -> None:
    """Raises out of the loop after so many checkpoints, of which there is one a step."""
    left = saves

    def save(own: journal.Journal, state: Any, now: float) -> None:
        nonlocal left
        checkpoint.write(own.progress.where, own.number, state, {"wall_s": 1.0, "costs": own.costs})
        left -= 1
        if not left:
            raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "SAVE_EVERY_S", 0.0)
        patch.setattr(journal.Journal, "_save", save)
        with pytest.raises(Stop):
            execute(run, where, root, "cpu")
    assert not store.complete(where)


def test_the_ledger_counts_both_documents(tmp_path: Path) -> None:
    where = store.directory(tmp_path, BUCKETED)
    execute(BUCKETED, where, tmp_path / "data", "cpu")
    ledger = read_json(where / "ledger.json")
    split = SplitOnDevice(prepared.load(TASK, tmp_path / "data")["train"], CPU)
    buckets = Buckets(derive_seed(1, "phase", 0), split.examples, BUCKETED.protocol.phases[0].recipe.batch)
    batches = [split.gather(buckets.order(step)) for step in range(20)]
    assert ledger["examples"] == sum(len(b.y) for b in batches)
    assert ledger["tokens"] == sum(int(b.lengths.sum()) for b in batches)
    rows = [r for r in read_rows(where / "rows.jsonl") if r.get("split") == "test"]
    assert {r["n"] for r in rows} == {TASK.held_out}, "pairs, not documents"


@each_pair
def test_flops_of_a_pair_are_twice_those_of_a_document(pair: Pair) -> None:
    """Of equal lengths; the interaction's head costs what 2 * width more inputs cost, forward and backward."""
    config = model(MIXERS["attention"], pair)
    two = flops(config, TASK)
    one = flops(model(MIXERS["attention"]), FirstSymbol(classes=2))
    extra = 0 if pair == "concat" else 3 * 2 * (2 * config.width) * 2
    assert two == pytest.approx(2 * one + extra, rel=1e-3)  # gates between the documents are counted too


def flops(config: Model, task: Task) -> float:
    """Of an example of ten steps a document."""
    net = Network(config, task.input, heads(Classify(), task), mask_flag=False, seed=0)
    return task.documents * cost(net, 10, Classify(), task).each


def test_interaction_can_compare_and_a_linear_head_over_both_cannot(tmp_path: Path) -> None:
    """Whether two symbols are equal is no sum of something of each; their product tells."""
    found = {}
    for pair in PAIRS:
        config = dataclasses.replace(MODEL, pair=pair)
        run = Run(TASK, config, protocols.scratch(recipe(120, batch=32)), 0)
        execute(run, store.directory(tmp_path, run), tmp_path / "data", "cpu")
        net = load_net(run, store.directory(tmp_path, run))
        found[pair] = label_scores(net, TASK, prepared.load(TASK, tmp_path / "data")["test"]).mean
    assert found["interaction"] > 0.95 and found["concat"] < 0.8


def test_a_pair_is_refused_where_there_is_none(tmp_path: Path) -> None:
    run = Run(FirstSymbol(), dataclasses.replace(MODEL, pair="interaction"), protocols.scratch(recipe()), 0)
    with pytest.raises(UserError, match="first_symbol has no pairs of documents"):
        execute(run, tmp_path / "run", tmp_path / "data", "cpu")


@pytest.mark.parametrize(
    "probe", [Slices(), EffectiveContext(), Locality(), Extrapolation((1, 2), examples=8)], ids=lambda p: p.name
)
def test_every_probe_takes_pairs(probe: Probe, tmp_path: Path) -> None:
    config = model(MIXERS["conv"], "interaction")
    run = Run(TASK, config, protocols.scratch(recipe()), 0)
    net = Network(config, TASK.input, heads(Classify(), TASK), mask_flag=False, seed=0).eval()
    rows = list(probe.measure(net, run, lambda task: prepared.load(task, tmp_path)))
    assert rows and all(np.isfinite(row.get("value", 0.0)) for row in rows)
    if probe.name == "slices":
        symbols = prepared.load(TASK, tmp_path)["test"].slices["symbol"].tolist()
        counts = {row.get("at", ""): row.get("n") for row in rows}
        assert all(counts[f"symbol={v}"] == symbols.count(v) for v in range(4))
