"""Reads question sets from their official files.

    squad("dev-v2.0.json")                          # 5,928 answerable questions over 1,204 paragraphs
    hotpot("hotpot_dev_distractor_v1.json")         # 7,405 questions with ten paragraphs each

`QADataset.note` says what part a file holds if it is incomplete: many mirrors have half of SQuAD's 35 articles.
Sources: Rajpurkar et al. 2018 (SQuAD 2.0), Yang et al. 2018 (HotpotQA); both CC BY-SA 4.0, so neither file ships.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from levelfield.ruler.sources import parsed, read
from levelfield.spec import UserError

SQUAD_ARTICLES, SQUAD_ANSWERABLE = 35, 5_928
HOTPOT_QUESTIONS = 7_405


@dataclass(frozen=True)
class QAQuestion:
    """A question and its answers. Documents are indices into the set's list."""

    text: str
    answers: tuple[str, ...]
    gold: tuple[int, ...]  # what RULER always shows: the paragraph, or HotpotQA's ten
    needed: tuple[int, ...]  # what the answer needs: the paragraph, or the two with supporting facts
    near: tuple[int, ...] = ()  # other paragraphs of the same article


@dataclass(frozen=True)
class QADataset:
    name: str
    questions: tuple[QAQuestion, ...]
    documents: tuple[str, ...]  # distinct, sorted
    note: str  # "" for the whole official file


@cache
def squad(path: str) -> QADataset:
    """Reads SQuAD 2.0's development file, without the questions that have no answer. Raises UserError."""
    data = parsed(read(Path(path).expanduser()), path)
    try:
        articles = [[(p["context"], p["qas"]) for p in article["paragraphs"]] for article in data["data"]]
        documents = sorted({context for article in articles for context, _ in article})
        place = {text: i for i, text in enumerate(documents)}
        found: list[QAQuestion] = []
        for article in articles:
            near = list(dict.fromkeys(place[context] for context, _ in article))
            for context, asked in article:
                own = (place[context],)
                others = tuple(i for i in near if i != own[0])
                found += [_squad_question(q, own, others) for q in asked if not q.get("is_impossible", False)]
    except (KeyError, TypeError, AttributeError):
        raise UserError(f"{path} is not in SQuAD's layout (data, paragraphs, qas): give the official dev-v2.0.json.")
    if not found:
        raise UserError(f"{path} has no question that has an answer: give the official dev-v2.0.json.")
    if any(not q.answers for q in found):
        raise UserError(f"{path} has questions without answers: the official test file is no development file.")
    note = ""
    if len(articles) != SQUAD_ARTICLES or len(found) != SQUAD_ANSWERABLE:
        note = (
            f"{len(articles)} of {SQUAD_ARTICLES} articles and {len(found):,} of {SQUAD_ANSWERABLE:,} answerable "
            "questions of SQuAD 2.0's development file"
        )
    _warn_of_part(path, note)
    return QADataset("squad", tuple(found), tuple(documents), note)


def _warn_of_part(path: str, note: str) -> None:
    if note:
        said = f"{path} is only a part of the official file, {note}: scores are not those of the whole."
        warnings.warn(said, UserWarning, stacklevel=3)


def _squad_question(asked: dict[str, Any], own: tuple[int, ...], near: tuple[int, ...]) -> QAQuestion:
    return QAQuestion(asked["question"], tuple(a["text"] for a in asked["answers"]), own, own, near)


@cache
def hotpot(path: str) -> QADataset:
    """Reads HotpotQA's development file with distractors. Raises UserError."""
    data = parsed(read(Path(path).expanduser()), path)
    if isinstance(data, dict):
        raise UserError(
            f"{path} is a columnar copy of HotpotQA: give the official hotpot_dev_distractor_v1.json, a list."
        )
    try:
        rows = [(row, {title: f"{title}\n{''.join(parts)}" for title, parts in row["context"]}) for row in data]
        documents = sorted({text for _, texts in rows for text in texts.values()})
        place = {text: i for i, text in enumerate(documents)}
        found = tuple(
            _hotpot_question(row, {title: place[text] for title, text in texts.items()}) for row, texts in rows
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UserError(
            f"{path} is not in HotpotQA's layout (question, answer, context): give the official distractor file."
        )
    if not found:
        raise UserError(f"{path} has no questions: give the official hotpot_dev_distractor_v1.json.")
    note = (
        "" if len(found) == HOTPOT_QUESTIONS else f"{len(found):,} of {HOTPOT_QUESTIONS:,} questions of HotpotQA's file"
    )
    _warn_of_part(path, note)
    return QADataset("hotpot", found, tuple(documents), note)


def _hotpot_question(row: dict[str, Any], place: dict[str, int]) -> QAQuestion:
    gold = tuple(dict.fromkeys(place.values()))
    needed = tuple(dict.fromkeys(place[title] for title, _ in row.get("supporting_facts", []) if title in place))
    return QAQuestion(row["question"], (row["answer"],), gold, needed or gold)
