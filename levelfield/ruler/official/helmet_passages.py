"""Reads HELMET's questions over retrieved passages: Natural Questions, TriviaQA, HotpotQA and PopQA.

    levelfield ruler MODEL --tasks helmet_nq --helmet HELMET/data --lengths 8192,16384,32768,65536,131072

Prompts, solved examples and scores are those of princeton-nlp/HELMET at 4526dfb (Yen et al. 2025), where an answer ends
with its line. Which questions are asked first is drawn otherwise than there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from levelfield.ruler.official import helmet_files
from levelfield.ruler.official.helmet_files import PASSAGES, Files, Helmet
from levelfield.ruler.official.records import Record
from levelfield.ruler.official.whole_questions import WholeQuestion
from levelfield.ruler.question_set import NAME, Score, first_line, has_first_line, normalised
from levelfield.spec import UserError, closest

SHOTS = 2
RARE = 10**3  # PopQA's questions are about pages with fewer visits a month
NEEDED = ("question", "answers", "ctxs")
FILES = {
    "nq": "kilt/nq-dev-multikilt_1000_k{n}_dep6.jsonl",
    "triviaqa": "kilt/triviaqa-dev-multikilt_1000_k{n}_dep6.jsonl",
    "hotpotqa": "kilt/hotpotqa-dev-multikilt_1000_k{n}_dep3.jsonl",
    "popqa": "kilt/popqa_test_1000_k{n}_dep6.jsonl",
}
DEMOS = {task: pattern.replace("-dev-", "-train-").format(n=3) for task, pattern in FILES.items()}
TASK = (
    "Use the given documents to write a concise and short answer to the question. Write your answer in the following "
    "format:\nAnswer: [answer]\n\n{demos}{context}\n\nQuestion: {question}"
)
PASSAGE = "Document (Title: {title}): {text}"
DEMO = "{context}\n\nQuestion: {question}\nAnswer: {answer}\n\n"


@dataclass(frozen=True)
class HelmetPassages(Helmet):
    """A short answer to a question, which stands in some of the passages."""

    answer_tokens: ClassVar[int] = 20
    task: str = "nq"

    def __post_init__(self) -> None:
        if self.task not in FILES:
            raise UserError(f"HELMET has no passages of '{self.task}': {closest(self.task, list(FILES))}")

    def names(self, length: int) -> tuple[str, ...]:
        return Files(FILES[self.task], PASSAGES, NEEDED).name(length), DEMOS[self.task]

    def records(self, path: str, length: int) -> Sequence[Record]:
        needed = (*NEEDED, "s_pop") if self.task == "popqa" else NEEDED
        found = helmet_files.read(path, Files(FILES[self.task], PASSAGES, needed), length)
        demos = [demo for demo in helmet_files.found(path, DEMOS[self.task], needed) if self._is_asked(demo)]
        asked = [record for record in found if self._is_asked(record)]
        if not all(record["answers"] for record in (*asked, *demos)):
            raise UserError(f"A record of {self.name} has no answer: give {self.file}.")
        return [{**record, "demos": demos} for record in asked]

    def _is_asked(self, record: Record) -> bool:
        return self.task != "popqa" or 0 < record["s_pop"] < RARE

    def asked(self, record: Record) -> WholeQuestion:
        demos = "".join(
            DEMO.format(context=_passages(demo), question=demo["question"], answer=demo["answers"][0])
            for demo in self._demos(record)
        )
        prompt = TASK.format(demos=demos, context=_passages(record), question=record["question"])
        return WholeQuestion(prompt, "\nAnswer:", tuple(map(str, record["answers"])), (("id", str(_key(record))),))

    def _demos(self, record: Record) -> list[Record]:
        """Draws two solved examples with different questions, by a hash of this one."""
        own = _key(record)
        known = [demo for demo in record["demos"] if self.task != "popqa" or _key(demo) != own]
        seed = int(hashlib.sha256(str(own).encode()).hexdigest(), 16) % 2**31
        order = np.random.default_rng(seed).permutation(len(known))
        different: Mapping[object, Record] = {_key(known[i]): known[i] for i in reversed(order)}
        first = dict.fromkeys(_key(known[i]) for i in order)
        return [different[key] for key in list(first)[:SHOTS]]

    def answer(self, rng: np.random.Generator) -> str:
        return " the twenty-fourth of May"

    def score(self, prediction: str, references: Sequence[str]) -> Score:
        """Scores the first line. match: one of the answers stands in it; strict: it is one of them."""
        line = normalised(first_line(prediction).removeprefix("Answer:"))
        wanted = [normalised(r) for r in references]
        return Score(float(any(answer in line for answer in wanted)), float(line in wanted))

    def candidates(self, text: str) -> list[str]:
        return NAME.findall(text[: text.rfind("\n\nQuestion: ")])

    def is_final(self, text: str) -> bool:
        return has_first_line(text)


def _key(record: Record) -> object:
    return record["id"] if "id" in record else record["question"]


def _passages(record: Record) -> str:
    return "\n\n".join(PASSAGE.format(title=each["title"], text=each["text"]) for each in record["ctxs"])
