"""Defines the interface of a tokenizer, and two that need no package: bytes, and RWKV's World vocabulary.

Bytes().encode("hé")                            # [104, 195, 169]
RwkvTokenizer("rwkv_vocab_v20230424.txt").encode("Hello world")
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from levelfield.spec import UserError

PROBES = ("word", "a", "1")  # the first that has ids shows what is put before a text
Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True)
class Bytes:
    """Encodes text as UTF-8, one id per byte, 0 to 255."""

    name: str = "bytes"

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes ids; ids over 255 and invalid UTF-8 become the replacement character."""
        return b"".join(bytes([i]) if 0 <= i < 256 else b"\xff" for i in ids).decode(errors="replace")


class RwkvTokenizer:
    """The tokenizer of the RWKV World models: at every position the longest matching one of its 65,529 byte strings.

    The file is `rwkv_vocab_v20230424.txt`, which comes with the models: lines of id, Python literal and byte length.
    Source: Peng et al. 2024 (Eagle and Finch), section 5.
    """

    name = "rwkv-world"

    def __init__(self, path: str | Path) -> None:
        self._strings = _vocabulary(Path(path))
        self._ids = {string: number for number, string in self._strings.items()}
        lengths: dict[bytes, set[int]] = {}
        for string in self._ids:
            lengths.setdefault(string[:2], set()).add(len(string))
        self._lengths = {start: tuple(sorted(found, reverse=True)) for start, found in lengths.items()}

    def encode(self, text: str) -> list[int]:
        """Returns the ids of the longest matches from left to right."""
        data, position, found = text.encode(), 0, []
        ids, lengths = self._ids, self._lengths
        while position < len(data):
            for length in lengths.get(data[position : position + 2], (1,)):
                number = ids.get(data[position : position + length])
                if number is not None:
                    break
            else:
                length, number = 1, ids[data[position : position + 1]]
            found.append(number)
            position += length
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of the ids; id 0, the end of a document, has none."""
        return b"".join(self._strings.get(i, b"") for i in ids).decode(errors="replace")


def _vocabulary(path: Path) -> dict[int, bytes]:
    if not path.is_file():
        raise UserError(
            f"{path} does not exist: give the path of rwkv_vocab_v20230424.txt, which RWKV models come with."
        )
    strings: dict[int, bytes] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        number, _, rest = line.partition(" ")
        literal, _, size = rest.rpartition(" ")
        try:
            value = ast.literal_eval(literal)
            string = value.encode() if isinstance(value, str) else value
            if len(string) != int(size):
                raise ValueError(size)
            strings[int(number)] = string
        except (ValueError, SyntaxError, TypeError):
            raise UserError(f"{path} is not a vocabulary of the RWKV World tokenizer: it has the line {line[:60]!r}.")
    if len(missing := {bytes([b]) for b in range(256)} - set(strings.values())) > 0:
        raise UserError(f"{path} lacks {len(missing)} of the 256 bytes: it is not the whole vocabulary.")
    return strings


class Tokenizer(Protocol):
    """Turns text into ids and back.

    `encode` adds no ids for the beginning or the end of a sequence. It may recognise special tokens by their text,
    which chat templates need. `decode` returns the text of ids.
    """

    @property
    def name(self) -> str: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


class SlowTokenizer(ABC):
    """A tokenizer that takes long for every text, whatever its length, such as one behind a server.

    Samples are drafted with its `estimate`, and only their whole texts are given to `encode`.
    """

    name: str
    estimate: Tokenizer

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, as `Tokenizer.encode` does."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of ids, as `Tokenizer.decode` does."""


def find_bos_ids(with_special: Encode, plain: Encode) -> tuple[int, ...]:
    """Returns the ids that a tokenizer puts before a text when it adds special tokens.

    () where there are none, and where the ids of the text itself differ with and without special tokens.
    """
    for probe in PROBES:
        own, whole = list(plain(probe)), list(with_special(probe))
        for place in range(len(whole) - len(own) + 1):
            if own and whole[place : place + len(own)] == own:
                return tuple(whole[:place])
    return ()
