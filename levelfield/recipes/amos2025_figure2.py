"""Holds the recipes behind figure 2 of Amos et al. (2025): DLR, and S4 and DLR from a random start.

    dlr("listops").finetune              # 5e-4, batches of 16
    dlr("listops", "random").pretrain    # 5e-4, batches of 32
    s4_random("pathx").pretrain.batch    # 4

Rates and batches are those of table 5 of the full version (Amos et al. 2024, appendix C), all else is of the public
code's configurations. There, DLR has the widths, depths and lengths of S4's phases, which `amos2025.s4` holds; layer
norm before every layer (after it on ListOps), no dropout, and a constant rate but on PathX. S4 from its own start is
`amos2025.s4`, but that all models of the figure pool PathX by max (appendix C.1.3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from levelfield.recipes import _amos2025 as amos2025
from levelfield.recipes._amos2025 import CODE, FULL, SCALES, S4Setting, Setting
from levelfield.recipes._shape import known
from levelfield.spec import Block, Duration, Effort, Recipe

TASKS = ("listops", "text", "image", "pathx")

_Rates = tuple[tuple[float, int], tuple[float, int], tuple[float, int]]
_PRINTED: dict[str, dict[str, _Rates]] = {  # rate and batch of pretraining, fine-tuning and scratch
    "dlr_structured": {
        "listops": ((1e-3, 128), (5e-4, 16), (5e-4, 16)),
        "text": ((5e-4, 8), (1e-3, 16), (5e-4, 16)),
        "image": ((1e-3, 32), (1e-3, 64), (5e-4, 64)),
        "pathx": ((5e-4, 8), (5e-4, 64), (5e-4, 64)),
    },
    "dlr_random": {
        "listops": ((5e-4, 32), (5e-4, 64), (1e-4, 16)),
        "text": ((5e-4, 8), (5e-4, 16), (1e-3, 16)),
        "image": ((1e-3, 32), (1e-3, 64), (1e-3, 16)),
        "pathx": ((5e-4, 8), (5e-4, 16), (5e-4, 64)),
    },
    "s4_random": {
        "listops": ((1e-3, 32), (1e-3, 16), (5e-4, 16)),
        "text": ((1e-3, 32), (1e-3, 16), (1e-3, 16)),
        "image": ((1e-3, 32), (5e-4, 64), (5e-4, 16)),
        "pathx": ((1e-3, 4), (5e-4, 16), (5e-4, 16)),
    },
}
_LOST: dict[tuple[str, str, int], tuple[str, ...]] = {  # illegible cells of the printed table, by column
    ("dlr_random", "image", 0): ("lr",),
    ("s4_random", "text", 0): ("lr",),
    # Four cells show three values, and which of them is missing is not certain.
    **{("s4_random", task, 2): ("lr", "batch") for task in TASKS},
}
_WARMUP = {"listops": 2000, "text": 2000, "image": 1000, "pathx": 5000}  # steps of DLR's fine-tuning


@dataclass(frozen=True)
class DLRSetting(Setting):
    """The numbers of `DLR(state, init, lr=lr)`: N, and the rate of lambda and w."""

    state: int
    lr: float


@cache
def s4(task: str, effort: Effort = "paper") -> S4Setting:
    """Gives the numbers for S4 from its own start. Raises UserError for a task without a recipe."""
    setting = amos2025.s4(known(task, TASKS, "amos2025's S4 of figure 2"), effort)
    return replace(setting, shape=replace(setting.shape, pooling="max")) if task == "pathx" else setting


@cache
def s4_random(task: str, effort: Effort = "paper") -> S4Setting:
    """Gives the numbers for S4(init="random"). Raises UserError for a task without a recipe."""
    setting = s4(task, effort)
    printed = amos2025.s4(task)
    phases = _phases("s4_random", task, effort, printed.pretrain, printed.finetune)
    return replace(setting, scratch=phases[0], pretrain=phases[1], finetune=phases[2])


@cache
def dlr(task: str, init: Literal["structured", "random"] = "structured", effort: Effort = "paper") -> DLRSetting:
    """Gives the numbers for DLR(state, init, lr=lr). Raises UserError for a task without a recipe."""
    like = amos2025.s4(known(task, TASKS, "amos2025's DLR"))
    before = task != "listops"
    shape = replace(
        like.shape,
        block=Block(prenorm=before, final_norm=before),
        pooling="max" if task == "pathx" else "mean",
        source=f"{CODE}/lra (dlr)",
        assumed=(),
    )
    schedule: Literal["constant", "cosine"] = "cosine" if task == "pathx" else "constant"
    labels = replace(like.finetune, schedule=schedule, warmup=Duration(_WARMUP[task], "steps"))
    scratch, pretrain, finetune = _phases(f"dlr_{init}", task, effort, like.pretrain, labels)
    if effort != "paper":
        shape = SCALES[effort].shape(shape)
    state = 1024 if effort == "paper" else 64
    return DLRSetting(
        shape,
        scratch=scratch,
        pretrain=pretrain,
        finetune=finetune,
        ratio=like.ratio,
        loss=like.loss,
        state=state,
        lr=1e-4,
    )


def _phases(model: str, task: str, effort: Effort, pretrain: Recipe, labels: Recipe) -> tuple[Recipe, Recipe, Recipe]:
    """Scratch, pretraining, fine-tuning with printed rates. Below `paper`, scratch gets the steps of both others."""
    source = f"{FULL} table 5 (rates and batches); {CODE}/lra (the rest)"
    printed = []
    for column, like in enumerate((pretrain, labels, labels)):
        lr, batch = _PRINTED[model][task][column]
        assumed = (*like.assumed, *_LOST.get((model, task, column), ()))
        printed.append(replace(like, lr=lr, batch=batch, source=source, assumed=tuple(dict.fromkeys(assumed))))
    first, then, scratch = printed
    if effort == "paper":
        return scratch, first, then
    scale = SCALES[effort]
    return (
        scale.recipe(scratch, 2 * scale.steps),
        scale.recipe(first, scale.steps),
        scale.recipe(then, scale.steps),
    )
