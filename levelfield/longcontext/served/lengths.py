"""Counts tokens for a server's model: by its own tokenizer, by the server's tokenize endpoint, or by an approximation.

    counting = ServerTokenizer.found(client, "NAME") or Approximate()
    len(counting.encode("One of the special magic numbers"))

Prompts are exact in length with the first two. The approximation takes words in pieces of six letters and numbers in
pieces of two digits, which is near what tokenizers of 30,000 to 150,000 entries make of RULER's texts. Rows say when it
was used; the server's own counts stand beside the answers either way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, final
from zlib import crc32

from levelfield.longcontext.served.client import Client, Unanswered, Unfinished
from levelfield.spec import UserError
from levelfield.tokenizer import Bytes, SlowTokenizer, Tokenizer, find_bos_ids

APPROXIMATE = "approximate"
SERVER = "server"
MOST_ID = (1 << 31) - 1  # as ids of prompts are stored
SHORT = 64  # characters of texts whose ids are kept
PIECES = re.compile(r" ?[^\W\d_]{1,6}|[^\W\d_]{1,6}| ?\d{1,2}| ?[^\s\w]| ?_|\s+(?!\S)|\s+")


class Approximate:
    """Cuts text into pieces of about the size of tokens. An id is a hash of its piece, of no vocabulary."""

    name = APPROXIMATE

    def encode(self, text: str) -> list[int]:
        return [crc32(piece.encode()) & 0x7FFFFFFF for piece in PIECES.findall(text)]

    def decode(self, ids: Sequence[int]) -> str:
        """Raises UserError, since hashes cannot be undone."""
        raise UserError("An approximation has no texts for ids: name the model's own --tokenizer.")


@final
class ServerTokenizer(SlowTokenizer):
    """Encodes by the server's tokenize endpoint, as vLLM and SGLang (`prompt`) or llama.cpp (`content`) have it."""

    name = SERVER

    def __init__(self, client: Client, url: str, fields: dict[str, Any], flag: str, word: str) -> None:
        """Takes the `fields` of every request, the `flag` that adds special tokens, and the `word` for the text."""
        self.client, self.url, self.fields, self.flag, self.word = client, url, fields, flag, word
        self.estimate: Tokenizer = Approximate()
        self._short = lru_cache(maxsize=50_000)(self._asked)

    @cached_property
    def bos_ids(self) -> tuple[int, ...]:
        """The ids that the server puts before a text that it completes."""
        return find_bos_ids(partial(self._asked, special=True), self.encode)

    @staticmethod
    def found(client: Client, model: str) -> ServerTokenizer | None:
        """Returns the server's tokenizer; None where the server has no such endpoint.

        Raises Unfinished where it says neither, after all tries, as while it loads its model.
        """
        ways = (({"model": model}, "add_special_tokens", "prompt"), ({}, "add_special", "content"))
        urls = (f"{client.address.root}/tokenize", f"{client.address.url}/tokenize")
        left = [ServerTokenizer(client, url, *way) for way in ways for url in urls]
        for tries in (1, None):  # first each once, since one of them may have an answer at once
            asked, left = left, []
            for made in asked:
                try:
                    if made._asked("One of the words", tries):
                        return made
                except Unfinished:
                    if tries is None:
                        raise
                    left.append(made)
                except UserError:
                    continue
        return None

    def encode(self, text: str) -> list[int]:
        return list(self._short(text) if len(text) <= SHORT else self._asked(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Raises UserError, since nothing here needs the text of ids."""
        raise UserError("The server's tokenizer only encodes: name the model's own --tokenizer.")

    def _asked(self, text: str, tries: int | None = None, special: bool = False) -> tuple[int, ...]:
        try:
            found = self.client.post(self.url, {**self.fields, self.flag: special, self.word: text}, tries)
        except Unanswered as why:
            raise Unfinished(
                f"{self.url} does not count tokens now ({why}): run the same command again to continue, or name "
                f"the model's own --tokenizer, or --tokenizer {APPROXIMATE}."
            ) from why
        tokens = found.get("tokens") if isinstance(found, dict) else None
        if not isinstance(tokens, list) or not all(type(i) is int and 0 <= i <= MOST_ID for i in tokens):
            raise UserError(f"{self.url} gives no ids: name the model's own --tokenizer, or --tokenizer {APPROXIMATE}.")
        return tuple(tokens)


def tokenizer_for(name: str | None, model: str, client: Client) -> Tokenizer:
    """Returns the tokenizer of that name. None is the model's own where it is a folder here, else the server's.

    name: a folder, a file, a name on the hub, "bytes", "server" or "approximate". Raises UserError.
    """
    if name == SERVER or (name is None and not Path(model).is_dir()):
        found = ServerTokenizer.found(client, model)
        if found is None and name == SERVER:
            raise UserError(
                f"{client.address.url} has no tokenize endpoint for {model}: name the model's own --tokenizer, or "
                f"--tokenizer {APPROXIMATE}."
            )
        return found or Approximate()
    return tokenizer_here(name or model)


def tokenizer_here(name: str) -> Tokenizer:
    """Returns a tokenizer that needs no server: of a folder, a file or a name on the hub, "bytes" or "approximate"."""
    if name == APPROXIMATE:
        return Approximate()
    if name == "bytes" and not Path(name).exists():
        return Bytes()
    from levelfield.pretrained.locate import resolve_model_path
    from levelfield.pretrained.optional import Missing
    from levelfield.pretrained.tokenizers.read import read_tokenizer

    try:
        return read_tokenizer(resolve_model_path(name, weights=False))
    except Missing as missing:
        raise UserError(f"{missing} Or let lengths be approximate: --tokenizer {APPROXIMATE}.") from missing


def is_exact(tokenizer: Tokenizer) -> bool:
    """Whether its counts are the model's own, and not an approximation."""
    return not isinstance(tokenizer, Approximate)
