"""FoX is softmax attention with a forget gate in each head, which lowers the scores of what lies behind closed gates.

    q, k, v = three linear maps of x,     f_t = sigmoid(w . x_t + b), one number for each head
    y_i = sum_{j <= i} softmax_j(q_i . k_j / sqrt(D / heads) + log f_{j+1} + .. + log f_i) v_j,     out = W_out y

The layer is that of Lin et al. (2025), "Forgetting Transformer: Softmax Attention with a Forget Gate", section 3. Gates
that are open everywhere make it plain attention, gates that are constant make it ALiBi with learned slopes. They tell
the order of steps, so the paper's layer has no positions; `rotary` adds rotations of queries and keys to compare with.

    FoX(heads=4)                          # the paper's, in its LLaMA-like block
    FoX(heads=4, rotary="per_head")       # with positions too

The paper's other form, "Pro", also normalises queries, keys and outputs, gates outputs, and shifts keys and values by a
step; it is not here. Letters: B batch, T steps, D width, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.mixers._checks import check_width
from levelfield.ops.attention.forgetting import attend_forgetting
from levelfield.ops.attention.rotary import rotate
from levelfield.ops.layers.init import linear
from levelfield.ops.layers.interfaces import RecurrentLayer
from levelfield.spec import MixerConfig, UserError


@dataclass(frozen=True)
class FoX(MixerConfig):
    """Forgetting attention of lin2025, section 3, as its "FoX (LLaMA)" has it: no positions, no biases but the gates'.

    rotary: positions by rotations, every head by the same angles. bias: of the four large maps.
    """

    heads: int = 4
    rotary: Literal["none", "per_head"] = "none"
    bias: bool = False

    label: ClassVar[str] = "fox"
    paper: ClassVar[str] = "lin2025"
    complexity: ClassVar[str] = "T^2 D"
    directions: ClassVar[frozenset[str]] = frozenset({"causal"})

    def build(self, width: int, *, causal: bool, layer: int, generator: Generator) -> nn.Module:
        check_width("FoX", width, self.heads)
        if self.rotary != "none" and width // self.heads % 2:
            raise UserError(f"FoX turns pairs of channels, not {width // self.heads} per head: choose an even width.")
        return FoXLayer(self, width, generator)

    def state_size(self, width: int, length: int) -> int:
        """Counts the keys, values and gates of all steps."""
        return (2 * width + self.heads) * length


EXAMPLES = (FoX(heads=2), FoX(heads=4, rotary="per_head", bias=True))


class FoXLayer(RecurrentLayer):
    """Maps (B, T, D) to (B, T, D), causally: padding comes after the real steps, where none of them sees it."""

    def __init__(self, config: FoX, width: int, generator: Generator) -> None:
        super().__init__()
        self.config = config
        self.qkv = linear(width, 3 * width, generator, config.bias)
        self.forget = linear(width, config.heads, generator)
        self.out = linear(width, width, generator, config.bias)

    def step(self, x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        """State: `keys`, rotated if at all, and `values` of all steps so far, (B, T, D) each, and the logarithms of
        their forget gates, `forget`, (B, T, H)."""
        q, k, v = self.qkv(x).chunk(3, -1)
        # In float32: a score falls by a sum over all steps between, and bfloat16 has no gate between 0.996 and 1.
        with torch.autocast(x.device.type, enabled=False):
            forget = F.logsigmoid(F.linear(x.to(self.forget.weight.dtype), self.forget.weight, self.forget.bias))
        if self.config.rotary != "none":
            past = 0 if state is None else state["keys"].shape[1]
            q, k = (rotate(part, self.config.heads, start=past) for part in (q, k))
        parts = {"keys": k, "values": v, "forget": forget}
        if state is not None:
            parts = {name: torch.cat([state[name], part], 1) for name, part in parts.items()}
        heads = (part.unflatten(-1, (self.config.heads, -1)).transpose(1, 2) for part in (q, *parts.values()))
        query, key, value, gate = heads
        y = attend_forgetting(query, key, value, gate.squeeze(-1))
        return self.out(y.transpose(1, 2).flatten(2)), parts
