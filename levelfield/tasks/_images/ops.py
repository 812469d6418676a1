"""Operations on batches of pictures, equal to Pillow's on each picture.

    brighter = brightness(pictures, amount=torch.full((len(pictures),), 1.5, dtype=torch.float64))

Every operation takes pictures (B, C, H, W) uint8, with C = 1 (gray) or 3 (RGB), and one amount per picture (B,), and
returns new pictures of the same shape. Results are integers after every operation, rounded or truncated as in Pillow:
with fractions a chain of operations would drift from the published policy. Arithmetic is in the type of the amounts.
float64 gives Pillow's values exactly; float32, for devices without float64, is within one gray level of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    Operation = Callable[[Tensor, Tensor], Tensor]


def luma(pictures: Tensor) -> Tensor:
    """Converts to ITU-R 601 gray in Pillow's integers: (B, C, H, W) -> (B, 1, H, W). Gray pictures are unchanged."""
    if pictures.shape[1] == 1:
        return pictures
    red, green, blue = pictures.int().unbind(1)
    return ((red * 19595 + green * 38470 + blue * 7471 + 2**15) >> 16).byte()[:, None]


def _per_picture(amount: Tensor) -> Tensor:
    return amount.view(-1, 1, 1, 1)


# Tone.


def invert(pictures: Tensor, amount: Tensor) -> Tensor:
    return 255 - pictures


def posterize(pictures: Tensor, amount: Tensor) -> Tensor:
    """Keeps the highest `amount` bits; 0 bits give a black picture."""
    mask = (255 << (8 - amount.int())) & 255
    return pictures & _per_picture(mask.byte())


def solarize(pictures: Tensor, amount: Tensor) -> Tensor:
    """Inverts the values that are not below the threshold `amount`."""
    return pictures.where(pictures.to(amount.dtype) < _per_picture(amount), 255 - pictures)


def autocontrast(pictures: Tensor, amount: Tensor) -> Tensor:
    """Stretches each channel's range to 0..255."""
    values = pictures.to(amount.dtype)
    low, high = values.amin((2, 3), keepdim=True), values.amax((2, 3), keepdim=True)
    scale = values.new_tensor(255.0) / (
        high - low
    )  # a Python number over a tensor would multiply by a rounded reciprocal
    stretched = (values * scale + -low * scale).clamp(0, 255)
    return stretched.where(high > low, values).byte()


def equalize(pictures: Tensor, amount: Tensor) -> Tensor:
    """Flattens each channel's histogram; a channel with (nearly) one value is unchanged."""
    channels = pictures.flatten(0, 1).flatten(1).long()  # (B * C, H * W)
    counts = channels.new_zeros(len(channels), 256)
    counts.scatter_add_(1, channels, channels.new_ones(channels.shape))
    brightest = counts.gather(1, channels.amax(1, keepdim=True))
    step = (channels.shape[1] - brightest) // 255
    below = counts.cumsum(1) - counts
    table = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    return table.gather(1, channels).where(step > 0, channels).byte().view_as(pictures)


# Enhancement: interpolates between a degenerate picture (factor 0) and the picture (factor 1), and extrapolates.


def _blend(degenerate: Tensor, pictures: Tensor, factor: Tensor) -> Tensor:
    """Interpolates in float32 and truncates, as Pillow's blend does. factor: (B,)."""
    base = degenerate.float()
    return (base + _per_picture(factor.float()) * (pictures.float() - base)).clamp(0, 255).byte()


def brightness(pictures: Tensor, amount: Tensor) -> Tensor:
    return _blend(pictures.new_zeros(()), pictures, amount)


