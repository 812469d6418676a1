"""The rules of the contract on calls in training, each a function of a `Subject` as those of `rules` are.

    carries_no_batch(subject)       # UserError for a layer that adds to a batch what it has kept of the one before

What a step of training gives must follow from its batch, the weights and the numbers drawn: batches are shuffled, and a
run that was killed goes on from what it has stored. Layers are copied before they are called, as what they keep would
else reach the next rule. Letters: B batch, T steps, D width.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from levelfield.contract.rules import Subject, devices, differ, steps_apart
from levelfield.spec import UserError

MIXES = (
    "lets the sequences of a batch see each other in training, as nn.BatchNorm1d does, and in eval mode not: what it "
    "learns depends on the batch size. If that is not meant, normalise each sequence by itself, as nn.LayerNorm does."
)
CARRIES = (
    "adds to a batch of training what it has kept of the one before, which holds other sequences: begin every forward "
    "with a fresh state, and keep nothing of a batch in the module."
)
FOLLOWS = (
    "gives outputs in training that depend on the batches before, through its buffers, as running statistics do. If "
    "that is not meant, work them out from the sequence alone."
)
COUNTS = (
    "gives another output in training when the same batch comes again, from something that is not stored with its "
    "weights, so that a run that was killed goes on otherwise: keep counts in buffers, and draw from torch's global "
    "generator."
)


@torch.no_grad()
def carries_no_batch(subject: Subject) -> None:
    """No sequence of a batch meets what the layer has kept of the batch before.

    Buffers that are stored may follow all of a batch, as running statistics do, and not the sequence at one place of it
    for the next batch at that place.
    """
    if _follows(subject) and (_follows(subject, put_back=True) or _by_place(subject)):
        raise UserError(f"{subject.name} {CARRIES}")


@torch.no_grad()
def unsteady(subject: Subject) -> str:
    """Returns what makes the outputs for one batch differ, with the same weights and draws, "" where nothing does."""
    if _follows(subject):
        return FOLLOWS
    once, again = (_after(subject, *n * [subject.x], put_back=True) for n in (1, 2))
    return COUNTS if _unlike(once, again) else ""


def _follows(subject: Subject, put_back: bool = False) -> bool:
    """Tells whether the output for a batch depends on the batch before. put_back: but for stored buffers."""
    x, other = subject.x, subject.other
    return _unlike(_after(subject, x, x, put_back=put_back), _after(subject, other, x, put_back=put_back))


def _by_place(subject: Subject) -> bool:
    """Tells whether another sequence in the middle of the batch before changes what comes next at its place alone."""
    changed = subject.x.clone()
    changed[1] = subject.other[1]
    turned = subject.x.roll(1, 0)  # so that no place has the sequence that it had
    before, after = (_after(subject, first, turned) for first in (subject.x, changed))
    assert before is not None and after is not None
    return [differ(a, b) for a, b in zip(before, after, strict=True)] == [False, True, False]


def _after(subject: Subject, *batches: Tensor, put_back: bool = False) -> Tensor | None:
    """The output for the last of some batches that a copy of the layer is given in a row, with the same draws each;
    None where it cannot be copied. put_back: whether stored buffers are before each batch what they were at first."""
    try:
        copied = replace(subject, layer=deepcopy(subject.layer).train())
    except Exception:  # which the rule on stored weights tells
        return None
    kept, y = _stored(copied.layer), None
    for x in batches:
        with _same_draws(x.device):
            y = copied(x)
        for module, name, before in kept if put_back else ():
            module._buffers[name] = before.clone()
    return y


def _unlike(a: Tensor | None, b: Tensor | None) -> bool:
    """Tells whether two outputs, which are known and finite, differ."""
    if a is None or b is None or not (torch.isfinite(a).all() and torch.isfinite(b).all()):
        return False
    return differ(a, b)


def _stored(layer: nn.Module) -> list[tuple[nn.Module, str, Tensor]]:
    """Copies of the buffers that are stored with the weights, each with its module and name."""
    return [
        (module, name, value.clone())
        for module in layer.modules()
        for name, value in module._buffers.items()
        if value is not None and name not in module._non_persistent_buffers_set
    ]


@contextmanager
def _same_draws(device: torch.device) -> Iterator[None]:
    """Puts the generators of torch, NumPy and Python back, so that the next call draws the same numbers."""
    kept, numpy_kept = random.getstate(), np.random.get_state()  # noqa: NPY002  # a user's layer may draw from it
    with torch.random.fork_rng(devices(device)):
        try:
            yield
        finally:
            random.setstate(kept)
            np.random.set_state(numpy_kept)  # noqa: NPY002


@torch.no_grad()
def _in_training(subject: Subject, inputs: Iterable[Tensor]) -> list[Tensor]:
    """Calls the layer in training mode, each time with the same random draws and the same buffers."""
    kept = [(buffer, buffer.clone()) for buffer in subject.layer.buffers()]
    subject.layer.train()
    outputs = []
    for x in inputs:
        with torch.random.fork_rng(devices(x.device)):
            outputs.append(subject(x))
        for buffer, before in kept:
            buffer.copy_(before)
    subject.layer.eval()
    return outputs


def mixes_in_training(subject: Subject) -> bool:
    """Tells whether, in training mode, what a sequence gives depends on the others of its batch.

    A layer that gives another output when it is called again, with the same draws, shows nothing.
    """
    changed = 3 * subject.other
    changed[1] = subject.x[1]  # between two others, in a batch of three
    first, again, beside_others = (y[1] for y in _in_training(subject, (subject.x, subject.x, changed)))
    return differ(first, beside_others) and not differ(first, again)


def blind_in_training(subject: Subject, steps: Iterable[int]) -> None:
    """Does what `blind_to_the_future` does in training mode, with the same random draws in every call.

    It is no rule for a layer of which `mixes_in_training` holds, as statistics of a batch are of later steps, too; and
    one that gives another output when it is called again shows nothing.
    """
    x, given = subject.x, list(steps)
    changed = [torch.cat([x[:, : step + 1], 3 * subject.other[:, step + 1 :]], 1) for step in given]
    first, again, *outputs = _in_training(subject, (x, x, *changed))
    if differ(first, again) or not torch.isfinite(first).all():
        return
    for step, y in zip(given, outputs, strict=True):
        if wrong := steps_apart(first[:, : step + 1], y[:, : step + 1]):
            raise UserError(
                f"{subject.name} is built as causal, but in training its output at step {wrong[0]} depends on inputs "
                f"after step {step}: honour `causal` where self.training is True, too."
            )
