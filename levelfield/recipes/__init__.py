"""Holds the hyperparameters of the papers as values, one file per paper.

    from levelfield.recipes import amos2025, amos2025_figure2, ma2023, miralles2025

    setting = miralles2025.conv("listops", "paper")
    setting.recipe.lr, setting.recipe.source          # 0.001, "miralles2025 table 7 (convolution); ..."
    setting.recipe.assumed                            # what nobody printed: ("betas", "clip", ...)
    setting.shape.model(Conv(5, setting.hidden, setting.groups), "conv5")

A setting knows every number but no mixer: whoever puts the mixer in, a study, sees all that the arms share.
"""

from __future__ import annotations

from levelfield.recipes._shape import Shape as Shape
from levelfield.recipes._shape import known as known
