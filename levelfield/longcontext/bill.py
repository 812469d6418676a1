"""Counts questions, tokens, cost and time before anything is asked.

    bill = Bill.of(tokenizer, evaluations, folder)
    bill.line(Prices(0.15, 0.60))     # "1,300 questions, 200 of them answered before. To read: at most 4,505,600 ..."
    bill.seconds(1000.0)              # 4,600, at a thousand tokens a second

Tokens are counted from the lengths of evaluations, so they are upper bounds, and making a bill takes no time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from levelfield.longcontext.answers import stored
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.predictions import Prediction
from levelfield.ruler.fingerprints import fingerprint
from levelfield.ruler.prompt.answer_budget import answer_tokens, forgets_answer
from levelfield.ruler.prompt.flavours import flavoured
from levelfield.tokenizer import Tokenizer

MILLION = 1_000_000


class Prices(NamedTuple):
    """Dollars for a million tokens."""

    read: float
    written: float


class Bill(NamedTuple):
    """What an evaluation asks at most. read, written: tokens of the prompts and of the answers. template_unknown:
    whether a server reads a template beside them that nobody here knows."""

    questions: int
    answered: int
    read: int
    written: int
    template_unknown: bool = False

    @staticmethod
    def of(
        tokenizer: Tokenizer,
        evaluations: Sequence[Evaluation],
        folder: Path,
        most: Callable[[int], int] = int,
        *,
        more: Iterable[Prediction] = (),
        beside: int = 0,
    ) -> Bill:
        """Counts what is still to be asked. evaluations: for a server as `Served.put` makes them. most: tokens
        that may be written for an answer of a budget. more: answers that are not joined to those of the folder yet.
        beside: tokens that are read with each question, and are no part of its length.

        Only an answer to the very texts of a question counts; one that does not say its file is as good as none.
        """
        found = {(p.place, *p.texts) for p in (*stored(folder), *more) if not p.outdated}
        total = answered = read = written = 0
        for each in evaluations:
            for task in each.tasks_at_depths:
                flavour = flavoured(each.flavour)
                budget = answer_tokens(task, tokenizer, flavour)
                counted = 0 if forgets_answer(task, flavour) else budget
                for length in each.lengths:
                    setting = (each.flavour, each.template, each.seed)
                    file = fingerprint(task, each.sources, length)
                    places = [(task.name, length, index, *setting) for index in range(each.count)]
                    known = sum(
                        not found.isdisjoint((place, essays, file) for essays in ("", each.sources.haystack))
                        for place in places
                    )
                    total, answered = total + each.count, answered + known
                    read += (each.count - known) * (max(0, length - counted) + beside)
                    written += (each.count - known) * (most(budget) + each.thinking)
        return Bill(total, answered, read, written)

    def cost(self, prices: Prices) -> float:
        """Returns the dollars that all of it costs at most."""
        return (self.read * prices.read + self.written * prices.written) / MILLION

    def seconds(self, rate: float) -> float:
        """Returns how long all of it takes at most, at a rate of tokens read and written in a second."""
        return (self.read + self.written) / rate

    def line(self, prices: Prices | None = None) -> str:
        """Says it in words."""
        before = f", {self.answered:,} of them answered before" if self.answered else ""
        noun = "question" if self.questions == 1 else "questions"
        without, it = (" without the server's template", " without it") if self.template_unknown else ("", "")
        text = (
            f"{self.questions:,} {noun}{before}. To read: at most {self.read:,} tokens{without}; to write: at most "
            f"{self.written:,}."
        )
        return text if prices is None else f"{text} Cost{it}: {dollars(self.cost(prices))}."


def dollars(cost: float) -> str:
    """Says what something costs at most, in words of its bill: also less than a cent is no 0."""
    return "under $0.01" if 0 < cost < 0.01 else f"at most ${cost:,.2f}"
