"""Reads LongBench v2: 503 questions with four choices about texts of 8,000 to two million words.

    levelfield ruler MODEL --tasks longbench --longbench data.json --lengths 32768,131072 --count 503

The file is data.json of THUDM/LongBench-v2, or its Parquet file. Prompt and rule of reading are those of
THUDM/LongBench at 2e00731 without reasoning (Bai et al. 2024), but no text is cut in the middle, and the model is given
the beginning of the sentence that it has to complete.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from levelfield.ruler.official.records import Record, records
from levelfield.ruler.official.whole_questions import OfficialSet, WholeQuestion
from levelfield.ruler.question_set import Score, clean, first_line
from levelfield.ruler.sources import Sources
from levelfield.spec import UserError

LETTERS = ("A", "B", "C", "D")
CHOICES = tuple(f"choice_{letter}" for letter in LETTERS)
NEEDED = ("_id", "domain", "difficulty", "length", "question", *CHOICES, "answer", "context")
TASK = """Please read the following text and answer the question below.

<text>
{context}
</text>

What is the correct answer to this question: {question}
Choices:
(A) {choice_A}
(B) {choice_B}
(C) {choice_C}
(D) {choice_D}

Format your response as follows: "The correct answer is (insert answer here)"."""
BEGINNING = "The correct answer is"
BRACKETED = re.compile(r"The correct answer is \(([A-D])\)")
BARE = re.compile(r"The correct answer is ([A-D])")
ALONE = re.compile(r"(?<![\w'])([A-D])(?![\w'])")


@dataclass(frozen=True)
class LongBench(OfficialSet):
    """A choice among four answers to a question about a text."""

    answer_tokens: ClassVar[int] = 128
    option: ClassVar[str] = "longbench"
    file: ClassVar[str] = "data.json of LongBench v2"
    sliced_by: ClassVar[tuple[str, ...]] = ("difficulty", "words", "domain")

    @property
    def name(self) -> str:
        return "longbench"

    def path(self, sources: Sources) -> str | None:
        return sources.longbench

    def records(self, path: str, length: int) -> Sequence[Record]:
        found = records(path, NEEDED, "data.json of LongBench v2")
        if wrong := next((r for r in found if r["answer"] not in LETTERS), None):
            raise UserError(f"{path} has the answer {wrong['answer']!r}, where LongBench v2 has A, B, C or D.")
        return found

    def asked(self, record: Record) -> WholeQuestion:
        parts = {name: str(record[name]).strip() for name in ("context", "question", *CHOICES)}
        columns = {"id": "_id", "difficulty": "difficulty", "words": "length", "domain": "domain"}
        slices = tuple((column, str(record[name])) for column, name in columns.items())
        return WholeQuestion(TASK.format(**parts), f"\n{BEGINNING}", (record["answer"],), slices)

    def answer(self, rng: np.random.Generator) -> str:
        return f" ({LETTERS[rng.integers(4)]})."

    def score(self, prediction: str, references: Sequence[str]) -> Score:
        """Scores a choice. match: the letter that is read by the official rule, or else the only one of the first line;
        strict: by the official rule alone."""
        official = choice(prediction)
        letters = set(ALONE.findall(first_line(prediction)))
        read = official or (letters.pop() if len(letters) == 1 else None)
        return Score(float(read == references[0]), float(official == references[0]))

    def candidates(self, text: str) -> list[str]:
        return [f"({letter})" for letter in LETTERS]

    def is_final(self, text: str) -> bool:
        return bool(BRACKETED.search(_completed(text)))


def choice(prediction: str) -> str | None:
    """Returns the letter that LongBench's own rule reads in an answer whose beginning was given; None without any."""
    text = _completed(clean(prediction))
    found = BRACKETED.search(text) or BARE.search(text)
    return found[1] if found else None


def _completed(prediction: str) -> str:
    return f"{BEGINNING} {prediction.lstrip()}".replace("*", "")
