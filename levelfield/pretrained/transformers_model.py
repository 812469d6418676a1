"""Runs any other causal model of the transformers library behind our interface.

    TransformersModel.read("models/pythia-160m", LoadOptions("pythia-160m"))

Not every cache continues correctly from the middle of a prompt (in transformers 5.23 those of Mamba and RecurrentGemma
do not). So every model is tested when it is loaded, on a few tokens: at once, in chunks, and one by one, with its rows
exchanged. A model that fails in chunks gets every prompt whole. One that mixes its rows, as RWKV-4 does in steps of one
token, gets them one after the other. One that fails at that too is refused. Positions are passed wherever `forward`
takes them, since not every model counts the tokens in its cache.
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

from levelfield.pretrained.assemble import LoadOptions
from levelfield.pretrained.language_model import LanguageModel
from levelfield.pretrained.optional import first_line, needed
from levelfield.pretrained.positions import positions_from_model
from levelfield.spec import UserError

CACHES = ("cache_params", "state", "past_key_values")  # names under which a `forward` takes its cache
ERROR = {"float64": 1e-4, "float32": 1e-3, "bfloat16": 0.1}  # allowed in logits, in their standard deviations


@dataclass(frozen=True)
class CachedState:
    """The model's own caches after `steps` tokens: one of all rows, or one of each row where rows run alone."""

    caches: tuple[Any, ...]
    steps: int


@final
class TransformersModel(LanguageModel):
    """A causal model of transformers, in eval mode. bos: ids that belong before every prompt.

    whole: whether every prompt must be read in one call. alone: whether every row must run in a batch of its own. Both
    are found by `_try_out`.
    """

    def __init__(self, options: LoadOptions, inner: Any, bos: tuple[int, ...] = ()) -> None:
        self.options, self.inner, self.bos = options, inner, bos
        self.whole = self.alone = False
        accepted = inspect.signature(inner.forward).parameters
        self.cache = next((name for name in CACHES if name in accepted), CACHES[-1])
        self.takes_logits_to_keep = "logits_to_keep" in accepted
        self.takes_positions = "position_ids" in accepted
        self.positions = positions_from_model(inner)
        self._try_out()

    @property
    def name(self) -> str:
        return self.options.label

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
    def bos_ids(self) -> tuple[int, ...]:
        return self.bos

    @property
    def eos_ids(self) -> frozenset[int]:
        found = self.inner.generation_config.eos_token_id
        return frozenset([found] if isinstance(found, int) else found or ())

    @property
    def supports_chunked_prefill(self) -> bool:
        return not self.whole

    def step(self, ids: Tensor, state: CachedState | None, last: bool = True) -> tuple[Tensor, CachedState]:
        batches = ids.split(1) if self.alone else (ids,)
        caches = state.caches if state else (None,) * len(batches)
        steps = state.steps if state else 0
        found = [self._run(rows, cache, steps, last) for rows, cache in zip(batches, caches, strict=True)]
        after = CachedState(tuple(cache for _, cache in found), steps + ids.shape[1])
        return torch.cat([logits for logits, _ in found]), after

    def _run(self, ids: Tensor, cache: Any, steps: int, last: bool) -> tuple[Tensor, Any]:
        """Returns the logits of rows that have read `steps` tokens before these, and their cache after these."""
        given: dict[str, Any] = {} if cache is None else {self.cache: cache}
        if self.takes_positions:
            given["position_ids"] = torch.arange(steps, steps + ids.shape[1], device=ids.device).expand(ids.shape)
        if last and self.takes_logits_to_keep:
            given["logits_to_keep"] = 1
        out = self.inner(input_ids=ids, use_cache=True, **given)
        return (out.logits[:, -1] if last else out.logits), getattr(out, self.cache, None)

    def rows(self, state: CachedState, index: Tensor) -> CachedState:
        if self.alone:
            copies = (map_tensors([state.caches[i]], lambda parts: parts[0].clone()) for i in index.tolist())
            return CachedState(tuple(copies), state.steps)
        return CachedState((map_tensors(state.caches, lambda parts: _select(parts[0], index)),), state.steps)

    def join(self, states: Sequence[CachedState]) -> CachedState:
        caches = [cache for state in states for cache in state.caches]
        joined = tuple(caches) if self.alone else (map_tensors(caches, lambda parts: torch.cat(list(parts))),)
        return CachedState(joined, states[0].steps)

    @torch.no_grad()
    def _try_out(self) -> None:
        """Finds how the model continues correctly from its cache. Raises UserError where it does in no way."""
        ids = torch.arange(26, device=self.device).view(2, 13) * 7919 % self.vocabulary
        expected = self.inner(input_ids=ids, use_cache=False).logits.float()
        why = ""
        for self.alone, self.whole in product((False, True), repeat=2):
            try:
                found = self._exchanged(ids, [11, 1, 1] if self.whole else [7, 4, 1, 1])
                error = float((found - expected).abs().max() / expected.std())
            except (TypeError, AttributeError, RuntimeError, ValueError) as problem:
                why = f"continuing from its cache ended in {first_line(problem)}"
                continue
            if error <= ERROR[self.options.precision]:
                return
            why = f"continuing from its cache puts logits off by {error:.2g} of their standard deviations."
        raise UserError(
            f"{self.name} cannot generate here: {why} Either its code in transformers does not keep all that it has "
            "read, or levelfield calls it wrongly: convert it to a format that docs/pretrained.md names."
        )

    def _exchanged(self, ids: Tensor, sizes: Sequence[int]) -> Tensor:
        """(2, n) ids -> (2, n, V) logits, in chunks of these sizes; the two rows change places after every chunk."""
        swap = torch.tensor([1, 0], device=self.device)
        parts, state, turned = [], None, False
        for chunk in ids.split(list(sizes), dim=1):
            logits, state = self.step(chunk.flip(0) if turned else chunk, state, last=False)
            parts.append(logits.flip(0) if turned else logits)
            state, turned = self.rows(state, swap), not turned
        return torch.cat(parts, 1)

    @staticmethod
    def read(path: Path, options: LoadOptions, bos: tuple[int, ...] = ()) -> TransformersModel:
        """Reads a folder. No code from it is run. Raises UserError where transformers cannot read it."""
        transformers = needed("transformers")
        kind, spread = getattr(torch, options.precision), _spread(options)
        try:
            inner = transformers.AutoModelForCausalLM.from_pretrained(
                str(path), dtype=kind, trust_remote_code=False, local_files_only=True, **spread
            )
        except Exception as error:  # every model raises types of its own
            raise UserError(f"transformers cannot read {path}: {first_line(error)}") from error
        if options.spread == 1:
            inner = inner.to(options.device)
        elif any(place in ("cpu", "disk") for place in (getattr(inner, "hf_device_map", None) or {}).values()):
            raise UserError(
                f"{options.label} does not fit into what is free on {options.spread} GPUs, and transformers left "
                "parts of it outside: give a larger --spread, or --precision bfloat16."
            )
        return TransformersModel(options, inner.eval(), bos)


