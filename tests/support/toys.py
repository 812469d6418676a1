"""A study of seconds for the tests of engines and commands: which of two symbols comes first.

`write(folder)` puts it into a file. `traps` says, per seed, what that run's layer does to its process.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

TEXT = """
from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from levelfield.protocols import scratch
from levelfield.spec import (
    Duration, Examples, Label, MixerConfig, Model, Recipe, Run, Study, Task, Tokens, no_progress
)

TRAPS, STEPS, RUNS, PAUSE = {traps!r}, {steps}, {runs}, {pause}
MARK = Path(__file__).with_name("died")


@dataclass(frozen=True)
class Toy(Task):
    name = "toy"
    version = 1
    source = "none"
    split_rule = "drawn"
    input = Tokens(2)
    output = Label(2)
    max_length = 6
    chance = 0.5

    def build(self, sources, progress=no_progress):
        codes = np.arange(64)
        x = ((codes[:, None] >> np.arange(6)) & 1).astype(np.uint8)
        parts = {{"train": codes % 4 < 2, "val": codes % 4 == 2, "test": codes % 4 == 3}}
        return {{k: Examples.of_equal_length(x[p], x[p][:, 5].astype(np.int64)) for k, p in parts.items()}}


class Layer(nn.Module):
    def __init__(self, width, trap):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.trap = trap

    def forward(self, x, mask):
        time.sleep(PAUSE)
        if self.trap == "raise":
            raise ValueError("no such luck")
        if self.trap == "die" or (self.trap == "die once" and not MARK.exists()):
            MARK.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return x * self.scale


@dataclass(frozen=True)
class Trap(MixerConfig):
    trap: str = ""
    label: ClassVar[str] = "trap"
    paper: ClassVar[str] = ""

    def build(self, width, *, causal, layer, generator):
        return Layer(width, self.trap)

    def state_size(self, width, length):
        return 0


def runs(effort):
    recipe = Recipe(lr=1e-2, weight_decay=0.0, batch=8, budget=Duration(STEPS, "steps"), warmup=Duration(0, "steps"),
                    schedule="constant", clip=None, validate_every=Duration(STEPS, "steps"))
    models = [Model(mixers=(Trap(TRAPS.get(seed, "")),), depth=1, width=4) for seed in range(RUNS)]
    return [Run(Toy(), model, scratch(recipe), seed) for seed, model in enumerate(models)]


study = Study(name="toys", claim="none", runs=runs)
"""


def write(
    path: Path, *, traps: Mapping[int, str] | None = None, steps: int = 3, runs: int = 1, pause: float = 0
) -> None:
    """The study file at `path`. pause: seconds that each pass through the layer takes."""
    path.write_text(TEXT.format(traps=dict(traps or {}), steps=steps, runs=runs, pause=pause))
