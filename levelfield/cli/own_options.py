"""Defines the flags that say what the columns of a user's own file mean, wherever a command takes such a file.

    levelfield data prepare reviews.csv --text body --label stars
    levelfield compare mine.py:Mine --own reviews.csv --text body --label stars

Whatever is given becomes one `OwnData`, whose text form is what the rest of the package is told.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from levelfield.cli.arguments import Cells, Column, ColumnNames, Number, Positive, Share, Switch, Text
from levelfield.cli.streams import patiently
from levelfield.presets.options import Options
from levelfield.spec import UserError


@dataclass(frozen=True)
class OwnColumns:
    """What the columns of your own file mean (CSV, TSV, JSON lines, Parquet, Arrow, a folder of numpy arrays, or a
    Hugging Face dataset, as a folder or by its name).

    Args:
        text: column of text, read as bytes
        tokenizer: tokenizer.json, or a folder with one, whose tokens of the text are read instead of bytes
        symbols: column of symbols separated by blanks
        channels: columns of numbers, each cell a list of them
        label: column of classes
        labels: column of sets of labels, as lists or "a; b", or several columns of 1 or 0, each a label
        target: columns of numbers to predict
        split: column that says train, val or test (default: by the names of the files, else by a hash)
        group: column whose rows stay in one split, such as a patient
        test_share: share of the rows for test, where no split is given
        val_share: share of the rows for validation, where no split is given
        longest: steps beyond which a sequence is cut
        split_seed: seed of the hash that makes the splits
        skip_broken: leave out rows that cannot be read, whose channels have numbers that are not finite, or whose lists
            of symbols have an empty item
        missing: what stands for an empty cell, such as nan, in the columns of label, labels, target and group
    """

    text: Column = ""
    tokenizer: Annotated[Text, arg(metavar="PATH")] = ""
    symbols: Column = ""
    channels: ColumnNames = ()
    label: Column = ""
    labels: ColumnNames = ()
    target: ColumnNames = ()
    split: Column = ""
    group: Column = ""
    test_share: Share = 0.2
    val_share: Share = 0.1
    longest: Positive = 4_096
    split_seed: Number = 0
    skip_broken: Switch = False
    missing: Cells = ()

    def word(self, path: str) -> str:
        """Returns what stands for the file in text. Raises UserError for settings that cannot be, and for whatever is
        wrong with the file, before anything else is done."""
        from levelfield.user import own_data

        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("split_seed", "tokenizer")}
        task = own_data.OwnData(path, seed=self.split_seed, tokenizer=self.tokenizer or None, **given).pinned()
        with patiently(f"Reading {path}"):
            assert task.max_length  # which reads the file
        return repr(task)

    def source(self, name: str) -> str:
        """Returns what stands for a task in text, which `name` may be the file of; any other name as it is.

        Raises UserError where columns are named without a file.
        """
        from levelfield.engine.find import listed
        from levelfield.presets import by_name
        from levelfield.user import own_files

        known = self == NO_COLUMNS and (by_name.is_task(name) or name in listed())
        if own_files.is_data(name) or (Path(name).is_dir() and not known):
            return self.word(name)
        if self != NO_COLUMNS:
            raise _without_columns(name)
        return name


def _without_columns(name: str) -> UserError:
    """Returns why a name has no columns: it is that of a task, of a file of another kind, or of nothing."""
    from levelfield.engine.find import find_tasks
    from levelfield.user import own_files

    own_files.require_known(Path(name))
    if not Path(name).is_file():
        try:
            find_tasks(name)
        except UserError:
            return own_files.not_there(name)
    return UserError(
        f"'{name}' is no file of data and has no columns: give the path of yours, which ends in "
        f"{', '.join(own_files.READERS)}, or leave out --text, --label and the like."
    )


NO_COLUMNS = OwnColumns()


@dataclass(frozen=True)
class OwnFile(OwnColumns):
    """Your own file instead of, or beside, the tasks that ship.

    Args:
        own: your own data: a file that ends in .csv, .tsv, .jsonl, .parquet or .arrow, a folder, or OWNER/NAME of a
            dataset on the Hugging Face hub, which is downloaded once
    """

    own: Annotated[Text, arg(metavar="PATH")] = ""

    def added(self, options: Options) -> Options:
        """Returns the options of a comparison with the file, where one is given, among its tasks.

        Raises UserError for columns without a file, and for whatever is wrong with it.
        """
        return replace(options, tasks=(*options.tasks, *self._words()))

    def _words(self) -> tuple[str, ...]:
        """Returns what stands for the file in text; () where none is given."""
        if self.own:
            return (OwnColumns(**{f.name: getattr(self, f.name) for f in fields(OwnColumns)}).word(self.own),)
        if self != NO_FILE:
            raise UserError("Options of your own data are given, but no file: give it with --own reviews.csv.")
        return ()


NO_FILE = OwnFile()
Columns = Annotated[OwnColumns, arg(name="")]
Own = Annotated[OwnFile, arg(name="")]
