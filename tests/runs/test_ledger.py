"""The ledger against counts done by hand."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from tiny import MODEL, FirstSymbol
from torch import Generator, nn

from levelfield import mixers
from levelfield.model import Network
from levelfield.objectives import Classify, heads
from levelfield.runs.ledger import match_width, parameters, sizes, state_size, total
from levelfield.spec import MixerConfig, Model, UserError

D = 16


@dataclass(frozen=True)
class Probe(MixerConfig):
    """A mixer that declares a state, or none."""

    label: ClassVar[str] = "probe"
    paper: ClassVar[str] = ""
    kind: str = "none"

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        return nn.Identity()

    def state_size(self, width: int, length: int) -> int | None:
        return None if self.kind == "none" else width * length


def test_useful_flops_are_added_up_where_every_phase_tells_them() -> None:
    """A phase of an older version tells those dispatched alone."""
    plain = {"examples": 8, "tokens": 80, "padding": 0, "steps": 1, "flops": 6.0, "wall_s": 1.0, "tuning_trials": 1}
    new = plain | {"flops_useful": 4.0}
    assert total([new, new])["flops_useful"] == 8.0
    old = total([plain, new])
    assert old["flops"] == 12.0 and "flops_useful" not in old


def test_parameters_are_split_into_trunk_and_heads():
    task = FirstSymbol(continuous=True)
    net = Network(MODEL, task.input, heads(Classify(), task), mask_flag=True, seed=0)
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
        return parameters(Network(model, task.input, heads(Classify(), task), mask_flag=False, seed=0))["parameters"]

    target = count(dataclasses.replace(MODEL, width=88))
    assert match_width(MODEL, count, target).width == 88
    near = match_width(dataclasses.replace(MODEL, depth=7), count, target)
    assert all(
        abs(count(near) - target) <= abs(count(dataclasses.replace(near, width=near.width + d)) - target)
        for d in (-8, 8)
    )


@pytest.mark.parametrize("target", [1, 900, 10_000, 10_001, 300_000])
@pytest.mark.parametrize("power", [1, 2, 3])
def test_few_widths_are_tried_for_the_nearest_count(target: int, power: int) -> None:
    """Of all widths, one by one, none is nearer; and a dozen are tried, however parameters grow."""
    tried: list[int] = []

    def count(model: Model) -> int:
        tried.append(model.width)
        return model.width**power + 7 * model.width

    found = match_width(MODEL, count, target).width
    distance = {width: abs(width**power + 7 * width - target) for width in range(8, found + 1_000, 8)}
    assert distance[found] == min(distance.values())
    assert len(tried) == len(set(tried)) and (power == 1 or len(tried) <= 12)


@pytest.mark.parametrize("divisor", [8, 4, 2, 1])
def test_a_finer_width_is_taken_where_no_multiple_of_eight_is_near_and_the_model_takes_it(divisor: int) -> None:
    """Of the widths that the model takes, none is nearer."""

    def count(model: Model) -> int:
        if model.width % divisor:
            raise UserError("no such width")
        return model.width**2

    taken = range(divisor, 64, divisor)
    nearest = min(taken, key=lambda width: abs(width**2 - 21**2))
    assert match_width(MODEL, count, 21**2, finer=True).width == nearest
    assert match_width(MODEL, count, 3**2, finer=True).width == min(taken, key=lambda width: abs(width**2 - 3**2))
    assert match_width(MODEL, count, 21**2).width == 24
    assert match_width(MODEL, count, round(1.03 * 16**2), finer=True).width == 16, "it is near enough"


@pytest.mark.parametrize("mixer", [mixers.find(name) for name in mixers.NAMES], ids=mixers.NAMES)
def test_sizes_are_those_of_a_network_with_weights(mixer: MixerConfig) -> None:
    """Counted without random numbers, the parameters of every mixer are what a network for training has."""
    given = heads(Classify(), FirstSymbol())
    model = Model((mixer,), 2, 64, causal="causal" in mixer.directions)
    drawn = Network(model, FirstSymbol().input, given, mask_flag=False, seed=0)
    assert sizes(model, FirstSymbol().input, given) == parameters(drawn)


@dataclass(frozen=True)
class Unknown(Probe):
    """Unknown code, as large as a random number says."""

    opaque: ClassVar[bool] = True

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        return nn.Linear(width, int(torch.empty(1).uniform_(5, 6, generator=generator)), bias=False)


def test_unknown_code_has_its_random_numbers_while_it_is_counted() -> None:
    alone, seen = (sizes(Model((mixer,), 1, D), FirstSymbol().input)["parameters"] for mixer in (Probe(), Unknown()))
    assert seen == alone + 5 * D
