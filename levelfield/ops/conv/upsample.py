"""Upsamples linearly along the steps by a whole factor, with channels last: a few samples become a long kernel.

    samples     a           b           c
    times = 4   a a . . . . b . . . c c        linear between the samples' centres, constant at both ends

All channels have the same weights, so the steps between two samples are one small product, (times x 2) @ (2 x C). The
backward pass is such a product too; nothing is gathered or scattered element by element.
Letters: P samples, C channels, T steps.
"""

from __future__ import annotations

import torch
from torch import Tensor


def upsample(samples: Tensor, times: int, length: int) -> Tensor:
    """The first `length` of P * times steps, (T, C), from samples, (P, C). times: 1 or even.

    Equal to `torch.nn.functional.interpolate(..., mode="linear")` with that scale factor.
    """
    length = min(length, len(samples) * times)
    if times == 1:
        return samples[:length]
    first = times // 2  # steps before the first sample's centre
    segments = -(-(length + first) // times)
    padded = torch.cat([samples[:1], samples, samples[-1:]])[: segments + 1]
    ends = torch.stack([padded[:-1], padded[1:]], 1)  # (segments, 2, C)
    part = (torch.arange(times, dtype=samples.dtype, device=samples.device) + 0.5) / times
    weights = torch.stack([1 - part, part], 1).expand(len(ends), times, 2)
    return torch.bmm(weights, ends).flatten(0, 1)[first : first + length]
