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
from levelfield.spec import UNTUNED, Effort, Model, Probe, Row, Run, Study, View
from levelfield.verdicts import Key, Seeds, floors, scores

KERNELS = (3, 5, 9, 17)  # of the locality curve, steps a layer sees
LEARNT = 2.0  # percent over guessing from which a gap is worth speaking of
BESIDE = 5  # the one that stands beside the other architectures on every task


TASKS = ("listops", "recall")


def models(name: str, effort: Effort) -> tuple[Model, ...]:
    """Two that see everything, and one that does not."""
    attention = small.model(name, Attention(heads=4, rotary="per_head"), effort)
    s4 = small.model(name, S4(state=16, form="diagonal", init="lin"), effort)
    return attention, s4, conv(name, BESIDE, effort)


def conv(name: str, kernel: int, effort: Effort) -> Model:
    """Named by its kernel, so that tables keep the widths of the locality curve apart."""
    return small.model(name, Conv(kernel, hidden=small.SIZES[effort].width), effort, f"conv{kernel}")


def runs(effort: Effort) -> tuple[Run, ...]:
    """Task by task, then the other kernels on ListOps."""
    arms = [
        (small.task(name, effort), model, protocol)
        for name in TASKS
        for model in models(name, effort)
        for protocol in small.protocols(name, effort, ("scratch", "spt_masked"))
    ]
    (scratch,) = small.protocols("listops", effort, ("scratch",))
    kernels = KERNELS[:1] if effort == "smoke" else [k for k in KERNELS if k != BESIDE]
    arms += [(small.task("listops", effort), conv("listops", k, effort), scratch) for k in kernels]
    return tuple(Run(*arm, seed) for arm in arms for seed in range(small.SIZES[effort].seeds))


def probes(run: Run) -> Sequence[Probe]:
    """Kernels are compared from scratch alone; `reach` asks what a model does with the distances it may see."""
    curve = (Locality(),) if run.task.name == "listops" and run.protocol.name == "scratch" else ()
    if run.model.label.startswith("conv") and run.model.label != f"conv{BESIDE}":
        return curve
    # Expressions of three levels cannot be four times as long.
    longer = Extrapolation((1, 2) if run.task.name == "listops" else (1, 2, 4), examples=1_000)
    return (*curve, longer, Slices(), Reach())


def verdict(rows: Sequence[Row]) -> str:
    """How far architectures are apart from scratch and after self-pretraining, at equal steps."""
    cells, floor = scores(rows), floors(rows)
    names = dict.fromkeys(key.task for key in cells)
    found = [text for name in names if (text := _gap(name, cells, floor.get(name, 0.0)))]
    if not found:
        return "Nothing can be said yet: the runs of an arm are missing."
    narrowed = sum(" narrows " in text for text in found)
    answer = "Yes" if narrowed == len(found) else "Partly" if narrowed else "No"
    return f"{answer}: self-pretraining narrows the gap on {narrowed} of {len(found)} tasks. " + " ".join(found)


def _gap(name: str, cells: Mapping[Key, Seeds], floor: float) -> str:
    """One task's sentence; "" where fewer than two models have both cells."""
    spt = {
        key.model: seeds for key, seeds in cells.items() if key.task == name and key.protocol == "spt_masked_matched"
    }
    pairs = {m: (cells[Key(name, m, "scratch")], after) for m, after in spt.items() if Key(name, m, "scratch") in cells}
    if len(pairs) < 2:
        return ""
    if max(s.median for pair in pairs.values() for s in pair) < floor + LEARNT:
        return f"On {name} nothing can be said: no model is clearly above guessing ({floor:.1f} %)."
    before, after = (_spread([pair[side] for pair in pairs.values()]) for side in (0, 1))
    noise = max(s.values[-1] - s.values[0] for pair in pairs.values() for s in pair)
    better = [m for m, (scratch, spt) in pairs.items() if spt.above(scratch)]
    worse = [m for m, (scratch, spt) in pairs.items() if scratch.above(spt)]
    outcome = "narrows" if after < before - noise else "widens" if after > before + noise else "does not clearly change"
    return (
        f"On {name}, self-pretraining within the same steps {outcome} the gap between architectures: {before:.1f} "
        f"points from scratch, {after:.1f} after it, with seeds up to {noise:.1f} apart (guessing: {floor:.1f} %). It "
        f"raises every seed of {_and(better)} and lowers every seed of {_and(worse)}."
    )


def _spread(cells: Sequence[Seeds]) -> float:
    """Between the best and the worst architecture, in points."""
    medians = [seeds.median for seeds in cells]
    return max(medians) - min(medians)


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
        UNTUNED,
        "Two seeds show gross differences only.",
    ),
)
