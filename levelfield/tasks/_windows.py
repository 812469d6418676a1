"""Compares sequences by their windows: which stretches of w steps occur in them, and how often.

    same_windows(rows, width)       # True where every row has the same windows of `width` steps, equally often

A model whose features see w steps, and which pools them without regard to their places, cannot tell such rows apart.
A window may hang over either end of a row, as those of a convolution with zero padding do; what is outside counts as a
symbol of its own.
"""

from __future__ import annotations

import numpy as np


def same_windows(rows: np.ndarray, width: int) -> bool:
    """Tells whether all rows have one multiset of windows of `width` steps, and so of any fewer steps.

    rows: (N, T) whole numbers from 0 on. Every window that holds at least one step of a row counts.
    """
    names = window_names(rows, width)
    return bool((np.sort(names, axis=1) == np.sort(names[:1], axis=1)).all())


def same_gaps(row: np.ndarray, places: np.ndarray) -> bool:
    """Tells whether the same steps stand before the first place, after the last, and between any two.

    row: (T,). places: (K,), all as far from each other, and no nearer to the ends of the row.
    """
    apart = places[1] - places[0]
    gaps = np.stack([row[at - apart + 1 : at] for at in (*places, places[-1] + apart)])
    return bool((gaps == gaps[0]).all())


def window_names(rows: np.ndarray, width: int) -> np.ndarray:
    """Returns a number for each window, equal where the windows are: (N, T + width - 1) int64.

    Names of twice the width follow from pairs of names (Karp, Miller and Rosenberg 1972), so nothing is left to a hash.
    """
    names = np.pad(rows.astype(np.int64) + 1, ((0, 0), (width - 1, width - 1)))
    known = 1  # steps that a name stands for
    while known < width:
        ahead = min(known, width - known)
        pairs = np.stack([names[:, :-ahead], names[:, ahead:]], -1)
        again = pairs[..., 0] * (int(names.max()) + 1) + pairs[..., 1]
        names = np.unique(again, return_inverse=True)[1].reshape(again.shape)
        known += ahead
    return names
