"""How short a range is enough, on tasks small enough to train every arm until it stops improving?

    levelfield run miralles2025_small --effort overnight
    levelfield report miralles2025_small --effort overnight

miralles2025 shows that convolutions of at most 61 steps a layer have most of what Long Range Arena measures. Here two
layers of kernels 3 to 61, and a gMLP that sees everything, learn pictures, ListOps and the order of marks at a
certified range with enriched training. Of that range it is proved that kernels 3, 5 and 11, of which two layers see 21
steps at most, score exactly one half. So the same models show what is local and what is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from levelfield.mixers.conv import Conv
from levelfield.mixers.gmlp import GMLP
from levelfield.presets import efforts
from levelfield.probes.locality import Locality
from levelfield.probes.slices import Slices
from levelfield.report.verdicts import Finding, judged, summed_up
from levelfield.spec import Effort, Model, ReportView, Row, Run, Study, Task
from levelfield.studies._miralles2025 import claims
from levelfield.studies._miralles2025_small import GROUPS, SHORT, protocol
from levelfield.studies._miralles2025_small import task as small
from levelfield.tasks.listops import ListOps

TASKS = ("listops", "reach", "image")  # what needs official files comes last
KERNELS = (3, 5, 11, 31, 61)
NEARLY = 0.9  # share of the gain over guessing that counts as "nearly all"
LISTOPS = ListOps(minimum=48, length=112, max_depth=5, max_args=5, train=60_000, val=2_000, test=5_000)
"""At `overnight` each expression is more than twice as long as what two layers of kernel SHORT see."""


def task(name: str, effort: Effort) -> Task:
    """Returns the small task, but for expressions long enough to ask how much of one must be seen."""
    return LISTOPS if (name, effort) == ("listops", "overnight") else small(name, effort)


def models(name: str, effort: Effort) -> Iterator[Model]:
    """Bounded convolutions, named by their kernel, and the gMLP that sees the longest sequence whole."""
    width = efforts.SIZES[effort].width
    for kernel in KERNELS[1:3] if effort == "smoke" else KERNELS:
        yield efforts.model(name, Conv(kernel, hidden=width, groups=GROUPS), effort, f"conv{kernel}")
    longest = task(name, effort).max_length
    yield efforts.model(name, GMLP(hidden=2 * width, channels=2, bound=longest), effort)


def runs(effort: Effort) -> tuple[Run, ...]:
    """Task by task and seed by seed, all kernels and the gMLP."""
    names = TASKS[:-1] if effort == "smoke" else TASKS
    return tuple(
        Run(task(name, effort), model, protocol(name, effort), seed)
        for name in names
        for seed in range(efforts.SIZES[effort].seeds)
        for model in models(name, effort)
    )


def verdict(rows: Sequence[Row]) -> str:
    """Task by task, what is shown beyond the noise of seeds and test examples, and what is only seen."""
    return summed_up(rows, findings(rows), "Nothing can be said yet: no run has finished.")


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Whether a kernel of at most SHORT steps has NEARLY all of the gain of the best model that sees more."""
    return judged(claims(rows, NEARLY, SHORT, proved=("reach",)))


study = Study(
    name="miralles2025_small",
    claim=(
        "Most of what long-range benchmarks measure is local (miralles2025): under enriched training, two layers whose "
        "kernels see at most 11 steps have 90 % of the gain over guessing of any that see more."
    ),
    runs=runs,
    search=efforts.SEARCH,
    views=(
        ReportView("curve", "Accuracy by kernel size", axis="kernel", note="level: the gMLP, which sees everything"),
        ReportView("compare", "Every seed of every arm"),
        ReportView("slices", "Where the score comes from"),
        ReportView("training", "Training curves"),
    ),
    probes=lambda run: (Locality(), Slices()),
    verdict=verdict,
    deviations=(
        "ListOps of 49 to 111 tokens, CIFAR-10 pooled to 8 x 8 pixels, and marks 24 steps apart, which the paper does "
        "not have: no printed number belongs beside these.",
        "Width 64 and two layers; eight groups of channels; a feed-forward layer behind each, which the paper's "
        "convolutions have not.",
    ),
)
