"""Reads the tokenizer of llama2.c: the byte pairs of SentencePiece, as a file of pieces and their scores.

    Llama2cTokenizer(Path("tok512.bin")).encode("A cat")

A space is put before the text. Each character becomes a piece, or its UTF-8 bytes if it is not one. Then neighbours
are joined as long as two of them make a piece: always those that make the piece with the highest score, and the first
pair among equals.
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

BOS, BYTES = 1, 3  # ids: of the beginning of a sequence, and of the first of the 256 bytes
WORD = re.compile(r" *[^ ]+| +$")
CACHED_WORDS = 1 << 15


@final
class Llama2cTokenizer:
    """A tokenizer of llama2.c. pieces: by id; special ones, then bytes, and then those that a text is split into."""

    def __init__(self, path: Path) -> None:
        self.name, self.bos_ids = path.stem, (BOS,)
        self.pieces, self.scores = _read(path)
        self.ids = {piece: i for i, piece in enumerate(self.pieces) if i >= BYTES + 256}
        per_word = not any(b" " in piece.lstrip(b" ") for piece in self.ids)  # then no piece spans two words
        self.split = WORD.findall if per_word else lambda text: [text]
        self.word = lru_cache(CACHED_WORDS)(self._word)

    def encode(self, text: str) -> list[int]:
        return [i for word in self.split(f" {text}") for i in self.word(word)] if text else []

    def _word(self, word: str) -> tuple[int, ...]:
        """Encodes a word that is not in the cache."""
        found: list[int] = []
        for character in word:
            data = character.encode()
            found += [self.ids[data]] if data in self.ids else [BYTES + byte for byte in data]
        while True:
            joined = [self.ids.get(self.pieces[a] + self.pieces[b]) for a, b in pairwise(found)]
            ranked = [(-self.scores[i], place, i) for place, i in enumerate(joined) if i is not None]
            if not ranked:
                return tuple(found)
            _, place, i = min(ranked)
            found[place : place + 2] = [i]

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes ids; special ones have no text. The space before the first word stays."""
        return b"".join(self._bytes(int(i)) for i in ids).decode(errors="replace")

    def _bytes(self, number: int) -> bytes:
        if BYTES <= number < BYTES + 256:
            return bytes([number - BYTES])
        return self.pieces[number] if BYTES <= number < len(self.pieces) else b""


def _read(path: Path) -> tuple[list[bytes], list[float]]:
    """Reads pieces and scores by id. Raises UserError for another kind of file."""
    data, place = path.read_bytes(), 4
    pieces: list[bytes] = []
    scores: list[float] = []
    while place + 8 <= len(data):
        score, size = struct.unpack_from("<fi", data, place)
        pieces.append(data[place + 8 : place + 8 + size])
        scores.append(score)
        place += 8 + max(size, 0)
    if place != len(data) or len(pieces) < BYTES + 256 or pieces[BYTES + 65] != b"<0x41>":
        raise UserError(f"{path} is not a tokenizer of llama2.c: copy the file again.")
    return pieces, scores
