"""Compares the same trained weights in several places, seed by seed.

    fall = contrast(((0.5, at_32_steps), (-1.0, at_512_steps)), against=-1.0)
    alike([fall, *falls_of_other_models])          # each with the scatter of them all

What makes one seed better than another cancels within a seed. How much of a loss differs between seeds does not: far
beyond the training length some seeds may hold and others fail, and five that happen to do the same look certain. So no
difference is taken to scatter less between seeds than those of all models that are asked the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from levelfield.report.decisions import Contrast, Seeds
from levelfield.report.scatter import Scatter


def contrast(terms: Sequence[tuple[float, Seeds]], against: float = 0.0) -> Contrast:
    """Returns the weighted sum of one model's scores in several places, over the seeds that all places have."""
    shared = aligned([arm for _, arm in terms])
    return Contrast(tuple((weight, arm) for (weight, _), arm in zip(terms, shared, strict=True)), against, paired=True)


def aligned(arms: Sequence[Seeds]) -> list[Seeds]:
    """Returns the arms with the seeds that all of them have; as they are, where their numbers are not known."""
    if not all(arm.numbers for arm in arms):
        return list(arms)
    shared = sorted(set.intersection(*(set(arm.numbers) for arm in arms)))
    return [arm.only(shared) for arm in arms]


def alike(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """Returns contrasts that ask one thing of several models, with the scatter between seeds of them all."""
    scatter = Scatter.pooled(each.by_seed for each in contrasts)
    return [replace(each, scatter=scatter) for each in contrasts]
