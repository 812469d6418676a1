"""Miralles-Gonzalez et al. (2025): the models that tables 2 and 3 compare with, quoted from their papers or enriched.

    mega("image").recipe                     # scratch: the numbers of Ma et al. (2023), which the table quotes
    mega("image", enriched=True).recipe      # trained anew: Mega's rate, batch and decay under the paper's schedule
    s4("text", enriched=True), s5("text", enriched=True)
    transformer("image").scratch             # table 1 of amos2025, which quotes the same scores of Tay et al. (2021)
    transformer_rotary("image").pretrain     # table 2 of amos2025

What is quoted has the recipe of its own file, so that at `paper` a run here is the run of that paper's table. Of the
models trained anew appendix A.2 says: their own hyperparameters, lower rates where they did not converge, softmax in
Mega, a full GLU in S5 on Pathfinder and Retrieval, fewer epochs there, and the optimizer, schedule and epochs of the
Transformer. It gives no number, so rates, batches and decays are `assumed` to be the models' own. Below `paper` all are
shrunk by `miralles2025.SCALES`, and both phases of self-pretraining together have the steps of the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from levelfield.recipes import Shape, amos2025, known, ma2023, miralles2025, smith2023
from levelfield.recipes.miralles2025 import TASKS, compared, retrained, scaled
from levelfield.spec import Duration, Effort, Recipe

GUESSED = ("lr", "batch", "weight_decay")  # of the models trained anew
PAPER = "miralles2025 appendix A.2 (schedule, epochs)"
HALF = 0.5  # of an effort's steps for each of the two phases of self-pretraining


@dataclass(frozen=True)
class S4Setting:
    """S4 on one task under one recipe, for `S4(copies=, dt_min=, lr=, dt_lr=)`."""

    shape: Shape
    recipe: Recipe
    copies: int
    dt_min: float
    lr: float
    dt_lr: float | None


@cache
def transformer(task: str, effort: Effort = "paper") -> amos2025.TransformerSetting:
    """Table 2's first row. Raises UserError for a task the paper does not have."""
    return _shrunk(known(task, TASKS, "miralles2025"), effort, amos2025.transformer(task))


@cache
def transformer_rotary(task: str, effort: Effort = "paper") -> amos2025.TransformerSetting:
    """Table 2's second row, which is self-pretrained. Raises UserError for a task the paper does not have."""
    return _shrunk(known(task, TASKS, "miralles2025"), effort, amos2025.transformer_rotary(task))


@cache
def mega(task: str, effort: Effort = "paper", *, enriched: bool = False) -> ma2023.MegaSetting:
    """Table 2's last two rows. Raises UserError for a task the paper does not have."""
    own = ma2023.mega(known(task, TASKS, "miralles2025"))
    shape, recipe = _trained(task, effort, own.shape, own.recipe, enriched)
    return replace(
        own,
        shape=shape,
        recipe=recipe,
        keys=min(own.keys, shape.width),
        values=2 * shape.width,
        attention="softmax" if enriched else own.attention,
    )


@cache
def s4(task: str, effort: Effort = "paper", *, enriched: bool = False) -> S4Setting:
    """Table 3, rows one and three. Raises UserError for a task the paper does not have."""
    own = amos2025.s4(known(task, TASKS, "miralles2025"))
    shape, recipe = _trained(task, effort, own.shape, own.scratch, enriched)
    dt_lr = own.dt_lr if effort == "paper" else None
    return S4Setting(shape, recipe, min(own.copies, shape.width), own.dt_min, lr=own.lr, dt_lr=dt_lr)


@cache
def s5(task: str, effort: Effort = "paper", *, enriched: bool = False) -> smith2023.S5Setting:
    """Table 3, rows two and four. Raises UserError for a task the paper does not have."""
    own = smith2023.s5(known(task, TASKS, "miralles2025"))
    shape, recipe = _trained(task, effort, own.shape, own.recipe, enriched)
    if enriched and task == "retrieval" and effort == "paper":
        recipe = replace(recipe, budget=own.recipe.budget, assumed=(*recipe.assumed, "budget"))
    full = enriched and task in ("pathfinder", "retrieval")
    blocks = 2 if effort != "paper" and own.blocks > 2 else own.blocks
    return replace(
        own,
        shape=shape,
        recipe=recipe,
        state=own.state if effort == "paper" else min(own.state, 2 * shape.width),
        blocks=blocks,
        activation="full_glu" if full else own.activation,
    )


def _trained(task: str, effort: Effort, shape: Shape, recipe: Recipe, enriched: bool) -> tuple[Shape, Recipe]:
    """A model as its paper trains it, or as miralles2025 trains it anew, shrunk to the effort."""
    if enriched:
        epochs = miralles2025.transformer(task).recipe.budget
        shape, recipe = compared(task, replace(shape, pair="concat")), _anew(recipe, epochs)
    return scaled(task, effort, shape, recipe)


def _anew(own: Recipe, epochs: Duration) -> Recipe:
    source = f"{PAPER}; {own.source} (the rest)"
    recipe = retrained(source, own.lr, own.batch, own.weight_decay, int(epochs.value))
    return replace(recipe, assumed=(*recipe.assumed, *GUESSED))


def _shrunk(task: str, effort: Effort, own: amos2025.TransformerSetting) -> amos2025.TransformerSetting:
    """A Transformer of amos2025 with its three phases, shrunk by miralles2025.SCALES."""
    if effort == "paper":
        return own
    shape, plain = scaled(task, effort, own.shape, own.scratch)
    _, pretrain = scaled(task, effort, own.shape, own.pretrain, share=HALF)
    _, finetune = scaled(task, effort, own.shape, own.finetune, share=HALF)
    heads = min(own.heads, max(1, shape.width // 8))
    return replace(own, shape=shape, scratch=plain, pretrain=pretrain, finetune=finetune, heads=heads)
