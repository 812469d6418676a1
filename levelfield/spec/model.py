"""Defines a model, and what every mixer declares.

Model(mixers=(Attention(heads=4),), depth=2, width=64)      # input encoder, residual backbone of mixers, head
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from levelfield.spec.errors import UserError, check_literals
from levelfield.spec.identity import OwnCode

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn


@dataclass(frozen=True)
class ParamRule:
    """How the optimizer treats parameters whose name ends in the rule's key. None means: as the recipe says."""

    lr: float | None = None
    weight_decay: float | None = None


@dataclass(frozen=True)
class MixerConfig(ABC, OwnCode):
    """What moves information along the sequence: it builds a module (x (B, T, D), mask (B, T) or None) -> (B, T, D).

    The mask is True at real steps, whose outputs must not depend on padding. A mixer does not know the training length:
    one that needs a bound gives it as `max_length` and raises UserError beyond it.
    """

    version: ClassVar[int] = 1
    label: ClassVar[str]
    paper: ClassVar[str]
    complexity: ClassVar[str] = ""  # of moving information between steps, in T, D and settings: "T^2 D", "T D state"
    directions: ClassVar[frozenset[str]] = frozenset({"causal", "bidirectional"})
    opaque: ClassVar[bool] = False  # True for unknown code, which may read or keep values while FLOPs are counted

    def __post_init__(self) -> None:
        check_literals(self)

    def __init_subclass__(cls) -> None:
        """Has `build` refuse a direction and a width that the layer cannot have, whoever calls it."""
        super().__init_subclass__()
        if (build := vars(cls).get("build")) is None:
            return

        @wraps(build)
        def asking(self: MixerConfig, width: int, *, causal: bool, **others: Any) -> nn.Module:
            self.check_direction(causal)
            if width < 1:
                raise UserError(f"{type(self).__name__} cannot have a width of {width}: give 1 or more.")
            return build(self, width, causal=causal, **others)

        cls.build = asking

    def check_direction(self, causal: bool) -> None:
        """Raises UserError for a direction that is none of `directions`; `build` asks this first."""
        asked = "causal" if causal else "bidirectional"
        if asked not in self.directions:
            raise UserError(f"{type(self).__name__} cannot be {asked}: it is {' and '.join(self.directions)}.")

    @abstractmethod
    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        """Builds one layer, drawing values from a CPU generator. Raises UserError on impossible sizes or directions."""

    @abstractmethod
    def state_size(self, width: int, length: int) -> int | None:
        """Returns how many numbers a causal layer carries from step `length` to the next, for each sequence.

        None where a user's layer does not declare it.
        """

    @property
    def takes_causal(self) -> bool:
        """Whether `build` decides by `causal` which steps a layer sees; a user's module may have but one way."""
        return True

    @property
    def max_length(self) -> int | None:
        return None

    @property
    def receptive_field(self) -> int | None:
        """Steps that an output of one bidirectional layer depends on, its own included; None where it is all."""
        return None

    @property
    def equivariant(self) -> bool:
        """Whether a layer does the same at every step, wherever it is (but for the sequence's ends): a shifted sequence
        has shifted outputs. Layers that part a sequence into blocks do not: a step's place in its block decides."""
        return True

    def remedies(self, width: int, factor: int, trained: int) -> Mapping[str, MixerConfig]:
        """Returns settings by name under which trained weights may read `factor` times the `trained` steps better."""
        return {}

    def param_rules(self) -> Mapping[str, ParamRule]:
        """Returns suffix of a name -> rule, for parameters with a learning rate or weight decay of their own."""
        return {}

    def learned_kernel(self, layer: nn.Module, length: int) -> Tensor | None:
        """Returns the layer's learned convolution kernel at lags 0..length-1, (channels, length), or None."""
        return None


@dataclass(frozen=True)
class Block:
    """The residual block around every mixer: x + mixer(norm(x)), then x + feedforward(norm(x)) if there is one.

    parallel: both parts read the block's input, x + mixer(norm(x)) + feedforward(norm(x)), each with a norm of its own
    (GPT-NeoX: Black et al. 2022, section 2.1). Raises UserError for a parallel block with norms after the sums, an
    unknown norm or activation, and a dropout that is not at least 0 and below 1.
    """

    norm: Literal["layer", "batch", "rms", "scale"] = "layer"  # "scale": rms with one gain for all channels
    prenorm: bool = True
    feedforward: int = 0  # hidden width; 0 means there is none
    activation: Literal["relu", "gelu", "silu", "swiglu", "geglu"] = "gelu"
    dropout: float = 0.0
    final_norm: bool = True
    bias: bool = True  # in the feed-forward's linear maps
    eps: float | None = None  # of the norms; None is torch's: 1e-5, and for "rms" the precision's own
    parallel: bool = field(default=False, metadata={"added": True})

    def __post_init__(self) -> None:
        check_literals(self)
        if not 0 <= self.dropout < 1:
            raise UserError(f"A block with dropout={self.dropout} lets nothing through: give 0 or more, and below 1.")
        if self.parallel and not self.prenorm:
            raise UserError("A parallel block has no norm after its sums: leave prenorm at True.")


@dataclass(frozen=True)
class Model:
    """Input encoder, residual backbone, head. `mixers` is a pattern repeated to `depth`, so a hybrid is a value.

    Raises UserError for unknown positions, pooling or pair, no mixers, and a depth or width that is not 1 or more.
    """

    mixers: tuple[MixerConfig, ...]
    depth: int
    width: int
    causal: bool = False
    block: Block = Block()
    positions: Literal["none", "sinusoidal", "learned"] = "none"  # summed to the encoded input
    max_positions: int | None = None  # rows of the learned table; only with positions="learned"
    pooling: Literal["mean", "max", "last"] = "mean"
    head_hidden: int = 0  # 0: one linear map; else linear, ReLU, linear
    pair: Literal["concat", "interaction"] = "concat"  # two documents x, y: the head sees [x, y] or [x, y, x*y, x-y]
    name: str | None = None

    def __post_init__(self) -> None:
        check_literals(self)
        if not self.mixers:
            raise UserError("A model without mixers cannot be: give one or more, such as mixers=(Attention(),).")
        for name, given in (("depth", self.depth), ("width", self.width)):
            if not isinstance(given, int) or given < 1:
                raise UserError(f"A model with {name}={given!r} cannot be: give a whole number of 1 or more.")

    @property
    def label(self) -> str:
        """Short name for tables and file names."""
        return self.name or "+".join(dict.fromkeys(m.label for m in self.mixers))

    @property
    def receptive_field(self) -> int | None:
        """Steps that an output step of the whole stack depends on, its own included; None where it is all."""
        bounds = [self.mixers[layer % len(self.mixers)].receptive_field for layer in range(self.depth)]
        return None if None in bounds else 1 + sum(b - 1 for b in bounds if b is not None)

    @property
    def proved_field(self) -> int | None:
        """The same where the whole stack is equivariant, as the bound of docs/reach.md asks; None elsewhere."""
        alike = self.positions == "none" and all(mixer.equivariant for mixer in self.mixers)
        return self.receptive_field if alike else None

    @property
    def max_length(self) -> int | None:
        """The longest sequence that every part takes, in steps; None where there is no bound."""
        table = self.max_positions if self.positions == "learned" else None
        return min((b for b in [table, *(m.max_length for m in self.mixers)] if b is not None), default=None)
