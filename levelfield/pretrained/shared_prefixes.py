"""Finds the common prefixes of prompts, so that each of them is read once.

    prefix_tree([[5, 6, 7, 1], [5, 6, 7, 2], [9, 9, 9, 9]], length=4, min_saving=2)
    #   (empty) ─┬─ 5 6 7 ─┬─ prompt 0
    #            │         └─ prompt 1
    #            └─ prompt 2

Prompts with needles in one haystack are equal up to the needle, so the text before it is read once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np


@dataclass
class PrefixNode:
    """Tokens `begin` to `end`, which all prompts below this node have in common.

    parent: index of the parent node, -1 for the root. example: index of a prompt with these tokens. prompts: indices of
    those that share no more with others. children: number of child nodes.
    """

    parent: int
    begin: int
    end: int
    example: int
    prompts: list[int] = field(default_factory=list)
    children: int = 0


def prefix_tree(prompts: Sequence[Sequence[int] | np.ndarray], length: int, min_saving: int) -> list[PrefixNode]:
    """Builds the prefix tree of the first `length` >= 1 tokens: nodes, each after its parent, with an empty root first.

    min_saving: tokens that a node must save, its own times the number of prompts that share it less one. The last of
    the `length` tokens is never shared, so that every prompt gets logits of its own.
    """
    arrays = [np.asarray(p[:length], dtype=">u4") for p in prompts]
    order = sorted(range(len(arrays)), key=lambda i: arrays[i].tobytes())
    common_with_last = np.zeros(len(order), dtype=np.int64)  # tokens in common with the previous prompt in this order
    for place in range(1, len(order)):
        differ = arrays[order[place - 1]] != arrays[order[place]]
        common_with_last[place] = min(length - 1, differ.argmax() if differ.any() else length)
    nodes = [PrefixNode(-1, 0, 0, order[0])]
    ranges = [(0, len(order), 0)]
    while ranges:
        first, end, parent = ranges.pop()
        if end - first == 1:
            nodes[parent].prompts.append(order[first])
            continue
        inner = common_with_last[first + 1 : end]
        common = int(inner.min())
        if (common - nodes[parent].end) * (end - first - 1) >= min_saving:
            nodes[parent].children += 1
            nodes.append(PrefixNode(parent, nodes[parent].end, common, order[first]))
            parent = len(nodes) - 1
        cuts = [first, *(first + 1 + np.flatnonzero(inner == common)).tolist(), end]
        # The largest part is pushed first and popped last. Its node is the last child, which needs no copy of a state.
        parts = sorted(pairwise(cuts), key=lambda part: part[1] - part[0], reverse=True)
        ranges += [(a, b, parent) for a, b in parts]
    return nodes
