"""Builds chains of variable assignments in lines of noise, after one solved example.

VAR QWERT = 40981 ... VAR ASDFG = VAR QWERT ...
Question: Find all variables that are assigned the value 40981 in the text above.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from levelfield.ruler.builders.haystack import RepeatedHaystack
from levelfield.ruler.prompt.compose import Piece, Pieces
from levelfield.ruler.prompt.draws import variables
from levelfield.ruler.prompt.fit import PromptDraft, common_size, fill_to_budget, shrink_to_fit
from levelfield.ruler.prompt.setting import Setting
from levelfield.ruler.tasks import Tracking

TASK = (
    "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n{context}\n"
    "Question: Find all variables that are assigned the value {query} in the text above."
)
ANSWER = (
    " Answer: According to the chain(s) of variable assignment in the text above, {count} variables are assigned the "
    "value {query}, they are: "
)
EXAMPLE_ROOM = 500  # tokens RULER gives the example
EXAMPLE_SHARE = 4  # in `sound` it is at most this part of the prompt


@dataclass(frozen=True)
class Chain:
    """Names, the value, and where statements go, as shares of the lines; () if that is drawn with the length."""

    names: tuple[str, ...]
    value: str
    shares: tuple[float, ...] = ()

    def statements(self) -> list[str]:
        """Writes the assignments, with the space that RULER leaves after all but the first."""
        links = [f"VAR {b} = VAR {a} " for a, b in zip(self.names, self.names[1:])]
        return [f"VAR {self.names[0]} = {self.value}", *links]


class Trackings:
    """Builds samples of variable tracking at one length."""

    def __init__(self, setting: Setting, task: Tracking) -> None:
        self.setting, self.task = setting, task
        self.composer, self.flavour = setting.composer, setting.flavour
        self.paper = self.flavour.search == "linear"
        tokens = max(setting.length, EXAMPLE_ROOM)
        layout = ("\n ", "\n", " ") if self.paper else ("\n", "", "\n")
        self.noise = RepeatedHaystack.of(self.composer, tokens, *layout)
        self.answer = ANSWER.replace("assigned", "assgined") if self.paper else ANSWER
        self.links = task.hops + 1
        rng = setting.rng("example")
        self.example_lines = self._example_lines(rng)
        self.example = self._chain(3, rng)
        self.example_places = tuple(self._places(self.example, self.example_lines, rng))
        self.by = self._step()
        self.size = 0
        if not self.flavour.exact:
            rng = setting.rng("search")
            chain = self._chain(5, rng)
            each = self.composer.size(self._question(chain, self._places(chain, self.by, rng), self.by, "")) / self.by
            high = int(setting.length / each * 3)
            search = lambda n: self._searched(n, rng)  # noqa: E731
            self.size = common_size(self.flavour, search, setting.room, step=self.by, high=high)

    def draft(self, index: int, room: int) -> PromptDraft:
        """Drafts sample `index`, of at most `room` tokens."""
        rng = self.setting.rng(index)
        if not self.flavour.exact:
            return shrink_to_fit(lambda size: self._drawn(size, rng), self.composer, room, self.size, self.by)
        chain, example = self._chain(5, rng), self._chain(3, rng)
        lines = self.example_lines
        solved = self.composer.joined(self._solved(example, self._places(example, lines, rng), lines))
        noise = self.noise
        return fill_to_budget(
            lambda size, tail: self._built(chain, self._places(chain, size, rng), size, tail, solved),
            self.composer,
            room,
            units_within=noise.units_within,
            following=noise.following,
        )

    def _step(self) -> int:
        wide = self.flavour.tracking_step
        return 5 if wide > 5 and self.setting.length < 4096 else wide

    def _chain(self, size: int, rng: np.random.Generator) -> Chain:
        names = variables(self.links, size, rng)
        shares = np.sort(rng.random(self.links)) if self.flavour.exact else ()
        return Chain(tuple(names), str(rng.integers(10_000, 99_999)), tuple(float(s) for s in shares))

    def _places(self, chain: Chain, size: int, rng: np.random.Generator) -> list[int]:
        """Returns the line before which each statement goes."""
        if self.flavour.exact:
            return [self.noise.boundary(share, size) for share in chain.shares]
        return sorted(rng.choice(max(size, self.links), self.links, replace=False).tolist())

    def _drawn(self, size: int, rng: np.random.Generator) -> PromptDraft:
        """Draws a new sample as RULER does: the example keeps its lines; in `official` its names and value are new."""
        chain = self._chain(5, rng)
        example = self.example if self.paper else self._chain(3, rng)
        solved = self._solved(example, self.example_places, self.example_lines)
        return self._built(chain, self._places(chain, size, rng), size, "", solved)

    def _searched(self, size: int, rng: np.random.Generator) -> int:
        """Counts the tokens of a new sample of that size; `paper` counts the answer too, printed as a list."""
        draft = self._drawn(size, rng)
        return self.composer.size([*draft.pieces, f" {list(draft.references)}"] if self.paper else draft.pieces)

    def _example_lines(self, rng: np.random.Generator) -> int:
        """Finds how many lines of noise fit RULER's 500 tokens, in `sound` a share of the room.

        In `paper` they grow by fives, and the answer counts twice: its budget, and its names, printed as a list. Never
        fewer than a few, where RULER would retry for ever.
        """
        exact = self.flavour.exact
        room = min(EXAMPLE_ROOM, self.setting.room // EXAMPLE_SHARE) if exact else EXAMPLE_ROOM
        room -= self.setting.answer_tokens if self.paper else 0
        by = 5 if self.paper else 1
        chain = self._chain(3, rng)
        task, names = (self._collapsed(), [f" {list(chain.names)}"]) if self.paper else (TASK, [])

        def tokens(size: int) -> int:
            return self.composer.size([*self._question(chain, self._places(chain, size, rng), size, "", task), *names])

        size = 1 if exact else 5
        while tokens(size + by) <= room:
            size += by
        return size

    def _collapsed(self) -> str:
        """Returns the example's task in `paper`, which loses a word and its line ends, with the chat template."""
        return " ".join((TASK + self.setting.around[1]).split()[:-1])

    def _context(self, chain: Chain, places: list[int] | tuple[int, ...], size: int, tail: str) -> list[str | Piece]:
        joiner = self.noise.joiner
        found: list[str | Piece] = []
        for begin, end, statement in zip([0, *places], [*places, size], [*chain.statements(), ""]):
            for chunk in (self.noise.text_between(begin, min(end, size)), [statement] if statement else []):
                if chunk:  # there is no noise before a statement at line 0, nor between two at one place
                    found += [joiner, *chunk] if found else chunk
        return [*found, joiner, tail] if tail else found

    def _question(
        self, chain: Chain, places: list[int] | tuple[int, ...], size: int, tail: str, task: str = TASK
    ) -> list[str | Piece]:
        """Builds context and question of one chain, without a template, up to the beginning of the answer."""
        head, _, rest = (task + self.answer).replace("{count}", str(self.links)).partition("{context}")
        context = self._context(chain, places, size, tail)
        return [*self.composer.known(head), *context, *self.composer.slotted(rest.split("{query}"), chain.value)]

    def _solved(self, chain: Chain, places: list[int] | tuple[int, ...], size: int) -> Pieces:
        """Builds the example with its answer."""
        task = self._collapsed() if self.paper else TASK
        gap = "\n\n\n\n" if self.paper else "\n\n"
        lead = " " if self.paper else ""
        return [lead, *self._question(chain, places, size, "", task), " " + " ".join(chain.names) + gap]

    def _built(self, chain: Chain, places: list[int], size: int, tail: str, solved: Pieces) -> PromptDraft:
        before, after = self.setting.around
        pieces = [before, *solved, *self._question(chain, places, size, tail, TASK + after)]
        depths = tuple(self.noise.share(min(place, size), size) for place in places)
        slices = (("haystack", "noise"), ("hops", self.task.hops))
        return PromptDraft(pieces, chain.names, depths, slices)
