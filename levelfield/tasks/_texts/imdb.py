"""Reads the IMDb reviews of Maas et al. (2011) from the official archive or its folders, and splits them.

    reviews = read(Path("downloads"), task="text")      # aclImdb_v1.tar.gz, or aclImdb/train/pos/0_9.txt, ...
    splits(reviews)["val"][0].stars                     # 9

A complete copy is compared with the SHA-256 of the official texts, because copies exist in which names and counts are
right and some reviews differ. The archive is read as a stream, without being unpacked.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence, Set
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from levelfield.spec import Archive, Progress, SplitName, UserError, no_progress

PAGE = "https://ai.stanford.edu/~amaas/data/sentiment/"
ARCHIVES = (
    Archive(
        "aclImdb_v1.tar.gz",
        (f"{PAGE}aclImdb_v1.tar.gz",),
        sha256="c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
        md5="7c2ac02c03563afcf9b574c7e56c153a",
        bytes=84_125_825,
    ),
)
SOURCE = (
    "Maas et al. 2011, Learning Word Vectors for Sentiment Analysis (ACL), Large Movie Review Dataset v1.0. "
    f"Licence: none is stated on {PAGE}, which asks to cite the paper."
)
LICENCE = f"none is stated on {PAGE}"
PIECE = 1 << 20  # bytes of an archive that are read at a time
PREFIX = 120  # two reviews that agree in so many bytes at the beginning are the same
SPLIT_RULE = (
    "test: the official test reviews, all of them. train and val: the official train reviews, without those that begin "
    f"with the {PREFIX} bytes of a test review (they are the same text); val is the tenth of them for which the "
    f"SHA-256 of these {PREFIX} bytes, read as a fraction of one, is below 0.1. So repeated reviews fall into one "
    "split, and it is the same in every form and length."
)
FILE = re.compile(rb"(train|test)/(neg|pos|unsup)/(\d+)_(\d+)\.txt$")
KINDS = ("neg", "pos")
PER_KIND = 12_500  # reviews of train/pos, train/neg, test/pos and test/neg
UNLABELLED = 50_000  # of train/unsup
COUNTS: dict[SplitName, int] = {"train": 22_397, "val": 2_469, "test": 25_000}  # of the official set, by SPLIT_RULE
CONTENT = {
    "train": "8db29e25ff8005e0380f71244393a4b166aab36cce5e78930324fb3948acaf9a",
    "test": "84fd9a2e58155929af384fe10e45a17724b5a9568469cf290f39cfd6829bda37",
}
"""SHA-256 over `split/kind/file`, NUL, text, NUL of the split's reviews in the order of these names."""


class Review(NamedTuple):
    """One file, named split/kind/number_stars.txt.

    Stars 7 to 10 are positive and 1 to 4 negative; unlabelled reviews have 0.
    """

    name: bytes
    split: str
    kind: str
    number: int
    stars: int
    text: bytes


def read(
    sources: Path | None,
    task: str,
    *,
    kinds: Sequence[str] = KINDS,
    whole: bool = True,
    progress: Progress = no_progress,
) -> list[Review]:
    """Reads the reviews of both official splits, in order of split, number and kind.

    whole: the kinds of which no review may be missing. Raises UserError where files are missing, damaged or altered.
    """
    place = find(sources, task)
    total = 4 * PER_KIND + UNLABELLED * ("unsup" in kinds)
    found: list[Review] = []
    for name, text in _files(place, kinds):
        found.append(_review(name, text))
        if len(found) % 1000 == 0 and len(found) < total:
            progress("reading IMDb reviews", len(found), total)
    _check(found, place, kinds if whole else ())
    progress("reading IMDb reviews", len(found), len(found))
    return sorted(found, key=attrgetter("split", "number", "kind"))


def splits(reviews: Sequence[Review]) -> Mapping[SplitName, list[Review]]:
    """Splits reviews by SPLIT_RULE. Unlabelled reviews are added to train."""
    tested = {r.text[:PREFIX] for r in reviews if r.split == "test"}
    parts: dict[SplitName, list[Review]] = {"train": [], "val": [], "test": []}
    for review in reviews:
        key = review.text[:PREFIX]
        if review.split == "test":
            parts["test"].append(review)
        elif key not in tested:
            tenth = int.from_bytes(hashlib.sha256(key).digest()[:8], "big") < 2**64 // 10
            if not (tenth and review.kind == "unsup"):
                parts["val" if tenth else "train"].append(review)
    return parts


