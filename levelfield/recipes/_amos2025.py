"""Shares what the recipes of Amos et al. (2025) are made of: settings, printed rows, smaller efforts; and S4's rows.

    s4("image").pretrain.lr                     # 0.001
    recipes_of("minutes", row, "5", ("clip",))  # scratch, pretraining and fine-tuning of a row, shortened

`amos2025` holds the Transformers and `amos2025_figure2` the other state-space models. Sources are those that
`amos2025` names.
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
    "overnight": Scale(width=64, depth=2, batch=32, steps=6_000, lr=1e-3, validations=30, patience=4),
    "hours": Scale(width=128, depth=6, batch=64, steps=8000),
}

FULL = "amos2024 appendix C"
CODE = "not-from-scratch/configs/experiment"


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
class S4Setting(Setting):
    """The numbers of `S4(copies=..., dt_min=..., lr=..., state=..., dt_lr=...)`: sets of (A, B, P), smallest step, rate
    of A and B, N, rate of the steps, which is None where it is that of the recipe."""

    copies: int
    dt_min: float
    lr: float
    state: int
    dt_lr: float | None


@dataclass(frozen=True)
class Phase:
    """One printed phase; warm-up in steps."""

    lr: float
    batch: int
    epochs: int
    warmup: int
    schedule: Schedule = "constant"


@dataclass(frozen=True)
class Row:
    """One printed model. parts: attention heads, or sets of S4's (A, B, P). state: S4's N."""

    shape: Shape
    parts: int
    weight_decay: float
    pretrain: Phase
    finetune: Phase
    scratch: Phase | None = None
    state: int = 64


def ssm(width: int, depth: int, norm: Literal["layer", "batch"], prenorm: bool, pooling: Pooling = "mean") -> Shape:
    dropout = 0.1 if norm == "layer" else 0.0
    return Shape(width, depth, Block(norm=norm, prenorm=prenorm, final_norm=prenorm, dropout=dropout), pooling)


def compared(shape: Shape) -> Shape:
    """Gives a shape the code's head for two documents: [x, y, x * y, x - y] and one hidden layer (of GELU there, ReLU
    here)."""
    return replace(shape, pair="interaction", head_hidden=shape.width)


_S4_PICTURE = Row(
    *(ssm(512, 6, "layer", False), 2, 0.05, Phase(1e-3, 32, 200, 1000), Phase(1e-3, 512, 200, 1000, "cosine")),
    scratch=Phase(1e-2, 50, 200, 1000, "cosine"),
)
_S4_PATHX = Row(
    *(ssm(256, 6, "batch", True), 256, 0.05, Phase(1e-3, 8, 50, 5000), Phase(1e-3, 64, 50, 10000, "cosine")),
    scratch=Phase(5e-4, 16, 50, 10000, "cosine"),
)
_S4_SPEECH = Row(
    *(ssm(128, 6, "batch", True, "max"), 64, 0.05),
    *(Phase(1e-3, 32, 40, 1000, "cosine"), Phase(5e-3, 16, 40, 1000, "cosine")),
    scratch=Phase(1e-2, 16, 40, 1000, "cosine"),
)
_S4_BIDMC = Row(
    *(replace(ssm(128, 6, "layer", True), block=Block()), 2, 0.05),
    *(Phase(1e-3, 64, 500, 500), Phase(1e-3, 64, 500, 0, "linear")),
    scratch=Phase(1e-2, 32, 500, 0, "linear"),
    state=256,
)
_S4 = {
    "listops": Row(
        *(ssm(128, 8, "batch", False), 128, 0.05, Phase(1e-3, 128, 100, 2000), Phase(1e-3, 16, 40, 2000)),
        scratch=Phase(1e-2, 50, 40, 2000),
    ),
    "text": Row(
        *(ssm(256, 6, "batch", True), 256, 0.05, Phase(5e-4, 8, 32, 1000), Phase(5e-4, 16, 32, 5000, "cosine")),
        scratch=Phase(1e-2, 16, 32, 5000, "cosine"),
    ),
    "retrieval": Row(
        *(compared(ssm(256, 6, "batch", True)), 256, 0.05, Phase(5e-4, 8, 20, 2500), Phase(5e-4, 256, 20, 2500)),
        scratch=Phase(1e-2, 64, 20, 2500),
    ),
    "image": _S4_PICTURE,
    "scifar": replace(_S4_PICTURE, pretrain=Phase(1e-3, 32, 200, 2000), finetune=Phase(5e-4, 64, 200, 1000, "cosine")),
    "pathfinder": Row(
        *(ssm(256, 6, "batch", True, "last"), 256, 0.03, Phase(1e-3, 8, 200, 2500), Phase(1e-3, 64, 200, 2500)),
        scratch=Phase(4e-3, 64, 200, 2500),
    ),
    "pathx": _S4_PATHX,
    "pathx256": replace(
        _S4_PATHX, shape=ssm(256, 6, "batch", True, "max"), scratch=Phase(1e-4, 16, 50, 10000, "cosine")
    ),
    "speech": _S4_SPEECH,
    "speech_causal": replace(_S4_SPEECH, finetune=Phase(5e-4, 16, 40, 1000, "cosine")),
    "bidmc_hr": replace(_S4_BIDMC, scratch=Phase(1e-3, 32, 500, 0, "linear")),
    "bidmc_rr": _S4_BIDMC,
    "bidmc_spo2": _S4_BIDMC,
}


_DT_RATES = {"pathfinder": 1e-3, "pathx": 5e-4, "pathx256": 5e-4} | dict.fromkeys(
    ("bidmc_hr", "bidmc_rr", "bidmc_spo2"), 1e-3
)
"""The rate of the step sizes, where the configurations give it: one number for all parameters of the state space."""


@cache
def s4(task: str, effort: Effort = "paper") -> S4Setting:
    """Tables 2 and 3. Scratch is the recipe of the S4 code base, whose printed scores the paper quotes.

    Raises UserError for a task without a recipe.
    """
    row = _S4[known(task, _S4, "amos2025's S4")]
    far = task.startswith("pathx")
    row = replace(row, shape=replace(row.shape, source=f"{CODE} (s4)", assumed=("block.dropout",)))
    table = "6" if task in ("scifar", *SIGNALS) else "5"
    recipes = recipes_of(effort, row, table, assumed=("clip", "validate_every"))
    shape = shape_of(effort, row)
    return S4Setting(
        shape,
        *recipes,
        *pretraining(task),
        copies=min(row.parts, shape.width),
        dt_min=1e-4 if far else 1e-3,
        lr=5e-4 if far else 1e-3,
        state=row.state if effort == "paper" else 64,
        dt_lr=_DT_RATES.get(task) if effort == "paper" else None,
    )


def pretraining(task: str) -> tuple[float, Literal["ce", "l1"]]:
    """The share of steps that are hidden, and the loss."""
    return RATIOS.get(task, 0.5), "l1" if task in REGRESSED else "ce"


def shape_of(effort: Effort, row: Row) -> Shape:
    """The printed shape, or a smaller one below `paper`."""
    return row.shape if effort == "paper" else SCALES[effort].shape(row.shape)


def recipes_of(effort: Effort, row: Row, table: str, assumed: tuple[str, ...]) -> tuple[Recipe, Recipe, Recipe]:
    """Scratch, pretraining, fine-tuning. Below `paper`, scratch gets the steps of both other phases."""
    source = f"{FULL} table {table} (rates and batches); {CODE} (the rest)"
    pretrain = recipe_of(row.pretrain, row.weight_decay, source, assumed)
    finetune = recipe_of(row.finetune, row.weight_decay, source, assumed)
    scratch = finetune if row.scratch is None else recipe_of(row.scratch, row.weight_decay, f"{CODE} (s4)", assumed)
    if effort == "paper":
        return scratch, pretrain, finetune
    scale = SCALES[effort]
    return (
        scale.recipe(scratch, 2 * scale.steps),
        scale.recipe(pretrain, scale.steps),
        scale.recipe(finetune, scale.steps),
    )


def recipe_of(phase: Phase, weight_decay: float, source: str, assumed: tuple[str, ...]) -> Recipe:
    """The recipe of a printed phase."""
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
