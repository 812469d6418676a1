"""ListOps: the value of a nested list expression, a digit, from its 501 to 1999 tokens.

    [MAX 2 9 [MIN 4 7 ] 0 ]  ->  9        [SM 3 8 [MED 1 5 9 ] ]  ->  6        [MED 2 5 ]  ->  3

MAX, MIN, MED (median; of an even number, the mean of the middle two, rounded down) and SM (sum modulo 10) take 2 to 10
arguments. Expressions have the distribution of the official generator (`lra_benchmarks/data/listops.py`): a node is an
operator with probability 1/4 and a digit otherwise; at `max_depth` it is a digit; trees are redrawn until minimum <
tokens < length, where brackets count and parentheses do not. The official files are read with origin="official".

The parentheses of these files are redundant and dropped. The closing bracket is kept: without it `[MAX 1 [MIN 2 ] 3 ]`
and `[MAX 1 [MIN 2 3 ] ]` would be the same tokens.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from levelfield.spec import (
    Archive,
    Examples,
    Label,
    Progress,
    SplitName,
    Task,
    Tokens,
    UserError,
    derive_seed,
    no_progress,
)
from levelfield.tasks import _lra_release as release

if TYPE_CHECKING:
    from torch import Generator, Tensor

SYMBOLS = (*"0123456789", "[MAX", "[MED", "[MIN", "[SM", "]")
"""What each stored byte stands for."""

ROOTS = np.array(
    ["none"] * 10 + ["MAX", "MED", "MIN", "SM", "none"]
)  # the operator of an expression, by its first symbol
OPERATOR = 0.25  # probability that a node is an operator
BLOCK = 256  # expressions that a thread draws at a time
RAREST = 1e-6  # share of trees that must have an allowed size


@dataclass(frozen=True)
class ListOps(Task):
    """Long ListOps. Sizes are in tokens: minimum < tokens < length, as the official generator counts.

    max_depth: the level at which all nodes are digits; the root's level is 1. train, val, test: expressions. Changing
    one of these counts does not change the expressions of other splits, except where one would be in two splits.
    """

    name: ClassVar[str] = "listops"
    version: ClassVar[int] = 1
    hidden: ClassVar[float] = 0.1
    source: ClassVar[str] = (
        "Nangia and Bowman 2018, ListOps (arXiv 1804.06028); long form: Tay et al. 2021, Long Range Arena "
        "(arXiv 2011.04006), Apache-2.0. Generated here from the same law, or read from the official files."
    )
    licence: ClassVar[str] = "https://spdx.org/licenses/Apache-2.0"
    split_rule: ClassVar[str] = (
        "generated: a random stream per split, and no expression in two splits; "
        "official: basic_train, basic_val and basic_test as released"
    )

    minimum: int = 500
    length: int = 2000
    max_depth: int = 10
    max_args: int = 10
    train: int = 96000
    val: int = 2000
    test: int = 2000
    seed: int = 0
    origin: Literal["generated", "official"] = "generated"

    def __post_init__(self) -> None:
        super().__post_init__()
        lowest = {"minimum": 1, "max_depth": 2, "max_args": 2, "train": 1, "val": 1, "test": 1}
        for setting, least in lowest.items():
            if getattr(self, setting) < least:
                raise UserError(
                    f"ListOps {setting}={getattr(self, setting)} is too small: it must be at least {least}."
                )
        if self.length < self.minimum + 2:
            raise UserError(f"ListOps length={self.length} must be at least minimum + 2 = {self.minimum + 2}.")

    @property
    def archives(self) -> tuple[Archive, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return release.RELEASE if self.origin == "official" else ()

    @property
    def input(self) -> Tokens:
        return Tokens(len(SYMBOLS))

    @property
    def output(self) -> Label:
        return Label(10)

    @property
    def max_length(self) -> int:
        return self.length - 1

    @property
    def chance(self) -> float:
        return 0.1

    @property
    def augmentation(self) -> str:
        return "the arguments of every operator in uniformly random order"

    def at_length(self, length: int, examples: int | None = None) -> ListOps:
        """Returns the task with sizes scaled to `length`, and the same depth and arguments. UserError if none fits."""
        minimum = max(1, round(self.minimum * length / self.length))
        counts = {} if examples is None else {"train": examples, "val": examples, "test": examples}
        task = replace(self, minimum=minimum, length=length, origin="generated", **counts)
        task.require_feasible()
        return task

    def require_feasible(self) -> None:
        """Raises UserError where less than one tree in a million has an allowed size, perhaps none at all."""
        sizes = length_distribution(self.length, self.max_depth, self.max_args)
        if sizes[self.minimum + 1 :].sum() < RAREST:
            raise UserError(
                f"ListOps cannot draw expressions of more than {self.minimum} and fewer than {self.length} tokens with "
                f"max_depth={self.max_depth} and max_args={self.max_args}: widen the window or change these two."
            )

    @property
    def _counts(self) -> tuple[tuple[SplitName, int], ...]:
        return (("test", self.test), ("val", self.val), ("train", self.train))

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        if self.origin == "official":
            return self._read(sources, progress)
        self.require_feasible()
        splits: dict[SplitName, Examples] = {}
        taken = np.zeros(0, np.uint64)
        # The small splits come first, so that the size of train does not change them.
        for split, count in self._counts:
            splits[split], keys = self._distinct(split, count, taken, progress)
            taken = np.concatenate([taken, keys])
        return splits

    def _distinct(self, split: str, count: int, taken: np.ndarray, progress: Progress) -> tuple[Examples, np.ndarray]:
        """Draws the first `count` expressions of the split's stream that differ from each other and from `taken`."""
        purpose = (split, self.minimum, self.length, self.max_depth, self.max_args)
        seed = derive_seed(self.seed, "listops", *purpose)
        parts: list[Examples] = []
        found, drawn = 0, 0
        known = taken
        while found < count:
            if drawn > 30 * count + 10_000:
                raise UserError(
                    f"ListOps found only {found} of {count} different expressions for {split} of more than "
                    f"{self.minimum} and fewer than {self.length} tokens: ask for fewer or widen the window."
                )
            wanted = max(count - found, min(count, 64))
            block, keys = self._draw(seed, drawn, wanted, split, progress)
            drawn += wanted
            fresh = np.sort(np.unique(keys, return_index=True)[1])
            fresh = fresh[~np.isin(keys[fresh], known)][: count - found]
            if len(fresh):
                parts.append(block if len(fresh) == len(block) else block.take(fresh))
            known = np.concatenate([known, keys[fresh]])
            found += len(fresh)
        return _join(parts), known[len(taken) :]

    def _draw(self, seed: int, first: int, count: int, split: str, progress: Progress) -> tuple[Examples, np.ndarray]:
        """Draws expressions first..first + count - 1 of a stream, with their hashes, in blocks on all cores."""
        from levelfield.tasks._listops.expressions import draw

        starts = range(first, first + count, BLOCK)
        window = (self.minimum, self.length, self.max_depth, self.max_args)
        pool = ThreadPoolExecutor(os.cpu_count())
        try:
            jobs = [pool.submit(draw, seed, at, min(BLOCK, first + count - at), *window) for at in starts]
            blocks = []
            for job in jobs:
                blocks.append(job.result())
                progress(f"drawing {split} expressions", min(len(blocks) * BLOCK, count), count)
        finally:
            pool.shutdown(cancel_futures=True)
        x = np.concatenate([tokens for tokens, _ in blocks])
        lengths = np.concatenate([np.diff(offsets) for _, offsets in blocks])
        return self._examples(x, np.concatenate([[0], np.cumsum(lengths)]))

    def _examples(self, x: np.ndarray, offsets: np.ndarray) -> tuple[Examples, np.ndarray]:
        """Evaluates expressions: examples with labels and slices, and hashes. Malformed ones have the label -1."""
        from levelfield.tasks._listops.expressions import survey

        labels, depths, keys = survey(x, offsets)
        edges = np.linspace(self.minimum + 1, self.length, 5).astype(int)
        digits = len(str(self.length))
        bins = np.array([f"{a:0{digits}d}-{b - 1:0{digits}d}" for a, b in pairwise(edges)])
        place = np.clip(np.searchsorted(edges, np.diff(offsets), side="right") - 1, 0, len(bins) - 1)
        slices = {"root": ROOTS[x[offsets[:-1]]], "depth": depths, "length": bins[place]}
        return Examples(x, offsets, labels, slices), keys

    def _read(self, sources: Path | None, progress: Progress) -> Mapping[SplitName, Examples]:
        from levelfield.tasks._listops import release as files

        splits: dict[SplitName, Examples] = {}
        owners: dict[int, str] = {}
        for split, (path, x, offsets, written) in files.read_all(sources, self._counts, progress).items():
            examples, keys = self._examples(x, offsets)
            files.check(path, examples, written, self.length)
            files.check_distinct(path, keys, owners)
            splits[split] = examples
        return splits

    def augment(self, x: Tensor, lengths: Tensor, generator: Generator) -> Tensor:
        """Shuffles the arguments of every operator (miralles2025 section 3). x: (B, T) of any integer type.

        One number is drawn from `generator`, and rows are shuffled on the CPU. Raises UserError for a truncated row.
        """
        import torch

        from levelfield.tasks._listops.expressions import permute

        seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
        out = x.detach().cpu().clone(memory_format=torch.contiguous_format)
        row = permute(out.numpy().copy(), lengths.cpu().numpy(), seed, out.numpy())
        if row >= 0:
            raise UserError(
                f"Row {row} of the batch is not a whole ListOps expression: its arguments cannot be shuffled."
            )
        return out.to(x.device)

    def recompute_labels(self, examples: Examples) -> np.ndarray:
        """Evaluates every expression from right to left; -1 where it is not an expression."""
        from levelfield.tasks._listops.second_value import values

        return values(np.asarray(examples.x), np.asarray(examples.offsets))

    def hits(self, train: Examples, test: Examples) -> dict[str, np.ndarray]:
        """Adds the rule `greedy_root`, the most frequent label of each root operator (miralles2025 appendix B), and,
        where expressions have more levels than that, `one_level`, which reads the root's arguments as well.

        Values are (tests,) bool: which examples are answered correctly.
        """
        from levelfield.tasks._listops.levels import likeliest

        prior = int(np.bincount(train.y).argmax())
        guess = np.full(len(test), prior)
        for root in np.unique(train.slices["root"]):
            guess[test.slices["root"] == root] = np.bincount(train.y[train.slices["root"] == root]).argmax()
        rules = super().hits(train, test) | {"greedy_root": guess == test.y}
        return rules if self.max_depth == 2 else rules | {"one_level": likeliest(train, test, 1) == test.y}


