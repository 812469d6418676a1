"""Defines generated tasks, models and recipes at each effort, for the demo and for comparisons with a user's mixer.

Nothing here is a paper's setting, but for the tasks of MAD at `paper`: these are sizes at which something real is
learnt in the time the effort allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from levelfield.mixers.attention import Attention
from levelfield.mixers.gated_deltanet import GatedDeltaNet
from levelfield.mixers.hyena import Hyena
from levelfield.mixers.log_linear_mamba2 import LogLinearMamba2
from levelfield.mixers.mamba2 import Mamba2
from levelfield.mixers.mamba3 import Mamba3
from levelfield.mixers.rwkv6 import RWKV6
from levelfield.mixers.rwkv7 import RWKV7
from levelfield.mixers.s4 import S4
from levelfield.objectives import default_objective
from levelfield.presets import by_name
from levelfield.protocols import enriched, matched, scratch, spt_causal, spt_masked
from levelfield.spec import (
    Block,
    Duration,
    Effort,
    MixerConfig,
    Model,
    Protocol,
    Recipe,
    Row,
    Search,
    Signal,
    Task,
    UserError,
    closest,
)
from levelfield.tasks.compression import Compression
from levelfield.tasks.copying import Copying
from levelfield.tasks.dyck import Dyck
from levelfield.tasks.flipflop import FlipFlop
from levelfield.tasks.frequent_word import FrequentWord
from levelfield.tasks.fuzzy_recall import FuzzyRecall
from levelfield.tasks.in_context_recall import InContextRecall
from levelfield.tasks.induction import Induction
from levelfield.tasks.listops import ListOps
from levelfield.tasks.memorisation import Memorisation
from levelfield.tasks.modular import Modular
from levelfield.tasks.mqar import MQAR
from levelfield.tasks.needle import Needle
from levelfield.tasks.parity import Parity
from levelfield.tasks.pathfinder import Pathfinder
from levelfield.tasks.pulse import Pulse
from levelfield.tasks.reach import Reach
from levelfield.tasks.recall import Recall
from levelfield.tasks.words import Words

ATTENTION = Attention(heads=4, rotary="per_head")
S4_DIAGONAL = S4(state=16, form="diagonal", init="lin")
"""Baselines of one size, which comparisons, the demo and the audit of tasks share."""

SMALL: tuple[MixerConfig, ...] = (
    Mamba2(head=16),
    Mamba3(head=16),
    LogLinearMamba2(head=16),
    GatedDeltaNet(heads=2),
    RWKV6(head=8),
    RWKV7(head=8),
    Hyena(hidden=16, features=5),
)
"""What the names of these mixers mean where models are small and widths are matched: heads that divide every multiple
of 8 features, as those of their papers, mostly of 64 channels, do not, and kernels that take few parameters."""

SPT_SHARE = 0.4
"""Share of the total budget for pretraining (amos2025 compares shares of 40 and 60 % at equal compute)."""


@dataclass(frozen=True)
class Size:
    """The shape of the models and the budget of one run, in optimizer steps, that an effort affords."""

    width: int
    depth: int
    steps: int
    batch: int
    seeds: int
    lr: float = 2e-3


PATIENCE = 3
"""Validations without a better score, at `overnight`, after which the rate is cut or training ends."""

VALIDATE = 400
"""Steps between validations at `overnight`."""

LEAST_GAIN = 0.01
"""Share of examples by which a validation at `overnight` must be better to count as better."""

SEARCH = Search(2, lr=(1 / 3, 6.0), share=1 / 6)
"""What studies that end phases by patience try for every arm first: its own rate, and 2.9 times that."""

SIZES: dict[Effort, Size] = {
    "smoke": Size(width=16, depth=1, steps=6, batch=8, seeds=1),
    "minutes": Size(width=48, depth=2, steps=1_000, batch=32, seeds=2),
    "overnight": Size(width=64, depth=2, steps=12_000, batch=32, seeds=3, lr=1e-3),
    "hours": Size(width=128, depth=6, steps=20_000, batch=64, seeds=3, lr=1e-3),
    "paper": Size(width=256, depth=6, steps=100_000, batch=64, seeds=3, lr=5e-4),
}


def sized(effort: Effort, numbers: Mapping[str, int | float]) -> Size:
    """Returns what the effort affords, but for the numbers that are given by name."""
    return replace(SIZES[effort], **numbers)


TASK_BY_EFFORT: dict[str, dict[Effort, Task]] = {
    "listops": {
        "smoke": ListOps(minimum=10, length=40, max_depth=3, max_args=4, train=64, val=32, test=32),
        "minutes": ListOps(minimum=10, length=48, max_depth=3, max_args=5, train=20_000, val=500, test=2_000),
        "overnight": ListOps(minimum=10, length=64, max_depth=4, max_args=4, train=60_000, val=2_000, test=5_000),
        "hours": ListOps(minimum=50, length=300, max_depth=6, max_args=6, train=96_000, val=2_000, test=2_000),
        "paper": ListOps(),
    },
    "recall": {
        "smoke": Recall(pairs=6, train=64, val=32, test=32),
        "minutes": Recall(keys=4, values=4, pairs=12, train=20_000, val=500, test=2_000),
        "overnight": Recall(keys=16, values=16, pairs=31, train=60_000, val=2_000, test=5_000),
        "hours": Recall(keys=16, values=16, pairs=64, train=96_000, val=2_000, test=2_000),
        "paper": Recall(keys=64, values=64, pairs=256, train=200_000, val=2_000, test=5_000),
    },
    "pathfinder": {
        "smoke": Pathfinder(16, "easy", train=64, val=32, test=32),
        "minutes": Pathfinder(16, "easy", train=20_000, val=500, test=2_000),
        "overnight": Pathfinder(16, "easy", train=60_000, val=2_000, test=5_000),
        "hours": Pathfinder(32, "hard", train=50_000, val=2_000, test=5_000),
        "paper": Pathfinder(),
    },
    "mqar": {
        "smoke": MQAR(24, 2, keys=16, values=16, train=64, val=32, test=32),
        "minutes": MQAR(64, 4, keys=32, values=32, train=20_000, val=500, test=2_000),
        "overnight": MQAR(64, 8, keys=64, values=64, train=60_000, val=2_000, test=5_000),
        "hours": MQAR(128, 8, keys=512, values=512, train=100_000),
        "paper": MQAR(),
    },
    "needle": {
        "smoke": Needle(24, 2, 2, words=16, keys=16, values=16, train=64, val=32, test=32),
        "minutes": Needle(32, 2, 2, words=16, keys=16, values=16, train=20_000, val=500, test=2_000),
        "overnight": Needle(32, 2, 2, words=16, keys=16, values=16, train=60_000, val=2_000, test=5_000),
        "hours": Needle(512, words=256, keys=512, values=512, train=200_000),
        "paper": Needle(2_048, words=4_096, keys=8_192, values=8_192, train=400_000),
    },
    "frequent_word": {
        "smoke": FrequentWord(24, words=16, train=64, val=32, test=32),
        "minutes": FrequentWord(32, words=16, train=20_000, val=500, test=2_000),
        "overnight": FrequentWord(32, words=16, train=60_000, val=2_000, test=5_000),
        "hours": FrequentWord(512, train=200_000),
        "paper": FrequentWord(2_048, words=512, share=0.1, train=400_000),
    },
    "copying": {
        "smoke": Copying(items=3, delay=10, train=64, val=32, test=32),
        "minutes": Copying(items=8, delay=32, train=20_000, val=500, test=2_000),
        "overnight": Copying(items=8, delay=64, train=60_000, val=2_000, test=5_000),
        "hours": Copying(items=10, delay=200),
        "paper": Copying(items=10, delay=500, train=200_000),
    },
    "selective_copying": {
        "smoke": Copying(4, 3, 12, "scattered", "markers", train=64, val=32, test=32),
        "minutes": Copying(4, 4, 40, "scattered", "markers", train=20_000, val=500, test=2_000),
        "overnight": Copying(8, 8, 112, "scattered", "markers", train=60_000, val=2_000, test=5_000),
        "hours": Copying(14, 16, 224, "scattered", "markers", train=100_000),
        "paper": Copying(14, 16, 4_064, "scattered", "markers", train=100_000),
    },
    "induction": {
        "smoke": Induction(16, 6, train=64, val=32, test=32),
        "minutes": Induction(32, 8, train=20_000, val=500, test=2_000),
        "overnight": Induction(64, 8, train=60_000, val=2_000, test=5_000),
        "hours": Induction(256, 15),
        "paper": Induction(256, 15, train=400_000),
    },
    "reach": {
        "smoke": Reach(4, symbols=6, train=64, val=32, test=32),
        "minutes": Reach(16, train=20_000, val=500, test=2_000),
        "overnight": Reach(24),
        "hours": Reach(256),
        "paper": Reach(4_096),
    },
    "pulse": {
        "smoke": Pulse(4, train=64, val=32, test=32),
        "minutes": Pulse(8, val=500),
        "overnight": Pulse(16, train=20_000, val=1_000, test=2_000),
        "hours": Pulse(32, train=50_000),
        "paper": Pulse(160, train=100_000),
    },
    "parity": {
        "smoke": Parity(12, train=64, val=32, test=32),
        "minutes": Parity(32, train=20_000, val=500, test=2_000),
        "overnight": Parity(64, val=2_000, test=5_000),
        "hours": Parity(128, train=100_000),
        "paper": Parity(256, train=200_000),
    },
    "modular": {
        "smoke": Modular(8, train=64, val=32, test=32),
        "minutes": Modular(32, train=20_000, val=500, test=2_000),
        "overnight": Modular(64, val=2_000, test=5_000),
        "hours": Modular(128, train=100_000),
        "paper": Modular(256, train=200_000),
    },
    "words": {
        "smoke": Words(8, train=64, val=32, test=32),
        "minutes": Words(32, train=20_000, val=500, test=2_000),
        "overnight": Words(32, val=2_000, test=5_000, group="A5"),
        "hours": Words(64, train=100_000, group="S5"),
        "paper": Words(128, train=1_000_000, group="S5"),
    },
    "flipflop": {
        "smoke": FlipFlop(16, train=64, val=32, test=32),
        "minutes": FlipFlop(64, train=20_000, val=500, test=2_000),
        "overnight": FlipFlop(128, val=2_000, test=5_000),
        "hours": FlipFlop(train=200_000),
        "paper": FlipFlop(train=1_000_000),
    },
    "dyck": {
        "smoke": Dyck(16, train=64, val=32, test=32),
        "minutes": Dyck(48, train=20_000, val=500, test=2_000),
        "overnight": Dyck(64, val=2_000, test=5_000),
        "hours": Dyck(256, train=100_000, kinds=8, depth=8),
        "paper": Dyck(512, train=200_000, kinds=20, depth=20),
    },
    "in_context_recall": {
        "smoke": InContextRecall(16, train=64, val=32, test=32, keys=4),
        "minutes": InContextRecall(64, train=20_000, val=500, test=2_000),
        "overnight": InContextRecall(128, train=60_000, val=2_000, test=5_000),
        "hours": InContextRecall(256, train=100_000, keys=32, values=32),
        "paper": InContextRecall(),
    },
    "noisy_recall": {
        "smoke": InContextRecall(16, None, 64, 32, 32, keys=4, noise=0.2, noise_symbols=8),
        "minutes": InContextRecall(64, None, 20_000, 500, 2_000, noise=0.2, noise_symbols=16),
        "overnight": InContextRecall(128, None, 60_000, 2_000, 5_000, noise=0.4, noise_symbols=16),
        "hours": InContextRecall(256, train=100_000, keys=32, values=32, noise=0.4, noise_symbols=16),
        "paper": InContextRecall(noise=0.2, noise_symbols=16),
    },
    "fuzzy_recall": {
        "smoke": FuzzyRecall(24, None, 64, 32, 32, keys=4, values=4, key_steps=2, value_steps=2),
        "minutes": FuzzyRecall(48, None, 20_000, 500, 2_000, keys=4, values=8, key_steps=2, value_steps=2),
        "overnight": FuzzyRecall(128, train=60_000, val=2_000, test=5_000),
        "hours": FuzzyRecall(256, train=100_000, keys=15, values=16),
        "paper": FuzzyRecall(),
    },
    "memorisation": {
        "smoke": Memorisation(8, None, 64, 32, 32, keys=15, values=16),
        "minutes": Memorisation(train=2_000, val=500, test=2_000),
        "overnight": Memorisation(train=20_000, val=2_000, test=5_000, keys=1_023, values=1_024),
        "hours": Memorisation(train=100_000, keys=4_095, values=4_096),
        "paper": Memorisation(),
    },
    "compression": {
        "smoke": Compression(9, 4, 64, 32, 32),
        "minutes": Compression(12, 4, 20_000, 500, 2_000),
        "overnight": Compression(16, 8, 60_000, 2_000, 5_000),
        "hours": Compression(train=100_000),
        "paper": Compression(),
    },
}
TASKS = ("listops", "recall", "pathfinder")
"""What a comparison takes when nothing else is said."""

STANDARD = ("recall", "words", "reach", "digits")
"""Recall, state tracking, certified range and natural data, handwritten digits: one task of each, none of which needs a
download."""

MAD = ("in_context_recall", "noisy_recall", "fuzzy_recall", "memorisation", "compression")
"""The synthetic tasks of MAD (Poli et al. 2024) but for selective copying, at `paper` with its sizes."""

GROUPS: dict[str, tuple[str, ...]] = {"standard": STANDARD, "mad": (*MAD, "selective_copying")}
"""Names by which a comparison takes several tasks at once."""


def of_rows(rows: Sequence[Row], among: Iterable[Effort]) -> Effort:
    """Returns the first of some efforts that a row is of; "minutes" where none is."""
    known = {row.get("effort") for row in rows}
    found: list[Effort] = [effort for effort in among if effort in known]
    return found[0] if found else "minutes"


def generated(name: str, effort: Effort) -> Task:
    """Returns a generated task by name. Raises UserError for one that is not among them."""
    if name not in TASK_BY_EFFORT:
        raise UserError(f"There is no generated task '{name}' here: {closest(name, list(TASK_BY_EFFORT))}")
    return TASK_BY_EFFORT[name][effort]


def sized_task(name: str | Task, effort: Effort) -> Task:
    """Returns a generated task at the size the effort affords; any other task, or a file of one's own, as it is."""
    if isinstance(name, str) and name in TASK_BY_EFFORT:
        return TASK_BY_EFFORT[name][effort]
    return by_name.task(name)


