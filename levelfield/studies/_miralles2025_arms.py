"""Holds the tasks of miralles2025's studies, and builds the arms of its tables 2 to 4: a task, a model, a protocol.

    task("image", "paper")                                            # Image(tokenised=True)
    attention("image", "paper", "rotary")                             # table 2, third row
    runs_of(lambda name, effort: [gmlp(name, effort)], "minutes")     # of all tasks and seeds

The paper trains on symbols, all three sets of Pathfinder and bytes. What it quotes from others was trained on gray
values as numbers, one set of Pathfinder and characters (`plain_task`). Both have one name and the same test examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal

from levelfield.mixers.attention import Attention
from levelfield.mixers.gmlp import GMLP
from levelfield.mixers.mega import Mega
from levelfield.mixers.s4 import S4
from levelfield.mixers.s5 import S5
from levelfield.protocols import DENOISE, enriched, scratch
from levelfield.recipes import miralles2025
from levelfield.spec import Effort, Protocol, Recipe, ReportView, Run, Task
from levelfield.studies import _amos2025
from levelfield.studies import _deviations as same
from levelfield.studies import _miralles2025_baselines as baselines
from levelfield.studies._amos2025 import Arm
from levelfield.tasks.image import Image
from levelfield.tasks.listops import ListOps
from levelfield.tasks.pathfinder import Pathfinder
from levelfield.tasks.retrieval import Retrieval
from levelfield.tasks.text import Text

DEVIATIONS = (
    same.BYTES,
    "The head over two documents of what the paper trains, with a hidden layer of 512, is the public code's; the paper "
    "is silent.",
    same.VALIDATION,
    same.GENERATED,
    same.GRAY,
    same.OPTIMIZER,
    same.PRECISION,
    same.ONE_RUN,
    "Below paper, all batches are of one size and all arms have equally many steps, both phases of self-pretraining "
    "together; hours trains 5,000 steps of 64 examples, not the printed epochs.",
    "Minutes and overnight leave out Text and Retrieval and shrink models and tasks (ListOps of 21 to 199 tokens, "
    "Pathfinder of 16 x 16 pixels, fewer or pooled CIFAR-10 pictures): printed numbers beside them belong to harder "
    "tasks and larger models.",
)
VIEWS = (
    ReportView("compare", "Beside the printed numbers"),
    ReportView("slices", "Where the score comes from"),
    ReportView("training", "Training curves"),
)
"""What the studies of tables 2 to 4 share."""

Positions = Literal["rotary", "sinusoidal", "learned"]


TASKS: dict[Effort, tuple[str, ...]] = {  # what needs official files comes last
    "smoke": ("listops", "pathfinder"),
    "minutes": ("listops", "pathfinder", "image"),
    "overnight": ("listops", "pathfinder", "image"),
    "hours": ("listops", "pathfinder", "text", "retrieval", "image"),
    "paper": ("listops", "pathfinder", "text", "retrieval", "image"),
}


def runs_of(arms: Callable[[str, Effort], Iterable[Arm]], effort: Effort) -> tuple[Run, ...]:
    """Returns, task by task, every arm at every seed; tasks that need official files come last."""
    return _amos2025.runs_of(arms, TASKS[effort], effort)


def task(name: str, effort: Effort) -> Task:
    """The printed task, or a smaller one below `hours`. The paper feeds gray values as symbols."""
    if effort == "smoke":
        small = ListOps(minimum=10, length=60, max_depth=4, train=64, val=16, test=16)
        return small if name == "listops" else Pathfinder(16, sets="three", train=32, val=16, test=16, tokenised=True)
    if effort in ("minutes", "overnight"):
        return {
            "listops": ListOps(minimum=20, length=200, max_depth=5, max_args=6, train=20_000, val=1_000, test=2_000),
            "pathfinder": Pathfinder(16, sets="three", train=20_000, val=1_000, test=2_000, tokenised=True),
            "image": Image(tokenised=True, train=15_000, test=5_000) if effort == "minutes" else Image(True, side=8),
        }[name]
    return {
        "listops": ListOps(),
        "pathfinder": Pathfinder(sets="three", tokenised=True),
        "text": Text(),
        "retrieval": Retrieval(length=4096),
        "image": Image(tokenised=True),
    }[name]


def plain_task(name: str, effort: Effort) -> Task:
    """Returns the task of the papers that are quoted, or below `hours` one whose test examples are the study's own."""
    if effort in ("hours", "paper"):
        return _amos2025.task(name, effort)
    own = task(name, effort)
    if isinstance(own, Pathfinder):
        return replace(own, sets="one", tokenised=False)
    assert isinstance(own, (Image, ListOps))
    return replace(own, tokenised=False) if isinstance(own, Image) else own


