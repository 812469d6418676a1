"""Trains a network for one phase: the only training loop.

It is a generator that yields after every step, so whoever drives it can log, save and stop without callbacks. All it
needs to continue is its `State`, since batches, masks and dropout are functions of (seed, step):

    for metrics in train(state, plan, split, seed, validate):
        ...
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import unwrap
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Generator, Tensor, nn

from levelfield.data.batches import Batch, SplitOnDevice, batches_of
from levelfield.objectives.base import BatchPart, Trainable, lengths_apart, within
from levelfield.rng import generator, seeded
from levelfield.spec.io_types import Input
from levelfield.spec.model import ParamRule
from levelfield.spec.recipe import Recipe

if TYPE_CHECKING:
    from levelfield.model import Network

CUT = 0.2  # what a rate is multiplied by where training or validation has stopped improving
PLATEAU_FLOOR = 1e-7  # no rate is cut below it (miralles2025's public code: ReduceLROnPlateau with min_lr)
UNUSUAL = 4.0  # times the usual norm, from which on the gradient of a batch of like lengths is clipped

Augment = Callable[[Tensor, Tensor, torch.Generator], Tensor]
"""Changes raw values (B, T) or (B, T, C) of given lengths (B,) and keeps their shape, as `Task.augment` does."""


@dataclass(frozen=True)
class Rank:
    """One of the processes that train a run together; here it is the only one (else `runs.parallel`)."""

    number: int = 0
    size: int = 1

    def add_gradients(self, net: Network, plan: Plan, part: BatchPart, last: bool) -> Tensor:
        """Adds those of a part, and after the last one those of the other processes; returns its `part_losses`."""
        losses = part_losses(net, part, plan.objective, plan.input)
        losses.sum().backward()
        return losses.detach()

    def total(self, losses: Tensor, norm: Tensor) -> Tensor:
        """Returns the sums over all processes of losses, (K,), and the gradients' norm, which all have: (K + 1,)."""
        return torch.cat([losses, norm.to(losses).view(1)])

    def sound(self, net: Network) -> bool:
        """Returns whether `sound` holds of the network, in every process alike."""
        return sound(net.parameters(), net.buffers())


@dataclass(frozen=True)
class Plan:
    """One phase on one task, with its durations resolved to optimizer steps."""

    objective: Trainable
    recipe: Recipe
    input: Input
    steps: int
    warmup: int
    validate_every: int
    augment: Augment | None = None
    patience_after: int = 0  # validations up to this step do not count for the patience
    accumulate: int = 1  # parts that a batch, or a process's share of it, is split into
    by_length: bool = False  # whether the examples of each length in a part are computed by themselves
    fetch_every: int = 1  # steps between fetches of the loss, each of which waits for the device
    rank: Rank = Rank()


@dataclass
class State:
    """All that changes while a phase trains.

    A killed run continues from it and, on a CPU with the same number of threads, ends with the same bytes.
    """

    net: Network
    optimizer: torch.optim.Optimizer
    step: int = 0
    examples: int = 0
    positions: int = 0  # trained on so far, padding included
    tokens: int = 0  # real steps among them
    best_score: float = -math.inf
    best_step: int = -1
    best: dict[str, Tensor] = field(default_factory=dict)  # before the first validation, the weights at the start
    stale: int = 0  # validations since the last one that was better by more than `Recipe.least_gain`
    better: float = -math.inf  # the score of that one
    stopped: str = ""  # why the phase ended early: "patience", "enough" or "diverged"
    epoch_loss: float = 0.0
    lowest_epoch_loss: float = math.inf
    bad_epochs: int = 0
    cut: float = 1.0  # product of the reductions of the plateau schedule or of `Recipe.cuts`
    cuts: int = 0  # how often the rate was cut because validation stopped improving


class Sizes(NamedTuple):
    """What a batch adds to the counts of the state."""

    examples: int
    positions: int
    tokens: int


@dataclass(frozen=True)
class Made:
    """A step that the device was given, before its loss is known. values: the losses of K objectives and the gradients'
    norm, (K + 1,); shares: what each of these losses counts, (K,)."""

    step: int
    values: Tensor
    sizes: Sizes
    shares: Sequence[float]
    lr: float
    epoch: range


@dataclass(frozen=True)
class Metrics:
    """What is known of one step of training after it."""

    step: int
    loss: float  # the batch's mean, of all objectives, whatever these count for in their epoch
    lr: float
    score: float | None  # of the validation made after this step, if one was


