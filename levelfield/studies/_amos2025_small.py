"""Defines the small tasks on which amos2025 is asked, the two models of its claim, and how long their phases may train.

A phase ends where validation has stopped improving, and at a cap of steps that few should reach. Scratch gets as much
patience as self-pretraining may take, in an arm of its own, so that a lift can be told from longer training:

    scratch, longer, pretrained = protocols("image", "overnight")
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from levelfield.mixers.attention import Attention
from levelfield.mixers.s4 import S4
from levelfield.objectives import Trainable
from levelfield.presets import efforts
from levelfield.protocols import matched, scratch, spt_causal, spt_masked
from levelfield.recipes.amos2025 import REGRESSED
from levelfield.spec import Duration, Effort, MixerConfig, Protocol, Recipe, Task
from levelfield.tasks.image import Image
from levelfield.tasks.text import Text

TRANSFORMER, SSM = "transformer_rotary", "s4"
SCRATCH, LONGER, SPT = "scratch", "scratch_matched", "spt_masked"
HEADS = 4


@dataclass(frozen=True)
class Caps:
    """Optimizer steps that the phases may take at most."""

    pretrain: int
    labels: int


CAPS: dict[Effort, Caps] = {"overnight": Caps(6_000, 12_000)}
SMALL: dict[str, Task] = {"image": Image(side=8), "text": Text(length=256)}


def task(name: str, effort: Effort) -> Task:
    """ListOps of the effort, and real pictures and reviews whole, but pooled and cut to what a CPU can train on."""
    if name == "listops":
        return efforts.task(name, effort)
    return SMALL[name] if effort in ("minutes", "overnight") else {"image": Image(), "text": Text()}[name]


def mixers() -> dict[str, MixerConfig]:
    """The two that the claim is about, by the name of their models."""
    return {TRANSFORMER: Attention(HEADS, rotary="per_head"), SSM: S4()}


def caps(effort: Effort) -> Caps:
    """Returns how many steps each phase may take: at efforts without patience, shares of what the effort affords."""
    size = efforts.SIZES[effort]
    pretrain = round(efforts.SPT_SHARE * size.steps)
    return CAPS.get(effort, Caps(pretrain, size.steps - pretrain))


def recipes(effort: Effort) -> tuple[Recipe, Recipe]:
    """Returns the recipes of the two phases, denoising and labels: one recipe, under two caps."""
    most = caps(effort)
    labels = replace(efforts.recipe(effort), budget=Duration(most.labels, "steps"))
    return replace(labels, budget=Duration(most.pretrain, "steps")), labels


def denoising_loss(name: str) -> Literal["ce", "l1"]:
    """Returns the loss of values that were hidden: pictures are regressed, tokens classified."""
    return "l1" if name in REGRESSED else "ce"


def before_and_after(
    name: str, effort: Effort, *, causal: bool = False, objective: Trainable | None = None
) -> tuple[Protocol, Protocol]:
    """Returns scratch and self-pretraining: by the next step for models that read forward alone, else by masking.

    objective: of the labels, None for a label of each sequence.
    """
    denoise, labels = recipes(effort)
    loss = denoising_loss(name)
    if causal:
        return scratch(labels, objective), spt_causal(denoise, labels, loss=loss, objective=objective)
    masked = spt_masked(denoise, labels, efforts.ratio(name), loss=loss, objective=objective)
    return scratch(labels, objective), masked


def protocols(name: str, effort: Effort) -> tuple[Protocol, ...]:
    """Returns three: scratch, scratch with the steps of self-pretraining added, and self-pretrained."""
    denoise, labels = recipes(effort)
    most = caps(effort)
    at_least = replace(labels, patience_after=denoise.budget) if labels.patience else labels
    longer = matched(scratch(at_least), Duration(most.pretrain + most.labels, "steps"))
    before, after = before_and_after(name, effort)
    return before, longer, after
