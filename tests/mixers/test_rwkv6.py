"""RWKV-6 against peng2024's equations step by step, and against weights that make it something known in advance."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import twins
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from twins import WIDTH

from levelfield.mixers.rwkv6 import RWKV6, RWKV6TimeMix
from levelfield.mixers.rwkv6_channel import RWKV6Channel, RWKV6ChannelMix
from levelfield.model import Network
from levelfield.ops.layers.token_shift import step_back
from levelfield.spec import MixerConfig, Model, Tokens, UserError

CONFIGS = (RWKV6(head=4, mix_rank=3, decay_rank=2), RWKV6(head=2, mix_rank=1, decay_rank=5, layers=2))
CHANNELS = RWKV6Channel(hidden=12)
PARTS = ("w", "k", "v", "r", "g")


def _build(config: MixerConfig, width: int = WIDTH, layer: int = 0) -> nn.Module:
    return config.build(width, causal=True, layer=layer, generator=Generator().manual_seed(0))


def _time(config: RWKV6, width: int = WIDTH, layer: int = 0) -> RWKV6TimeMix:
    built = _build(config, width, layer)
    assert isinstance(built, RWKV6TimeMix)
    return built


def _time_by_hand(layer: RWKV6TimeMix, x: Tensor) -> Tensor:
    """The time mix of peng2024, a step and a head at a time. x: (T, D)."""
    p, size, eps = dict(layer.named_parameters()), layer.head, 64e-5
    memory = [x.new_zeros(size, size) for _ in range(x.shape[1] // size)]
    before, out = torch.zeros_like(x[0]), []
    for now in x:
        gap, before = before - now, now
        low = torch.tanh((now + gap * p["time_maa_x"].flatten()) @ p["time_maa_w1"]).view(5, -1)
        seen = {}
        for i, name in enumerate(PARTS):
            seen[name] = now + gap * (p[f"time_maa_{name}"].flatten() + low[i] @ p["time_maa_w2"][i])
        maps = zip("rkvg", ("receptance", "key", "value", "gate"), strict=True)
        r, k, v, g = (p[f"{name}.weight"] @ seen[part] for part, name in maps)
        w = p["time_decay"].flatten() + torch.tanh(seen["w"] @ p["time_decay_w1"]) @ p["time_decay_w2"]
        w, heads = torch.exp(-torch.exp(w)), []
        for h in range(len(memory)):
            own = slice(h * size, (h + 1) * size)
            fresh = torch.outer(k[own], v[own])
            y = r[own] @ (memory[h] + p["time_faaaa"][h][:, None] * fresh)
            memory[h] = w[own][:, None] * memory[h] + fresh
            y = (y - y.mean()) / (y.var(correction=0) + eps).sqrt()
            heads.append(y * p["ln_x.weight"][own] + p["ln_x.bias"][own])
        out.append(p["output.weight"] @ (torch.cat(heads) * g * torch.sigmoid(g)))
    return torch.stack(out)


def _channel_by_hand(layer: RWKV6ChannelMix, x: Tensor) -> Tensor:
    """The channel mix of peng2024, a step at a time. x: (T, D)."""
    out, before = [], torch.zeros_like(x[0])
    for now in x:
        k, r = (now + (before - now) * mix.flatten() for mix in (layer.time_maa_k, layer.time_maa_r))
        before = now
        inner = (layer.key.weight @ k).clamp(min=0) ** 2
        out.append(torch.sigmoid(layer.receptance.weight @ r) * (layer.value.weight @ inner))
    return torch.stack(out)


def _by_hand(layer: nn.Module, x: Tensor) -> Tensor:
    if isinstance(layer, RWKV6TimeMix):
        return _time_by_hand(layer, x)
    assert isinstance(layer, RWKV6ChannelMix)
    return _channel_by_hand(layer, x)


@pytest.mark.parametrize("config", [*CONFIGS, CHANNELS], ids=str)
def test_the_layer_is_its_papers_equations(config: MixerConfig) -> None:
    layer = twins.stirred(_build(config), 0.4)
    twins.equal(layer, partial(_by_hand, layer), (71, 6), gradient=(1e-7, 1e-8))


def test_without_a_past_only_the_bonus_reads() -> None:
    """Decays of nothing leave S_{t-1} = k_{t-1}^T v_{t-1}: two steps, the present one weighed by u."""
    layer = _time(RWKV6(head=WIDTH)).double()
    draw = Generator().manual_seed(1)
    with torch.no_grad():
        layer.time_decay.fill_(50.0)
        layer.output.weight.copy_(torch.eye(WIDTH))
    x = torch.randn(1, 70, WIDTH, generator=draw, dtype=torch.float64)
    seen = [x + (F.pad(x, (0, 0, 1, -1)) - x) * getattr(layer, f"time_maa_{name}") for name in "rkvg"]
    maps = (layer.receptance, layer.key, layer.value, layer.gate)
    r, k, v, g = (part(one) for part, one in zip(maps, seen, strict=True))
    k0, v0 = (F.pad(part, (0, 0, 1, -1)) for part in (k, v))
    y = (r * k0).sum(-1, keepdim=True) * v0 + (r * layer.time_faaaa.flatten() * k).sum(-1, keepdim=True) * v
    expected = F.group_norm(y[0], 1, layer.ln_x.weight, layer.ln_x.bias, 64e-5) * F.silu(g)
    torch.testing.assert_close(layer(x), expected, rtol=1e-9, atol=1e-9)
    assert all(
        grad.isfinite().all() for grad in torch.autograd.grad(layer(x).sum(), [layer.time_decay, layer.key.weight])
    )


def test_token_shift_sees_one_step_back_and_goes_on() -> None:
    x = torch.arange(12.0).view(1, 6, 2) ** 2
    back, last = step_back(x)
    assert torch.equal(back + x, torch.cat([torch.zeros(1, 1, 2), x[:, :-1]], 1))
    assert torch.equal(last, x[:, -1])
    first, last = step_back(x[:, :4])
    assert torch.equal(torch.cat([first, step_back(x[:, 4:], last)[0]], 1), back)


@pytest.mark.parametrize("blocks", [1, 2])
def test_first_values_are_the_published_codes(blocks: int) -> None:
    """Layer 2 of 4 of RWKV-LM's rwkv_v6_demo.py, whose loops over channels these are."""
    width, at, layers = 64, 2, 4
    layer = _time(RWKV6(head=16, layers=layers, blocks=blocks), width, at * blocks)
    up, down = at / (layers - 1), 1 - at / layers
    for name, half, less in (("x", 1, 0), ("w", 1, 0), ("k", 1, 0), ("v", 1, 0.3 * up), ("r", 0.5, 0), ("g", 0.5, 0)):
        expected = [1 - ((i / width) ** (half * down) + less) for i in range(width)]
        torch.testing.assert_close(getattr(layer, f"time_maa_{name}")[0, 0], torch.tensor(expected))
    decay = [-6 + 5 * (n / (width - 1)) ** (0.7 + 1.3 * up) for n in range(width)]
    torch.testing.assert_close(layer.time_decay[0, 0], torch.tensor(decay))
    bonus = [up * (1 - n / (width - 1)) + ((n + 1) % 3 - 1) * 0.1 for n in range(width)]
    torch.testing.assert_close(layer.time_faaaa, torch.tensor(bonus).view(4, 16))
    assert layer.ln_x.weight.unique().item() == pytest.approx(((1 + at) / layers) ** 0.7)
    assert layer.ln_x.eps == pytest.approx(64e-5) and not layer.ln_x.bias.any() and not layer.output.weight.any()
    for part, gain in ((layer.receptance, 1), (layer.key, 0.1), (layer.value, 1), (layer.gate, 0.1)):
        torch.testing.assert_close(part.weight @ part.weight.T, gain**2 * torch.eye(width), rtol=0, atol=1e-5)
    assert not layer.time_maa_w1.any() and not layer.time_decay_w1.any()
    for part in (layer.time_maa_w2, layer.time_decay_w2):
        assert 0.009 < part.abs().max() <= 0.01 and part.std().item() == pytest.approx(0.01 / 3**0.5, rel=0.1)


