"""Greedy generation in batches, with shared beginnings and early stops, gives what one prompt at a time gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from levelfield.mixers.attention import Attention
from levelfield.mixers.mamba2 import Mamba2
from levelfield.model import Network
from levelfield.pretrained import language_model
from levelfield.pretrained.decoding import Batching, any_of, ends_with, generate, generate_iter, never_stop
from levelfield.pretrained.language_model import LanguageModel
from levelfield.pretrained.native_model import NativeModel
from levelfield.pretrained.shared_prefixes import prefix_tree
from levelfield.spec import Head, Model, Tokens, UserError

SYMBOLS = 30
HYBRID = Model(
    mixers=(Attention(heads=2, rotary="per_head", short_conv=3), Mamba2(state=4, head=8)),
    depth=2,
    width=16,
    causal=True,
)


@pytest.fixture(scope="module")
def hybrid() -> NativeModel:
    net = Network(HYBRID, Tokens(SYMBOLS), (Head("next", SYMBOLS, "step"),), mask_flag=False, seed=0).double().eval()
    return NativeModel("hybrid", net, net.heads["next"], SYMBOLS, id_offset=Tokens.OFFSET)


def recomputed(model: NativeModel, prompt: Sequence[int] | np.ndarray, budget: int) -> list[int]:
    """Greedy generation by its definition: the whole text again for every token, no state."""
    ids = [int(i) for i in prompt]
    for _ in range(budget):
        hidden = model.net.hidden_states(torch.tensor([ids]) + model.id_offset, None)
        ids.append(int(model.head(hidden[0, -1]).argmax()))
    return ids[len(prompt) :]


def needles(draws: np.random.Generator) -> list[np.ndarray]:
    """Prompts like those of a needle test, of several lengths: a haystack with something inserted at some depth."""
    hay = draws.integers(0, SYMBOLS, 120)
    depths = [0, 0, 30, 30, 30, 90, 110, 110]
    found = [np.concatenate([hay[:d], draws.integers(0, SYMBOLS, 4), hay[d : 120 - draws.integers(5)]]) for d in depths]
    return [*found, found[3].copy(), *(draws.integers(0, SYMBOLS, n) for n in (1, 2, 60))]


BATCHINGS = (
    Batching(),
    Batching(rows=1, max_length_gap=0, min_prefix_saving=1 << 40),
    Batching(rows=3, max_length_gap=2, min_prefix_saving=1),
    Batching(rows=100, max_length_gap=200, min_prefix_saving=20),
    Batching(tokens=300),
)


@pytest.mark.parametrize("batching", BATCHINGS, ids=str)
def test_batches_and_shared_beginnings_change_nothing(
    hybrid: NativeModel, batching: Batching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language_model, "CHUNK", 64)
    monkeypatch.setattr(language_model, "FEWEST", 7)
    prompts, budgets = needles(np.random.default_rng(0)), [6, 3, 1, 0, 5, 5, 7, 2, 6, 4, 8, 3]
    with torch.no_grad():
        expected = [recomputed(hybrid, prompt, budget) for prompt, budget in zip(prompts, budgets, strict=True)]
    assert generate(hybrid, prompts, budgets, batching=batching) == expected


def test_a_row_stops_exactly_where_it_is_done(hybrid: NativeModel) -> None:
    prompts = needles(np.random.default_rng(1))
    whole = generate(hybrid, prompts, 12)

    def digits(made: Sequence[int]) -> str:
        return " ".join(map(str, made))

    wanted = str(whole[2][4])
    stop = any_of(ends_with({whole[0][3], whole[5][1]}), lambda prompt, made: wanted in digits(made))
    for made, full in zip(generate(hybrid, prompts, 12, stop), whole, strict=True):
        done = [i for i in range(12) if full[i] in (whole[0][3], whole[5][1]) or wanted in digits(full[: i + 1])]
        assert made == full[: done[0] + 1 if done else 12]
    assert any(len(made) < 12 for made in generate(hybrid, prompts, 12, stop))


class Counting(LanguageModel):
    """Another model, and how many tokens it was given to read."""

    name = property(lambda self: "counting")  # type: ignore[assignment]
    vocabulary = property(lambda self: self.inner.vocabulary)  # type: ignore[assignment]
    device = property(lambda self: self.inner.device)  # type: ignore[assignment]

    def __init__(self, inner: NativeModel) -> None:
        self.inner, self.tokens, self.calls, self.widest = inner, 0, 0, 0

    def step(self, ids: Tensor, state: Any, last: bool = True) -> tuple[Tensor, Any]:
        self.tokens, self.calls, self.widest = self.tokens + ids.numel(), self.calls + 1, max(self.widest, len(ids))
        return self.inner.step(ids, state, last)

    def rows(self, state: Any, index: Tensor) -> Any:
        return self.inner.rows(state, index)

    def join(self, states: Sequence[Any]) -> Any:
        return self.inner.join(states)


def test_a_shared_beginning_is_read_once_and_all_rows_generate_together(hybrid: NativeModel) -> None:
    draws = np.random.default_rng(2)
    hay = draws.integers(0, SYMBOLS, 1000)
    prompts = [np.concatenate([hay[:d], [i], hay[d:999]]) for i, d in enumerate((250, 250, 500, 500, 750, 750))]
    counted = Counting(hybrid)
    generate(counted, prompts, 3, batching=Batching(rows=6, min_prefix_saving=100))
    assert counted.tokens == 750 + 2 * (750 + 500 + 250) + 6 * 2  # depth by depth, then two steps of all six
    assert counted.calls == 3 + 3 + 2 and counted.widest == 6


def test_rows_that_are_done_leave_the_batch(hybrid: NativeModel) -> None:
    counted = Counting(hybrid)
    prompts = [np.full(50, i) for i in range(8)]
    generate(counted, prompts, [1, 1, 1, 1, 2, 2, 3, 9])
    assert counted.tokens == 8 * 50 + 4 + 2 + 6 * 1


def test_answers_come_as_they_are_found(hybrid: NativeModel) -> None:
    prompts = [np.full(n, 3) for n in (90, 5, 40)]
    order = [number for number, _ in generate_iter(hybrid, prompts, 2, batching=Batching(max_length_gap=0))]
    assert order == [1, 2, 0]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=6, max_size=6), min_size=1, max_size=12),
    st.integers(1, 12),
)
def test_segments_cover_every_prompt_with_its_own_ids(prompts: list[list[int]], saving: int) -> None:
    segments = prefix_tree(prompts, 6, saving)
    assert sorted(i for s in segments for i in s.prompts) == list(range(len(prompts)))
    for number, segment in enumerate(segments):
        assert segment.children == sum(s.parent == number for s in segments)
        assert segment.parent < number and segment.end <= 5
        below = [s for s in range(len(segments)) if number in _path(segments, s)]
        held = [i for s in below for i in segments[s].prompts]
        assert all(prompts[i][: segment.end] == prompts[segment.example][: segment.end] for i in held)
        if number:
            assert segment.begin == segments[segment.parent].end < segment.end
            assert (segment.end - segment.begin) * (len(held) - 1) >= saving


def _path(segments: list[Any], number: int) -> list[int]:
    found = []
    while number >= 0:
        found.append(number)
        number = segments[number].parent
    return found


def test_logits_of_some_steps_are_those_of_all(hybrid: NativeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_model, "CHUNK", 1)
    monkeypatch.setattr(language_model, "FEWEST", 4)
    ids = torch.randint(SYMBOLS, (3, 19), generator=torch.Generator().manual_seed(0))
    whole = hybrid.logits(ids)
    expected = hybrid.head(hybrid.net.hidden_states(ids + Tokens.OFFSET, None))
    torch.testing.assert_close(whole, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(hybrid.logits(ids, last=5), expected[:, -5:], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(hybrid.start(ids)[0], expected[:, -1], rtol=1e-6, atol=1e-6)


def test_what_cannot_be_generated_is_said() -> None:
    short = replace(HYBRID, mixers=HYBRID.mixers[:1], depth=1, positions="learned", max_positions=8)
    net = Network(short, Tokens(SYMBOLS), (Head("next", SYMBOLS, "step"),), mask_flag=False, seed=0).eval()
    model = NativeModel("short", net, net.heads["next"], SYMBOLS, id_offset=Tokens.OFFSET)
    with pytest.raises(UserError, match="short takes at most 8 tokens, not 10"):
        generate(model, [[1] * 6], 4, never_stop)
    with pytest.raises(UserError, match="no tokens"):
        generate(model, [[]], 4, never_stop)
    with pytest.raises(UserError, match="rows, tokens and min_prefix_saving"):
        Batching(rows=0)