def train(
    state: State, plan: Plan, split: SplitOnDevice, seed: int, validate: Callable[[], float]
) -> Iterator[Metrics]:
    """Trains `state` up to `plan.steps`, and keeps the weights of the best validation score in `state.best`.

    Ends early after `recipe.patience` validations without a better score, at one of `recipe.enough`, or when loss,
    gradients or weights are not finite, and leaves the reason in `state.stopped`. A step whose loss or gradients are
    not finite changes no weight, nor does one after it, which is not counted. Losses are fetched after
    `plan.fetch_every` steps: then follow the metrics of each, and only at the last of them is `state` of the same step.
    """
    state.net.train()
    batches = batches_of(seed, split.examples, plan.recipe)
    units = [part.units(split.examples) for part in plan.objective.parts]
    totals = [int(each.sum()) for each in units]
    made: list[Made] = []
    while state.step < plan.steps and not state.stopped:
        lr, epoch = _set_rates(state.optimizer, plan, state), batches.epoch(state.step)
        batch = split.gather(batches.order(state.step))
        shares = [batches.share(state.step, each, total) for each, total in zip(units, totals, strict=True)]
        if plan.augment is not None:
            raw = plan.augment(batch.raw, batch.lengths, generator(seed, "augment", state.step))
            batch = replace(batch, raw=raw)
        values = _gradients(state, plan, batch, shares, seed)
        state.step += 1
        lengths = batch.lengths if batch.on_host is None else batch.on_host  # of the split would take a pass over it
        sizes = Sizes(len(batch.y), batch.computed(plan.by_length), int(lengths.sum()))
        made.append(Made(state.step, values, sizes, shares=shares, lr=lr, epoch=epoch))
        _update(state.optimizer, made, held=plan.fetch_every > 1)
        if state.step % plan.fetch_every and not _awaited(made[-1], plan):
            continue
        yield from _fetched(state, plan, made, validate)
        made.clear()


def _gradients(state: State, plan: Plan, batch: Batch, shares: Sequence[float], seed: int) -> Tensor:
    """Leaves the gradients of a batch, clipped, and returns its losses and their norm before that, as of `Made`."""
    net, optimizer = state.net, state.optimizer
    optimizer.zero_grad(set_to_none=True)
    own, rank = (plan.rank.number,) if plan.rank.size > 1 else (), plan.rank
    parts = parts_of(batch, plan, generator(seed, "mask", state.step), shares)
    with seeded(seed, "dropout", state.step, *own, device=batch.raw.device):
        found = [rank.add_gradients(net, plan, part, last=part is parts[-1]) for part in parts]
    norm = _clipped(net, optimizer, plan.recipe, state.step)
    return rank.total(torch.stack(found).sum(0), norm)


def _update(optimizer: torch.optim.Optimizer, made: Sequence[Made], held: bool) -> None:
    """Takes the optimizer step, unless this or an earlier one of the steps that were made is not finite.

    held: whether the device decides that, without being waited for. A fused optimizer can: it reads `found_inf`, by
    which torch's GradScaler skips steps, and leaves weights, moments and its count of steps as they are.
    """
    finite = torch.stack([each.values for each in made]).isfinite().all()
    if held:
        optimizer.found_inf = (~finite).float()  # pyright: ignore[reportAttributeAccessIssue]
        optimizer.step()
    elif finite:
        optimizer.step()


def _awaited(made: Made, plan: Plan) -> bool:
    """Returns whether what follows this step depends on losses that have not been fetched."""
    ends = plan.recipe.schedule == "plateau" and made.step == made.epoch.stop
    return ends or _due(made.step, plan)


def _due(step: int, plan: Plan) -> bool:
    """Returns whether a validation follows this step."""
    return step % plan.validate_every == 0 or step == plan.steps


def _fetched(state: State, plan: Plan, made: Sequence[Made], validate: Callable[[], float]) -> Iterator[Metrics]:
    """Fetches the losses of steps, draws the conclusions from each in turn, and yields their metrics."""
    fetched = torch.stack([each.values for each in made]).tolist()
    for each, (*losses, size) in zip(made, fetched, strict=True):
        value = sum(losses)
        state.examples += each.sizes.examples
        state.positions += each.sizes.positions
        state.tokens += each.sizes.tokens
        _plateau(plan, state, value, step=each.step, epoch=each.epoch)
        finite, score, due = math.isfinite(value) and math.isfinite(size), None, _due(each.step, plan)
        if not finite or (due and not plan.rank.sound(state.net)):
            state.step, state.stopped = each.step, "diverged"
        elif due:
            score = validate()
            _select(state, score, plan)
        means = (loss / (share or 1.0) for loss, share in zip(losses, each.shares, strict=True))
        yield Metrics(each.step, sum(means), each.lr, score)
        if state.stopped:
            return


