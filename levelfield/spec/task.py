"""A task: data with declared input and output, splits, and a score per example."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from levelfield.spec.archive import Archive
from levelfield.spec.contents import contents
from levelfield.spec.errors import UserError, check_literals
from levelfield.spec.identity import ReadsFiles
from levelfield.spec.io_types import Input, Label, LabelSet, Output, Unlabelled, Values
from levelfield.spec.own_code import code_sha256
from levelfield.spec.user_source import named_files

if TYPE_CHECKING:
    import numpy as np
    from torch import Generator, Tensor

    from levelfield.spec.examples import Examples


SplitName = Literal["train", "val", "test"]


SPLITS: tuple[SplitName, ...] = ("train", "val", "test")


DRAW_ORDER: tuple[SplitName, ...] = ("test", "val", "train")
"""The order in which generated splits are drawn: how many examples are trained on then changes no other split."""


Progress = Callable[[str, int, int], None]
"""progress(what, done, total): how long work tells how far it is."""


def no_progress(what: str, done: int, total: int) -> None:
    """A Progress that says nothing."""


@dataclass(frozen=True)
class Certificate:
    """What is proved of the scores on a task, and was checked on its arrays.

    claim: what follows, in a sentence. checked: what was computed from the arrays for it. faults: what contradicts it.
    """

    claim: str
    checked: str
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Task(ABC, ReadsFiles):
    """Data with declared input and output, splits, a score per example and columns to slice by.

    Subclasses are final frozen dataclasses whose fields are settings; `dataclasses.replace(task, length=400)` is the
    same task at another length. Adding one is one file in `tasks/` that ends in `TASKS = {name: default instance}`.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    source: ClassVar[str]  # citation and licence, one line each
    licence: ClassVar[str] = ""  # of the data: an address or words; "" of what levelfield itself generates, and unknown
    split_rule: ClassVar[str]  # where train, val and test come from, in words
    padded: ClassVar[bool] = True  # whether sequences differ in length, so that those of a batch are padded
    documents: ClassVar[int] = 1  # sequences in an example, which a model reads one by one
    causal: ClassVar[bool] = False  # whether it is posed to models that read from left to right
    pooling: ClassVar[Literal["mean", "last"]] = "mean"  # what answers: all steps, or the last one or its state
    hidden: ClassVar[float] = 0.5  # share of steps that masked pretraining hides (amos2025, section 2: of pictures)
    archives: ClassVar[tuple[Archive, ...]] = ()  # official files that `build` reads; none where it is generated

    def __post_init__(self) -> None:
        check_literals(self)

    @property
    @abstractmethod
    def input(self) -> Input: ...

    @property
    @abstractmethod
    def output(self) -> Output: ...

    @property
    @abstractmethod
    def max_length(self) -> int:
        """No sequence is longer, in steps."""

    @property
    @abstractmethod
    def chance(self) -> float:
        """The expected score of guessing uniformly (a fraction, like every score), or 0.0 for R2."""

    @property
    def passage_only(self) -> float | None:
        """The expected score of a rule that reads the text and not what is asked of it (Kaushik and Lipton 2018); None
        where no such rule is known that is better than the label prior."""
        return None

    @abstractmethod
    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        """Make the three disjoint splits: generate them, or read official files under `sources`.

        Raises UserError where the files are absent or wrong. Called once; `data.prepare` keeps the result on disk.
        """

    def derived(
        self, prepared: Callable[[Task], Mapping[SplitName, Examples] | None]
    ) -> Mapping[SplitName, Examples] | None:
        """The splits that `build` would make, made sooner from those of another task; None where there are none.

        prepared: returns the splits of a task whose arrays are kept already, None of one whose arrays are not.
        """
        return None

    @property
    def reads(self) -> tuple[Path, ...]:
        """Files of the user's own that `build` reads: other content is another task, with other arrays and runs.

        By default those that the settings or the code of the class name, as text or as a path; a task that finds its
        files in another way gives them here.
        """
        return named_files(self)

    @property
    def own_parts(self) -> Mapping[str, Any]:
        """Hashes of what is a user's own: the files that `build` reads, and the code of a class in a user's file.

        Of a class that ships or is installed, `version` says what its code does.
        """
        found = {"reads": contents(self.reads), "code_sha256": code_sha256(type(self))}
        return {name: each for name, each in found.items() if each}

    def augment(self, x: Tensor, lengths: Tensor, generator: Generator) -> Tensor:
        """Label-keeping change of one training batch. x: (B, T) or (B, T, C) raw values; returns the same shape.

        Padding beyond `lengths` stays as it is. Tasks without an augmentation raise UserError.
        """
        raise UserError(f"Task {self.name} has no augmentation; choose a protocol without `augment`.")

    @property
    def apart(self) -> Mapping[SplitName, Examples] | None:
        """The splits with all inputs told apart, for counting equal ones, where the arrays make different inputs alike,
        as symbols that training does not know; None where the arrays tell."""
        return None

    def folded(self, examples: Examples) -> Examples | None:
        """Returns examples without what makes no other text of one, such as capitals, as symbols in which near
        duplicates are looked for; None where they are looked for in the arrays."""
        return None

    @property
    def test_groups(self) -> np.ndarray | None:
        """The number of the group of each test example, (N,), such as its patient; None where each stands by itself.

        Scores within a group are alike, so that their mean is less certain than that of as many single examples.
        """
        return None

    def recompute_labels(self, examples: Examples) -> np.ndarray | None:
        """The targets worked out anew from the sequences, shaped like `examples.y`, by other code than made them.

        None where a sequence does not determine its target. `levelfield data verify` compares.
        """
        return None

    def certify(self, given: Mapping[SplitName, Examples]) -> Certificate | None:
        """Checks on the arrays what is proved of every score on them; None where nothing is.

        `levelfield data verify` prints it, and a fault of it is an error of the data.
        """
        return None

    @property
    def certified_range(self) -> int | None:
        """The widest window, in steps, that provably gives no more than guessing; None where nothing is proved."""
        return None

    @property
    def twins(self) -> int:
        """How many examples, one after another in every split, have the same windows of up to `certified_range` steps;
        1 where nothing is proved."""
        return 1

    @property
    def longest_range(self) -> int | None:
        """The longest range that `at_range` takes; None where none is too long."""
        return None

    def at_range(self, steps: int, examples: int) -> Task:
        """The same task at another certified range, with at most `examples` in each split.

        Raises UserError where the task has none, or not that one.
        """
        raise UserError(f"Task {self.name} has no certified range; the task reach has.")

    @property
    def augmentation(self) -> str | None:
        """What `augment` does, in words; None where there is no augmentation."""
        return None

    def hits(self, train: Examples, test: Examples) -> dict[str, np.ndarray]:
        """Rule -> whether it is right about each test example, (N,) bool: the label prior, and a greedy rule where one
        exists. Empty where an example has no single label. `Slices` says where such a rule scores."""
        import numpy as np

        if not isinstance(self.output, Label):
            return {}
        values, counts = np.unique(train.y, return_counts=True)
        return {"label_prior": test.y == values[counts.argmax()]}

    def baselines(self, train: Examples, test: Examples) -> dict[str, float]:
        """Scores of rules that learn no sequence model: those of `hits`, and others that are not of single examples."""
        import numpy as np

        if isinstance(self.output, LabelSet):
            from levelfield.spec.label_sets import commonest, f1

            return {"label_prior": float(f1(commonest(np.asarray(train.y)), np.asarray(test.y) > 0).mean())}
        if isinstance(self.output, Values | Label):
            return {rule: float(np.mean(right)) for rule, right in self.hits(train, test).items()}
        known, asked = (e.x if isinstance(self.output, Unlabelled) else e.y[e.y >= 0] for e in (train, test))
        values, counts = np.unique(known, return_counts=True)
        return {"label_prior": float(np.mean(asked == values[counts.argmax()]))}

    def at_length(self, length: int, examples: int | None = None) -> Task:
        """The same task with sequences up to `length`, and `examples` in each split where given, or the nearest number
        below that the task allows.

        Raises UserError where the task has only one length.
        """
        raise UserError(f"Task {self.name} has one length, {self.max_length}; extrapolation needs a generated task.")
