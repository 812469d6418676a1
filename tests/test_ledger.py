"""The ledger against counts done by hand."""

from __future__ import annotations

import dataclasses
import re
import sys
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from tiny import MODEL, FirstSymbol
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from levelfield import ledger
from levelfield.batches import Loaded
from levelfield.ledger import flops_per_example, match_width, parameters, state_size
from levelfield.mixers import MIXERS
from levelfield.mixers.attention import Attention
from levelfield.mixers.s4 import S4
from levelfield.model import Net
from levelfield.objectives import Classify, heads
from levelfield.ops.attend import attend_blocks
from levelfield.planning import example
from levelfield.spec import Block, Examples, MixerConfig, Model
from levelfield.tasks.retrieval import Retrieval
from levelfield.usermixer import user_mixer

T, D, B = 32, 16, 3
CONFIGS = [c for mixer in MIXERS for c in getattr(sys.modules[mixer.__module__], "EXAMPLES", (mixer(),))]


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


def flops(kind: str, causal: bool = False, feedforward: int = 0, norm: Literal["layer", "batch"] = "layer") -> float:
    return flops_of(Model((Probe(kind),), 1, D, causal=causal, block=Block(norm, feedforward=feedforward)))


def flops_of(model: Model) -> float:
    task = FirstSymbol()
    net = Net(model, task.input, heads(Classify(), task), flag=False, seed=0)
    examples = Examples.of_equal_length(np.zeros((B, T), np.uint8), np.zeros(B, np.int64))
    batch = Loaded(examples, torch.device("cpu")).gather(torch.arange(B))
    return flops_per_example(net, batch, Classify(), task)


def test_dense_layers():
    # Forward 2 M N K; backward twice that. The label's head is 16 x 4, once per example.
    head = 3 * 2 * D * 4
    assert flops("none") == head
    assert flops("none", feedforward=40) - head == 3 * 2 * 2 * T * D * 40


def test_attention_on_a_cpu_is_counted_and_causal_is_half():
    forward = 2 * 2 * T * T * D
    assert flops("attention") - flops("none") == pytest.approx(3.5 * forward)
    assert flops("attention", causal=True) - flops("none") == pytest.approx(3.5 * forward / 2)


def test_fourier_transforms_are_counted():
    one = 2.5 * 2 * T * np.log2(2 * T) * D
    counted = flops("fft") - flops("none")
    # Two real transforms forward, two back; autograd does one of these as a complex transform of twice the cost.
    assert 4 * one <= counted <= 5 * one + 1


