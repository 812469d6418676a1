"""Fills the last tokens of a list by longer texts of the same meaning, so that its length is exact to a token or so.

    order = with_longer_texts(order, table.sizes, groups, left=7, rng=rng)  # 7 tokens more, or nearly

Whole lines fill a prompt only up to less than one line. Exchanging a line for a longer one of its group (an item of the
same label, say) fills the rest, and changes no answer.
"""

from __future__ import annotations

import numpy as np


def with_longer_texts(
    order: np.ndarray,
    sizes: np.ndarray,
    groups: np.ndarray,
    *,
    left: int,
    rng: np.random.Generator,
    once: bool = False,
) -> np.ndarray:
    """Exchanges texts of a table for longer ones of their groups, until at most `left` tokens are filled.

    order: (m,) indices of texts, of which random ones are exchanged. sizes, groups: (n,) tokens and group of every
    text; those of group -1 stay. once: no text is taken that `order` has already.
    """
    order = order.copy()
    used = np.zeros(len(sizes), bool)
    used[order] = once
    spent = set[tuple[int, int]]()  # group and size of texts for which there is no longer one that fits, nor will be
    for place in rng.permutation(np.flatnonzero(groups[order] >= 0)).tolist():
        if left <= 0:
            break
        now = order[place]
        kind = (int(groups[now]), int(sizes[now]))
        if kind in spent:
            continue
        more = sizes - sizes[now]
        more[(groups != groups[now]) | used | (more > left)] = 0
        best = int(np.argmax(more))
        if more[best] > 0:
            order[place], left = best, left - int(more[best])
            used[best] |= once
        else:
            spent.add(kind)
    return order
