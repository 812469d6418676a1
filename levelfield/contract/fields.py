"""The rules of the contract on a declared receptive field, from which reports draw what is proved (docs/reach.md).

    blind_beyond(subject, field=5, causal=True)     # UserError where a step depends on one more than 4 steps before it

A gradient shows every step of one input, however little it weighs, that an output depends on smoothly. Changed inputs
show what a gradient does not, such as the place of a maximum. A layer that looks further at inputs that were not tried
passes both. Letters: B batch, T steps, D width.
"""

from __future__ import annotations

import torch

from levelfield.contract.rules import Subject, differ
from levelfield.spec import UserError

ADVICE = "declare as many as it sees, or None for all."


def gradient_within(subject: Subject, field: int, causal: bool, equivariant: bool) -> None:
    """The output of the middle step has no gradient to steps outside of the field. x: (1, 2 field + 1, D).

    A field of an even number of steps leans to one side, so an equivariant layer must not see as far to the other.
    """
    x = subject.x.requires_grad_()
    subject(x)[0, field].square().sum().backward()
    assert x.grad is not None
    seen = x.grad[0].abs().amax(-1).nonzero().flatten()  # nothing, where a last map starts at zero
    if not len(seen):
        return
    away, span = int((seen - field).abs().max()), int(seen.max() - seen.min()) + 1
    if away > _sides(field, causal)[0]:
        raise UserError(f"{subject.name} declares a receptive field of {field} steps but sees {away} away: {ADVICE}")
    if equivariant and span > field:
        raise UserError(f"{subject.name} declares a receptive field of {field} steps but sees {span}: {ADVICE}")


@torch.no_grad()
def blind_beyond(subject: Subject, field: int, causal: bool) -> None:
    """Changes all steps outside of the field of a step, whose output must stay: of the first, a middle and the last
    step, and without those that a causal layer must not see anyway."""
    x, other, expected = subject.x, 3 * subject.other, subject(subject.x)
    steps, (behind, ahead) = x.shape[1], _sides(field, causal)
    for step in sorted({0, steps // 2, steps - 1}) if torch.isfinite(expected).all() else ():
        first, end = max(0, step - behind), steps if causal else min(steps, step + ahead + 1)
        if (first, end) == (0, steps):
            continue
        changed = torch.cat([other[:, :first], x[:, first:end], other[:, end:]], 1)
        if differ(expected[:, step], subject(changed)[:, step]):
            raise UserError(
                f"{subject.name} declares a receptive field of {field} steps, but its output at step {step} of "
                f"{steps} depends on others than those: {ADVICE}"
            )


@torch.no_grad()
def same_at_every_step(subject: Subject, field: int) -> None:
    """An input shifted by a step shifts the outputs, away from the ends, over as many steps as a block of such a field
    may have: what docs/reach.md proves holds for such layers alone. x: (1, 3 field + 1, D)."""
    here, later = subject(subject.x[:, 1:]), subject(subject.x[:, :-1])
    if differ(here[:, field : 2 * field], later[:, field + 1 : 2 * field + 1]):
        raise UserError(
            f"{subject.name} declares a receptive field, but an input shifted by a step does not shift its "
            "outputs: let its property `equivariant` return False, as for layers of blocks, strides or positions."
        )


def _sides(field: int, causal: bool) -> tuple[int, int]:
    """Returns how many steps before a step, and after it, a layer of that field may see."""
    return (field - 1, 0) if causal else (field // 2, field // 2)