def _task(name: str, effort: Effort, anew: bool) -> Task:
    """Returns the paper's task, of Pathfinder without techniques with the hard set alone."""
    data = task(name, effort)
    return data if anew or not isinstance(data, Pathfinder) else replace(data, sets="one")


def techniques(name: str, recipe: Recipe) -> Protocol:
    """Returns the enriched training of a task (section 3)."""
    denoised = name in miralles2025.DENOISED
    return enriched(
        recipe,
        augment=miralles2025.augmented(name),
        denoise=DENOISE if denoised else None,
        extra_sets=name == "pathfinder",
    )


def attention(name: str, effort: Effort, positions: Positions, *, anew: bool = True) -> Arm:
    """Returns a Transformer of table 4, called `transformer_` and its positions. anew: with the techniques."""
    setting = miralles2025.transformer(name, effort, enriched=anew)
    data, protocol = _task(name, effort, anew), techniques(name, setting.recipe) if anew else scratch(setting.recipe)
    label = f"transformer_{positions}"
    if positions == "rotary":
        mixer = Attention(setting.heads, rotary="across_heads", rotary_half=setting.rotary_half)
        return Arm(data, setting.shape.model(mixer, label), protocol)
    model = replace(setting.shape, positions=positions).model(Attention(setting.heads), label)
    return Arm(data, replace(model, max_positions=data.max_length) if positions == "learned" else model, protocol)


def quoted_scratch(name: str, effort: Effort) -> Arm:
    """Returns the Transformer of Tay et al. (2021), as table 1 of amos2025 has it."""
    setting = baselines.transformer(name, effort)
    model = setting.shape.model(Attention(setting.heads, block=setting.block), "transformer")
    protocol, _ = _amos2025.protocols(setting)
    return Arm(plain_task(name, effort), model, protocol)


def quoted_pretrained(name: str, effort: Effort) -> Arm:
    """Returns the rotary Transformer of amos2025's table 2 after masked self-pretraining."""
    setting = baselines.transformer_rotary(name, effort)
    mixer = Attention(setting.heads, rotary="per_head", block=setting.block)
    _, protocol = _amos2025.protocols(setting)
    return Arm(plain_task(name, effort), setting.shape.model(mixer, "transformer_rotary"), protocol)


def mega(name: str, effort: Effort, *, anew: bool) -> Arm:
    """Returns Mega as Ma et al. (2023) train it, or trained anew with the techniques."""
    setting = baselines.mega(name, effort, enriched=anew)
    data, protocol = _trained(name, effort, setting.recipe, anew)
    mixer = Mega(
        keys=setting.keys,
        values=setting.values,
        attention=setting.attention,
        bound=max(setting.bound, data.max_length),
    )
    return Arm(data, setting.shape.model(mixer, "mega"), protocol)


def s4(name: str, effort: Effort, *, anew: bool) -> Arm:
    """Returns S4 as its code base trains it, or trained anew with the techniques."""
    setting = baselines.s4(name, effort, enriched=anew)
    data, protocol = _trained(name, effort, setting.recipe, anew)
    mixer = S4(copies=setting.copies, dt_min=setting.dt_min, lr=setting.lr, dt_lr=setting.dt_lr)
    return Arm(data, setting.shape.model(mixer, "s4"), protocol)


def s5(name: str, effort: Effort, *, anew: bool) -> Arm:
    """Returns S5 as Smith et al. (2023) train it, or trained anew with the techniques."""
    setting = baselines.s5(name, effort, enriched=anew)
    data, protocol = _trained(name, effort, setting.recipe, anew)
    mixer = S5(
        state=setting.state,
        blocks=setting.blocks,
        activation=setting.activation,
        readout_init=setting.readout_init,
        clip=setting.clip,
        lr=setting.lr,
        drive_follows=setting.drive_follows,
    )
    return Arm(data, setting.shape.model(mixer, "s5"), protocol)


def gmlp(name: str, effort: Effort) -> Arm:
    """Returns the paper's gMLP, which is also the unbounded model of table 1's study."""
    setting = miralles2025.gmlp(name, effort)
    model = setting.shape.model(GMLP(setting.hidden, setting.channels, setting.bound), "gmlp")
    return Arm(task(name, effort), model, techniques(name, setting.recipe))


def _trained(name: str, effort: Effort, recipe: Recipe, anew: bool) -> tuple[Task, Protocol]:
    """The task and protocol of a model that is quoted, or trained anew."""
    if anew:
        return task(name, effort), techniques(name, recipe)
    return plain_task(name, effort), scratch(recipe)
