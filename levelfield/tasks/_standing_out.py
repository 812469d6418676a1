"""How often a question about needles among pairs is answered by who reads the text, but not which key is asked for.

k3 v1 k7 k5 v2 v9 k3 v4 ? k5   ->   v2      k5 parts k7 from its value, and it occurs once, while k3 repeats
"""

from __future__ import annotations

import numpy as np


def answered(texts: np.ndarray, answers: np.ndarray, keys: int, values: int) -> float:
    """Returns the share of answers, 0 to 1, that are the value of a key that stands out.

    It is the commonest value of the keys that follow another key; where there are none, of the keys that occur once;
    and where there are none of these, of the text. Where several are as common, each is taken equally often.

    texts: (N, T), keys from 0 on, then values; what is below 0 is neither. answers: (N,), values from 0 on.
    """
    shares = []
    for text, answer in zip(texts, answers, strict=True):
        key = (text >= 0) & (text < keys)
        asked = np.flatnonzero(key[:-1] & ~key[1:])  # those that have a value
        behind = asked[(asked > 0) & key[asked - 1]]
        once = asked[np.bincount(text[key], minlength=keys)[text[asked]] == 1]
        chosen = next((places for places in (behind, once) if len(places)), asked)
        counts = np.bincount(text[chosen + 1] - keys, minlength=values)
        shares.append((counts[answer] == counts.max()) / np.sum(counts == counts.max()))
    return float(np.mean(shares))