def contrast(pictures: Tensor, amount: Tensor) -> Tensor:
    """Moves values away from the rounded mean of the gray picture."""
    pixels = pictures.shape[2] * pictures.shape[3]
    total = luma(pictures).long().sum((1, 2, 3))
    return _blend(_per_picture((2 * total + pixels) // (2 * pixels)), pictures, amount)


def color(pictures: Tensor, amount: Tensor) -> Tensor:
    """Moves colours away from gray; a gray picture is unchanged."""
    return _blend(luma(pictures), pictures, amount)


def sharpness(pictures: Tensor, amount: Tensor) -> Tensor:
    """Moves values away from a smoothed picture: 3 x 3 weights of 1 around 5, over 13. The border is not smoothed."""
    wide = pictures.int()
    rows = wide[..., :-2, :] + wide[..., 1:-1, :] + wide[..., 2:, :]
    box = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    smooth = pictures.clone()
    smooth[..., 1:-1, 1:-1] = ((2 * (box + 4 * wide[..., 1:-1, 1:-1]) + 13) // 26).byte()
    return _blend(smooth, pictures, amount)


# Geometry: a map (B, 2, 3) takes the centre of an output pixel (x, y) to a point of the input; outside it is black.


def nearest(pictures: Tensor, maps: Tensor) -> Tensor:
    """Samples the input pixel that contains the point, found in 16.16 fixed point as in Pillow. maps: (B, 2, 3)."""
    import torch

    height, width = pictures.shape[2:]
    start = _fixed(maps[..., 2] + maps[..., 0] * 0.5 + maps[..., 1] * 0.5)[..., None, None]  # (B, 2, 1, 1)
    along_x, along_y = (_fixed(maps[..., i])[..., None, None] for i in (0, 1))
    x = torch.arange(width, device=pictures.device)
    y = torch.arange(height, device=pictures.device)[:, None]
    column, row = ((start + along_y * y + along_x * x) >> 16).unbind(1)  # (B, H, W) each
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    return _pick(pictures, column, row) * inside[:, None]


def bilinear(pictures: Tensor, maps: Tensor) -> Tensor:
    """Interpolates between the four pixels around the point, and truncates to an integer. maps: (B, 2, 3)."""
    import torch

    height, width = pictures.shape[2:]
    x = torch.arange(width, device=pictures.device).to(maps.dtype) + 0.5
    y = (torch.arange(height, device=pictures.device).to(maps.dtype) + 0.5)[:, None]
    point = maps[..., 0, None, None] * x + maps[..., 1, None, None] * y + maps[..., 2, None, None]  # (B, 2, H, W)
    px, py = point.unbind(1)
    inside = (px >= 0) & (px < width) & (py >= 0) & (py < height)
    left, top = (px - 0.5).floor(), (py - 0.5).floor()
    dx, dy = (px - 0.5 - left)[:, None], (py - 0.5 - top)[:, None]
    column, row = left.long(), top.long()
    corners = (_pick(pictures, column + i, row + j).to(maps.dtype) for j in (0, 1) for i in (0, 1))
    upper, lower = _between(next(corners), next(corners), dx), _between(next(corners), next(corners), dx)
    return _between(upper, lower, dy).byte() * inside[:, None]


def _between(near: Tensor, far: Tensor, share: Tensor) -> Tensor:
    """Computes near + (far - near) * share in the memory of `far`, since new memory costs more than the arithmetic."""
    return far.sub_(near).mul_(share).add_(near)


def _fixed(value: Tensor) -> Tensor:
    return (value * 65536 + 0.5).floor().long()


def _pick(pictures: Tensor, column: Tensor, row: Tensor) -> Tensor:
    """Gathers the pixels at column, row, (B, H, W) each; indices outside the picture are clamped to its border."""
    batch, channels, height, width = pictures.shape
    flat = (row.clamp(0, height - 1) * width + column.clamp(0, width - 1)).view(batch, 1, -1)
    return pictures.view(batch, channels, -1).gather(2, flat.expand(-1, channels, -1)).view_as(pictures)


def _maps(amount: Tensor, row: int, column: int, entry: Tensor) -> Tensor:
    """Makes identity maps (B, 2, 3) with one entry (B,) replaced."""
    maps = amount.new_zeros(len(amount), 2, 3)
    maps[:, 0, 0] = maps[:, 1, 1] = 1
    maps[:, row, column] = entry
    return maps


def shear_x(pictures: Tensor, amount: Tensor) -> Tensor:
    """Shifts each row by `amount` more pixels to the left than the row above it."""
    return nearest(pictures, _maps(amount, 0, 1, amount))


def shear_y(pictures: Tensor, amount: Tensor) -> Tensor:
    """Shifts each column by `amount` more pixels upwards than the column to its left."""
    return nearest(pictures, _maps(amount, 1, 0, amount))


def translate_x(pictures: Tensor, amount: Tensor) -> Tensor:
    """Shifts the picture by `amount` whole pixels to the right."""
    return nearest(pictures, _maps(amount, 0, 2, -amount.trunc()))


def translate_y(pictures: Tensor, amount: Tensor) -> Tensor:
    """Shifts the picture by `amount` whole pixels downwards."""
    return nearest(pictures, _maps(amount, 1, 2, -amount.trunc()))


def rotate(pictures: Tensor, amount: Tensor) -> Tensor:
    """Rotates the picture by `amount` degrees counter-clockwise around its centre."""
    zero = amount.new_zeros(amount.shape)
    return nearest(pictures, rigid_maps(pictures, -amount, right=zero, down=zero, scale=zero + 1, shear=zero))


def rigid_maps(pictures: Tensor, angle: Tensor, right: Tensor, down: Tensor, scale: Tensor, shear: Tensor) -> Tensor:
    """Makes maps (B, 2, 3) that shear along x, scale and rotate around the centre, and then shift.

    angle and shear: degrees, clockwise as the picture is seen. right and down: pixels. All five are (B,). A map takes
    an output point p to centre + L^-1 (p - centre - shift), where L = scale * rotation(angle) * [[1, -tan(shear)], [0,
    1]].
    """
    import torch

    height, width = pictures.shape[2:]
    slope, cos, sin = shear.deg2rad().tan(), angle.deg2rad().cos(), angle.deg2rad().sin()
    xx, xy = (cos - slope * sin) / scale, (sin + slope * cos) / scale
    yx, yy = -sin / scale, cos / scale
    cx, cy = width / 2, height / 2
    x0 = cx - xx * (cx + right) - xy * (cy + down)
    y0 = cy - yx * (cx + right) - yy * (cy + down)
    return torch.stack([torch.stack([xx, xy, x0], 1), torch.stack([yx, yy, y0], 1)], 1)


OPERATIONS: Mapping[str, Operation] = {
    "invert": invert,
    "contrast": contrast,
    "sharpness": sharpness,
    "autocontrast": autocontrast,
    "equalize": equalize,
    "posterize": posterize,
    "color": color,
    "brightness": brightness,
    "solarize": solarize,
    "shear_x": shear_x,
    "shear_y": shear_y,
    "translate_x": translate_x,
    "translate_y": translate_y,
    "rotate": rotate,
}
