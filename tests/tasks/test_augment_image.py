"""The CIFAR augmentation against Pillow: every operation alone, sub-policies worked by hand, and the whole policy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image as Pillow
from PIL import ImageEnhance, ImageOps
from torch import Tensor

from levelfield.tasks._images.augment import DERIVED, DRAWS, SUB_POLICIES, augment, policy
from levelfield.tasks._images.ops import OPERATIONS, bilinear, luma, rigid_maps
from levelfield.tasks.image import Image
from levelfield.tasks.scifar import SCifar

Picture = Pillow.Image


def samples(channels: int, count: int = 24) -> Tensor:
    """Noise, noise in a narrow range, gradients, few colours, and flat pictures: (count, channels, 32, 32) uint8."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:32, :32]
    kinds: list[Callable[[], np.ndarray]] = [
        lambda: rng.integers(0, 256, (32, 32)),
        lambda: rng.integers(90, 90 + rng.integers(2, 60), (32, 32)),
        lambda: (rng.uniform(0, 4) * x + rng.uniform(0, 4) * y) % 256,
        lambda: rng.choice(rng.integers(0, 256, 3), (32, 32)),
        lambda: np.full((32, 32), rng.integers(0, 256)),
        lambda: np.where((x - 16) ** 2 + (y - 16) ** 2 < rng.integers(20, 200), 255, rng.integers(0, 256)),
    ]
    pictures = [[kinds[(i + c // 2) % len(kinds)]() for c in range(channels)] for i in range(count)]
    return torch.from_numpy(np.array(pictures).astype(np.uint8))


def to_pillow(picture: Tensor) -> Picture:
    """(C, H, W) uint8."""
    array = picture.permute(1, 2, 0).numpy()
    return Pillow.fromarray(array[..., 0] if len(picture) == 1 else array)


def from_pillow(picture: Picture) -> Tensor:
    array = torch.from_numpy(np.array(picture))
    return array[None] if array.dim() == 2 else array.permute(2, 0, 1)


def affine(picture: Picture, data: tuple[float, ...], resample: Pillow.Resampling) -> Picture:
    return picture.transform(picture.size, Pillow.Transform.AFFINE, data, resample)


def nearest(picture: Picture, *data: float) -> Picture:
    return affine(picture, data, Pillow.Resampling.NEAREST)


def posterize(picture: Picture, bits: float) -> Picture:
    """Newer Pillows refuse 0 bits; older ones, and the original policy, turn the picture black."""
    return ImageOps.posterize(picture, int(bits)) if bits >= 1 else picture.point(lambda value: 0)


PILLOW: dict[str, Callable[[Picture, float], Picture]] = {
    "invert": lambda p, a: ImageOps.invert(p),
    "contrast": lambda p, a: ImageEnhance.Contrast(p).enhance(a),
    "sharpness": lambda p, a: ImageEnhance.Sharpness(p).enhance(a),
    "autocontrast": lambda p, a: ImageOps.autocontrast(p),
    "equalize": lambda p, a: ImageOps.equalize(p),
    "posterize": posterize,
    "color": lambda p, a: ImageEnhance.Color(p).enhance(a),
    "brightness": lambda p, a: ImageEnhance.Brightness(p).enhance(a),
    "solarize": lambda p, a: ImageOps.solarize(p, a),  # type: ignore[arg-type]
    "shear_x": lambda p, a: nearest(p, 1, a, 0, 0, 1, 0),
    "shear_y": lambda p, a: nearest(p, 1, 0, 0, a, 1, 0),
    "translate_x": lambda p, a: nearest(p, 1, 0, -int(a), 0, 1, 0),
    "translate_y": lambda p, a: nearest(p, 1, 0, 0, 0, 1, -int(a)),
    "rotate": lambda p, a: p.rotate(a),
}
RANGES = {"posterize": (0, 8), "solarize": (0, 256), "rotate": (-30, 30)} | dict.fromkeys(
    ("translate_x", "translate_y"), (-15, 15)
)
FACTORS = ("contrast", "sharpness", "color", "brightness")


@pytest.mark.parametrize("channels", [1, 3], ids=["gray", "colour"])
@pytest.mark.parametrize("name", list(OPERATIONS))
def test_every_operation_is_pillows_exactly(name: str, channels: int) -> None:
    pictures = samples(channels).repeat(4, 1, 1, 1)
    low, high = RANGES.get(name, (0.1, 1.9) if name in FACTORS else (-0.3, 0.3))
    amount = low + (high - low) * torch.rand(len(pictures), generator=torch.Generator().manual_seed(1)).double()
    amount[:5] = torch.tensor([low, 1, 0, 8, high - 1e-9]).clamp(low, high)
    amount = amount.trunc() if name == "posterize" else amount
    got = OPERATIONS[name](pictures, amount)
    for picture, a, result in zip(pictures, amount.tolist(), got):
        assert torch.equal(result, from_pillow(PILLOW[name](to_pillow(picture), a))), a


@pytest.mark.parametrize("name", sorted(set(OPERATIONS) - {"shear_x", "shear_y", "rotate"}))
def test_single_precision_is_within_one_level(name: str) -> None:
    """For devices without float64; there a shear or a rotation may take the neighbour of a pixel on the boundary."""
    pictures = samples(3)
    amount = torch.linspace(1, 1.9, len(pictures), dtype=torch.float64)
    apart = OPERATIONS[name](pictures, amount).int() - OPERATIONS[name](pictures, amount.float()).int()
    assert apart.abs().max() <= 1


@pytest.mark.parametrize("channels", [1, 3], ids=["gray", "colour"])
def test_the_random_affine_map_is_pillows_exactly(channels: int) -> None:
    """The map is worked out here by composing and inverting matrices, not by the formula."""
    pictures = samples(channels)
    draw = np.random.default_rng(2).uniform(-1, 1, (len(pictures), 5)) * [10, 3, 3, 0.1, 10]
    draw[:, 1:3] = draw[:, 1:3].round()
    columns = torch.from_numpy(draw).unbind(1)
    got = bilinear(pictures, rigid_maps(pictures, columns[0], columns[1], columns[2], 1 + columns[3], columns[4]))
    for picture, (angle, right, down, grow, shear), result in zip(pictures, draw, got):
        c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        turn = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
        slant = np.array([[1, -math.tan(math.radians(shear)), 0], [0, 1, 0], [0, 0, 1]])
        middle, move = np.eye(3), np.eye(3)
        middle[:2, 2], move[:2, 2] = 16, (right, down)
        whole = move @ middle @ turn @ slant @ np.diag([1 + grow, 1 + grow, 1]) @ np.linalg.inv(middle)
        data = tuple(np.linalg.inv(whole)[:2].flatten().tolist())
        want = from_pillow(affine(to_pillow(picture), data, Pillow.Resampling.BILINEAR))
        apart = (result.int() - want.int()).abs()
        assert apart.max() <= 1 and (apart > 0).float().mean() < 0.01  # the map's last digit, cut off to an integer


def test_nothing_drawn_changes_nothing() -> None:
    pictures = samples(3)
    assert torch.equal(policy(pictures, still(len(pictures))), pictures)


def still(count: int) -> Tensor:
    """Uniform numbers (count, DRAWS) with which no operation is applied and the affine map is the identity."""
    uniforms = torch.full((count, DRAWS), 0.9999)
    uniforms[:, -5:] = 0.5
    return uniforms


@pytest.mark.parametrize(
    ("index", "up", "steps"),
    [
        (1, True, [("rotate", 30 * 2 / 9), ("translate_x", 14)]),
        (1, False, [("rotate", -30 * 2 / 9), ("translate_x", -14)]),
        (2, True, [("sharpness", 1.1), ("sharpness", 1.3)]),
        (2, False, [("sharpness", 0.9), ("sharpness", 0.7)]),
        (3, True, [("shear_y", 0.8 / 3), ("translate_y", 14)]),
        (5, False, [("shear_y", -0.7 / 3), ("posterize", 5)]),
        (10, False, [("color", 0.3), ("translate_x", -12)]),
        (14, True, [("solarize", 255 * 7 / 9)]),
        (19, True, [("brightness", 1.3), ("color", 1.0)]),
        (22, True, [("autocontrast", 0), ("solarize", 170)]),
        (23, True, [("equalize", 0), ("invert", 0)]),
    ],
)
def test_sub_policies_worked_by_hand(index: int, up: bool, steps: list[tuple[str, float]]) -> None:
    """What table 7 of Cubuk et al. 2019 says, with the magnitudes that bins 0..9 stand for on a 32 x 32 picture."""
    pictures = samples(3)
    uniforms = still(len(pictures))
    uniforms[:, 1] = (index + 0.5) / 25
    uniforms[:, [2, 4]] = 0.0
    uniforms[:, [3, 5]] = 0.75 if up else 0.25
    for picture, result in zip(pictures, policy(pictures, uniforms)):
        want = to_pillow(picture)
        for name, amount in steps:
            want = PILLOW[name](want, amount)
        assert torch.equal(result, from_pillow(want))


def chain(picture: Picture, draws: list[float]) -> Picture:
    """The policy up to the affine map, one picture and one operation at a time."""
    draws = list(draws)
    if draws.pop(0) < 0.5:
        picture = ImageOps.mirror(picture)
    words = SUB_POLICIES[int(draws.pop(0) * 25)].split()
    for name, probability, bin_ in (words[:3], words[3:]):
        applied, sign = draws.pop(0), 1 if draws.pop(0) >= 0.5 else -1
        level = 0 if bin_ == "-" else int(bin_)
        amount = {
            "rotate": sign * 30 * level / 9,
            "shear_y": sign * 0.3 * level / 9,
            "posterize": 8 - round(level / 2.25),
            "solarize": 255 - 255 / 9 * level,
        } | dict.fromkeys(("translate_x", "translate_y"), sign * 150 / 331 * 32 * level / 9)
        if applied < float(probability):
            picture = PILLOW[name](picture, amount.get(name, 1 + sign * 0.1 * level))
    for name, probability, low, high in DERIVED:
        applied, amount_ = draws.pop(0), low + (high - low) * draws.pop(0)
        if applied < probability:
            picture = PILLOW[name](picture, amount_)
    return picture


@pytest.mark.parametrize("channels", [1, 3], ids=["gray", "colour"])
def test_the_policy_is_pillows_picture_by_picture(channels: int) -> None:
    """Up to one gray level: a factor 1 + 0.3 may be written 1.3, which is another number in its last digit."""
    pictures = samples(channels, count=300)
    uniforms = torch.rand(len(pictures), DRAWS, generator=torch.Generator().manual_seed(3))
    uniforms[:, -5:] = 0.5
    got = policy(pictures, uniforms)
    want = torch.stack([from_pillow(chain(to_pillow(p), row)) for p, row in zip(pictures, uniforms.double().tolist())])
    exact = (got == want).flatten(1).all(1)
    assert exact.float().mean() > 0.97
    assert (got.int() - want.int()).abs().flatten(1).max(1).values.le(1).float().mean() > 0.99
    assert (got != pictures).flatten(1).any(1).float().mean() > 0.7  # and most pictures did change


def test_the_derived_operations_are_the_published_ones() -> None:
    """Order, probabilities and ranges of the policy in the code of miralles2025."""
    assert [name for name, *_ in DERIVED] == (
        ["invert", "contrast", "sharpness", "autocontrast", "equalize", "posterize", "color", "brightness", "solarize"]
    )
    assert [p for _, p, *_ in DERIVED] == [0.008, 0.032, 0.112, 0.2, 0.188, 0.012, 0.116, 0.092, 0.076]
    assert all((low, high) == (1.0, 1.9) for name, _, low, high in DERIVED if name in FACTORS)


def test_the_sub_policies_use_what_the_paper_says() -> None:
    """25 pairs; the sum of all probabilities in the printed table; one operation that never fires."""
    steps = [sub.split()[i : i + 3] for sub in SUB_POLICIES for i in (0, 3)]
    assert len(steps) == 50 and {name for name, *_ in steps} <= set(OPERATIONS) - {"shear_x"}
    assert sum(p == "0.0" for _, p, _ in steps) == 1


def test_posterize_to_nothing_is_black() -> None:
    """The hazard of the published policy: `posterize` draws 0 of 8 bits in one case of seven."""
    uniforms = still(24)
    place = 6 + 2 * [name for name, *_ in DERIVED].index("posterize")
    uniforms[:, place], uniforms[:, place + 1] = 0.0, 0.1
    assert not policy(samples(3), uniforms).any()
    uniforms[:, place + 1] = 0.9  # 6 bits
    assert torch.equal(policy(samples(3), uniforms), samples(3) & 0b11111100)


def test_pictures_of_a_batch_do_not_see_each_other() -> None:
    pictures, uniforms = samples(3), torch.rand(24, DRAWS, generator=torch.Generator().manual_seed(4))
    alone = torch.cat([policy(pictures[i : i + 1], uniforms[i : i + 1]) for i in range(24)])
    assert torch.equal(policy(pictures, uniforms), alone)


@pytest.mark.parametrize("task", [Image(), Image(tokenised=True), SCifar()], ids=["gray", "tokens", "colour"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64], ids=str)
def test_tasks_augment_what_they_store(task: Image | SCifar, dtype: torch.dtype) -> None:
    shape = {"scifar": (16, 1024, 3)}.get(task.name, (16, 1024) if task.input == Image(True).input else (16, 1024, 1))
    x = torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(5)).to(dtype)
    before, lengths = x.clone(), torch.full((16,), 1024)
    first, again, other = (task.augment(x, lengths, torch.Generator().manual_seed(s)) for s in (6, 6, 7))
    assert first.shape == x.shape and first.dtype == dtype and torch.equal(x, before)
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert task.augment(x[:0], lengths[:0], torch.Generator()).shape == x[:0].shape
    assert "AutoAugment" in task.augmentation


def test_rows_stay_rows() -> None:
    """A flip through `augment` reverses each row of 32 steps, in every channel."""
    x = torch.arange(1024 * 3).view(1, 1024, 3).remainder(251)
    chosen = [seed for seed in range(400) if quiet(seed)]
    assert chosen, "no seed draws a flip alone"
    got = augment(x, torch.Generator().manual_seed(chosen[0])).view(32, 32, 3)
    want = bilinear(x.view(1, 32, 32, 3).permute(0, 3, 1, 2).byte().flip(3), maps(chosen[0]))[0].permute(1, 2, 0)
    assert torch.equal(got, want.long())


def draws(seed: int) -> Tensor:
    return torch.rand(1, DRAWS, generator=torch.Generator().manual_seed(seed))[0].double()


def quiet(seed: int) -> bool:
    """Whether the seed draws a flip and an affine map and nothing else."""
    u = draws(seed)
    fired = [u[6 + 2 * i] < p for i, (_, p, *_) in enumerate(DERIVED)]
    return bool(u[0] < 0.5 and u[2] > 0.9 and u[4] > 0.9 and not any(fired))


def maps(seed: int) -> Tensor:
    turn, right, down, scale, shear = (2 * draws(seed)[-5:] - 1)[:, None]
    pictures = torch.zeros(1, 3, 32, 32)
    return rigid_maps(pictures, 10 * turn, (3.2 * right).round(), (3.2 * down).round(), 1 + 0.1 * scale, 10 * shear)


def test_gray_first_or_last() -> None:
    """What Image's docstring says: these operations commute with taking gray; the others do not."""
    pictures = samples(3, count=60)[::6]  # noise in each channel
    for name, amount in (
        ("invert", 0.0),
        ("brightness", 0.6),
        ("rotate", 20.0),
        ("shear_y", 0.2),
        ("translate_x", 9.0),
    ):
        a = torch.full((len(pictures),), amount, dtype=torch.float64)
        apart = luma(OPERATIONS[name](pictures, a)).int() - OPERATIONS[name](luma(pictures), a).int()
        assert apart.abs().max() <= 1, name
    for name, amount in (("equalize", 0.0), ("solarize", 128.0), ("posterize", 2.0)):
        a = torch.full((len(pictures),), amount, dtype=torch.float64)
        apart = luma(OPERATIONS[name](pictures, a)).int() - OPERATIONS[name](luma(pictures), a).int()
        assert apart.abs().float().mean() > 3, name
