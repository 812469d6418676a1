"""Any other causal model of the transformers library, behind our interface.

    Hub.read("models/pythia-160m", Setup("pythia-160m"))

Caches differ from model to model, and not all go on rightly from the middle of a prompt (Mamba's and RecurrentGemma's
do not, in transformers 5.23). So what a model can do is tried when it is read: a few steps at once, in two pieces, and
with its rows exchanged. A model that only decodes gets every prompt whole; one that does not even that is refused.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from levelfield.foreign.adapter import LanguageModel
from levelfield.foreign.assemble import Setup
from levelfield.foreign.texts import first_line, needed
from levelfield.spec import UserError

ERROR = {"float64": 1e-4, "float32": 1e-3, "bfloat16": 0.1}  # of logits, in their standard deviations
TABLES = ("n_positions", "n_ctx", "max_sequence_length")  # settings of models with a table of positions


@final
class Hub(LanguageModel):
    """inner: a causal model of transformers, in eval mode. whole: prompts come in one piece."""

    def __init__(self, setup: Setup, inner: Any, begin: tuple[int, ...] = ()) -> None:
        self.setup, self.inner, self.first, self.whole = setup, inner, begin, False
        accepted = inspect.signature(inner.forward).parameters
        self.cache = "cache_params" if "cache_params" in accepted else "past_key_values"
        self.trims = "logits_to_keep" in accepted
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
        found = [getattr(self.inner.config, name, None) for name in TABLES]
        return min((n for n in found if n), default=None)

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

    def advance(self, ids: Tensor, state: Any, last: bool = True) -> tuple[Tensor, Any]:
        given: dict[str, Any] = {self.cache: state} if state is not None else {}
        if last and self.trims:
            given["logits_to_keep"] = 1
        out = self.inner(input_ids=ids, use_cache=True, **given)
        return (out.logits[:, -1] if last else out.logits), getattr(out, self.cache, None)

    def rows(self, state: Any, index: Tensor) -> Any:
        return _over([state], lambda parts: parts[0].index_select(0, index))

    def join(self, states: Sequence[Any]) -> Any:
        return _over(states, lambda parts: torch.cat(list(parts)))

    @torch.no_grad()
    def _try_out(self) -> None:
        """Raises UserError where the model cannot be trusted to go on from its cache."""
        ids = torch.arange(26, device=self.device).view(2, 13) * 7919 % self.vocabulary
        expected = self.inner(input_ids=ids, use_cache=False).logits.float()[:, -3:]
        swap = torch.tensor([1, 0], device=self.device)
        for sizes in ([10, 3], [11, 1, 1]):
            try:
                parts, state, turned = [], None, False
                for piece in ids.split(sizes, dim=1):  # the rows change places after every piece
                    logits, state = self.advance(piece.flip(0) if turned else piece, state, last=False)
                    parts.append(logits.flip(0) if turned else logits)
                    state, turned = self.rows(state, swap), not turned
                found = torch.cat(parts, 1)[:, -3:]
            except (TypeError, AttributeError, RuntimeError, ValueError):
                continue
            if (found - expected).abs().max() <= ERROR[self.setup.precision] * expected.std():
                self.whole = sizes[0] == 11
                return
        raise UserError(f"{self.name} does not go on rightly from its cache in transformers: it cannot generate here.")

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


def _over(caches: Sequence[Any], change: Callable[[Sequence[Tensor]], Tensor]) -> Any:
    """A new cache with `change` of the tensors that lie at the same place in all of them."""
    found = copy.copy(caches[0])
    found.layers = [_layer(layers, change) for layers in zip(*(cache.layers for cache in caches), strict=True)]
    return found


def _layer(layers: Sequence[Any], change: Callable[[Sequence[Tensor]], Tensor]) -> Any:
    found = copy.copy(layers[0])
    for name, value in vars(layers[0]).items():
        values = [vars(layer)[name] for layer in layers]
        if isinstance(value, Tensor) and value.ndim:
            setattr(found, name, change(values))
        elif isinstance(value, dict):
            new = {k: change([v[k] for v in values]) if isinstance(value[k], Tensor) else value[k] for k in value}
            setattr(found, name, new)
    return found