PROTOCOLS = ("scratch", "spt_masked", "spt_causal", "enriched")


def recipe(effort: Effort, size: Size | None = None, total: Duration | None = None) -> Recipe:
    """Returns one recipe for every arm. size: instead of what the effort affords. total: the budget, where it is not
    the steps of the size; warm-up and validations are the same parts of it.

    At `overnight` the steps are a cap that few phases should reach: the rate is constant and is cut once that
    validation has stopped improving by LEAST_GAIN; where it has stopped again, training ends.
    """
    size = size or SIZES[effort]
    made = Recipe(
        lr=size.lr,
        weight_decay=0.05,
        batch=size.batch,
        budget=total or Duration(size.steps, "steps"),
        warmup=replace(total, value=total.value / 20) if total else Duration(max(1, size.steps // 20), "steps"),
        schedule="cosine",
        clip=1.0,
        validate_every=replace(total, value=total.value / 10) if total else Duration(max(2, size.steps // 10), "steps"),
        source="levelfield's own, untuned",
        assumed=("all",),
    )
    if effort != "overnight":
        return made
    until = {"schedule": "constant", "patience": PATIENCE, "cuts": 1, "least_gain": LEAST_GAIN}
    until["validate_every"] = Duration(VALIDATE, "steps")
    return replace(made, warmup=Duration(min(300, size.steps // 20), "steps"), **until)


def protocols(
    name: str | Task,
    effort: Effort,
    chosen: Sequence[str],
    size: Size | None = None,
    shares: tuple[float, float] = (SPT_SHARE, 1 - SPT_SHARE),
    total: Duration | None = None,
) -> tuple[Protocol, ...]:
    """Returns the chosen protocols on a task, all within one budget. Raises UserError for an unknown one.

    shares: of the budget, for self-pretraining and for what follows it. total: as of `recipe`.
    """
    shared = recipe(effort, size, total)
    task = sized_task(name, effort)
    goal = default_objective(task)
    loss = "l1" if isinstance(task.input, Signal) and task.input.levels is None else "ce"  # of values without levels
    total = shared.budget
    made: dict[str, Callable[[], Protocol]] = {
        "scratch": lambda: scratch(shared, goal),
        "spt_masked": lambda: matched(
            spt_masked(shared, shared, task.hidden, loss=loss, objective=goal), total, shares
        ),
        "spt_causal": lambda: matched(spt_causal(shared, shared, loss=loss, objective=goal), total, shares),
        "enriched": lambda: enriched(shared, augment=True, objective=goal),
    }
    if "pretrained" in chosen:
        raise UserError("The protocol pretrained needs weights, which a comparison has none of: leave it out.")
    for unknown in [c for c in chosen if c not in made]:
        raise UserError(f"There is no protocol '{unknown}' here: {closest(unknown, PROTOCOLS)}")
    return tuple(made[c]() for c in chosen)


def model(
    name: str | Task, mixer: MixerConfig, effort: Effort, label: str | None = None, size: Size | None = None
) -> Model:
    """Returns the same residual blocks, with the same feed-forward layers, around any mixer."""
    size, task = size or SIZES[effort], sized_task(name, effort)
    block = Block(feedforward=2 * size.width)
    return Model((mixer,), size.depth, size.width, causal=task.causal, block=block, pooling=task.pooling, name=label)
