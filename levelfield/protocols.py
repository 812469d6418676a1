"""Defines protocols, which say how a model comes to be trained: each is a tuple of phases.

    scratch(recipe)                          labels only
    spt_masked(pretrain, finetune, ratio)    denoise the task's own training inputs, then fine-tune (amos2025)
    spt_causal(pretrain, finetune)           predict the next step of them, then fine-tune
    enriched(recipe, augment=..., denoise=...)   one phase on enriched data or loss (miralles2025)
    extended(recipe, longer, length)         labels only, on short sequences and then on those of the task's own length
    pretrained(path)                         evaluate as given
    finetuned(foreign, recipe)               labels only, from weights that others trained (amos2025's Pythia)
    matched(protocol, budget, shares)        the same phases within one total budget

A second phase keeps the trunk and replaces the head; that of `extended` keeps both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from levelfield.objectives import Causal, Classify, Masked, Sum, Trainable
from levelfield.spec import Duration, ForeignWeights, Model, Phase, Protocol, Recipe, UserError
from levelfield.spec.contents import checksum

DENOISE = Masked(ratio=0.3, random=1 / 3, scope="all")
"""The denoising loss that miralles2025 adds to the label's (appendix A.4; over all real steps, as its code does)."""

SHARE = re.compile(r"_(\d+(?:\.\d+)?(?:e-\d+)?)(?:_matched)?$")
"""A share of the labels at the end of a protocol's name, as `named_by_share` writes it."""


def scratch(recipe: Recipe, objective: Trainable | None = None) -> Protocol:
    """One phase on labels, from fresh weights."""
    return Protocol("scratch", (Phase(objective or Classify(), recipe),))


def spt_masked(
    pretrain: Recipe,
    finetune: Recipe,
    ratio: float,
    *,
    loss: Literal["ce", "l1"] = "ce",
    block: int = 1,
    objective: Trainable | None = None,
) -> Protocol:
    """Masked self-pretraining, then fine-tuning of all weights (amos2025, section 2).

    ratio: 0.5 for images, 0.15 for text, 0.1 for ListOps in amos2025. block: hide aligned runs of this many steps.
    """
    denoise = Masked(ratio=ratio, block=block, loss_kind=loss)
    return Protocol("spt_masked", (Phase(denoise, pretrain), _finetune(finetune, objective)))


def spt_causal(
    pretrain: Recipe, finetune: Recipe, *, loss: Literal["ce", "l1"] = "ce", objective: Trainable | None = None
) -> Protocol:
    """Next-step self-pretraining of a causal model, then fine-tuning of all weights (amos2025, section 2)."""
    return Protocol("spt_causal", (Phase(Causal(loss_kind=loss), pretrain), _finetune(finetune, objective)))


def enriched(
    recipe: Recipe,
    *,
    augment: bool = False,
    denoise: Masked | None = None,
    extra_sets: bool = False,
    objective: Trainable | None = None,
) -> Protocol:
    """One phase on more than the plain labels (miralles2025, section 3).

    It has augmented inputs, a summed denoising loss, or extra sets, which are a setting of the task: say so with
    `extra_sets`. Raises UserError where nothing is enriched.
    """
    if not (augment or denoise or extra_sets):
        raise UserError("Nothing is enriched: give augment, denoise, or extra_sets=True where the task has more sets.")
    label = objective or Classify()
    total = Sum((label, denoise)) if denoise else label
    return Protocol("enriched", (Phase(total, recipe, augment=augment),))


def extended(recipe: Recipe, longer: Recipe, length: int, objective: Trainable | None = None) -> Protocol:
    """Labels only, first on shorter sequences and then, with all weights kept, on those of the task's own length.

    recipe, longer: of the two phases. length: that of the shorter sequences, in steps.
    """
    label = objective or Classify()
    return Protocol("extended", (Phase(label, recipe, length=length), Phase(label, longer, start="whole")))


def pretrained(weights: Path, phases: Sequence[Phase] = ()) -> Protocol:
    """Starts from a safetensors file: evaluates it as given, or fine-tunes it by `phases` with start="previous".

    Raises UserError where the file is missing.
    """
    if not weights.is_file():
        raise UserError(f"No weights at {weights}: give the path of a .safetensors file of a finished run.")
    return Protocol("pretrained", tuple(phases), str(weights), checksum(weights))


