"""Miralles-Gonzalez et al. (2025): the columns of tables 5 (Transformer), 6 (gMLP) and 7 (bounded convolution).

    conv("image")                # 6 layers of 128 -> 256 -> 128, lr 0.001, batch 64, 200 epochs
    conv("pathfinder", "minutes")

The paper prints sizes, rates, batches, decay and epochs. Appendix A.2 names the optimizer (AdamW) and says that the
rate falls on a training plateau and for the last tenth of the epochs; the other numbers are in no print. They are taken
from the public code that the paper grew from (github.com/pablomiralles22/long-transformers, branch lra-paper) and named
in `assumed`. Its mixed precision is left out: everything runs in float32 here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from levelfield.recipes._shape import Scale, Shape, known
from levelfield.spec import Block, Duration, Effort, Recipe

TASKS = ("listops", "image", "pathfinder", "text", "retrieval")
DENOISED = ("text", "retrieval")  # enriched by a summed denoising loss (protocols.DENOISE); the others by their data
ONE_SET_EPOCHS = 200  # of Pathfinder where only the hard set is trained on (table 5)
PAIR_HIDDEN = 512  # of the head over two documents
KERNELS = (5, 7, 11, 21, 31, 61)  # table 1

SCALES: dict[Effort, Scale] = {
    "smoke": Scale(width=16, depth=2, batch=8, steps=6, validations=2),
    "minutes": Scale(width=32, depth=3, batch=32, steps=1000),
    "overnight": Scale(width=64, depth=3, batch=32, steps=6_000, validations=30, patience=4),
    "hours": Scale(width=256, depth=10, batch=64, steps=5000),
}
FEWER = {("image", "minutes"): 400}  # steps, where one costs several times what it costs on the other tasks


@dataclass(frozen=True)
class Setting:
    """One model on one task, without its mixer."""

    shape: Shape
    recipe: Recipe


@dataclass(frozen=True)
class TransformerSetting(Setting):
    """The numbers of `Attention(heads, rotary="across_heads", rotary_half=...)`."""

    heads: int
    rotary_half: bool


@dataclass(frozen=True)
class GMLPSetting(Setting):
    """The numbers of `GMLP(hidden, channels, bound)`."""

    hidden: int
    channels: int
    bound: int


@dataclass(frozen=True)
class ConvSetting(Setting):
    """The numbers of `Conv(kernel, hidden, groups)`."""

    hidden: int
    groups: int


# task: width, depth, heads, feedforward, rotary_half, lr, batch, weight decay, epochs
_TABLE_5 = {
    "listops": (256, 6, 4, 512, False, 1e-4, 64, 0.05, 120),
    "image": (160, 10, 4, 320, True, 1e-3, 48, 0.05, 200),
    "pathfinder": (128, 6, 4, 256, False, 1e-3, 128, 0.05, 67),
    "text": (256, 8, 4, 512, True, 1e-3, 16, 0.01, 80),
    "retrieval": (128, 6, 4, 256, True, 1e-3, 64, 0.01, 60),
}
# task: depth, channels, longest sequence, dropout, lr, batch, weight decay, epochs
_TABLE_6 = {
    "listops": (6, 4, 2000, 0.0, 1e-3, 32, 0.1, 120),
    "image": (10, 2, 1024, 0.0, 1e-3, 48, 0.1, 200),
    "pathfinder": (6, 2, 1024, 0.0, 1e-3, 128, 0.1, 67),
    "text": (6, 2, 4096, 0.1, 1e-3, 16, 0.2, 80),
    "retrieval": (6, 2, 4096, 0.0, 3e-4, 64, 0.1, 60),
}
# task: depth, groups, lr, batch, weight decay, epochs
_TABLE_7 = {
    "listops": (6, 1, 1e-3, 32, 0.1, 120),
    "image": (6, 1, 1e-3, 64, 0.1, 200),
    "pathfinder": (6, 32, 1e-3, 128, 0.1, 67),
    "text": (4, 1, 1e-3, 16, 0.2, 80),
    "retrieval": (4, 1, 3e-4, 64, 0.1, 60),
}


@cache
def transformer(task: str, effort: Effort = "paper", *, enriched: bool = True) -> TransformerSetting:
    """Table 5. enriched=False is table 4's rotary Transformer without techniques: plain labels, and one Pathfinder set.

    The other models of table 4 differ in their positions alone (appendix A.2). Raises UserError for a task that the
    paper does not have.
    """
    width, depth, heads, hidden, half, lr, batch, decay, epochs = _TABLE_5[known(task, TASKS, "miralles2025")]
    if task == "pathfinder" and not enriched:
        epochs = ONE_SET_EPOCHS
    shape = _shape("5", width, depth, Block(feedforward=hidden, activation="relu", final_norm=False))
    shape = replace(shape, assumed=("block.final_norm",))
    recipe = _recipe("5 (Transformer)", lr, batch, decay, epochs)
    shape, recipe = scaled(task, effort, compared(task, shape), recipe)
    return TransformerSetting(shape, recipe, heads=min(heads, shape.width // 8), rotary_half=half)


@cache
def gmlp(task: str, effort: Effort = "paper") -> GMLPSetting:
    """Table 6. Raises UserError for a task the paper does not have."""
    depth, channels, bound, dropout, lr, batch, decay, epochs = _TABLE_6[known(task, TASKS, "miralles2025")]
    printed = _shape("6", 128, depth, Block(dropout=dropout, final_norm=False))
    printed = replace(printed, assumed=("block.prenorm", "block.final_norm"))
    shape, recipe = scaled(task, effort, compared(task, printed), _recipe("6 (gMLP)", lr, batch, decay, epochs))
    return GMLPSetting(shape, recipe, hidden=2 * shape.width, channels=channels, bound=bound)


@cache
def conv(task: str, effort: Effort = "paper") -> ConvSetting:
    """Table 7; the kernels are table 1's. Raises UserError for a task the paper does not have."""
    depth, groups, lr, batch, decay, epochs = _TABLE_7[known(task, TASKS, "miralles2025")]
    printed = _shape("7", 128, depth, Block(final_norm=False))
    printed = replace(printed, assumed=("block.prenorm", "block.final_norm"))
    shape, recipe = scaled(task, effort, compared(task, printed), _recipe("7 (convolution)", lr, batch, decay, epochs))
    groups = max(1, groups * shape.width // printed.width)
    return ConvSetting(shape, recipe, hidden=2 * shape.width, groups=groups)


def augmented(task: str) -> bool:
    """Pathfinder is enriched by two more sets, which are a setting of the task, and not augmented."""
    return task not in ("pathfinder", *DENOISED)


def compared(task: str, shape: Shape) -> Shape:
    """Retrieval's two documents side by side, [x, y], under a hidden layer: the public code's head, in no print."""
    if task != "retrieval":
        return shape
    return replace(shape, head_hidden=PAIR_HIDDEN, assumed=(*shape.assumed, "pair", "head_hidden"))


def _shape(table: str, width: int, depth: int, block: Block) -> Shape:
    return Shape(width=width, depth=depth, block=block, source=f"miralles2025 table {table}")


def retrained(source: str, lr: float, batch: int, weight_decay: float, epochs: int) -> Recipe:
    """Returns the optimizer and schedule that all models share (appendix A.2), with the numbers of one of them."""
    return Recipe(
        lr=lr,
        weight_decay=weight_decay,
        batch=batch,
        budget=Duration(epochs, "epochs"),
        warmup=Duration(0, "steps"),
        schedule="plateau",
        clip=None,
        validate_every=Duration(1, "epochs"),
        patience=20,
        plateau_patience=3,
        betas=(0.9, 0.98),
        source=source,
        assumed=("betas", "clip", "warmup", "decay_all", "validate_every", "patience", "plateau_patience"),
    )


def _recipe(table: str, lr: float, batch: int, weight_decay: float, epochs: int) -> Recipe:
    source = f"miralles2025 table {table}; AdamW and the schedule: appendix A.2"
    return retrained(source, lr, batch, weight_decay, epochs)


def scaled(task: str, effort: Effort, shape: Shape, recipe: Recipe, *, share: float = 1.0) -> tuple[Shape, Recipe]:
    """Returns the shape and recipe as they are at `paper`, and shrunk by SCALES below.

    share: the part of an effort's steps that is one phase of several, so that all arms of a task have equally many.
    """
    if effort == "paper":
        return shape, recipe
    scale = SCALES[effort]
    return scale.shape(shape), scale.recipe(recipe, int(share * FEWER.get((task, effort), scale.steps)))
