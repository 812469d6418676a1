"""Measures how fast learned convolution kernels decay (amos2025 section 3; miralles2025 section 5).

For each layer that has a kernel, it reports the share of the kernel's energy within a lag. The share is near 1 at small
lags for a local layer, and grows in proportion to the lag for one that weighs all distances alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from levelfield.probes._lags import doublings
from levelfield.spec import Examples, Probe, Row, Run, SplitName, Task

if TYPE_CHECKING:
    from levelfield.model import Network


@dataclass(frozen=True)
class Kernels(Probe):
    """The energy of each layer's kernel by lag, averaged over channels after each is scaled to energy 1."""

    name: ClassVar[str] = "kernels"

    @torch.no_grad()
    def measure(self, net: Network, run: Run, load: Callable[[Task], Mapping[SplitName, Examples]]) -> Iterator[Row]:
        """Yields rows "layer=I,lag<=L" for L = 0, 1, 2, 4, ...; nothing for layers without a kernel."""
        length = run.task.max_length
        for layer, block in enumerate(net.blocks):
            config = run.model.mixers[layer % len(run.model.mixers)]
            kernel = config.learned_kernel(block.get_submodule("mixer"), length)
            if kernel is None:
                continue
            energy = kernel.double().square()
            status = "ok" if bool(energy.isfinite().all()) else "diverged"
            shares = (energy / energy.sum(1, keepdim=True).clamp(min=1e-300)).mean(0).cumsum(0)
            for lag in doublings(len(shares)):
                place = {"at": f"layer={layer},lag<={lag}", "value": float(shares[lag])}
                yield Row(metric="energy_share", unit="fraction", n=kernel.shape[0], status=status, **place)