def parts_of(batch: Batch, plan: Plan, generator: Generator, shares: Sequence[float]) -> list[BatchPart]:
    """Returns this process's parts of a batch, the sum of whose `part_losses` over all processes is the loss.

    All processes together have `plan.accumulate` times their number. The parts have as nearly equal numbers of examples
    as can be, and see what the whole batch would see of them: the same steps are hidden, whatever the number of parts.
    What is a mean over the batch counts a part by how many of these numbers it holds. Batch normalisation alone sees
    that the batch was split. A process that no example is left for has the first one, which counts nothing. With
    `plan.by_length`, there is one for each length in each of these parts.
    """
    whole = BatchPart(batch, plan.objective.model_input(batch, plan.input, generator), shares)
    parts = _split(whole, plan) if plan.accumulate * plan.rank.size > 1 else [whole]
    return [each for part in parts for each in lengths_apart(part, plan.objective)] if plan.by_length else parts


def _split(whole: BatchPart, plan: Plan) -> list[BatchPart]:
    """Returns the parts of this process, of those with nearly equal numbers of examples."""
    batch, shown, shares = whole
    totals = [each.counted(batch, shown) for each in plan.objective.parts]
    many, first = plan.accumulate * plan.rank.size, plan.rank.number * plan.accumulate
    ends = [len(batch.y) * part // many for part in range(many + 1)]
    parts: list[BatchPart] = []
    for start, stop in pairwise(ends[first : first + plan.accumulate + 1]):
        if start == stop:  # fewer examples than parts
            continue
        some, seen = batch.part(slice(start, stop)), shown.part(batch.sequences(slice(start, stop)))
        parts.append(BatchPart(some, seen, within(some, seen, totals, shares, plan.objective)))
    one = slice(0, 1)
    return parts or [BatchPart(batch.part(one), shown.part(batch.sequences(one)), [0.0] * len(shares))]


def part_losses(net: Network, part: BatchPart, objective: Trainable, spec: Input) -> Tensor:
    """The weighted losses of K objectives on a part of a batch, (K,): its shares of the means over the whole."""
    hidden_states = net.hidden_states(part.shown.x, part.batch.mask, part.shown.masked)
    losses = []
    for head, weight, count in zip(objective.parts, objective.weights, part.counts or repeat(1.0), strict=False):
        outputs = net.head(head.key, hidden_states, part.batch.mask)
        losses.append(weight * count * head.loss(outputs, part.batch, part.shown, spec))
    return torch.stack(losses)


def kept(state: State, rank: Rank) -> dict[str, Tensor]:
    """Returns the weights that a phase leaves: those of its best validation.

    Where no validation was made of finite weights, these are the last ones, or the ones at the start where the last are
    not finite.
    """
    return copied(state.net) if state.best_step < 0 and rank.sound(state.net) else state.best


def copied(net: Network) -> dict[str, Tensor]:
    """Returns the weights as they are now, in memory of their own."""
    return {k: v.detach().clone() for k, v in net.state_dict().items()}


def sound(weights: Iterable[Tensor], buffers: Iterable[Tensor]) -> bool:
    """Returns whether all weights are finite and no buffer holds a NaN. A table of a mask may hold -inf."""
    finite = [weight.isfinite().all() for weight in weights]
    return bool(torch.stack([*finite, *(~table.isnan().any() for table in buffers)]).all())


class AdamW(torch.optim.AdamW):
    """PyTorch's, without the wrappers by which its compiler passes the methods over: the first call of one imports that
    compiler, which takes seconds, and here only networks are compiled."""

    add_param_group = unwrap(torch.optim.AdamW.add_param_group)
    zero_grad = unwrap(torch.optim.AdamW.zero_grad)
    state_dict = unwrap(torch.optim.AdamW.state_dict)
    load_state_dict = unwrap(torch.optim.AdamW.load_state_dict)
    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))


