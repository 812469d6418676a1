"""Draws docs/figures/cifar-augmentation.png: the CIFAR augmentation on a picture made for the purpose.

    python docs/figures/cifar_augmentation.py

The picture is painted here, since no CIFAR picture may be shipped: the set's licence is not stated.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import torch

from levelfield.tasks._images.augment import augment
from levelfield.tasks._images.ops import OPERATIONS

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

OUT = Path(__file__).with_name("cifar-augmentation.png")
AMOUNTS = {
    "invert": 0.0,
    "contrast": 1.9,
    "sharpness": 1.9,
    "autocontrast": 0.0,
    "equalize": 0.0,
    "posterize": 2.0,
    "color": 1.9,
    "brightness": 1.9,
    "solarize": 128.0,
    "shear_y": 0.27,
    "translate_x": 12.0,
    "rotate": 20.0,
}


def paint() -> np.ndarray:
    """A boat on the sea below a sun, (32, 32, 3) uint8."""
    y, x = np.mgrid[:32, :32].astype(float)
    sky, sea = np.array([120.0, 170, 220]), np.array([30.0, 80, 130])
    picture = np.where((y < 20)[..., None], sky - 2 * y[..., None], sea + 6 * np.sin(x + 2 * y)[..., None])
    picture[(x - 24) ** 2 + (y - 6) ** 2 < 10] = (240, 200, 80)
    picture[(np.abs(x - 13) < 9 - (y - 18)) & (y >= 18) & (y < 23)] = (150, 50, 40)
    picture[(x > 13) & (x - 13 < (y - 4) * 0.5) & (y >= 4) & (y < 17)] = (225, 220, 205)
    picture[(np.abs(x - 12) < 1) & (y >= 3) & (y < 18)] = (70, 50, 40)
    return picture.clip(0, 255).astype(np.uint8)


def draw() -> Figure:
    picture = torch.from_numpy(paint()).permute(2, 0, 1)[None].contiguous()
    shown = {"original": picture[0]}
    for name, amount in AMOUNTS.items():
        shown[name] = OPERATIONS[name](picture, torch.tensor([amount], dtype=torch.float64))[0]
    rows = picture.flatten(2).transpose(1, 2).repeat(13, 1, 1)
    drawn = augment(rows, torch.Generator().manual_seed(1)).transpose(1, 2).reshape(-1, 3, 32, 32)
    figure, axes = plt.subplots(2, 13, figsize=(13, 2.7), layout="constrained")
    for axis, (name, changed) in zip(axes[0], shown.items()):
        axis.imshow(changed.permute(1, 2, 0))
        axis.set_title(name.replace("_", " "), fontsize=9)
    for axis, changed in zip(axes[1], drawn):
        axis.imshow(changed.permute(1, 2, 0))
    axes[1, 6].set_title("thirteen draws of the whole policy", fontsize=9)
    for axis in axes.flat:
        axis.axis("off")
    return figure


if __name__ == "__main__":
    draw().savefig(OUT, dpi=110)
