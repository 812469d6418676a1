"""Holds what all samples of one `generate` call share: lengths, texts and random generators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from levelfield.ruler.prompt.compose import Composer
from levelfield.ruler.prompt.flavours import Flavour
from levelfield.ruler.sources import Sources
from levelfield.spec import derive_seed


@dataclass(frozen=True, eq=False)
class Setting:
    """What the samples share. Lengths are in tokens of the composer's tokenizer."""

    stream: str  # names the random numbers: tasks of one stream draw the same
    length: int
    answer_tokens: int
    flavour: Flavour
    template: str
    around: tuple[str, str]  # the template's text before the task and after it
    sources: Sources
    seed: int
    composer: Composer
    forgets_answer: bool = False  # prompts fill the whole length

    @property
    def room(self) -> int:
        """How many tokens a prompt may have."""
        return self.length if self.forgets_answer else self.length - self.answer_tokens

    def rng(self, purpose: int | str) -> np.random.Generator:
        """Derives the generator of a sample, or of a named purpose. It does not depend on the length: samples of all
        lengths have the same needles, so that lengths are compared on pairs."""
        return np.random.default_rng(derive_seed(self.seed, "ruler", self.stream, purpose))
