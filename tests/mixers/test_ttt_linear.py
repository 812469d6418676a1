"""TTT-Linear: its dual form against gradients that torch takes step by step, and its layer against the paper."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import twins
from torch import Generator, Tensor
from torch.nn import functional as F
from twins import WIDTH

from levelfield.mixers.ttt_linear import TTTLinear, TTTLinearLayer
from levelfield.ops.linear_attention.inner_training import Fast, Outer, Steps, naive_train_and_read, train_and_read
from levelfield.spec import UserError

HEADS, SIZE = 2, 3


def _inputs(length: int, batch: int) -> list[Tensor]:
    """q, k, v, rate; pace, weight and bias of the norm; the inner model's weight and bias. All in float64."""
    draw, rows = Generator().manual_seed(0), (2, HEADS, length)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    steps = [normal(*rows, SIZE), normal(*rows, SIZE), normal(*rows, SIZE), normal(*rows).sigmoid()]
    outer = [normal(batch).abs(), 1 + normal(HEADS, 1, SIZE) / 3, normal(HEADS, 1, SIZE)]
    return [*steps, *outer, normal(2, HEADS, SIZE, SIZE), normal(2, HEADS, 1, SIZE)]


def _dual(*inputs: Tensor) -> tuple[Tensor, ...]:
    weight, bias = inputs[7:]
    none = bias[:, :, :0]
    return _flat(*train_and_read(Steps(*inputs[:4]), Outer(*inputs[4:7]), Fast(weight, bias, none, none)))


def _flat(y: Tensor, fast: Fast) -> tuple[Tensor, ...]:
    return (y, *fast[:2])


def _stepwise(*inputs: Tensor) -> tuple[Tensor, ...]:
    return naive_train_and_read(Steps(*inputs[:4]), Outer(*inputs[4:7]), inputs[7], inputs[8])


