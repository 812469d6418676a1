"""Computes how much less test examples tell that come in groups, such as those of one patient.

design_effect(scores - scores.mean(), groups)    # 8.2: 820 examples tell as much as 100 independent ones
equal_groups(groups)                             # 14.6: so unequal groups tell as much as 14.6 equally large ones
"""

from __future__ import annotations

import numpy as np


def design_effect(apart: np.ndarray, groups: np.ndarray) -> float:
    """Returns how many times the variance of a mean over examples is that of as many independent ones, 1 at least.

    Where all scores are equal, each group counts as one example, since nothing tells how alike its scores are; of one
    group it is 1, for then it cannot be told. apart: (N,), how far each example moves the mean: its score less the
    mean, times its weight. groups: (N,), the number of each example's group.
    Source: Kish, Survey Sampling (1965), section 5.4; the variance over groups is that of cluster-robust errors.
    """
    _, of = np.unique(groups, return_inverse=True)
    few, many = int(of.max(initial=-1)) + 1, len(apart)
    alone, together = float(np.square(apart).sum()), float(np.square(np.bincount(of, apart)).sum())
    if few < 2:
        return 1.0
    if alone == 0:
        return many / few
    return max(1.0, together / alone * (few / (few - 1)) / (many / (many - 1)))


def equal_groups(groups: np.ndarray) -> float:
    """Returns how many equally large groups tell as much as these at most, 1 to N.

    groups: (N,), the number of each example's group. Source: Kish, Survey Sampling (1965), section 11.7.
    """
    _, sizes = np.unique(groups, return_counts=True)
    return len(groups) ** 2 / float(np.square(sizes).sum())
