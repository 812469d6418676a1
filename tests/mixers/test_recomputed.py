"""Layers whose activations are recomputed in the backward pass have the gradients of those that keep them."""

from __future__ import annotations

import pytest
import torch
from examples import EXAMPLES
from torch import Generator, Tensor
from torch.utils.checkpoint import checkpoint

from levelfield.spec import MixerConfig

WIDTH, LENGTH = 16, 65


@pytest.mark.parametrize("config", [pytest.param(config, id=str(config)) for config in EXAMPLES])
def test_recomputing_changes_no_gradient(config: MixerConfig) -> None:
    causal, length = "causal" in config.directions, min(LENGTH, config.max_length or LENGTH)
    layer = config.build(WIDTH, causal=causal, layer=0, generator=Generator().manual_seed(0))
    x = torch.randn(2, length, WIDTH, generator=Generator().manual_seed(1))
    mask = torch.arange(length) < torch.tensor([[length], [length // 2]])
    weights, gradients = [weight for weight in layer.parameters() if weight.requires_grad], list[tuple[Tensor, ...]]()
    for again in (False, True):
        inputs = x.clone().requires_grad_()
        y = checkpoint(layer, inputs, mask, use_reentrant=False) if again else layer(inputs, mask)
        gradients.append(torch.autograd.grad(y.square().sum(), [inputs, *weights], allow_unused=True))
    for kept, recomputed in zip(*gradients, strict=True):
        torch.testing.assert_close(recomputed, kept, rtol=0, atol=0)
