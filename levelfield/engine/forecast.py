"""Forecasts what a plan takes: operations, time on this device, hours of a GPU, memory, and data that is missing.

    for line in lines(runs, Path("data")):
        print(line)

    All 30 runs: at most 40.2 TFLOP; one after another some 25 min on cpu, or 0.0001 GPU-hours at 100 TFLOP/s
    That is with every step of every phase. 10 runs end a phase once that its validation stops improving ...
    Most memory: attention · scratch on listops, some 0.1 GB (weights, gradients, two moments, a batch's activations)

Time comes from training passes, forward and backward, on a made-up batch: as large as the recipe's where that is cheap,
else on fewer and shorter sequences, from which it is taken to grow with the steps of a batch. It is a lower bound where
an operator's cost grows faster, as attention's does. The more models there are, the smaller are their batches, and
models are timed for half a second alone: the costliest of each mixer first, then what costs most. Any other is taken to
do as many operations a second as the timed model most like it. Memory comes from forward passes (`trial.py`), of which
each mixer has its own, as far as half a second goes; arms of others are left out, and the line says so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch

from levelfield.data import prepared
from levelfield.engine import plan
from levelfield.engine.trial import Kept, Shape, held, made_up, network
from levelfield.model import Network
from levelfield.report.tables import duration, figures, si
from levelfield.run import pick_device
from levelfield.spec import Numerics, Run, Task
from levelfield.train import part_losses

GPU = 1e14  # operations a second that a current GPU sustains in bfloat16 on large products; an assumption, and said so
WORK = 2e9  # parameters times steps of sequence of the passes that are timed, of all models together at most
SHORTEST = 32  # steps of its sequences
PASSES = 3  # at most; the quickest counts: other work on the machine only ever slows a pass
ENOUGH = 0.1  # seconds of passes after the first, which may have to import what it needs; then no other is made
TIMED = 0.5  # seconds of the processor, from the end of the first model on, after which no other is timed
HELD = 0.5  # seconds of the processor, after which of no other model it is measured what it keeps
LARGE = 8e10  # bytes of a large GPU
COPIES = 4  # weights, gradients and Adam's two moments, in float32


@dataclass(frozen=True)
class Pass:
    """Forward and backward of one step of a sequence: seconds, and what is kept, None where that is not known."""

    seconds: float
    kept: Kept | None


@dataclass(frozen=True)
class Forecast:
    """The cost of one run; None where the number of steps, a pass, or what it keeps is unknown. memory: bytes, of each
    process."""

    flops: float | None
    seconds: float | None
    memory: float | None


def train_examples(task: Task, root: Path) -> int | None:
    """Counts the prepared training split, else takes the task's own setting `train`; None where there is neither."""
    at = prepared.folder(task, root)
    if (at / prepared.MANIFEST).exists():
        return len(prepared.read(at)["train"])
    return next((int(getattr(task, f.name)) for f in fields(task) if f.name == "train"), None)


def oversized(runs: Sequence[Run], root: Path) -> Iterator[str]:
    """Yields a sentence for each batch that is larger than the training examples it is drawn from."""
    known = {task: train_examples(task, root) for task in {run.task for run in runs}}
    found: dict[str, None] = {}
    for run in runs:
        for phase in run.protocol.phases:
            batch, count = phase.recipe.batch, max(1, round(phase.fraction * (known[run.task] or 0)))
            if known[run.task] and batch > count:
                found[
                    f"A batch of {batch:,} is larger than the {count:,} training examples of {run.task.name}, each of "
                    f"which is in it {figures(batch / count)} times: a batch (--batch) of {count:,} has them all."
                ] = None
    yield from found


def sequences(run: Run, root: Path, each: float) -> float | None:
    """Counts training examples of all phases, repeats included, each of a phase at another length in proportion to it;
    None where that depends on data that is missing.

    each: FLOPs of an example.
    """
    total, known = 0.0, train_examples(run.task, root)
    for phase, task in zip(run.protocol.phases, run.trained_on, strict=True):
        recipe = phase.recipe
        if recipe.budget.unit == "epochs" and known is None:
            return None
        count = max(1, round(phase.fraction * (known or 1)))
        steps = recipe.budget.resolve(
            batch=recipe.batch,
            examples=count,
            tokens_per_example=run.task.max_length,
            flops_per_step=recipe.batch * each,
        )
        total += steps * recipe.batch * task.max_length / run.task.max_length
    return total


def measure(shape: Shape, device: torch.device, work: float = WORK) -> Pass:
    """Times a few passes in one thread, as a worker has it. Raises whatever the layers raise.

    work: parameters times steps of sequence, at most.
    """
    with _one_thread():
        return _passes(shape, device, work)


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _passes(shape: Shape, device: torch.device, work: float) -> Pass:
    net = network(shape, device)
    length, count = _size(net, shape, work)
    part, spent = made_up(shape, device, length, count), list[float]()
    for _ in range(PASSES):
        began = time.perf_counter()
        part_losses(net, part, shape.objective, shape.task.input).sum().backward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        spent.append(time.perf_counter() - began)
        if sum(spent[1:]) > ENOUGH:
            break
    return Pass(min(spent) / part.batch.steps, held(net, shape, device))


