"""Reads the tokenizer of a model from its files.

    read_tokenizer(Path("models/pythia-160m")).encode("Hello")        # [12092]

It reads a tokenizer.json, the World vocabulary of RWKV, a tok*.bin of llama2.c, and whatever else transformers can
read. `encode` adds no special ids. Those that belong before a text are the tokenizer's `bos_ids`, which `load` hands to
the model. They are found by encoding a word, because with an empty text they could not be told from ids that follow it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, final

from levelfield.pretrained.optional import first_line, needed
from levelfield.pretrained.tokenizers.chat_template import read_chat_template
from levelfield.pretrained.tokenizers.llama2c import Llama2cTokenizer
from levelfield.spec import UserError
from levelfield.tokenizer import RwkvTokenizer, Tokenizer, find_bos_ids

WORLD = "rwkv_vocab*.txt"
LLAMA2C = "tok*.bin"


def read_tokenizer(path: Path) -> Tokenizer:
    """Reads the tokenizer of a folder, or from its own file. Raises UserError where there is none."""
    if path.is_file() and path.match(LLAMA2C):
        return Llama2cTokenizer(path)
    if path.suffix in (".pth", ".bin"):
        path = path.parent
    if path.suffix == ".txt" and path.is_file():
        return RwkvTokenizer(path)
    file = path if path.is_file() else path / "tokenizer.json"
    if file.is_file() and file.suffix == ".json":
        return JsonTokenizer(file)
    if path.is_dir() and (found := sorted(path.glob(WORLD))):
        return RwkvTokenizer(found[0])
    if path.is_dir() and len(found := sorted(path.glob(LLAMA2C))) == 1:
        return Llama2cTokenizer(found[0])
    if path.is_dir() and any((path / name).is_file() for name in ("tokenizer.model", "tokenizer_config.json")):
        return AutoTokenizerAdapter(path)
    raise UserError(f"{path} has no tokenizer: put its tokenizer.json there, or name another with --tokenizer.")


@final
class JsonTokenizer:
    """A tokenizer.json, read by the tokenizers library."""

    def __init__(self, path: Path) -> None:
        tokenizers = needed("tokenizers")
        self.name = path.parent.name if path.name == "tokenizer.json" else path.stem
        try:
            self.inner = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise UserError(f"{path} cannot be read as a tokenizer ({error}): copy the file again.") from error
        self.inner.no_truncation()
        self.inner.no_padding()
        bos_ids = find_bos_ids(lambda text: self.inner.encode(text, add_special_tokens=True).ids, self.encode)
        settings = _settings(path.parent) if path.name == "tokenizer.json" else {}
        self.bos_ids = _without_disabled_bos(bos_ids, settings, self.inner.token_to_id)
        self.chat_template = read_chat_template(path.parent, settings) if path.name == "tokenizer.json" else None

    @property
    def symbols(self) -> int:
        """One more than the highest id, of added tokens too; ids below it may be unused."""
        return max(self.inner.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def encode(self, text: str) -> list[int]:
        return self.inner.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        return self.inner.decode([int(i) for i in ids], skip_special_tokens=True)


@final
class AutoTokenizerAdapter:
    """Any other tokenizer that transformers reads from a folder."""

    def __init__(self, path: Path) -> None:
        transformers = needed("transformers")
        self.name = path.name
        try:
            self.inner = transformers.AutoTokenizer.from_pretrained(str(path), trust_remote_code=False)
            bos_ids = find_bos_ids(lambda text: self.inner.encode(text, add_special_tokens=True), self.encode)
        except Exception as error:  # every tokenizer raises types of its own
            raise UserError(f"transformers cannot read the tokenizer of {path}: {first_line(error)}") from error
        self.bos_ids = _without_disabled_bos(bos_ids, _settings(path), self.inner.convert_tokens_to_ids)
        self.chat_template = read_chat_template(path, _settings(path))

    def encode(self, text: str) -> list[int]:
        return self.inner.encode(text, add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        return self.inner.decode([int(i) for i in ids], skip_special_tokens=True)


def _settings(folder: Path) -> dict[str, Any]:
    """Reads tokenizer_config.json; {} where there is none. Raises UserError where it is not a JSON object."""
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({error}): copy the file again.") from error
    if not isinstance(found, dict):
        raise UserError(f"{path} is not a JSON object: copy the file again.")
    return found


def _without_disabled_bos(
    bos_ids: tuple[int, ...], settings: dict[str, Any], id_of: Callable[[str], int | None]
) -> tuple[int, ...]:
    """Removes the BOS where the settings have `add_bos_token: false`, which the tokenizers library does not read."""
    if settings.get("add_bos_token") is not False:
        return bos_ids
    bos = settings.get("bos_token")
    text = bos.get("content") if isinstance(bos, dict) else bos
    dropped = id_of(text) if isinstance(text, str) else next(iter(bos_ids), None)
    return tuple(i for i in bos_ids if i != dropped)
