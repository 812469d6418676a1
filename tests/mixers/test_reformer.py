"""Reformer against its rules one step at a time, and against transformers' layer."""

from __future__ import annotations

import math
from collections import Counter

import kept
import pytest
import torch
from torch import Generator, Tensor

from levelfield.mixers.reformer import EPS, Reformer, ReformerLayer
from levelfield.ops.attention import lsh
from levelfield.spec import UserError, describe, digest


def _layer(config: Reformer, width: int, causal: bool) -> ReformerLayer:
    layer = config.build(width, causal=causal, layer=0, generator=Generator().manual_seed(1))
    assert isinstance(layer, ReformerLayer)
    return layer


def _x(*shape: int, seed: int = 2) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def shown(buckets: list[int], chunk: int, causal: bool, across: bool) -> list[list[int]]:
    """Which steps one round shows each step, by the rules in words."""
    if causal:
        return [[j for j in range(i) if buckets[j] == buckets[i]][-chunk:] for i in range(len(buckets))]
    order = sorted(range(len(buckets)), key=lambda i: (buckets[i], i))
    lists: list[list[int]] = [[]] * len(buckets)
    for place, i in enumerate(order):
        first = max(0, (place // chunk - 1) * chunk)
        near = [j for j in order[first : (place // chunk + 1) * chunk] if j != i]
        lists[i] = [j for j in near if across or buckets[j] == buckets[i]]
    return lists


def naive(layer: ReformerLayer, x: Tensor, lengths: list[int]) -> Tensor:
    """A sequence, a head and a step at a time: each round by itself, then weighted by its logsumexp. No padding."""
    rows = []
    for sequence, length in zip(x, lengths, strict=True):
        q, v = (part(sequence).unflatten(-1, (layer.heads, -1)) for part in (layer.query_key, layer.value))
        heads = []
        for h in range(layer.heads):
            k = q[:, h] / torch.sqrt((q[:, h] ** 2).mean(-1, keepdim=True) + EPS) / math.sqrt(q.shape[-1])
            rounds = []
            for r in range(layer.rotations.shape[2]):
                turned = q[:length, h] @ layer.rotations[h, :, r]
                buckets = torch.cat([turned, -turned], -1).argmax(-1).tolist()
                rounds.append(shown(buckets, layer.chunk, layer.causal, layer.across))
            steps = []
            for i in range(length):
                if not layer.repeats:  # one softmax over the union of what the rounds show
                    keys = sorted({j for lists in rounds for j in lists[i]})
                    steps.append((k[keys] @ q[i, h]).softmax(0) @ v[keys, h] if keys else v[i, h])
                    continue
                outs, sums = [], []
                for lists in rounds:
                    if lists[i]:
                        scores = k[lists[i]] @ q[i, h]
                        outs.append(scores.softmax(0) @ v[lists[i], h])
                        sums.append(scores.logsumexp(0))
                steps.append(torch.stack(sums).softmax(0) @ torch.stack(outs) if outs else v[i, h])
            steps += [torch.zeros_like(steps[0])] * (len(sequence) - length)
            heads.append(torch.stack(steps))
        rows.append(layer.out(torch.cat(heads, 1)))
    return torch.stack(rows)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("across, repeats", [(True, True), (False, True), (True, False), (False, False)])
@pytest.mark.parametrize(
    "length, chunk, rounds, buckets", [(1, 4, 2, 4), (3, 4, 2, 4), (29, 4, 3, 6), (32, 8, 1, 2), (37, 5, 2, 2)]
)
def test_equals_its_rules_in_value_and_gradient(
    causal: bool, across: bool, repeats: bool, length: int, chunk: int, rounds: int, buckets: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(lsh, "CPU_BLOCK_ELEMENTS", 3 * 2 * chunk**2)  # three chunks to a block
    layer = _layer(Reformer(2, chunk, rounds, buckets, chunk == 5, across, repeats), 6, causal).double()
    x = (2 * _x(3, length, 6)).requires_grad_()
    lengths = [length, max(1, length // 2), 1]
    mask = torch.arange(length) < torch.tensor(lengths)[:, None]
    leaves = [x, *layer.parameters()]
    ours, theirs = layer(x, mask)[mask], naive(layer, x, lengths)[mask]
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(layer(x), layer(x, torch.ones_like(mask)), rtol=1e-12, atol=1e-12)
    # A single step looks at itself alone, so its query counts for nothing, and is no part of the twin's graph.
    expected = torch.autograd.grad(theirs.sin().sum(), leaves, allow_unused=True, materialize_grads=True)
    for mine, other in zip(torch.autograd.grad(ours.sin().sum(), leaves), expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-9)


def test_one_chunk_is_attention_to_all_others() -> None:
    layer, x = _layer(Reformer(heads=1, chunk=20, rounds=3, buckets=8), 4, False).double(), _x(2, 20, 4)
    q, v = layer.query_key(x), layer.value(x)
    scores = q @ torch.nn.functional.normalize(q, dim=-1).mT
    scores = scores.masked_fill(torch.eye(20, dtype=torch.bool), -math.inf)
    torch.testing.assert_close(layer(x), layer.out(scores.softmax(-1) @ v), rtol=1e-5, atol=1e-5)


def test_buckets_are_the_nearest_directions() -> None:
    """Steps along a direction land in its bucket, their opposites half of the buckets further."""
    rotations = torch.eye(5)[None, :, None, :]
    x = torch.cat([torch.eye(5), -3 * torch.eye(5)])[None, :, None, :] + 0.1
    assert lsh.angular_hash(x, rotations).flatten().tolist() == list(range(10))


def test_near_directions_collide_more_often() -> None:
    """Of 4,000 hashes, by angle; the chance falls from 1 at 0 degrees to 0 at 180."""
    rotations = torch.randn(1, 8, 4000, 4, generator=Generator().manual_seed(0))
    angles = torch.linspace(0, math.pi, 7)
    x = torch.zeros(1, 7, 1, 8)
    x[0, :, 0, 0], x[0, :, 0, 1] = angles.cos(), angles.sin()
    buckets = lsh.angular_hash(x, rotations)[0, 0].T
    rates = (buckets == buckets[0]).double().mean(1)
    assert rates[0] == 1 and rates[-1] == 0 and (rates.diff() < 0).all()
    assert abs(rates[3] - 1 / 8) < 0.02  # at right angles the hash is as good as drawn


@pytest.mark.parametrize("causal", [True, False])
def test_padding_in_any_amount_changes_nothing(causal: bool) -> None:
    layer, x = _layer(Reformer(heads=2, chunk=4, rounds=2, buckets=4), 6, causal).double(), _x(1, 40, 6)
    alone = layer(x[:, :17])
    for length in (18, 20, 21, 40):
        mask = torch.arange(length)[None] < 17
        torch.testing.assert_close(layer(x[:, :length], mask)[:, :17], alone, rtol=1e-12, atol=1e-12)


def test_later_steps_do_not_decide_what_earlier_ones_see() -> None:
    """Not even through the places at which chunks are cut: no gradient shows that, so whole futures are swapped."""
    layer, x = _layer(Reformer(heads=2, chunk=4, rounds=2, buckets=4), 6, True).double(), _x(1, 60, 6)
    y = layer(x)
    for cut in (1, 13, 59):
        swapped = torch.cat([x[:, :cut], 5 * _x(1, 60 - cut, 6, seed=cut)], 1)
        torch.testing.assert_close(layer(swapped)[:, :cut], y[:, :cut], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("repeats", [True, False])
def test_a_long_piece_goes_on_from_a_state(repeats: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lsh, "STEP_QUERIES", 7)
    config = Reformer(heads=2, chunk=4, rounds=3, buckets=4, repeats=repeats)
    layer, x = _layer(config, 6, True).double(), _x(2, 60, 6)
    first, state = layer.step(x[:, :9], None)
    second, state = layer.step(x[:, 9:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), layer(x), rtol=1e-10, atol=1e-10)
    assert sum(part[0].numel() for part in state.values()) == Reformer(2, 4, 3, 4).state_size(6, 60)


def test_a_step_sees_so_many_others_and_no_more() -> None:
    """Counted by gradients of single outputs: real sparsity, which does not grow with the sequence."""
    for causal, most in ((True, 2 * 8), (False, 2 * 16)):
        layer = _layer(Reformer(heads=1, chunk=8, rounds=2, buckets=16), 4, causal).double()
        x = _x(1, 300, 4).requires_grad_()
        y, counts = layer(x), Counter[int]()
        for i in range(0, 300, 7):
            (grad,) = torch.autograd.grad(y[0, i].sum(), x, retain_graph=True)
            counts[int((grad[0].abs().sum(-1) > 0).sum())] += 1
        assert max(counts) <= most + 1 and max(counts) > most // 2


def test_rotations_are_saved_and_not_trained() -> None:
    layer = _layer(Reformer(heads=2, chunk=4), 6, True)
    assert "rotations" in layer.state_dict() and "rotations" not in dict(layer.named_parameters())
    before = layer.rotations.clone()
    x = _x(1, 30, 6).float()
    assert torch.equal(layer.train()(x), layer(x)) and torch.equal(layer.rotations, before)
    assert abs(float(before.std()) - 1) < 0.05 and layer.rotations.shape == (2, 3, 4, 32)


@pytest.mark.parametrize("causal", [True, False])
def test_large_queries_and_half_precision_stay_close(causal: bool) -> None:
    layer, x = _layer(Reformer(heads=2, chunk=16), 16, causal), _x(2, 100, 16).float()
    big = (300 * x).requires_grad_()
    y = layer(big)
    y.square().sum().backward()
    assert big.grad is not None and torch.isfinite(y).all() and torch.isfinite(big.grad).all()
    exact = layer.double()(big.detach().double())
    torch.testing.assert_close(y.double(), exact, rtol=1e-3, atol=1e-2)
    layer.float()
    with torch.autocast("cpu", torch.bfloat16):
        half = layer(x)
    # A hash that changes with the rounding of a query shows it other steps: few do, and the rest stays close.
    close = ((half.float() - layer(x)).abs().amax(-1) < 0.05).double().mean()
    assert torch.isfinite(half).all() and close > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("causal", [True, False])
def test_long_sequences_stay_exact(causal: bool) -> None:
    layer, x = _layer(Reformer(heads=2), 8, causal), _x(1, 65536, 8).float().requires_grad_()
    y = layer(x)
    y.square().sum().backward()
    assert x.grad is not None and torch.isfinite(x.grad).all()
    exact = layer.double()(x.detach().double())
    assert ((y.double() - exact).abs().amax(-1) < 1e-4).double().mean() > 0.999  # all but where rounding moved a hash


@kept.modes
@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("padded", [0, 9])
def test_equals_transformers(rounds: int, padded: int, mode: kept.Mode) -> None:
    """All but the steps in a round's first chunk, which there sees the last chunk as well (of the round before).

    The paper's equation of chunks does not wrap around, and padding could not stay invisible if it did. With padding,
    theirs gives it a bucket of its own, as ours does, so only steps of first chunks differ again.
    """
    theirs = kept.case("reformer", mode, f"{rounds} rounds, {padded} padded")
    layer = _layer(Reformer(2, 8, rounds, 6), 12, False).double()
    layer.load_state_dict(theirs.weights | {"out.weight": torch.eye(12), "rotations": theirs["rotations"]})
    x, pull = theirs["x"].detach().requires_grad_(), theirs["pull"]
    mask = torch.arange(64) < torch.tensor([64, 64 - padded])[:, None]
    ours = layer(x, mask if padded else None)
    assert (pull != 0).double().mean() > 0.5
    torch.testing.assert_close(ours * (pull != 0), theirs["y"], rtol=1e-9, atol=1e-9)
    (gradient,) = torch.autograd.grad(ours, x, pull)
    torch.testing.assert_close(gradient, theirs["gradient"], rtol=1e-9, atol=1e-9)


def test_rules_that_were_added_change_no_id_at_their_defaults() -> None:
    old = describe(Reformer(), identity=True)
    assert "repeats" not in old and "across_buckets" not in old and "repeats" in describe(Reformer())
    assert len({digest(Reformer(across_buckets=a, repeats=b)) for a in (True, False) for b in (True, False)}) == 4


def test_bad_sizes_are_refused() -> None:
    for config, message in (
        (Reformer(heads=3), "width 16 into 3 heads"),
        (Reformer(chunk=0), "chunk=0"),
        (Reformer(rounds=0), "rounds=0"),
        (Reformer(buckets=5), "even number"),
    ):
        with pytest.raises(UserError, match=message):
            _layer(config, 16, True)
