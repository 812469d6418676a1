"""Reads LongMemEval: questions about a user, in histories of about 50 chats (S) or 500 (M) with an assistant.

    levelfield ruler MODEL --tasks longmemeval --longmemeval longmemeval_s_cleaned.json --lengths 131072 --count 500

The prompt is that of xiaowu0162/LongMemEval at 9e0b455 with the full history as JSON, read directly (Wu et al. 2025).
Published scores are verdicts of a judge, GPT-4o, who accepts any wording. Here a rule compares words, so scores are
lower than published ones and not comparable with them. Questions that no such rule can score are left out: those on
preferences, whose answer is a rubric, and those that cannot be answered.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from levelfield.ruler.official.records import Record, records
from levelfield.ruler.official.whole_questions import OfficialSet, WholeQuestion
from levelfield.ruler.question_set import NAME, Score, clean, normalised
from levelfield.ruler.sources import Sources
from levelfield.spec import UserError

NEEDED = (
    "question_id", "question_type", "question", "answer", "question_date", "haystack_dates", "haystack_sessions"
)  # fmt: skip
TASK = (
    "I will give you several history chats between you and a user. Please answer the question based on the relevant "
    "chat history.\n\n\nHistory Chats:\n\n{history}\n\nCurrent Date: {date}\nQuestion: {question}"
)
SESSION = "\n### Session {number}:\nSession Date: {date}\nSession Content:\n\n{turns}\n"
RUBRIC = "single-session-preference"
UNANSWERABLE = "_abs"
OTHER = re.compile(
    r"^(.+?)\.\s+(?!(?:it|this|that)\b)(.+?)\s*(?:\([^()]*\))?\s+is also acceptable\.?$", re.DOTALL | re.I
)


@dataclass(frozen=True)
class LongMemEval(OfficialSet):
    """What was said in one of many chats, or follows from several?"""

    answer_tokens: ClassVar[int] = 96
    option: ClassVar[str] = "longmemeval"
    file: ClassVar[str] = "longmemeval_s_cleaned.json"
    sliced_by: ClassVar[tuple[str, ...]] = ("type",)

    @property
    def name(self) -> str:
        return "longmemeval"

    def path(self, sources: Sources) -> str | None:
        return sources.longmemeval

    def records(self, path: str, length: int) -> Sequence[Record]:
        found = records(path, NEEDED, f"{self.file} of LongMemEval")
        kept = [r for r in found if r["question_type"] != RUBRIC and not str(r["question_id"]).endswith(UNANSWERABLE)]
        if not kept:
            raise UserError(f"{path} has no question that can be scored without a judge: give the whole official file.")
        if wrong := next((r for r in kept if len(r["haystack_dates"]) != len(r["haystack_sessions"])), None):
            raise UserError(f"{path} has not as many dates as sessions in {wrong['question_id']}: give {self.file}.")
        return kept

    def asked(self, record: Record) -> WholeQuestion:
        dated = zip(record["haystack_dates"], record["haystack_sessions"], strict=True)
        sessions = sorted(dated, key=lambda session: session[0])
        history = "".join(
            SESSION.format(number=number, date=date, turns=_turns(turns))
            for number, (date, turns) in enumerate(sessions, 1)
        )
        prompt = TASK.format(history=history, date=record["question_date"], question=record["question"])
        slices = (("id", record["question_id"]), ("type", record["question_type"]), ("sessions", len(sessions)))
        return WholeQuestion(prompt, "\nAnswer:", answers(str(record["answer"])), slices)

    def answer(self, rng: np.random.Generator) -> str:
        return " The sister of the user, on the twenty-fourth of May"

    def score(self, prediction: str, references: Sequence[str]) -> Score:
        """Scores words. strict: one of the answers stands in the text, word for word; match: that, or else the F1 of
        the words of its first paragraph."""
        text = clean(prediction)
        contained = any(f" {normalised(r)} " in f" {normalised(text)} " for r in references if normalised(r))
        if contained:
            return Score(1.0, 1.0)
        return Score(max(f1(text.partition("\n\n")[0], r) for r in references), 0.0)

    def candidates(self, text: str) -> list[str]:
        return NAME.findall(text.partition("History Chats:")[2].rpartition("\n\nCurrent Date:")[0])


def _turns(turns: Sequence[Record]) -> str:
    """Writes a chat as JSON, without the marks of the turns that hold the answer."""
    return json.dumps([{name: value for name, value in turn.items() if name != "has_answer"} for turn in turns])


def answers(text: str) -> tuple[str, ...]:
    """Returns the accepted answers: "7 days. 8 days (including the last day) is also acceptable." has two."""
    other = OTHER.match(text.strip())
    return (other[1], other[2]) if other else (text,)


def f1(prediction: str, reference: str) -> float:
    """Returns SQuAD's F1 of the words of two texts."""
    given, wanted = normalised(prediction).split(), normalised(reference).split()
    same = sum((Counter(given) & Counter(wanted)).values())
    return 2 * same / (len(given) + len(wanted)) if same else 0.0
