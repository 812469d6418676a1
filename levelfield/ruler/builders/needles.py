"""Builds needles in a haystack: the eight NIAH tasks, and any other combination of a Needle's fields.

Some special magic numbers are hidden within the following text. ...
... One of the special magic numbers for tense-harbor is: 7319284. ...
What are all the special magic numbers for tense-harbor mentioned in the provided text? The special magic ... are
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from levelfield.ruler import sources
from levelfield.ruler.builders.haystack import Essay, Haystack, NeedleLines, RepeatedHaystack
from levelfield.ruler.builders.needle_parts import AskedKeys, Parts
from levelfield.ruler.prompt.compose import Piece
from levelfield.ruler.prompt.draws import NEEDLE, KeyValueSampler, shuffled
from levelfield.ruler.prompt.fit import DoesNotFit, PromptDraft, common_size, fill_to_budget, shrink_to_fit
from levelfield.ruler.prompt.setting import Setting
from levelfield.ruler.prompt.templates import TEMPLATES
from levelfield.ruler.tasks import Needle

TASK = (
    "Some special magic {kind} are hidden within the following text. Make sure to memorize it. I will quiz you about "
    "the {kind} afterwards.\n{context}\n"
    "What are all the special magic {kind} for {query} mentioned in the provided text?"
)
ANSWER = " The special magic {kind} for {query} mentioned in the provided text are"
GRID = np.round(np.linspace(0, 100, num=40)).astype(int)  # depths in percent


@dataclass(frozen=True)
class Plan:
    """What is drawn for one sample, before its length."""

    needles: tuple[str, ...]  # in the order of the text
    shares: tuple[float, ...]  # of the haystack before each, ascending; () where places are drawn with the length
    asked: tuple[int, ...]  # the needles asked for, in the order of the references
    query: str
    references: tuple[str, ...]
    hay: Haystack


class Needles:
    """Builds samples of one needle task at one length."""

    def __init__(self, setting: Setting, task: Needle) -> None:
        self.setting, self.task = setting, task
        self.composer, self.flavour = setting.composer, setting.flavour
        self.sampler = KeyValueSampler(plain=self.flavour.exact)
        self.head, self.rest = self._prompt()
        self.hay = self._hay()
        self.lead = NEEDLE.partition(" {key}")[0].format(kind=task.value + "s")
        self.known = self.hay.known() if isinstance(self.hay, NeedleLines) else frozenset()
        self.by = self._step()
        self.size = 0
        if not self.flavour.exact:
            rng = setting.rng("search")
            high = int(setting.length / (self._searched(self.by, rng) / self.by) * 3)
            search = lambda n: self._searched(n, rng)  # noqa: E731
            self.size = common_size(self.flavour, search, setting.room, step=self.by, high=high)

    def draft(self, index: int, room: int) -> PromptDraft:
        """Drafts sample `index`, of at most `room` tokens."""
        rng = self.setting.rng(index)
        if not self.flavour.exact:
            return shrink_to_fit(
                lambda size: self._built(self._plan(rng), size, "", rng), self.composer, room, self.size, self.by
            )
        plan = self._plan(rng)
        return fill_to_budget(
            lambda size, tail: self._built(plan, size, tail, rng),
            self.composer,
            room,
            units_within=plan.hay.units_within,
            following=plan.hay.following,
        )

    def _hay(self) -> Essay | RepeatedHaystack | NeedleLines | Parts:
        match self.task.haystack:
            case "essay":
                return Essay.of(self.composer, sources.essays(self.setting.sources.essays))
            case "noise":
                return RepeatedHaystack.of(self.composer, self.setting.length)
            case "needles":
                rng, task = self.setting.rng("pool"), self.task
                if self.flavour.exact:
                    return Parts.of(self.composer, self.sampler, (task.key, task.value), rng)
                return NeedleLines.of(self.composer, self.sampler, (task.key, task.value), self.setting.length, rng)

    def _step(self) -> int:
        if self.task.depth is not None:  # huang2024's ablation, which fits more finely
            return 5
        if self.task.haystack == "essay":
            return self.flavour.essay_step
        return self.flavour.line_step if self.setting.length >= 4096 else 5

    def _searched(self, size: int, rng: np.random.Generator) -> int:
        """Counts the tokens of a new sample of that size; `paper` counts the answers too."""
        draft = self._built(self._plan(rng), size, "", rng)
        extra = [" ".join(draft.references)] if self.flavour.search == "linear" else []
        return self.composer.size([*draft.pieces, *extra])

    def _plan(self, rng: np.random.Generator) -> Plan:
        task = self.task
        count = max(task.keys, task.queries)
        asked_parts = self.hay.asked(count, task.values, rng) if isinstance(self.hay, Parts) else None
        keys, values = self._drawn(count, rng, asked_parts)
        pairs = [(k, v) for k, of_key in zip(keys, values) for v in of_key]
        chosen = rng.permutation(count)[: task.queries]
        asked = [(keys[i], v) for i in chosen for v in values[i]]
        order = shuffled(len(pairs), self.setting.seed) if self.flavour.fixed_order else rng.permutation(len(pairs))
        if self.flavour.fixed_order and task.haystack != "essay":
            order = order[::-1]  # RULER inserts them from the last line to the first
        placed = [pairs[i] for i in order]
        kind = task.value + "s"
        query = ", ".join(keys[i] for i in chosen)
        if task.queries > 1:
            query = ", ".join(keys[i] for i in chosen[:-1]) + ", and " + keys[chosen[-1]]
        return Plan(
            needles=tuple(NEEDLE.format(kind=kind, key=k, value=v) for k, v in placed),
            shares=tuple(sorted(rng.random(len(placed)).tolist()))
            if task.depth is None
            else (task.depth,) * len(placed),
            asked=tuple(placed.index(pair) for pair in asked),
            query=query,
            references=tuple(v for _, v in asked),
            hay=self._of_sample(rng, asked_parts),
        )

    def _drawn(
        self, count: int, rng: np.random.Generator, asked: AskedKeys | None
    ) -> tuple[list[str], list[list[str]]]:
        """Returns the keys, and the values of each."""
        if asked is not None:
            return [key for key, _ in asked.texts], [values for _, values in asked.texts]
        keys = self.sampler.distinct(self.task.key, count, rng, self.known)
        return keys, [self.sampler.distinct(self.task.value, self.task.values, rng, frozenset()) for _ in keys]

    def _of_sample(self, rng: np.random.Generator, asked: AskedKeys | None) -> Haystack:
        if isinstance(self.hay, Parts):
            assert asked is not None
            return self.hay.lines(self.setting.length, rng, asked)
        if isinstance(self.hay, NeedleLines):
            return self.hay.drawn(rng)
        if isinstance(self.hay, Essay) and self.flavour.exact:
            return self.hay.from_sentence(int(rng.integers(len(self.hay.sentences))))
        return self.hay

    def _places(self, plan: Plan, size: int, units: int, rng: np.random.Generator) -> list[int]:
        """Returns the unit before which each needle goes, ascending. `units` counts a tail, which stays whole."""
        count, depth = len(plan.needles), self.task.depth
        if self.flavour.exact:
            lines = not isinstance(plan.hay, Essay)
            found = [plan.hay.boundary(share, units if lines else size) for share in plan.shares]
            return [units if place == size and not lines else place for place in found]
        if isinstance(plan.hay, Essay):
            begins = np.append(plan.hay.sentences_in(size), size)
            shares = [depth] * count if depth is not None else (rng.choice(GRID, count, replace=False) / 100).tolist()
            return sorted(int(begins[int((len(begins) - 1) * share)]) for share in shares)
        if depth is not None:
            return [int(size * depth)] * count
        if count > size:
            raise DoesNotFit(f"{count} needles need as many lines, and there are {size}: give a longer length.")
        return sorted(rng.choice(size, count, replace=False).tolist())

    def _built(self, plan: Plan, size: int, tail: str, rng: np.random.Generator) -> PromptDraft:
        hay, units = plan.hay, size + bool(tail)
        places = self._places(plan, size, units, rng)
        chunks: list[list[str | Piece]] = []
        for begin, end, needle in zip([0, *places], [*places, units], [*plan.needles, ""]):
            stretch = hay.text_between(begin, min(end, size))
            if tail and end == units > begin:
                stretch = [*stretch, hay.joiner if stretch else "", *self._line(tail)]
            chunks += [stretch, self._line(needle)] if needle else [stretch]
        if self.flavour.exact or not isinstance(hay, Essay):  # RULER joins empty stretches of essays too
            chunks = [chunk for chunk in chunks if chunk]
        context: list[str | Piece] = []
        for i, chunk in enumerate(chunks):
            context += [hay.joiner if i else "", *chunk]
        pieces = [*self.composer.known(self.head), *context, *self.composer.slotted(self.rest, plan.query)]
        depths = [hay.share(min(place, size), size) for place in places]
        return PromptDraft(pieces, plan.references, tuple(depths[i] for i in plan.asked), self._slices(len(places)))

    def _line(self, text: str) -> list[str | Piece]:
        """Makes the pieces of a needle, or of its beginning. What all needles begin with is tokenised once, so that the
        line before is not tokenised again for each length that is tried."""
        if not self.flavour.exact or self.task.haystack != "needles" or not text.startswith(self.lead):
            return [text]
        return [*self.composer.known(self.lead), text.removeprefix(self.lead)]

    def _slices(self, needles: int) -> tuple[tuple[str, str | int | float], ...]:
        task = self.task
        essays = self.setting.sources.haystack if task.haystack == "essay" else ""
        found = {"haystack": task.haystack, "essays": essays, "key": task.key, "value": task.value, "needles": needles}
        return tuple((name, value) for name, value in found.items() if value != "")

    def _prompt(self) -> tuple[str, list[str]]:
        """Returns the text before the context, and the text after it, split where the query goes."""
        before, after = self.setting.around
        kind = self.task.value + "s"
        if self.task.queries * self.task.values == 1:
            kind = self.task.value
            whole = self._singular(TASK), self._singular(ANSWER)
            if not self.flavour.exact and self.setting.template in TEMPLATES:  # RULER rewrites its words too
                before, after = self._singular(before), self._singular(after)
        else:
            whole = TASK, ANSWER
        head, _, rest = (before + whole[0] + after + whole[1]).replace("{kind}", kind).partition("{context}")
        return head, rest.split("{query}")

    @staticmethod
    def _singular(text: str) -> str:
        for many, one in (("Some", "A"), ("are all", "is"), ("are", "is"), ("answers", "answer")):
            text = text.replace(many, one)
        return text
