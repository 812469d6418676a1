"""Names the patterns of published hybrids, as values that any model takes.

    Model(hybrids.pattern("griffin", heads=4, window=1_024), depth=6, width=64, causal=True)
    hybrids.pattern("qwen3_next", heads=4)      # three Gated DeltaNets, then attention

A pattern says which layers follow each other, with the settings of ours that are nearest. Sizes other than heads and
the window are the mixers' own defaults. What a pattern leaves out stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from levelfield.mixers.attention import Attention
from levelfield.mixers.gated_deltanet import GatedDeltaNet
from levelfield.mixers.hymba import Hymba
from levelfield.mixers.kda import KDA
from levelfield.mixers.mamba import Mamba
from levelfield.mixers.rglru import RGLRU
from levelfield.spec import MixerConfig, UserError, closest

Pattern = tuple[MixerConfig, ...]


@dataclass(frozen=True)
class Hybrid:
    """A published pattern.

    source: where it is printed, and what it is. without: what of it is not here. make: heads and window -> mixers.
    """

    source: str
    without: str
    make: Callable[[int, int], Pattern]


def _jamba(heads: int, window: int) -> Pattern:
    attention = Attention(heads, bias=False)
    return tuple(attention if layer == 4 else Mamba() for layer in range(8))


def _samba(heads: int, window: int) -> Pattern:
    return (Mamba(), Attention(heads, rotary="per_head", window=window, bias=False))


def _qwen3_next(heads: int, window: int) -> Pattern:
    return (*(GatedDeltaNet(heads) for _ in range(3)), Attention(heads, rotary="per_head", bias=False))


def _kimi_linear(heads: int, window: int) -> Pattern:
    return (*(KDA(heads) for _ in range(3)), Attention(heads, bias=False))


def _griffin(heads: int, window: int) -> Pattern:
    attention = Attention(heads, rotary="per_head", kv_heads=1, window=window, bias=False)
    return (RGLRU(heads), RGLRU(heads), attention)


def _hymba(heads: int, window: int) -> Pattern:
    far, near = Hymba(heads), Hymba(heads, window=window)
    return tuple(far if layer in (0, 15, 31) else near for layer in range(32))


HYBRIDS: dict[str, Hybrid] = {
    "jamba": Hybrid(
        "Lieber et al. 2024: one attention layer in eight, the fifth",
        "norms of Mamba's step, B and C, keys and values that heads share, and mixtures of experts",
        _jamba,
    ),
    "samba": Hybrid("Ren et al. 2024: Mamba and attention to a window in turn", "nothing", _samba),
    "qwen3_next": Hybrid(
        "Qwen3-Next's configuration: attention is every fourth layer",
        "attention's output gate, norms of its queries and keys and rotation of a quarter of their channels alone, "
        "keys that heads share in both kinds of layers, and mixtures of experts",
        _qwen3_next,
    ),
    "kimi_linear": Hybrid(
        "Kimi Team 2025: three layers of KDA to one of attention without positions",
        "attention's latent keys and values (MLA), and mixtures of experts",
        _kimi_linear,
    ),
    "griffin": Hybrid(
        "De et al. 2024: two recurrent blocks, then attention to a window with one head of keys",
        "rotation of half of a head's channels alone, which RecurrentGemma has",
        _griffin,
    ),
    "hymba": Hybrid(
        "Dong et al. 2024: attention and a state-space model side by side in every layer; of the 32 layers of "
        "Hymba-1.5B, the first, the sixteenth and the last have no window",
        "learned first steps (meta tokens), keys and values that heads and two layers share, and the fourth tap of the "
        "convolution that the released model has",
        _hymba,
    ),
}
"""The patterns by name."""


def pattern(name: str, heads: int = 4, window: int = 2_048) -> Pattern:
    """Returns the mixers of a published hybrid, in their order; a model repeats them to its depth.

    heads: of all layers but Mamba. window: steps that attention sees, where the hybrid bounds it.
    Raises UserError for an unknown name, and for no heads or no window.
    """
    if name not in HYBRIDS:
        raise UserError(f"There is no hybrid '{name}': {closest(name, list(HYBRIDS))}")
    if heads < 1 or window < 1:
        raise UserError(f"A hybrid needs at least one head and a window of one step, not {heads} and {window}.")
    return HYBRIDS[name].make(heads, window)
