"""Builds questions about one or two of many documents.

Answer the question based on the given documents. ... Document 1: ... Document 2: ...
Question: ... Answer:
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from levelfield.ruler.builders.question_files import QADataset, QAQuestion, hotpot, squad
from levelfield.ruler.prompt.compose import Piece, Slice
from levelfield.ruler.prompt.draws import shuffled
from levelfield.ruler.prompt.fit import DoesNotFit, PromptDraft, common_size, fill_to_budget, shrink_to_fit
from levelfield.ruler.prompt.setting import Setting
from levelfield.ruler.tasks import Questions
from levelfield.spec import UserError

INSTRUCTION = (
    "Answer the question based on the given documents. Only give me the answer and do not output any other words."
)
TASK = f"{INSTRUCTION}\n\nThe following are given documents.\n\n{{context}}\n\n{INSTRUCTION}\n\nQuestion: {{query}}"
ANSWER = " Answer:"


class Documents:
    """Builds samples of one question set at one length."""

    def __init__(self, setting: Setting, task: Questions) -> None:
        self.setting = setting
        self.composer, self.flavour = setting.composer, setting.flavour
        self.set = _read(setting, task)
        before, after = setting.around
        self.head, _, self.rest = (before + TASK + after + ANSWER).partition("{context}")
        self.bodies = self.composer.table([text + "\n\n" for text in self.set.documents], ":\n", "Document")
        titles = [f"Document {i + 1}:\n" for i in range(len(self.set.documents) + 1)]
        self.titles = self.composer.clean_table(titles, ".\n\n", "A")
        self.usable: np.ndarray | None = None
        self.size = 0
        if not self.flavour.exact:
            rng = setting.rng("search")
            by = self.flavour.document_step
            high = int(setting.length / (self._searched(10, rng) / 10) * 3)
            most = len(self.set.documents) if self.flavour.search == "linear" else None
            search = lambda n: self._searched(n, rng)  # noqa: E731
            self.size = common_size(self.flavour, search, setting.room, step=by, high=high, most=most)

    def draft(self, index: int, room: int) -> PromptDraft:
        """Drafts sample `index`, of at most `room` tokens."""
        rng = self.setting.rng(index)
        if not self.flavour.exact:
            if index >= len(self.set.questions):
                raise DoesNotFit(f"There are {len(self.set.questions)} questions: ask for no more samples than that.")
            question = self.set.questions[index]
            by = self.flavour.document_step
            return shrink_to_fit(lambda size: self._drawn(question, size, rng), self.composer, room, self.size, by)
        return self._filled(self._question(index), rng, room)

    def _question(self, index: int) -> QAQuestion:
        """Chooses a question for `sound`, in an order drawn with the seed; questions that are too long are left out.

        The order is of all questions, so that an index has the same one at every length, with every tokenizer, at which
        it fits.
        """
        questions = self.set.questions
        if self.usable is None:
            sizes = [sum(int(self.bodies.sizes[i]) + 10 for i in q.needed) for q in questions]
            fixed = self.composer.size([self.head, self.rest])
            fits = np.array(sizes) + fixed + 40 <= self.setting.room
            self.usable = _in_place(self.setting.rng("questions").permutation(len(fits)), fits)
        if index >= len(self.usable):
            raise DoesNotFit(
                f"{len(self.usable)} questions fit into {self.setting.length} tokens: ask for fewer samples, or give a "
                "longer length or a larger file."
            )
        return questions[self.usable[index]]

    def _drawn(self, question: QAQuestion, size: int, rng: np.random.Generator) -> PromptDraft:
        """Drafts a sample of `size` documents, chosen and ordered as in RULER."""
        total = len(self.set.documents)
        gold, near = list(question.gold), list(question.near)
        if size >= total:
            chosen = (
                (list(range(total)) * -(-size // total))[:size]
                if self.flavour.search == "binary"
                else list(range(total))
            )
        elif size < len(gold):
            if self.flavour.search == "binary":
                raise DoesNotFit(
                    f"The question's {len(gold)} documents do not fit into {self.setting.length} tokens, and RULER "
                    "would try for ever: give a longer length."
                )
            chosen = _sample(gold, size, rng)
        elif size - len(gold) > len(near):
            used = np.zeros(total, bool)
            used[gold + near] = True
            chosen = gold + near + _sample(np.flatnonzero(~used).tolist(), size - len(gold) - len(near), rng)
        else:
            chosen = gold + _sample(near, size - len(gold), rng)
        return self._made(question, [chosen[i] for i in shuffled(len(chosen), self.setting.seed)], "", None)

    def _searched(self, size: int, rng: np.random.Generator) -> int:
        """Counts the tokens of a new sample of the first question; `paper` counts the answers too, as a list."""
        draft = self._drawn(self.set.questions[0], size, rng)
        return self.composer.size(
            [*draft.pieces, f" {list(draft.references)}"] if self.flavour.search == "linear" else draft.pieces
        )

    def _filled(self, question: QAQuestion, rng: np.random.Generator, room: int) -> PromptDraft:
        """Fills the room with the needed documents, then the question's other ones, its article's, and others, in
        random order. The last one is cut short, but never a needed one."""
        total = len(self.set.documents)
        needed = list(question.needed)
        own = [i for i in question.gold if i not in needed]
        seen = {*needed, *own, *question.near}
        others = [i for i in rng.permutation(total).tolist() if i not in seen]
        queue = needed + _sample(own, len(own), rng) + _sample(list(question.near), len(question.near), rng) + others
        costs = np.cumsum(self.bodies.sizes[queue] + self.titles.sizes[: len(queue)])
        ranks = rng.permutation(total + 1)

        def build(size: int, tail: str) -> PromptDraft:
            shown = queue[: size + bool(tail)]
            order = np.argsort(ranks[: len(shown)], kind="stable")
            cut = int(np.flatnonzero(order == size)[0]) if tail else None
            return self._made(question, [shown[i] for i in order], tail, cut)

        found = fill_to_budget(
            build,
            self.composer,
            room,
            units_within=lambda tokens: int(np.searchsorted(costs, tokens + costs[len(needed) - 1], side="right")),
            following=lambda size: self.set.documents[queue[size]] if size < total else "",
            least=len(needed),
        )
        tokens = self.composer.size(found.pieces)
        if len(costs) and tokens < room and self._shown(found) >= total:
            raise DoesNotFit(
                f"All {total} documents fill {tokens} of {room} tokens: give the whole question file, or a shorter "
                "length."
            )
        return found

    @staticmethod
    def _shown(draft: PromptDraft) -> int:
        return int(dict(draft.slices)["documents"])

    def _made(self, question: QAQuestion, shown: Sequence[int], tail: str, cut: int | None) -> PromptDraft:
        """Builds the prompt of these documents; the one at position `cut` is cut short to `tail`."""
        pieces: list[str | Piece] = [self.head]
        ends: list[int] = []
        for place, document in enumerate(shown):
            pieces.append(self._title(place))
            if place == cut:
                pieces.append(tail + "\n\n")
            elif document in self.bodies.dirty or place + 1 == len(shown):
                pieces.append(self.bodies.texts[document])
            else:
                pieces.append(Slice(self.bodies, document, document + 1))
            ends.append(int(self.bodies.sizes[document]))
        before, after = self.rest.split("{query}")
        pieces[-1] = _text(pieces[-1]).removesuffix("\n\n") + before + question.text + after
        total = max(sum(ends), 1)
        starts = np.cumsum([0, *ends]) / total
        depths = tuple(float(starts[list(shown).index(i)]) for i in question.needed if i in shown)
        gold = next((place for place, i in enumerate(shown) if i in question.needed), -1)
        slices = (("documents", len(shown)), ("gold", gold))
        return PromptDraft(pieces, question.answers, depths, slices)

    def _title(self, place: int) -> str | Piece:
        """Returns the title of a document. Repeated documents have numbers beyond the table."""
        if place < len(self.titles):
            return Slice(self.titles, place, place + 1)
        return f"Document {place + 1}:\n"


def _text(piece: str | Piece) -> str:
    return piece if isinstance(piece, str) else piece.text()


def _in_place(order: np.ndarray, fits: np.ndarray) -> np.ndarray:
    """Returns the (count,) questions that fit, in places 0 to count - 1 of the (n,) order; fits: (n,) bool.

    Each of them that is there stays where it is, and the others, from the last on, take the places of those that do
    not fit.
    """
    fitting = fits[order]
    count = int(fitting.sum())
    found = order[:count].copy()
    found[~fitting[:count]] = order[count:][fitting[count:]][::-1]
    return found


def _sample(values: list[int], count: int, rng: np.random.Generator) -> list[int]:
    return [values[i] for i in rng.permutation(len(values))[:count]]


def _read(setting: Setting, task: Questions) -> QADataset:
    path = setting.sources.squad if task.dataset == "squad" else setting.sources.hotpot
    official = {"squad": "dev-v2.0.json", "hotpot": "hotpot_dev_distractor_v1.json"}[task.dataset]
    if path is None:
        raise UserError(
            f"{task.name} needs the official file {official}: give its path as Sources({task.dataset}=...)."
        )
    return squad(path) if task.dataset == "squad" else hotpot(path)
