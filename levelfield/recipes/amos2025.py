"""Holds the recipes of Amos et al. (2025): scratch, pretraining and fine-tuning, behind tables 1 to 3.

    s4("image").pretrain.lr                     # 0.001
    transformer_rotary("image").shape.width     # 256
    transformer("listops", "causal").finetune   # table 1: the sizes of Tay et al. (2021)
    pythia("image").shape.block.parallel        # True: a GPT-NeoX decoder
    spade("image").recipe.assumed               # all: of SPADE (Zuo et al. 2022) nothing is printed

The paper refers to its full version (Amos et al. 2024, arXiv 2310.02980) for hyperparameters. Rates, batches of S4 and
poolings come from tables 4 to 6 of its appendix C; the rest from the configurations of the public code
(github.com/IdoAmos/not-from-scratch), which those tables override. `assumed` names what neither says: most sizes of the
larger rotary Transformers, and all but the search grid of their scratch runs, which therefore share the fine-tuning
recipe. Decay applies to biases, norms and embeddings too, as in that code; S4's own parameters follow its mixer.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Literal

from levelfield.recipes._amos2025 import (
    CODE,
    FULL,
    SCALES,
    SIGNALS,
    Phase,
    Pooling,
    Row,
    Schedule,
    Setting,
    compared,
    pretraining,
    recipe_of,
    recipes_of,
    shape_of,
)
from levelfield.recipes._amos2025 import REGRESSED as REGRESSED
from levelfield.recipes._amos2025 import S4Setting as S4Setting
from levelfield.recipes._amos2025 import s4 as s4
from levelfield.recipes._shape import Shape, known
from levelfield.spec import Block, Effort, Recipe


@dataclass(frozen=True)
class TransformerSetting(Setting):
    """The numbers of `Attention(heads, ..., block=block)`."""

    heads: int
    block: int | None  # 4,096 on PathX, 4,000 on Speech (transformer-{lra-pathx-small,sc}.yaml); else all is one block


@dataclass(frozen=True)
class SpadeSetting:
    """SPADE on one task, without its mixer: for SPADE(heads=, window=, dt_min=) below SPADE(state=0, ...).

    window: steps to either side that attention sees. dt_min: the smallest step of the state-space layer.
    """

    shape: Shape
    recipe: Recipe
    heads: int
    window: int
    dt_min: float


@dataclass(frozen=True)
class PythiaSetting:
    """Pythia 70M on one task, without its mixer: for Attention(heads, "per_head", rotary_width=) in a causal model."""

    shape: Shape
    recipe: Recipe
    heads: int
    rotary_width: int


def _attention(width: int, depth: int, feedforward: int, pooling: Pooling = "mean", head_hidden: int = 0) -> Shape:
    return Shape(width, depth, Block(feedforward=feedforward), pooling, head_hidden)


def _bidmc(lr: float) -> Row:
    """The rotary Transformer of BIDMC, by its rate of fine-tuning; the rate is halved every 100 epochs there."""
    shape = _attention(112, 4, 112, "max")
    return Row(shape, 8, 0.05, Phase(5e-4, 32, 500, 500), Phase(lr, 32, 500, 0, "linear"))


_ROTARY = {
    "listops": Row(_attention(512, 6, 2048), 8, 0.0, Phase(1e-3, 32, 100, 2000), Phase(1e-4, 32, 100, 2000)),
    "text": Row(
        _attention(512, 6, 2048, head_hidden=512), 8, 0.1, Phase(5e-4, 32, 32, 5000), Phase(5e-4, 32, 65, 2000)
    ),
    "retrieval": Row(compared(_attention(256, 6, 1024)), 4, 0.0, Phase(5e-3, 32, 32, 2000), Phase(5e-4, 32, 32, 5000)),
    "image": Row(
        _attention(256, 6, 512, head_hidden=256), 4, 0.05, Phase(1e-3, 50, 200, 2500), Phase(1e-3, 50, 200, 2000)
    ),
    "scifar": Row(
        _attention(256, 6, 512, head_hidden=256), 4, 0.05, Phase(1e-3, 50, 200, 2000), Phase(1e-3, 50, 200, 2000)
    ),
    "pathfinder": Row(_attention(256, 6, 512), 4, 0.0, Phase(1e-3, 32, 50, 2500), Phase(5e-4, 32, 200, 5000)),
    "pathx": Row(_attention(256, 6, 512, "max"), 4, 0.0, Phase(1e-3, 32, 200, 5000), Phase(5e-4, 32, 200, 5000)),
    **dict.fromkeys(
        ("speech", "speech_causal"),
        Row(
            *(_attention(128, 4, 128, "max"), 4, 0.05),
            *(Phase(1e-3, 16, 200, 2000), Phase(1e-3, 16, 200, 0, "plateau")),
        ),
    ),
    "bidmc_hr": _bidmc(5e-4),
    "bidmc_rr": _bidmc(5e-4),
    "bidmc_spo2": _bidmc(1e-4),
}

_TAY = {  # as pretrained by masking
    "listops": Row(_attention(512, 6, 2048), 8, 0.0, Phase(1e-3, 32, 100, 2000), Phase(1e-4, 32, 100, 2000)),
    "text": Row(
        _attention(512, 6, 2048, head_hidden=512), 8, 0.1, Phase(5e-4, 32, 32, 5000), Phase(1e-4, 32, 65, 2000)
    ),
    "retrieval": Row(compared(_attention(128, 4, 512)), 4, 0.0, Phase(5e-3, 32, 32, 2000), Phase(5e-4, 32, 32, 5000)),
    "image": Row(
        _attention(64, 3, 128, "max", head_hidden=64), 4, 0.0, Phase(1e-3, 32, 50, 2500), Phase(1e-3, 50, 200, 2000)
    ),
    "pathfinder": Row(_attention(128, 4, 128), 8, 0.0, Phase(1e-3, 32, 50, 2500), Phase(5e-4, 32, 200, 5000)),
    "pathx": Row(_attention(128, 4, 128, "max"), 4, 0.0, Phase(5e-4, 32, 200, 5000), Phase(5e-4, 32, 200, 5000)),
}
_TAY_CAUSAL: dict[str, tuple[float, float, Pooling]] = {  # rates of pretraining and fine-tuning, pooling
    "listops": (5e-4, 5e-4, "last"),
    "text": (1e-3, 1e-4, "mean"),
    "retrieval": (5e-3, 1e-3, "mean"),
    "image": (5e-3, 1e-3, "max"),
    "pathfinder": (1e-3, 1e-3, "mean"),
    "pathx": (1e-3, 5e-4, "max"),
}


@cache
def transformer_rotary(task: str, effort: Effort = "paper") -> TransformerSetting:
    """Tables 2 and 3, for Attention(heads, rotary="per_head"). Raises UserError for a task without a recipe."""
    row = _ROTARY[known(task, _ROTARY, "amos2025's rotary Transformer")]
    sizes = () if task in SIZES else ("width", "depth", "heads", "block.feedforward")
    where = SIZES.get(task, "not printed and in no configuration")
    shape = replace(row.shape, source=f"{FULL} (pooling); sizes: {where}", assumed=sizes)
    return _transformer(task, effort, replace(row, shape=shape), "4")


@cache
def transformer(
    task: str, direction: Literal["masked", "causal"] = "masked", effort: Effort = "paper"
) -> TransformerSetting:
    """Table 1, for Attention(heads) and summed sinusoids. Raises UserError for a task without a recipe."""
    row = _TAY[known(task, _TAY, "amos2025's Transformer")]
    shape = replace(row.shape, positions="sinusoidal", source=f"{FULL} table 4 (pooling); sizes: {CODE}/lra")
    row = replace(row, shape=shape)
    if direction == "causal":
        pretrain, finetune, pooling = _TAY_CAUSAL[task]
        phases = {"pretrain": replace(row.pretrain, lr=pretrain), "finetune": replace(row.finetune, lr=finetune)}
        row = replace(row, shape=replace(shape, pooling=pooling), **phases)
    return _transformer(task, effort, row, "4")


@cache
def spade(task: str, effort: Effort = "paper") -> SpadeSetting:
    """Table 2's SPADE, all of it assumed. Raises UserError for a task without a printed score.

    The paper quotes the scores and says what the model is: a frozen S4 layer beside local attention in the first block.
    The code of Zuo et al. (2022) has no configuration for these tasks. So sizes and recipe are those of the rotary
    Transformer, which is the same network but for its mixer.
    """
    like = transformer_rotary(known(task, _TAY, "SPADE"), effort)
    source = "nowhere printed; as the rotary Transformer of amos2025"
    unknown = ("width", "depth", "heads", "window", "pooling", "head_hidden", "block")
    left_out = ("source", "assumed", "enough")  # no paper ends training at a score
    numbers = tuple(field.name for field in fields(Recipe) if field.name not in left_out)
    return SpadeSetting(
        replace(like.shape, source=source, assumed=unknown),
        replace(like.scratch, source=source, assumed=numbers),
        heads=like.heads,
        window=128,
        dt_min=1e-4 if task == "pathx" else 1e-3,
    )


@cache
def pythia(task: str, effort: Effort = "paper") -> PythiaSetting:
    """Table 2's Pythia 70M from random weights, pooled as its configuration says. Raises UserError for other tasks.

    The architecture is that of the published checkpoint. The configurations are stubs with batches of one, and of the
    grid that was searched only rates of 5e-5 to 5e-4 and batches of 16 and 64 are legible, without their tasks.
    """
    pooling, epochs, warmup, schedule = _PYTHIA[known(task, _PYTHIA, "amos2025's Pythia")]
    shape = Shape(512, 6, Block(feedforward=2048, parallel=True), pooling, source=f"{CODE}/lra/llm (pooling)")
    shape = compared(shape) if task == "retrieval" else shape
    recipe = recipe_of(
        Phase(5e-4, 64, epochs, warmup, schedule),
        weight_decay=0.0,
        source=f"{CODE}/lra/llm (epochs, warm-up, schedule)",
        assumed=("lr", "batch", "clip", "validate_every"),
    )
    if effort == "paper":
        return PythiaSetting(shape, recipe, heads=8, rotary_width=16)
    scale = SCALES[effort]
    shape = scale.shape(shape)
    return PythiaSetting(shape, scale.recipe(recipe, 2 * scale.steps), heads=shape.width // 8, rotary_width=2)


_PYTHIA: dict[str, tuple[Pooling, int, int, Schedule]] = {  # pooling, epochs, warm-up, schedule
    "listops": ("mean", 200, 200, "cosine"),
    "text": ("last", 32, 5000, "constant"),
    "retrieval": ("mean", 20, 2500, "constant"),
    "image": ("mean", 200, 2000, "constant"),
    "pathfinder": ("last", 200, 2500, "constant"),
    "pathx": ("last", 200, 2500, "constant"),  # its configuration names another model
}
SIZES: dict[str, str] = {  # where the rotary Transformers' sizes are from
    **dict.fromkeys(("image", "scifar"), f"{CODE}/cifar/transformer-cifar.yaml"),
    **dict.fromkeys(SIGNALS[:2], f"{CODE}/sc/transformer-sc.yaml"),
    **dict.fromkeys(SIGNALS[2:], f"{CODE}/bidmc/roformer-bidmc.yaml"),
}
BLOCKS = {"pathx": 4096, "speech": 4000, "speech_causal": 4000}


def _transformer(task: str, effort: Effort, row: Row, table: str) -> TransformerSetting:
    """Scratch runs share the fine-tuning recipe: of theirs only the search grid is printed."""
    recipes = recipes_of(effort, row, table, assumed=("batch", "clip", "validate_every"))
    shape = shape_of(effort, row)
    heads = row.parts if shape.width == row.shape.width else min(row.parts, max(2, shape.width // 16))
    return TransformerSetting(shape, *recipes, *pretraining(task), heads, BLOCKS.get(task))
