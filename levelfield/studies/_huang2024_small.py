"""Holds the arms of huang2024 on models trained here: eight architectures of equal size, and one more way to train.

    models("overnight", "needle")[0]            # the rotary Transformer, 89 thousand parameters
    recipe("rotary", "overnight")               # the same for all but for the rate

The studies of needles and of counting share them, and the recipe but for the length of training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean

from levelfield.mixers.alibi import Alibi
from levelfield.mixers.attention import Attention
from levelfield.mixers.mamba2 import Mamba2
from levelfield.mixers.rglru import RGLRU
from levelfield.mixers.rwkv6 import RWKV6
from levelfield.mixers.rwkv6_channel import RWKV6Channel
from levelfield.objectives import Causal, ClassifySteps, Sum
from levelfield.presets import efforts
from levelfield.probes.depths import Depths
from levelfield.probes.remedies import Remedies, helped
from levelfield.protocols import scratch
from levelfield.report.verdicts import Finding
from levelfield.runs import ledger
from levelfield.spec import Block, Duration, Effort, MixerConfig, Model, Probe, Recipe, Row, Run, Task, Tokens
from levelfield.studies._huang2024_beyond import LengthScores, held_by_both
from levelfield.tasks.needle import Needle

GOAL = Sum((ClassifySteps(), Causal()), (1.0, 0.1))
"""The answers, and every next word. Most of these words cannot be known beforehand, hence the small weight."""

NEEDLE = "needle"  # the task that their rates are chosen on
REFERENCE = "rotary"  # the arm whose parameters the others are given
FASTER = {"mamba2": 10**0.25, "griffin": 10**0.75, "rglru": 10**0.75}
"""What the rate of some arms is multiplied by at `overnight`: the best of four on validation, in 3,000 steps at this
size and length. The trials are kept in `results/huang2024_small-tuned-minutes`. The other arms do best without it."""
TRIALS = 4
SMALLEST = Tokens(1)
FARTHEST = 16  # times the training length, asked at `overnight`; training at random positions has as many
UNHURRIED = Duration(5_000, "steps")  # before which a phase at `overnight` does not end: some find the needle late


MADE_UP = (
    "Made-up words in place of text, and models thousands of times smaller than the paper's: no printed number belongs "
    "beside these."
)
EQUAL = "Parameters are made equal by the width of the feed-forward layers."
"""Deviations that both studies have."""


@dataclass(frozen=True)
class Size:
    """Width, layers and feed-forward of the rotary Transformer; channels of a head; Mamba-2's state; the recipe."""

    width: int
    depth: int
    feedforward: int
    head: int
    state: int
    steps: int
    batch: int
    lr: float
    seeds: int = 3


SIZES: dict[Effort, Size] = {
    "smoke": Size(16, 3, 32, 8, 8, steps=4, batch=8, lr=2e-3, seeds=1),
    "minutes": Size(48, 3, 128, 16, 16, steps=3_000, batch=32, lr=2e-3),
    "overnight": Size(48, 3, 128, 16, 16, steps=12_000, batch=32, lr=2e-3, seeds=5),
    "hours": Size(256, 6, 768, 64, 64, steps=30_000, batch=64, lr=1e-3),
    "paper": Size(512, 12, 1_536, 64, 128, steps=100_000, batch=64, lr=6e-4),
}


