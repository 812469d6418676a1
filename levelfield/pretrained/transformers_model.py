"""Any other causal model of the transformers library, behind our interface.

    Hub.read("models/pythia-160m", Setup("pythia-160m"))

Caches differ from model to model, and not all go on rightly from the middle of a prompt (Mamba's and RecurrentGemma's
do not, in transformers 5.23). So what a model can do is tried when it is read: a few steps at once, in pieces, and one
by one, with its rows exchanged. A model that only decodes gets every prompt whole; one that mixes its rows, as RWKV-4
does in steps of one token, gets them one after the other; one that does not even that is refused.
Positions are passed wherever `forward` takes them, since not every model counts the steps that its cache has seen.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from levelfield.pretrained.assemble import Setup
from levelfield.pretrained.language_model import LanguageModel
from levelfield.pretrained.optional import first_line, needed
from levelfield.pretrained.positions import of_inner
from levelfield.spec import UserError

CARRIED = ("cache_params", "state", "past_key_values")  # what a forward calls that which it goes on from
ERROR = {"float64": 1e-4, "float32": 1e-3, "bfloat16": 0.1}  # of logits, in their standard deviations


@dataclass(frozen=True)
class Seen:
    """What rows carry after so many steps: the model's own cache of all of them, or of each where they run alone."""

    caches: tuple[Any, ...]
    steps: int


@final
class Hub(LanguageModel):
    """inner: a causal model of transformers, in eval mode. whole: prompts come in one piece. alone: so do rows."""

    def __init__(self, setup: Setup, inner: Any, begin: tuple[int, ...] = ()) -> None:
        self.setup, self.inner, self.first = setup, inner, begin
        self.whole = self.alone = False
        accepted = inspect.signature(inner.forward).parameters
        self.cache = next((name for name in CARRIED if name in accepted), CARRIED[-1])
        self.trims = "logits_to_keep" in accepted
        self.placed = "position_ids" in accepted
        self.positions = of_inner(inner)
        self._try_out()

    @property
    def name(self) -> str:
        return self.setup.label

    @property
    def vocabulary(self) -> int:
        return self.inner.config.get_text_config().vocab_size

    @property
    def device(self) -> torch.device:
        return self.inner.device

    @property
    def max_length(self) -> int | None:
        return self.positions.most

    @property
    def made_for(self) -> int | None:
        return self.positions.made_for

    @property
    def begin(self) -> tuple[int, ...]:
        return self.first

    @property
    def ends(self) -> frozenset[int]:
        found = self.inner.generation_config.eos_token_id
        return frozenset([found] if isinstance(found, int) else found or ())

    @property
    def pieces(self) -> bool:
        return not self.whole

    def step(self, ids: Tensor, state: Seen | None, last: bool = True) -> tuple[Tensor, Seen]:
        batches = ids.split(1) if self.alone else (ids,)
        caches = state.caches if state else (None,) * len(batches)
        steps = state.steps if state else 0
        found = [self._run(rows, cache, steps, last) for rows, cache in zip(batches, caches, strict=True)]
        after = Seen(tuple(cache for _, cache in found), steps + ids.shape[1])
        return torch.cat([logits for logits, _ in found]), after

    def _run(self, ids: Tensor, cache: Any, steps: int, last: bool) -> tuple[Tensor, Any]:
        """The logits of some rows that have seen so many steps, and their cache."""
        given: dict[str, Any] = {} if cache is None else {self.cache: cache}
        if self.placed:
            given["position_ids"] = torch.arange(steps, steps + ids.shape[1], device=ids.device).expand(ids.shape)
        if last and self.trims:
            given["logits_to_keep"] = 1
        out = self.inner(input_ids=ids, use_cache=True, **given)
        return (out.logits[:, -1] if last else out.logits), getattr(out, self.cache, None)

    def rows(self, state: Seen, index: Tensor) -> Seen:
        if self.alone:
            copies = (over([state.caches[i]], lambda parts: parts[0].clone()) for i in index.tolist())
            return Seen(tuple(copies), state.steps)
        return Seen((over(state.caches, lambda parts: parts[0].index_select(0, index)),), state.steps)

    def join(self, states: Sequence[Seen]) -> Seen:
        caches = [cache for state in states for cache in state.caches]
        joined = tuple(caches) if self.alone else (over(caches, lambda parts: torch.cat(list(parts))),)
        return Seen(joined, states[0].steps)

    @torch.no_grad()
    def _try_out(self) -> None:
        """Finds how the model goes on rightly from its cache. Raises UserError where it cannot be trusted to."""
        ids = torch.arange(26, device=self.device).view(2, 13) * 7919 % self.vocabulary
        expected = self.inner(input_ids=ids, use_cache=False).logits.float()
        why = ""
        for self.alone, self.whole in product((False, True), repeat=2):
            try:
                found = self._exchanged(ids, [11, 1, 1] if self.whole else [7, 4, 1, 1])
                error = float((found - expected).abs().max() / expected.std())
            except (TypeError, AttributeError, RuntimeError, ValueError) as problem:
                why = f"going on from its cache ended in {first_line(problem)}"
                continue
            if error <= ERROR[self.setup.precision]:
                return
            why = (
                f"after going on from its cache, logits are off by {error:.2g} standard deviations from those at once."
            )
        raise UserError(
            f"{self.name} cannot generate here: {why} Either its code in transformers does not carry all that it has "
            "seen, or it is not called here as it needs: convert it to a layout that docs/pretrained.md names."
        )

    def _exchanged(self, ids: Tensor, sizes: Sequence[int]) -> Tensor:
        """(2, n) ids -> (2, n, V) logits, piece by piece; the two rows change places after every piece."""
        swap = torch.tensor([1, 0], device=self.device)
        parts, state, turned = [], None, False
        for piece in ids.split(list(sizes), dim=1):
            logits, state = self.step(piece.flip(0) if turned else piece, state, last=False)
            parts.append(logits.flip(0) if turned else logits)
            state, turned = self.rows(state, swap), not turned
        return torch.cat(parts, 1)

    @staticmethod
    def read(path: Path, setup: Setup, begin: tuple[int, ...] = ()) -> Hub:
        """Raises UserError where transformers does not know the model or cannot read it. No code of its is run."""
        transformers = needed("transformers")
        kind = getattr(torch, setup.precision)
        try:
            inner = transformers.AutoModelForCausalLM.from_pretrained(
                str(path), dtype=kind, trust_remote_code=False, local_files_only=True
            )
        except Exception as error:  # as many kinds as there are models
            raise UserError(f"transformers cannot read {path}: {first_line(error)}") from error
        return Hub(setup, inner.to(setup.device).eval(), begin)


def over(caches: Sequence[Any], change: Callable[[Sequence[Tensor]], Tensor]) -> Any:
    """A new cache with `change` of the tensors that lie at the same place in all of them, however they are nested."""
    first = caches[0]
    if isinstance(first, Tensor):
        return change(caches) if first.ndim else first
    if isinstance(first, list | tuple):
        return type(first)(over(parts, change) for parts in zip(*caches, strict=True))
    if isinstance(first, dict):
        return {key: over([cache[key] for cache in caches], change) for key in first}
    if not _holds(first):
        return first
    found = copy.copy(first)
    for name, value in vars(first).items():
        if isinstance(value, Tensor | list | tuple | dict):
            setattr(found, name, over([vars(cache)[name] for cache in caches], change))
    return found


def _holds(value: Any) -> bool:
    """Whether it is a cache or a layer of one, rather than a plain value or a type."""
    return type(value).__module__.split(".")[0] not in ("builtins", "torch") and not isinstance(value, type | Enum)
