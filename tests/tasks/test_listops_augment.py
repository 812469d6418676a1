"""The augmentation of ListOps: every operator's arguments in random order, which keeps the label."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from listops_twin import Tree, canonical, flatten, parse, symbols, tree_strategy, value, words

from levelfield.spec import UserError
from levelfield.tasks.listops import ListOps


def shuffled(trees: list[Tree], seed: int, padding: int = 0) -> tuple[np.ndarray, list[list[str]]]:
    """The augmented batch and its rows as words."""
    rows = [symbols(t) for t in trees]
    lengths = torch.tensor([len(r) for r in rows])
    batch = torch.full((len(rows), int(lengths.max()) + 2), padding, dtype=torch.uint8)
    for i, row in enumerate(rows):
        batch[i, : len(row)] = torch.from_numpy(row)
    before = batch.clone()
    out = ListOps().augment(batch, lengths, torch.Generator().manual_seed(seed))
    assert torch.equal(batch, before), "the input was changed"
    return out.numpy(), [words(out.numpy()[i, : len(r)]) for i, r in enumerate(rows)]


@settings(max_examples=150, deadline=None)
@given(st.lists(tree_strategy(), min_size=1, max_size=4), st.integers(0, 2**31), st.integers(0, 14))
def test_permuting_keeps_label_tokens_and_tree(trees: list[Tree], seed: int, padding: int) -> None:
    batch, rows = shuffled(trees, seed, padding)
    for tree, row, raw in zip(trees, rows, batch):
        again = parse(row)
        assert value(again) == value(tree)
        assert canonical(again) == canonical(tree)
        assert Counter(row) == Counter(flatten(tree))
        assert (raw[len(row) :] == padding).all()


def test_permutations_are_uniform_and_independent_by_node() -> None:
    """[MAX 0 1 [MIN 2 3 4 ] ] has 6 orders outside and 6 inside: 36, each as likely."""
    tree = ("MAX", [0, 1, ("MIN", [2, 3, 4])])
    counts = Counter(" ".join(row) for row in shuffled([tree] * 36000, 3)[1])
    assert len(counts) == 36
    assert sum((n - 1000) ** 2 / 1000 for n in counts.values()) < 35 + 5 * np.sqrt(70)


def test_draws_differ_between_calls_and_repeat_by_generator() -> None:
    tree = ("SM", list(range(10)))
    generator = torch.Generator().manual_seed(0)
    x, lengths = torch.from_numpy(symbols(tree)[None]), torch.tensor([12])
    calls = [ListOps().augment(x, lengths, generator) for _ in range(3)]
    assert not torch.equal(calls[0], calls[1]) and not torch.equal(calls[1], calls[2])
    assert torch.equal(calls[0], ListOps().augment(x, lengths, torch.Generator().manual_seed(0)))


def test_a_row_cut_short_is_refused() -> None:
    x = torch.tensor([[10, 1, 2, 14], [10, 1, 2, 3]], dtype=torch.uint8)
    with pytest.raises(UserError, match="Row 1"):
        ListOps().augment(x, torch.tensor([4, 4]), torch.Generator())
