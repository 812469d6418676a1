"""Lists every mixer, one file each; a new one takes its file, and its name in NAMES here.

    find("attention")      # Attention(), with its defaults; an unknown name raises UserError with the nearest one
    classes()              # the config classes of all mixers

Importing this leaves the mixers and torch alone, so that names are known at once.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from levelfield.spec import MixerConfig, UserError, closest

NAMES = (
    "attention",
    "alibi",
    "fox",
    "path",
    "longformer",
    "bigbird",
    "nsa",
    "conv",
    "gmlp",
    "sgconv",
    "hyena",
    "s4",
    "spade",
    "dlr",
    "s5",
    "lru",
    "rglru",
    "linear",
    "performer",
    "linformer",
    "reformer",
    "mega",
    "mamba",
    "mamba2",
    "mamba3",
    "log_linear_mamba2",
    "hymba",
    "gla",
    "hgrn2",
    "deltanet",
    "gated_deltanet",
    "deltaproduct",
    "kda",
    "ttt_linear",
    "mesanet",
    "mlstm",
    "slstm",
    "gru",
    "rwkv6",
    "rwkv6_channel",
    "rwkv7",
    "rwkv7_channel",
)
"""The mixers in the order of the pages: files of this folder, and labels of the configs in them."""


@cache
def classes() -> tuple[type[MixerConfig], ...]:
    """Returns the config classes of all mixers in the order of NAMES, which imports every file."""
    return tuple(type(find(name)) for name in NAMES)


def find(name: str) -> MixerConfig:
    """Returns the mixer with this label and its defaults, importing its file alone.

    Raises UserError for an unknown one, and ValueError where the file has none.
    """
    name = name.lower()
    if name not in NAMES:
        raise UserError(f"There is no mixer '{name}': {closest(name, NAMES, 'levelfield list mixers')}")
    for found in vars(import_module(f"{__name__}.{name}")).values():
        if isinstance(found, type) and issubclass(found, MixerConfig) and vars(found).get("label") == name:
            return found()
    raise ValueError(f"mixers/{name}.py holds no MixerConfig whose label is '{name}'.")
