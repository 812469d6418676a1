"""Defines what the recipe files share: the shape of a model without its mixer, and what smaller efforts shrink.

shape = Shape(width=512, depth=6, block=Block(feedforward=2048))
MINUTES = Scale(width=64, depth=2, batch=32, steps=800)
MINUTES.shape(shape)                  # width 64, depth 2, feedforward 256
MINUTES.recipe(recipe, 800)           # 800 steps, and `assumed` says what is no longer as printed
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

from levelfield.spec import Block, Duration, MixerConfig, Model, Recipe, UserError, closest


@dataclass(frozen=True)
class Shape:
    """A `Model` but for its mixer, with a citation. `assumed` names the fields nobody printed."""

    width: int
    depth: int
    block: Block
    pooling: Literal["mean", "max", "last"] = "mean"
    head_hidden: int = 0
    pair: Literal["concat", "interaction"] = "concat"
    positions: Literal["none", "sinusoidal", "learned"] = "none"
    source: str = ""
    assumed: tuple[str, ...] = ()

    def model(self, mixer: MixerConfig, name: str, *, causal: bool = False) -> Model:
        """The model with one kind of mixer in every layer; `name` is its label in tables."""
        return Model(
            mixers=(mixer,),
            depth=self.depth,
            width=self.width,
            causal=causal,
            block=self.block,
            positions=self.positions,
            pooling=self.pooling,
            head_hidden=self.head_hidden,
            pair=self.pair,
            name=name,
        )


@dataclass(frozen=True)
class Scale:
    """What an effort below `paper` shrinks. Shapes only ever shrink; widths are powers of two.

    batch: of every phase of every model, so that equal steps are equal examples. steps: of a phase. lr: one rate for
    all phases, where the printed ones were found for much larger models. patience: where given, `steps` are a cap that
    few phases should reach: the rate is constant, and cut once, until so many validations bring nothing.
    """

    width: int
    depth: int
    batch: int
    steps: int
    lr: float | None = None
    validations: int = 10
    patience: int | None = None

    def shape(self, printed: Shape) -> Shape:
        """Narrower and shallower; hidden widths keep their ratio to the width."""
        width = min(self.width, printed.width)
        block = replace(printed.block, feedforward=printed.block.feedforward * width // printed.width)
        hidden = printed.head_hidden * width // printed.width
        return replace(printed, width=width, depth=min(self.depth, printed.depth), block=block, head_hidden=hidden)

    def recipe(self, printed: Recipe, steps: int) -> Recipe:
        """`steps` long, warmed up for at most a tenth of them; without patience, the schedule keeps its form."""
        changed = ("batch", "budget", "warmup", "validate_every", "patience", *(["lr"] if self.lr else []))
        if self.patience is not None:
            printed = replace(printed, schedule="constant", patience=self.patience, cuts=1)
        shortened = replace(
            printed,
            lr=self.lr or printed.lr,
            batch=self.batch,
            budget=Duration(steps, "steps"),
            warmup=Duration(min(printed.warmup.value, steps // 10), "steps"),
            validate_every=Duration(max(1, steps // self.validations), "steps"),
            source=f"{printed.source}; shortened",
            assumed=tuple(dict.fromkeys((*printed.assumed, *changed))),
        )
        return shortened if self.patience is not None else replace(shortened, patience=None)


def known(task: str, tasks: Collection[str], what: str) -> str:
    """The task's name if the paper has a recipe for it. Raises UserError, with the nearest name, where it has none."""
    if task not in tasks:
        raise UserError(f"There is no recipe of {what} for '{task}': {closest(task, sorted(tasks))}")
    return task
