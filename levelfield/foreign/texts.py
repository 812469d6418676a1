"""Tokenizers of models: a tokenizer.json, the World vocabulary of RWKV, a tok*.bin of llama2.c, and whatever else
transformers can read.

    read_tokenizer(Path("models/pythia-160m")).encode("Hello")        # [12092]

`encode` never adds a begin or an end. What a tokenizer would put before a text is its `begin`, which `load` hands to
the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

from levelfield.foreign.scored import Scored
from levelfield.ruler.sample import Tokenizer
from levelfield.ruler.tokenizers import World
from levelfield.spec import UserError

WORLD = "rwkv_vocab*.txt"
SCORED = "tok*.bin"


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a folder, or a file of one. Raises UserError where there is none."""
    if path.is_file() and path.match(SCORED):
        return Scored(path)
    if path.suffix in (".pth", ".bin"):
        path = path.parent
    if path.suffix == ".txt" and path.is_file():
        return World(path)
    file = path if path.is_file() else path / "tokenizer.json"
    if file.is_file() and file.suffix == ".json":
        return Pieces(file)
    if path.is_dir() and (found := sorted(path.glob(WORLD))):
        return World(found[0])
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
