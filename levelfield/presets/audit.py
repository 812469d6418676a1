"""Defines the runs of an audit: how local is a dataset, and what of it is left without its order?

    study(find_tasks("listops")[0])        # what `levelfield audit listops` trains

Convolutions whose layers together see 1 to 121 steps are trained beside models that see everything, by one recipe. So
are unbounded models on views of the data whose order is destroyed within blocks of steps, across them, or wholly. The
data are cut to what the effort affords, for all alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from levelfield.data.audit.view import View
from levelfield.mixers.conv import Conv
from levelfield.objectives import default_objective
from levelfield.presets import efforts
from levelfield.protocols import scratch
from levelfield.spec import (
    UNTUNED,
    Block,
    Effort,
    MixerConfig,
    Model,
    Recipe,
    Run,
    StepLabels,
    Study,
    Task,
    Unlabelled,
    UserError,
)

DEPTH = 2
FEWEST = 400  # examples of a split that are kept however long they are
GROUPS = 4  # of channels, so that wide kernels cost little
FREE: tuple[MixerConfig, ...] = (efforts.S4_DIAGONAL, efforts.ATTENTION)
"""Models that see everything; the first one is also trained on what is left of the order."""


@dataclass(frozen=True)
class Scale:
    """The size of an audit at an effort.

    windows: steps that each bounded model sees in all, of DEPTH layers. blocks: steps within or across which order is
    destroyed. most: examples of train, val and test; fewer, but FEWEST, where sequences are so long that training ones
    come to more than `held` steps. tokens: of a batch, which is at least two sequences and at most `batch`. free: steps
    of a sequence beyond which, of what sees everything, the first model alone is trained. steps: of the optimizer, at
    least; where sequences are short they are more, until `read` steps of sequences have been read, as many as the
    longest ones come to.
    """

    windows: tuple[int, ...] = (1, 5, 9, 17, 33, 61, 121)
    blocks: tuple[int, ...] = (8,)
    most: tuple[int, int, int] = (8_000, 1_000, 2_000)
    held: int = 8_000_000
    free: int = 1_024
    steps: int = 500
    read: int = 4_096_000
    width: int = 32
    seeds: int = 3
    batch: int = 32
    tokens: int = 8_192
    lr: float = 3e-3


SCALES: dict[Effort, Scale] = {
    "smoke": Scale(windows=(1, 5), most=(800, 300, 300), steps=8, read=0, width=16, seeds=1, batch=8),
    "minutes": Scale(),
    "overnight": Scale(
        blocks=(4, 16, 64),
        most=(60_000, 4_000, 8_000),
        held=60_000_000,
        free=4_096,
        steps=6_000,
        read=49_152_000,
        width=64,
        lr=2e-3,
    ),
}


def scale(effort: Effort) -> Scale:
    """Returns the size of an audit. Raises UserError for an effort that audits do not have."""
    if effort not in SCALES:
        raise UserError(f"An audit has no effort '{effort}': choose one of {', '.join(SCALES)}.")
    return SCALES[effort]


def seen(task: Task, effort: Effort) -> Task:
    """Returns the task with no more examples than the effort affords.

    Where a range is certified, whole classes of twins are left, which the certificate is about.
    """
    size = scale(effort)
    share = min(1.0, size.held / (size.most[0] * task.max_length * task.documents))
    train, val, test = (max(min(FEWEST, count), int(share * count)) for count in size.most)
    if task.certified_range is not None:
        return task.at_range(task.certified_range, train)
    return View(task, (train, val, test))


def study(task: Task) -> Study:
    """Returns the study that trains every arm of the audit of a task. Its runs raise UserError for data without any
    target."""
    return Study(
        name=f"audit-{task.name}",
        claim=f"How much of what can be learnt on {task.name} is had from short windows, or without order?",
        runs=lambda effort: runs(task, effort),
        deviations=(UNTUNED,),
    )


def runs(task: Task, effort: Effort) -> tuple[Run, ...]:
    """Returns every arm at every seed: windows from narrow to wide, what sees everything, and what is left of order."""
    if isinstance(task.output, Unlabelled):
        raise UserError(f"{task.name} has no targets, so there is nothing to audit: give data with a label.")
    size, base = scale(effort), seen(task, effort)
    protocol = scratch(_recipe(size, task), default_objective(task))
    arms = [(base, model) for model in models(task, size)]
    arms += [(view, replace(_model(FREE[0], task, size), name=name)) for name, view in _disordered(base, size)]
    return tuple(Run(of, model, protocol, seed) for seed in range(size.seeds) for of, model in arms)


def training_steps(task: Task, effort: Effort) -> int:
    """Returns the steps of the optimizer that every arm is trained for."""
    return round(runs(task, effort)[0].protocol.phases[-1].recipe.budget.value)


def models(task: Task, size: Scale) -> Iterator[Model]:
    """Yields convolutions by the steps they see, then what sees everything."""
    for window in size.windows:
        kernel = 1 + (window - 1) // DEPTH
        mixer = Conv(kernel, hidden=size.width, groups=1 if kernel < 5 else GROUPS)
        yield replace(_model(mixer, task, size), name=f"window{window}")
    for mixer in FREE if task.max_length <= size.free else FREE[:1]:
        yield _model(mixer, task, size)


def _model(mixer: MixerConfig, task: Task, size: Scale) -> Model:
    """The same blocks around any mixer; causal where targets stand at steps, which may not see what follows."""
    causal = isinstance(task.output, StepLabels)
    return Model((mixer,), DEPTH, size.width, causal=causal, block=Block(feedforward=2 * size.width))


def _disordered(base: Task, size: Scale) -> Iterator[tuple[str, Task]]:
    """Yields names of arms and views whose order is destroyed; targets at steps would be moved too, so none there."""
    if isinstance(base.output, StepLabels):
        return
    of = base if isinstance(base, View) else View(base)
    for block in size.blocks:
        yield f"within{block}", replace(of, order="within", block=block)
        yield f"across{block}", replace(of, order="across", block=block)
    yield "unordered", replace(of, order="none")


def _recipe(size: Scale, task: Task) -> Recipe:
    """One recipe for every arm, with as many sequences in a batch as its tokens allow."""
    length = task.max_length * task.documents
    batch = max(2, min(size.batch, size.tokens // length))
    steps = max(size.steps, size.read // (batch * length))
    shape = efforts.Size(size.width, DEPTH, steps, batch, seeds=size.seeds, lr=size.lr)
    return efforts.recipe("minutes", shape)
