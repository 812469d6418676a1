"""Tokenizers and question files for the tests of RULER: small, and hard on those who compose ids from pieces."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

WORDS = re.compile(r" ?[A-Za-z]+| ?\d+| ?[^\sA-Za-z\d]+|\s+(?!\S)|\s+")  # GPT-2's pre-tokeniser, for plain text

MERGES = ("th", " t", "he", " a", "in", "er", "on", " s", "re", "the", " the", "an", "ing", "\n\n", "ag", "12", "34")
SYMBOLS = [chr(i) for i in range(256)] + list(MERGES)


@cache
def byte_pairs(word: str) -> list[int]:
    """Ids of a pre-token: the pair of the best rank is merged until there is none."""
    parts = list(word)
    while True:
        ranked = [(MERGES.index(a + b), i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in MERGES]
        if not ranked:
            return [SYMBOLS.index(p) for p in parts]
        place = min(ranked)[1]
        parts[place : place + 2] = [parts[place] + parts[place + 1]]


class Pairs:
    """Byte pairs inside GPT-2's pre-tokens: merges the most frequent pairs of letters of English, greedily by rank."""

    name = "pairs"
    MERGES = (
        "th",
        " t",
        "he",
        " a",
        "in",
        "er",
        "on",
        " s",
        "re",
        "the",
        " the",
        "an",
        "ing",
        "\n\n",
        "ag",
        "12",
        "34",
    )

    def encode(self, text: str) -> list[int]:
        raw = text.encode().decode("latin-1")
        return [i for word in WORDS.findall(raw) for i in byte_pairs(word)]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(SYMBOLS[i] for i in ids).encode("latin-1").decode(errors="replace")


class Counting(Pairs):
    """Counts the letters it is given."""

    def __init__(self) -> None:
        self.letters = 0

    def encode(self, text: str) -> list[int]:
        self.letters += len(text)
        return super().encode(text)


class Prefixed(Pairs):
    """Puts a space before every text, as SentencePiece does; line ends stand alone."""

    name = "prefixed"

    def encode(self, text: str) -> list[int]:
        return super().encode(" " + text)


class Blocks:
    """Three letters an id from the beginning of the text on: nothing can be cut out of it."""

    name = "blocks"

    def encode(self, text: str) -> list[int]:
        return [hash_of(text[i : i + 3]) for i in range(0, len(text), 3)]

    def decode(self, ids: Sequence[int]) -> str:
        raise NotImplementedError


def hash_of(text: str) -> int:
    return int.from_bytes(text.encode()[:3].ljust(3, b"\0"), "big")


def squad_file(folder: Path) -> str:
    """60 paragraphs in 6 articles, with a question each; every third has no answer."""
    articles = []
    for a in range(6):
        paragraphs = []
        for p in range(10):
            name = f"Town{a}x{p}"
            text = (
                f"{name} lies by the river. "
                + "It has a mill and a market hall. " * (3 + p)
                + f"Its mayor is Mr Blue{a}{p}."
            )
            asked = {"question": f"Who is the mayor of {name}?", "id": name, "is_impossible": p % 3 == 2}
            asked["answers"] = [] if p % 3 == 2 else [{"text": f"Mr Blue{a}{p}", "answer_start": text.index("Mr Blue")}]
            paragraphs.append({"context": text, "qas": [asked]})
        articles.append({"title": f"Article {a}", "paragraphs": paragraphs})
    return _written(folder / "squad.json", {"version": "v2.0", "data": articles})


def hotpot_file(folder: Path) -> str:
    """20 questions with ten paragraphs each, two of them needed."""
    rows = []
    for q in range(20):
        titles = [f"Ship {q} {d}" for d in range(10)]
        context = [
            [t, [f"{t} is a ship.", f" It sailed with {18 + d} men and much rope." * (2 + d)]]
            for d, t in enumerate(titles)
        ]
        facts = [[titles[4], 0], [titles[7], 1]]
        row = {"_id": str(q), "question": f"Which ship had more men, {titles[4]} or {titles[7]}?", "answer": titles[7]}
        rows.append(row | {"context": context, "supporting_facts": facts, "type": "comparison", "level": "hard"})
    return _written(folder / "hotpot.json", rows)


def _written(path: Path, content: Any) -> str:
    path.write_text(json.dumps(content))
    return str(path)
