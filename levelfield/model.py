"""Builds the network of a phase: input encoder, residual backbone of mixers, pooling and heads.

    x -> encoder -> [x + mixer(norm(x)), x + feedforward(norm(x))] * depth -> norm -> heads["label"] | heads["denoise"]

Every architecture gets the same encoder, the same residual blocks and the same heads; what differs is the mixer. Moving
from one phase to the next keeps all but the heads (`Network.load_trunk`). Letters: B sequences, T steps, C channels of
the input, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from levelfield.ops.layers.constants import table
from levelfield.ops.layers.interfaces import RecurrentLayer, ResidualGate
from levelfield.rng import generator, seeded
from levelfield.spec.errors import UserError
from levelfield.spec.io_types import Input, Tokens
from levelfield.spec.model import Block, Model, ParamRule
from levelfield.spec.numerics import PLAIN, Numerics
from levelfield.spec.protocol import Head


class Encoder(nn.Module):
    """Maps ids (B, T) or values (B, T, C) to (B, T, D), and adds positions where the model has them.

    For values, steps that a masked objective hides arrive as zeros plus a flag, as in amos2025. The flag's column of
    the input projection is a vector of its own here (`hidden`), so the other weights have one shape in every phase.
    """

    def __init__(self, spec: Input, model: Model, mask_flag: bool) -> None:
        super().__init__()
        self.spec, self.positions = spec, model.positions
        if isinstance(spec, Tokens):
            self.embed: nn.Module = nn.Embedding(spec.vocabulary, model.width)
        else:
            self.embed = nn.Linear(spec.channels, model.width)
        self.table = None
        if model.positions == "learned":
            if model.max_positions is None:
                raise UserError("Learned positions need a table size: set Model(max_positions=...).")
            self.table = nn.Parameter(torch.randn(model.max_positions, model.width))
        self.hidden = None  # the mask flag; its name is stored with the weights
        if mask_flag and not isinstance(spec, Tokens):  # last, so that all other weights are drawn the same without it
            bound = 1 / math.sqrt(spec.channels + 1)
            self.hidden = nn.Parameter(torch.empty(model.width).uniform_(-bound, bound))

    def forward(self, x: Tensor, masked: Tensor | None, start: int = 0) -> Tensor:
        """Returns (B, T, D) for x: (B, T) or (B, T, C), from step `start` on; masked: (B, T) bool or None."""
        y = self.embed(x)
        if self.hidden is not None and masked is not None:
            y = y + masked.unsqueeze(-1) * self.hidden
        end = start + y.shape[1]
        if self.table is not None:
            y = y + self.table[start:end]
        elif self.positions == "sinusoidal":
            rows = 1 << (end - 1).bit_length() if start else end  # from a state on, one table serves many steps
            y = y + sinusoids(rows, y.shape[2], y.device)[start:end].to(y.dtype)
        return y


@table
def sinusoids(length: int, width: int, device: torch.device) -> Tensor:
    """Sinusoidal positions, (length, width): sin at even and cos at odd channels of position / 10000^(2i / width)."""
    pairs = (width + 1) // 2
    rates = 10000.0 ** (-2 * torch.arange(pairs, device=device, dtype=torch.float64) / width)
    angles = torch.arange(length, device=device, dtype=torch.float64)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :width].float()


class BatchNorm(nn.Module):
    """Batch normalisation of x: (B, T, D) over the real steps of all sequences; mask: (B, T) or None."""

    def __init__(self, width: int, eps: float | None = None) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width, eps or 1e-5)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            return self.norm(x.flatten(0, 1)).view_as(x)
        y = torch.zeros_like(x)
        y[mask] = self.norm(x[mask])
        return y


class StepNorm(nn.Module):
    """Layer or root-mean-square normalisation of x: (B, T, D), each step by itself."""

    def __init__(self, kind: Literal["layer", "rms", "scale"], width: int, eps: float | None = None) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(())) if kind == "scale" else None
        if kind == "layer":
            self.norm: nn.Module = nn.LayerNorm(width, eps or 1e-5)
        else:
            self.norm = nn.RMSNorm(width, eps, elementwise_affine=kind == "rms")

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return self.norm(x) if self.gain is None else self.gain * self.norm(x)


def _norm(block: Block, width: int) -> nn.Module:
    return BatchNorm(width, block.eps) if block.norm == "batch" else StepNorm(block.norm, width, block.eps)


ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


class FeedForward(nn.Module):
    """A feed-forward network through `hidden` channels, (B, T, D) -> (B, T, D), each step by itself."""

    def __init__(self, width: int, hidden: int, activation: str, bias: bool = True) -> None:
        super().__init__()
        self.activation = activation
        self.up = nn.Linear(width, hidden, bias)
        self.gate = nn.Linear(width, hidden, bias) if activation in ("swiglu", "geglu") else None
        self.down = nn.Linear(hidden, width, bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is not None:
            gate = self.gate(x)
            gate = F.silu(gate) if self.activation == "swiglu" else F.gelu(gate, approximate="tanh")
            return self.down(gate * self.up(x))
        return self.down(ACTIVATIONS[self.activation](self.up(x)))


class Decoder(nn.Module):
    """Answers at each of `length` steps from one state of the whole sequence, (B, D) -> (B, length, outputs).

    State and sinusoidal position are added and go through two normed layers, as in MAD (Poli et al. 2024, compression).
    """

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        layers = [part for _ in range(2) for part in (nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())]
        self.layers = nn.Sequential(*layers, nn.LayerNorm(width), nn.Linear(width, outputs))

    def forward(self, state: Tensor, length: int) -> Tensor:
        return self.layers(state[:, None] + sinusoids(length, state.shape[1], state.device).to(state.dtype))


class ResidualBlock(nn.Module):
    """Computes x + mixer(norm(x)), then x + feedforward(norm(x)); with prenorm=False the norms come after the sums.

    With parallel=True the feed-forward reads the block's input as the mixer does.
    x: (B, T, D) -> the same shape; mask: (B, T) bool, True at real steps, or None.
    """

    def __init__(self, mixer: nn.Module, block: Block, width: int) -> None:
        super().__init__()
        self.mixer, self.prenorm, self.parallel = mixer, block.prenorm, block.parallel
        self.norm = _norm(block, width)
        self.dropout = nn.Dropout(block.dropout)
        self.feedforward = self.norm2 = None
        if block.feedforward:
            self.feedforward = FeedForward(width, block.feedforward, block.activation, block.bias)
            self.norm2 = _norm(block, width)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        y = self.norm(x, mask) if self.prenorm else x
        return self._around(x, self.mixer(y, mask, *self._stream(x)), mask)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """The outputs of the next steps and the state after them; x: (B, n, D) -> the same shape.

        The state is that of `RecurrentLayer`. Raises UserError where the mixer is not recurrent.
        """
        if not isinstance(self.mixer, RecurrentLayer):
            raise UserError(f"{type(self.mixer).__name__} cannot go on from a state: it is not a recurrent layer.")
        y, state = self.mixer.step(self.norm(x, None) if self.prenorm else x, state, *self._stream(x))
        return self._around(x, y, None), state

    def _stream(self, x: Tensor) -> tuple[Tensor, ...]:
        """What the mixer is shown besides its input: the residual stream, (B, T, D), or nothing."""
        return (x,) if isinstance(self.mixer, ResidualGate) else ()

    def _around(self, x: Tensor, mixed: Tensor, mask: Tensor | None) -> Tensor:
        """What comes after the mixer, whose output is `mixed`: its residual and the feed-forward. All are (B, T, D)."""
        entered, x = x, x + self.dropout(mixed)
        if not self.prenorm:
            x = self.norm(x, mask)
        if self.feedforward is None or self.norm2 is None:
            return x
        if self.prenorm:
            return x + self.dropout(self.feedforward(self.norm2(entered if self.parallel else x, mask)))
        return self.norm2(x + self.dropout(self.feedforward(x)), mask)


@dataclass(frozen=True)
class CarriedState:
    """What a causal network has seen: how many steps, and the state that each layer carries of them."""

    steps: int
    layers: tuple[dict[str, Tensor], ...]


def _autocast(numerics: Numerics, device: torch.device) -> AbstractContextManager[object]:
    """Returns a scope of bfloat16 products where the numerics ask for it; any other leaves what is around it."""
    if numerics.precision == "bf16":
        return torch.autocast(device.type, torch.bfloat16)
    return nullcontext()


class Network(nn.Module):
    """The network of one phase. `hidden_states` gives (B, T, D); `head` turns them into the outputs of one head.

    Under bf16 the blocks and heads that answer at every step run in autocast. Encoder, residual stream, norms, pooling
    and heads of whole sequences stay in float32: they cost little, and input values and logits need all their digits.
    """

    def __init__(
        self,
        model: Model,
        spec: Input,
        heads: tuple[Head, ...],
        *,
        mask_flag: bool,
        seed: int,
        numerics: Numerics = PLAIN,
    ) -> None:
        super().__init__()
        self.model, self.head_specs, self.numerics = model, {h.name: h for h in heads}, numerics
        with seeded(seed, "encoder"):
            self.encoder = Encoder(spec, model, mask_flag)
        self.blocks = nn.ModuleList(self._block(layer, seed) for layer in range(model.depth))
        self.compiled: tuple[Callable[..., Tensor], ...] = ()  # the blocks again, once they are compiled
        self.norm = _norm(model.block, model.width) if model.block.final_norm else None
        self.heads = nn.ModuleDict()
        for head in heads:
            with seeded(seed, "head", head.name):
                self.heads[head.name] = self._head(head)

    def _block(self, layer: int, seed: int) -> ResidualBlock:
        config = self.model.mixers[layer % len(self.model.mixers)]
        config.check_direction(self.model.causal)
        draws = generator(seed, "mixer", layer)
        mixer = config.build(self.model.width, causal=self.model.causal, layer=layer, generator=draws)
        with seeded(seed, "block", layer):
            return ResidualBlock(mixer, self.model.block, self.model.width)

    def _head(self, head: Head) -> nn.Module:
        width, hidden = self.model.width, self.model.head_hidden
        if head.per == "decoded":
            return Decoder(width, head.outputs)
        if head.per == "sequence":
            width *= head.documents + 2 * (head.documents == 2 and self.model.pair == "interaction")
        if head.per == "step" or not hidden:
            return nn.Linear(width, head.outputs)
        return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, head.outputs))

    def hidden_states(self, x: Tensor, mask: Tensor | None, masked: Tensor | None = None) -> Tensor:
        """The hidden states of the last layer, (B, T, D).

        x: (B, T) ids or (B, T, C) values; mask: (B, T) bool, True at real steps, or None; masked: (B, T) bool, True at
        steps that the objective hides, or None.
        """
        self._check_length(x.shape[1])
        y = self.encoder(x, masked)
        blocks = self.compiled if self.training and self.compiled else self.blocks
        again = self.numerics.recompute and self.training and torch.is_grad_enabled()
        with _autocast(self.numerics, y.device):
            for block in blocks:
                y = checkpoint(block, y, mask, use_reentrant=False) if again else block(y, mask)
            return y if self.norm is None else self.norm(y, mask)

    def step(self, x: Tensor, state: CarriedState | None) -> tuple[Tensor, CarriedState]:
        """Hidden states of the next n >= 1 steps of a causal model in eval mode, (B, n, D), and the state after them.

        x: (B, n) ids or (B, n, C) values without padding; state: None at the start. Steps may come in pieces of any
        sizes; together they equal `hidden_states` of all. Raises UserError where the model is not causal, is in
        training mode, or has a mixer that is not recurrent.
        """
        if not self.model.causal:
            raise UserError(f"{self.model.label} is bidirectional and cannot go on from a state: set causal=True.")
        if self.training:
            raise UserError("A model goes on from a state in eval mode only, as norms and dropout differ: net.eval().")
        start, before = (0, [None] * len(self.blocks)) if state is None else (state.steps, state.layers)
        self._check_length(start + x.shape[1])
        y, after = self.encoder(x, None, start), []
        with _autocast(self.numerics, y.device):
            for block, layer in zip(self.blocks, before, strict=True):
                assert isinstance(block, ResidualBlock)
                y, kept = block.step(y, layer)
                after.append(kept)
            return y if self.norm is None else self.norm(y, None), CarriedState(start + x.shape[1], tuple(after))

    def _check_length(self, length: int) -> None:
        bound = self.model.max_length
        if bound is not None and length > bound:
            raise UserError(f"{self.model.label} takes at most {bound} steps, not {length}: raise its bound.")

    def head(self, name: str, hidden_states: Tensor, mask: Tensor | None) -> Tensor:
        """The outputs of a head, (B, outputs), or (B * documents, T, outputs) where it answers at every step.

        hidden_states: (B * documents, T, D), where the inputs of an example follow one another; mask: (B * documents,
        T) bool, or None.
        """
        spec = self.head_specs[name]
        if spec.per == "step":
            with _autocast(self.numerics, hidden_states.device):
                return self.heads[name](hidden_states)
        pooled = pool(hidden_states, mask, self.model.pooling)
        if spec.per == "decoded":
            return self.heads[name](pooled, hidden_states.shape[1])
        pooled = pooled.unflatten(0, (-1, spec.documents))
        if spec.documents == 2 and self.model.pair == "interaction":
            x, y = pooled.unbind(1)
            return self.heads[name](torch.cat([x, y, x * y, x - y], -1))
        return self.heads[name](pooled.flatten(1))

    def rules(self) -> dict[str, ParamRule]:
        """The rules that the mixers declare for their parameters, by full parameter name."""
        found = {}
        for layer, block in enumerate(self.blocks):
            config = self.model.mixers[layer % len(self.model.mixers)]
            for suffix, rule in config.param_rules().items():
                for name, _ in block.get_submodule("mixer").named_parameters():
                    if name == suffix or name.endswith(f".{suffix}"):
                        found[f"blocks.{layer}.mixer.{name}"] = rule
        return found

    def load_trunk(self, weights: Mapping[str, Tensor]) -> None:
        """Takes everything but heads and the mask flag from another phase's weights; the heads stay fresh."""
        trunk = {k: v for k, v in weights.items() if not _of_phase(k)}
        own = {k: v for k, v in self.state_dict().items() if not _of_phase(k)}
        _check_same_parameters(trunk, own)
        self.load_state_dict({**self.state_dict(), **trunk})

    def load_whole(self, weights: Mapping[str, Tensor]) -> None:
        """Takes all weights. Raises UserError where they are of another model or phase."""
        _check_same_parameters(weights, self.state_dict())
        self.load_state_dict(dict(weights))


