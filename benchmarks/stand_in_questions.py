"""Writes files in the layouts of SQuAD 2.0 and HotpotQA, and of their size, where the official ones are absent.

    stand_ins(folder)       # {"squad": "folder/squad.json", "hotpot": "folder/hotpot.json"}

They have as many paragraphs and questions as the official development files. A paragraph is a stretch of the essays
that ship, so that a tokenizer has as much to do; what is asked has no meaning. Only speed is measured with them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from levelfield.ruler.sources import essays

ARTICLES, PARAGRAPHS, ANSWERABLE = 35, 1204, 5928  # SQuAD 2.0
SQUAD_WORDS = (60, 200)  # of a paragraph
ROWS, OF_ROW = 7405, 10  # HotpotQA: questions, and paragraphs of each
HOTPOT_WORDS = (40, 130)


def stand_ins(folder: Path) -> dict[str, str]:
    """Writes both files, the same each time, and returns their paths by data set."""
    rng, words = np.random.default_rng(0), essays(None)
    made = {"squad": _squad(words, rng), "hotpot": _hotpot(words, rng)}
    return {name: _written(folder / f"{name}.json", content) for name, content in made.items()}


def _stretch(words: list[str], bounds: tuple[int, int], rng: np.random.Generator) -> list[str]:
    size = int(rng.integers(*bounds))
    start = int(rng.integers(len(words) - size))
    return words[start : start + size]


def _squad(words: list[str], rng: np.random.Generator) -> dict[str, Any]:
    articles: list[dict[str, Any]] = [{"title": f"Article {n}", "paragraphs": []} for n in range(ARTICLES)]
    for n in range(PARAGRAPHS):
        text = _stretch(words, SQUAD_WORDS, rng)
        count = ANSWERABLE // PARAGRAPHS + (n < ANSWERABLE % PARAGRAPHS)
        answers = [{"text": text[-1], "answer_start": 0}]
        asked = [{"question": f"What is word {q} of paragraph {n}?", "answers": answers} for q in range(count)]
        articles[n % ARTICLES]["paragraphs"].append({"context": f"Paragraph {n}. {' '.join(text)}", "qas": asked})
    return {"version": "v2.0", "data": articles}


def _hotpot(words: list[str], rng: np.random.Generator) -> list[dict[str, Any]]:
    rows = list[dict[str, Any]]()
    for n in range(ROWS):
        titles = [f"Title {n} {place}" for place in range(OF_ROW)]
        context = [[title, [f"{' '.join(_stretch(words, HOTPOT_WORDS, rng))}."]] for title in titles]
        row = {"question": f"What do {titles[0]} and {titles[1]} share?", "answer": titles[0], "context": context}
        rows.append(row | {"supporting_facts": [[titles[0], 0], [titles[1], 0]]})
    return rows


def _written(path: Path, content: Any) -> str:
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)
