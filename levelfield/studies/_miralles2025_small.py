"""Defines the small tasks on which miralles2025 is asked, how they are enriched, and what counts as a short kernel."""

from __future__ import annotations

from dataclasses import replace

from levelfield.presets import efforts
from levelfield.protocols import DENOISE, enriched
from levelfield.spec import Duration, Effort, Protocol, Task
from levelfield.tasks.image import Image

GROUPS = 8  # of channels, so that wide kernels cost little
SHORT = 11  # steps of the widest kernel that the claim is about: two layers see 21


def task(name: str, effort: Effort) -> Task:
    """Returns the generated task of the effort, or pictures, pooled where a CPU trains on them."""
    if name != "image":
        return efforts.generated(name, effort)
    return Image(side=8) if effort in ("minutes", "overnight") else Image()


def protocol(name: str, effort: Effort) -> Protocol:
    """Pictures are augmented and the arguments of ListOps reordered; marks have no such change, and are denoised."""
    recipe = efforts.recipe(effort)
    if effort == "overnight":
        recipe = replace(recipe, budget=Duration(12_000, "steps"))
    if name == "reach":
        return enriched(recipe, denoise=DENOISE)
    return enriched(recipe, augment=True)
