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
class Patience:
    """How long the phases train at `overnight`: caps in optimizer steps, and the gains by which one has improved.

    pretrain_gain is in units of the loss of denoising, labels_gain a share of validation examples. Either is a gain of
    `validations` validations in a row, one each `efforts.VALIDATE` steps.
    """

    pretrain: int
    labels: int
    validations: int = efforts.PATIENCE
    pretrain_gain: float = efforts.LEAST_GAIN
    labels_gain: float = efforts.LEAST_GAIN


PATIENCE = Patience(6_000, 12_000)
FINER: dict[str, Patience] = {"image": Patience(24_000, 24_000, 5, pretrain_gain=0.0005, labels_gain=0.002)}
"""Pictures are regressed in pretraining, whose loss goes on falling by little; a pilot's phases took 20,000 steps."""
SMALL: dict[str, Task] = {"image": Image(side=8), "text": Text(length=256)}


def task(name: str, effort: Effort) -> Task:
    """ListOps of the effort, and real pictures and reviews whole, but pooled and cut to what a CPU can train on."""
    if name == "listops":
        return efforts.generated(name, effort)
    return SMALL[name] if effort in ("minutes", "overnight") else {"image": Image(), "text": Text()}[name]


def mixers() -> dict[str, MixerConfig]:
    """The two that the claim is about, by the name of their models."""
    return {TRANSFORMER: Attention(HEADS, rotary="per_head"), SSM: S4()}


def recipes(name: str, effort: Effort) -> tuple[Recipe, Recipe]:
    """Returns the recipes of the two phases, denoising and labels: one recipe, with a cap and a patience for each.

    At efforts without patience each phase has its share of the steps that the effort affords.
    """
    shared = efforts.recipe(effort)
    if effort != "overnight":
        total = efforts.SIZES[effort].steps
        steps = round(efforts.SPT_SHARE * total)
        labels = replace(shared, budget=Duration(total - steps, "steps"))
        return replace(shared, budget=Duration(steps, "steps")), labels
    own = FINER.get(name, PATIENCE)
    shared = replace(shared, patience=own.validations)
    denoise = replace(shared, budget=Duration(own.pretrain, "steps"), least_gain=own.pretrain_gain)
    return denoise, replace(shared, budget=Duration(own.labels, "steps"), least_gain=own.labels_gain)


def denoising_loss(name: str) -> Literal["ce", "l1"]:
    """Returns the loss of values that were hidden: pictures are regressed, tokens classified."""
    return "l1" if name in REGRESSED else "ce"


def before_and_after(
    name: str, effort: Effort, *, causal: bool = False, objective: Trainable | None = None
) -> tuple[Protocol, Protocol]:
    """Returns scratch and self-pretraining: by the next step for models that read forward alone, else by masking.

    objective: of the labels, None for a label of each sequence.
    """
    denoise, labels = recipes(name, effort)
    loss = denoising_loss(name)
    if causal:
        return scratch(labels, objective), spt_causal(denoise, labels, loss=loss, objective=objective)
    masked = spt_masked(denoise, labels, task(name, effort).hidden, loss=loss, objective=objective)
    return scratch(labels, objective), masked


def protocols(name: str, effort: Effort) -> tuple[Protocol, ...]:
    """Returns three: scratch, scratch with the steps of self-pretraining added, and self-pretrained."""
    denoise, labels = recipes(name, effort)
    at_least = replace(labels, patience_after=denoise.budget) if labels.patience else labels
    both = denoise.budget.value + labels.budget.value
    longer = matched(scratch(at_least), Duration(both, "steps"))
    before, after = before_and_after(name, effort)
    return before, longer, after
