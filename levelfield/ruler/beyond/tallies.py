"""Builds lists of short lines, each of a user, an item and its label, and asks for counts over all of them.

User 4127 | otter | animal
User 2960 | chisel | tool
...
Question: How many lines have an item of the label animal? Answer with a number alone. Answer: 31

After Oolong (Bertsch et al. 2025), whose tasks cannot be solved without reading everything: no line decides, all do.
Without labels (`labelled=False`) the reader has to classify each item, as in Oolong. Lines and labels are our own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from levelfield.ruler.prompt.compose import Order
from levelfield.ruler.prompt.fit import PromptDraft, too_short
from levelfield.ruler.prompt.setting import Setting
from levelfield.ruler.prompt.swaps import with_longer_texts
from levelfield.ruler.question_set import QuestionSet, Score, exactly, first_line, has_first_line
from levelfield.spec import UserError, closest

LISTED = """
animal: fox owl toad moose otter heron beaver badger weasel giraffe lobster hedgehog flamingo crocodile
tool: saw axe rasp drill hammer pliers chisel wrench mallet spanner crowbar hacksaw pickaxe screwdriver
food: pie rice soup bread cheese noodles pancake sausage omelette porridge cucumber spaghetti marmalade
garment: hat sock skirt glove shirt blouse apron jacket sandal trousers cardigan overcoat waistcoat
instrument: lute harp oboe flute cello piano guitar trumpet bassoon clarinet trombone mandolin xylophone
"""
ITEMS = {label: items.split() for label, items in re.findall(r"(\w+): (.+)", LISTED)}
LABELS = tuple(ITEMS)
LABEL_OF = {item: label for label, items in ITEMS.items() for item in items}
USERS = (1187, 1352, 2043, 2960, 3418, 3775, 4127, 5301, 6094, 7246, 8512, 9639)
NAMED = frozenset(map(str, USERS))
OF_SAMPLE = 6  # users in one list
CHANCES = (0.30, 0.24, 0.19, 0.15, 0.12)  # of the labels of a line, which are drawn anew for each sample
TASK = (
    "Below is a list of lines, each with {parts}. Answer the question after it by counting.\n\n"
    "The lines{context}\n\nQuestion: {question} Answer with {form} alone."
)
PARTS = {
    True: "a user, an item and the label of the item",
    False: f"a user and an item. Every item has one of the labels {', '.join(LABELS[:-1])} and {LABELS[-1]}, which is "
    "not written: decide it yourself",
}
QUESTIONS = {
    "count": ("How many lines have an item of the label {label}?", "a number"),
    "user": ("How many lines of user {user} have an item of the label {label}?", "a number"),
    "most": ("Which label has the most lines?", "a label"),
}
ANSWER = " Answer:"
LINE = re.compile(r"\nUser (\d+) \| (\w+)")
NUMBER = re.compile(r"\d[\d,]*")
PER_ONE = 0.75  # of Oolong's score for each one by which a number is wrong
MOST_DIGITS = 18  # of a number that can be nearly right
TRIES = 50  # at a list with one most frequent label, of the exact length


class Asked(NamedTuple):
    """What is drawn for one sample, before its lines."""

    users: np.ndarray  # (OF_SAMPLE,) places in USERS
    chances: np.ndarray  # (labels,)
    user: int
    label: str


@dataclass(frozen=True)
class Tally(QuestionSet):
    """Counts over many lines: of a label, of a label of one user, or the label that most lines have."""

    answer_tokens: ClassVar[int] = 16
    question: Literal["count", "user", "most"] = "count"
    labelled: bool = True  # whether labels are written

    def __post_init__(self) -> None:
        if self.question not in QUESTIONS:
            raise UserError(f"There is no tally '{self.question}': {closest(self.question, list(QUESTIONS))}")

    @property
    def name(self) -> str:
        return f"tallies_{self.question}" + ("" if self.labelled else "_unlabelled")

    def version(self, flavour: str) -> int:
        return 2 if self.question == "user" else 1  # scores: an answer may name the user of the question first

    def builder(self, setting: Setting) -> Tallies:
        return Tallies(setting, self)

    def answer(self, rng: np.random.Generator) -> str:
        return f" {rng.integers(100_000)} lines."

    def score(self, prediction: str, references: Sequence[str]) -> Score:
        """Scores the first line: a label whole; of the first number, Oolong's 0.75 to the power of its error.

        Where a user is asked about, a user's number before another number is no answer.
        """
        if self.question == "most":
            return exactly(prediction, references, LABELS)
        found = [number.replace(",", "").lstrip("0") or "0" for number in NUMBER.findall(first_line(prediction))]
        while self.question == "user" and len(found) > 1 and found[0] in NAMED and found[0] != references[0]:
            del found[0]
        if not found:
            return Score(0.0, 0.0)
        wrong = 1000 if len(found[0]) > MOST_DIGITS else abs(int(found[0]) - int(references[0]))
        return Score(PER_ONE ** min(wrong, 1000), float(wrong == 0))

    def candidates(self, text: str) -> list[str]:
        """Lists the labels of all lines, written or not."""
        return [LABEL_OF[item] for _, item in LINE.findall(text)]

    def guess(self, text: str, count: int, rng: np.random.Generator) -> str:
        """Guesses any label; as a number, the even share of a label, or of a label of one user."""
        if self.question == "most":
            return super().guess(text, count, rng)
        lines = LINE.findall(text)
        users = len({user for user, _ in lines}) if self.question == "user" else 1
        return str(round(len(lines) / len(LABELS) / max(users, 1)))

    def copy_last(self, text: str, count: int) -> str:
        """Takes the label of the last line; as a number, that line alone."""
        return super().copy_last(text, count) if self.question == "most" else "1"

    def is_final(self, text: str) -> bool:
        return has_first_line(text)


class Tallies:
    """Builds samples of one kind of tally at one length."""

    def __init__(self, setting: Setting, task: Tally) -> None:
        self.setting, self.task, self.composer = setting, task, setting.composer
        before, after = setting.around
        question, form = QUESTIONS[task.question]
        filled = TASK.replace("{parts}", PARTS[task.labelled]).replace("{question}", question).replace("{form}", form)
        whole = before + filled + after + ANSWER
        self.head, _, self.rest = whole.partition("{context}")
        self.items = list(LABEL_OF)
        texts = [f"\nUser {user} | {item}" for user in USERS for item in self.items]
        if task.labelled:
            texts = [f"{text} | {LABEL_OF[text.rpartition(' ')[2]]}" for text in texts]
        self.table = self.composer.clean_table(texts, "a", "\n")
        labels = np.array([LABELS.index(LABEL_OF[item]) for item in self.items])
        self.labels = np.tile(labels, len(USERS))  # (texts,) of the table
        self.users = np.repeat(np.arange(len(USERS)), len(self.items))

    def draft(self, index: int, room: int) -> PromptDraft:
        """Drafts sample `index`, of at most `room` tokens."""
        rng = self.setting.rng(index)
        asked = Asked(
            users=rng.permutation(len(USERS))[:OF_SAMPLE],
            chances=np.array(CHANCES)[rng.permutation(len(CHANCES))],
            user=int(rng.integers(OF_SAMPLE)),
            label=LABELS[rng.integers(len(LABELS))],
        )
        rest = self.rest.replace("{user}", str(USERS[asked.users[asked.user]])).replace("{label}", asked.label)
        head = self.composer.known(self.head)
        one = Order(self.table, np.zeros(1, np.int64))
        left = room - self.composer.size([*head, one, rest]) + one.size
        for _ in range(TRIES):
            if left < int(self.table.sizes.max()):
                raise too_short(room, room - left + int(self.table.sizes.max()))
            order = self._lines(asked, left, rng)
            pieces = [*head, Order(self.table, order), rest]
            over = max(self.composer.size(pieces) - room, 0)  # where tokens merge with what follows
            reference = self._reference(asked, order)
            if reference and not over:
                return PromptDraft(pieces, (reference,), (), (("lines", len(order)), ("labelled", self.task.labelled)))
            left -= over
        raise too_short(room, room + 1)

    def _lines(self, asked: Asked, left: int, rng: np.random.Generator) -> np.ndarray:
        """Draws lines of `left` tokens, or one or two fewer: (lines,) places in the table."""
        count = left // int(self.table.sizes.min()) + 1
        users = asked.users[rng.integers(OF_SAMPLE, size=count)]
        labels = rng.choice(len(LABELS), size=count, p=asked.chances)
        starts = np.array([self.items.index(items[0]) for items in ITEMS.values()])
        of_label = np.array([len(items) for items in ITEMS.values()])
        order = users * len(self.items) + starts[labels] + (rng.random(count) * of_label[labels]).astype(np.int64)
        ends = np.cumsum(self.table.sizes[order])
        size = int(np.searchsorted(ends, left, side="right"))
        groups = self.users * len(LABELS) + self.labels
        return with_longer_texts(order[:size], self.table.sizes, groups, left=left - int(ends[size - 1]), rng=rng)

    def _reference(self, asked: Asked, order: np.ndarray) -> str:
        """Counts the answer; "" where two labels have the most lines."""
        labels = self.labels[order]
        if self.task.question == "most":
            (first, most), (_, second) = (*Counter(labels.tolist()).most_common(2), (0, 0))[:2]
            return LABELS[first] if most > second else ""
        counted = labels == LABELS.index(asked.label)
        if self.task.question == "user":
            counted &= self.users[order] == asked.users[asked.user]
        return str(int(counted.sum()))
