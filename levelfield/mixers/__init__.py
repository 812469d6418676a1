"""Lists every mixer, one file each; a new one takes its file, and its name in NAMES here.

find("attention")      # the config class; an unknown name raises UserError with the nearest one
"""

from __future__ import annotations

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


def _config(name: str) -> type[MixerConfig]:
    """The config class in a mixer's file. Raises ValueError where none has the file's name as its label."""
    for found in vars(import_module(f"{__name__}.{name}")).values():
        if isinstance(found, type) and issubclass(found, MixerConfig) and vars(found).get("label") == name:
            return found
    raise ValueError(f"mixers/{name}.py holds no MixerConfig whose label is '{name}'.")


MIXERS: tuple[type[MixerConfig], ...] = tuple(_config(name) for name in NAMES)


def find(name: str) -> type[MixerConfig]:
    """The config class with this label. Raises UserError for an unknown one."""
    for config in MIXERS:
        if config.label == name.lower():
            return config
    raise UserError(f"There is no mixer '{name}': {closest(name, NAMES, 'levelfield list mixers')}")
