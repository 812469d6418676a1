"""A user's own mixer beside baselines: what `levelfield compare FILE.py:Mixer` runs.

Every arm has the same blocks, recipe, number of steps and, as nearly as widths allow, of parameters. The user's arms
come first, so that their report does too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from levelfield import contract, small, tasks
from levelfield.ledger import match_width, parameters
from levelfield.mixers.attention import Attention
from levelfield.mixers.conv import Conv
from levelfield.mixers.s4 import S4
from levelfield.model import Net
from levelfield.objectives import default_objective, heads
from levelfield.probes.extrapolation import Extrapolation
from levelfield.probes.reach import Reach
from levelfield.probes.slices import Slices
from levelfield.protocols import arm
from levelfield.spec import UNTUNED, Effort, MixerConfig, Model, Probe, Row, Run, Study, Task, View, digest
from levelfield.verdicts import Key, Seeds, scores

BASELINES: tuple[MixerConfig, ...] = (
    Attention(heads=4, rotary="per_head"),
    S4(state=16, form="diagonal", init="lin"),
    Conv(kernel=5, hidden=64),
)


def compare(mixer: MixerConfig, names: Sequence[str] = (), protocols: Sequence[str] = ()) -> Study:
    """The study of one mixer; `names` of tasks, by default those of `small.TASKS`, and of protocols.

    Another source or setting is another study, so its name ends in a part of their hash. Its runs raise UserError
    for an unknown name, and for whatever the contract finds wrong with the mixer.
    """
    names, protocols = tuple(names) or small.TASKS, tuple(protocols) or ("scratch", "spt_masked")

    def runs(effort: Effort) -> tuple[Run, ...]:
        for causal in {p == "spt_causal" or n in small.CAUSAL for p in protocols for n in names}:
            _check(mixer, small.SIZES[effort].width, causal, max(task(name, effort).max_length for name in names))
        arms = [
            (task(name, effort), arm(model, protocol), protocol)
            for name in names
            for model in models(mixer, name, effort)
            for protocol in small.protocols(name, effort, protocols)
        ]
        return tuple(Run(*one, seed) for one in arms for seed in range(small.SIZES[effort].seeds))

    return Study(
        name=f"compare-{own_name(mixer)}-{digest(mixer)[:6]}",
        claim=f"At equal steps and parameters, {own_name(mixer)} scores higher than the baselines.",
        runs=runs,
        views=(
            View("gap", "By protocol, at equal steps"),
            View("compare", "Every seed of every arm"),
            View("curve", "Longer than in training", axis="length"),
            View("slices", "Where the score comes from"),
            View("training", "Training curves"),
        ),
        probes=probes,
        verdict=lambda rows: verdict(own_name(mixer), rows),
        deviations=(
            UNTUNED,
            "With two seeds a side, one side is wholly above the other by luck once in three times: take more.",
        ),
    )


@cache
def _check(mixer: MixerConfig, width: int, causal: bool, longest: int) -> None:
    contract.check(mixer, width, causal, longest=longest)


def task(name: str, effort: Effort) -> Task:
    """A generated task at the size the effort affords; any other task as it is."""
    return small.task(name, effort) if name in small.SIZED else tasks.find(name)


@cache
def models(mixer: MixerConfig, name: str, effort: Effort) -> tuple[Model, ...]:
    """The user's model, then the baselines at the widths whose parameter counts are nearest to it."""
    of = task(name, effort)

    def count(model: Model) -> int:
        net = Net(model, of.input, heads(default_objective(of), of), flag=False, seed=0)
        return parameters(net)["parameters"]

    own = small.model(name, mixer, effort, own_name(mixer))
    shapes = [small.model(name, baseline, effort) for baseline in BASELINES]
    return own, *(match_width(shape, count, count(own), multiple=8) for shape in shapes)


def own_name(mixer: MixerConfig) -> str:
    """The mixer's label, told apart from a baseline of the same name."""
    return f"my_{mixer.label}" if mixer.label in {b.label for b in BASELINES} else mixer.label


def probes(run: Run) -> Sequence[Probe]:
    """Longer sequences where the task has them in a size that a laptop can take."""
    longer = {"listops": (1, 2), "pathfinder": ()}.get(run.task.name, (1, 2, 4) if run.task.name in small.SIZED else ())
    return (*([Extrapolation(longer, examples=500)] if longer else []), Reach(), Slices())


def verdict(label: str, rows: Sequence[Row]) -> str:
    """Task by task and protocol by protocol, against the best baseline by median."""
    cells = scores(rows)
    sentences = [_against(label, key, cells) for key in cells if key.model == label]
    return " ".join(s for s in sentences if s) or "Nothing can be said yet: no run of the mixer has finished."


def _against(label: str, key: Key, cells: Mapping[Key, Seeds]) -> str:
    others = {k: s for k, s in cells.items() if k == key._replace(model=k.model) and k.model != label}
    if not others:
        return ""
    best = max(others, key=lambda k: others[k].median)
    own, other = cells[key], others[best]
    word = "above" if own.above(other) else "below" if other.above(own) else "not clearly apart from"
    return f"On {key.task} by {key.protocol}, {label} ({own}) is {word} the best baseline, {best.model} ({other})."