def length_distribution(length: int, max_depth: int, max_args: int) -> np.ndarray:
    """Returns the probability that a tree whose root is an operator has 0, 1, ..., length - 1 tokens: (length,).

    It is computed by generating functions, level by level: f_d(z) = 3/4 z + 1/4 z^2 mean over n of f_(d+1)(z)^n,
    truncated at z^length.
    """
    digit = np.zeros(length)
    digit[1] = 1.0
    below, root = digit, digit
    for _ in range(max_depth - 1):
        powers = np.zeros(length)
        for _ in range(max_args - 1):  # Horner: f^2 + ... + f^max_args
            powers[0] += 1.0
            powers = _product(powers, below)
        arguments = _product(powers, below) / (max_args - 1)
        root = np.concatenate([np.zeros(2), arguments[:-2]])
        below = (1 - OPERATOR) * digit + OPERATOR * root
    return root


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    size = 2 * len(a)
    return np.clip(np.fft.irfft(np.fft.rfft(a, size) * np.fft.rfft(b, size), size)[: len(a)], 0, None)


def _join(parts: list[Examples]) -> Examples:
    if len(parts) == 1:
        return parts[0]
    lengths = np.concatenate([p.lengths for p in parts])
    slices = {name: np.concatenate([p.slices[name] for p in parts]) for name in parts[0].slices}
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Examples(np.concatenate([p.x for p in parts]), offsets, np.concatenate([p.y for p in parts]), slices)


TASKS: dict[str, Task] = {"listops": ListOps(), "listops_official": ListOps(origin="official")}

EXAMPLES: tuple[Task, ...] = (
    ListOps(minimum=10, length=60, max_depth=4, train=60, val=20, test=20),
    ListOps(minimum=2, length=24, max_depth=3, max_args=4, train=30, val=10, test=10, seed=7),
)
