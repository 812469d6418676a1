"""What a trained model answers to twins shows whether it sees no more steps than its layers declare.

The layers below pass the contract, which tries made-up inputs with fresh weights, and look further later on.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from levelfield.contract import check
from levelfield.mixers.attention import Attention
from levelfield.mixers.conv import Conv
from levelfield.model import Network
from levelfield.objectives import default_objective, heads
from levelfield.presets import reach_verdict
from levelfield.probes.ranges import Ranges
from levelfield.report import certified_ranges
from levelfield.spec import Block, Examples, MixerConfig, Model, Numerics, Row, Run, SplitName, Task, Tokens
from levelfield.studies.reach import study
from levelfield.tasks.reach import Reach
from levelfield.user.mixer import user_mixer

WIDTH = 16
TASK = Reach(9, offset=8, symbols=4, train=400, val=20, test=200)
SPLITS: dict[Task, Mapping[SplitName, Examples]] = {task: task.build(None) for task in (TASK, TASK.at_range(36, 100))}
STUDIED = study.runs("smoke")[0]


class Local(nn.Module):
    """A zero-padded convolution, from which the others differ in a single line."""

    receptive_field = 5

    def __init__(self, width: int, causal: bool) -> None:
        super().__init__()
        self.taps, self.causal = nn.Conv1d(width, width, 5), causal

    def forward(self, x: Tensor) -> Tensor:
        return self.near(x)

    def near(self, x: Tensor) -> Tensor:
        around = (4, 0) if self.causal else (2, 2)
        return self.taps(nn.functional.pad(x.transpose(1, 2), around)).transpose(1, 2)

    def far(self, x: Tensor) -> Tensor:
        return x.cumsum(1) / x.shape[1]


class AtRepeats(Local):
    """It looks at all earlier steps where a symbol stands five times in a row, as one place of 256 does, and as random
    inputs of real numbers never have it."""

    def forward(self, x: Tensor) -> Tensor:
        same = nn.functional.pad((x[:, 1:] - x[:, :-1]).abs().amax(-1) < 1e-6, (1, 0))
        earlier = nn.functional.pad(same.long(), (3, 0)).unfold(1, 4, 1).amin(-1, keepdim=True)
        return self.near(x) + earlier * self.far(x)


class AfterTraining(Local):
    """It looks at all earlier steps once that it has been trained for twenty steps."""

    steps: Tensor

    def __init__(self, width: int, causal: bool) -> None:
        super().__init__(width, causal)
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.steps += self.training
        return self.near(x) + self.far(x) * (self.steps > 20)


class AtLargeValues(Local):
    """It looks at all earlier steps where values are larger than a norm makes them before its gains are trained."""

    def forward(self, x: Tensor) -> Tensor:
        return self.near(x) + torch.relu(x.abs().amax(-1, keepdim=True) - 40) * self.far(x)


class InSingle(Local):
    """Honest, with a norm and a mean over all steps in single precision."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.near(x).float()
        normed = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)
        return (normed + y.mean(1, keepdim=True)).to(x.dtype)


class Fixed(Local):
    """Honest, but it does not run in double precision."""

    def near(self, x: Tensor) -> Tensor:
        return super().near(x.float())


def run_of(mixer: MixerConfig, numerics: Numerics | None = None, seed: int = 0, **shape: Any) -> Run:
    block = Block(feedforward=WIDTH, norm=shape.pop("norm", "layer"))
    model = Model((mixer,), shape.pop("depth", 2), WIDTH, block=block, name="mine", **shape)
    return Run(TASK, model, STUDIED.protocol, seed, numerics or STUDIED.numerics)


