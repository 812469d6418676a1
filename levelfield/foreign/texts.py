"""Tokenizers: bytes, a tokenizer.json, the World vocabulary of RWKV, and whatever else transformers can read.

    read_tokenizer(Path("models/pythia-160m")).encode("Hello")        # [12092]
    Bytes().decode([72, 105])                                         # "Hi"

`encode` never adds a begin or an end. What a tokenizer would put before a text is its `begin`, which `load` hands to
the model.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from levelfield.foreign.adapter import Tokenizer
from levelfield.spec import UserError

WORLD = "rwkv_vocab*.txt"


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a folder, or a file of one. Raises UserError where there is none."""
    if path.suffix == ".txt" and path.is_file():
        return World(path)
    file = path if path.is_file() else path / "tokenizer.json"
    if file.is_file() and file.suffix == ".json":
        return Pieces(file)
    if path.is_dir() and (found := sorted(path.glob(WORLD))):
        return World(found[0])
    if path.is_dir() and any((path / name).is_file() for name in ("tokenizer.model", "tokenizer_config.json")):
        return Automatic(path)
    raise UserError(f"{path} has no tokenizer: put its tokenizer.json there, or name another with --tokenizer.")


@final
class Bytes:
    """Every byte of UTF-8 is a token."""

    name = "bytes"

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        """Ids beyond 255 say nothing."""
        return bytes(i for i in ids if i < 256).decode(errors="replace")


@final
class Pieces:
    """A tokenizer.json, by the tokenizers library."""

    def __init__(self, path: Path) -> None:
        tokenizers = needed("tokenizers")
        self.name = path.parent.name if path.name == "tokenizer.json" else path.stem
        try:
            self.inner = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # it raises nothing narrower
            raise UserError(f"{path} cannot be read as a tokenizer ({error}): copy the file again.") from error
        self.inner.no_truncation()
        self.inner.no_padding()
        self.begin = tuple(self.inner.encode("", add_special_tokens=True).ids)

    def encode(self, text: str) -> list[int]:
        return self.inner.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        return self.inner.decode([int(i) for i in ids], skip_special_tokens=True)


@final
class Automatic:
    """Any other tokenizer that transformers reads from a folder."""

    def __init__(self, path: Path) -> None:
        transformers = needed("transformers")
        self.name = path.name
        try:
            self.inner = transformers.AutoTokenizer.from_pretrained(str(path), trust_remote_code=False)
            self.begin = tuple(self.inner.build_inputs_with_special_tokens([]))
        except Exception as error:  # as many kinds as there are tokenizers
            raise UserError(f"transformers cannot read the tokenizer of {path}: {first_line(error)}") from error

    def encode(self, text: str) -> list[int]:
        return self.inner.encode(text, add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        return self.inner.decode([int(i) for i in ids], skip_special_tokens=True)


@final
class World:
    """RWKV's World vocabulary: at every place the longest piece that fits. Id 0 ends a text and is no piece.

    A line of its file is an id, the piece as a Python literal of text or bytes, and its length in bytes.
    """

    name = "rwkv-world"

    def __init__(self, path: Path) -> None:
        self.pieces: dict[int, bytes] = {}
        for number, line in enumerate(path.read_text(encoding="utf-8").rstrip("\n").split("\n"), 1):
            try:
                first, last = line.index(" "), line.rindex(" ")
                literal = ast.literal_eval(line[first:last].strip())
                piece = literal.encode() if isinstance(literal, str) else literal
                fits = isinstance(piece, bytes) and len(piece) == int(line[last:])
                self.pieces[int(line[:first])] = piece
            except (ValueError, SyntaxError):
                fits = False
            if not fits:
                raise UserError(f"{path}, line {number}, is no piece of a vocabulary: copy the file again.")
        self.ids = {piece: i for i, piece in self.pieces.items()}
        longest: dict[bytes, set[int]] = {}
        for piece in self.ids:
            longest.setdefault(piece[:2], set()).add(len(piece))
        self.lengths: Mapping[bytes, list[int]] = {k: sorted(v, reverse=True) for k, v in longest.items()}

    def encode(self, text: str) -> list[int]:
        raw, at, found = text.encode(), 0, []
        while at < len(raw):
            lengths = self.lengths.get(raw[at : at + 2], [1])  # by the first two bytes; single bytes are all pieces
            size = next((n for n in lengths if raw[at : at + n] in self.ids), 1)
            found.append(self.ids[raw[at : at + size]])
            at += size
        return found

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(self.pieces.get(int(i), b"") for i in ids).decode(errors="replace")


def needed(package: str) -> Any:
    """The module of an optional package. Raises UserError that says how to install it."""
    from importlib import import_module

    try:
        return import_module(package)
    except ImportError as error:
        raise UserError(f"This needs the package {package}: pip install 'levelfield[text]'.") from error


def first_line(error: Exception) -> str:
    """What a library complains of, in one line that ends a sentence."""
    text = " ".join(str(error).split("\n\n")[0].split())
    return f"{type(error).__name__}: {text[:200].rstrip('.')}."
