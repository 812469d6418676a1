"""The rules of the contract on random numbers: a run's seed alone decides them.

    left_when_called(subject)       # UserError for a layer whose forward calls torch.manual_seed(0)

Every run and every step of training seeds torch's global generator, and what a layer draws follows from that. A layer
that sets the seed itself gives all runs the same weights, or all steps the same dropout. Letters: B batch, T steps, D
width.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Generator, Tensor, nn

from levelfield.contract.rules import Subject, devices, in_both_modes
from levelfield.spec import UserError
from levelfield.spec.reseeding import SetsSeed

MARK = 977_231_843  # a seed that nobody else sets
DRAWN = 16  # numbers of a weight from which on their looks tell whether they were drawn
ALIKE = (
    "begins with the same weights whatever the seed of a run is: where they are drawn at random, draw them from "
    "torch's global generator, and leave its seed alone."
)


def left_when_built(build: Callable[[], nn.Module], name: str) -> None:
    """Building a layer sets no seed of torch's."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SetsSeed)
        torch.default_generator.manual_seed(MARK)
        build()
        found = torch.initial_seed() != MARK
    if found or any(issubclass(each.category, SetsSeed) for each in caught):
        raise UserError(str(SetsSeed(name)))


@torch.no_grad()
def left_when_called(subject: Subject) -> None:
    """A call sets no seed of torch's. What else is wrong with it is for other rules to say."""
    for each in in_both_modes(subject):
        with torch.random.fork_rng(devices(each.x.device)):
            torch.default_generator.manual_seed(MARK)
            with suppress(UserError, SystemExit):
                each(each.x)
            found = torch.initial_seed() != MARK
        if found:
            raise UserError(
                f"{each.name} sets torch's seed when it is called, so that whatever draws after it has the same "
                "numbers at every step: leave torch.manual_seed out, or call it within `with torch.random.fork_rng():`."
            )


def alike(build: Callable[[Generator], nn.Module]) -> bool:
    """Tells whether two layers of one generator begin with the same weights although some look drawn at random."""
    generator = Generator().manual_seed(0)
    one, other = (dict(build(generator).named_parameters()) for _ in "12")
    same = all(key in other and torch.equal(value, other[key]) for key, value in one.items())
    return same and any(_looks_drawn(value) for value in one.values())


def _looks_drawn(value: Tensor) -> bool:
    """Tells whether hardly two of a weight's numbers are alike, and they are in no order, as constants often are."""
    numbers = torch.view_as_real(value).flatten() if value.is_complex() else value.flatten()
    if numbers.numel() < DRAWN or numbers.unique().numel() < 0.99 * numbers.numel():
        return False
    steps = numbers.diff()
    return not ((steps > 0).all() or (steps < 0).all())
