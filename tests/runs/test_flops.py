"""FLOPs against counts done by hand, and against a counter that knows none of the rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from counted import Referee, in_python_by
from examples import EXAMPLES
from tiny import FirstSymbol, training_loss
from tiny import recipe as tiny_recipe
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.data.batches import Buckets, SplitOnDevice, order
from levelfield.mixers.attention import Attention
from levelfield.mixers.gla import GLA
from levelfield.mixers.mamba import Mamba
from levelfield.mixers.s4 import S4
from levelfield.model import Network
from levelfield.objectives import Classify, heads
from levelfield.ops.arithmetic import Operations
from levelfield.ops.attention import rotary
from levelfield.ops.attention.softmax import attend_blocks
from levelfield.ops.ssm.scan import naive_scan, scan
from levelfield.ops.ssm.selective import naive_selective_scan, selective_scan
from levelfield.runs import flops
from levelfield.runs.flops import Cost, Costs, Meter, cost
from levelfield.runs.phases import in_steps
from levelfield.spec import Block, Duration, Examples, MixerConfig, Model, Numerics
from levelfield.train import Plan, Rank, part_losses, parts_of
from levelfield.user.mixer import user_mixer

B, T, D = 5, 24, 16
RECIPE = tiny_recipe(4)


def network(config: MixerConfig, block: Block | None = None, numerics: Numerics | None = None) -> Network:
    model = Model((config,), 1, D, causal="causal" in config.directions, block=block or Block())
    task = FirstSymbol()
    given = heads(Classify(), task)
    return Network(model, task.input, given, mask_flag=False, seed=0, numerics=numerics or Numerics())


def batch_of(lengths: list[int]) -> Any:
    draws = np.random.default_rng(0)
    sequences = [draws.integers(0, 4, n).astype(np.uint8) for n in lengths]
    examples = Examples.of_sequences(sequences, np.zeros(len(lengths), np.int64))
    return SplitOnDevice(examples, torch.device("cpu")).gather(torch.arange(len(lengths)))


def dispatched(net: Network, batch: Any) -> int:
    """Of a real step, by the referee."""
    with Referee() as referee:
        training_loss(net.train(), batch, Classify(), FirstSymbol().input, Generator()).backward()
    return referee.total


@dataclass(frozen=True)
class Probe(MixerConfig):
    """A mixer that is one known operation."""

    label: ClassVar[str] = "probe"
    paper: ClassVar[str] = ""
    kind: str = "none"

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        return _Operation(self.kind, causal)

    def state_size(self, width: int, length: int) -> int | None:
        return None if self.kind == "none" else width * length


class _Operation(nn.Module):
    def __init__(self, kind: str, causal: bool) -> None:
        super().__init__()
        self.kind, self.causal = kind, causal

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        if self.kind == "attention":
            q = x.unflatten(-1, (2, D // 2)).transpose(1, 2)
            return F.scaled_dot_product_attention(q, q, q, is_causal=self.causal).transpose(1, 2).flatten(2)
        if self.kind == "blocks":
            q = x.unflatten(-1, (2, D // 2)).transpose(1, 2)
            return attend_blocks(q, q, q, None, self.causal, T // 8).transpose(1, 2).flatten(2)
        if self.kind == "fft":
            return torch.fft.irfft(torch.fft.rfft(x, n=2 * T, dim=1), n=2 * T, dim=1)[:, :T]
        return x


class Recurrent(nn.Module):
    def __init__(self, width: int, gates: int) -> None:
        super().__init__()
        self.rnn = {4: nn.LSTM, 3: nn.GRU}[gates](width, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known from another test."""
    monkeypatch.setattr(flops, "_KNOWN", {})


def step(config: MixerConfig, length: int = T, block: Block | None = None) -> Cost:
    return cost(network(config, block), length, Classify(), FirstSymbol())


