"""BigBird against attention over pairs of steps under a mask, its draws by count, and transformers' class."""

from __future__ import annotations

import math

import kept
import pytest
import torch
from torch import Generator, Tensor
from traffic import growth

from levelfield.mixers.bigbird import BigBird, BigBirdLayer
from levelfield.ops.attention.block_sparse import hash_integers, sample_blocks
from levelfield.spec import UserError

WIDTH = 8


def _layer(config: BigBird, width: int = WIDTH, seed: int = 1) -> BigBirdLayer:
    layer = config.build(width, causal=False, layer=0, generator=Generator().manual_seed(seed))
    assert isinstance(layer, BigBirdLayer)
    return layer.double()


def _x(*shape: int) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(2), dtype=torch.float64)


def random_blocks(layer: BigBirdLayer, count: int) -> list[list[list[int]]]:
    """[head][row]: the blocks sample_blocks for a row of a sequence of `count` blocks."""
    table = layer.table(torch.tensor([count]), count)[0, :, :, layer.config.window + 2 :]
    return [[[j for j in row if j < count] for row in head] for head in table.tolist()]


def naive(layer: BigBirdLayer, x: Tensor, lengths: list[int]) -> Tensor:
    """One query and one head at a time. Only which blocks are random is taken from the layer."""
    c, dim = layer.config, x.shape[-1] // layer.config.heads
    q, k, v = layer.qkv(x).chunk(3, -1)
    rows = []
    for b, length in enumerate(lengths):
        count = math.ceil(length / c.block)
        random, steps = random_blocks(layer, count), []
        for i in range(x.shape[1]):
            row, heads = i // c.block, []
            for h in range(c.heads):
                if i >= length:
                    heads.append(torch.zeros(dim, dtype=x.dtype))
                    continue
                blocks = {0, count - 1, *range(row - c.window // 2, row + c.window // 2 + 1), *random[h][row]}
                if row in (0, count - 1):
                    blocks = set(range(count))
                seen, own = [j for j in range(length) if j // c.block in blocks], slice(h * dim, (h + 1) * dim)
                scores = k[b, seen, own] @ q[b, i, own] / math.sqrt(dim)
                heads.append(scores.softmax(0) @ v[b, seen, own])
            steps.append(torch.cat(heads))
        rows.append(torch.stack(steps))
    return layer.out(torch.stack(rows))


@pytest.mark.parametrize("length", [1, 2, 3, 6, 9, 38])
@pytest.mark.parametrize(
    "config",
    [
        BigBird(heads=2, block=3, random=2),
        BigBird(heads=1, block=2, window=5, random=0),
        BigBird(heads=2, block=4, window=1, random=1, bias=False),
        BigBird(heads=1, block=50),
    ],
    ids=str,
)
def test_equals_attention_over_the_steps_it_sees_in_value_and_gradient(config: BigBird, length: int) -> None:
    layer, x = _layer(config), _x(3, length, WIDTH).requires_grad_()
    lengths = [length, max(1, length - config.block), max(1, length // 2)]
    mask = torch.arange(length) < torch.tensor(lengths)[:, None]
    leaves = [x, *layer.parameters()]
    ours, theirs = layer(x, mask)[mask], naive(layer, x, lengths)[mask]
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    grads = torch.autograd.grad(ours.sin().sum(), leaves), torch.autograd.grad(theirs.sin().sum(), leaves)
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(layer(x[:1], None), layer(x[:1], mask[:1]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 40])
def test_rows_draw_other_blocks_than_they_see_anyway_and_all_there_are_if_few(count: int) -> None:
    layer = _layer(BigBird(heads=4, block=4, window=3, random=3))
    for head in random_blocks(layer, count):
        for row, blocks in enumerate(head):
            free = set(range(count)) - {0, count - 1, row - 1, row, row + 1}
            assert len(set(blocks)) == len(blocks) == min(3, len(free)) and set(blocks) <= free


def test_draws_are_uniform_and_differ_between_heads_rows_and_seeds() -> None:
    """Row 20 of 41 blocks leaves 36 to draw from; 2,400 draws are 67 each, give or take 8."""
    layer = _layer(BigBird(heads=800, block=4, random=3), width=800)
    drawn_by_head = torch.tensor([head[20] for head in random_blocks(layer, 41)])
    counts = torch.bincount(drawn_by_head.flatten(), minlength=41)
    assert counts[[0, 19, 20, 21, 40]].sum() == 0
    free = counts[counts > 0].double()
    chi_square = ((free - 2400 / 36) ** 2 / (2400 / 36)).sum()  # 35 degrees of freedom: 35, give or take 8.4
    assert len(free) == 36 and 10 < chi_square < 65
    rows = random_blocks(_layer(BigBird(heads=2, block=4, random=3)), 300)
    assert len({tuple(blocks) for head in rows for blocks in head}) > 590
    assert rows != random_blocks(_layer(BigBird(heads=2, block=4, random=3), seed=5), 300)


def test_scattering_is_one_to_one_and_draws_count_past_what_is_taken() -> None:
    keys = torch.arange(1 << 16)
    assert len(hash_integers(keys).unique()) == len(keys) and int(hash_integers(keys).max()) < 1 << 32
    taken, count = torch.tensor([[1, 4, 9, 9]]), torch.tensor([6])  # 0, 2, 3 and 5 are free
    picks = [int(sample_blocks(torch.tensor([n << 30]), taken, count)) for n in range(4)]
    assert picks == [0, 2, 3, 5]
    assert int(sample_blocks(torch.tensor([7]), torch.tensor([[0, 1]]), torch.tensor([2]))) == 2


def test_random_blocks_are_saved_with_the_weights() -> None:
    layer, other = _layer(BigBird(heads=2, block=4)), _layer(BigBird(heads=2, block=4), seed=5)
    other.load_state_dict(layer.state_dict())
    assert random_blocks(layer, 30) == random_blocks(other, 30)


@kept.modes
@pytest.mark.parametrize("length", [48, 45])
def test_the_same_function_as_transformers_class(length: int, mode: kept.Mode) -> None:
    """Its random blocks are replaced by ours; its last block is padded where the length is no multiple of the block."""
    theirs, ours = kept.case("bigbird", mode, str(length)), _layer(BigBird(heads=4, block=4, random=2), 16)
    parts = {end: [theirs.weights[f"{name}.{end}"] for name in ("query", "key", "value")] for end in ("weight", "bias")}
    eye = {"out.weight": torch.eye(16), "out.bias": torch.zeros(16)}
    qkv = {f"qkv.{end}": torch.cat(values) for end, values in parts.items()}
    ours.load_state_dict(eye | qkv | {"seeds": theirs["seeds"]})
    assert [head[1:-1] for head in random_blocks(ours, 12)] == theirs["blocks"].tolist()
    x = theirs["x"].detach().requires_grad_()
    y = ours(x[:, :length], None)
    torch.testing.assert_close(y, theirs["y"], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(torch.autograd.grad(y.sin().sum(), x)[0], theirs["gradient"], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mask", [False, True])
def test_linear_in_the_length_backward_too(mask: bool) -> None:
    layer = BigBird(heads=1, block=16).build(8, causal=False, layer=0, generator=Generator().manual_seed(0))
    assert growth(layer, 2048, mask) < 1.05


@pytest.mark.slow
def test_long_sequences_and_half_precision_stay_finite() -> None:
    layer, x = _layer(BigBird(heads=2, block=64)).float(), _x(1, 65536, 8).float().requires_grad_()
    y = layer(x, None)
    y.square().sum().backward()
    assert x.grad is not None and torch.isfinite(y).all() and torch.isfinite(x.grad).all()
    with torch.autocast("cpu", torch.bfloat16):
        half = layer(x[:, :1000], None)
    torch.testing.assert_close(half.float(), layer(x[:, :1000], None), rtol=0.1, atol=0.03)


@pytest.mark.parametrize(
    "config, message",
    [
        (BigBird(heads=3), "width 8 into 3 heads"),
        (BigBird(heads=2, block=0), "block=0"),
        (BigBird(heads=2, random=-1), "random=-1"),
        (BigBird(heads=2, window=2), "odd, not 2"),
    ],
)
def test_impossible_sizes_are_refused(config: BigBird, message: str) -> None:
    with pytest.raises(UserError, match=message):
        config.build(8, causal=False, layer=0, generator=Generator())