@pytest.mark.parametrize(("length", "batch"), [(1, 1), (5, 1), (12, 4), (10, 5)])
def test_the_dual_form_is_gradient_descent_step_by_step(length: int, batch: int) -> None:
    """At lengths that end a mini-batch, where both have an inner model after it."""
    leaves = [x.requires_grad_() for x in _inputs(length, batch)]
    found, expected = _dual(*leaves), _stepwise(*leaves)
    pulls = [torch.randn(x.shape, generator=Generator().manual_seed(9), dtype=x.dtype) for x in found]
    ours, theirs = (torch.autograd.grad(out, leaves, pulls) for out in (found, expected))
    for one, other in zip((*found, *ours), (*expected, *theirs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def test_an_unfinished_mini_batch_reads_what_it_has_learnt_so_far() -> None:
    """The outputs of nine steps are those of the same steps among twelve, and the inner model waits at the eighth."""
    whole, some, eight = ([x[:, :, :n] for x in _inputs(12, 4)[:4]] for n in (12, 9, 8))
    outer, inner = Outer(*_inputs(12, 4)[4:7]), _inputs(12, 4)[7:]
    expected = naive_train_and_read(Steps(*whole), outer, *inner)[0]
    start = Fast(inner[0], inner[1], inner[1][:, :, :0], inner[1][:, :, :0])
    y, fast = train_and_read(Steps(*some), outer, start)
    torch.testing.assert_close(y, expected[:, :, :9], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(fast.weight, naive_train_and_read(Steps(*eight), outer, *inner)[1])
    assert fast.keys.shape[2] == fast.errors.shape[2] == 1


def _build(config: TTTLinear, width: int = WIDTH) -> TTTLinearLayer:
    layer = config.build(width, causal=True, layer=0, generator=Generator().manual_seed(0))
    assert isinstance(layer, TTTLinearLayer)
    return layer


def _turned(part: Tensor, at: int) -> Tensor:
    """A query or key of a head, (1, C), as complex pairs of channels turned `at` times."""
    pairs = torch.view_as_complex(part.unflatten(-1, (-1, 2)).contiguous())
    angles = at * 10000.0 ** (-torch.arange(pairs.shape[1], dtype=torch.float64) / pairs.shape[1])
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def _model(layer: TTTLinearLayer, head: int, u: Tensor, inner: tuple[Tensor, Tensor]) -> Tensor:
    """f(u; W, b) of section 2.7. u: (1, C)."""
    z = u @ inner[0] + inner[1]
    normed = (z - z.mean()) / (z.var(unbiased=False) + 1e-6).sqrt()
    return u + normed * layer.ttt_norm_weight[head] + layer.ttt_norm_bias[head]


def _by_hand(layer: TTTLinearLayer, x: Tensor) -> Tensor:
    """sun2024, section 2, with the gradients of the inner loss as torch takes them. x: (T, D)."""
    config, heads = layer.config, []
    size = x.shape[1] // config.heads
    q, k, v = (x @ part.weight.T for part in (layer.q_proj, layer.k_proj, layer.v_proj))
    for h in range(config.heads):
        some, weight, bias, out = slice(h * size, (h + 1) * size), layer.W1[h], layer.b1[h], []
        start, sums = (weight, bias), (torch.zeros_like(weight), torch.zeros_like(bias))
        for t in range(len(x)):
            at = t % config.batch
            if at == 0:
                start, sums = (weight, bias), (torch.zeros_like(weight), torch.zeros_like(bias))
            query, key, value = _turned(q[t : t + 1, some], at), _turned(k[t : t + 1, some], at), v[t : t + 1, some]
            gate = torch.sigmoid(layer.learnable_ttt_lr_weight[h, 0] @ x[t] + layer.learnable_ttt_lr_bias[h, 0])
            loss = (_model(layer, h, key, start) - value).square().sum() / 2
            slopes = torch.autograd.grad(loss, start, create_graph=True)
            sums = tuple(one + config.rate * gate / size * slope for one, slope in zip(sums, slopes, strict=True))
            pace = (1 / (at + 1) + layer.learnable_token_idx[at]).clamp(min=0)
            weight, bias = start[0] - pace * sums[0], start[1] - pace * sums[1]
            out.append(_model(layer, h, query, (weight, bias)))
        heads.append(torch.cat(out))
    y = F.layer_norm(torch.cat(heads, 1), x.shape[1:], layer.post_norm.weight, layer.post_norm.bias, 1e-6)
    return y @ layer.o_proj.weight.T


@pytest.mark.parametrize("config", [TTTLinear(heads=2, batch=4), TTTLinear(heads=1, batch=1, rate=0.5)], ids=str)
def test_the_layer_is_its_papers_equations(config: TTTLinear) -> None:
    layer = twins.stirred(_build(config), 0.1)
    twins.equal(layer, partial(_by_hand, layer), (7, 4), value=1e-8, gradient=(1e-6, 1e-7))


def test_first_values_are_the_published_codes() -> None:
    layer = _build(TTTLinear(), 256)
    assert layer.W1.std().item() == pytest.approx(0.02, rel=0.05) and layer.W1.shape == (4, 64, 64)
    assert layer.learnable_ttt_lr_weight.std().item() == pytest.approx(0.02, rel=0.05)
    zeros = (layer.b1, layer.learnable_ttt_lr_bias, layer.learnable_token_idx, layer.ttt_norm_bias)
    assert all(not part.any() for part in zeros) and bool((layer.ttt_norm_weight == 1).all())
    assert TTTLinear().state_size(256, 32) == 4 * (64 * 64 + 64)


def test_finite_in_half_precision() -> None:
    twins.half(_build(TTTLinear(heads=2)), 0.1)


@pytest.mark.parametrize(
    "config, sentence",
    [
        (TTTLinear(heads=3), "into 3 heads"),
        (TTTLinear(heads=8), "pairs of channels"),
        (TTTLinear(heads=2, batch=0), "mini-batch of a step"),
    ],
    ids=str,
)
def test_bad_sizes_are_one_sentence(config: TTTLinear, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        _build(config)
