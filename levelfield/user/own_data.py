"""Makes a task of a user's own file, without code: CSV, TSV, JSON lines, Parquet, Arrow, or a folder of them.

    OwnData("reviews.csv", text="body", label="stars")
    OwnData("reviews.csv", text="body", label="stars", tokenizer="gpt2")     # gpt2/tokenizer.json
    OwnData("imdb", text="text", label="label")        # a folder that datasets saved, or from the hub
    OwnData("stanfordnlp/imdb", text="text", label="label")                  # downloaded from the hub, where not there
    OwnData("films.csv", text="plot", labels=("genres",))                    # any number of labels
    OwnData("beats.parquet", channels=("ecg", "ppg"), target=("rate",), group="patient")
    OwnData("folder")                                  # x.npy and y.npy, or train/x.npy, test/x.npy, ...

It is one frozen value like any other task, so runs, prepared arrays and reports take it. It is known by the content of
its files and not by where they lie: other content is another task, with other runs.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from levelfield.spec import (
    Examples,
    Input,
    Label,
    LabelSet,
    Output,
    Progress,
    SplitName,
    Task,
    UserError,
    digest,
    label_sets,
    no_progress,
)
from levelfield.spec.user_source import parsed
from levelfield.user import own_columns, own_files
from levelfield.user.own_rows import Content, content, spelt_in_several_ways
from levelfield.user.own_settings import Settings

WORD = "OwnData("  # what the text form of such a task begins with


@dataclass(frozen=True)
class OwnData(Settings, Task):
    """Rows of the user's own files as a task; the settings are those of `Settings`."""

    version: ClassVar[int] = 1
    licence: ClassVar[str] = "that of the file"

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # one per file, not one for all
        hub = own_files.on_hub(str(self.path))
        plain = hub.place.partition("/")[2] if hub else Path(self.path).stem
        stem = re.sub(r"\W+", "_", plain, flags=re.ASCII).strip("_")
        return f"own_{stem[:40]}" if stem else "own"

    @property
    def source(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The origin of the rows: a file, or a dataset of the hub, with the revision where the path names one."""
        hub = own_files.on_hub(str(self.path))
        if hub is None:
            return "a file of the user's own"
        return f"{hub.place} of the Hugging Face hub" + (f", revision {hub.revision}" if hub.revision else "")

    def pinned(self) -> OwnData:
        """Returns the same task, which of a dataset on the Hugging Face hub names the commit that its files are of, so
        that it is recorded. Raises UserError for a dataset that is not to be had."""
        return replace(self, path=own_files.pinned(str(self.path)))

    @property
    def split_rule(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        given = f"column {self.split}" if self.split else "as the files are named"
        key = f"the column {self.group}" if self.group else "the input"
        return (
            f"{given}; what is missing is carved from train by a hash of seed {self.seed} and {key}: "
            f"{self.test_share:.0%} for test, {self.val_share:.0%} for val"
        )

    @property
    def reads(self) -> tuple[Path, ...]:
        pieces = (own_columns.tokenizer_file(self.tokenizer),) if self.tokenizer else ()
        return own_files.files_of(Path(self.path)) + pieces

    @property
    def input(self) -> Input:
        return self._content.input

    @property
    def output(self) -> Output:
        return self._content.output

    @property
    def max_length(self) -> int:
        return self._content.max_length

    @property
    def chance(self) -> float:
        output = self.output
        if isinstance(output, LabelSet):
            return label_sets.chance(np.asarray(self._content.splits["test"].y))
        return 1 / output.classes if isinstance(output, Label) else 0.0

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes or labels, in the order of their numbers; () for numbers to predict."""
        return self._content.classes

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out, cut or is shared between splits, a sentence each."""
        return self._content.notes

    @property
    def left_out(self) -> int:
        """Rows that lack input or label, or are broken."""
        return self._content.left_out

    @property
    def cut(self) -> int:
        """Sequences that are longer than `longest` steps, of which the rest is not read."""
        return self._content.cut

    @property
    def unknown(self) -> int:
        """Test sequences with a symbol that no training sequence has."""
        if not self.apart:
            return 0
        train, test = self.apart["train"], self.apart["test"]
        return int(np.logical_or.reduceat(~np.isin(test.x, train.x), test.offsets[:-1]).sum())

    @property
    def apart(self) -> Mapping[SplitName, Examples] | None:
        return self._content.apart

    def folded(self, examples: Examples) -> Examples | None:
        if not self.text or self.tokenizer:
            return None
        x, ends = np.asarray(examples.x), examples.offsets.tolist()
        texts = [_folded(x[first:end]) for first, end in pairwise(ends)]
        return Examples.of_sequences(texts, examples.y)

    @property
    def shared_groups(self) -> dict[str, int]:
        """Groups with rows in both of two splits, by pair of splits; {} without `group`."""
        return dict(self._content.shared_groups)

    @property
    def groups(self) -> Mapping[SplitName, np.ndarray] | None:
        """The number of the group of each example by split, (N,) each, the same for a group in all; None without
        `group`."""
        return self._content.groups

    @property
    def trained_groups(self) -> np.ndarray | None:
        """Whether the group of each test example has training examples too, (N,) bool; None without `group`."""
        return np.isin(self.groups["test"], self.groups["train"]) if self.groups else None

    @property
    def test_groups(self) -> np.ndarray | None:
        return self.groups["test"] if self.groups else None

    @property
    def carved(self) -> bool:
        """Whether the test split is a share of the training rows, since neither files nor a column give one."""
        return self._content.carved

    @property
    def _content(self) -> Content:
        return content(self, repr(super().own_parts))

    @property
    def own_parts(self) -> Mapping[str, Any]:
        """Hashes of the files, and whether labels or groups that are written in several ways are one, which they once
        were not."""
        files = super().own_parts
        return {**files, **spelt_in_several_ways(self, repr(files))}

    def build(self, sources: Path | None, progress: Progress = no_progress) -> Mapping[SplitName, Examples]:
        """Returns the three splits; warns of what was left out. Raises UserError for files that cannot be used."""
        made = self._content
        for note in made.notes:
            warnings.warn(note, UserWarning, stacklevel=2)
        return made.splits


def _folded(text: np.ndarray) -> np.ndarray:
    """Returns the bytes of a text, (T,), in small letters and with single blanks; one blank where it is blank."""
    folded = " ".join(text.tobytes().decode("utf-8", "replace").casefold().split())
    return np.frombuffer((folded or " ").encode(), np.uint8)


def report_name(study: str, effort: str, tasks: Iterable[Task]) -> str:
    """Returns the name of the folder of a study's report: "audit-own_reviews-minutes-3f2a91".

    tasks: those that the report is of. A part of the hash of each that reads files of the user's own tells data of one
    name apart, such as a/reviews.csv and b/reviews.csv, or the same file with another label.
    """
    own = dict.fromkeys(digest(task)[:6] for task in tasks if task.reads)
    return "-".join([study, effort, *sorted(own)])


def is_word(text: str) -> bool:
    """Tells whether text stands for such a task, as `repr` writes it."""
    return text.startswith(WORD)


def from_word(text: str) -> OwnData:
    """Returns the task that `repr` wrote as text. Raises UserError for text that is no such call."""
    name, found = parsed(text)
    settings: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in found.items()}
    try:
        return OwnData(**settings)
    except TypeError as error:
        raise UserError(f"{name} does not take this ({error}): write OwnData(path='reviews.csv', ...).") from error
