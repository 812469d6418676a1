"""Measures how far a trained model really looks: its effective context by gradient.

At steps t of test sequences, the gradient of the hidden state is taken with respect to the encoded input at every
step s. The share of its squared norm with |t - s| <= d is the row "distance<=d". This, and nothing in its definition,
tells a model that uses its whole context from one that could and does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from levelfield.data.batches import SplitOnDevice, encode
from levelfield.probes._lags import doublings
from levelfield.rng import generator
from levelfield.spec import Examples, Probe, Row, Run, SplitName, Task

if TYPE_CHECKING:
    from levelfield.model import Network


@dataclass(frozen=True)
class EffectiveContext(Probe):
    """The share of the gradient within each distance.

    examples: how many test sequences are drawn; of a pair of documents, the first. steps: output steps in each.
    """

    name: ClassVar[str] = "effective_context"
    examples: int = 16
    steps: int = 4

    def measure(self, net: Network, run: Run, load: Callable[[Task], Mapping[SplitName, Examples]]) -> Iterator[Row]:
        """Yields the share of the gradient within d, over all draws, for d = 0, 1, 2, 4, ... up to the length."""
        device = next(net.parameters()).device
        split = SplitOnDevice(load(run.task)["test"], device)
        draws = generator(run.seed, "effective_context")
        mass = np.zeros(split.longest)
        chosen = torch.randperm(len(split), generator=draws)[: self.examples]
        for index in chosen.tolist():
            batch = split.gather(torch.tensor([index]))
            length = int(batch.lengths[0])
            x = encode(batch.raw[:1, :length], None, run.task.input)
            places = torch.randint(length, (self.steps,), generator=draws).tolist()
            for at, gradient in zip(places, feature_gradients(net, x, places), strict=True):
                distance = np.abs(np.arange(length) - at)
                np.add.at(mass, distance, gradient.cpu().numpy() / max(float(gradient.sum()), 1e-30))
        if not np.isfinite(mass).all() or not mass.sum():  # of a run that diverged, or that looks at nothing
            return
        shares = mass.cumsum() / mass.sum()
        count = len(chosen) * self.steps
        for distance in doublings(split.longest):
            place = {"at": f"distance<={distance}", "value": float(shares[distance])}
            yield Row(metric="gradient_share", unit="fraction", split="test", n=count, status="ok", **place)


def feature_gradients(net: Network, x: Tensor, places: Sequence[int]) -> Iterator[Tensor]:
    """Yields, for each of some output steps, the squared norm of the gradient of its summed hidden state by input step.

    x: one sequence, (1, T) ids or (1, T, C) values -> (T,) each, all from one forward pass.
    """
    encoded: list[Tensor] = []

    def keep(module: torch.nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        encoded.append(output.detach().requires_grad_())
        return encoded[0]

    hook = net.encoder.register_forward_hook(keep)
    try:
        hidden_states = net.hidden_states(x, None)
    finally:
        hook.remove()
    sign = torch.ones_like(hidden_states[0, 0])
    sign[1::2] = -1  # an alternating sum: a plain one is constant behind a normalisation
    for left, at in enumerate(places, 1 - len(places)):
        (gradient,) = torch.autograd.grad((hidden_states[0, at] * sign).sum(), encoded[0], retain_graph=left < 0)
        yield gradient[0].square().sum(-1)
