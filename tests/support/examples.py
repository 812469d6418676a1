"""Settings of each mixer, what its file has as EXAMPLES or its defaults, and each of them in all its directions."""

from __future__ import annotations

import sys

import pytest

from levelfield.mixers import classes
from levelfield.spec import MixerConfig

EXAMPLES: list[MixerConfig] = [
    example for config in classes() for example in getattr(sys.modules[config.__module__], "EXAMPLES", (config(),))
]
CASES = [
    pytest.param(config, direction == "causal", id=f"{config}-{direction}")
    for config in EXAMPLES
    for direction in sorted(config.directions)
]
