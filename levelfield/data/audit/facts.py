"""States what needs no model: sizes, lengths, balance, duplicates within and across splits, contradicting labels.

    for row in facts(task, splits, groups={"train+test": 3}):
        ...     # Row(metric="exact_duplicates", at="train+test", value=12.0, n=...)

Everything is counted from the arrays, as the data card counts it (`data/card.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from levelfield.data import card as cards
from levelfield.data import duplicates
from levelfield.data.audit.features import CHANNELS
from levelfield.data.duplicates import Duplicates
from levelfield.spec import (
    SPLITS,
    Examples,
    Label,
    LabelSet,
    Progress,
    Row,
    Signal,
    SplitName,
    StepLabels,
    Task,
    Values,
    no_progress,
)
from levelfield.spec.groups import ALPHA, design_effect
from levelfield.spec.quantiles import t_quantile, z_quantile

ONE_TARGET = 0.95  # share of groups that have one target in all examples, from which it is said
CHANCE = 0.001  # that targets which have nothing to do with groups pass for such
SHIFTED = 0.05  # share of test examples of other classes than in train, up to which nothing is said
FEWEST = 20  # examples of a split, of fewer of which one may well have most of the variance
PLACES = ("least", "median", "95 %", "most")  # of the lengths, as a card has them


def facts(
    task: Task,
    splits: Mapping[SplitName, Examples],
    groups: Mapping[str, int] | None = None,
    left_out: int = 0,
    progress: Progress = no_progress,
    *,
    found: Duplicates | None = None,
    grouped: Mapping[SplitName, np.ndarray] | None = None,
) -> Iterator[Row]:
    """Yields a row for each number.

    groups: groups that both of two splits have, by pair; None where rows have none. left_out: rows that lacked input
    or label. found: duplicates, where they are searched for already. grouped: the number of each example's group, (N,),
    by split.
    """
    card = cards.make(task, splits, files=True, progress=progress, found=found)
    for split in SPLITS:
        yield _row("examples", split, card.examples[split])
        for place, steps in zip(PLACES, card.steps[split], strict=True):
            yield _row("steps", split, steps, f"place={place}")
        if isinstance(task.output, Label):
            yield _row("largest_class", split, max(card.balance[split].values()) / card.examples[split])
        if isinstance(task.output, LabelSet):
            yield _row("labels", split, sum(card.balance[split].values()) / card.examples[split])
    for pair, count in card.found.exact.items():
        yield _row("exact_duplicates", "all", count, f"in={pair}")
    for pair, count in card.found.near.items():
        yield _row("near_duplicates", "all", count, f"in={pair}")
    if card.found.unjudged:
        yield _row("not_compared", "all", card.found.unjudged)
    yield _row("leaked", "test", leaked(task.apart or splits), n=len(splits["test"]))
    if share := unseen(task, splits):
        yield _row("unseen", "test", share, n=len(splits["test"]))
    for split in SPLITS if isinstance(task.output, Values) else ():
        if (share := outlier(splits[split])) > 0.5:
            yield _row("outlier", split, share, n=len(splits[split]))
    yield _row("contradictions", "all", card.found.conflicts)
    for pair, count in (groups or {}).items():
        yield _row("shared_groups", "all", count, f"in={pair}")
    yield _row("left_out", "all", left_out)
    if isinstance(task.input, Signal) and isinstance(task.output, StepLabels) and task.input.channels > CHANNELS:
        yield _row("channels", "all", task.input.channels)
        yield _row("channels_read", "all", CHANNELS)  # by rules of the latest steps
    targets = {split: np.asarray(splits[split].y) for split in SPLITS}
    train, test = targets["train"], targets["test"]
    both = (grouped["train"], grouped["test"]) if grouped else None
    if isinstance(task.output, Label) and (moved := shifted(train, test, both)):
        yield _row("shifted", "test", moved, n=len(splits["test"]))
    if grouped and not isinstance(task.output, StepLabels):
        yield from _alike(*(np.concatenate([np.asarray(of[split]) for split in SPLITS]) for of in (targets, grouped)))
    if (certified := task.certified_range) is not None and not card.faults:
        yield _row("certified_range", "all", certified)


def leaked(splits: Mapping[SplitName, Examples]) -> float:
    """Returns the share of test examples whose very sequence is in the training split."""
    train, test = (duplicates.hashed(splits[name], splits[name].documents) for name in ("train", "test"))
    known = set(train.tolist())
    return float(np.mean([key in known for key in test.tolist()]))


def unseen(task: Task, splits: Mapping[SplitName, Examples]) -> float:
    """Returns the share of test examples with a class, or a label of several, that no training example has."""
    train, test = (np.asarray(splits[name].y) for name in ("train", "test"))
    if isinstance(task.output, LabelSet):
        return float(np.mean((test[:, ~(train > 0).any(0)] > 0).any(1)))
    return float(np.mean(~np.isin(test, train))) if isinstance(task.output, Label) else 0.0


def shifted(train: np.ndarray, test: np.ndarray, groups: tuple[np.ndarray, np.ndarray] | None = None) -> float:
    """Returns the share of test examples that would need another class for classes to be as frequent as in train; 0
    where it is little, or no more than chance could make of one law for both, by which whole groups are drawn. train,
    test: classes, (N,). groups: of both, the number of each example's group, (N,)."""
    classes = np.unique(np.concatenate([train, test]))
    here, there = (np.bincount(np.searchsorted(classes, y), minlength=len(classes)) / len(y) for y in (train, test))
    both = (here * len(train) + there * len(test)) / (len(train) + len(test))
    spread = np.full(len(classes), 1 / len(train) + 1 / len(test))  # how the variance of one example is divided
    for y, own, of in zip((train, test), (here, there), groups or (), strict=groups is not None):
        effects = [design_effect((y == name) - share, of) for name, share in zip(classes, own, strict=True)]
        t = t_quantile(ALPHA, max(1, len(np.unique(of)) - 1))  # as few groups tell little of how alike each is
        spread += (np.array(effects) * (t / z_quantile(ALPHA)) ** 2 - 1) / len(y)
    noise = np.sqrt(2 / np.pi * both * (1 - both) * spread).sum() / 2  # the mean, by chance
    moved = float(np.abs(here - there).sum() / 2)
    return moved if moved > SHIFTED + 2 * noise else 0.0


