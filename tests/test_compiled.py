"""Which mixers torch.compile makes kernels of: a compiled block takes the same training step as the plain one."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import pytest
import torch
from tiny import MODEL, FirstSymbol, training_loss

from levelfield.data.batches import SplitOnDevice
from levelfield.mixers import classes
from levelfield.model import Network
from levelfield.objectives import Classify, heads
from levelfield.rng import generator
from levelfield.spec import Block, MixerConfig, Numerics

TASK = FirstSymbol(length=24)
BATCH = SplitOnDevice(TASK.build(None)["train"], torch.device("cpu")).gather(torch.arange(8))
PLAIN: dict[str, str] = {
    "kda": "torch's compiler had not traced the loops of its recurrence over lengths that vary after fifteen minutes.",
}
"""Mixers whose blocks cannot be compiled, and why."""


@pytest.fixture(autouse=True)
def what_the_compiler_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes back what torch's compiler adds to the search path of modules and to the environment."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR", "")
    del os.environ["_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"]


def step(config: MixerConfig, numerics: Numerics) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The loss of a training step and the gradients of all parameters."""
    model = replace(MODEL, mixers=(config,), depth=1, width=32, block=Block(feedforward=64))
    model = replace(model, causal="causal" in config.directions)
    net = Network(model, TASK.input, heads(Classify(), TASK), mask_flag=False, seed=0, numerics=numerics)
    net.compile_blocks(ragged=True)
    loss = training_loss(net.train(), BATCH, Classify(), TASK.input, generator(0, "mask"))
    return loss.detach(), list(torch.autograd.grad(loss, list(net.parameters()), allow_unused=True))


def gradients_of_one(config: MixerConfig, numerics: Numerics) -> tuple[torch.Tensor, ...]:
    """The gradients of all parameters after a pass over one sequence without padding."""
    model = replace(MODEL, mixers=(config,), depth=1, width=32, block=Block(feedforward=64))
    model = replace(model, causal="causal" in config.directions)
    net = Network(model, TASK.input, heads(Classify(), TASK), mask_flag=False, seed=0, numerics=numerics).train()
    net.compile_blocks(ragged=False)
    symbols = torch.randint(2, 10, (1, 200), generator=torch.Generator().manual_seed(0))  # no ties of NSA's blocks
    hidden_states = net.hidden_states(symbols, None)
    loss = net.head("label", hidden_states, None).square().sum()
    return torch.autograd.grad(loss, list(net.parameters()), allow_unused=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore")  # torch's compiler uses parts of torch that are deprecated
@pytest.mark.parametrize("config", [pytest.param(mixer, id=mixer.label) for mixer in classes()])
def test_a_compiled_block_takes_the_step_of_the_plain_one(config: type[MixerConfig]) -> None:
    if config.label in PLAIN:
        pytest.skip(PLAIN[config.label])
    (loss, found), (plain, wanted) = (step(config(), Numerics(compile=on)) for on in (True, False))
    torch.testing.assert_close(loss, plain, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore")  # torch's compiler uses parts of torch that are deprecated
@pytest.mark.parametrize("config", [pytest.param(mixer, id=mixer.label) for mixer in classes()])
def test_a_block_compiled_for_one_long_sequence_has_the_gradients_of_the_plain_one(config: type[MixerConfig]) -> None:
    """Of several chunks, each of which is written into its place of the result."""
    found, wanted = (gradients_of_one(config(), Numerics(compile=on)) for on in (True, False))
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