def test_first_values_of_the_channel_mix_are_the_published_codes() -> None:
    layer = _build(RWKV6Channel(layers=4), 64, 1)
    assert isinstance(layer, RWKV6ChannelMix)
    mix = torch.tensor([1 - (i / 64) ** 0.75 for i in range(64)])
    torch.testing.assert_close(layer.time_maa_k[0, 0], mix)
    torch.testing.assert_close(layer.time_maa_r[0, 0], mix)
    assert layer.key.weight.shape == (224, 64) and not layer.value.weight.any() and not layer.receptance.weight.any()
    torch.testing.assert_close(layer.key.weight.T @ layer.key.weight, torch.eye(64), rtol=0, atol=1e-5)
    assert RWKV6Channel().inner(2048) == 7168 and RWKV6Channel().inner(2560) == 8960


def test_shapes_are_those_of_the_authors_checkpoints() -> None:
    shapes = {name: tuple(value.shape) for name, value in _build(RWKV6(), 128).state_dict().items()}
    maps = {f"{name}.weight": (128, 128) for name in ("receptance", "key", "value", "gate", "output")}
    shift = {f"time_maa_{name}": (1, 1, 128) for name in "xwkvrg"}
    low = {
        "time_maa_w1": (128, 160),
        "time_maa_w2": (5, 32, 128),
        "time_decay_w1": (128, 64),
        "time_decay_w2": (64, 128),
    }
    rest = {"time_decay": (1, 1, 128), "time_faaaa": (2, 64), "ln_x.weight": (128,), "ln_x.bias": (128,)}
    assert shapes == {**maps, **shift, **low, **rest}
    names = {"time_maa_k", "time_maa_r", "key.weight", "receptance.weight", "value.weight"}
    assert set(_build(RWKV6Channel(), 128).state_dict()) == names


