"""Makes Python's numbers of NumPy's, so that a value made of either is the same value, with the same id.

    plain(np.int64(64))            # 64
    plain(np.float32(0.001))       # 0.001, the shortest decimal that is this number in its precision

`float(np.float32(0.001))` is 0.0010000000474974513: digits that nobody wrote, and another run than one of 0.001.
"""

from __future__ import annotations

import sys
from typing import Any


def plain(value: Any) -> Any:
    """Returns a number of NumPy's as one of Python's, also inside a tuple; anything else as it is."""
    numpy = sys.modules.get("numpy")  # whoever has such a number has imported it; it takes long to import
    if numpy is None:
        return value
    if isinstance(value, numpy.generic):
        return float(str(value)) if isinstance(value, numpy.floating) else value.item()
    if type(value) is tuple and any(plain(each) is not each for each in value):
        return tuple(map(plain, value))
    return value


def plain_numbers(value: object) -> None:
    """Replaces the numbers of NumPy's among the fields of a frozen dataclass, while it is made."""
    for name, given in [*getattr(value, "__dict__", {}).items()]:
        if (found := plain(given)) is not given:
            object.__setattr__(value, name, found)
