"""Applies the CIFAR augmentation of miralles2025 (section 3) to a whole batch at once.

    augment(x, generator)        # x: (B, 1024) gray or (B, 1024, 3) RGB raw values; returns the same shape

Pictures of another side, such as pooled ones, are moved by the same shares of their side.

It applies a horizontal flip, one of the 25 AutoAugment sub-policies, nine operations each with its own probability, and
a random affine map, in this order. The paper says that its operations are "derived from AutoAugment". Its code applies
AutoAugment itself and then the derived operations, and so does this. The derived operations only ever increase
contrast, sharpness, colour and brightness (factor 1 to 1.9).

One flaw is kept, because the published numbers were made with it: `posterize` draws 0 to 6 bits, and 0 bits make a
picture black (probability 0.012 / 7, about 1 picture in 580), so that its label teaches only the prior.

This module holds the policy and imports torch only when it runs; the operations are in `_images/ops.py`.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Generator, Tensor

WORDS = (
    "Horizontal flip (probability 0.5); one of the 25 CIFAR-10 sub-policies of AutoAugment; invert, contrast, "
    "sharpness, autocontrast, equalize, posterize, color, brightness and solarize, each with its own probability; a "
    "random affine map (10 degrees, shift 0.1, scale 0.9 to 1.1, shear 10 degrees, black outside, bilinear). "
    "miralles2025 section 3 and its code."
)

SIDE = 32
BINS = 10

# Operation, probability and magnitude bin, twice: Cubuk et al. 2019 (AutoAugment), table of the CIFAR-10 policy.
SUB_POLICIES: tuple[str, ...] = (
    "invert 0.1 - contrast 0.2 6",
    "rotate 0.7 2 translate_x 0.3 9",
    "sharpness 0.8 1 sharpness 0.9 3",
    "shear_y 0.5 8 translate_y 0.7 9",
    "autocontrast 0.5 - equalize 0.9 -",
    "shear_y 0.2 7 posterize 0.3 7",
    "color 0.4 3 brightness 0.6 7",
    "sharpness 0.3 9 brightness 0.7 9",
    "equalize 0.6 - equalize 0.5 -",
    "contrast 0.6 7 sharpness 0.6 5",
    "color 0.7 7 translate_x 0.5 8",
    "equalize 0.3 - autocontrast 0.4 -",
    "translate_y 0.4 3 sharpness 0.2 6",
    "brightness 0.9 6 color 0.2 8",
    "solarize 0.5 2 invert 0.0 -",
    "equalize 0.2 - autocontrast 0.6 -",
    "equalize 0.2 - equalize 0.6 -",
    "color 0.9 9 equalize 0.6 -",
    "autocontrast 0.8 - solarize 0.2 8",
    "brightness 0.1 3 color 0.7 0",
    "solarize 0.4 5 autocontrast 0.9 -",
    "translate_y 0.9 9 translate_y 0.7 9",
    "autocontrast 0.9 - solarize 0.8 3",
    "equalize 0.8 - invert 0.1 -",
    "translate_y 0.7 9 autocontrast 0.9 -",
)
LARGEST = {"shear_y": 0.3, "translate_x": 150 / 331 * SIDE, "translate_y": 150 / 331 * SIDE, "rotate": 30.0}  # bin 9
SIGNED = {"shear_y", "translate_x", "translate_y", "rotate", "brightness", "color", "contrast", "sharpness"}

# Operation, probability, and the range its amount is drawn from: the repository of miralles2025, in its order.
DERIVED: tuple[tuple[str, float, float, float], ...] = (
    ("invert", 0.008, 0, 0),
    ("contrast", 0.032, 1.0, 1.9),
    ("sharpness", 0.112, 1.0, 1.9),
    ("autocontrast", 0.2, 0, 0),
    ("equalize", 0.188, 0, 0),
    ("posterize", 0.012, 0, 7),  # the operation truncates to whole bits: 0 to 6
    ("color", 0.116, 1.0, 1.9),
    ("brightness", 0.092, 1.0, 1.9),
    ("solarize", 0.076, 0, 256),
)
DEGREES, SHIFT, SCALE, SHEAR = 10.0, 0.1 * SIDE, 1.1, 10.0  # the affine map's extremes: degrees, pixels, 0.9 to 1.1

DRAWS = 1 + 1 + 2 * 2 + 2 * len(DERIVED) + 5
"""Uniform numbers per picture: flip, sub-policy, (apply, sign) twice, (apply, amount) nine times, the affine map."""


def augment(x: Tensor, generator: Generator) -> Tensor:
    """Returns a random version of every square picture, in the same shape and type.

    x: (B, S * S) or (B, S * S, C) values 0..255, with C = 1 or 3. The only random numbers are (B, DRAWS) uniform ones
    from `generator`, drawn on its own device. So the same generator gives the same pictures on any device, except for
    float32 rounding on devices without float64.
    """
    import torch

    if not len(x):
        return x
    side = math.isqrt(x.shape[1])
    pictures = x.view(len(x), side * side, -1).transpose(1, 2).byte().reshape(len(x), -1, side, side)
    uniforms = torch.rand(len(x), DRAWS, generator=generator, device=generator.device, dtype=torch.float32)
    changed = policy(pictures.contiguous(), uniforms)
    return changed.flatten(2).transpose(1, 2).reshape(x.shape).to(x.dtype)


def policy(pictures: Tensor, uniforms: Tensor) -> Tensor:
    """Applies the policy to pictures (B, C, S, S) uint8; returns new ones. uniforms: (B, DRAWS) in [0, 1)."""
    # Decisions are made on the CPU, so that it waits for an accelerator once, not once per operation.
    draws = iter(uniforms.double().cpu().unbind(1))
    pictures = _flip(pictures, next(draws) < 0.5)
    sub = (next(draws) * len(SUB_POLICIES)).long()
    for half in (0, 1):
        applied, sign = next(draws), next(draws)
        for name, probability, bins in _operations(half):
            amount = _amount(name, bins[sub], 1 - 2 * (sign < 0.5).double())
            amount = amount * pictures.shape[-1] / SIDE if name.startswith("translate") else amount
            _apply(name, pictures, amount, applied < probability[sub])
    for name, probability, low, high in DERIVED:
        applied, amount = next(draws), low + (high - low) * next(draws)
        _apply(name, pictures, amount, applied < probability)
    return _random_affine(pictures, *(2 * draw - 1 for draw in draws))


def _flip(pictures: Tensor, chosen: Tensor) -> Tensor:
    return pictures.flip(3).where(chosen.to(pictures.device)[:, None, None, None], pictures)


def _apply(name: str, pictures: Tensor, amount: Tensor, chosen: Tensor) -> None:
    """Changes the chosen pictures in place. amount: (B,) float64, chosen: (B,) bool, both on the CPU."""
    from levelfield.tasks._images.ops import OPERATIONS

    rows = chosen.nonzero().squeeze(1)
    if len(rows):
        there = rows.to(pictures.device)
        pictures[there] = OPERATIONS[name](pictures[there], _real(amount[rows], pictures))


def _real(values: Tensor, pictures: Tensor) -> Tensor:
    """Moves values, of any shape, to the pictures' device, in float64 if that device supports it."""
    import torch

    return values.to(torch.float32 if pictures.device.type == "mps" else torch.float64).to(pictures.device)


