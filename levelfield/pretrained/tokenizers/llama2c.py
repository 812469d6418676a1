"""The tokenizer of llama2.c: SentencePiece's byte pairs, as a file of pieces and their scores.

    Scored(Path("tok512.bin")).encode("A cat")

A space is put before a text. Letters become pieces, those that are none their UTF-8 bytes; then the neighbours that
make the piece with the highest score are joined, the first of equals, until no two make one.
Source: karpathy/llama2.c, tokenizer.py and run.c.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import final

from levelfield.spec import UserError

BEGIN, END, BYTES = 1, 2, 3  # ids: of a begin and an end, and the first of the 256 bytes
WORD = re.compile(r" *[^ ]+| +$")
REMEMBERED = 1 << 15  # words


@final
class Scored:
    """pieces: by id. The first are special, then the bytes; only the rest are looked for in a text."""

    def __init__(self, path: Path) -> None:
        self.name, self.begin = path.stem, (BEGIN,)
        self.pieces, self.scores = _read(path)
        self.ids = {piece: i for i, piece in enumerate(self.pieces) if i >= BYTES + 256}
        cut = not any(b" " in piece.lstrip(b" ") for piece in self.ids)  # words do not run into one another
        self.split = WORD.findall if cut else lambda text: [text]
        self.word = lru_cache(REMEMBERED)(self._word)

    def encode(self, text: str) -> list[int]:
        return [i for word in self.split(f" {text}") for i in self.word(word)] if text else []

    def _word(self, word: str) -> tuple[int, ...]:
        found: list[int] = []
        for letter in word:
            data = letter.encode()
            found += [self.ids[data]] if data in self.ids else [BYTES + byte for byte in data]
        while True:
            joined = [self.ids.get(self.pieces[a] + self.pieces[b]) for a, b in pairwise(found)]
            ranked = [(-self.scores[i], place, i) for place, i in enumerate(joined) if i is not None]
            if not ranked:
                return tuple(found)
            _, place, i = min(ranked)
            found[place : place + 2] = [i]

    def decode(self, ids: Sequence[int]) -> str:
        """Special ids are no text. The space before it stays, as that of any first word does."""
        return b"".join(self._bytes(int(i)) for i in ids).decode(errors="replace")

    def _bytes(self, number: int) -> bytes:
        if BYTES <= number < BYTES + 256:
            return bytes([number - BYTES])
        return self.pieces[number] if BYTES <= number < len(self.pieces) else b""


def _read(path: Path) -> tuple[list[bytes], list[float]]:
    """Pieces and scores by id. Raises UserError for another file."""
    data, place = path.read_bytes(), 4
    pieces: list[bytes] = []
    scores: list[float] = []
    while place + 8 <= len(data):
        score, size = struct.unpack_from("<fi", data, place)
        pieces.append(data[place + 8 : place + 8 + size])
        scores.append(score)
        place += 8 + max(size, 0)
    if place != len(data) or len(pieces) < BYTES + 256 or pieces[BYTES + 65] != b"<0x41>":
        raise UserError(f"{path} is no tokenizer of llama2.c: copy the file again.")
    return pieces, scores
