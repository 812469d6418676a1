"""Broken modules, each caught with the sentence that names its fault; and sound ones, let through."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Generator, Tensor, nn

from levelfield.contract import cautions, check
from levelfield.spec import MixerConfig, UserError

Rule = Callable[["Layer", Tensor, Tensor | None], Any]


class Layer(nn.Module):
    """A linear map around which each fault is built."""

    def __init__(self, width: int, rule: Rule, generator: Generator) -> None:
        super().__init__()
        self.rule = rule
        self.weight = nn.Parameter(torch.randn(width, width, generator=generator) / width**0.5)
        self.register_buffer("count", torch.zeros(()))
        self.kept: Tensor | None = None

    def forward(self, x: Tensor, mask: Tensor | None) -> Any:
        return self.rule(self, x, mask)


@dataclass(frozen=True)
class Broken(MixerConfig):
    label: ClassVar[str] = "broken"
    paper: ClassVar[str] = "made here"
    rule: Rule

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        return Layer(width, self.rule, generator)

    def state_size(self, width: int, length: int) -> None:
        return None


def _zeroed(x: Tensor, mask: Tensor | None) -> Tensor:
    return x if mask is None else x.masked_fill(~mask.unsqueeze(-1), 0)


def sound(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
    return _zeroed(x, mask).cumsum(1) @ layer.weight


def leaks_one_step(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
    return torch.cat([x[:, 1:], x[:, -1:]], 1) @ layer.weight


def leaks_late(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
    y = x.clone()
    y[:, 12:13] = x[:, 12:].sum(1, keepdim=True)
    return y @ layer.weight


def leaks_an_order(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
    """No gradient shows this one: whether a step is above the median of all."""
    return torch.where(x > x.median(1, keepdim=True).values, x, -x) @ layer.weight


def remembers(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
    y = x @ layer.weight if layer.kept is None else x @ layer.weight + layer.kept.mean()
    layer.kept = x.detach()
    return y


def alternates(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
    layer.kept = torch.ones(()) if layer.kept is None else -layer.kept
    return x @ layer.weight * layer.kept


def counts_calls(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
    layer.count += 1  # pyright: ignore[reportOperatorIssue]
    return x @ layer.weight


def one_step_breaks(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
    return (x / x.std(1, keepdim=True) if x.shape[1] > 1 else x / 0) @ layer.weight


def one_step_raises(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
    assert x.shape[1] > 1, "needs two steps"
    return x @ layer.weight


def masks_to_nothing(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
    scores = x @ x.transpose(1, 2)
    scores = scores if mask is None else scores.masked_fill(~mask[:, None], -torch.inf)
    return scores.softmax(-1) @ x @ layer.weight


def root_of_zero(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
    return x @ layer.weight + (x - x).square().sum(-1, keepdim=True).sqrt()


def fails_with_mask(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
    return sound(layer, x, None) if mask is None else x[mask]


def mask_wanted(layer: Layer, x: Tensor, mask: Any) -> Tensor:
    return x * mask.unsqueeze(-1) @ layer.weight


def fixed_length(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
    return x.reshape(x.shape[0], 33, -1) @ layer.weight


def breaks_in_training(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
    return sound(layer, x, mask) / (0 if layer.training else 1)


FUTURE = {"causal": True, "padding": False}
FAULTS: dict[str, tuple[Rule, dict[str, Any], str]] = {
    "shape": (lambda m, x, k: (x @ m.weight)[:, :-1], {}, r"\(3, 33, 16\) into \(3, 32, 16\)"),
    "tuple": (lambda m, x, k: (x, None), {}, r"returns a tuple.*such as y\[0\]"),
    "integers": (lambda m, x, k: (x @ m.weight).long(), {}, "torch.int64"),
    "complex": (lambda m, x, k: (x @ m.weight) * 1j, {}, "torch.complex64.*: end its forward with `.real`"),
    "raises": (lambda m, x, k: x @ m.weight[1:], {}, r"fails on an input of shape \(3, 33, 16\) with no mask: Runtime"),
    "not finite": (lambda m, x, k: (x @ m.weight).log(), {}, "NaN or infinite numbers for a standard normal input"),
    "mask wanted": (mask_wanted, {}, "NoneType.*A mask is None where nothing is padded"),
    "next step": (leaks_one_step, FUTURE, "output at step 0 depends on inputs after step 0"),
    "late leak": (leaks_late, FUTURE, "output at step 12 depends on inputs after step 12"),
    "leak without gradient": (leaks_an_order, FUTURE, "depends on inputs after step"),
    "mean over steps": (lambda m, x, k: x.mean(1, keepdim=True) + x @ m.weight, FUTURE, "output at step 0"),
    "ignores padding": (lambda m, x, k: x.cumsum(1).flip(1).cumsum(1) @ m.weight, {}, "padded steps reach real ones"),
    "counts padding": (lambda m, x, k: _zeroed(x, k).mean(1, True) + x @ m.weight, {}, "when padding is added after"),
    "nothing but padding": (masks_to_nothing, {}, "rows of padding alone"),
    "mask refused": (fails_with_mask, {}, r"\(3, 33, 16\) into \(55, 16\)"),
    "batch statistics": (lambda m, x, k: (x - x.mean(0)) @ m.weight, {}, "sequences of a batch see each other"),
    "batch as length": (lambda m, x, k: x.cumsum(0) @ m.weight, {}, r"axes are \(batch, length, width\)"),
    "random in eval": (lambda m, x, k: nn.functional.dropout(x, 0.5) @ m.weight, {}, "random numbers in eval mode"),
    "remembers": (remembers, {}, "remembers the sequence it saw before"),
    "alternates": (alternates, {}, "another output when called again"),
    "changes a buffer": (counts_calls, {}, "changes its own 'count'"),
    "length one": (one_step_breaks, {"padding": False}, "sequences of one step"),
    "length one raises": (one_step_raises, {}, r"\(3, 1, 16\) with no mask: AssertionError: needs two steps"),
    "one length only": (fixed_length, {}, r"fails on an input of shape \(3, 16, 16\) with no mask: RuntimeError"),
    "training": (breaks_in_training, {}, "NaN or infinite gradient"),
    "gradient": (root_of_zero, {}, "NaN or infinite gradient"),
    "detached": (lambda m, x, k: (x @ m.weight).detach(), {}, "cuts the gradient"),
}


@pytest.mark.parametrize("rule, settings, sentence", FAULTS.values(), ids=FAULTS.keys())
def test_each_fault_is_named(rule: Rule, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        check(Broken(rule), 16, **{"causal": False, **settings})
    assert str(caught.value).startswith("broken ") and "\n" not in str(caught.value)


def test_a_sound_module_passes_and_leaves_the_generators_alone() -> None:
    before = torch.get_rng_state()
    for causal in (False, True):
        for length in (1, 2, 33, 50):
            check(Broken(sound), 16, causal, length)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_fault_behind_a_last_map_of_zeros_is_found() -> None:
    """Freshly initialised, the output is zero whatever the input; training would let the future in."""

    def hidden(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
        with torch.no_grad():
            start = layer.weight - layer.weight * (layer.weight == layer.kept)
        gate = start.detach() + layer.weight - layer.weight.detach()
        return torch.cat([x[:, 1:], x[:, -1:]], 1) @ gate + 0 * x

    @dataclass(frozen=True)
    class Closed(Broken):
        def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
            net = Layer(width, self.rule, generator)
            net.kept = net.weight.detach().clone()
            return net

    net = Closed(hidden).build(16, causal=True, layer=0, generator=Generator())
    assert not net(torch.randn(1, 5, 16), None).any()
    with pytest.raises(UserError, match="depends on inputs after step"):
        check(Closed(hidden), 16, causal=True, padding=False)


def test_idle_parameters_are_only_a_warning() -> None:
    @dataclass(frozen=True)
    class Idle(Broken):
        def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
            net = Layer(width, self.rule, generator)
            net.register_parameter("spare", nn.Parameter(torch.ones(3)))
            return net

    with pytest.warns(UserWarning, match="broken has parameters that get no gradient: spare;"):
        check(Idle(sound), 16, causal=True)


def beside_others(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
    return (x - x.mean((0, 1)) if layer.training else x) @ layer.weight


def draws(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
    """Dropout, and a count of calls in training that changes the output, neither of which reads other sequences."""
    layer.count += layer.training
    return nn.functional.dropout(x @ layer.weight, 0.5, layer.training) * (1 + layer.count)


def test_seeing_batch_neighbours_in_training_alone_is_only_a_caution() -> None:
    for rule in (sound, draws, beside_others):
        check(Broken(rule), 16, causal=False)
    assert not [*cautions(Broken(sound), 16, False), *cautions(Broken(draws), 16, False)]
    (said,) = cautions(Broken(beside_others), 16, causal=False)
    assert said.startswith("broken lets the sequences of a batch see each other in training, ") and "batch size" in said


def test_padding_can_be_left_out_for_tasks_of_one_length() -> None:
    def ignores(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
        return (x @ x.transpose(1, 2)).softmax(-1) @ x @ layer.weight

    check(Broken(ignores), 16, causal=False, padding=False)
    with pytest.raises(UserError, match=re.escape("take `mask`, (batch, length) with True at real steps")):
        check(Broken(ignores), 16, causal=False)


@dataclass(frozen=True)
class Declares(Broken):
    bound: int | None = None
    field: int | None = None

    @property
    def max_length(self) -> int | None:
        return self.bound

    @property
    def receptive_field(self) -> int | None:
        return self.field


def test_declared_lengths_must_be_true() -> None:
    def neighbours(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
        x = nn.functional.pad(_zeroed(x, mask), (0, 0, 1, 1))
        return (x[:, 2:] + x[:, 1:-1] + x[:, :-2]) @ layer.weight

    check(Declares(neighbours, field=3), 16, causal=False)
    with pytest.raises(UserError, match="receptive field of 1 steps but sees 1 away"):
        check(Declares(neighbours, field=1), 16, causal=False)
    with pytest.raises(UserError, match="declares max_length 20 but takes 21 steps"):
        check(Declares(neighbours, bound=20), 16, causal=False)

    def before(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
        return x.cumsum(1) @ layer.weight

    with pytest.raises(UserError, match="receptive field of 5 steps but sees 5 away"):
        check(Declares(before, field=5), 16, causal=True, padding=False)


def test_a_declared_field_holds_far_away_to_either_side_and_where_no_gradient_shows_it() -> None:
    def far(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
        """A dilation that was forgotten: none of these steps is among the 7 around a field of 3."""
        return _summed(x, (-8, 0, 8)) @ layer.weight

    def later(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
        return _summed(x, (0, 50)) @ layer.weight

    def largest(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
        """The step with the largest first number so far, which no gradient shows to be chosen."""
        at = x[..., :1].cummax(1).indices.expand_as(x)
        return (x + x.detach().gather(1, at)) @ layer.weight

    def five(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
        return _summed(x, range(-2, 3)) @ layer.weight

    outside = (
        "declares a receptive field of 3 steps, but its output at step .* depends on others than those: declare as"
    )
    with pytest.raises(UserError, match=outside):
        check(Declares(far, field=3), 16, causal=False, padding=False)
    check(Declares(far, field=17), 16, causal=False, padding=False)
    check(Declares(later, field=3), 16, causal=True, padding=False)  # on 33 steps nothing is so far away
    with pytest.raises(UserError, match=outside):
        check(Declares(later, field=3), 16, causal=True, padding=False, lengths=[70])
    with pytest.raises(UserError, match=outside):
        check(Declares(largest, field=3), 16, causal=True, padding=False)
    with pytest.raises(UserError, match="a receptive field of 4 steps but sees 5: declare as many as it sees, or None"):
        check(Declares(five, field=4), 16, causal=False, padding=False)
    check(Declares(five, field=5), 16, causal=False, padding=False)


def _summed(x: Tensor, steps: Iterable[int]) -> Tensor:
    """The sum of x, (B, T, D), and of x so many steps before each step, or after it; zero where there is none."""
    padded = nn.functional.pad(x, (0, 0, 50, 50))
    return torch.stack([padded[:, 50 - by : 50 - by + x.shape[1]] for by in steps]).sum(0)


def test_a_bounded_layer_in_blocks_says_that_steps_are_not_alike() -> None:
    @dataclass(frozen=True)
    class Bounded(Broken):
        equal: bool = True
        receptive_field: int = 7  # pyright: ignore[reportIncompatibleMethodOverride]

        @property
        def equivariant(self) -> bool:
            return self.equal

    def blocks(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
        steps = torch.arange(x.shape[1]) // 4
        return ((steps[:, None] == steps).to(x.dtype) @ _zeroed(x, mask)) @ layer.weight

    check(Bounded(blocks, equal=False), 16, causal=False)
    with pytest.raises(UserError, match="let its property `equivariant` return False"):
        check(Bounded(blocks), 16, causal=False)


def test_a_builder_that_fails_is_told() -> None:
    @dataclass(frozen=True)
    class Fails(Broken):
        def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
            raise ZeroDivisionError("division by zero")

    with pytest.raises(UserError, match="broken cannot be built at width 16: ZeroDivisionError: division by zero"):
        check(Fails(sound), 16, causal=False)
