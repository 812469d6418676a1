"""Holds the recipes of Amos et al. (2025): scratch, pretraining and fine-tuning, behind tables 1 to 3.

    s4("image").pretrain.lr                     # 0.001
    transformer_rotary("image").shape.width     # 256
    transformer("listops", "causal").finetune   # table 1: the sizes of Tay et al. (2021)

The paper refers to its full version (Amos et al. 2024, arXiv 2310.02980) for hyperparameters. Rates, batches of S4 and
poolings come from tables 4 to 6 of its appendix C; the rest from the configurations of the public code
(github.com/IdoAmos/not-from-scratch), which those tables override. `assumed` names what neither says: most sizes of the
larger rotary Transformers, and all but the search grid of their scratch runs, which therefore share the fine-tuning
recipe. Decay applies to biases, norms and embeddings too, as in that code; S4's own parameters follow its mixer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from levelfield.recipes._shape import Scale, Shape, known
from levelfield.spec import Block, Duration, Effort, Recipe

Pooling = Literal["mean", "max", "last"]
Schedule = Literal["constant", "linear", "cosine", "plateau"]

SIGNALS = ("speech", "speech_causal", "bidmc_hr", "bidmc_rr", "bidmc_spo2")  # table 3's, with sCIFAR
# Share of steps hidden (section 2; for signals, the configurations); 0.5 for pictures.
RATIOS = {"listops": 0.1, "text": 0.15, "retrieval": 0.15} | dict.fromkeys(SIGNALS, 0.25)
REGRESSED = ("image", "scifar", *SIGNALS)  # pretrained on the normalised value (L1); the others on symbols

SCALES: dict[Effort, Scale] = {
    "smoke": Scale(width=16, depth=2, batch=8, steps=6, validations=2),
    "minutes": Scale(width=64, depth=2, batch=32, steps=800, lr=1e-3),
    "overnight": Scale(width=64, depth=2, batch=64, steps=20_000, lr=1e-3, validations=40, patience=6),
    "hours": Scale(width=128, depth=6, batch=64, steps=8000),
}


@dataclass(frozen=True)
class Setting:
    """One model on one task, without its mixer: shape, phases, share of steps hidden and loss of pretraining."""

    shape: Shape
    scratch: Recipe
    pretrain: Recipe
    finetune: Recipe
    ratio: float
    loss: Literal["ce", "l1"]


@dataclass(frozen=True)
class TransformerSetting(Setting):
    """The numbers of `Attention(heads, ..., block=block)`."""

    heads: int
    block: int | None  # 4,096 on PathX, 4,000 on Speech (transformer-{lra-pathx-small,sc}.yaml); else all is one block


@dataclass(frozen=True)
class S4Setting(Setting):
    """The numbers of `S4(copies=..., dt_min=..., lr=..., state=...)`: sets of (A, B, P), smallest step, rate of A and
    B, N."""

    copies: int
    dt_min: float
    lr: float
    state: int


@dataclass(frozen=True)
class _Phase:
    """One printed phase; warm-up in steps."""

    lr: float
    batch: int
    epochs: int
    warmup: int
    schedule: Schedule = "constant"


@dataclass(frozen=True)
class _Row:
    """One printed model. parts: attention heads, or sets of S4's (A, B, P). state: S4's N."""

    shape: Shape
    parts: int
    weight_decay: float
    pretrain: _Phase
    finetune: _Phase
    scratch: _Phase | None = None
    state: int = 64


def _attention(width: int, depth: int, feedforward: int, pooling: Pooling = "mean", head_hidden: int = 0) -> Shape:
    return Shape(width, depth, Block(feedforward=feedforward), pooling, head_hidden)


def _ssm(width: int, depth: int, norm: Literal["layer", "batch"], prenorm: bool, pooling: Pooling = "mean") -> Shape:
    dropout = 0.1 if norm == "layer" else 0.0
    return Shape(width, depth, Block(norm=norm, prenorm=prenorm, final_norm=prenorm, dropout=dropout), pooling)


def _compared(shape: Shape) -> Shape:
    """Gives a shape the code's head for two documents: [x, y, x * y, x - y] and one hidden layer (of GELU there, ReLU
    here)."""
    return replace(shape, pair="interaction", head_hidden=shape.width)


def _bidmc(lr: float) -> _Row:
    """The rotary Transformer of BIDMC, by its rate of fine-tuning; the rate is halved every 100 epochs there."""
    shape = _attention(112, 4, 112, "max")
    return _Row(shape, 8, 0.05, _Phase(5e-4, 32, 500, 500), _Phase(lr, 32, 500, 0, "linear"))


_ROTARY = {
    "listops": _Row(_attention(512, 6, 2048), 8, 0.0, _Phase(1e-3, 32, 100, 2000), _Phase(1e-4, 32, 100, 2000)),
    "text": _Row(
        _attention(512, 6, 2048, head_hidden=512), 8, 0.1, _Phase(5e-4, 32, 32, 5000), _Phase(5e-4, 32, 65, 2000)
    ),
    "retrieval": _Row(
        _compared(_attention(256, 6, 1024)), 4, 0.0, _Phase(5e-3, 32, 32, 2000), _Phase(5e-4, 32, 32, 5000)
    ),
    "image": _Row(
        _attention(256, 6, 512, head_hidden=256), 4, 0.05, _Phase(1e-3, 50, 200, 2500), _Phase(1e-3, 50, 200, 2000)
    ),
    "scifar": _Row(
        _attention(256, 6, 512, head_hidden=256), 4, 0.05, _Phase(1e-3, 50, 200, 2000), _Phase(1e-3, 50, 200, 2000)
    ),
    "pathfinder": _Row(_attention(256, 6, 512), 4, 0.0, _Phase(1e-3, 32, 50, 2500), _Phase(5e-4, 32, 200, 5000)),
    "pathx": _Row(_attention(256, 6, 512, "max"), 4, 0.0, _Phase(1e-3, 32, 200, 5000), _Phase(5e-4, 32, 200, 5000)),
    **dict.fromkeys(
        ("speech", "speech_causal"),
        _Row(
            *(_attention(128, 4, 128, "max"), 4, 0.05),
            *(_Phase(1e-3, 16, 200, 2000), _Phase(1e-3, 16, 200, 0, "plateau")),
        ),
    ),
    "bidmc_hr": _bidmc(5e-4),
    "bidmc_rr": _bidmc(5e-4),
    "bidmc_spo2": _bidmc(1e-4),
}

_TAY = {  # as pretrained by masking
    "listops": _Row(_attention(512, 6, 2048), 8, 0.0, _Phase(1e-3, 32, 100, 2000), _Phase(1e-4, 32, 100, 2000)),
    "text": _Row(
        _attention(512, 6, 2048, head_hidden=512), 8, 0.1, _Phase(5e-4, 32, 32, 5000), _Phase(1e-4, 32, 65, 2000)
    ),
    "retrieval": _Row(
        _compared(_attention(128, 4, 512)), 4, 0.0, _Phase(5e-3, 32, 32, 2000), _Phase(5e-4, 32, 32, 5000)
    ),
    "image": _Row(
        _attention(64, 3, 128, "max", head_hidden=64), 4, 0.0, _Phase(1e-3, 32, 50, 2500), _Phase(1e-3, 50, 200, 2000)
    ),
    "pathfinder": _Row(_attention(128, 4, 128), 8, 0.0, _Phase(1e-3, 32, 50, 2500), _Phase(5e-4, 32, 200, 5000)),
    "pathx": _Row(_attention(128, 4, 128, "max"), 4, 0.0, _Phase(5e-4, 32, 200, 5000), _Phase(5e-4, 32, 200, 5000)),
}
_TAY_CAUSAL: dict[str, tuple[float, float, Pooling]] = {  # rates of pretraining and fine-tuning, pooling
    "listops": (5e-4, 5e-4, "last"),
    "text": (1e-3, 1e-4, "mean"),
    "retrieval": (5e-3, 1e-3, "mean"),
    "image": (5e-3, 1e-3, "max"),
    "pathfinder": (1e-3, 1e-3, "mean"),
    "pathx": (1e-3, 5e-4, "max"),
}

_S4_PICTURE = _Row(
    *(_ssm(512, 6, "layer", False), 2, 0.05, _Phase(1e-3, 32, 200, 1000), _Phase(1e-3, 512, 200, 1000, "cosine")),
    scratch=_Phase(1e-2, 50, 200, 1000, "cosine"),
)
_S4_PATHX = _Row(
    *(_ssm(256, 6, "batch", True), 256, 0.05, _Phase(1e-3, 8, 50, 5000), _Phase(1e-3, 64, 50, 10000, "cosine")),
    scratch=_Phase(5e-4, 16, 50, 10000, "cosine"),
)
_S4_SPEECH = _Row(
    *(_ssm(128, 6, "batch", True, "max"), 64, 0.05),
    *(_Phase(1e-3, 32, 40, 1000, "cosine"), _Phase(5e-3, 16, 40, 1000, "cosine")),
    scratch=_Phase(1e-2, 16, 40, 1000, "cosine"),
)
_S4_BIDMC = _Row(
    *(replace(_ssm(128, 6, "layer", True), block=Block()), 2, 0.05),
    *(_Phase(1e-3, 64, 500, 500), _Phase(1e-3, 64, 500, 0, "linear")),
    scratch=_Phase(1e-2, 32, 500, 0, "linear"),
    state=256,
)
_S4 = {
    "listops": _Row(
        *(_ssm(128, 8, "batch", False), 128, 0.05, _Phase(1e-3, 128, 100, 2000), _Phase(1e-3, 16, 40, 2000)),
        scratch=_Phase(1e-2, 50, 40, 2000),
    ),
    "text": _Row(
        *(_ssm(256, 6, "batch", True), 256, 0.05, _Phase(5e-4, 8, 32, 1000), _Phase(5e-4, 16, 32, 5000, "cosine")),
        scratch=_Phase(1e-2, 16, 32, 5000, "cosine"),
    ),
    "retrieval": _Row(
        *(_compared(_ssm(256, 6, "batch", True)), 256, 0.05, _Phase(5e-4, 8, 20, 2500), _Phase(5e-4, 256, 20, 2500)),
        scratch=_Phase(1e-2, 64, 20, 2500),
    ),
    "image": _S4_PICTURE,
    "scifar": replace(
        _S4_PICTURE, pretrain=_Phase(1e-3, 32, 200, 2000), finetune=_Phase(5e-4, 64, 200, 1000, "cosine")
    ),
    "pathfinder": _Row(
        *(_ssm(256, 6, "batch", True, "last"), 256, 0.03, _Phase(1e-3, 8, 200, 2500), _Phase(1e-3, 64, 200, 2500)),
        scratch=_Phase(4e-3, 64, 200, 2500),
    ),
    "pathx": _S4_PATHX,
    "pathx256": replace(
        _S4_PATHX, shape=_ssm(256, 6, "batch", True, "max"), scratch=_Phase(1e-4, 16, 50, 10000, "cosine")
    ),
    "speech": _S4_SPEECH,
    "speech_causal": replace(_S4_SPEECH, finetune=_Phase(5e-4, 16, 40, 1000, "cosine")),
    "bidmc_hr": replace(_S4_BIDMC, scratch=_Phase(1e-3, 32, 500, 0, "linear")),
    "bidmc_rr": _S4_BIDMC,
    "bidmc_spo2": _S4_BIDMC,
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
def s4(task: str, effort: Effort = "paper") -> S4Setting:
    """Tables 2 and 3. Scratch is the recipe of the S4 code base, whose printed scores the paper quotes.

    Raises UserError for a task without a recipe.
    """
    row = _S4[known(task, _S4, "amos2025's S4")]
    far = task.startswith("pathx")
    row = replace(row, shape=replace(row.shape, source=f"{CODE} (s4)", assumed=("block.dropout",)))
    table = "6" if task in ("scifar", *SIGNALS) else "5"
    phases = _phases(effort, row, table, assumed=("clip", "validate_every"))
    shape = _shape(effort, row)
    return S4Setting(
        shape,
        *phases,
        *_pretraining(task),
        copies=min(row.parts, shape.width),
        dt_min=1e-4 if far else 1e-3,
        lr=5e-4 if far else 1e-3,
        state=row.state if effort == "paper" else 64,
    )


FULL = "amos2024 appendix C"
CODE = "not-from-scratch/configs/experiment"
SIZES: dict[str, str] = {  # where the rotary Transformers' sizes are from
    **dict.fromkeys(("image", "scifar"), f"{CODE}/cifar/transformer-cifar.yaml"),
    **dict.fromkeys(SIGNALS[:2], f"{CODE}/sc/transformer-sc.yaml"),
    **dict.fromkeys(SIGNALS[2:], f"{CODE}/bidmc/roformer-bidmc.yaml"),
}
BLOCKS = {"pathx": 4096, "speech": 4000, "speech_causal": 4000}


def _transformer(task: str, effort: Effort, row: _Row, table: str) -> TransformerSetting:
    """Scratch runs share the fine-tuning recipe: of theirs only the search grid is printed."""
    phases = _phases(effort, row, table, assumed=("batch", "clip", "validate_every"))
    shape = _shape(effort, row)
    heads = row.parts if shape.width == row.shape.width else min(row.parts, max(2, shape.width // 16))
    return TransformerSetting(shape, *phases, *_pretraining(task), heads, BLOCKS.get(task))


def _pretraining(task: str) -> tuple[float, Literal["ce", "l1"]]:
    return RATIOS.get(task, 0.5), "l1" if task in REGRESSED else "ce"


def _shape(effort: Effort, row: _Row) -> Shape:
    return row.shape if effort == "paper" else SCALES[effort].shape(row.shape)


def _phases(effort: Effort, row: _Row, table: str, assumed: tuple[str, ...]) -> tuple[Recipe, Recipe, Recipe]:
    """Scratch, pretraining, fine-tuning. Below `paper`, scratch gets the steps of both other phases."""
    source = f"{FULL} table {table} (rates and batches); {CODE} (the rest)"
    pretrain = _recipe(row.pretrain, row.weight_decay, source, assumed)
    finetune = _recipe(row.finetune, row.weight_decay, source, assumed)
    scratch = finetune if row.scratch is None else _recipe(row.scratch, row.weight_decay, f"{CODE} (s4)", assumed)
    if effort == "paper":
        return scratch, pretrain, finetune
    scale = SCALES[effort]
    return (
        scale.recipe(scratch, 2 * scale.steps),
        scale.recipe(pretrain, scale.steps),
        scale.recipe(finetune, scale.steps),
    )


def _recipe(phase: _Phase, weight_decay: float, source: str, assumed: tuple[str, ...]) -> Recipe:
    return Recipe(
        lr=phase.lr,
        weight_decay=weight_decay,
        batch=phase.batch,
        budget=Duration(phase.epochs, "epochs"),
        warmup=Duration(phase.warmup, "steps"),
        schedule=phase.schedule,
        plateau_patience=10 if phase.schedule == "plateau" else Recipe.plateau_patience,
        clip=None,
        validate_every=Duration(1, "epochs"),
        decay_all=True,
        source=source,
        assumed=assumed if phase.schedule == "constant" else (*assumed, "schedule"),
    )
