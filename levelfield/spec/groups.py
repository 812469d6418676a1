"""Computes how much less test examples tell that come in groups, such as those of one patient.

design_effect(scores - scores.mean(), groups)    # 8.2: 820 examples tell as much as 100 independent ones
"""

from __future__ import annotations

import numpy as np


def design_effect(apart: np.ndarray, groups: np.ndarray) -> float:
    """Returns how many times the variance of a mean over examples is that of as many independent ones, 1 at least.

    It is 1 where all scores are equal, or of one group, for then it cannot be told. apart: (N,), how far each example
    moves the mean: its score less the mean, times its weight. groups: (N,), the number of each example's group.
    Source: Kish, Survey Sampling (1965), section 5.4; the variance over groups is that of cluster-robust errors.
    """
    _, of = np.unique(groups, return_inverse=True)
    few, many = int(of.max(initial=-1)) + 1, len(apart)
    alone, together = float(np.square(apart).sum()), float(np.square(np.bincount(of, apart)).sum())
    if few < 2 or not alone > 0:
        return 1.0
    return max(1.0, together / alone * (few / (few - 1)) / (many / (many - 1)))