def _alike(targets: np.ndarray, groups: np.ndarray) -> Iterator[Row]:
    """Yields of how many groups there are several examples, and how many of these have one target; nothing where that
    says nothing."""
    several, alike = one_target(targets, groups)
    if alike:
        yield _row("groups_of_several", "all", several)
        yield _row("groups_with_one_target", "all", alike)


def one_target(targets: np.ndarray, groups: np.ndarray) -> tuple[int, int]:
    """Returns how many groups have several examples, and how many of these have one target in all of them; 0 for the
    latter where they are less than ONE_TARGET of them, or where targets drawn for each example by itself might do it.

    Were targets so drawn, a group of m examples would have one by the sum over targets of their shares to the m. Of so
    many groups with several targets as that lets expect, no more than there are would be found less than once in 1 /
    CHANCE (Chernoff's bound). targets: (N,), or (N, columns). groups: the number of each one's group, (N,).
    """
    _, own = np.unique(np.asarray(targets).reshape(len(targets), -1), axis=0, return_inverse=True)
    _, of, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    first = np.full(len(sizes), -1)
    first[of] = own.ravel()
    mixed = np.zeros(len(sizes), bool)
    mixed[of[own.ravel() != first[of]]] = True
    many, shares = sizes > 1, np.bincount(own.ravel()) / len(own)
    several, found = int(many.sum()), int(mixed.sum())
    if not several or several - found < ONE_TARGET * several:
        return several, 0
    expected = sum(count * (1 - float((shares**m).sum())) for m, count in enumerate(np.bincount(sizes[many])) if count)
    unlikely = found < expected and found - expected - found * math.log(max(found, 1) / expected) < math.log(CHANCE)
    return several, several - found if unlikely else 0


def outlier(split: Examples) -> float:
    """Returns the largest share that a single example has of the variance of a target in a split; 0 where few are."""
    y = np.asarray(split.y, np.float64).reshape(len(split), -1)  # (examples, targets)
    apart = np.square(y - y.mean(0))
    whole = apart.sum(0)
    return float((apart.max(0)[whole > 0] / whole[whole > 0]).max(initial=0.0)) if len(split) >= FEWEST else 0.0


def _row(metric: str, split: str, value: float, at: str = "", n: int = 0) -> Row:
    row = Row(source="levelfield", model="data", protocol="none", metric=metric, split=split, value=float(value))
    row |= Row(at=at) if at else Row()
    return row | (Row(n=n) if n else Row())
