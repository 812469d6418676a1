"""Measures what the CIFAR augmentation costs, and what changes when gray is taken before it instead of after.

    python benchmarks/image_policy.py                     cost alone, on noise
    python benchmarks/image_policy.py FOLDER              and the differences, on the CIFAR-10 pictures in FOLDER

Cost is CPU time of one thread, the least of twenty batches of 128.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch import Tensor

from levelfield.tasks._images.augment import DRAWS, augment, policy
from levelfield.tasks._images.ops import OPERATIONS, luma
from levelfield.tasks.scifar import SCifar

RANGES = {"posterize": (4.0, 8.0), "solarize": (0.0, 256.0), "rotate": (-30.0, 30.0)}
RANGES |= dict.fromkeys(("contrast", "sharpness", "color", "brightness"), (1.0, 1.9))
RANGES |= dict.fromkeys(("translate_x", "translate_y"), (-14.0, 14.0))


def cost(channels: int, batch: int = 128) -> float:
    """Microseconds per picture."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (batch, 1024, channels), generator=generator).byte()
    times = []
    for _ in range(20):
        start = time.process_time()
        augment(x, generator)
        times.append(time.process_time() - start)
    return min(times) / batch * 1e6


def difference(colour_first: Tensor, gray_first: Tensor) -> str:
    apart = (colour_first.int() - gray_first.int()).abs().float()
    return f"mean {apart.mean():5.2f} levels, {(apart > 1).float().mean():6.1%} of pixels by more than 1"


def compare(folder: Path) -> None:
    x = SCifar(train=15_000, test=5_000).build(folder)["train"].x[: 4000 * 1024]
    pictures = torch.from_numpy(x.reshape(-1, 1024, 3)).transpose(1, 2).reshape(-1, 3, 32, 32).contiguous()
    generator = torch.Generator().manual_seed(0)
    for name, operation in OPERATIONS.items():
        low, high = RANGES.get(name, (-0.3, 0.3))
        amount = low + (high - low) * torch.rand(len(pictures), generator=generator).double()
        print(f"{name:12} {difference(luma(operation(pictures, amount)), operation(luma(pictures), amount))}")
    uniforms, others = (torch.rand(len(pictures), DRAWS, generator=generator) for _ in range(2))
    changed = luma(policy(pictures, uniforms))
    print(f"whole policy {difference(changed, policy(luma(pictures), uniforms))}")
    print(f"for scale: from the unchanged picture, {difference(changed, luma(pictures))}")
    print(f"           from another draw, {difference(changed, luma(policy(pictures, others)))}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"colour {cost(3):.0f} microseconds per picture, gray {cost(1):.0f}")
    if len(sys.argv) > 1:
        compare(Path(sys.argv[1]))
