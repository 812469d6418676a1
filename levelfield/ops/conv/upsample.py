"""Linear upsampling along the steps by whole factors, channels last: a few samples drawn out to a long kernel.

    samples     a           b           c
    times = 4   a a a' a'' b''' b' ...  c c        straight lines between the samples' centres, held at both ends

Between two samples all channels are weighed alike, so a stretch is one small product, (times x 2) @ (2 x C), forwards
and backwards; nothing is gathered or added up element by element.
Letters: P samples, C channels, T steps.
"""

from __future__ import annotations

import torch
from torch import Tensor


def upsample(samples: Tensor, times: int, length: int) -> Tensor:
    """samples: (P, C) -> the first `length` of P * times steps, (T, C). times: 1 or even.

    Equal to `torch.nn.functional.interpolate(..., mode="linear")` with that scale factor.
    """
    length = min(length, len(samples) * times)
    if times == 1:
        return samples[:length]
    first = times // 2  # steps before the first sample's centre
    stretches = -(-(length + first) // times)
    padded = torch.cat([samples[:1], samples, samples[-1:]])[: stretches + 1]
    ends = torch.stack([padded[:-1], padded[1:]], 1)  # (stretches, 2, C)
    part = (torch.arange(times, dtype=samples.dtype, device=samples.device) + 0.5) / times
    weights = torch.stack([1 - part, part], 1).expand(len(ends), times, 2)
    return torch.bmm(weights, ends).flatten(0, 1)[first : first + length]
