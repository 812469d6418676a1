"""Tokenizers of models: a tokenizer.json, the World vocabulary of RWKV, a tok*.bin of llama2.c, and whatever else
transformers can read.

    read_tokenizer(Path("models/pythia-160m")).encode("Hello")        # [12092]

`encode` never adds a begin or an end. What a tokenizer would put before a text is its `begin`, which `load` hands to
the model. It is found by encoding a word: an empty text would give begin and end alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, final

from levelfield.pretrained.optional import first_line, needed
from levelfield.pretrained.tokenizers.llama2c import Scored
from levelfield.spec import UserError
from levelfield.tokenizer import RwkvTokenizer, Tokenizer

WORLD = "rwkv_vocab*.txt"
SCORED = "tok*.bin"
PROBES = ("word", "a", "1")  # the first that a vocabulary has shows what is put before a text
Encode = Callable[[str], Sequence[int]]


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a folder, or a file of one. Raises UserError where there is none."""
    if path.is_file() and path.match(SCORED):
        return Scored(path)
    if path.suffix in (".pth", ".bin"):
        path = path.parent
    if path.suffix == ".txt" and path.is_file():
        return RwkvTokenizer(path)
    file = path if path.is_file() else path / "tokenizer.json"
    if file.is_file() and file.suffix == ".json":
        return Pieces(file)
    if path.is_dir() and (found := sorted(path.glob(WORLD))):
        return RwkvTokenizer(found[0])
    if path.is_dir() and len(found := sorted(path.glob(SCORED))) == 1:
        return Scored(found[0])
    if path.is_dir() and any((path / name).is_file() for name in ("tokenizer.model", "tokenizer_config.json")):
        return Automatic(path)
    raise UserError(f"{path} has no tokenizer: put its tokenizer.json there, or name another with --tokenizer.")


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
        begin = begin_of(lambda text: self.inner.encode(text, add_special_tokens=True).ids, self.encode)
        settings = _settings(path.parent) if path.name == "tokenizer.json" else {}
        self.begin = _as_set(begin, settings, self.inner.token_to_id)

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
            begin = begin_of(lambda text: self.inner.encode(text, add_special_tokens=True), self.encode)
        except Exception as error:  # as many kinds as there are tokenizers
            raise UserError(f"transformers cannot read the tokenizer of {path}: {first_line(error)}") from error
        self.begin = _as_set(begin, _settings(path), self.inner.convert_tokens_to_ids)

    def encode(self, text: str) -> list[int]:
        return self.inner.encode(text, add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        return self.inner.decode([int(i) for i in ids], skip_special_tokens=True)


def begin_of(marked: Encode, plain: Encode) -> tuple[int, ...]:
    """The ids before a text's own, of a tokenizer that encodes with special tokens and without; () where there are
    none, or where the text's own ids differ between the two."""
    for probe in PROBES:
        own, whole = list(plain(probe)), list(marked(probe))
        for place in range(len(whole) - len(own) + 1):
            if own and whole[place : place + len(own)] == own:
                return tuple(whole[:place])
    return ()


def _settings(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json; {} where there is none. Raises UserError where it is no object of JSON."""
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({error}): copy the file again.") from error
    if not isinstance(found, dict):
        raise UserError(f"{path} is not an object of JSON: copy the file again.")
    return found


def _as_set(begin: tuple[int, ...], settings: dict[str, Any], id_of: Callable[[str], int | None]) -> tuple[int, ...]:
    """The begin without its BOS where the settings say `add_bos_token: false`, which a tokenizer.json does not know."""
    if settings.get("add_bos_token") is not False:
        return begin
    bos = settings.get("bos_token")
    text = bos.get("content") if isinstance(bos, dict) else bos
    dropped = id_of(text) if isinstance(text, str) else next(iter(begin), None)
    return tuple(i for i in begin if i != dropped)
