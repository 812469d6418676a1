"""Remedies beyond the training length: each against the layer that it should make, on one set of weights."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from levelfield.mixers.attention import Attention, AttentionLayer
from levelfield.mixers.gmlp import GMLP
from levelfield.model import Network
from levelfield.objectives import ClassifySteps, heads
from levelfield.presets import efforts
from levelfield.probes.remedies import Remedies, changed, with_settings
from levelfield.protocols import scratch
from levelfield.spec import Block, Model, Row, Run, UserError
from levelfield.studies import huang2024_small
from levelfield.tasks.needle import Needle

NAMES = ("none", "interpolate", "base", "window", "sinks")
TASK = Needle(24, 2, 1, words=9, keys=12, values=8, train=4, val=4, test=12)
MODEL = Model((Attention(2, rotary="per_head", bias=False),), 2, 16, causal=True, block=Block("rms"))


def _run(model: Model = MODEL) -> Run:
    return Run(TASK, model, scratch(efforts.recipe("smoke"), ClassifySteps()), 0)


def _net(model: Model = MODEL) -> Network:
    return Network(model, TASK.input, (), mask_flag=False, seed=3).eval()


def _with(net: Network, remedy: str, factor: int = 4) -> Network:
    return with_settings(net, changed(net.model, factor=factor, trained=24)[remedy])


def _distances(net: Network, length: int) -> torch.Tensor:
    """Products of queries and keys that are all ones, by the layer's own rotation: (length, length)."""
    layer = next(module for module in net.modules() if isinstance(module, AttentionLayer))
    ones = torch.ones(1, length, 16)
    turned = layer._rotated(ones, 0)[0, :, :8]
    return turned @ turned.T


def test_interpolated_distances_are_those_of_training() -> None:
    """Eight steps apart at four times the length is two steps apart at the length itself."""
    net = _net()
    plain, drawn = _distances(net, 96), _distances(_with(net, "interpolate"), 96)
    torch.testing.assert_close(drawn[0, ::4], plain[0, :24], rtol=1e-4, atol=1e-4)


def test_the_larger_base_slows_the_slowest_pair_by_the_factor_and_leaves_the_fastest() -> None:
    layer = next(m for m in _with(_net(), "base").modules() if isinstance(m, AttentionLayer))
    pairs = torch.arange(4, dtype=torch.float64)
    before, after = 10_000.0 ** (-2 * pairs / 8), layer.config.rotary_base ** (-2 * pairs / 8)
    assert math.isclose(after[0], before[0]) and math.isclose(before[-1] / after[-1], 4, rel_tol=1e-9)


def test_windows_see_as_many_steps_as_training_had() -> None:
    """By the gradient, in a model of one layer."""
    net = _net(replace(MODEL, depth=1))
    x = torch.randint(0, 9, (1, 60), generator=torch.Generator().manual_seed(0))
    for name, seen in {"none": range(60), "window": range(36, 60), "sinks": (*range(4), *range(40, 60))}.items():
        other = _with(net, name)
        embedded = other.encoder(x, None).detach().requires_grad_()
        (grad,) = torch.autograd.grad(other.blocks[0](embedded, None)[0, -1].square().sum(), embedded)
        assert grad[0].any(-1).nonzero().flatten().tolist() == list(seen)


def test_nothing_changes_within_the_training_length_and_the_model_itself_never() -> None:
    net = _net()
    x = torch.randint(0, 9, (2, 24), generator=torch.Generator().manual_seed(0))
    before = net.hidden_states(x, None)
    for name in ("none", "window", "sinks"):
        torch.testing.assert_close(_with(net, name).hidden_states(x, None), before, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(_with(net, "interpolate", 1).hidden_states(x, None), before)
    assert torch.equal(net.hidden_states(x, None), before)
    assert not torch.allclose(_with(net, "interpolate").hidden_states(x, None), before, atol=1e-3)


def test_rows_are_of_every_length_and_remedy_and_other_models_are_refused() -> None:
    run = _run()
    net = Network(MODEL, TASK.input, heads(ClassifySteps(), TASK), mask_flag=False, seed=3).eval()
    rows = list(Remedies((2, 4), examples=12).measure(net, run, lambda task: task.build(None)))
    assert [row.get("at") for row in rows] == [f"length={n},remedy={name}" for n in (48, 96) for name in NAMES]
    short = _run(replace(MODEL, positions="learned", max_positions=50))
    other = Network(short.model, TASK.input, heads(ClassifySteps(), TASK), mask_flag=False, seed=3).eval()
    rows = list(Remedies((4, 2), examples=12).measure(other, short, lambda task: task.build(None)))
    assert [row.get("at") for row in rows] == [f"length=48,remedy={name}" for name in NAMES]
    bounded = _run(replace(MODEL, mixers=(GMLP(8, bound=24),), causal=False))
    with pytest.raises(UserError, match="changes rotary attention over all steps: gmlp has none"):
        list(Remedies().measure(net, bounded, lambda task: {}))


def _asked(remedy: str, value: float, seed: int) -> Row:
    base = Row(run=f"m-{seed}", task="needle", model="m", protocol="scratch", metric="accuracy", split="test", n=900)
    return base | Row(at=f"length=128{remedy}", value=value, seed=seed)


def test_the_study_says_which_remedy_helps() -> None:
    rows = [_asked("", 0.9, seed) | Row(at=f"length={n}") for n in (16, 32, 64, 128) for seed in range(3)]
    for name, value in {"none": 0.3, "interpolate": 0.8, "base": 0.31, "window": 0.1}.items():
        rows += [_asked(f",remedy={name}", value + 0.01 * seed, seed) for seed in range(3)]
    found = {finding.subject: finding.decided for finding in huang2024_small.remedies(rows)}
    assert found == {"interpolate helps m": 1, "base helps m": 0, "window helps m": -1}
    assert "Without training, at 4 times the length: Yes: interpolate helps m" in huang2024_small.verdict(rows)
