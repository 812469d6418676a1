"""Attention against a softmax written out step by step, and against torch's own module."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from traffic import growth

from levelfield.mixers.attention import Attention, AttentionLayer
from levelfield.ops.attention.rotary import rotate_naive
from levelfield.rng import seeded
from levelfield.spec import UserError

WIDTH, LENGTH = 12, 9
CONFIGS = [
    Attention(heads=3),
    Attention(heads=3, rotary="per_head"),
    Attention(heads=2, rotary="across_heads", rotary_base=100.0),
    Attention(heads=2, rotary="per_head", rotary_half=True),
    Attention(heads=3, rotary="per_head", block=2),
    Attention(heads=2, block=4),
    Attention(heads=2, block=20),
    Attention(heads=2, rotary="per_head", window=3),
    Attention(heads=2, window=1),
    Attention(heads=4, kv_heads=2, head_width=6, rotary="per_head", rotary_width=4, bias=False),
    Attention(heads=3, kv_heads=1, rotary="per_head", block=2),
    Attention(heads=2, kv_heads=1, rotary="per_head", window=4, short_conv=3),
    Attention(heads=2, rotary="per_head", rotary_scale=0.25),
    Attention(heads=2, rotary="per_head", rotary_scale=0.5, window=2, sinks=1),
    Attention(heads=4, kv_heads=2, head_width=4, rotary="per_head", rotary_width=2, window=3, sinks=3),
    Attention(heads=2, window=2, sinks=20),
]


def _layer(config: Attention, causal: bool) -> AttentionLayer:
    layer = config.build(WIDTH, causal=causal, layer=0, generator=torch.Generator().manual_seed(1)).double()
    assert isinstance(layer, AttentionLayer)
    return layer


def _inputs() -> tuple[Tensor, Tensor]:
    x = torch.randn(3, LENGTH, WIDTH, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return x, torch.arange(LENGTH) < torch.tensor([LENGTH, 4, 1])[:, None]


def attend_naive(layer: AttentionLayer, x: Tensor, mask: Tensor | None) -> Tensor:
    """One query at a time, one head at a time, keys chosen by index. (B, T, D) -> (B, T, D); zero at padded steps."""
    c = layer.config
    dim, shared, rows = c.head_width or WIDTH // c.heads, c.kv_heads or c.heads, []
    qkv = layer.qkv(x)
    if layer.short is not None:
        taps, past = layer.short.weight[:, 0], nn.functional.pad(qkv, (0, 0, c.short_conv - 1, 0))
        qkv = torch.stack([past[:, j : j + LENGTH] * taps[:, j] for j in range(c.short_conv)]).sum(0)
        qkv = qkv if layer.short.bias is None else qkv + layer.short.bias
    q, k, v = qkv.split([c.heads * dim, shared * dim, shared * dim], -1)
    far = q
    if c.rotary == "per_head":
        form = {"base": c.rotary_base, "half": c.rotary_half, "turned": c.rotary_width, "scale": c.rotary_scale}
        far = rotate_naive(q, c.heads, last=c.sinks + (c.window or 1) - 1, **form)
        q, k = (rotate_naive(z, z.shape[-1] // dim, **form) for z in (q, k))
    elif c.rotary == "across_heads":
        q, k = (rotate_naive(z, 1, c.rotary_base, c.rotary_half) for z in (q, k))
    for b in range(len(x)):
        real = LENGTH if mask is None else int(mask[b].sum())
        steps = []
        for t in range(LENGTH):
            if t >= real:
                steps.append(torch.zeros(c.heads * dim, dtype=x.dtype))
                continue
            block = c.block or LENGTH
            first, last = max(0, (t // block - 1) * block), (t // block + 2) * block
            if c.window is not None:
                first, last = max(0, t - c.window + 1), t + c.window
            last = min(t + 1, real) if layer.causal else min(real, last)
            keys = sorted({*range(first, last), *range(min(c.sinks, t + 1 if layer.causal else real, real))})
            asked = torch.stack([(far if j < c.sinks else q)[b, t] for j in keys])
            parts = []
            for h in range(c.heads):
                mine = slice(h * dim, (h + 1) * dim)
                theirs = slice(h * shared // c.heads * dim, (h * shared // c.heads + 1) * dim)
                scores = (k[b, keys, theirs] * asked[:, mine]).sum(-1) / math.sqrt(dim)
                parts.append(
                    torch.exp(scores - scores.max()) @ v[b, keys, theirs] / torch.exp(scores - scores.max()).sum()
                )
            steps.append(torch.cat(parts))
        rows.append(torch.stack(steps))
    return layer.out(torch.stack(rows))


@pytest.mark.parametrize(
    "config, causal", [(c, causal) for c in CONFIGS for causal in (False, True) if causal or not c.short_conv], ids=str
)
@pytest.mark.parametrize("padded", [False, True])
def test_value_and_gradient_equal_the_written_out_softmax(config: Attention, causal: bool, padded: bool) -> None:
    layer = _layer(config, causal)
    x, mask = _inputs()
    real = mask if padded else torch.ones_like(mask)
    grads = []
    for run in (
        lambda z: layer(z, mask if padded else None),
        lambda z: attend_naive(layer, z, mask if padded else None),
    ):
        z = x.clone().requires_grad_()
        y = run(z)[real]
        layer.zero_grad()
        y.sin().sum().backward()
        grads.append((y, z.grad, *(p.grad.clone() for p in layer.parameters() if p.grad is not None)))
    for fast, slow in zip(*grads, strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("causal", [False, True])
def test_the_same_function_as_torch_multihead_attention(causal: bool) -> None:
    ours = _layer(Attention(heads=4), causal)
    theirs = nn.MultiheadAttention(WIDTH, 4, batch_first=True, device="cpu", dtype=torch.float64)
    theirs.load_state_dict(
        {
            "in_proj_weight": ours.qkv.weight,
            "in_proj_bias": ours.qkv.bias,
            "out_proj.weight": ours.out.weight,
            "out_proj.bias": ours.out.bias,
        }
    )
    x, mask = _inputs()
    hidden = nn.Transformer.generate_square_subsequent_mask(LENGTH).bool() if causal else None
    expected, _ = theirs(x, x, x, key_padding_mask=~mask, attn_mask=hidden)
    torch.testing.assert_close(ours(x, mask)[mask], expected[mask], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("rotary", ["per_head", "across_heads"])
def test_rotary_outputs_follow_a_shift_of_the_sequence(rotary: str) -> None:
    """Relative positions: hiding the first steps equals leaving them out."""
    layer = _layer(Attention(heads=2, rotary=rotary), causal=False)  # pyright: ignore[reportArgumentType]
    x, _ = _inputs()
    late = (torch.arange(LENGTH) >= 3).expand(3, -1)
    torch.testing.assert_close(layer(x, late)[:, 3:], layer(x[:, 3:]), rtol=1e-10, atol=1e-10)


def test_without_positions_order_does_not_matter_and_with_them_it_does() -> None:
    x, _ = _inputs()
    order = torch.tensor([4, 0, 8, 2, 1, 7, 3, 6, 5])
    plain, turned = _layer(Attention(heads=2), False), _layer(Attention(heads=2, rotary="per_head"), False)
    torch.testing.assert_close(plain(x)[:, order], plain(x[:, order]))
    assert not torch.allclose(turned(x)[:, order], turned(x[:, order]), atol=1e-4)


def test_the_two_rotary_forms_differ_in_which_head_turns_fast() -> None:
    """Across heads the last head hardly turns, so it hardly notices the order of near steps."""
    x, _ = _inputs()
    swapped = x[:, [1, 0, *range(2, LENGTH)]]
    moved = {}
    for rotary in ("per_head", "across_heads"):
        layer = _layer(Attention(heads=3, rotary=rotary), False)  # pyright: ignore[reportArgumentType]
        layer.out = nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]
        moved[rotary] = (layer(x)[:, 4:] - layer(swapped)[:, 4:]).abs().amax((0, 1)).unflatten(0, (3, 4)).amax(1)
    assert moved["across_heads"][2] < 0.05 * moved["across_heads"][0]
    assert moved["per_head"][2] > 0.2 * moved["per_head"][0]


def test_positions_are_random_in_training_the_same_in_all_layers_and_count_from_0_when_asked() -> None:
    """Each step draws its own, as `levelfield.rng.seeded` opens a scope for it; a second layer in it has the same."""
    spread, plain = (_layer(Attention(heads=2, rotary="per_head", rotary_range=span), True) for span in (64, 0))
    x, _ = _inputs()
    made = []
    for step in (0, 0, 1):
        with seeded(3, "dropout", step):
            made += [spread(x), spread(x)]
    for same in made[1:4]:
        torch.testing.assert_close(same, made[0])
    assert not torch.allclose(made[4], made[0], atol=1e-4)
    torch.testing.assert_close(spread.eval()(x), plain(x))


def test_drawn_positions_are_in_order_and_each_of_the_range_is_met() -> None:
    layer = _layer(Attention(heads=2, rotary="per_head", rotary_range=12), True)
    met = set()
    for step in range(60):
        with seeded(0, "dropout", step):
            drawn = layer._start(LENGTH)
        assert not isinstance(drawn, int) and (np.diff(drawn) > 0).all() and len(drawn) == LENGTH
        met |= set(drawn.tolist())
    assert met == set(range(12))
    with pytest.raises(UserError, match="too few positions for 13 steps"):
        layer._start(13)


def test_a_sequence_of_padding_alone_is_finite_in_value_and_gradient() -> None:
    for causal in (False, True):
        layer = _layer(Attention(heads=2, rotary="per_head"), causal)
        x, mask = _inputs()
        mask = mask.clone()
        mask[1] = False
        y = layer(x.requires_grad_(), mask)
        y.square().sum().backward()
        assert torch.isfinite(y).all() and x.grad is not None and torch.isfinite(x.grad).all()
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in layer.parameters())


@pytest.mark.parametrize(
    "config, message",
    [
        (Attention(heads=5), "into 5 heads"),
        (Attention(heads=0), "into 0 heads"),
        (Attention(heads=4, rotary="per_head"), "pairs of channels"),
        (Attention(heads=4, rotary_half=True), "needs rotary"),
        (Attention(heads=4, block=0), "looks at nothing"),
        (Attention(heads=4, window=0), "at least 1"),
        (Attention(heads=4, window=4, block=4), "alternative to block"),
        (Attention(heads=4, short_conv=2), "for causal models"),
        (Attention(heads=4, head_width=0), "no width"),
        (Attention(heads=4, kv_heads=3), "3 heads of keys among 4"),
        (Attention(heads=2, rotary_width=2), "rotary_width=2. needs rotary"),
        (Attention(heads=2, rotary="per_head", rotary_width=8), "not 8 of 6"),
        (Attention(heads=2, rotary="across_heads", kv_heads=1), "leave kv_heads"),
        (Attention(heads=2, rotary="per_head", rotary_base=0.0), "must be positive"),
        (Attention(heads=2, rotary="per_head", rotary_scale=2.0), "and 1 at most"),
        (Attention(heads=2, rotary_scale=0.5), "rotary_scale=0.5. needs rotary"),
        (Attention(heads=2, sinks=2), "beside a window"),
        (Attention(heads=2, rotary_range=64), "rotary_range=64. needs rotary"),
        (Attention(heads=2, rotary="per_head", rotary_range=-1), "0 for none"),
        (Attention(heads=2, rotary="per_head", window=3, sinks=1, rotary_range=64), "goes with no sinks"),
    ],
)
def test_impossible_sizes_are_refused(config: Attention, message: str) -> None:
    with pytest.raises(UserError, match=message):
        _layer(config, False)


@pytest.mark.parametrize(
    "config",
    [
        Attention(heads=2),
        Attention(heads=2, block=4),
        Attention(heads=2, window=5),
        Attention(heads=2, window=3, sinks=2),
    ],
)
@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 9, 14, 16])
def test_the_declared_state_is_what_the_next_step_sees(config: Attention, length: int) -> None:
    """Counted by the gradient: the steps that reach the output after `length` of them."""
    layer = _layer(config, True)
    x = torch.randn(1, length + 1, WIDTH, generator=torch.Generator().manual_seed(0)).double().requires_grad_()
    (grad,) = torch.autograd.grad(layer(x)[:, -1].sin().sum(), x)
    assert config.kept(length) == int(grad[0, :-1].any(-1).sum())


@pytest.mark.parametrize(("bounds", "seen"), [({"window": 2}, 7), ({"block": 2}, 9), ({"window": 9}, 14)])
def test_a_short_convolution_sees_further_back_than_the_window(bounds: dict[str, int], seen: int) -> None:
    """The most that a step's gradient reaches back is what is declared, or, in a wide window, within it."""
    config = Attention(heads=2, short_conv=6, **bounds)
    layer = config.build(8, causal=True, layer=0, generator=torch.Generator().manual_seed(0)).double()
    x = torch.randn(1, 32, 8, dtype=torch.float64, requires_grad=True)
    y, farthest = layer(x), 0
    for step in range(x.shape[1]):
        (gradient,) = torch.autograd.grad(y[0, step].sum(), x, retain_graph=True)
        farthest = max(farthest, step + 1 - int(gradient[0].abs().sum(-1).nonzero().min()))
    assert farthest == seen
    assert config.receptive_field == max(seen, 17 if "window" in bounds and seen > 12 else 0)


def test_parameters_are_four_square_maps_with_biases() -> None:
    layer = Attention(heads=8).build(512, causal=False, layer=0, generator=torch.Generator())
    assert sum(p.numel() for p in layer.parameters()) == 4 * (512 * 512 + 512)
    grouped = Attention(heads=8, kv_heads=2, bias=False)
    layer = grouped.build(512, causal=False, layer=0, generator=torch.Generator())
    assert sum(p.numel() for p in layer.parameters()) == 2 * 512 * 512 + 2 * 512 * 128


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("config", [Attention(heads=1, window=16), Attention(heads=1, block=64)], ids=str)
def test_local_attention_is_linear_in_the_length_backward_too(config: Attention, causal: bool, mask: bool) -> None:
    layer = config.build(8, causal=causal, layer=0, generator=torch.Generator().manual_seed(0))
    assert growth(layer, 2048, mask) < 1.05