def test_weight_decay_is_for_the_large_maps_alone() -> None:
    rules = RWKV6(decay_lr=2e-3).param_rules()
    free = {name for name, _ in _build(RWKV6(head=4)).named_parameters() if name not in rules}
    assert free == {f"{name}.weight" for name in ("receptance", "key", "value", "gate", "output")}
    assert all(rule.weight_decay == 0 for rule in rules.values())
    assert {name for name, rule in rules.items() if rule.lr is not None} == {"time_decay"}
    assert rules["time_decay"].lr == 2e-3 and RWKV6().param_rules()["time_decay"].lr is None
    channel = {name for name, _ in _build(CHANNELS).named_parameters() if name not in CHANNELS.param_rules()}
    assert channel == {"key.weight", "receptance.weight", "value.weight"}


def test_a_pattern_of_both_is_the_model_of_the_paper_and_goes_on_from_a_state() -> None:
    mixers = (RWKV6(head=4, layers=2, blocks=2), RWKV6Channel(hidden=12, layers=2, blocks=2))
    net = Network(
        Model(mixers=mixers, depth=4, width=WIDTH, causal=True), Tokens(11), (), mask_flag=False, seed=0
    ).eval()
    twins.stirred(net, 0.4)
    x = torch.randint(0, 11, (2, 40), generator=Generator().manual_seed(0))
    y = net.encoder(x, None)
    for block in range(0, 4, 2):
        for part in (net.blocks[block], net.blocks[block + 1]):
            mixer, norm = part.get_submodule("mixer"), part.get_submodule("norm")
            one = _time_by_hand if isinstance(mixer, RWKV6TimeMix) else _channel_by_hand
            y = y + torch.stack([one(mixer, row) for row in norm(y, None)])  # pyright: ignore[reportArgumentType]
    assert net.norm is not None
    torch.testing.assert_close(net.hidden_states(x, None), net.norm(y, None), rtol=1e-9, atol=1e-9)
    first, state = net.step(x[:, :23], None)
    torch.testing.assert_close(torch.cat([first, net.step(x[:, 23:], state)[0]], 1), net.hidden_states(x, None))


@pytest.mark.parametrize("config", [CONFIGS[0], CHANNELS], ids=str)
def test_finite_in_half_precision(config: MixerConfig) -> None:
    layer = twins.stirred(_build(config), 0.4).float()
    x, exact = twins.half(layer, 0.03, by=torch.mean)
    whole = layer.bfloat16()(x.bfloat16(), None)
    assert whole.dtype == torch.bfloat16 and (whole - exact).abs().mean() < 0.06 * exact.abs().mean()


@pytest.mark.slow
def test_finite_over_64_thousand_steps() -> None:
    """Away from its first values, where the last map is zero."""
    twins.far(twins.stirred(_build(CONFIGS[0]), 0.4).float())


@pytest.mark.parametrize(
    "config, sentence",
    [
        (RWKV6(head=3), "into heads of 3: choose a divisor"),
        (RWKV6(head=4, mix_rank=0), "at least 1"),
        (RWKV6Channel(hidden=-1), "at least 0"),
        (RWKV6Channel(layers=0), "at least 1"),
    ],
    ids=str,
)
def test_bad_sizes_are_one_sentence(config: MixerConfig, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        _build(config)
