"""Builds lists of requests and the texts written for them, and asks for one of several texts for the same request.

Request: write a poem about herons
The pale lantern waits beside the mirror
...
Question: Give the second poem about herons, word for word. Begin with a line that has only the code 4kq0z1m8xw. Answer:

After OpenAI's MRCR (Vodrahalli et al. 2024 defined the task), scored as there: the code has to come first, and the rest
is compared letter by letter with the text that was asked for. Requests, texts and code are our own. A text does not
mention its topic, so only its request and the order of equal requests say which one is meant.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import ClassVar, NamedTuple

import numpy as np

from levelfield.ruler.prompt.compose import Order, TokenTable
from levelfield.ruler.prompt.draws import random_words
from levelfield.ruler.prompt.fit import PromptDraft, too_short
from levelfield.ruler.prompt.setting import Setting
from levelfield.ruler.prompt.swaps import with_longer_texts
from levelfield.ruler.question_set import CONTROL, QuestionSet, Score, clean
from levelfield.spec import UserError

TASK = (
    "Below are requests for short texts, each with the text that was written for it. The same request was made several "
    "times and got another text each time. Answer the question after them.\n\nRequests and texts{context}\n\n"
    "Question: Give the {nth} {kind} about {topic}, word for word. Begin with a line that has only the code {code}."
)
ANSWER = " Answer:"
REQUEST = "\n\nRequest: write a {kind} about {topic}"
ASKED = re.compile(r"Give the \w+ (\w+) about (\w+), .* the code (\w+)\.")
NTH = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
WORDS = re.compile(r"\w+")
KINDS = ("poem", "riddle", "speech", "letter", "toast", "lullaby")
TOPICS = WORDS.findall(
    "bakeries bicycles chess clocks comets dentists deserts ferries glaciers gloves harvests herons honey lighthouses "
    "maps moths onions pianos postcards snow spiders storms tailors tides trains umbrellas volcanoes whales winters"
)
FORMS = (
    "\nThe {adjective} {noun} {verb} beside the {other}",
    "\nNo {noun} {verb} as {adjective} as the {other}",
    "\nSome {adjective} {noun} {verb} under the {other}",
    "\nNow the {noun} {verb} like a {adjective} {other}",
)
ADJECTIVES = WORDS.findall(
    "bitter brittle clever crooked distant gentle golden hollow humble narrow pale patient quiet scarlet silver sudden "
    "tired velvet weary wooden"
)
NOUNS = WORDS.findall(
    "anchor basket blanket bridge candle chimney compass cottage curtain feather fountain garden harbour kettle ladder "
    "lantern marble meadow mirror needle orchard pebble pillow river shadow teapot thimble tunnel violin wagon window"
)
VERBS = WORDS.findall(
    "drifts flickers glows hums leans lingers listens murmurs rests shivers sings sleeps trembles waits wanders "
    "whispers"
)
LINES = 6  # of a text: over 200 letters, from which difflib's ratio is strict; of another, one has more or fewer
POOL = 3000  # different lines; in long prompts, those of texts that are not asked for repeat
OF_ASKED = 512  # lines of the pool, the same ones at every length, that equal requests get their texts from
CODE = 10  # letters and figures
TRIES = 8  # at a list of the exact length


@dataclass(frozen=True)
class Requests(QuestionSet):
    """The text that was written for the n-th of several equal requests, among many others."""

    answer_tokens: ClassVar[int] = 80
    repeats: int = 4  # how often the same request was made

    def __post_init__(self) -> None:
        if not 2 <= self.repeats <= len(NTH):
            raise UserError(f"A request is made 2 to {len(NTH)} times, not {self.repeats}.")

    @property
    def name(self) -> str:
        return f"requests_{self.repeats}"

    def builder(self, setting: Setting) -> RequestLists:
        return RequestLists(setting, self)

    def answer(self, rng: np.random.Generator) -> str:
        return " " + _code(rng) + "".join(_lines(rng, LINES))

    def score(self, prediction: str, references: Sequence[str]) -> Score:
        """Scores as MRCR does: 0 without the code, else difflib's ratio of what follows it, up to an empty line.

        strict: whether it is the very text, spaces and line ends aside.
        """
        code, _, wanted = references[0].partition("\n")
        text = clean(prediction.replace("\r\n", "\n"))
        if not text.startswith(code):
            return Score(0.0, 0.0)
        said = text.removeprefix(code).strip().partition("\n\n")[0].strip()
        return Score(SequenceMatcher(None, said, wanted).ratio(), float(said.split() == wanted.split()))

    def candidates(self, text: str) -> list[str]:
        """Lists the texts of the request that is asked about, each after the code."""
        before, _, question = text.rpartition("\n\nQuestion: ")
        found = ASKED.search(question)
        if found is None:
            return []
        kind, topic, code = found.groups()
        texts = re.findall(rf"{REQUEST.format(kind=kind, topic=topic)}\n(.+(?:\n.+)*)", before)
        return [f"{code}\n{each}" for each in texts]

    def is_final(self, text: str) -> bool:
        text = CONTROL.sub("\n", text.lstrip().replace("\r\n", "\n")).lstrip()
        return "\n\n" in text[CODE:].lstrip()


class Drawn(NamedTuple):
    """What is drawn for one sample, before its length. texts: (repeats, LINES) lines in the table."""

    kind: str
    topic: str
    code: str
    texts: np.ndarray
    nth: int
    shares: np.ndarray  # (repeats,) of the list before each text that is asked for


class RequestLists:
    """Builds samples of one number of equal requests at one length."""

    def __init__(self, setting: Setting, task: Requests) -> None:
        self.setting, self.task, self.composer = setting, task, setting.composer
        before, after = setting.around
        self.head, _, self.rest = (before + TASK + after + ANSWER).partition("{context}")
        requests = [REQUEST.format(kind=kind, topic=topic) for kind in KINDS for topic in TOPICS]
        lines = list(dict.fromkeys(_lines(setting.rng("lines"), POOL)))[: max(OF_ASKED + 64, setting.length // 4)]
        self.first = len(requests)  # place of the first line in the table
        self.table: TokenTable = self.composer.clean_table([*requests, *lines], "a", "\n")

    def draft(self, index: int, room: int) -> PromptDraft:
        """Drafts sample `index`, of at most `room` tokens."""
        rng = self.setting.rng(index)
        drawn = self._drawn(rng)
        asked, head, rest = self._asked(drawn), self.composer.known(self.head), self._rest(drawn)
        left = room - self.composer.size([*head, Order(self.table, asked.ravel()), rest])
        if left < 0:
            raise too_short(room, room - left)
        for _ in range(TRIES):
            order, depths = self._listed(drawn, asked, left, rng)
            pieces = [*head, Order(self.table, order), rest]
            over = self.composer.size(pieces) - room  # where tokens merge with what follows
            if over <= 0:
                answer = drawn.code + "".join(self.table.texts[i] for i in drawn.texts[drawn.nth])
                texts = int(np.count_nonzero(order < self.first))
                slices = (("repeats", self.task.repeats), ("nth", drawn.nth + 1), ("texts", texts))
                return PromptDraft(pieces, (answer,), (float(depths[drawn.nth]),), slices)
            left -= over
        raise too_short(room, room + 1)

    def _rest(self, drawn: Drawn) -> str:
        """Writes what follows the list."""
        filled = {"nth": NTH[drawn.nth], "kind": drawn.kind, "topic": drawn.topic, "code": drawn.code}
        rest = self.rest
        for slot, word in filled.items():
            rest = rest.replace("{" + slot + "}", word)
        return rest

    def _drawn(self, rng: np.random.Generator) -> Drawn:
        repeats = self.task.repeats
        return Drawn(
            kind=KINDS[rng.integers(len(KINDS))],
            topic=TOPICS[rng.integers(len(TOPICS))],
            code=_code(rng),
            texts=self.first + rng.permutation(OF_ASKED)[: repeats * LINES].reshape(repeats, LINES),
            nth=int(rng.integers(repeats)),
            shares=np.sort(rng.random(repeats)),
        )

    def _asked(self, drawn: Drawn) -> np.ndarray:
        """Returns the equal requests with their texts: (repeats, 1 + LINES) places in the table."""
        request = KINDS.index(drawn.kind) * len(TOPICS) + TOPICS.index(drawn.topic)
        return np.concatenate([np.full((len(drawn.texts), 1), request), drawn.texts], axis=1)

    def _listed(
        self, drawn: Drawn, asked: np.ndarray, left: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Puts the equal requests among others of `left` tokens: places in the table, and (repeats,) shares of the list
        before each."""
        sizes, others = self.table.sizes, self._others(drawn, asked, left, rng)
        count = int(np.searchsorted(np.cumsum(sizes[others].sum(axis=1)), left, side="right"))
        left -= int(sizes[others[:count]].sum())
        turns, last = [*others[:count]], others[count]
        part = int(np.searchsorted(np.cumsum(sizes[last]), left, side="right"))
        if part > 1:  # a text with fewer lines
            turns.append(last[:part])
            left -= int(sizes[last[:part]].sum())
        elif count and sizes[last[1]] <= left:  # a text with one more line
            turns[0] = np.append(turns[0], last[1])
            left -= int(sizes[last[1]])
        turns = [turns[i] for i in rng.permutation(len(turns))]
        groups = np.where(np.arange(len(sizes)) < self.first, -1, 0)
        groups[drawn.texts.ravel()] = -1
        if turns:
            flat = with_longer_texts(np.concatenate(turns), sizes, groups, left=left, rng=rng, once=True)
            turns = np.split(flat, np.cumsum([len(turn) for turn in turns])[:-1])
        return _merged(turns, asked, drawn.shares, sizes)

    def _others(self, drawn: Drawn, asked: np.ndarray, left: int, rng: np.random.Generator) -> np.ndarray:
        """Draws enough other requests with their texts: (requests, 1 + LINES) places in the table."""
        free = np.setdiff1d(np.arange(self.first, len(self.table)), drawn.texts)
        count = left // int(self.table.sizes[: self.first].min() + LINES * self.table.sizes[free].min()) + 8
        rounds = -(-count * LINES // len(free))
        lines = np.concatenate([rng.permutation(free) for _ in range(rounds)])[: count * LINES]
        requests = rng.integers(self.first - 1, size=count)
        requests += requests >= asked[0, 0]  # any but the one that is asked about
        return np.concatenate([requests[:, None], lines.reshape(count, LINES)], axis=1)


def _merged(
    turns: Sequence[np.ndarray], asked: np.ndarray, shares: np.ndarray, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Puts the (repeats, n) rows of `asked` before the turns at these shares of them; returns the whole list, and the
    shares of its tokens before each row."""
    places = np.round(shares * len(turns)).astype(np.int64)
    merged: list[np.ndarray] = []
    starts = []
    for begin, end, row in zip([0, *places], places, asked):
        merged += turns[begin:end]
        starts.append(sum(len(turn) for turn in merged))
        merged.append(row)
    order = np.concatenate([*merged, *turns[places[-1] :]])
    before = np.concatenate([[0], np.cumsum(sizes[order])])
    return order, before[starts] / before[-1]


def _code(rng: np.random.Generator) -> str:
    return random_words(1, CODE, rng, string.ascii_lowercase + string.digits)[0]


def _lines(rng: np.random.Generator, count: int) -> list[str]:
    """Draws lines, each with the line end before it."""
    choices = (FORMS, ADJECTIVES, NOUNS, VERBS, NOUNS)
    drawn = np.stack([rng.integers(len(words), size=count) for words in choices], axis=1)
    return [
        FORMS[form].format(adjective=ADJECTIVES[a], noun=NOUNS[n], verb=VERBS[v], other=NOUNS[o])
        for form, a, n, v, o in drawn.tolist()
    ]
