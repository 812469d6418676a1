"""Ma et al. (2023): Mega on the six tasks of Long Range Arena, the row that amos2025 and miralles2025 compare with.

    setting = mega("image")
    setting.attention, setting.keys     # "laplace", 96: for Mega(...)
    setting.shape.block.norm            # "batch", before the layer; ListOps, Text and Retrieval have it after

The numbers are those of the public code (github.com/facebookresearch/mega, commit aeaa4b4: examples/mega/README.lra.md
and fairseq/models/lra/model.py), which the paper's appendix repeats. Decay is on every parameter there. Where batches
are summed over several backward passes or devices, `batch` is their sum. Not taken over: a warm-up of power two on
PathX, embeddings of N(0, 1 / width), maps of the feed-forward of N(0, 0.02^2), a head whose hidden layer is GELU (ReLU
here), and documents of Retrieval in the other order. amos2025 and miralles2025's tables quote the scores; the latter
also trains Mega anew under its own recipe, with softmax alone and unprinted rates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from levelfield.recipes._shape import Scale, Shape, known
from levelfield.spec import Block, Duration, Effort, Recipe

SCALES: dict[Effort, Scale] = {
    "smoke": Scale(width=16, depth=2, batch=8, steps=6, validations=2),
    "minutes": Scale(width=32, depth=2, batch=32, steps=800, lr=3e-3),
    "overnight": Scale(width=64, depth=2, batch=32, steps=6_000, lr=3e-3, validations=30, patience=4),
    "hours": Scale(width=128, depth=6, batch=64, steps=8000),
}


@dataclass(frozen=True)
class MegaSetting:
    """Mega on one task, without its mixer: for Mega(keys=, values=, attention=, bound=), with all else as it is.

    bound: steps that the biases reach as printed; a task that is cut later needs more, or a chunk.
    """

    shape: Shape
    recipe: Recipe
    keys: int
    values: int
    attention: Literal["softmax", "laplace"]
    bound: int


Norm = Literal["layer", "batch", "scale"]

# task: width, depth, keys, norm, dropout, bound, lr, weight decay, batch, steps, warm-up
_ROWS: dict[str, tuple[int, int, int, Norm, float, int, float, float, int, int, int]] = {
    "listops": (80, 6, 64, "layer", 0.1, 2002, 1e-3, 0.01, 64, 90_000, 3000),
    "text": (128, 4, 64, "scale", 0.1, 4002, 4e-3, 0.01, 50, 25_000, 10_000),
    "retrieval": (128, 6, 64, "scale", 0.1, 4002, 3e-3, 0.04, 64, 91_960, 10_000),
    "image": (160, 8, 96, "batch", 0.0, 1024, 1e-2, 0.02, 50, 180_000, 9000),
    "pathfinder": (128, 6, 64, "batch", 0.0, 1024, 1e-2, 0.01, 128, 250_000, 50_000),
    "pathx": (64, 4, 32, "batch", 0.0, 16_384, 1e-2, 0.01, 128, 125_000, 25_000),
}


@cache
def mega(task: str, effort: Effort = "paper") -> MegaSetting:
    """Table 2 of the paper (table 2 of amos2025 and of miralles2025). Raises UserError for a task it does not have."""
    row = _ROWS[known(task, _ROWS, "ma2023")]
    width, depth, keys, norm, dropout, bound, lr, decay, batch, steps, warmup = row
    pictures = norm == "batch"
    block = Block(norm, pictures, 2 * width, "silu", dropout, final_norm=pictures, eps=1e-5)
    shape = Shape(width, depth, block, head_hidden=2 * width, source="mega/fairseq/models/lra/model.py")
    recipe = Recipe(
        lr=lr,
        weight_decay=decay,
        batch=batch,
        budget=Duration(steps, "steps"),
        warmup=Duration(warmup, "steps"),
        schedule="linear",
        clip=1.0,
        validate_every=Duration(1, "epochs"),
        betas=(0.9, 0.98),
        decay_all=True,
        source="mega/examples/mega/README.lra.md",
        assumed=("validate_every", "patience"),
    )
    if effort != "paper":
        scale = SCALES[effort]
        shape, recipe = scale.shape(shape), scale.recipe(recipe, scale.steps)
        keys = min(keys, shape.width)
    return MegaSetting(
        shape,
        recipe,
        keys=keys,
        values=2 * shape.width,
        attention="laplace" if pictures else "softmax",
        bound=bound,
    )