@pytest.mark.parametrize("limit", ["LONG", "LARGE"])
@pytest.mark.parametrize("norm", ["layer", "batch"])
@pytest.mark.parametrize("kind", ["none", "attention", "blocks", "fft"])
def test_long_examples_and_large_networks_are_counted_without_values(
    kind: str, norm: Literal["layer", "batch"], limit: str, monkeypatch: pytest.MonkeyPatch
):
    exact = flops(kind, feedforward=40, norm=norm)
    monkeypatch.setattr(ledger, limit, T // 2)
    monkeypatch.setattr(ledger, "_fit", None)
    monkeypatch.setattr(ledger, "_count", None)
    assert flops(kind, feedforward=40, norm=norm) == exact


class Operators(TorchDispatchMode):
    """Which operators run."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.add(func._overloadpacket)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_no_product_goes_uncounted(config: MixerConfig) -> None:
    """Whatever multiplies matrices, solves, convolves or transforms has a rule, in whichever variant it is called."""
    causal = "causal" in config.directions
    layer = config.build(D, causal=causal, layer=0, generator=Generator().manual_seed(0))
    x = torch.randn(2, min(40, config.max_length or 40), D, requires_grad=True)
    counter = FlopCounterMode(display=False, custom_mapping=ledger._RULES)
    with Operators() as ran, counter, ledger._without_onednn():
        layer(x, None).square().sum().backward()
    assert counter.get_total_flops() > 0
    products = {op for op in ran.seen if re.search(r"mm_?$|mv_?$|dot|conv|fft|solve|taps|low_rank", str(op))}
    assert not products - set(flop_registry) - set(ledger._RULES)


def test_products_in_place_solves_and_vectors_are_counted():
    a, b, triangle = torch.ones(7, 3, 4), torch.ones(7, 4, 5), torch.eye(6)
    cases = {
        7 * 2 * 3 * 4 * 5: lambda: torch.zeros(7, 3, 5).baddbmm_(a, b),
        2 * 3 * 4 * 5: lambda: torch.zeros(3, 5).addmm_(a[0], b[0]),
        6 * 6 * 2: lambda: torch.linalg.solve_triangular(triangle, torch.ones(6, 2), upper=False),
        2 * 3 * 4: lambda: torch.mv(a[0], torch.ones(4)),
    }
    for flops, work in cases.items():
        with FlopCounterMode(display=False, custom_mapping=ledger._RULES) as counter:
            work()
        assert counter.get_total_flops() == flops


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_layers_are_counted_without_values_each_kind_once(
    norm: Literal["layer", "batch"], monkeypatch: pytest.MonkeyPatch
):
    mixers = Attention(2), S4(state=4, form="diagonal")
    model = Model(mixers, 5, D, block=Block(norm, feedforward=40), head_hidden=7)
    exact = flops_of(model)
    monkeypatch.setattr(ledger, "LARGE", 0)
    monkeypatch.setattr(ledger, "_count", None)
    assert flops_of(model) == exact


def test_pairs_of_documents_are_counted_without_values(monkeypatch: pytest.MonkeyPatch):
    task = Retrieval(length=T)
    model = Model((Attention(2),), 1, D, block=Block(feedforward=40), pair="interaction")
    net = Net(model, task.input, heads(Classify(), task), flag=False, seed=0)
    one = Loaded(example(task), torch.device("cpu")).gather(torch.tensor([0]))
    exact = flops_per_example(net, one, Classify(), task)
    monkeypatch.setattr(ledger, "LARGE", 0)
    monkeypatch.setattr(ledger, "_count", None)
    assert flops_per_example(net, one, Classify(), task) == exact


def test_blocks_of_attention_are_counted_as_far_as_they_see():
    """Of eight blocks, six see three and the two at the ends see two."""
    assert flops("blocks") - flops("none") == pytest.approx(3.5 * 4 * (T // 8) ** 2 * D * (6 * 3 + 2 * 2))


@pytest.mark.parametrize("kind", ["none", "attention"])
def test_opaque_layers_are_counted_from_shorter_examples(kind: str, monkeypatch: pytest.MonkeyPatch):
    exact = flops(kind, feedforward=40)
    monkeypatch.setattr(ledger, "LONG", T // 2)
    monkeypatch.setattr(Probe, "opaque", True)
    # The head's work per sequence does not grow with it; the fit makes it grow.
    assert flops(kind, feedforward=40) == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("rotary", ["per_head", "across_heads"])
def test_counting_leaves_no_table_without_values(rotary: Literal["per_head", "across_heads"]):
    """The first to ask for a length's angles is the count; training then needs their values."""
    task, length = FirstSymbol(), ledger.LONG + 1
    model = Model((Attention(heads=2, rotary=rotary),), 1, D, positions="sinusoidal")
    net = Net(model, task.input, heads(Classify(), task), flag=False, seed=0)
    examples = Examples.of_equal_length(np.zeros((1, length), np.uint8), np.zeros(1, np.int64))
    batch = Loaded(examples, torch.device("cpu")).gather(torch.arange(1))
    assert flops_per_example(net, batch, Classify(), task) > 3.5 * 4 * length**2 * D
    features = net.features(torch.zeros(1, length, dtype=torch.int64), None)
    features.sum().backward()
    assert torch.isfinite(features).all()


class Recurrent(nn.Module):
    def __init__(self, width: int, gates: int) -> None:
        super().__init__()
        self.rnn = {4: nn.LSTM, 3: nn.GRU}[gates](width, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0]


@pytest.mark.parametrize("gates", [4, 3])
def test_recurrent_layers_are_their_matrix_products(gates: int):
    """On a CPU an LSTM is one opaque operator, which the plain counter takes for nothing."""
    task = FirstSymbol()
    model = Model((user_mixer(Recurrent, {"gates": gates}),), 1, D)
    net = Net(model, task.input, heads(Classify(), task), flag=False, seed=0)
    examples = Examples.of_equal_length(np.zeros((1, T), np.uint8), np.zeros(1, np.int64))
    batch = Loaded(examples, torch.device("cpu")).gather(torch.arange(1))
    forward = 2 * T * 2 * D * gates * D  # input and state, each to every gate
    counted = flops_per_example(net, batch, Classify(), task) - flops("none")
    assert counted == pytest.approx(3 * forward, rel=0.05)


def test_counting_leaves_the_network_as_it_was():
    task = FirstSymbol()
    model = Model((Probe("none"),), 1, D, block=Block(norm="batch"))
    net = Net(model, task.input, heads(Classify(), task), flag=False, seed=0)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    batch = Loaded(Examples.of_equal_length(np.zeros((1, 1), np.uint8), np.zeros(1, np.int64)), torch.device("cpu"))
    flops_per_example(net, batch.gather(torch.arange(1)), Classify(), task)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())


def test_parameters_are_split_into_trunk_and_heads():
    task = FirstSymbol(continuous=True)
    net = Net(MODEL, task.input, heads(Classify(), task), flag=True, seed=0)
    counts = parameters(net)
    assert counts["parameters"] == sum(p.numel() for p in net.parameters())
    assert counts["parameters_heads"] == 16 * 4 + 4
    assert counts["parameters"] == counts["parameters_trunk"] + counts["parameters_heads"] + 16


def test_state_is_that_of_all_layers_or_absent():
    assert state_size(dataclasses.replace(MODEL, depth=5), 100) == 5 * 17
    assert state_size(Model((Probe("fft"), Probe("none")), 2, D), 10) is None
    assert state_size(Model((Probe("fft"),), 3, D), 10) == 3 * D * 10


def test_width_is_matched_to_a_parameter_count():
    task = FirstSymbol()

    def count(model: Model) -> int:
        return parameters(Net(model, task.input, heads(Classify(), task), flag=False, seed=0))["parameters"]

    target = count(dataclasses.replace(MODEL, width=88))
    assert match_width(MODEL, count, target).width == 88
    near = match_width(dataclasses.replace(MODEL, depth=7), count, target)
    assert all(
        abs(count(near) - target) <= abs(count(dataclasses.replace(near, width=near.width + d)) - target)
        for d in (-8, 8)
    )
