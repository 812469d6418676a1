"""Generates greedily for many prompts at once: the same tokens as one by one, in less time.

    generate(model, prompts, budgets=128)                                # always 128 tokens
    generate(model, prompts, [4, 30], stop=ends_with(model.eos_ids))     # or fewer, where the model ends

Four things save time. None changes a token, except for rounding where two logits are nearly equal:
  * prompts of similar length form a batch; a longer one is still being read while the others generate, so all rows
    are at the same step and nothing is padded;
  * common prefixes are read once (`levelfield.pretrained.shared_prefixes`);
  * prompts are read in chunks, and logits are computed for the last token only;
  * a row that is done leaves the batch at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from levelfield.pretrained.language_model import LanguageModel
from levelfield.pretrained.shared_prefixes import PrefixNode, prefix_tree
from levelfield.spec import UserError

Ids = Sequence[int] | np.ndarray
Stop = Callable[[int, Sequence[int]], bool]
"""stop(index of the prompt, ids generated so far): whether the row is done. It is called after every generated id."""


def never_stop(prompt: int, made: Sequence[int]) -> bool:
    """A Stop that lets every row use its whole budget."""
    return False


def ends_with(tokens: Collection[int]) -> Stop:
    """Returns a Stop that ends a row at any of these ids."""
    return lambda prompt, made: made[-1] in tokens


def any_of(*stops: Stop) -> Stop:
    """Returns a Stop that ends a row when any of these does."""
    return lambda prompt, made: any(stop(prompt, made) for stop in stops)


@dataclass(frozen=True)
class Batching:
    """How prompts are put into batches. Raises UserError for limits that no batch meets.

    rows: at most so many in a batch. tokens: rows times tokens of a row, at most, which bounds the memory of keys and
    values. max_length_gap: by how many tokens prompts of a batch may differ in length. min_prefix_saving: how many
    tokens a common prefix must save, else it is read again for each prompt.
    """

    rows: int = 64
    tokens: int = 1 << 19
    max_length_gap: int = 32
    min_prefix_saving: int = 256

    def __post_init__(self) -> None:
        if min(self.rows, self.tokens, self.min_prefix_saving) < 1 or self.max_length_gap < 0:
            raise UserError(
                "Batching needs rows, tokens and min_prefix_saving of at least 1, and max_length_gap of at least 0."
            )


NEVER_SHARED = 1 << 62  # a saving that no prefix reaches
ONE_BY_ONE = Batching(rows=1, max_length_gap=0, min_prefix_saving=NEVER_SHARED)


@dataclass
class _Row:
    """One prompt: its index, its ids, how many ids to generate, and those generated so far."""

    number: int
    prompt: Ids
    budget: int
    made: list[int] = field(default_factory=list)


class _Prefilled(NamedTuple):
    """Rows whose prompts were read up to a common length, with logits (rows, vocabulary) and the state after it."""

    rows: list[_Row]
    logits: Tensor
    state: Any


def generate(
    model: LanguageModel,
    prompts: Sequence[Ids],
    budgets: int | Sequence[int],
    stop: Stop = never_stop,
    batching: Batching = Batching(),
) -> list[list[int]]:
    """Returns the ids generated after each prompt, up to its budget or the id at which `stop` holds, which is included.

    A row whose logits are NaN or infinite ends there, short of its budget. Raises UserError for an empty prompt, and
    for more tokens than the model takes.
    """
    found = dict(generate_iter(model, prompts, budgets, stop, batching))
    return [found[i] for i in range(len(prompts))]


def generate_iter(
    model: LanguageModel,
    prompts: Sequence[Ids],
    budgets: int | Sequence[int],
    stop: Stop = never_stop,
    batching: Batching = Batching(),
) -> Iterator[tuple[int, list[int]]]:
    """Yields what `generate` returns as (index of the prompt, ids), in the order in which rows are done."""
    each = [budgets] * len(prompts) if isinstance(budgets, int) else list(budgets)
    rows = [_Row(i, prompt, budget) for i, (prompt, budget) in enumerate(zip(prompts, each, strict=True))]
    for row in rows:
        if not len(row.prompt):
            raise UserError("A prompt of no tokens cannot be continued: give at least one.")
        model.check_length(len(row.prompt) + row.budget)
    yield from ((row.number, []) for row in rows if row.budget < 1)
    max_gap = batching.max_length_gap if model.supports_mixed_lengths else 0
    for group in _groups([row for row in rows if row.budget >= 1], max_gap):
        yield from _generate_group(model, group, stop, batching)


def _groups(rows: Sequence[_Row], max_gap: int) -> Iterator[list[_Row]]:
    """Groups rows whose prompts differ in length by at most `max_gap` tokens, the shortest first."""
    group: list[_Row] = []
    for row in sorted(rows, key=lambda row: len(row.prompt)):
        if group and len(row.prompt) - len(group[0].prompt) > max_gap:
            yield group
            group = []
        group.append(row)
    if group:
        yield group


@torch.no_grad()
def _generate_group(
    model: LanguageModel, rows: list[_Row], stop: Stop, batching: Batching
) -> Iterator[tuple[int, list[int]]]:
    """Reads as much of every prompt as the shortest has, then generates in batches as large as allowed."""
    length = len(rows[0].prompt)
    longest = max(len(row.prompt) + row.budget for row in rows)
    most = max(1, min(batching.rows, batching.tokens // longest))
    min_saving = batching.min_prefix_saving if model.supports_chunked_prefill else NEVER_SHARED
    waiting: list[_Prefilled] = []
    for part in _Prefill(model, rows, length, min_saving).parts(most):
        if waiting and sum(len(w.rows) for w in waiting) + len(part.rows) > most:
            yield from _decode_joined(model, waiting, length, stop)
            waiting = []
        waiting.append(part)
        del part  # `waiting` alone holds its state, so that joining can free it
    yield from _decode_joined(model, waiting, length, stop)


class _Prefill:
    """Reads the first `length` tokens of every prompt, each common prefix once."""

    def __init__(self, model: LanguageModel, rows: list[_Row], length: int, min_saving: int) -> None:
        self.model, self.rows, self.length = model, rows, length
        self.nodes = prefix_tree([row.prompt for row in rows], length, min_saving)
        self.states: dict[int, Any] = {}  # state of one row after each node that is still needed

    def parts(self, most: int) -> Iterator[_Prefilled]:
        """Yields the rows below each node of the prefix tree, at most `most` at a time."""
        children: list[list[int]] = [[] for _ in self.nodes]
        for number, node in enumerate(self.nodes[1:], 1):
            children[node.parent].append(number)
        ready = [0]
        while ready:
            number = ready.pop()
            node = self.nodes[number]
            if node.parent >= 0:
                ids = self._ids([node.example], node.begin, node.end)
                _, self.states[number] = self.model.start(ids, self._state_for_child(node.parent))
            ready += reversed(children[number])
            for first in range(0, len(node.prompts), most):
                yield self._read_on(number, node, node.prompts[first : first + most])
            if not node.children:
                self.states.pop(number, None)

    def _read_on(self, number: int, node: PrefixNode, prompts: Sequence[int]) -> _Prefilled:
        """Reads the rest of some prompts, from the end of their common prefix."""
        state = self._copies(number, len(prompts)) if number in self.states else None
        logits, state = self.model.start(self._ids(prompts, node.end, self.length), state)
        return _Prefilled([self.rows[i] for i in prompts], logits, state)

    def _state_for_child(self, number: int) -> Any:
        """Returns the state after a node, for one of its children; None at the root. The last child needs no copy."""
        if number not in self.states:
            return None
        self.nodes[number].children -= 1
        return self._copies(number, 1) if self.nodes[number].children else self.states.pop(number)

    def _copies(self, number: int, count: int) -> Any:
        """Returns the state after a node in `count` rows."""
        return self.model.rows(self.states[number], torch.zeros(count, dtype=torch.int64, device=self.model.device))

    def _ids(self, prompts: Sequence[int], begin: int, end: int) -> Tensor:
        """Returns tokens `begin` to `end` of some prompts: (prompts, end - begin) int64."""
        return torch.from_numpy(np.array([self.rows[i].prompt[begin:end] for i in prompts], dtype=np.int64))


def _decode_joined(
    model: LanguageModel, parts: list[_Prefilled], length: int, stop: Stop
) -> Iterator[tuple[int, list[int]]]:
    """Generates for all rows of these parts in one batch. Empties `parts`, so that their memory is free."""
    rows = [row for part in parts for row in part.rows]
    logits = torch.cat([part.logits for part in parts])
    state = parts[0].state if len(parts) == 1 else model.join([part.state for part in parts])
    parts.clear()
    yield from _decode(model, _Prefilled(rows, logits, model.prompted(state)), length, stop)


def _decode(model: LanguageModel, batch: _Prefilled, step: int, stop: Stop) -> Iterator[tuple[int, list[int]]]:
    """Reads one token of every row at a time: the next of its prompt, or the one that it generated last."""
    rows, logits, state = batch
    while True:
        places, following = [], []
        finite = logits.amax(-1).isfinite().tolist()  # -inf marks a token that cannot come; NaN and inf are errors
        for place, (row, token) in enumerate(zip(rows, logits.argmax(-1).tolist(), strict=True)):
            reading = step < len(row.prompt)
            if not finite[place]:
                yield row.number, row.made
                continue
            if not reading:
                row.made.append(token)
                if len(row.made) == row.budget or stop(row.number, row.made):
                    yield row.number, row.made
                    continue
            places.append(place)
            following.append(int(row.prompt[step]) if reading else token)
        if not places:
            return
        if len(places) < len(rows):
            state = model.rows(state, torch.tensor(places, device=model.device))
            rows = [rows[place] for place in places]
        logits, state = model.step(torch.tensor(following, device=model.device)[:, None], state)
        step += 1
