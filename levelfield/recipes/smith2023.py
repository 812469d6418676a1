"""Smith et al. (2023): S5 on five tasks of Long Range Arena, the row that miralles2025 compares its gMLP with.

    setting = s5("image")
    setting.state, setting.blocks      # 384, 3: for S5(...)
    setting.recipe.lr, setting.lr      # 0.0045 of everything, 0.001 of lambda and dt

The numbers are those of the public code (github.com/lindermanlab/S5, bin/run_experiments), which the paper's appendix
repeats. Decay is on every parameter but lambda, dt and, on some tasks, B. Not taken over: the rate and decay of dt on
Text and Retrieval, which are those of everything else there; the momentum of the batch norm's statistics; and a head
over two documents whose hidden layer is GELU (ReLU here). A warm-up of one epoch is written in steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from levelfield.recipes._shape import Shape, known
from levelfield.spec import Block, Duration, Recipe

Activation = Literal["half_glu1", "half_glu2", "full_glu"]
Readout = Literal["lecun_normal", "trunc_standard_normal"]


@dataclass(frozen=True)
class S5Setting:
    """The model and the recipe of one task, and the numbers of `S5(state=, blocks=, activation=, ...)`."""

    shape: Shape
    recipe: Recipe
    state: int
    blocks: int
    activation: Activation
    readout_init: Readout
    clip: bool
    lr: float
    drive_follows: bool


_NORMAL: Readout = "lecun_normal"
_STANDARD: Readout = "trunc_standard_normal"

# task: width, depth, state, blocks, activation, readout, dropout, clip
_MODELS: dict[str, tuple[int, int, int, int, Activation, Readout, float, bool]] = {
    "listops": (128, 8, 16, 8, "half_glu2", _NORMAL, 0.0, False),
    "text": (256, 6, 192, 12, "half_glu2", _NORMAL, 0.1, False),
    "retrieval": (128, 6, 256, 16, "half_glu1", _STANDARD, 0.0, False),
    "image": (512, 6, 384, 3, "half_glu1", _NORMAL, 0.1, True),
    "pathfinder": (192, 6, 256, 8, "half_glu1", _STANDARD, 0.05, False),
}
# task: lr, lr of lambda and dt, weight decay, whether B has the rate and decay of the rest, batch, epochs, warm-up
_RECIPES: dict[str, tuple[float, float, float, bool, int, int, int]] = {
    "listops": (3e-3, 1e-3, 0.04, True, 50, 40, 1920),
    "text": (4e-3, 1e-3, 0.07, False, 50, 35, 0),
    "retrieval": (2e-3, 1e-3, 0.05, False, 32, 20, 4597),
    "image": (4.5e-3, 1e-3, 0.07, True, 50, 250, 900),
    "pathfinder": (4.5e-3, 9e-4, 0.03, False, 64, 200, 2500),
}


@cache
def s5(task: str) -> S5Setting:
    """Table 1 of the paper (table 3 of miralles2025). Raises UserError for a task without a recipe here."""
    width, depth, state, blocks, activation, readout, dropout, clip = _MODELS[known(task, _MODELS, "smith2023")]
    lr, own, decay, follows, batch, epochs, warmup = _RECIPES[task]
    paired = task == "retrieval"
    shape = Shape(
        width,
        depth,
        Block("batch", dropout=dropout, final_norm=False),
        head_hidden=width if paired else 0,
        pair="interaction" if paired else "concat",
        source="S5/s5/seq_model.py",
    )
    recipe = Recipe(
        lr=lr,
        weight_decay=decay,
        batch=batch,
        budget=Duration(epochs, "epochs"),
        warmup=Duration(warmup, "steps"),
        schedule="cosine",
        clip=None,
        validate_every=Duration(1, "epochs"),
        decay_all=True,
        source="S5/bin/run_experiments",
        assumed=("validate_every", "patience"),
    )
    return S5Setting(
        shape,
        recipe,
        state=state,
        blocks=blocks,
        activation=activation,
        readout_init=readout,
        clip=clip,
        lr=own,
        drive_follows=follows,
    )
