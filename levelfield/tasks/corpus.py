"""Corpus: plain text, byte by byte, for pretraining and language modelling; nothing is labelled.

    levelfield data prepare corpus --from books.tar.gz      your own text
    ImdbText()                                              the reviews of the task `text`, with its splits
    ImdbText(unlabelled=True)                               and the 50,000 unlabelled reviews in train

Text is cut into consecutive windows of `length` bytes; the last window of a document is shorter. The score is the
accuracy of the next byte. Self-pretraining as in amos2025 does not need this, since it uses the training inputs of the
task itself. This is for pretraining on other text, and for language models.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from levelfield.spec import Archive, Progress, SplitName, Task, UserError
from levelfield.tasks._texts import corpus_files, imdb
from levelfield.tasks._texts.windows import Texts, Windows, identify


@dataclass(frozen=True)
class Corpus(Windows):
    """Your own text: a file, a folder or an archive.

    by: whether the end of the text or whole documents are held out. held: share of the text for val, and the same for
    test. inside: a file or folder below the one that --from names. sha256: of the documents
    (`_texts.windows.identify`), so that a run on other text is another run. An empty one accepts any text, and a data
    folder keeps the first.
    """

    by: Literal["parts", "documents"] = "parts"
    held: float = 0.05
    inside: str = ""
    sha256: str = ""

    name: ClassVar[str] = "corpus"
    version: ClassVar[int] = 1
    source: ClassVar[str] = "the user's own text, under its own licence"
    licence: ClassVar[str] = "the licence of the text"
    split_rule: ClassVar[str] = (
        "parts: the documents end to end with a newline between them; val is the last but one share `held` of the "
        "bytes, test the last. documents: by the SHA-256 of a document, read as a fraction of one: val below `held`, "
        "test below twice that. A window that is also in test is left out of val and train, one in val out of train."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by not in ("parts", "documents") or not 0 < self.held < 0.5:
            raise UserError("Corpus needs by='parts' or by='documents', and held above 0 and below 0.5.")

    def texts(self, sources: Path | None, progress: Progress) -> Texts:
        if sources is None:
            raise UserError("Task corpus reads your text: run `levelfield data prepare corpus --from FILE_OR_FOLDER`.")
        place = sources / self.inside if self.inside else sources
        if not place.exists():
            if not sources.exists():
                raise UserError(f"{sources} does not exist: give the file or folder that holds your text as --from.")
            raise UserError(f"There is no '{self.inside}' in {sources}: give the folder that holds it as --from.")
        found = corpus_files.documents(place, progress)
        if self.sha256 and (actual := identify(found)) != self.sha256:
            raise UserError(f"The text in {place} is not the one asked for: its sha256 is {actual}.")
        return by_parts(found, self.held) if self.by == "parts" else by_documents(found, self.held)


@dataclass(frozen=True)
class ImdbText(Windows):
    """IMDb reviews, each in windows of its own. unlabelled: whether the 50,000 of train/unsup are added to train."""

    unlabelled: bool = False

    version: ClassVar[int] = 1
    source: ClassVar[str] = imdb.SOURCE
    licence: ClassVar[str] = imdb.LICENCE
    split_rule: ClassVar[str] = (
        f"{imdb.SPLIT_RULE} Unlabelled reviews are train, without those that would be val or begin as one of test. A "
        "window that is also in test is left out of val and train, one in val out of train."
    )
    archives: ClassVar[tuple[Archive, ...]] = imdb.ARCHIVES

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "imdb_unsup" if self.unlabelled else "imdb_text"

    def texts(self, sources: Path | None, progress: Progress) -> Texts:
        kinds = (*imdb.KINDS, "unsup") if self.unlabelled else imdb.KINDS
        found = imdb.read(sources, self.name, kinds=kinds, whole=self.most is None, progress=progress)
        return {split: [r.text for r in part] for split, part in imdb.splits(found).items()}


def by_parts(texts: Sequence[bytes], held: float) -> dict[SplitName, list[bytes]]:
    """Splits the documents, joined by newlines, into beginning (train), middle (val) and end (test)."""
    joined = b"\n".join(texts)
    size = int(len(joined) * held)
    first, second = len(joined) - 2 * size, len(joined) - size
    return {"train": [joined[:first]], "val": [joined[first:second]], "test": [joined[second:]]}


def by_documents(texts: Sequence[bytes], held: float) -> dict[SplitName, list[bytes]]:
    """Assigns each document to a split by a hash of its bytes, so that repeats are in one split whatever the order."""
    parts: dict[SplitName, list[bytes]] = {"train": [], "val": [], "test": []}
    for text in texts:
        place = int.from_bytes(hashlib.sha256(text).digest()[:8], "big") / 2**64
        parts["val" if place < held else "test" if place < 2 * held else "train"].append(text)
    return parts


TASKS: dict[str, Task] = {
    "corpus": Corpus(),
    "imdb_text": ImdbText(),
    "imdb_unsup": ImdbText(unlabelled=True),
}
EXAMPLES: tuple[Task, ...] = (
    Corpus(128, most=60, inside="tiny_lms/text/tinyshakespeare.txt.xz"),
    Corpus(100, most=60, by="documents", inside="lambada"),
)
