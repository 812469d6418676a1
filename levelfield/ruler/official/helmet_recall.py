"""Reads HELMET's tasks of recall: RULER's needles as HELMET drew them, and values of a long JSON object by their keys.

    levelfield ruler MODEL --tasks helmet_json_kv --helmet HELMET/data --lengths 8192,16384,32768,65536,131072

Prompts and scores are those of princeton-nlp/HELMET at 4526dfb (Yen et al. 2025). In `sound` with seed 42 the first
hundred questions are drawn as HELMET draws its hundred.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from levelfield.ruler.official import helmet_files
from levelfield.ruler.official.helmet_files import PAIRS, SAME, Files, Helmet
from levelfield.ruler.official.records import Record
from levelfield.ruler.official.whole_questions import WholeQuestion
from levelfield.ruler.question_set import Score, clean, normalised
from levelfield.spec import UserError, closest

SHOTS = 2
NEEDLES = ("context", "query", "type_needle_v")
RECALL = {
    "niah_mk_2": Files("ruler/niah_multikey_2/validation_{n}.jsonl", SAME, NEEDLES),
    "niah_mk_3": Files("ruler/niah_multikey_3/validation_{n}.jsonl", SAME, NEEDLES),
    "niah_mv": Files("ruler/niah_multivalue/validation_{n}.jsonl", SAME, NEEDLES),
    "json_kv": Files("json_kv/test_k{n}_dep6.jsonl", PAIRS, ("context", "question", "answer", "demos")),
}
ONE = (
    "A special magic {type_needle_v} is hidden within the following text. Make sure to memorize it. I will quiz you "
    "about the {type_needle_v} afterwards.\n{context}\nWhat is the special magic {type_needle_v} for {query} mentioned "
    "in the provided text?",
    "\nThe special magic {type_needle_v} for {query} mentioned in the provided text is",
)
SOME = (
    "Some special magic {type_needle_v} are hidden within the following text. Make sure to memorize it. I will quiz "
    "you about the {type_needle_v} afterwards.\n{context}\nWhat are all the special magic {type_needle_v} for {query} "
    "mentioned in the provided text?",
    "\nThe special magic {type_needle_v} for {query} mentioned in the provided text are",
)
KEY = "{context}\n\nExtract the value corresponding to the specified key in the JSON object below.\n\n{demos}Key: {key}"
DEMO = "Key: {}\nCorresponding value: {}\n\n"
VALUE = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![\w.-])\d+(?![\w-]|\.\d)", re.I)


@dataclass(frozen=True)
class HelmetRecall(Helmet):
    """What is the value of a key?"""

    answer_tokens: ClassVar[int] = 100
    task: str = "json_kv"

    def __post_init__(self) -> None:
        if self.task not in RECALL:
            raise UserError(f"HELMET has no recall task '{self.task}': {closest(self.task, list(RECALL))}")

    def names(self, length: int) -> tuple[str, ...]:
        return (RECALL[self.task].name(length),)

    def records(self, path: str, length: int) -> Sequence[Record]:
        return helmet_files.read(path, RECALL[self.task], length)

    def asked(self, record: Record) -> WholeQuestion:
        given = record.get("answer") or record.get("outputs") or ""
        references = (given,) if isinstance(given, str) else tuple(map(str, given))
        if not all(references):
            raise UserError(f"A record of {self.name} has no answer: give HELMET's own file.")
        if self.task == "json_kv":
            demos = "".join(DEMO.format(key, value) for key, value in record["demos"][:SHOTS])
            prompt = KEY.format(context=record["context"], demos=demos, key=record["question"])
            return WholeQuestion(prompt, "\nCorresponding value:", references, (("id", record["question"]),))
        question, start = SOME if self.task == "niah_mv" else ONE
        words = {name: record[name] for name in NEEDLES}
        return WholeQuestion(
            question.format(**words), start.format(**words), references, (("id", str(record["query"])),)
        )

    def answer(self, rng: np.random.Generator) -> str:
        return " 0f8a3c52-9d1e-4b67-8a20-5c7e1f3b9d64"

    def score(self, prediction: str, references: Sequence[str]) -> Score:
        """Scores values. match: the share that stands in the answer, in any form; strict: among as many values as are
        wanted, the first ones of the answer."""
        text = clean(prediction)
        given = list(dict.fromkeys(value.lower() for value in VALUE.findall(text)))[: len(references)]
        found = [normalised(r) in normalised(text) for r in references]
        first = [r.lower() in given for r in references]
        return Score(sum(found) / len(references), sum(first) / len(references))

    def candidates(self, text: str) -> list[str]:
        last = "\n\nExtract the value" if self.task == "json_kv" else "\nWhat "
        return VALUE.findall(text[: text.rfind(last)])
