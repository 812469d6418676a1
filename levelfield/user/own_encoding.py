"""Tells how a text of the user's own is encoded, and what is no text at all.

    encoding(Path("reviews.csv"))       # "utf-8-sig", or "utf-16" where the file begins with its mark

What is neither is named before a reader takes it for broken rows: a spreadsheet or a picture with the ending of a text.
"""

from __future__ import annotations

import codecs
import unicodedata
from pathlib import Path

from levelfield.spec import UserError

HEAD = 4_096  # bytes by which it is told whether a file is text
NO_TEXT = ("Cc", "Cn", "Cs")  # categories of Unicode: control characters, unassigned ones, halves of a pair
BINARY = (".parquet", ".arrow")  # endings of what is no text


def encoding(path: Path) -> str:
    """Returns how a text is encoded: as its mark says, which spreadsheets and PowerShell write, else UTF-8.

    Raises UserError for UTF-16 without a mark, whose letters would be taken for others with zero bytes between them,
    and for what begins like no text.
    """
    head = _head(path)
    if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    if 0 in head[:2]:
        kind = "utf-16be" if head[0] == 0 else "utf-16le"
        if not _is_text(head, kind):
            raise no_text(path)
        raise UserError(f"{path} is UTF-16 without its mark: convert it, for example by `iconv -f {kind} -t utf8`.")
    return "utf-8-sig"


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD)


def has_zeros(path: Path) -> bool:
    """Tells whether a file begins with zero bytes among others, which text in UTF-8 has not."""
    return 0 in _head(path)


def _is_text(head: bytes, encoding: str) -> bool:
    """Tells whether bytes at the beginning of a file decode as text: characters that Unicode has, and no control
    characters but those of lines and columns."""
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError:
        return False
    return all(letter.isspace() or unicodedata.category(letter) not in NO_TEXT for letter in text)


def no_text(path: Path) -> UserError:
    """Returns what is said of a file whose ending is that of a text and whose content is not."""
    return UserError(
        f"{path} is no text, though {path.suffix} is the ending of one: export it as text, or give it the ending of "
        f"what it is, such as {', '.join(BINARY)}."
    )