@cache
def _operations(half: int) -> tuple[tuple[str, Tensor, Tensor], ...]:
    """Lists the first (half = 0) or second operations of the 25 sub-policies: name, probability and magnitude bin.

    Probabilities and bins are (25,). A probability is 0 where a sub-policy has another operation in this place, so that
    each picture gets at most one.
    """
    import torch

    words = [sub.split()[3 * half : 3 * half + 3] for sub in SUB_POLICIES]
    table = []
    for wanted in dict.fromkeys(name for name, _, _ in words):
        probability = [float(p) if name == wanted else 0.0 for name, p, _ in words]
        bins = [float(b) if name == wanted and b != "-" else 0.0 for name, _, b in words]
        table.append((wanted, torch.tensor(probability).double(), torch.tensor(bins).double()))
    return tuple(table)


def _amount(name: str, bins: Tensor, sign: Tensor) -> Tensor:
    """Converts magnitude bins 0..9 to the unit of an operation: (B,). bins, sign: (B,) float64."""
    part = bins / (BINS - 1) * (sign if name in SIGNED else 1)
    if name in ("brightness", "color", "contrast", "sharpness"):
        return 1 + 0.9 * part
    if name == "posterize":
        return 8 - (4 * part).round()
    if name == "solarize":
        return 255 - 255 * part
    return LARGEST.get(name, 0.0) * part


def _random_affine(pictures: Tensor, turn: Tensor, right: Tensor, down: Tensor, scale: Tensor, shear: Tensor) -> Tensor:
    """Applies a random affine map to each picture. The five parameters, (B,) each, are uniform in [-1, 1)."""
    from levelfield.tasks._images.ops import bilinear, rigid_maps

    shift = SHIFT * pictures.shape[-1] / SIDE
    moved = ((shift * right).round(), (shift * down).round())  # whole pixels
    maps = rigid_maps(pictures, DEGREES * turn, *moved, 1 + (SCALE - 1) * scale, SHEAR * shear)
    return bilinear(pictures, _real(maps, pictures))
