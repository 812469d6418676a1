"""TTT-Linear keeps a small linear model per head as its memory, and trains it on the sequence while it reads it.

    q, k, v = three linear maps of x;     q and k rotated by their place in the mini-batch
    f(u; W, b) = u + norm(u W + b),     rate = sigmoid(w . x + c) / C, per head,     pace_i = 1 / i + learned
    W_t, b_t = those at the mini-batch's start - pace_i sum_{j <= i} rate_j grad |f(k_j) - v_j|^2 / 2, taken there
    y_t = f(q_t; W_t, b_t),     out = W_out norm(y)

The layer is that of Sun et al. (2024), "Learning to (Learn at Test Time)", section 2. Reading is a step of gradient
descent that teaches the inner model to make values of keys; where it starts, its norm and its rates are learnt with
everything else. With mini-batches of one step, a constant rate and no norm it would be DeltaNet.

    TTTLinear(heads=4)                       # the paper's mini-batches of 16 steps
    TTTLinear(heads=4, batch=1)              # gradient descent step by step: exact, and slow

The paper's Mamba-like form, with short convolutions and a gate, is not here. Letters: B batch, T steps, D width, H
heads, C = D / H channels of a head, n steps of an unfinished mini-batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.mixers._checks import check_width
from levelfield.ops.attention.rotary import rotate
from levelfield.ops.layers.init import linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.ops.linear_attention.inner_training import EPS, Fast, Outer, Steps, train_and_read
from levelfield.spec import MixerConfig, ParamRule, UserError

SPREAD = 0.02  # standard deviation of the inner model's first weights, and of the maps to its rates


@dataclass(frozen=True)
class TTTLinear(MixerConfig):
    """TTT-Linear of sun2024, section 2, as the layer of its Transformer-like form, with its code's first inner values.

    batch: steps of an inner mini-batch. rate: the largest inner learning rate, times the channels of a head.
    """

    heads: int = 4
    batch: int = 16
    rate: float = 1.0

    label: ClassVar[str] = "ttt_linear"
    paper: ClassVar[str] = "sun2024"
    complexity: ClassVar[str] = "T D (D / heads + batch)"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        check_width("TTT-Linear", width, self.heads)
        if width // self.heads % 2:
            raise UserError(
                f"TTT-Linear turns pairs of channels, not {width // self.heads} per head: choose an even number."
            )
        if self.batch < 1 or self.rate <= 0:
            raise UserError(
                f"TTT-Linear needs a mini-batch of a step and a positive rate, not {self.batch} and {self.rate}."
            )
        return TTTLinearLayer(self, width, generator)

    def state_size(self, width: int, length: int) -> int:
        """Counts the inner model, and a key and an error for each step of the unfinished mini-batch."""
        return width * (width // self.heads + 1) + 2 * width * (length % self.batch)

    def param_rules(self) -> Mapping[str, ParamRule]:
        return {"learnable_token_idx": ParamRule(weight_decay=0.0)}


EXAMPLES = (TTTLinear(heads=2), TTTLinear(heads=1, batch=3, rate=0.5))


class TTTLinearLayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it.

    Parameters have the names and shapes of the authors' code.
    """

    def __init__(self, config: TTTLinear, width: int, generator: Generator) -> None:
        super().__init__()
        self.config, heads = config, config.heads
        size = width // heads

        def spread(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape).normal_(0.0, SPREAD, generator=generator))

        self.q_proj, self.k_proj, self.v_proj = (linear(width, width, generator, bias=False) for _ in range(3))
        self.learnable_ttt_lr_weight = spread(heads, 1, width)
        self.learnable_ttt_lr_bias = nn.Parameter(torch.zeros(heads, 1))
        self.learnable_token_idx = nn.Parameter(torch.zeros(config.batch))
        self.ttt_norm_weight = nn.Parameter(torch.ones(heads, size))
        self.ttt_norm_bias = nn.Parameter(torch.zeros(heads, size))
        self.W1 = spread(heads, size, size)
        self.b1 = nn.Parameter(torch.zeros(heads, 1, size))
        self.post_norm = nn.LayerNorm(width, eps=EPS)
        self.o_proj = linear(width, width, generator, bias=False)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """State: the inner model at its mini-batch's start, `weight`, (B, H, C, C), and `bias`, (B, H, 1, C), and what
        the mini-batch's steps have brought so far, `keys` and `errors`, (B, H, n, C) each."""
        wide = self.W1.dtype
        parts = [part(x).to(wide) for part in (self.q_proj, self.k_proj, self.v_proj)]
        # In float32: the inner model is a sum over all steps, and its norm divides by what may be small.
        with torch.autocast(x.device.type, enabled=False):
            fast = self._start(x.shape[0]) if state is None else Fast(**state)
            at, heads = fast.keys.shape[2], self.config.heads
            query, key = (self._turned(part, at) for part in parts[:2])
            query, key, value = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (query, key, parts[2]))
            rate = F.linear(x.to(wide), self.learnable_ttt_lr_weight.squeeze(1), self.learnable_ttt_lr_bias.squeeze(1))
            rate = rate.sigmoid().mT * (self.config.rate / key.shape[-1])
            y, fast = train_and_read(Steps(query, key, value, rate), self._outer(), fast)
            y = self.post_norm(y.transpose(1, 2).flatten(2))
        return self.o_proj(y.to(x.dtype)), fast._asdict()

    def _start(self, rows: int) -> Fast:
        weight, bias = (part.unsqueeze(0).expand(rows, -1, -1, -1) for part in (self.W1, self.b1))
        return Fast(weight, bias, bias[:, :, :0], bias[:, :, :0])

    def _outer(self) -> Outer:
        steps = torch.arange(1, self.config.batch + 1, device=self.W1.device, dtype=self.W1.dtype)
        pace = (steps.reciprocal() + self.learnable_token_idx).clamp_min(0)
        return Outer(pace, self.ttt_norm_weight.unsqueeze(1), self.ttt_norm_bias.unsqueeze(1))

    def _turned(self, part: Tensor, at: int) -> Tensor:
        """Queries or keys, (B, T, D), turned by their place in the mini-batch, that of the first being `at`."""
        size, length = self.config.batch, part.shape[1]
        padded = F.pad(part, (0, 0, at, -(at + length) % size)).unflatten(1, (-1, size))
        return rotate(padded, self.config.heads).flatten(1, 2)[:, at : at + length]