def find(sources: Path | None, task: str) -> Path:
    """Finds the archive, or the folder that contains `train` and `test`. Raises UserError where there is neither."""
    if sources is None:
        raise UserError(
            f"Task {task} needs the IMDb reviews: run `levelfield data prepare {task}`, or download "
            f"{ARCHIVES[0].name} from {PAGE} into a folder and add --from FOLDER to it."
        )
    if sources.is_file():
        return sources
    places = [sources / inner for inner in ("", "aclImdb", "imdb", "imdb/aclImdb")]
    for place in places:
        if (place / "train" / "pos").is_dir() and (place / "test" / "pos").is_dir():
            return place
    for place in places:
        if archives := sorted(path for path in place.glob("aclImdb*.tar*") if path.is_file()):
            return archives[0]
    raise UserError(f"There is neither {ARCHIVES[0].name} nor a folder aclImdb in {sources}: download it from {PAGE}.")


def _files(place: Path, kinds: Sequence[str]) -> Iterator[tuple[re.Match[bytes], bytes]]:
    """Yields name, as a match of FILE, and content of the reviews in a folder or in a plain, gzip or xz tar."""
    if place.is_dir():
        yield from _unpacked(place, kinds)
        return
    try:
        with place.open("rb") as file:
            yield from _members(_plain(file), {kind.encode() for kind in kinds})
    except (EOFError, ValueError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise UserError(f"{place} is no tar archive or damaged ({error}): download it again from {PAGE}.") from error


def _unpacked(place: Path, kinds: Sequence[str]) -> Iterator[tuple[re.Match[bytes], bytes]]:
    """Yields the reviews of a folder, without Path and file objects, which take longer than reading 50,000 files."""
    for folder in (f"{split}/{kind}" for split in CONTENT for kind in kinds):
        where = os.fsencode(place / folder)
        for file in sorted(os.listdir(where)) if os.path.isdir(where) else ():
            if name := FILE.search(os.fsencode(folder) + b"/" + file):
                yield name, _content(where + b"/" + file)


def _content(path: bytes) -> bytes:
    file, text = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0)), b""
    try:
        while piece := os.read(file, 1 << 16):
            text += piece
    finally:
        os.close(file)
    return text


def _plain(file: io.BufferedReader) -> io.BufferedIOBase:
    start = file.peek(6)
    if start.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file)
    if start.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMAFile(file)
    return file


def _members(file: io.BufferedIOBase, kinds: Set[bytes]) -> Iterator[tuple[re.Match[bytes], bytes]]:
    """Yields the reviews of a tar, read as a stream; tarfile needs several seconds for its 100,000 members."""
    rest = b""
    while chunk := file.read(PIECE):
        block, start = rest + chunk, 0
        while start + 512 <= len(block):
            if not block[start]:  # a block of zeros is the end
                return
            size = int(block[start + 124 : start + 135], 8)  # raises ValueError where this is not a header
            begin = start + 512
            after = begin + -(-size // 512) * 512
            if after > len(block):
                break
            name = FILE.search(block, start, block.index(0, start))
            if name and name[2] in kinds:
                yield name, block[begin : begin + size]
            start = after
        rest = block[start:]
    raise EOFError("it ends too early")


def _review(name: re.Match[bytes], text: bytes) -> Review:
    split, kind, number, stars = name.groups()
    if not text:
        raise UserError(f"The review {name[0].decode()} is empty: download the set again from {PAGE}.")
    return Review(
        name=name[0],
        split=split.decode(),
        kind=kind.decode(),
        number=int(number),
        stars=int(stars),
        text=text,
    )


def _check(found: Sequence[Review], place: Path, whole: Sequence[str]) -> None:
    """Raises UserError for a copy that lacks reviews of the kinds in `whole`, and for altered texts."""
    wrong = next((r for r in found if r.kind in KINDS and (r.stars >= 7) != (r.kind == "pos")), None)
    if wrong is not None:
        raise UserError(
            f"{place} has a review {wrong.name.decode()}, but 7 to 10 stars are positive and fewer are negative: "
            f"download the set again from {PAGE}."
        )
    for split, expected in CONTENT.items():
        part = [r for r in found if r.split == split and r.kind in KINDS]
        complete = len(part) == 2 * PER_KIND
        if whole and not complete:
            raise UserError(
                f"{place} holds {len(part):,} of {2 * PER_KIND:,} {split} reviews: get the whole set from {PAGE}, or "
                "take a part with smaller train, val and test."
            )
        if complete and content(part) != expected:
            raise UserError(
                f"The {split} reviews in {place} are not the official ones, though there are as many (some copies have "
                f"reviews replaced): download the set again from {PAGE}."
            )
    if "unsup" in whole and sum(r.kind == "unsup" for r in found) != UNLABELLED:
        raise UserError(f"{place} does not hold {UNLABELLED:,} unlabelled reviews: get the whole set from {PAGE}.")


def content(reviews: Sequence[Review]) -> str:
    """Returns the SHA-256 of the reviews, which is CONTENT for the official ones."""
    pieces = [piece for review in sorted(reviews, key=attrgetter("name")) for piece in (review.name, review.text)]
    return hashlib.sha256(b"\0".join([*pieces, b""])).hexdigest()