def make_optimizer(net: Network, recipe: Recipe, rules: Mapping[str, ParamRule]) -> torch.optim.Optimizer:
    """Returns AdamW with a group for each pair of rate and decay. A mixer's rules precede the recipe.

    Unless the recipe says `decay_all`, biases, norms and embeddings do not decay.
    """
    embeddings = {f"{name}.weight" for name, m in net.named_modules() if isinstance(m, nn.Embedding)}
    embeddings.add("encoder.table")
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in net.named_parameters():
        rule = rules.get(name, ParamRule())
        plain = parameter.ndim < 2 or name in embeddings
        decay = 0.0 if plain and not recipe.decay_all else recipe.weight_decay
        decay = decay if rule.weight_decay is None else rule.weight_decay
        groups.setdefault((recipe.lr if rule.lr is None else rule.lr, decay), []).append(parameter)
    listed = [{"params": ps, "lr": lr, "base": lr, "weight_decay": wd} for (lr, wd), ps in sorted(groups.items())]
    return AdamW(listed, lr=recipe.lr, betas=recipe.betas, fused=all(p.is_floating_point() for p in net.parameters()))


def _clipped(net: Network, optimizer: torch.optim.Optimizer, recipe: Recipe, step: int) -> Tensor:
    """Clips the gradients as the recipe says, and returns their norm before that, a scalar.

    Batches of like lengths differ by design: where the loss of all examples is least, their gradients cancel, and each
    may be large. Clipping them all to one norm would move that minimum. So with bucketing a gradient is clipped only
    where it is UNUSUAL times as large as the root of AdamW's running mean of squares, and never before there is one.
    """
    if recipe.clip is not None and not recipe.bucketed:
        return nn.utils.clip_grad_norm_(net.parameters(), recipe.clip)
    gradients = [p.grad for p in net.parameters() if p.grad is not None]
    norm = nn.utils.get_total_norm(gradients)
    means = [slot["exp_avg_sq"] for slot in optimizer.state.values() if "exp_avg_sq" in slot]
    squares = [(torch.view_as_real(mean) if mean.is_complex() else mean).sum() for mean in means]
    if recipe.clip is not None and squares:
        usual = (torch.stack(squares).sum() / (1 - recipe.betas[1] ** step)).sqrt()
        factor = ((UNUSUAL * usual).clamp(min=recipe.clip) / (norm + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(factor)
    return norm


def _set_rates(optimizer: torch.optim.Optimizer, plan: Plan, state: State) -> float:
    """Sets every group's rate for the step about to be made, and returns the recipe's own."""
    for group in optimizer.param_groups:
        group["lr"] = _rate(group["base"], plan, state)
    return _rate(plan.recipe.lr, plan, state)


def _rate(base: float, plan: Plan, state: State) -> float:
    """Returns what becomes of a base rate at the step about to be made."""
    step, schedule = state.step, plan.recipe.schedule
    if step < plan.warmup:
        return base * ((step + 1) / plan.warmup)
    if schedule == "constant":
        return base * state.cut
    if schedule == "plateau":
        tail = 0.1 if step >= 0.9 * plan.steps else 1.0
        return max(base * (state.cut * tail), min(base, PLATEAU_FLOOR) * tail)
    share = (step - plan.warmup) / max(1, plan.steps - plan.warmup)
    return base * {"linear": 1 - share, "cosine": 0.5 * (1 + math.cos(math.pi * share))}[schedule]


def _plateau(plan: Plan, state: State, loss: float, *, step: int, epoch: range) -> None:
    """Cuts the rate at the end of an epoch if the mean loss has been no better for more epochs than the patience."""
    if plan.recipe.schedule != "plateau":
        return
    state.epoch_loss += loss / len(epoch)
    if step != epoch.stop:
        return
    if state.epoch_loss < state.lowest_epoch_loss * (1 - 1e-4):
        state.lowest_epoch_loss, state.bad_epochs = state.epoch_loss, 0
    else:
        state.bad_epochs += 1
    if state.bad_epochs > plan.recipe.plateau_patience:
        state.cut, state.bad_epochs = state.cut * CUT, 0
    state.epoch_loss = 0.0


def _select(state: State, score: float, plan: Plan) -> None:
    """Keeps the weights if none was better. Enough ends training; the end of the patience cuts the rate or ends it."""
    if score > state.best_score:
        state.best_score, state.best_step, state.best = score, state.step, copied(state.net)
    if plan.recipe.enough is not None and score >= plan.recipe.enough:
        state.stopped = "enough"
        return
    if score > state.better + plan.recipe.least_gain:
        state.better, state.stale = score, 0
        return
    if state.step <= plan.patience_after:
        return
    state.stale += 1
    recipe = plan.recipe
    if recipe.patience is None or state.stale < recipe.patience:
        return
    if state.cuts == recipe.cuts:
        state.stopped = "patience"
        return
    state.cut, state.cuts, state.stale = state.cut * CUT, state.cuts + 1, 0
