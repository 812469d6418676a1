"""Keeps which test examples a run has right, a bit each, so that arms can be compared example by example.

    hits = Hits.of(spec, scores)      # scores: (N,), 0 or 1, in the order of the test split
    hits.right                        # (N,), bool
    hits.exam                         # runs of one exam were asked the same N examples in the same order

A report writes those of all its runs into `hits.csv`, beside its rows, and reads them from there where the runs
themselves are not at hand.
"""

from __future__ import annotations

import base64
import binascii
import csv
import io
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from levelfield.spec import Row, UserError, digest

FILE = "hits.csv"
COLUMNS = ("run", "exam", "n", "right")
WHOLE = ("", "kernel")  # axes of rows of the whole test split: the second says again what a bounded kernel scores


@dataclass(frozen=True)
class Hits:
    """Says which of n test examples a run has right. exam: a hash of the task and n. packed: eight examples a byte."""

    exam: str
    n: int
    packed: bytes

    @classmethod
    def of(cls, spec: Mapping[str, Any], scores: np.ndarray) -> Hits | None:
        """Returns which examples a run has right; None where some score is neither 0 nor 1.

        spec: `spec.describe(run)`. scores: of the test examples, (N,).
        """
        if not np.isin(scores, (0, 1)).all():
            return None
        return cls(digest([spec["task"], len(scores)])[:10], len(scores), np.packbits(scores.astype(bool)).tobytes())

    @property
    def right(self) -> np.ndarray:
        """Whether each example was answered rightly, (n,), bool."""
        return np.unpackbits(np.frombuffer(self.packed, np.uint8), count=self.n).astype(bool)


def with_hits(row: Row, hits: Mapping[str, Hits]) -> Row:
    """Returns the row with the hits of its run, under "hits", where the row is that run's score of the test split.

    No column of a file of rows has this: whoever compares arms asks for it with `hits_of`.
    """
    own = hits.get(row.get("run", ""))
    if own is None or row.get("protocol") == "none" or row.get("at", "").partition("=")[0] not in WHOLE:
        return row
    mine = row.get("split"), row.get("metric"), row.get("n")
    return cast("Row", {**row, "hits": own}) if mine == ("test", "accuracy", own.n) else row


def hits_of(row: Row) -> Hits | None:
    """Returns what `with_hits` put into a row."""
    return cast("Mapping[str, Any]", row).get("hits")


def to_csv(hits: Mapping[str, Hits]) -> str:
    """Returns the text of the file: a line for each run, its hits compressed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run, own in hits.items():
        writer.writerow((run, own.exam, own.n, base64.b64encode(zlib.compress(own.packed, 9)).decode()))
    return text.getvalue()


def read(path: Path, advice: str) -> dict[str, Hits]:
    """Returns run id -> its hits; nothing where there is no file.

    Raises UserError, which ends with the advice, where the file is damaged.
    """
    if not path.is_file():
        return {}
    found: dict[str, Hits] = {}
    try:
        for line in csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")), strict=True):
            own = Hits(line["exam"], int(line["n"]), zlib.decompress(base64.b64decode(line["right"], validate=True)))
            if len(own.packed) != -(-own.n // 8):
                raise ValueError(f"{line['run']} does not have {own.n} hits and misses")
            found[line["run"]] = own
    except (OSError, ValueError, KeyError, TypeError, csv.Error, binascii.Error, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({error}): {advice}.") from error
    return found