def of_layer(kind: str, causal: bool = False, feedforward: int = 0) -> float:
    """What a layer with one operation costs a sequence beyond one that does nothing."""

    def each(kind: str, feedforward: int) -> float:
        model = Model((Probe(kind),), 1, D, causal=causal, block=Block(feedforward=feedforward))
        net = Network(model, FirstSymbol().input, heads(Classify(), FirstSymbol()), mask_flag=False, seed=0)
        return cost(net, T, Classify(), FirstSymbol()).each

    return each(kind, feedforward) - each("none", 0)


@pytest.mark.parametrize("config", EXAMPLES, ids=str)
def test_a_real_batch_costs_what_the_ledger_says(config: MixerConfig) -> None:
    """Of another size than those counted, without padding and with it.

    Tables of positions are made once a process, here before anything is counted."""
    net = network(config)
    training_loss(net.train(), batch_of([T] * B), Classify(), FirstSymbol().input, Generator()).backward()
    net.zero_grad(set_to_none=True)
    for lengths in ([T] * B, [T, 3, T - 1, 17, 1]):
        batch = batch_of(lengths)
        expected = dispatched(net, batch)
        net.zero_grad(set_to_none=True)
        said = cost(net, T, Classify(), FirstSymbol(), masked=batch.mask is not None).of(B)
        assert said == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("values", [True, False])
