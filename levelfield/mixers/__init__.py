"""Lists every mixer, one file each; a new one takes its file, and an import and an entry in MIXERS here.

find("attention")      # the config class; an unknown name raises UserError with the nearest one
"""

from __future__ import annotations

from levelfield.mixers.alibi import Alibi
from levelfield.mixers.attention import Attention
from levelfield.mixers.bigbird import BigBird
from levelfield.mixers.conv import Conv
from levelfield.mixers.deltanet import DeltaNet
from levelfield.mixers.dlr import DLR
from levelfield.mixers.gated_deltanet import GatedDeltaNet
from levelfield.mixers.gla import GLA
from levelfield.mixers.gmlp import GMLP
from levelfield.mixers.hyena import Hyena
from levelfield.mixers.linear import Linear
from levelfield.mixers.linformer import Linformer
from levelfield.mixers.longformer import Longformer
from levelfield.mixers.lru import LRU
from levelfield.mixers.mamba import Mamba
from levelfield.mixers.mamba2 import Mamba2
from levelfield.mixers.mega import Mega
from levelfield.mixers.mlstm import MLSTM
from levelfield.mixers.performer import Performer
from levelfield.mixers.reformer import Reformer
from levelfield.mixers.rglru import RGLRU
from levelfield.mixers.rwkv6 import RWKV6
from levelfield.mixers.rwkv6_channel import RWKV6Channel
from levelfield.mixers.rwkv7 import RWKV7
from levelfield.mixers.rwkv7_channel import RWKV7Channel
from levelfield.mixers.s4 import S4
from levelfield.mixers.s5 import S5
from levelfield.mixers.sgconv import SGConv
from levelfield.mixers.spade import SPADE
from levelfield.spec import MixerConfig, UserError, closest

MIXERS: tuple[type[MixerConfig], ...] = (
    Attention,
    Alibi,
    Longformer,
    BigBird,
    Conv,
    GMLP,
    SGConv,
    Hyena,
    S4,
    SPADE,
    DLR,
    S5,
    LRU,
    RGLRU,
    Linear,
    Performer,
    Linformer,
    Reformer,
    Mega,
    Mamba,
    Mamba2,
    GLA,
    DeltaNet,
    GatedDeltaNet,
    MLSTM,
    RWKV6,
    RWKV6Channel,
    RWKV7,
    RWKV7Channel,
)


def find(name: str) -> type[MixerConfig]:
    """The config class with this label. Raises UserError for an unknown one."""
    for config in MIXERS:
        if config.label == name.lower():
            return config
    raise UserError(f"There is no mixer '{name}': {closest(name, [config.label for config in MIXERS])}")