def arms(size: Size, length: int) -> dict[str, tuple[MixerConfig, ...]]:
    """Patterns by name. Griffin looks back half the training length, as far short of it as its authors' window is."""
    heads = size.width // size.head
    rotary = Attention(heads, rotary="per_head", bias=False)
    mamba2 = Mamba2(state=size.state, head=size.head)
    rglru = RGLRU(heads=heads)
    time = RWKV6(head=size.head, mix_rank=size.head, decay_rank=size.head, layers=size.depth, blocks=2)
    return {
        REFERENCE: (rotary,),
        "alibi": (Alibi(heads, bias=False),),
        "no-positions": (Attention(heads, bias=False),),
        "mamba2": (mamba2,),
        "mamba2+attention": (mamba2, rotary, mamba2),
        "rwkv6": (time, RWKV6Channel(layers=size.depth, blocks=2)),
        "griffin": (rglru, rglru, replace(rotary, window=max(2, length // 2))),
        "rglru": (rglru,),
        "random-positions": (replace(rotary, rotary_range=FARTHEST * length),),
    }


def models(effort: Effort, name: str) -> tuple[Model, ...]:
    """Returns models of equal parameters, within a hundredth: the feed-forward layers make up for what the mixers
    need. name: of the task."""
    task, size = efforts.generated(name, effort), SIZES[effort]
    patterns = arms(size, task.max_length)
    reference = _model(REFERENCE, patterns[REFERENCE], size, size.feedforward)
    target = _parameters(reference, task)
    return tuple(_matched(name, mixers, size, task, target) for name, mixers in patterns.items())


def _model(name: str, mixers: tuple[MixerConfig, ...], size: Size, feedforward: int) -> Model:
    """RWKV's own feed-forward is a mixer of the pattern, so it has twice the layers and none of the block's."""
    if isinstance(mixers[-1], RWKV6Channel):
        mixers = (*mixers[:-1], replace(mixers[-1], hidden=feedforward))
        return Model(mixers, 2 * size.depth, size.width, causal=True, block=Block("rms"), name=name)
    block = Block("rms", feedforward=feedforward, activation="swiglu", bias=False)
    return Model(mixers, size.depth, size.width, causal=True, block=block, name=name)


def _matched(name: str, mixers: tuple[MixerConfig, ...], size: Size, task: Task, target: int) -> Model:
    """Parameters grow evenly with the feed-forward's width, so two sizes tell which one is nearest to the target."""
    low, high = (_parameters(_model(name, mixers, size, width), task) for width in (1, 2))
    return _model(name, mixers, size, max(1, round(1 + (target - low) / (high - low))))


@cache
def _parameters(model: Model, task: Task) -> int:
    """Counts the trunk: what stands around the layers, and the pattern of layers as often as it comes."""
    pattern = len(model.mixers)
    once, twice = (
        ledger.sizes(replace(model, depth=depth), task.input)["parameters_trunk"] for depth in (pattern, 2 * pattern)
    )
    return once + (twice - once) * (model.depth - pattern) // pattern


def runs(effort: Effort, name: str, made: Callable[[str, Effort], Recipe], seeds: int) -> tuple[Run, ...]:
    """Seed by seed, every architecture on a task by name. made: the recipe of an arm."""
    task = efforts.generated(name, effort)
    arms = [(model, scratch(made(model.label, effort), GOAL)) for model in models(effort, name)]
    return tuple(Run(task, model, protocol, seed) for seed in range(seeds) for model, protocol in arms)


def recipe(arm: str, effort: Effort) -> Recipe:
    """Returns one recipe for all arms; at `overnight`, where training ends by itself, each has its best rate."""
    size = SIZES[effort]
    shared = replace(efforts.recipe(effort), lr=size.lr, batch=size.batch, budget=Duration(size.steps, "steps"))
    if effort != "overnight":
        shares = {"warmup": max(1, size.steps // 10), "validate_every": max(2, size.steps // 5)}
        return replace(shared, **{name: Duration(steps, "steps") for name, steps in shares.items()})
    tuned = replace(shared, lr=size.lr * FASTER.get(arm, 1.0), tuning_trials=TRIALS)
    return replace(tuned, patience_after=UNHURRIED, source="levelfield's own, best of four rates")


def probes(run: Run) -> Sequence[Probe]:
    """Scores by length, depth and haystack; where training ends by itself, at longer texts, and with remedies."""
    if run.task.max_length < 32:
        return (Depths((0.5, 1, 2), examples=60),)
    if not run.protocol.phases[0].recipe.cuts:
        return (Depths(),)
    return (Depths((*Depths().factors, FARTHEST)), *([Remedies()] if helped(run.model) else []))


def task_of(rows: Sequence[Row], name: str) -> Task:
    """Returns the task of that name as it is at the effort of the rows."""
    return efforts.generated(name, efforts.of_rows(rows, SIZES))


Guess = Callable[[Needle, str], float]
"""What guessing scores on needles in a haystack, 0 to 1."""


def answered(decide: Callable[[Guess], Sequence[Finding]]) -> list[Finding]:
    """Returns the answers that hold whether guessing is to name the commonest value, or that of a needle that stands
    out; the others are open."""
    return held_by_both(decide(Needle.keyless), decide(Needle.standing_out))


def length_scores(rows: Sequence[Row], guessing: Guess = Needle.keyless) -> LengthScores:
    """Scores of needles, in which guessing is to name the commonest value of the text, or what else is given."""
    task = task_of(rows, NEEDLE)
    assert isinstance(task, Needle)

    def guess(length: int, haystack: str) -> float:
        return fmean(guessing(task.at_length(length), name) for name in ([haystack] if haystack else task.formats))

    return LengthScores.of(rows, guess)


def parameters(effort: Effort, name: str) -> Mapping[str, int]:
    """Trunk parameters of every arm. name: of the task."""
    task = efforts.generated(name, effort)
    return {model.label: _parameters(model, task) for model in models(effort, name)}