@pytest.mark.parametrize("config", [Attention(2), S4(state=4), Mamba(state=2), GLA(2)], ids=lambda c: c.label)
def test_blocks_that_are_computed_again_are_counted_again(
    config: MixerConfig, values: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as the backward pass needs them: the last sums and products are not repeated."""
    monkeypatch.setattr(flops, "LARGE", flops.LARGE if values else 0)
    plain, again = (network(config, Block(feedforward=40), Numerics(recompute=each)) for each in (False, True))
    batch, lengths = batch_of([T] * B), np.array([T] * B)
    once, twice = (Costs.of(net, lengths, Classify(), FirstSymbol()) for net in (plain, again))
    assert twice.costs == once.costs and not once.again
    dispatched(again, batch)
    again.zero_grad(set_to_none=True)
    assert twice.whole.costs[0].of(B) == pytest.approx(dispatched(again, batch), rel=0.02)
    assert 1.1 < twice.whole.costs[0].of(B) / once.costs[0].of(B) < 4 / 3


@pytest.mark.parametrize(
    ("name", "shapes"),
    {
        "depthwise_conv": ((2, 9, 3), (2, 3, 3), (4, 3), (3,)),
        "depthwise_conv_backward": ((2, 9, 3), (2, 3, 3), (4, 3), (2, 9, 3)),
        "diagonal": ((2, 5, 2, 16), (2, 5, 2, 16), (2, 2, 5, 2, 16), 70),
        "moments": ((2, 5, 2, 16), (2, 5, 2, 16), (2, 2, 5, 2, 16), (2, 128, 32)),
        "low_rank": (*[(2, 5, 2, 16)] * 4, (2, 2, 5, 2, 16), 70),
        "low_rank_backward": (*[(2, 5, 2, 16)] * 4, (2, 2, 5, 2, 16), (2, 128, 32)),
        "decay_per_key": (*[(2, 70, 3, 16)] * 3, (3, 16), (2, 70, 3, 5), (2, 3, 5, 16), True),
        "decay_per_key_backward": (
            *[(2, 70, 3, 16)] * 3, (3, 16), (2, 70, 3, 5), (2, 3, 5, 16), False, (2, 70, 3, 5), (2, 3, 5, 16),
        ),
        "states": ((6,), (2, 9, 6), (2, 6), False),
        "states_backward": ((2, 9, 6), (2, 9, 6), (2, 6), (2, 9, 6), True),
    }.items(),
)  # fmt: skip
def test_compiled_loops_cost_what_they_add_and_multiply(name: str, shapes: tuple[Any, ...]) -> None:
    """The loops themselves, run in Python on numbers that count."""
    values = [torch.rand(x) / 8 if isinstance(x, tuple) else x for x in shapes]
    operator = getattr(torch.ops.levelfield, name)
    with Operations() as counted:
        operator(*values)
    assert counted.total == pytest.approx(in_python_by(operator, values), rel=0.01)


@pytest.mark.parametrize("work", [scan, naive_scan])
def test_a_scan_of_complex_numbers_is_its_products_and_sums(work: Any) -> None:
    a, b = torch.rand(2, 9, 6, dtype=torch.complex64), torch.rand(2, 9, 6, dtype=torch.complex64)
    with Operations() as counted:
        work(a, b)
    assert counted.total == 2 * 9 * 6 * (6 + 2)


def test_the_selective_scan_costs_what_its_naive_form_does() -> None:
    x, dt, b, c = torch.rand(2, 9, 32), torch.rand(2, 9, 32), torch.rand(2, 9, 8), torch.rand(2, 9, 8)
    counts = []
    for work in (selective_scan, naive_selective_scan):
        with Operations() as counted:
            work(x.requires_grad_(), dt, -torch.rand(32, 8), b, c)
        counts.append(counted.total)
    assert counts[0] == pytest.approx(counts[1], rel=0.01)


def test_products_of_all_kinds_are_counted() -> None:
    a, b, triangle = torch.ones(7, 3, 4), torch.ones(7, 4, 5), torch.eye(6)
    grouped, x = torch.nn.Conv1d(8, 12, 3, padding=1, groups=4, bias=False), torch.ones(2, 8, 9, requires_grad=True)
    once = 2 * (2 * 12 * 9) * 2 * 3
    cases = {
        7 * 2 * 3 * 4 * 5: lambda: torch.zeros(7, 3, 5).baddbmm_(a, b),
        2 * 3 * 4 * 5: lambda: torch.zeros(3, 5).addmm_(a[0], b[0]),
        8 * 3 * 4 * 5: lambda: a[0].to(torch.cfloat) @ b[0].to(torch.cfloat),  # complex: four products and four sums
        6 * 6 * 2: lambda: torch.linalg.solve_triangular(triangle, torch.ones(6, 2), upper=False),
        2 * 3 * 4: lambda: torch.mv(a[0], torch.ones(4)),
        3 * once: lambda: torch.autograd.backward(y := grouped(x), torch.ones_like(y)),
    }
    for expected, work in cases.items():
        with Operations() as counted:
            work()
        assert counted.total == expected


def test_a_layer_of_products_is_counted_by_hand() -> None:
    """Forward 2 M N K and backward twice that; a bias is one sum back, a residual one forward and one back."""
    hidden, added = 40, of_layer("none", feedforward=40)
    products = 3 * 2 * 2 * T * D * hidden
    assert products < added < 1.1 * products


def test_attention_on_a_cpu_is_two_products_and_causal_is_half() -> None:
    forward = 2 * 2 * T * T * D
    assert of_layer("attention") == pytest.approx(3.5 * forward, rel=0.05)
    assert of_layer("attention", causal=True) == pytest.approx(3.5 * forward / 2, rel=0.1)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("norm", ["layer", "batch"])
@pytest.mark.parametrize(
    "config", [Attention(2), S4(state=4), S4(state=4, form="diagonal"), Mamba(state=2), GLA(2)], ids=lambda c: c.label
)
def test_values_make_no_difference(
    config: MixerConfig, norm: Any, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = network(config, Block(norm=norm, feedforward=40))
    exact = cost(net, T, Classify(), FirstSymbol(), masked)
    monkeypatch.setattr(flops, "_KNOWN", {})
    monkeypatch.setattr(flops, "LARGE", 0)
    assert cost(net, T, Classify(), FirstSymbol(), masked) == exact


def test_kernels_are_made_once_for_a_batch() -> None:
    """And a layer without one does nothing but what is done for each sequence."""
    assert step(Attention(2)).fixed == pytest.approx(0, abs=1e-3 * step(Attention(2)).each)
    kernels = [step(S4(state=states, form="diagonal")) for states in (8, 64)]
    assert kernels[1].fixed > 4 * kernels[0].fixed > 0
    assert kernels[0].each == kernels[1].each


@pytest.mark.parametrize("bucketed", [False, True])
@pytest.mark.parametrize(
    "how", [Numerics(), Numerics(by_length=True), Numerics(accumulate=8), Numerics(nproc=4, accumulate=2)], ids=str
)
@pytest.mark.parametrize("config", [Attention(2), S4(state=4, form="diagonal")], ids=lambda c: c.label)
def test_the_batches_of_training_are_counted(config: MixerConfig, bucketed: bool, how: Numerics) -> None:
    """Ragged examples, in the batches that training forms, one by one; useful is each sequence at its own length.

    A batch of few long sequences has fewer examples than parts; a process without any computes one for nothing.
    """
    lengths = (np.random.default_rng(1).lognormal(3.5, 0.8, 90).astype(int) + 1).clip(max=300)
    examples = Examples.of_sequences([np.zeros(n, np.uint8) for n in lengths], np.zeros(len(lengths), np.int64))
    given, net, seed = replace(RECIPE, batch=8, bucketed=bucketed), network(config), 5
    split, buckets = SplitOnDevice(examples, torch.device("cpu")), Buckets(seed, examples, 8)
    dispatched, useful, seen = 0.0, 0.0, 0
    for at in range(6):
        batch = split.gather(buckets.order(at) if bucketed else order(seed, at, batch=8, count=len(lengths)))
        plan = Plan(Classify(), given, FirstSymbol().input, 6, warmup=0, validate_every=6, by_length=how.by_length)
        plans = [replace(plan, accumulate=how.accumulate, rank=Rank(number, how.nproc)) for number in range(how.nproc)]
        parts = [part for each in plans for part in parts_of(batch, each, Generator(), [1.0])]
        with Operations() as counted:
            for part in parts:
                part_losses(net.train(), part, Classify(), FirstSymbol().input).sum().backward()
        net.zero_grad(set_to_none=True)
        dispatched, seen = dispatched + counted.total, seen + len(batch.y)
        own = [cost(net, int(n), Classify(), FirstSymbol(), True) for n in batch.lengths]
        asked = [part for part in parts if part.counts != [0.0]]
        longest = [cost(net, part.batch.raw.shape[1], Classify(), FirstSymbol(), True) for part in asked]
        useful += sum(one.fixed for one in longest) + sum(one.each for one in own)
    counted = Costs.of(net, examples.lengths, Classify(), FirstSymbol())
    work = Meter(counted, examples, given, seed, how).work(6)
    near = 0.02 if how == Numerics() else 0.05  # what is done once for each part is interpolated, and counts for more
    assert work.dispatched == pytest.approx(dispatched, rel=near)
    assert work.useful == pytest.approx(useful, rel=near)
    assert work.examples == seen and (work.useful == pytest.approx(work.dispatched)) == how.by_length


def test_layers_of_one_kind_are_counted_once() -> None:
    deep = replace(network(S4(state=4)).model, depth=5)
    net = Network(deep, FirstSymbol().input, heads(Classify(), FirstSymbol()), mask_flag=False, seed=0)
    cost(net, T, Classify(), FirstSymbol())
    assert len(flops._KNOWN) == 1
    assert cost(net, T, Classify(), FirstSymbol()).fixed == pytest.approx(5 * step(S4(state=4)).fixed, rel=0.01)


@dataclass(frozen=True)
class Alternating(Probe):
    """A mixer whose odd layers look at all steps and whose even ones do nothing, without a parameter that tells."""

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        return _Operation("attention" if layer % 2 else "none", causal)


def test_layers_of_which_other_code_makes_different_ones_are_counted_apart() -> None:
    costs = []
    for depth in (1, 2, 4):
        model = Model((Alternating(),), depth, D)
        net = Network(model, FirstSymbol().input, heads(Classify(), FirstSymbol()), mask_flag=False, seed=0)
        costs.append(cost(net, T, Classify(), FirstSymbol()).each)
    one, two, four = costs
    assert two - one > 3 * 2 * 2 * T * T * D
    assert 1 < (four - two) / (two - one) < 1.1


@pytest.mark.parametrize("config", [Attention(2), Attention(2, window=9), S4(state=4)], ids=str)
def test_an_estimate_from_shorter_sequences_is_near_the_count(config: MixerConfig) -> None:
    net, task = network(config), FirstSymbol()
    counted, near = (cost(net, 1_000, Classify(), task, most=most) for most in (None, 128))
    assert near.each == pytest.approx(counted.each, rel=0.03)
    assert near.of(32) == pytest.approx(counted.of(32), rel=0.03)
    assert cost(net, 128, Classify(), task, most=128) == cost(net, 128, Classify(), task)


def test_opaque_layers_are_counted_from_shorter_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = step(Probe("attention"))
    monkeypatch.setattr(flops, "_KNOWN", {})
    monkeypatch.setattr(flops, "LONG", T // 2)
    monkeypatch.setattr(Probe, "opaque", True)
    assert step(Probe("attention")).each == pytest.approx(exact.each, rel=1e-6)


@pytest.mark.parametrize("length", [T, flops.LONG + 1])
def test_a_count_does_not_depend_on_which_tables_there_were_before(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables of positions are kept for all models, so the first one that is counted would pay for the others."""
    net = network(Attention(heads=2, rotary="per_head"))
    rotary._table.cache_clear()
    costs = []
    for _ in range(2):
        monkeypatch.setattr(flops, "_KNOWN", {})
        costs.append(cost(net, length, Classify(), FirstSymbol()))
        assert rotary._table.cache_info().currsize > 0
    assert costs[0] == costs[1]


@pytest.mark.parametrize("rotary", ["per_head", "across_heads"])
def test_counting_leaves_no_table_without_values(rotary: Any) -> None:
    """The first to ask for a length's angles is the count; training then needs their values."""
    length = flops.LONG + 1
    model = Model((Attention(heads=2, rotary=rotary),), 1, D, positions="sinusoidal")
    net = Network(model, FirstSymbol().input, heads(Classify(), FirstSymbol()), mask_flag=False, seed=0)
    assert cost(net, length, Classify(), FirstSymbol()).each > 3.5 * 4 * length**2 * D
    hidden_states = net.hidden_states(torch.zeros(1, length, dtype=torch.int64), None)
    hidden_states.sum().backward()
    assert torch.isfinite(hidden_states).all()


@pytest.mark.parametrize("gates", [4, 3])
def test_recurrent_layers_are_their_matrix_products(gates: int) -> None:
    """On a CPU an LSTM is one opaque operator, which the plain counter takes for nothing."""
    counted = step(user_mixer(Recurrent, {"gates": gates})).each - step(Probe("none")).each
    forward = 2 * T * 2 * D * gates * D  # input and state, each to every gate
    assert counted == pytest.approx(3 * forward, rel=0.15)


def test_counting_leaves_the_network_as_it_was() -> None:
    net = network(Probe("none"), Block(norm="batch"))
    before = {k: v.clone() for k, v in net.state_dict().items()}
    cost(net, 1, Classify(), FirstSymbol())
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters()) and len(net.blocks) == 1


@pytest.mark.parametrize("config", [Attention(2), S4(state=16), Mamba(state=4)], ids=lambda c: c.label)
def test_a_budget_of_flops_is_that_for_every_arm(config: MixerConfig) -> None:
    examples = Examples.of_equal_length(np.zeros((40, T), np.uint8), np.zeros(40, np.int64))
    given = replace(RECIPE, batch=8, budget=Duration(1e9, "flops"))
    meter = Meter(Costs.of(network(config), examples.lengths, Classify(), FirstSymbol()), examples, given, 0)
    steps = in_steps(given.budget, given, meter.batches, T, meter.per_step.dispatched)
    assert meter.work(steps).dispatched == pytest.approx(1e9, abs=meter.per_step.dispatched)
    net = network(config)
    assert steps * dispatched(net, batch_of([T] * 8)) == pytest.approx(1e9, rel=0.03)
