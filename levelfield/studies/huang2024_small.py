"""How long is long, for models trained here on the same data: does recall fall off a cliff beyond the training length?

    levelfield run huang2024_small --effort minutes
    levelfield report huang2024_small --effort minutes

huang2024 compares published checkpoints, which differ in size, data and training length. Here eight architectures of
equal parameters read the same needles in the same haystacks at one length, as language models with the loss of the
answers beside that of the next word, and are then asked at half to eight times that length, by depth and by haystack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from levelfield import ledger, small
from levelfield.mixers.alibi import Alibi
from levelfield.mixers.attention import Attention
from levelfield.mixers.mamba2 import Mamba2
from levelfield.mixers.rglru import RGLRU
from levelfield.mixers.rwkv6 import RWKV6
from levelfield.mixers.rwkv6_channel import RWKV6Channel
from levelfield.model import Net
from levelfield.objectives import Causal, ClassifySteps, Sum
from levelfield.probes.depths import Depths
from levelfield.protocols import scratch
from levelfield.spec import UNTUNED, Block, Duration, Effort, MixerConfig, Model, Probe, Row, Run, Study, Task, View
from levelfield.verdicts import floors, scores

NAME = "needle"
GOAL = Sum((ClassifySteps(), Causal()), (1.0, 0.1))
"""The answers, and every next word. Most of these words cannot be known beforehand, hence the small weight."""

REFERENCE = "rotary"  # the arm whose parameters the others are given
LEARNT = 50.0  # percent at the training length from which a fall beyond it can be spoken of
CLIFF = 0.5  # of what a model is above guessing at the training length, lost at twice that length


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
    }


def models(effort: Effort) -> tuple[Model, ...]:
    """Of equal parameters, within a hundredth: the feed-forward layers make up for what the mixers need."""
    task, size = small.task(NAME, effort), SIZES[effort]
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
    """Of the trunk: what stands around the layers, and the pattern of layers as often as it comes."""
    around, once = (_trunk(replace(model, depth=depth), task) for depth in (0, len(model.mixers)))
    return around + (once - around) * model.depth // len(model.mixers)


def _trunk(model: Model, task: Task) -> int:
    return ledger.parameters(Net(model, task.input, (), flag=False, seed=0))["parameters_trunk"]


def runs(effort: Effort) -> tuple[Run, ...]:
    size, task = SIZES[effort], small.task(NAME, effort)
    recipe = replace(
        small.recipe(effort),
        lr=size.lr,
        batch=size.batch,
        budget=Duration(size.steps, "steps"),
        warmup=Duration(max(1, size.steps // 10), "steps"),
        validate_every=Duration(max(2, size.steps // 5), "steps"),
    )
    protocol = scratch(recipe, GOAL)
    return tuple(Run(task, model, protocol, seed) for seed in range(size.seeds) for model in models(effort))


def probes(run: Run) -> Sequence[Probe]:
    return (Depths((0.5, 1, 2), examples=60),) if run.task.max_length < 32 else (Depths(),)


def verdict(rows: Sequence[Row]) -> str:
    """Which models learnt the task at its length, and which of them lose half of it at twice that length."""
    curves = _curves(rows)
    floor = floors(rows).get(NAME, 0.0)
    trained = _trained(rows)
    learnt = {m: c for m, c in curves.items() if c.get(trained, 0.0) >= LEARNT and 2 * trained in c}
    if not learnt:
        return f"Nothing can be said: no model finds half of the needles at the training length, {trained} steps."
    fallen = [m for m, c in learnt.items() if c[2 * trained] - floor < CLIFF * (c[trained] - floor)]
    kept = [m for m in learnt if m not in fallen]
    farthest = max(max(c) for c in learnt.values())
    at_end = {m: c[farthest] for m, c in learnt.items() if farthest in c}
    best = max(at_end, key=lambda m: at_end[m])
    answer = "Yes" if not kept else "Partly" if fallen else "No"
    rest = [m for m in curves if m not in learnt]
    return (
        f"{answer}: of {len(learnt)} models that find at least {LEARNT:.0f} % of the needles at {trained} steps, "
        f"{len(fallen)} lose more than half of it at {2 * trained} ({', '.join(fallen) or 'none'}); "
        f"{', '.join(kept) or 'none'} do not. At {farthest} steps the best is {best} with {at_end[best]:.1f} % "
        f"(guessing: {floor:.1f} %)." + (f" Not learnt: {', '.join(rest)}." if rest else "")
    )


def _curves(rows: Sequence[Row]) -> dict[str, dict[int, float]]:
    """Model -> length -> median over seeds, percent."""
    found: dict[str, dict[int, float]] = {}
    for key, seeds in scores(rows, "length").items():
        if key.place.isdigit():
            found.setdefault(key.model, {})[int(key.place)] = seeds.median
    return found


def _trained(rows: Sequence[Row]) -> int:
    """The training length: the second of the lengths asked, which begin at its half."""
    lengths = sorted({length for curve in _curves(rows).values() for length in curve})
    return lengths[1] if len(lengths) > 1 else 0


def parameters(effort: Effort) -> Mapping[str, int]:
    """Trunk parameters of every arm."""
    task = small.task(NAME, effort)
    return {model.label: _parameters(model, task) for model in models(effort)}


study = Study(
    name="huang2024_small",
    claim="Recall falls off a cliff beyond the training length, whatever the architecture (huang2024, section 4).",
    runs=runs,
    views=(
        View("curve", "Beyond the training length", axis="length"),
        View("heat", "By depth of the needle, in tenths of the text", axis="depth"),
        View("heat", "By haystack", axis="format"),
        View("compare", "At the training length, one needle asked"),
        View("training", "Learning curves"),
    ),
    probes=probes,
    verdict=verdict,
    deviations=(
        "Made-up words in place of text, and models thousands of times smaller than the paper's: no printed number "
        "belongs beside these.",
        UNTUNED,
        "Parameters are made equal by the width of the feed-forward layers.",
    ),
)
