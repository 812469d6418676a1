"""RWKV-7 against peng2025's equations step by step, and against weights that make it something known in advance."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
import twins
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from twins import WIDTH

from levelfield.mixers.rwkv7 import RWKV7, RWKV7TimeMix
from levelfield.mixers.rwkv7_channel import RWKV7Channel, RWKV7ChannelMix
from levelfield.model import Network
from levelfield.ops.linear_attention.delta_per_key import delta_by_key, naive_delta_by_key
from levelfield.spec import MixerConfig, Model, Tokens, UserError

CONFIGS = (RWKV7(head=4, decay_rank=3, rate_rank=2, gate_rank=5), RWKV7(head=2, layers=2))
CHANNELS = RWKV7Channel(hidden=12)


def _build(config: MixerConfig, width: int = WIDTH, layer: int = 0) -> nn.Module:
    return config.build(width, causal=True, layer=layer, generator=Generator().manual_seed(0))


def _time(config: RWKV7, width: int = WIDTH, layer: int = 0) -> RWKV7TimeMix:
    built = _build(config, width, layer)
    assert isinstance(built, RWKV7TimeMix)
    return built


def _time_by_hand(layer: RWKV7TimeMix, x: Tensor) -> Tensor:
    """The time mix of peng2025, a step and a head at a time, with the state's matrix of transition written out."""
    p = {name: value.flatten() if value.shape[0] == 1 else value for name, value in layer.named_parameters()}
    size, eps = layer.head, 64e-5
    memory = [x.new_zeros(size, size) for _ in range(x.shape[1] // size)]  # values first, as the paper has it
    before, out = torch.zeros_like(x[0]), []
    for now in x:
        seen = {name: now + (before - now) * p[f"x_{name}"] for name in "rwkvag"}
        before = now
        r, k, v = (p[f"{n}.weight"] @ seen[i] for i, n in zip("rkv", ("receptance", "key", "value"), strict=True))
        slow = p["w0"] + torch.tanh(seen["w"] @ p["w1"]) @ p["w2"]
        w = torch.exp(-torch.exp(-F.softplus(-slow) - 0.5))
        rate = torch.sigmoid(p["a0"] + seen["a"] @ p["a1"] @ p["a2"])
        gate = torch.sigmoid(seen["g"] @ p["g1"]) @ p["g2"]
        kappa, key, heads = k * p["k_k"], k * (1 + (rate - 1) * p["k_a"]), []
        for h in range(len(memory)):
            own = slice(h * size, (h + 1) * size)
            unit = kappa[own] / kappa[own].square().sum().sqrt()
            step = torch.diag(w[own]) - torch.outer(unit, rate[own] * unit)
            memory[h] = memory[h] @ step + torch.outer(v[own], key[own])
            y = memory[h] @ r[own]
            y = (y - y.mean()) / (y.var(correction=0) + eps).sqrt() * p["ln_x.weight"][own] + p["ln_x.bias"][own]
            heads.append(y + (r[own] * layer.r_k[h] * key[own]).sum() * v[own])
        out.append(p["output.weight"] @ (torch.cat(heads) * gate))
    return torch.stack(out)


def _channel_by_hand(layer: RWKV7ChannelMix, x: Tensor) -> Tensor:
    out, before = [], torch.zeros_like(x[0])
    for now in x:
        inner = (layer.key.weight @ (now + (before - now) * layer.x_k.flatten())).clamp(min=0) ** 2
        before = now
        out.append(layer.value.weight @ inner)
    return torch.stack(out)


def _by_hand(layer: nn.Module, x: Tensor) -> Tensor:
    if isinstance(layer, RWKV7TimeMix):
        return _time_by_hand(layer, x)
    assert isinstance(layer, RWKV7ChannelMix)
    return _channel_by_hand(layer, x)


def _steps(length: int, seed: int = 0) -> list[Tensor]:
    """q, k, v, a, b, log_decay: (2, T, 3, 4), values of 5 channels, and a state."""
    draw = Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    q, k, a, b = (normal(2, length, 3, 4) for _ in range(4))
    v, decay = normal(2, length, 3, 5), -torch.sigmoid(3 * normal(2, length, 3, 4))
    parts = [q, k, v, -F.normalize(a, dim=-1), F.normalize(a, dim=-1) * torch.sigmoid(b), decay, normal(2, 3, 4, 5)]
    return [part.requires_grad_() for part in parts]


@pytest.mark.parametrize("length", [1, 2, 31, 67])
@pytest.mark.parametrize("chunk", [1, 5, 16, 32, 64])
def test_the_rule_in_chunks_is_the_rule_step_by_step(length: int, chunk: int) -> None:
    """In value, in the last state and in every gradient."""
    parts = _steps(length)
    found, exact = delta_by_key(*parts, chunk=chunk), naive_delta_by_key(*parts)
    pulls = [torch.randn(y.shape, generator=Generator().manual_seed(9), dtype=y.dtype) for y in exact]
    ours, theirs = ([*both, *torch.autograd.grad(both, parts, pulls)] for both in (found, exact))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


def test_the_rule_in_float32_keeps_its_digits_at_the_strongest_decays() -> None:
    """Every channel at -1, the bound: factors within a chunk of 32 go from e^-16 to e^16, and to e^32 with 64."""
    parts = [part.detach() for part in _steps(96, seed=1)]
    parts[5].fill_(-1.0)
    exact, _ = naive_delta_by_key(*parts)
    for chunk in (32, 64):
        found, _ = delta_by_key(*(part.float() for part in parts), chunk=chunk)
        assert (found - exact).abs().max() < 1e-5 * exact.abs().max()


@pytest.mark.parametrize("config", [*CONFIGS, CHANNELS], ids=str)
def test_the_layer_is_its_papers_equations(config: MixerConfig) -> None:
    layer = twins.stirred(_build(config), 0.4)
    twins.equal(layer, partial(_by_hand, layer), (41, 6), gradient=(1e-7, 1e-8))


def test_a_full_rate_replaces_what_its_key_recalls() -> None:
    """Without decay and with rate 1, reading with the key just written gives its value: the delta rule's promise."""
    draw = Generator().manual_seed(2)
    key = F.normalize(torch.randn(1, 50, 1, 6, generator=draw, dtype=torch.float64), dim=-1)
    value = torch.randn(1, 50, 1, 3, generator=draw, dtype=torch.float64)
    y, state = delta_by_key(key, key, value, -key, key, torch.zeros_like(key))
    torch.testing.assert_close(y, value, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(key[:, -1] @ state[0], value[:, -1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("blocks", [1, 2])
def test_first_values_are_the_published_codes(blocks: int) -> None:
    """Layer 2 of 4 of RWKV-LM's RWKV-v7/train_temp/src/model.py, whose loops over channels these are."""
    width, size, at, layers = 64, 16, 2, 4
    layer = _time(RWKV7(head=size, layers=layers, blocks=blocks), width, at * blocks)
    up, down, half = at / (layers - 1), 1 - at / layers, (size - 1) / 2
    for name, power in (("r", 0.2), ("w", 0.9), ("k", 0.7), ("v", 0.7), ("a", 0.9), ("g", 0.2)):
        expected = [1 - (i / width) ** (power * down) for i in range(width)]
        torch.testing.assert_close(getattr(layer, f"x_{name}")[0, 0], torch.tensor(expected))
    line = [n / (width - 1) - 0.5 for n in range(width)]
    zigzag = [((n % size) - half) / half * abs(((n % size) - half) / half) for n in range(width)]
    decay = [-6 + 6 * (n / (width - 1)) ** (1 + up**0.3) + 0.5 + 2.5 * zigzag[n] for n in range(width)]
    torch.testing.assert_close(layer.w0[0, 0], torch.tensor(decay))
    rate = [-0.19 + 0.3 * zigzag[n] + 0.4 * line[n] for n in range(width)]
    torch.testing.assert_close(layer.a0[0, 0], torch.tensor(rate))
    torch.testing.assert_close(layer.k_k[0, 0], torch.tensor([0.71 - 0.1 * step for step in line]))
    assert torch.equal(layer.k_a, torch.full((1, 1, width), 1.02))
    assert torch.equal(layer.r_k, torch.full((4, size), -0.04))
    assert layer.ln_x.weight.unique().item() == pytest.approx(((1 + at) / layers) ** 0.7)
    assert layer.ln_x.eps == pytest.approx(64e-5) and not layer.output.weight.any()
    for part, gain in ((layer.receptance, 1), (layer.key, 0.1), (layer.value, 1)):
        torch.testing.assert_close(part.weight @ part.weight.T, gain**2 * torch.eye(width), rtol=0, atol=1e-5)
    for first, second in ((layer.w1, layer.w2), (layer.a1, layer.a2), (layer.g1, layer.g2)):
        assert not first.any()
        torch.testing.assert_close(second @ second.T, 0.01 * torch.eye(len(second)), rtol=0, atol=1e-6)


def test_ranks_are_the_authors_choices() -> None:
    assert RWKV7().ranks(768) == {"w": 64, "a": 64, "g": 128}
    assert RWKV7().ranks(2048) == {"w": 128, "a": 128, "g": 224}
    assert RWKV7(decay_rank=5).ranks(16) == {"w": 5, "a": 32, "g": 32}


def test_first_values_of_the_channel_mix_are_the_published_codes() -> None:
    layer = _build(RWKV7Channel(layers=4), 64, 1)
    assert isinstance(layer, RWKV7ChannelMix)
    torch.testing.assert_close(layer.x_k[0, 0], torch.tensor([1 - (i / 64) ** (0.75**4) for i in range(64)]))
    assert layer.key.weight.shape == (256, 64) and not layer.value.weight.any()
    torch.testing.assert_close(layer.key.weight.T @ layer.key.weight, torch.eye(64), rtol=0, atol=1e-5)


def test_no_channel_fades_by_more_than_the_bound() -> None:
    """Even where w0 is huge, the decay stays above exp(-exp(-1/2)) = 0.545, on which the chunks rely."""
    layer = _time(RWKV7(head=4)).double()
    with torch.no_grad():
        layer.w0.fill_(1e6)
        layer.output.weight.copy_(torch.eye(WIDTH))
    x = torch.randn(1, 70, WIDTH, generator=Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(layer(x), _time_by_hand(layer, x[0])[None], rtol=1e-9, atol=1e-9)
    assert math.exp(-math.exp(-0.5)) == pytest.approx(0.545, abs=1e-3)


def test_weight_decay_is_for_the_large_maps_alone() -> None:
    rules = RWKV7(decay_lr=2e-3).param_rules()
    free = {name for name, _ in _build(RWKV7(head=4)).named_parameters() if name not in rules}
    assert free == {f"{name}.weight" for name in ("receptance", "key", "value", "output")}
    assert all(rule.weight_decay == 0 for rule in rules.values())
    assert {name: rule.lr for name, rule in rules.items() if rule.lr is not None} == {"w0": 2e-3}
    assert {name for name, _ in _build(CHANNELS).named_parameters() if name not in CHANNELS.param_rules()} == {
        "key.weight",
        "value.weight",
    }


def test_a_pattern_of_both_goes_on_from_a_state() -> None:
    mixers = (RWKV7(head=4, layers=2, blocks=2), RWKV7Channel(hidden=12, layers=2, blocks=2))
    net = Network(
        Model(mixers=mixers, depth=4, width=WIDTH, causal=True), Tokens(11), (), mask_flag=False, seed=0
    ).eval()
    twins.stirred(net, 0.4)
    x = torch.randint(0, 11, (2, 40), generator=Generator().manual_seed(0))
    first, state = net.step(x[:, :23], None)
    whole = torch.cat([first, net.step(x[:, 23:], state)[0]], 1)
    torch.testing.assert_close(whole, net.hidden_states(x, None), rtol=1e-9, atol=1e-9)


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
        (RWKV7(head=3), "into heads of 3: choose a divisor"),
        (RWKV7(head=1), "2 or up"),
        (RWKV7(head=4, rate_rank=-1), "ranks at least 0"),
        (RWKV7Channel(hidden=-1), "at least 0"),
    ],
    ids=str,
)
def test_bad_sizes_are_one_sentence(config: MixerConfig, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        _build(config)
