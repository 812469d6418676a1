"""Holds the settings by which a user's files become a task: `own_rows` makes its splits by them.

Settings("reviews.csv", text="body", label="stars")
"""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike, fspath

from levelfield.spec import UserError


@dataclass(frozen=True)
class Settings:
    """Rows of a file, each a sequence and what is to be said of it.

    path: a file that ends in .csv, .tsv, .jsonl, .parquet or .arrow, a folder with train.csv and test.csv (and
    val.csv), a Hugging Face dataset's folder (`own_folders`), or a folder of arrays. Of the input one is named: `text`,
    a column that is read as UTF-8 bytes; `symbols`, one of words between blanks; `channels`, columns of which each cell
    is a list of numbers. Of the output: `label`, a column of classes; `labels`, one of sets of labels, or several of a
    yes or no for each label (`own_labels`); or `target`, columns of numbers, which are standardised by the training
    split. A folder of arrays needs neither: x.npy of whole numbers is symbols, any other
    or one of three dimensions is a signal; y.npy of whole numbers is classes.

    split: a column with train, val or test in it. What neither it nor files give is carved from the training rows:
    `test_share` and `val_share` of the rows, by a hash of `seed` and the input, or of the `group` (such as a patient),
    whose rows then stay together; a row without a group is one of its own. longest: steps beyond which a sequence is
    cut. skip_broken: leave out rows that cannot be read, or have numbers in `channels` that are not finite or lists of
    `symbols` with an empty item, where the default is to name the first one. tokenizer: a tokenizer.json, or a folder
    with one, whose pieces of the `text` are read instead of its bytes; like the data it is known by its content.
    missing: texts that stand for none in the columns of `label`, `labels`, `target` and `group`, as an empty cell does,
    such as "nan".

    Raises UserError for settings that cannot be; whatever is wrong with the files is said when they are first read.
    """

    path: str | PathLike[str] = field(metadata={"identity": False})
    text: str = ""
    symbols: str = field(default="", metadata={"version": 2})  # 1 lost brackets among words
    channels: tuple[str, ...] = field(default=(), metadata={"version": 2})  # 1 took tables for lists, scaled by float32
    label: str = ""
    target: tuple[str, ...] = ()
    split: str = ""
    group: str = field(default="", metadata={"version": 2})  # 1 took all rows without a group for one
    test_share: float = 0.2
    val_share: float = 0.1
    longest: int = 4_096
    seed: int = 0
    skip_broken: bool = False
    tokenizer: str | PathLike[str] | None = field(default=None, metadata={"identity": False, "added": True})
    missing: tuple[str, ...] = field(default=(), metadata={"added": True})
    labels: tuple[str, ...] = field(default=(), metadata={"added": True})

    def __post_init__(self) -> None:
        for name in ("path", "tokenizer"):  # which runs are described by, as text
            if isinstance(given := getattr(self, name), PathLike):
                object.__setattr__(self, name, fspath(given))
        if sum(map(bool, (self.text, self.symbols, self.channels))) > 1:
            raise UserError("An input is one of --text, --symbols and --channels: leave out the others.")
        if self.tokenizer and not self.text:
            raise UserError("A tokenizer reads text: name its column with --text, or leave out --tokenizer.")
        if sum(map(bool, (self.label, self.labels, self.target))) > 1:
            raise UserError(
                "An output is one of --label for classes, --labels for sets of labels and --target for numbers: leave "
                "out the others."
            )
        self._require_apart()
        if min(self.test_share, self.val_share) <= 0 or self.test_share + self.val_share >= 1:
            raise UserError(
                f"Shares of {self.test_share} for test and {self.val_share} for val leave nothing to train on or to "
                "test: give shares above 0 that come to less than 1."
            )
        if self.longest < 1:
            raise UserError(f"A sequence of at most {self.longest} steps is none: give --longest 1 or more.")

    def _require_apart(self) -> None:
        """Raises UserError for a column that is named twice where it can only be meant once: among those of a flag, as
        input and output, or as output and group, of which no class would be in two splits."""
        inputs = tuple(filter(None, (self.text, self.symbols, *self.channels)))
        outputs = tuple(filter(None, (self.label, *self.labels, *self.target)))
        for names in (inputs, outputs):
            if twice := next((name for name in names if names.count(name) > 1), ""):
                raise UserError(f"The column {twice} is named twice: name each column once.")
        if both := next((name for name in outputs if name in inputs), ""):
            raise UserError(f"The column {both} is input and output, so that nothing is asked: name two columns.")
        if self.group and self.group in outputs:
            raise UserError(
                f"The column {self.group} is output and group, so that what one split asks is in no other: name "
                "another column with --group, or none."
            )
