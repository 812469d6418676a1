"""Mega is gated attention with one head, whose queries and keys come from a moving average of the input.

    m = silu(EMA(x) + omega x)                                 over the past, and the future unless causal
    z = silu(W_z m),  q = scale_q z + shift_q,  k = scale_k z + shift_k,  v = silu(W_v x)
    o = f(q k^T + b) v                                         f: softmax or laplace; b: a bias of distances
    h = silu(W_h m + U_h (silu(W_r m) o))                      the reset gate
    out = u (h - s),   u = sigmoid(W_u m)                      the update gate; s is the residual stream

The layer is that of Ma et al. (2023), sections 3.1 to 3.4. The EMA keeps N exponential moving averages of every
channel, which are real (section 3.1) or complex, as in Megalodon (CEMA; Ma et al. 2024, section 3.1). Complex ones also
rotate:

    a[t] = (1 - p d) e^(i theta) a[t - 1] + p beta x[t],   EMA = Re sum_n gamma a / sqrt(N),   p, d in (0, 1)

Mega's block is (1 - u) s + u h, the gate being the residual. Here `Block` adds s, so the layer gives u (h - s); where
the norm comes before the layer, `Block` hands it the stream itself (`ResidualGate`), so that both orders are the
published ones. Dropout is the block's, on u (h - s) as a whole; the published code drops parts of m and of h. Its LRA
models also cut the EMA's kernel after 1,024 steps (4,096 on PathX) to save time, which this layer does not.

    Mega(keys=64, values=160, bound=2002)                      # LRA ListOps in ma2023
    Mega(attention="laplace", chunk=128)                       # Mega-chunk: each step sees its own 128 steps
    Mega(form="complex", positions="rotary")                   # no bound on the length

Letters: B batch, T steps, D width, N averages, Z keys, H values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.ops.attention.relative import attend_chunks, attend_distances
from levelfield.ops.attention.rotary import rotary_bias
from levelfield.ops.conv.fft import fft_conv
from levelfield.ops.layers.init import linear
from levelfield.ops.layers.interfaces import RecurrentLayer, ResidualGate
from levelfield.ops.ssm.diagonal import diagonal_kernel
from levelfield.ops.ssm.step import step_diagonal
from levelfield.spec import MixerConfig, UserError

STD = 0.02  # of all maps, of scale and shift, of the bias


@dataclass(frozen=True)
class Mega(MixerConfig):
    """Mega of ma2023, sections 3.1 to 3.4, with the initial values of its code.

    The code also gives every parameter the same weight decay, and so does a recipe with decay_all. state: N. form: real
    averages, or the complex ones of ma2024; in two directions there are two sets of them. keys: Z. values: H, None is
    twice the width. attention: f. positions: "simple" has a free bias for every distance, up to `bound` steps or within
    a `chunk`; "rotary" derives it from two learned vectors, without a bound. chunk: how many steps a chunk has, which
    alone a step of it sees; None is everything.
    """

    state: int = 16
    form: Literal["real", "complex"] = "real"
    keys: int = 64
    values: int | None = None
    attention: Literal["softmax", "laplace"] = "softmax"
    positions: Literal["simple", "rotary"] = "simple"
    bound: int = 1024
    chunk: int | None = None

    label: ClassVar[str] = "mega"
    paper: ClassVar[str] = "ma2023"
    complexity: ClassVar[str] = "T log T D + T^2 (keys + values); with chunk T log T D + T chunk (keys + values)"

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        for name in ("state", "keys", "values", "bound", "chunk"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise UserError(f"Mega({name}={size}) leaves nothing: give at least 1.")
        if self.positions == "rotary" and self.keys % 2:
            raise UserError(f"Mega's rotary bias turns pairs of channels: choose even keys, not {self.keys}.")
        if self.form == "complex" and width < 2:
            raise UserError("Mega's complex form spreads its frequencies over the channels: choose a width above 1.")
        return MegaLayer(self, width, causal, generator)

    def state_size(self, width: int, length: int) -> int:
        """Counts the averages, and the keys and values that the next step sees."""
        parts = 1 if self.form == "real" else 2
        return parts * width * self.state + self.kept(length) * (self.keys + (self.values or 2 * width))

    def kept(self, length: int) -> int:
        """How many of `length` steps the step after them sees."""
        return length if self.chunk is None else length % self.chunk

    @property
    def max_length(self) -> int | None:
        return self.bound if self.chunk is None and self.positions == "simple" else None


EXAMPLES = (
    Mega(state=3, keys=4, values=6, bound=70),
    Mega(state=2, keys=4, attention="laplace", chunk=5),
    Mega(state=2, form="complex", keys=4, values=6, attention="laplace", positions="rotary"),
    Mega(state=2, form="complex", keys=4, values=6, positions="rotary", chunk=8),
)


class MegaLayer(ResidualGate, RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), which the block adds to the stream.

    In the causal direction padding comes after the real steps, where none of them sees it.
    """

    def __init__(self, config: Mega, width: int, causal: bool, generator: Generator) -> None:
        super().__init__()
        self.config, self.causal = config, causal
        values = config.values or 2 * width
        self.average = Average(config, width, causal, generator)
        self.value = linear(width, values, generator)
        self.rows = width, config.keys, values, width  # u, z, r and what h takes from m
        self.mix = linear(width, sum(self.rows), generator)
        self.out = linear(values, width, generator)
        for layer in (self.value, self.mix, self.out):
            nn.init.normal_(layer.weight, 0, STD, generator=generator)
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
        self.scale = nn.Parameter(torch.empty(2, config.keys).normal_(0, STD, generator=generator))  # of q and k
        self.shift = nn.Parameter(torch.zeros(2, config.keys))
        reach = (2, config.keys) if config.positions == "rotary" else (2 * (config.chunk or config.bound) - 1,)
        self.bias = nn.Parameter(torch.empty(reach).normal_(0, STD, generator=generator))

    def forward(self, x: Tensor, mask: Tensor | None = None, stream: Tensor | None = None) -> Tensor:
        """Returns (B, T, D) for x: (B, T, D); mask: (B, T) bool, True at real steps, or None.

        stream: the residual stream, (B, T, D), or None where it is x.
        """
        mixed = self.average(x, mask)
        seen = self._attended(*self._heads(mixed), F.silu(self.value(x)), None if self.causal else mask)
        return self._gated(mixed, seen, x if stream is None else stream)

    def step(
        self, x: Tensor, state: dict[str, Tensor] | None, stream: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Keeps the averages and the keys and values that the next step sees.

        State: `average`, (B, D, N), or (B, D, N, 2) where it is complex; `keys`, (B, steps, Z); `values`, (B, steps,
        H).
        """
        mixed, average = self.average.step(x, None if state is None else state["average"])
        (q, k), v = self._heads(mixed), F.silu(self.value(x))
        if state is not None:
            k, v = torch.cat([state["keys"], k], 1), torch.cat([state["values"], v], 1)
        y = self._gated(mixed, self._attended(q, k, v, None), x if stream is None else stream)
        first = k.shape[1] - self.config.kept(k.shape[1])
        return y, {"average": average, "keys": k[:, first:], "values": v[:, first:]}

    def _heads(self, mixed: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys of m: (B, T, D), (B, T, Z) each."""
        z = F.silu(self._mapped(mixed, 1))
        return torch.addcmul(self.shift[0], z, self.scale[0]), torch.addcmul(self.shift[1], z, self.scale[1])

    def _mapped(self, mixed: Tensor, part: int) -> Tensor:
        """One part of the map of m: (B, T, D), (B, T, channels).

        Each part has a product of its own, since a single product would leave them interleaved in memory.
        """
        start = sum(self.rows[:part])
        rows = slice(start, start + self.rows[part])
        return F.linear(mixed, self.mix.weight[rows], self.mix.bias[rows])

    def _attended(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Returns (B, Q, H) for q: (B, Q, Z), k: (B, K, Z), v: (B, K, H) and mask: (B, K) or None."""
        c, bias, keys = self.config, self.bias, k.shape[1]
        if c.max_length is not None and keys > c.max_length:
            raise UserError(f"This Mega has biases for {c.bound} steps, not {keys}: raise bound, or set a chunk.")
        if c.positions == "rotary":
            bias = rotary_bias(bias[0], bias[1], min(keys, c.chunk or keys))
        if c.chunk is None:
            return attend_distances(q, k, v, bias, mask, causal=self.causal, weigh=c.attention)
        return attend_chunks(q, k, v, bias, mask, causal=self.causal, weigh=c.attention, chunk=c.chunk)

    def _gated(self, mixed: Tensor, seen: Tensor, stream: Tensor) -> Tensor:
        """Returns (B, T, D) for m and the stream, (B, T, D) each, and what attention saw, (B, T, H)."""
        reset = F.silu(self._mapped(mixed, 2))
        h = F.silu(self._mapped(mixed, 3) + self.out(reset * seen.to(reset.dtype)))
        return (torch.sigmoid(self._mapped(mixed, 0)) * (h - stream)).to(h.dtype)


class Average(nn.Module):
    """The map silu(EMA(x) + omega x) of (B, T, D) to (B, T, D). Padded steps count as zero, in both directions.

    The two directions have their own averages, each of which begins at the step itself. Parameters but theta are drawn
    as both published codes draw them: p and d around one half, gamma from N(0, 1).
    """

    def __init__(self, config: Mega, width: int, causal: bool, generator: Generator) -> None:
        super().__init__()
        sizes = 1 if causal else 2, width, config.state
        self.decay, self.damp = (  # (1 or 2, D, N) each: sigmoids of them are p and d
            nn.Parameter(torch.empty(sizes).normal_(0, 0.2, generator=generator)) for _ in range(2)
        )
        self.drive = self.turn = None
        if config.form == "real":
            beta = torch.empty(sizes).normal_(0, STD, generator=generator)
            beta += 1 - 2 * (torch.arange(config.state) % 2)
            self.drive = nn.Parameter(beta)  # (1 or 2, D, N): beta
            self.readout = nn.Parameter(torch.empty(sizes).normal_(generator=generator))  # gamma
            omega = torch.empty(width).normal_(generator=generator)
        else:
            self.turn = nn.Parameter(torch.stack([_turns(width, generator) for _ in range(sizes[0])]))
            gamma = torch.zeros(*sizes, 2)
            gamma[..., 0].normal_(generator=generator)
            self.readout = nn.Parameter(gamma)  # (1 or 2, D, N, 2): gamma
            omega = nn.init.trunc_normal_(torch.empty(width), 0, 0.25, -1, 1, generator=generator)
        self.skip = nn.Parameter(omega)  # (D,): omega

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        if mask is not None:
            x = x.masked_fill(~mask.unsqueeze(-1), 0)
        # In float32: bfloat16 has no number between 0.996 and 1, where decays of long memories lie.
        with torch.autocast(x.device.type, enabled=False):
            powers, weight = self._powers()
            taps = diagonal_kernel(powers.flatten(0, 1), weight.flatten(0, 1).unsqueeze(0), x.shape[1])[0]
            past, *future = taps.unflatten(0, weight.shape[:2]).unbind(0)
            here = self.skip + sum(later[:, 0] for later in future)
            past = torch.cat([(past[:, 0] + here).unsqueeze(1), past[:, 1:]], 1)
            y = fft_conv(x.transpose(1, 2), past, *(later[:, 1:] for later in future))
        return F.silu(y.transpose(1, 2))

    def step(self, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """The next steps from the averages before them, (B, D, N) or (B, D, N, 2), and the averages after them."""
        # In float32: bfloat16 has no number between 0.996 and 1, where decays of long memories lie.
        with torch.autocast(x.device.type, enabled=False):
            (powers,), (weight,) = self._powers()
            if state is not None and self.turn is None:
                state = torch.stack([state, torch.zeros_like(state)], -1)
            u = x.transpose(1, 2).to(self.skip.dtype)
            y, after = step_diagonal(powers, weight, u, state)
            y = F.silu(y + self.skip.unsqueeze(-1) * u)
        return y.transpose(1, 2), after if self.turn is not None else after[..., 0]

    def _powers(self) -> tuple[Tensor, Tensor]:
        """The logarithm of what an average is multiplied by in a step, and the weight with which it counts.

        Both are (1 or 2, D, N) complex; the logarithm is in float64.
        """
        p, d = torch.sigmoid(self.decay.double()), torch.sigmoid(self.damp.double())
        rate = torch.log1p(-p * d)
        size = p.to(self.skip.dtype) * self.decay.shape[-1] ** -0.5
        if self.turn is None:
            assert self.drive is not None
            weight = size * self.drive * self.readout
            return torch.complex(rate, torch.zeros_like(rate)), torch.complex(weight, torch.zeros_like(weight))
        order = torch.arange(1, rate.shape[-1] + 1, device=rate.device) * (2 * math.pi / rate.shape[-1])
        theta = torch.sigmoid(self.turn.double()).unsqueeze(-1) * order
        return torch.complex(rate, theta), size * torch.view_as_complex(self.readout)


def _turns(width: int, generator: Generator) -> Tensor:
    """The angles' parameters, (D,), whose sigmoids are D^(-i / D) for i = 1 .. D in random order.

    Average n rotates by 2 pi n / N times the sigmoid in a step.
    """
    order = torch.randperm(width, generator=generator) + 1
    return torch.logit(torch.exp(-math.log(width) / width * order))
