"""Greedy generation for many prompts at once: the same tokens as one by one, without the waiting.

    generate(model, prompts, budgets=128)                                # every budget to its end
    generate(model, prompts, [4, 30], stop=ends(model.ends))             # or until a row is done

What makes it fast leaves the answers as they are (up to rounding, which can turn a tie):
  * rows of about equal length go together; a longer row is still fed its prompt while others generate, so that all
    rows always stand at the same step and nothing is padded;
  * beginnings that prompts have in common are read once (`prefixes`);
  * prompts are read in chunks, and logits exist for the last step alone;
  * a row that is done leaves the batch at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from levelfield.pretrained.language_model import LanguageModel
from levelfield.pretrained.shared_prefixes import Segment, shared
from levelfield.spec import UserError

Ids = Sequence[int] | np.ndarray
Stop = Callable[[int, Sequence[int]], bool]
"""stop(number of the prompt, ids generated so far): whether the row is done. Asked after every id."""


def never(prompt: int, made: Sequence[int]) -> bool:
    """A Stop that lets every row use its budget."""
    return False


def ends(tokens: Collection[int]) -> Stop:
    """A Stop at any of these ids."""
    return lambda prompt, made: made[-1] in tokens


def says(texts: Collection[str], decode: Callable[[Sequence[int]], str]) -> Stop:
    """A Stop when what was generated holds one of these texts, such as a newline."""

    def stop(prompt: int, made: Sequence[int]) -> bool:
        text = decode(made)
        return any(wanted in text for wanted in texts)

    return stop


def either(*stops: Stop) -> Stop:
    """A Stop when one of these holds."""
    return lambda prompt, made: any(stop(prompt, made) for stop in stops)


@dataclass(frozen=True)
class Batching:
    """rows: in a batch at most. tokens: rows times steps at most, which bounds the memory of keys and values. spread:
    by how many steps the prompts of a batch may differ. saving: steps that a shared beginning must save, or it is read
    again."""

    rows: int = 64
    tokens: int = 1 << 19
    spread: int = 32
    saving: int = 256

    def __post_init__(self) -> None:
        if min(self.rows, self.tokens, self.saving) < 1 or self.spread < 0:
            raise UserError("Batching needs rows, tokens and saving of at least 1, and spread of at least 0.")


NOTHING = 1 << 62  # more steps than there are to save
ONE_BY_ONE = Batching(rows=1, spread=0, saving=NOTHING)


@dataclass
class _Row:
    number: int
    prompt: Ids
    budget: int
    made: list[int] = field(default_factory=list)


def generate(
    model: LanguageModel,
    prompts: Sequence[Ids],
    budgets: int | Sequence[int],
    stop: Stop = never,
    batching: Batching = Batching(),
) -> list[list[int]]:
    """The ids that follow each prompt, the one at which `stop` held included: a beginning of what the whole budget
    would give. A row whose logits are no numbers ends there, short of its budget. Raises UserError for an empty prompt,
    and for more steps than the model takes."""
    found = dict(stream(model, prompts, budgets, stop, batching))
    return [found[i] for i in range(len(prompts))]


def stream(
    model: LanguageModel,
    prompts: Sequence[Ids],
    budgets: int | Sequence[int],
    stop: Stop = never,
    batching: Batching = Batching(),
) -> Iterator[tuple[int, list[int]]]:
    """`generate` as it comes: (number of the prompt, its ids), in the order in which rows are done."""
    each = [budgets] * len(prompts) if isinstance(budgets, int) else list(budgets)
    rows = [_Row(i, prompt, budget) for i, (prompt, budget) in enumerate(zip(prompts, each, strict=True))]
    for row in rows:
        if not len(row.prompt):
            raise UserError("A prompt of no tokens has nothing to go on from: give at least one.")
        model.check_length(len(row.prompt) + row.budget)
    yield from ((row.number, []) for row in rows if row.budget < 1)
    for group in _groups([row for row in rows if row.budget >= 1], batching.spread if model.ragged else 0):
        yield from _group(model, group, stop, batching)


def _groups(rows: Sequence[_Row], spread: int) -> Iterator[list[_Row]]:
    """Rows whose prompts differ by at most `spread` steps, shortest first."""
    group: list[_Row] = []
    for row in sorted(rows, key=lambda row: len(row.prompt)):
        if group and len(row.prompt) - len(group[0].prompt) > spread:
            yield group
            group = []
        group.append(row)
    if group:
        yield group


@torch.no_grad()
def _group(model: LanguageModel, rows: list[_Row], stop: Stop, batching: Batching) -> Iterator[tuple[int, list[int]]]:
    """Reads what all prompts have, the length of the shortest, and generates in full batches."""
    length = len(rows[0].prompt)
    longest = max(len(row.prompt) + row.budget for row in rows)
    most = max(1, min(batching.rows, batching.tokens // longest))
    waiting: list[tuple[list[_Row], Tensor, Any]] = []
    saving = batching.saving if model.pieces else NOTHING
    for some, logits, state in _read(model, rows, length, most, saving):
        if waiting and sum(len(w[0]) for w in waiting) + len(some) > most:
            yield from _joined(model, waiting, length, stop)
            waiting = []
        waiting.append((some, logits, state))
        del logits, state
    yield from _joined(model, waiting, length, stop)


def _read(
    model: LanguageModel, rows: list[_Row], length: int, most: int, saving: int
) -> Iterator[tuple[list[_Row], Tensor, Any]]:
    """The first `length` steps of every prompt: some rows with their logits and state at a time."""
    segments = shared([row.prompt for row in rows], length, saving)
    under: list[list[int]] = [[] for _ in segments]
    for number, segment in enumerate(segments[1:], 1):
        under[segment.parent].append(number)
    states: dict[int, Any] = {}
    ready = [0]
    while ready:
        number = ready.pop()
        segment = segments[number]
        if segment.parent >= 0:
            before = _taken(model, states, segments, segment.parent)
            _, states[number] = model.start(_ids(rows, [segment.example], segment.begin, segment.end), before)
        ready += reversed(under[number])
        for at in range(0, len(segment.prompts), most):
            chosen = segment.prompts[at : at + most]
            state = None
            if number in states:
                state = model.rows(states[number], torch.zeros(len(chosen), dtype=torch.int64, device=model.device))
            yield [rows[i] for i in chosen], *model.start(_ids(rows, chosen, segment.end, length), state)
        if not segment.children:
            states.pop(number, None)


def _taken(model: LanguageModel, states: dict[int, Any], segments: list[Segment], number: int) -> Any:
    """The state after a segment, for one of its children; the last one to ask takes it away."""
    if number not in states:
        return None
    segments[number].children -= 1
    if not segments[number].children:
        return states.pop(number)
    return model.rows(states[number], torch.zeros(1, dtype=torch.int64, device=model.device))


def _ids(rows: list[_Row], chosen: Sequence[int], begin: int, end: int) -> Tensor:
    return torch.from_numpy(np.array([rows[i].prompt[begin:end] for i in chosen], dtype=np.int64))


def _joined(
    model: LanguageModel, parts: list[tuple[list[_Row], Tensor, Any]], length: int, stop: Stop
) -> Iterator[tuple[int, list[int]]]:
    rows = [row for part in parts for row in part[0]]
    logits = torch.cat([part[1] for part in parts])
    state = parts[0][2] if len(parts) == 1 else model.join([part[2] for part in parts])
    parts.clear()
    yield from _decode(model, rows, logits, model.prompted(state), length, stop)


def _decode(
    model: LanguageModel, rows: list[_Row], logits: Tensor, state: Any, step: int, stop: Stop
) -> Iterator[tuple[int, list[int]]]:
    """One step after the other: a row reads on where its prompt does, and else its own last token."""
    while True:
        places, following = [], []
        sound = logits.amax(-1).isfinite().tolist()  # -inf is a token that cannot come; NaN and inf are no scores
        for place, (row, token) in enumerate(zip(rows, logits.argmax(-1).tolist(), strict=True)):
            reading = step < len(row.prompt)
            if not sound[place]:  # nothing follows from what is no number
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
