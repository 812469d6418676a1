"""The rule of the contract on settings of torch, which hold for all that a process computes.

    left_when_called(subject)       # UserError for a layer whose forward calls torch.set_default_dtype(torch.float64)

The layers around it, the loss and the next step would else be computed in another way than those of other arms.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import product

import torch

from levelfield.contract.rules import Subject, in_both_modes
from levelfield.spec import UserError, torch_settings


def left_when_called(subject: Subject) -> None:
    """A call changes no setting of torch's. What else is wrong with it is for other rules to say."""
    for each, tracked in product(in_both_modes(subject), (True, False)):
        with torch.set_grad_enabled(tracked), torch_settings.kept() as changed, suppress(UserError, SystemExit):
            each(each.x)
        if changed:
            raise UserError(
                f"{each.name} changes a setting of torch when it is called, so that whatever is computed after it "
                f"is computed in another way: leave {' and '.join(changed)} out of its forward."
            )
