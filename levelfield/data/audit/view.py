"""Shows a task in part, or with its order destroyed, as a task of its own that models can be trained on.

    View(task, most=(6_000, 500, 1_000))              # at most so many examples of train, val and test
    View(task, order="within", block=8)               # a b c d | e f g h  ->  c a d b | h e f g
    View(task, order="across", block=4)               # a b c d | e f g h  ->  e f g h | a b c d
    View(task, order="none")                          # any order

What a model scores on such a view is had without the order that the view destroys.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from levelfield.spec import (
    SPLITS,
    Archive,
    Examples,
    Input,
    Output,
    Progress,
    SplitName,
    Task,
    derive_seed,
    no_progress,
)

Order = Literal["kept", "within", "across", "none"]


@dataclass(frozen=True)
class View(Task):
    """Another task's examples, fewer or in another order of steps.

    most: examples of train, val and test, drawn with the labels in their shares. order: of the steps of each sequence;
    "within" shuffles those of each block of `block` steps, "across" shuffles the blocks and leaves what is in them.
    """

    of: Task
    most: tuple[int, int, int] | None = None
    order: Order = "kept"
    block: int = 0

    version: ClassVar[int] = 1

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # that of the task, as below
        return self.of.name

    @property
    def source(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.of.source

    @property
    def split_rule(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.of.split_rule

    @property
    def padded(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.of.padded

    @property
    def documents(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.of.documents

    @property
    def archives(self) -> tuple[Archive, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.of.archives

    @property
    def reads(self) -> tuple[Path, ...]:
        return self.of.reads

    @property
    def input(self) -> Input:
        return self.of.input

    @property
    def output(self) -> Output:
        return self.of.output

    @property
    def max_length(self) -> int:
        return self.of.max_length

    @property
    def chance(self) -> float:
        return self.of.chance

    @property
    def apart(self) -> Mapping[SplitName, Examples] | None:
        whole = self.of.apart
        return whole and {split: self.shown(whole[split], split) for split in SPLITS}

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        """Builds the other task, and shows it as this view has it; warns of nothing, as preparing the other does."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            made = self.of.build(sources, progress)
        return {split: self.shown(made[split], split) for split in SPLITS}

    def derived(
        self, prepared: Callable[[Task], Mapping[SplitName, Examples] | None]
    ) -> Mapping[SplitName, Examples] | None:
        """Makes the view from the arrays of the same examples with their order kept, or of the other task."""
        if self.order != "kept" and (part := prepared(replace(self, order="kept", block=0))):
            return {split: self._reordered(part[split], split) for split in SPLITS}
        whole = prepared(self.of)
        return whole and {split: self.shown(whole[split], split) for split in SPLITS}

    def shown(self, examples: Examples, split: SplitName) -> Examples:
        """Returns one split of the other task as this view has it."""
        chosen = self.chosen(examples, split)
        if len(chosen) < len(examples):
            examples = examples.take(chosen)
        return self._reordered(examples, split)

    def chosen(self, examples: Examples, split: SplitName) -> np.ndarray:
        """Returns the indices of the examples of one split of the other task that this view has, in their order."""
        most = self.most[SPLITS.index(split)] if self.most else len(examples)
        if most >= len(examples):
            return np.arange(len(examples))
        return np.sort(examples.stratified(derive_seed(0, "view", split))[:most])

    def _reordered(self, examples: Examples, split: SplitName) -> Examples:
        if self.order == "kept":
            return examples
        rng = np.random.default_rng(derive_seed(0, "order of steps", split))
        places = [self._places(int(length), rng) for length in examples.lengths]
        at = np.concatenate([first + place for first, place in zip(examples.offsets[:-1], places, strict=True)])
        y = examples.y[at] if examples.stepwise else examples.y
        return replace(examples, x=np.asarray(examples.x)[at], y=y)

    def _places(self, length: int, rng: np.random.Generator) -> np.ndarray:
        """Returns the old place of each step, (length,)."""
        if self.order == "none":
            return rng.permutation(length)
        blocks = np.arange(length) // self.block
        if self.order == "within":
            return np.lexsort((rng.random(length), blocks))
        return np.lexsort((np.arange(length), rng.permutation(blocks[-1] + 1)[blocks]))