def finetuned(foreign: ForeignWeights, recipe: Recipe, objective: Trainable | None = None) -> Protocol:
    """One phase on labels, from weights that others trained on other data."""
    return Protocol("finetune", (_finetune(recipe, objective),), foreign=foreign)


def matched(protocol: Protocol, budget: Duration, shares: Sequence[float] | None = None) -> Protocol:
    """The same phases within one total budget, so that arms train for equally long in the budget's unit.

    shares: each phase's part of the budget, summing to 1; equal parts if left out. A one-phase protocol gets it all:
    `matched(scratch(r), total)` is scratch trained for as long as pretraining and fine-tuning together.
    Raises UserError where the shares do not fit, for a protocol without phases, and for a budget that leaves a phase
    with a share of it nothing.
    """
    if not protocol.phases:
        raise UserError(f"{protocol.name} has no phases to share a budget between: give it some.")
    shares = tuple(shares or [1 / len(protocol.phases)] * len(protocol.phases))
    if len(shares) != len(protocol.phases) or abs(sum(shares) - 1) > 1e-9 or min(shares) < 0:
        raise UserError(f"{protocol.name} has {len(protocol.phases)} phases: give it as many shares, summing to 1.")
    whole = budget.unit in ("steps", "examples") and budget.value == int(budget.value)
    ends = [budget.value * sum(shares[: i + 1]) for i in range(len(shares))]
    ends = [float(round(end)) for end in ends] if whole else ends  # so that the phases add up to the budget
    budgets = [Duration(max(0.0, end - start), budget.unit) for start, end in zip([0.0, *ends], ends, strict=False)]
    if budget.value and any(share and not part.value for share, part in zip(shares, budgets, strict=True)):
        raise UserError(
            f"A budget of {budget.value:g} (in {budget.unit}) is too little for the {len(shares)} phases of "
            f"{protocol.name}: give it more, such as {10 * len(shares)}."
        )
    phases = tuple(
        replace(phase, recipe=replace(phase.recipe, budget=part))
        for phase, part in zip(protocol.phases, budgets, strict=True)
    )
    return replace(protocol, name=f"{protocol.name}_matched", phases=phases)


def named_by_share(name: str, share: float) -> str:
    """Returns what a protocol is called with a share of the labels: with all "scratch", with a tenth "scratch_0.1".

    Names have six digits of it, and are parts of ids, so shares that agree in these are one arm in a report.
    """
    return name if share == 1 else f"{name}_{share:g}"


def share_of(name: str) -> float:
    """Returns the share of the labels that the name of a protocol tells: what `named_by_share` was given.

    It is all of them, 1.0, where the name ends in no number between 0 and 1. A `_matched` may follow the number.
    """
    found = SHARE.search(name)
    share = float(found[1]) if found else 1.0
    return share if 0 < share < 1 else 1.0


def scarce(protocol: Protocol, share: float) -> Protocol:
    """Returns the protocol with a share of the labels in its last phase; pretraining still reads all inputs.

    Raises UserError for a protocol without phases.
    """
    if not protocol.phases:
        raise UserError(f"{protocol.name} has no phase that a share of the labels could be for: give it some.")
    *before, last = protocol.phases
    phases = (*before, replace(last, fraction=share))
    return replace(protocol, name=named_by_share(protocol.name, share), phases=phases)


def causal_where_needed(model: Model, protocol: Protocol) -> Model:
    """The model as the protocol needs it: causal where a phase predicts the next step, else unchanged."""
    return replace(model, causal=True) if protocol.causal else model


def _finetune(recipe: Recipe, objective: Trainable | None) -> Phase:
    return Phase(objective or Classify(), recipe, start="previous")


DESCRIPTIONS = {
    "scratch": "labels only, from fresh weights",
    "spt_masked": "denoise the task's own training inputs, then fine-tune (amos2025)",
    "spt_causal": "predict the next step of the task's own training inputs, then fine-tune (amos2025)",
    "enriched": "one phase with augmented inputs, extra sets or a summed denoising loss (miralles2025)",
    "extended": "labels only, on short sequences first and then on those of the task's own length",
    "finetune": "labels only, from a checkpoint that others trained on other data (amos2025)",
    "pretrained": "evaluate given weights, or fine-tune them",
}
"""Every protocol, each but the last with a `_matched` variant: the same phases within one total budget."""
