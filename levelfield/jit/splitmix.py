"""SplitMix64, the counter-based random numbers of generated data (Steele, Lea and Flood 2014, figure 10).

    state += STEP
    bits = mix(state)           # 64 random bits; the next state gives the next 64

The state is a counter, so number n of a seed is known without the numbers before it: a generator that numbers its
examples draws the same ones in any order, in any block and on any number of threads. Compiled loops wrap `mix` by
`compiled(mix)`; as it stands it takes arrays.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

STEP = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio, made odd

Bits = TypeVar("Bits", np.uint64, np.ndarray)


def mix(z: Bits) -> Bits:
    """The finaliser: well-mixed 64 bits for each 64 bits of z, a number or an array of any shape; uint64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