def _of_phase(name: str) -> bool:
    """Tells whether a parameter belongs to one phase only."""
    return name.startswith("heads.") or name == "encoder.hidden"


def _check_same_parameters(weights: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Raises UserError where names or shapes differ."""
    if odd := sorted(weights.keys() ^ own.keys()):
        raise UserError(f"These weights belong to another model or phase: '{odd[0]}' does not match.")
    for name, value in weights.items():
        if value.shape != own[name].shape:
            raise UserError(f"These weights belong to another model: '{name}' has shape {tuple(value.shape)}.")


def pool(hidden_states: Tensor, mask: Tensor | None, how: str) -> Tensor:
    """Returns (B, D) for hidden states (B, T, D): the mean or the maximum of the real steps, or the last of them."""
    if how == "last":
        if mask is None:
            return hidden_states[:, -1]
        return hidden_states[torch.arange(len(hidden_states), device=hidden_states.device), mask.sum(1) - 1]
    if how == "max":
        return (hidden_states if mask is None else hidden_states.masked_fill(~mask.unsqueeze(-1), -math.inf)).amax(1)
    if mask is None:
        return hidden_states.mean(1)
    weights = mask.unsqueeze(-1).to(hidden_states.dtype)
    return (hidden_states * weights).sum(1) / weights.sum(1).clamp(min=1)