def _spread(options: LoadOptions) -> dict[str, Any]:
    """Returns what tells transformers to spread a model over GPUs, nothing where it is on one device.

    Raises UserError where the package is absent with which transformers does it.
    """
    if options.spread == 1:
        return {}
    needed("accelerate")
    first = torch.device(options.device).index or 0
    free = {gpu: torch.cuda.mem_get_info(gpu)[0] for gpu in range(first, first + options.spread)}
    return {"device_map": "balanced", "max_memory": free}


def _select(part: Tensor, index: Tensor) -> Tensor:
    """Returns rows of a part of a cache, which may lie on another device than the index."""
    return part.index_select(0, index.to(part.device))


def map_tensors(caches: Sequence[Any], change: Callable[[Sequence[Tensor]], Tensor]) -> Any:
    """Builds a cache from several of one structure: each of its tensors is `change` of the tensors at that place."""
    first = caches[0]
    if isinstance(first, Tensor):
        return change(caches) if first.ndim else first
    if isinstance(first, list | tuple):
        return type(first)(map_tensors(parts, change) for parts in zip(*caches, strict=True))
    if isinstance(first, dict):
        return {key: map_tensors([cache[key] for cache in caches], change) for key in first}
    if not _holds(first):
        return first
    found = copy.copy(first)
    for name, value in vars(first).items():
        if isinstance(value, Tensor | list | tuple | dict):
            setattr(found, name, map_tensors([vars(cache)[name] for cache in caches], change))
    return found


def _holds(value: Any) -> bool:
    """Whether a value is a cache or a layer of one, rather than a plain value or a type."""
    return type(value).__module__.split(".")[0] not in ("builtins", "torch") and not isinstance(value, type | Enum)