def _size(net: Network, shape: Shape, work: float) -> tuple[int, int]:
    """Returns the steps of a sequence, and the examples of a batch, that come to no more than `work`."""
    size = max(1, sum(p.numel() for p in net.parameters()))
    length = int(min(shape.task.max_length, max(SHORTEST, work // size // 2)))
    return length, int(min(shape.batch, max(2, work // size // length)))


def forecast(run: Run, root: Path, one: Pass | None) -> Forecast:
    """Forecasts a run of an arm, whose pass costs `one`; None where its layers do not take a short sequence."""
    cost = plan.cost(run, root)
    count = sequences(run, root, cost.flops)
    flops = cost.total if cost.total is not None or count is None else cost.flops * count
    if one is None:
        return Forecast(flops, None, None)
    long = run.task.max_length * run.task.documents
    memory = None if one.kept is None else _bytes(run, cost.parameters, one.kept)
    computed = _unpadded(run, root) or long
    return Forecast(flops, None if count is None else one.seconds * computed * count, memory)


def _bytes(run: Run, parameters: int, kept: Kept) -> float:
    """Returns the memory that each process of a run needs."""
    holders = run.numerics.nproc if run.numerics.shard else 1
    return 4.0 * COPIES * parameters / holders + kept.of(run)


def _unpadded(run: Run, root: Path) -> float | None:
    """Returns the mean steps of an example where none is padded; None elsewhere, or where no data is prepared."""
    train = plan.prepared_train(run.task, 1.0, root) if run.numerics.by_length else None
    return None if train is None else float(train.sizes.mean())


def _tried(shape: Shape, device: torch.device, work: float) -> Pass | None:
    try:
        return measure(shape, device, work)
    except Exception:  # whatever a user's own layer makes of a short sequence
        return None


@dataclass(frozen=True)
class Load:
    """Operations for a step of one sequence, and of all runs, as far as they are known."""

    step: float
    total: float

    @staticmethod
    def of(arms: Mapping[Run, Sequence[Run]], root: Path) -> dict[Shape, Load]:
        """Adds up the loads of all arms. arms: runs that differ in their seed alone, by one of them."""
        found: dict[Shape, Load] = {}
        for arm, same in arms.items():
            shape, flops = Shape.of(arm), forecast(arm, root, None).flops or 0.0
            step = plan.cost(arm, root).flops / (arm.task.max_length * arm.task.documents)
            before = found[shape].total if shape in found else 0.0
            found[shape] = Load(max(1.0, step), before + flops * len(same))
        return found


def timed(loads: Mapping[Shape, Load], device: torch.device) -> dict[Shape, Pass | None]:
    """Times passes of one model, and of more until TIMED seconds are over; None where its layers do not take a short
    sequence."""
    costliest = sorted(loads, key=lambda shape: loads[shape].total, reverse=True)
    kinds = dict.fromkeys(_kind(shape) for shape in costliest)
    first = [next(shape for shape in costliest if _kind(shape) == kind) for kind in kinds]
    found: dict[Shape, Pass | None] = {}
    until = math.inf
    for shape in dict.fromkeys([*first, *costliest]):
        if time.process_time() > until:
            break
        found[shape] = _tried(shape, device, WORK / len(loads))
        until = min(until, time.process_time() + TIMED)
    return found


def kept_by(
    loads: Mapping[Shape, Load], measured: Mapping[Shape, Pass | None], device: torch.device
) -> dict[Shape, Kept]:
    """Returns what passes keep: those that were timed, and of the costliest model of any other mixer, until HELD
    seconds are over."""
    found = {shape: one.kept for shape, one in measured.items() if one is not None and one.kept is not None}
    kinds = {_kind(shape) for shape in measured}
    until = time.process_time() + HELD
    for shape in sorted(loads, key=lambda shape: loads[shape].total, reverse=True):
        if _kind(shape) not in kinds and time.process_time() < until:
            kinds.add(_kind(shape))
            with suppress(Exception), _one_thread():  # whatever a user's own layer makes of a short sequence
                found[shape] = held(network(shape, device), shape, device)
    return found


def taken(
    shape: Shape, measured: Mapping[Shape, Pass | None], kept: Mapping[Shape, Kept], loads: Mapping[Shape, Load]
) -> Pass | None:
    """Returns what was measured of a shape, else what follows from the one most like it, which is near in operations.

    Seconds grow with those, of the same mixers where there are some. What is kept grows with width and depth, and is
    not known of a mixer that differs from all of which it is.
    """
    if shape in measured:
        return measured[shape]
    known = {other: one for other, one in measured.items() if one is not None}
    if not known:
        return None

    def unlike(other: Shape) -> tuple[bool, float]:
        return _kind(other) != _kind(shape), abs(math.log(loads[other].step / loads[shape].step))

    near = min(known, key=unlike)
    alike = min((other for other in kept if _kind(other) == _kind(shape)), key=unlike, default=None)
    seconds = known[near].seconds * loads[shape].step / loads[near].step
    if alike is None:
        return Pass(seconds, None)
    larger = (shape.model.width * shape.model.depth) / (alike.model.width * alike.model.depth)
    return Pass(seconds, kept[alike] * larger)


def _kind(shape: Shape) -> frozenset[type]:
    return frozenset(type(mixer) for mixer in shape.model.mixers)


def _memory(found: Mapping[Run, Forecast], passes: Mapping[Shape, Pass | None], root: Path) -> Iterator[str]:
    """Yields a line on the arm with the most memory, and one on how it fits into a large GPU where it does not."""
    known = {arm: each.memory for arm, each in found.items() if each.memory is not None}
    if not known:
        return
    most = max(known, key=lambda arm: known[arm])
    some = "" if len(known) == len(found) else f" of the {len(known)} of {len(found)} arms that were measured"
    name = f"{most.model.label} · {most.protocol.name} on {most.task.name}"
    of_each = f" in each of {most.numerics.nproc} processes" if most.numerics.nproc > 1 else ""
    what = "(weights, gradients, two moments, activations)"
    yield f"Most memory{some}: {name}, some {si(known[most])}B{of_each} {what}"
    one = passes[Shape.of(most)]
    if known[most] > LARGE and one and one.kept and (smaller := _smaller(most, root, one.kept)):
        less, memory = smaller
        flags = [f"--accumulate {less.accumulate}"] * (less.accumulate > 1) + ["--recompute"] * less.recompute
        flags.append(f"--filter '{most.task.name}-{most.model.label}-{most.protocol.name}-*'")
        yield f"That is more than a GPU with {si(LARGE)}B has: with {' '.join(flags)} it is some {si(memory)}B."


def _smaller(run: Run, root: Path, kept: Kept) -> tuple[Numerics, float] | None:
    """Returns numerics with which a run fits into a large GPU, and its bytes then: its batches in as few equal parts as
    will do, or with recomputed blocks. None where none do."""
    batch, known = math.gcd(*(phase.recipe.batch for phase in run.protocol.phases)), run.numerics
    parameters = plan.cost(run, root).parameters
    for again in (known.recompute, True):
        for parts in range(known.accumulate, batch // known.nproc + 1):
            less = replace(known, accumulate=parts, recompute=again)
            memory = _bytes(replace(run, numerics=less), parameters, kept)
            if batch % less.parts == 0 and memory <= LARGE:
                return less, memory
    return None


def lines(runs: Sequence[Run], root: Path) -> Iterator[str]:
    """Yields lines with totals, the largest memory, and what data is missing."""
    device = pick_device("auto")
    arms: dict[Run, list[Run]] = {}
    for run in runs:
        arms.setdefault(replace(run, seed=0), []).append(run)
    loads = Load.of(arms, root)
    measured = timed(loads, device)
    kept = kept_by(loads, measured, device)
    passes = {shape: taken(shape, measured, kept, loads) for shape in loads}
    part = "" if len(measured) == len(loads) else f" of {len(measured)} of {len(loads)} models"
    found = {arm: forecast(same[0], root, passes[Shape.of(arm)]) for arm, same in arms.items()}
    flops = [(f.flops, len(arms[arm])) for arm, f in found.items()]
    seconds = [(f.seconds, len(arms[arm])) for arm, f in found.items()]
    whole, spent = (sum(v * n for v, n in parts if v is not None) for parts in (flops, seconds))
    unknown = sum(n for v, n in flops if v is None)
    beside = f", and {unknown} whose steps depend on data that is not there" if unknown else ""
    early = sum(any(phase.recipe.may_end_early for phase in run.protocol.phases) for run in runs)
    yield ""
    yield (
        f"All {len(runs)} runs{beside}: {'at most ' * bool(early)}{plan.flops(whole)}; one after another some "
        f"{duration(spent)} on {device} (measured on one batch{part}), or {figures(whole / GPU / 3600)} GPU-hours at "
        "100 TFLOP/s (assumed)"
    )
    if early:
        yield (
            f"That is with every step of every phase. {early} runs end a phase once that its validation stops "
            "improving or is as good as can be, often after a small part of its steps."
        )
    yield from _memory(found, passes, root)
    yield from oversized(runs, root)
    for name in dict.fromkeys(run.task.name for run in runs if prepared.wants_files(run.task, root)):
        yield f"Data that is not there: {name}. `{prepared.command(name, root)}` fetches it."
    for weights in dict.fromkeys(run.protocol.foreign for run in runs):
        if weights is not None and (names := prepared.absent(weights, root)):
            where = prepared.downloads(weights, root)
            yield f"Weights that are not there: {', '.join(names)} of {weights.name}, to lie in {where}."
