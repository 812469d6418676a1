"""One or more settings of each mixer: what its file has as EXAMPLES, or its defaults."""

from __future__ import annotations

import sys

from levelfield.mixers import classes
from levelfield.spec import MixerConfig

EXAMPLES: list[MixerConfig] = [
    example for config in classes() for example in getattr(sys.modules[config.__module__], "EXAMPLES", (config(),))
]