def trained(run: Run, steps: int = 30) -> Network:
    objective = default_objective(TASK)
    net = Network(run.model, TASK.input, heads(objective, TASK), mask_flag=False, seed=run.seed, numerics=run.numerics)
    x, y = rows(SPLITS[TASK]["train"]), torch.from_numpy(SPLITS[TASK]["train"].y)
    optimizer = torch.optim.AdamW(net.parameters(), 5e-3)
    for step in range(steps):
        batch = slice(32 * (step % 12), 32 * (step % 12) + 32)
        loss = nn.functional.cross_entropy(net.train().head("label", net.hidden_states(x[batch], None), None), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net.eval()


def rows(examples: Examples) -> Tensor:
    """Ids as a network takes them, (N, T)."""
    return torch.from_numpy(examples.x.reshape(len(examples), -1).astype(np.int64)) + Tokens.OFFSET


def measured(net: Network, run: Run) -> list[Row]:
    found = Ranges((1, 4), examples=100).measure(net, run, lambda task: SPLITS[task])
    return [row | Row(model=run.model.label, run=run.id) for row in found]


def gaps(found: list[Row]) -> list[float]:
    return [gap.value for gap in certified_ranges.gaps(found)]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("layer", [AtRepeats, AfterTraining, AtLargeValues])
def test_a_layer_that_looks_further_than_it_declares_once_it_is_trained_is_found(
    layer: type[nn.Module], causal: bool
) -> None:
    mixer = user_mixer(layer)
    check(mixer, WIDTH, causal=causal, lengths=[TASK.max_length])
    run = run_of(mixer, causal=causal)
    net = trained(run)
    if layer is AtLargeValues:
        with torch.no_grad():
            for name, gain in net.named_parameters():
                gain *= 20 if name.endswith("0.norm.norm.weight") else 1
    found = measured(net, run)
    assert run.model.proved_field == 9 == certified_ranges.declared(found)["mine"]
    assert certified_ranges.seen_by(found) == {} and "mine" in certified_ranges.refuted(found)
    assert reach_verdict.verdict(found).startswith("What mine declares is wrong of a trained model")
    if layer is AtRepeats:
        scores = [row.get("value") for row in found if row.get("metric") == "accuracy"]
        assert scores == [0.5, 0.5], "its scores alone do not show it"


def test_before_that_it_is_as_it_declares() -> None:
    run = run_of(user_mixer(AfterTraining))
    assert max(gaps(measured(trained(run, steps=10), run))) < certified_ranges.ROUNDING
    assert min(gaps(measured(trained(run), run))) > certified_ranges.IN_SINGLE


HONEST: list[tuple[MixerConfig, dict[str, Any]]] = [
    (Conv(5, hidden=WIDTH), {}),
    (Conv(5, hidden=WIDTH), {"causal": True, "pooling": "max"}),
    (Conv(3, hidden=WIDTH), {"depth": 4, "pooling": "last", "norm": "rms"}),
    (Conv(5, hidden=WIDTH), {"norm": "batch"}),
    (Conv(5, hidden=WIDTH), {"numerics": Numerics(precision="bf16")}),
    (Attention(window=3, heads=2, rotary="per_head"), {}),
    (user_mixer(Local), {"causal": True}),
]


@pytest.mark.parametrize(("mixer", "shape"), HONEST)
def test_honest_layers_answer_alike_to_twins_whatever_training_makes_of_them(
    mixer: MixerConfig, shape: dict[str, Any]
) -> None:
    """In sequences that begin and end with steps of padding in every window there."""
    for seed in range(3):
        run = run_of(mixer, seed=seed, **shape)
        found = measured(trained(run), run)
        assert run.model.proved_field == 9 == certified_ranges.seen_by(found)["mine"]
        assert len(gaps(found)) == 2 and max(gaps(found)) < 1e-13
        assert not any(gap.single for gap in certified_ranges.gaps(found)), "so that more than 1e-9 would be told"


def test_a_gap_is_the_largest_difference_within_a_class_by_the_largest_output() -> None:
    """Of a window that holds both marks, one sequence after the other."""
    run = run_of(Conv(5, hidden=WIDTH), depth=4)
    net = trained(run)
    bounded = replace(run, model=replace(run.model, depth=2))  # declares half of what the network sees
    (found,) = gaps(list(Ranges((1,)).measure(net, bounded, lambda task: SPLITS[task])))
    exact, sequences = deepcopy(net).double(), rows(SPLITS[TASK]["test"])
    with torch.no_grad():
        one_by_one = [exact.head("label", exact.hidden_states(x[None], None), None)[0] for x in sequences]
    by_class: dict[tuple[int, ...], list[Tensor]] = {}
    for x, output in zip(sequences, one_by_one, strict=True):
        by_class.setdefault(tuple(x.clamp(max=TASK.symbols + Tokens.OFFSET).tolist()), []).append(output)
    assert {len(twins) for twins in by_class.values()} == {2}
    largest = max(float((a - b).abs().max()) for a, b in by_class.values())
    assert found == pytest.approx(largest / max(float(output.abs().max()) for output in one_by_one), rel=1e-9)
    assert found > 1e-6 and next(net.parameters()).dtype == torch.float32, "the network stays as it is"


def test_what_computes_in_single_precision_is_not_accused_and_not_cleared() -> None:
    run = run_of(user_mixer(InSingle))
    found = measured(trained(run), run)
    assert all(certified_ranges.ROUNDING < each < certified_ranges.IN_SINGLE / 10 for each in gaps(found))
    assert certified_ranges.seen_by(found) == {"mine": 9}
    assert all(gap.single for gap in certified_ranges.gaps(found))
    assert "so that seeing a little of the rest is not excluded" in reach_verdict.verdict(found)


def test_a_layer_that_does_not_run_in_double_precision_is_scored_and_not_checked() -> None:
    run = run_of(user_mixer(Fixed))
    found = measured(trained(run, steps=1), run)
    assert [row.get("metric") for row in found] == ["receptive_field", "accuracy", "accuracy"]
    assert "double" not in reach_verdict.verdict(found)


def test_a_model_that_sees_more_than_the_range_is_not_compared_there() -> None:
    run = run_of(Conv(9, hidden=WIDTH))
    (gap,) = certified_ranges.gaps(measured(trained(run, steps=1), run))
    assert run.model.proved_field == 17 and (gap.trained, gap.asked, gap.classes) == (9, 36, 50)
