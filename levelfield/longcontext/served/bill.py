"""Counts questions, tokens and cost before anything is asked.

    bill = Bill.of(served, evaluations, folder)
    bill.line(Prices(0.15, 0.60))     # "1,300 questions, 200 of them answered before. To read: at most 4,505,600 ..."

Tokens are counted from the lengths of evaluations, so they are upper bounds, and making a bill takes no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from levelfield.longcontext.answers import predictions
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.served.asking import Served
from levelfield.ruler.prompt.answer_budget import answer_tokens
from levelfield.ruler.prompt.flavours import flavoured

MILLION = 1_000_000


class Prices(NamedTuple):
    """Dollars for a million tokens."""

    read: float
    written: float


class Bill(NamedTuple):
    """What an evaluation asks at most. read, written: tokens of the prompts and of the answers."""

    questions: int
    answered: int
    read: int
    written: int

    @staticmethod
    def of(served: Served, evaluations: Sequence[Evaluation], folder: Path) -> Bill:
        """Counts what is still to be asked. evaluations: as `Served.put` makes them."""
        stored = {p.place for p in predictions(folder) if not p.outdated}
        total = answered = read = written = 0
        for each in evaluations:
            for task in each.tasks_at_depths:
                budget = answer_tokens(task, served.tokenizer, flavoured(each.flavour))
                for length in each.lengths:
                    setting = (each.flavour, each.template, each.seed)
                    known = sum((task.name, length, index, *setting) in stored for index in range(each.count))
                    total, answered = total + each.count, answered + known
                    read += (each.count - known) * max(0, length - budget)
                    written += (each.count - known) * (budget + served.way.thinking)
        return Bill(total, answered, read, written)

    def cost(self, prices: Prices) -> float:
        """Returns the dollars that all of it costs at most."""
        return (self.read * prices.read + self.written * prices.written) / MILLION

    def line(self, prices: Prices | None = None) -> str:
        """Says it in words."""
        before = f", {self.answered:,} of them answered before" if self.answered else ""
        text = (
            f"{self.questions:,} questions{before}. To read: at most {self.read:,} tokens; to write: at most "
            f"{self.written:,}."
        )
        return text if prices is None else f"{text} Cost: at most ${self.cost(prices):,.2f}."
