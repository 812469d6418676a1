"""Defines the study of certified ranges, of all mixers that ship or of one that is given beside a few of them.

    study("reach", MIXERS)                            what `levelfield run reach` trains
    beside(load_user_mixer("mine.py:Mine"))           what `levelfield reach mine.py:Mine` trains
    beside(S5(), Asked(Reach(marks=3), steps=5_000))  other sequences, and longer training

Each model is trained at each range of the effort on the task `reach`, whose answer needs more than a window of that
many steps, by proof (docs/reach.md). All see earlier steps alone, as the recurrences among them do, or all see both
directions where the given mixer does. A curriculum, the same for all, gives training a fair chance: shorter sequences,
of range 4, 8, 16, ..., are mixed with those of the task's own. Training ends once that all of validation is right,
since more steps could not show more, so that the cap of steps, the same for all, is far beyond what most need; and
where no validation was better for half of these steps. A model's reach is the longest of these ranges at which most
seeds score 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial

from levelfield import contract
from levelfield.mixers.conv import Conv
from levelfield.mixers.gated_deltanet import GatedDeltaNet
from levelfield.mixers.gla import GLA
from levelfield.mixers.linear import Linear
from levelfield.mixers.lru import LRU
from levelfield.mixers.mamba import Mamba
from levelfield.mixers.mamba2 import Mamba2
from levelfield.mixers.rglru import RGLRU
from levelfield.mixers.s5 import S5
from levelfield.objectives import default_objective
from levelfield.presets import efforts
from levelfield.presets.comparison import own_name
from levelfield.presets.reach_verdict import verdict
from levelfield.probes.ranges import Ranges
from levelfield.protocols import scratch
from levelfield.runs.ledger import match_width, trained
from levelfield.spec import (
    UNTUNED,
    Block,
    Duration,
    Effort,
    MixerConfig,
    Model,
    Numerics,
    Recipe,
    ReportView,
    Run,
    Study,
    Task,
    UserError,
    digest,
)
from levelfield.tasks.reach import Reach

OFFSET = 16  # random steps before and after; more would cost time and change nothing that is proved
EASIEST = 4  # range of the shortest training sequences
SYMBOLS = 4  # of the filler; with 16 training takes twice as long, and what is proved is the same
DEPTH = 2
SHIPPED: tuple[MixerConfig, ...] = (
    efforts.ATTENTION,
    efforts.S4_DIAGONAL,
    S5(state=32),
    LRU(state=32),
    Linear(),
    Mamba(),
    Mamba2(state=32, head=16),
    GLA(),
    GatedDeltaNet(heads=2),
    RGLRU(),
)
NAMED: tuple[MixerConfig, ...] = (*efforts.SMALL, *SHIPPED)
"""What a name means here, where it does not mean the mixer's usual settings."""
BESIDE: tuple[MixerConfig, ...] = (efforts.ATTENTION, efforts.S4_DIAGONAL)
KERNELS = (5, 9, 17)  # of two layers that together see 9, 17 and 33 steps, just more than ranges of 8, 16 and 32
VALIDATE = 100  # steps between validations
UNPADDED = Numerics(by_length=True)  # takes less time, and no mixer has to mind padding


@dataclass(frozen=True)
class Scale:
    """The size of the study at an effort. batches: sequences a step, by range. steps: of the optimizer, at every range,
    at most."""

    batches: dict[int, int]
    steps: int
    width: int
    seeds: int
    train: int = 20_000
    tested: int = 1_000
    lr: float = 3e-3


SCALES: dict[Effort, Scale] = {
    "smoke": Scale({5: 8, 10: 8}, steps=6, width=16, seeds=1, train=64, tested=32),
    "minutes": Scale({8: 32, 16: 32, 32: 32, 64: 32, 128: 32, 256: 32}, steps=3_000, width=32, seeds=3),
    "overnight": Scale({16: 32, 64: 32, 256: 32, 1_024: 16, 4_096: 8}, steps=4_000, width=32, seeds=3),
    "hours": Scale({64: 64, 256: 64, 1_024: 32, 4_096: 16, 16_384: 4}, steps=20_000, width=128, seeds=3, lr=1e-3),
    "paper": Scale({256: 64, 1_024: 64, 4_096: 64, 16_384: 16, 65_536: 4}, steps=100_000, width=256, seeds=3, lr=5e-4),
}


