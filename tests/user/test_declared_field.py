"""Tests that a user's own module may declare how many steps it sees or takes, and what rests on that."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from levelfield.contract import check
from levelfield.spec import Model, UserError
from levelfield.user.mixer import user_mixer


class Shift(nn.Module):
    """A map of each step and the one before it."""

    receptive_field = 2

    def __init__(self, width: int, causal: bool) -> None:
        super().__init__()
        self.mix = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(torch.cat([x, nn.functional.pad(x, (0, 0, 1, -1))], -1))


class Places(Shift):
    """The same, but for a number that rises with the step."""

    equivariant = False

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.arange(x.shape[1])[:, None]


class Farther(Shift):
    receptive_field = 1


def test_a_layer_that_sees_so_many_steps_says_so_and_proofs_rest_on_it_if_it_does_the_same_everywhere() -> None:
    shift, places = user_mixer(Shift), user_mixer(Places)
    for mixer in (shift, places):
        check(mixer, 8, causal=True)
    bounded, placed = (Model((mixer,), depth=3, width=8) for mixer in (shift, places))
    assert bounded.proved_field == 4
    assert placed.receptive_field == 4 and placed.proved_field is None
    with pytest.raises(UserError, match="farther declares a receptive field of 1 steps but sees 1 away"):
        check(user_mixer(Farther), 8, causal=True)


@pytest.mark.parametrize("declared", [0, -1, 20.0, float("inf"), True, "20", [20]], ids=repr)
@pytest.mark.parametrize("name", ["max_length", "receptive_field"])
def test_what_is_no_number_of_steps_is_refused_and_not_taken_for_none(name: str, declared: object) -> None:
    with pytest.raises(UserError, match=f"{name} of Declares is .*: it must be a whole number of steps from 1 on"):
        user_mixer(type("Declares", (Shift,), {name: declared}))


def test_a_length_may_be_a_number_of_numpy_or_a_property_which_only_a_built_module_has() -> None:
    assert user_mixer(type("Counts", (Shift,), {"max_length": np.int64(7)})).max_length == 7
    assert user_mixer(type("Later", (Shift,), {"max_length": property(lambda module: 7)})).max_length is None
