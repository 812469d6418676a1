"""ListOps written a second time, plainly: the official recursion, a recursive-descent evaluator, tree statistics."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
from hypothesis import strategies as st

from levelfield.tasks.listops import SYMBOLS, ListOps

Tree = Any  # a digit, or (operator, [Tree, ...])
DIGITS = {str(digit): digit for digit in range(10)}


def parse(tokens: list[str]) -> Tree:
    """The value by recursive descent. Fails on anything that is not exactly one expression."""

    def expression(token: str) -> Tree:
        if token in DIGITS:
            return DIGITS[token]
        assert token.startswith("["), token
        arguments = []
        while (first := next(rest)) != "]":
            arguments.append(expression(first))
        return token[1:], arguments

    rest = iter(tokens)
    tree = expression(next(rest))
    assert next(rest, None) is None, "something follows the expression"
    return tree


def value(tree: Tree) -> int:
    if isinstance(tree, int):
        return tree
    operator, arguments = tree
    values = [value(a) for a in arguments]
    if operator == "MED":
        middle = sorted(values)[(len(values) - 1) // 2 : len(values) // 2 + 1]
        return int(sum(middle) / len(middle))
    return {"MAX": max, "MIN": min, "SM": lambda v: sum(v) % 10}[operator](values)


def official_tree(rng: random.Random, depth: int, max_depth: int, max_args: int) -> tuple[Tree, int]:
    """The recursion of the official generator: (tree, its length)."""
    chance = rng.random() if depth < max_depth else 1.0
    if chance > 0.25:
        return rng.choice(range(10)), 1
    parts = [official_tree(rng, depth + 1, max_depth, max_args) for _ in range(rng.randint(2, max_args))]
    return (rng.choice(["MIN", "MAX", "MED", "SM"]), [t for t, _ in parts]), 2 + sum(size for _, size in parts)


def official(rng: random.Random, task: ListOps, count: int) -> list[Tree]:
    trees: list[Tree] = []
    while len(trees) < count:
        tree, length = official_tree(rng, 1, task.max_depth, task.max_args)
        if task.minimum < length < task.length:
            trees.append(tree)
    return trees


def flatten(tree: Tree) -> list[str]:
    tokens: list[str] = []

    def write(part: Tree) -> None:
        if isinstance(part, int):
            tokens.append(str(part))
            return
        tokens.append(f"[{part[0]}")
        for argument in part[1]:
            write(argument)
        tokens.append("]")

    write(tree)
    return tokens


def with_parentheses(tree: Tree) -> str:
    """The tree as the official files write it: one pair of parentheses per argument and per closing bracket."""
    if isinstance(tree, int):
        return str(tree)
    operator, arguments = tree
    text = f"[{operator}"
    for part in [*map(with_parentheses, arguments), "]"]:
        text = f"( {text} {part} )"
    return text


def nesting(tree: Tree) -> int:
    return 0 if isinstance(tree, int) else 1 + max(map(nesting, tree[1]))


def canonical(tree: Tree) -> Tree:
    """The tree with sorted arguments, which is the same for trees that differ only in the order of arguments."""
    return tree if isinstance(tree, int) else (tree[0], sorted((canonical(a) for a in tree[1]), key=repr))


def words(sequence: np.ndarray) -> list[str]:
    return [SYMBOLS[s] for s in sequence]


def symbols(tree: Tree) -> np.ndarray:
    return np.array([SYMBOLS.index(token) for token in flatten(tree)], np.uint8)


def tree_strategy() -> st.SearchStrategy[Tree]:
    digit = st.integers(0, 9)

    def operators(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        return st.tuples(st.sampled_from(["MAX", "MED", "MIN", "SM"]), st.lists(inner, min_size=1, max_size=6))

    return st.recursive(digit, operators, max_leaves=40)


def statistics(tree: Tree, scale: int) -> dict[str, Any]:
    """Statistics by which distributions of trees are compared; counts with many values are divided by `scale`."""
    tokens, label = flatten(tree), value(tree)
    return {
        "length": len(tokens) // scale,
        "nesting": nesting(tree),
        "root": tree[0],
        "root arguments": len(tree[1]),
        "label": label,
        "label by root": (tree[0], label),
        "operators": 2 * sum(w.startswith("[") for w in tokens) // scale,
        "second token": tokens[1],
        "last argument": tokens[-2],
    }


def apart(a: list[Tree], b: list[Tree], scale: int) -> dict[str, float]:
    """Chi-square of two samples over their common values, in standard deviations above its mean."""
    samples = [[statistics(t, scale) for t in trees] for trees in (a, b)]
    return {name: two_sample(*([s[name] for s in sample] for sample in samples)) for name in samples[0][0]}


def two_sample(a: list[Any], b: list[Any]) -> float:
    counts = Counter(a), Counter(b)
    often = [c for c in counts[0] | counts[1] if counts[0][c] + counts[1][c] >= 20]
    table = np.array([[count[c] for c in often] + [count.total() - sum(count[c] for c in often)] for count in counts])
    table = table[:, table.sum(0) > 0]
    expected = table.sum(1, keepdims=True) * table.sum(0) / table.sum()
    freedom = max(1, table.shape[1] - 1)
    return float(((table - expected) ** 2 / expected).sum() - freedom) / np.sqrt(2 * freedom)