@dataclass(frozen=True)
class Asked:
    """What may differ from the usual. like: the task whose marks and filler are taken, while the study sets its range
    and its counts. steps: of the optimizer. seeds: of every arm; None is what the effort affords."""

    like: Reach = field(default_factory=partial(Reach, symbols=SYMBOLS))
    steps: int | None = None
    seeds: int | None = None

    def scale(self, effort: Effort) -> Scale:
        """Returns the size of the study at an effort."""
        usual = SCALES[effort]
        return replace(usual, steps=self.steps or usual.steps, seeds=self.seeds or usual.seeds)

    def task(self, apart: int, effort: Effort) -> Reach:
        """Returns the task at one range, with a curriculum of shorter ones in training."""
        scale = SCALES[effort]
        tested = scale.tested if apart <= 1_024 else scale.tested // 4
        counts = {"train": scale.train, "val": tested // 4 * 2, "test": tested}
        whole = {split: count - count % self.like.twins for split, count in counts.items()}
        return replace(self.like, range=apart, offset=OFFSET, easiest=min(EASIEST, apart), **whole)


USUAL = Asked()
SET = ("range", "offset", "easiest")  # by the study, as are the counts


def asked(like: Task | None = None, seeds: int | None = None, steps: int | None = None) -> Asked:
    """Returns what is asked of the sequences of a given task, or of the usual ones. Raises UserError for another task
    than `reach`, and for settings of it that are the study's."""
    like = USUAL.like if like is None else like
    if not isinstance(like, Reach):
        raise UserError(f"{like.name} has no certified range: give reach with its settings, or reach_parity.")
    if given := [name for name in SET if getattr(like, name) != getattr(Reach(), name)]:
        raise UserError(f"The effort sets {', '.join(given)} of reach: leave it out of what is given.")
    return Asked(like, steps, seeds)


@cache
def models(
    given: tuple[MixerConfig, ...], effort: Effort, causal: bool, first: str | None = None, asked: Asked = USUAL
) -> tuple[Model, ...]:
    """Returns the models of the given mixers and three convolutions, at widths with the parameters of the first one.

    first: the name of the first model, where it is not its mixer's.
    """
    scale = SCALES[effort]
    of = asked.task(min(scale.batches), effort)

    def count(model: Model) -> int:
        return trained(model, of)

    def made(mixer: MixerConfig, name: str | None = None) -> Model:
        block = Block(feedforward=2 * scale.width)
        return Model((mixer,), DEPTH, scale.width, causal=causal, block=block, name=name)

    bounded = [made(Conv(k, hidden=scale.width, groups=8), f"conv{1 + DEPTH * (k - 1)}") for k in KERNELS]
    own, *others = made(given[0], first), *(made(mixer) for mixer in given[1:]), *bounded
    return own, *(match_width(model, count, count(own), multiple=8) for model in others)


def runs(
    given: Sequence[MixerConfig], effort: Effort, causal: bool, first: str | None = None, asked: Asked = USUAL
) -> tuple[Run, ...]:
    """Returns every model at every range it takes, with every seed."""
    scale = asked.scale(effort)
    shapes = models(tuple(given), effort, causal, first, asked)
    made: list[Run] = []
    for apart, batch in scale.batches.items():
        of = asked.task(apart, effort)
        protocol = scratch(recipe(scale, batch), default_objective(of))
        taken = [model for model in shapes if model.max_length is None or model.max_length >= of.max_length]
        made += [Run(of, model, protocol, seed, UNPADDED) for model in taken for seed in range(scale.seeds)]
    return tuple(made)


def recipe(scale: Scale, batch: int) -> Recipe:
    """Returns the recipe of every model at a range. It waits long for a better score, since some learn late."""
    shape = efforts.Size(scale.width, DEPTH, scale.steps, batch, seeds=scale.seeds, lr=scale.lr)
    every = min(VALIDATE, max(2, scale.steps // 20))
    return replace(
        efforts.recipe("minutes", shape),
        schedule="constant",
        warmup=Duration(every, "steps"),
        validate_every=Duration(every, "steps"),
        patience=math.ceil(scale.steps / 2 / every),
        enough=1.0,
    )


def study(name: str, given: Sequence[MixerConfig], claim: str) -> Study:
    """Returns the study of these mixers beside three convolutions."""
    return Study(
        name=name,
        claim=claim,
        runs=lambda effort: runs(given, effort, causal=True),
        views=(
            ReportView("ranges", "Accuracy by certified range", axis="trained", note="Every seed is a dot."),
            ReportView("ranges", "Asked beyond the range of training", axis="asked", note="Medians over seeds."),
            ReportView("compare", "Every seed of every arm"),
            ReportView("training", "Training curves"),
        ),
        probes=lambda run: (Ranges(),),
        verdict=verdict,
        deviations=(
            UNTUNED,
            "All models see earlier steps alone, as the recurrences among them do, unless the given mixer looks ahead.",
            "A reach is bounded by the longest range of the effort, and by its steps: more training may lengthen it.",
            "Training ends once that all of validation is right, so that those who learn soon have had fewer steps.",
        ),
    )


def beside(mixer: MixerConfig, asked: Asked = USUAL) -> Study:
    """Returns the study of one mixer, a user's own or one that ships, beside attention, S4 and three convolutions.

    Its runs raise UserError for whatever the contract finds wrong with it, and where it takes no range of the effort.
    """
    own = own_name(mixer)
    arms = (mixer, *(each for each in BESIDE if each.label != own))

    def made(effort: Effort) -> tuple[Run, ...]:
        return runs(arms, effort, _looks_back(mixer, effort, asked), own, asked)

    name = "-".join(["reach", own, *(digest(each)[:6] for each in (mixer, asked)[: 1 if asked == USUAL else 2])])
    found = study(name, arms, claim=f"Sequences that need it by proof show how far {own} reaches.")
    return replace(found, runs=made)


@cache
def _looks_back(mixer: MixerConfig, effort: Effort, asked: Asked) -> bool:
    """Tells whether the models of a study are causal, as is the mixer where it can be. Raises UserError for whatever is
    wrong with it."""
    scale = SCALES[effort]
    _require_room(mixer, effort, asked)
    _require_text(effort, asked)
    known = [asked.task(apart, effort).max_length for apart in scale.batches]
    lengths = [length for length in known if mixer.max_length is None or length <= mixer.max_length]
    can = mixer.takes_causal or not contract.looks_ahead(mixer, scale.width, max(lengths))
    causal = "causal" in mixer.directions and can
    contract.check(mixer, scale.width, causal, lengths=lengths, padding=False)
    return causal


def _require_text(effort: Effort, asked: Asked) -> None:
    """Raises UserError where the filler is of a text that does not do for the longest range of the effort."""
    if asked.like.text is not None:
        few = dict.fromkeys(("train", "val", "test"), asked.like.twins)
        replace(asked.task(max(SCALES[effort].batches), effort), **few).build(None)


def _require_room(mixer: MixerConfig, effort: Effort, asked: Asked) -> None:
    """Raises UserError where the mixer takes no sequence of the effort's shortest range."""
    shortest = min(SCALES[effort].batches)
    needed = asked.task(shortest, effort).max_length
    if mixer.max_length is not None and mixer.max_length < needed:
        raise UserError(
            f"{mixer.label} takes at most {mixer.max_length} steps, but range {shortest} needs {needed}: raise its "
            "bound (max_length)."
        )
