"""The quick study: what is architecture, what is recipe, and how far do the models see? Minutes on a laptop.

    levelfield demo

Three architectures, each trained from scratch and with masked self-pretraining within the same number of steps, on two
generated tasks; bounded convolutions with growing kernels; and ListOps at twice and four times the training length.
It answers to no printed table: tasks and models are far smaller than anybody's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from levelfield import small
from levelfield.mixers.attention import Attention
from levelfield.mixers.conv import Conv
from levelfield.mixers.s4 import S4
from levelfield.probes.extrapolation import Extrapolation
from levelfield.probes.locality import Locality
from levelfield.probes.reach import Reach
from levelfield.probes.slices import Slices
from levelfield.spec import Effort, Model, Probe, Row, Run, Study, View
from levelfield.verdicts import Key, Seeds, floors, scores

KERNELS = (3, 5, 9, 17, 33)  # of the locality curve, steps a layer sees
BESIDE = 5  # the one that stands beside the other architectures on every task


def models(effort: Effort) -> tuple[Model, ...]:
    """Two that see everything, and one that does not."""
    attention = small.model(Attention(heads=4, rotary="per_head"), effort)
    s4 = small.model(S4(state=16, form="diagonal", init="lin"), effort)
    return attention, s4, conv(BESIDE, effort)


def conv(kernel: int, effort: Effort) -> Model:
    """Named by its kernel, so that tables keep the widths of the locality curve apart."""
    return small.model(Conv(kernel, hidden=small.SIZES[effort].width), effort, name=f"conv{kernel}")


def runs(effort: Effort) -> tuple[Run, ...]:
    """Task by task, then the other kernels on ListOps."""
    arms = [
        (small.task(name, effort), model, protocol)
        for name in small.TASKS
        for model in models(effort)
        for protocol in small.protocols(name, effort, ("scratch", "spt_masked"))
    ]
    (scratch,) = small.protocols("listops", effort, ("scratch",))
    kernels = KERNELS[:1] if effort == "smoke" else [k for k in KERNELS if k != BESIDE]
    arms += [(small.task("listops", effort), conv(k, effort), scratch) for k in kernels]
    return tuple(Run(*arm, seed) for arm in arms for seed in range(small.SIZES[effort].seeds))


def probes(run: Run) -> Sequence[Probe]:
    """Longer sequences only where the task has them; the kernels' curve only where it is complete."""
    if run.task.name != "listops":
        return (Reach(),)
    curve = (Locality(),) if run.protocol.name == "scratch" else ()
    small = run.task.max_length < 48
    return (*curve, Extrapolation(factors=(1, 2) if small else (1, 2, 4), examples=100 if small else 1_000), Slices())


def verdict(rows: Sequence[Row]) -> str:
    """How far architectures are apart from scratch and after self-pretraining, at equal steps."""
    cells, floor = scores(rows), floors(rows)
    sentences = [s for s in (_gap(name, cells, floor) for name in dict.fromkeys(k.task for k in cells)) if s]
    return " ".join(sentences) or "Nothing can be said yet: the runs of an arm are missing."


def _gap(name: str, cells: Mapping[Key, Seeds], floor: Mapping[str, float]) -> str:
    shown = [k.model for k in cells if k.task == name and k.protocol == "spt_masked_matched"]
    pairs = [(cells.get(Key(name, m, "scratch")), cells.get(Key(name, m, "spt_masked_matched"))) for m in shown]
    whole = [(a, b) for a, b in pairs if a is not None and b is not None]
    if len(whole) < 2:
        return ""
    before, after = (max(s.median for s in side) - min(s.median for s in side) for side in zip(*whole, strict=True))
    noise = max(s.values[-1] - s.values[0] for pair in whole for s in pair)
    better = [m for m, (a, b) in zip(shown, whole, strict=True) if b.above(a)]
    worse = [m for m, (a, b) in zip(shown, whole, strict=True) if a.above(b)]
    outcome = "narrows" if after < before - noise else "widens" if after > before + noise else "does not clearly change"
    return (
        f"On {name}, self-pretraining at equal steps {outcome} the gap between architectures: {before:.1f} points from "
        f"scratch, {after:.1f} after it, with seeds up to {noise:.1f} apart (guessing: {floor.get(name, 0.0):.1f} %). "
        f"It raises every seed of {_and(better)} and lowers every seed of {_and(worse)}."
    )


def _and(names: Sequence[str]) -> str:
    return " and ".join(names) or "none"


study = Study(
    name="demo",
    claim=(
        "Part of what looks like architecture is the recipe: within one budget, self-pretraining on the task's own "
        "inputs narrows the gap between architectures."
    ),
    runs=runs,
    views=(
        View("gap", "From scratch to self-pretrained, at equal steps"),
        View(
            "curve", "How local is ListOps? Accuracy by kernel", axis="kernel", note="level: models that see everything"
        ),
        View("curve", "Longer than in training", axis="length"),
        View("compare", "Every seed of every arm"),
        View("slices", "Where the score comes from"),
        View("training", "Training curves"),
    ),
    probes=probes,
    verdict=verdict,
    deviations=(
        "Tasks and models are far smaller than any paper's; no printed number belongs beside these.",
        "One untuned recipe for every arm, so an architecture that wants another one is at a disadvantage.",
        "Two seeds show gross differences only.",
    ),
)
