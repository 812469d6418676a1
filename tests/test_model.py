"""The assembled network: padding, positions, pooling, transfer between phases."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import pytest
import torch
from tiny import MODEL, FirstSymbol, RunningMean

from levelfield.mixers.attention import Attention
from levelfield.mixers.conv import Conv
from levelfield.mixers.s4 import S4
from levelfield.model import BatchNorm, FeedForward, Network, ResidualBlock, pool, sinusoids
from levelfield.objectives import Classify, Masked, heads
from levelfield.rng import seeded
from levelfield.runs.ledger import state_size
from levelfield.spec import Block, Model, Signal, Tokens, UserError

TASK = FirstSymbol()


def net_of(model: Model, objective: Classify | Masked | None = None, seed: int = 0, mask_flag: bool = False) -> Network:
    task = FirstSymbol(continuous=mask_flag)
    return (
        Network(model, task.input, heads(objective or Classify(), task), mask_flag=mask_flag, seed=seed).double().eval()
    )


@pytest.mark.parametrize(
    "model",
    [
        MODEL,
        dataclasses.replace(MODEL, pooling="max", block=Block(norm="rms", feedforward=24, activation="swiglu")),
        dataclasses.replace(MODEL, pooling="last", causal=True, positions="sinusoidal", block=Block(feedforward=8)),
        dataclasses.replace(
            MODEL, positions="learned", max_positions=9, block=Block(norm="batch", prenorm=False, feedforward=8)
        ),
        dataclasses.replace(MODEL, head_hidden=5, block=Block(final_norm=False, activation="relu", feedforward=8)),
    ],
)
def test_a_padded_batch_gives_what_each_sequence_gives_alone(model: Model):
    net = net_of(model)
    lengths = torch.tensor([9, 4, 1])
    mask = torch.arange(9) < lengths[:, None]
    x = torch.randint(2, 10, (3, 9), generator=torch.Generator().manual_seed(0)).masked_fill(~mask, Tokens.PAD)
    together = net.head("label", net.hidden_states(x, mask), mask)
    for i, n in enumerate(lengths.tolist()):
        alone = net.head("label", net.hidden_states(x[i : i + 1, :n], None), None)
        torch.testing.assert_close(together[i], alone[0])


def test_a_parallel_block_shows_both_parts_its_input() -> None:
    mixer = S4(state=4).build(4, causal=True, layer=0, generator=torch.Generator().manual_seed(0))
    with seeded(0, "block"):
        block = ResidualBlock(mixer, Block(norm="rms", feedforward=6, parallel=True), 4).double()
    assert block.norm2 is not None and block.feedforward is not None
    with torch.no_grad():
        for name, parameter in block.named_parameters():
            if name.endswith("norm.weight"):
                parameter += torch.arange(4) * (2 if name.startswith("norm2") else 1)  # no norm is the other
    x = torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = x + mixer(block.norm(x, None), None) + block.feedforward(block.norm2(x, None))
    torch.testing.assert_close(block(x, None), expected)
    with pytest.raises(UserError, match="leave prenorm at True"):
        Block(prenorm=False, parallel=True)


def test_gated_feedforwards_are_their_formulas():
    x = torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for activation, gate in (("swiglu", torch.nn.functional.silu), ("geglu", tanh_gelu)):
        layer = FeedForward(4, 6, activation, bias=False).double()
        assert layer.gate is not None and [name for name, _ in layer.named_parameters() if "bias" in name] == []
        up, gated = x @ layer.up.weight.T, x @ layer.gate.weight.T
        torch.testing.assert_close(layer(x), (gate(gated) * up) @ layer.down.weight.T)


def tanh_gelu(x: torch.Tensor) -> torch.Tensor:
    return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("norm", ["layer", "rms", "batch"])
def test_eps_is_that_of_the_block(norm: Literal["layer", "rms", "batch"]) -> None:
    """At inputs this small, eps is most of what is divided by."""
    x = 1e-2 * torch.randn(3, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    centred = x if norm == "rms" else x - x.mean((0, 1) if norm == "batch" else -1, keepdim=True)
    power = (centred * centred).mean((0, 1) if norm == "batch" else -1, keepdim=True)
    net = net_of(Model((RunningMean(),), 1, 8, block=Block(norm=norm, eps=0.3))).train()
    assert net.norm is not None
    torch.testing.assert_close(net.norm(x, None), centred / torch.sqrt(power + 0.3))


def test_sinusoids_are_the_formula():
    table = sinusoids(7, 6, torch.device("cpu"))
    for t in range(7):
        for i in range(3):
            angle = t / 10000 ** (2 * i / 6)
            assert table[t, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[t, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)
    assert sinusoids(3, 5, torch.device("cpu")).shape == (3, 5)


def test_pooling():
    x = torch.arange(12.0).view(1, 4, 3)
    mask = torch.tensor([[True, True, False, False]])
    assert pool(x, mask, "mean").tolist() == [[1.5, 2.5, 3.5]]
    assert pool(x, mask, "max").tolist() == [[3.0, 4.0, 5.0]]
    assert pool(x, mask, "last").tolist() == [[3.0, 4.0, 5.0]]
    assert pool(x, None, "last").tolist() == [[9.0, 10.0, 11.0]]


def test_batch_norm_ignores_padding():
    norm = BatchNorm(3).double()
    x = torch.randn(4, 6, 3, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    mask = torch.arange(6) < torch.tensor([6, 2, 3, 1])[:, None]
    y = norm(x.masked_fill(~mask.unsqueeze(-1), 1e6), mask)
    real = y[mask]
    torch.testing.assert_close(real.mean(0), torch.zeros(3, dtype=torch.double), atol=1e-12, rtol=0)
    torch.testing.assert_close(real.var(0, unbiased=False), torch.ones(3, dtype=torch.double), atol=1e-3, rtol=0)


def test_transfer_keeps_the_trunk_and_replaces_the_head():
    first = net_of(MODEL, Masked(ratio=0.5), seed=1, mask_flag=True)
    second = net_of(MODEL, Classify(), seed=2, mask_flag=True)
    before = {k: v.clone() for k, v in second.state_dict().items()}
    second.load_trunk(first.state_dict())
    for name, value in second.state_dict().items():
        source = before if name.startswith("heads.") or name == "encoder.hidden" else first.state_dict()
        assert torch.equal(value, source[name]), name
    assert not torch.equal(before["encoder.embed.weight"], second.state_dict()["encoder.embed.weight"])


def test_arms_start_from_equal_trunks():
    masked, label = net_of(MODEL, Masked(ratio=0.5), mask_flag=True), net_of(MODEL, Classify(), mask_flag=True)
    for name, value in label.state_dict().items():
        if not name.startswith("heads.") and name in masked.state_dict():
            assert torch.equal(value, masked.state_dict()[name]), name


def test_the_flag_is_the_last_column_of_a_wider_projection():
    """Zeros plus a flagged vector equal one linear map of the values and a mask channel (amos2025)."""
    net = Network(
        MODEL,
        Signal(1, (0.0,), (1.0,), 8),
        heads(Masked(ratio=0.5), FirstSymbol(continuous=True)),
        mask_flag=True,
        seed=0,
    )
    x = torch.randn(2, 5, 1)
    hidden = torch.tensor([[True, False, True, False, False], [False, False, False, True, True]])
    shown = x * ~hidden.unsqueeze(-1)
    embed = net.encoder.embed
    assert isinstance(embed, torch.nn.Linear) and net.encoder.hidden is not None
    wide = torch.cat([embed.weight, net.encoder.hidden[:, None]], 1)
    expected = torch.cat([shown, hidden.unsqueeze(-1).float()], -1) @ wide.T + embed.bias
    torch.testing.assert_close(net.encoder(shown, hidden), expected)


def test_weights_of_another_model_are_refused():
    with pytest.raises(UserError, match="another model"):
        net_of(MODEL).load_trunk(net_of(dataclasses.replace(MODEL, width=8)).state_dict())
    with pytest.raises(UserError, match="another model"):
        net_of(MODEL).load_trunk(net_of(dataclasses.replace(MODEL, depth=3)).state_dict())


def test_longer_than_the_bound_is_refused():
    bounded = net_of(dataclasses.replace(MODEL, positions="learned", max_positions=4))
    with pytest.raises(UserError, match="at most 4"):
        bounded.hidden_states(torch.full((1, 5), 3), None)
    with pytest.raises(UserError, match="max_positions"):
        net_of(dataclasses.replace(MODEL, positions="learned"))


def test_initialisation_is_seeded_and_leaves_the_global_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, two, three = net_of(MODEL, seed=0), net_of(MODEL, seed=0), net_of(MODEL, seed=1)
    with seeded(9, "dropout"):
        torch.rand(100)
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not torch.equal(next(one.parameters()), next(three.parameters()))


CAUSAL = Model((Attention(heads=2, rotary="per_head", block=4), S4(state=4), Conv(kernel=3, hidden=8)), 4, 8, True)


@pytest.mark.parametrize(
    "model",
    [
        CAUSAL,
        dataclasses.replace(
            CAUSAL, positions="sinusoidal", block=Block(norm="rms", feedforward=8, activation="swiglu")
        ),
        dataclasses.replace(CAUSAL, positions="learned", max_positions=30, block=Block("batch", False, 8)),
        dataclasses.replace(CAUSAL, block=Block(final_norm=False, dropout=0.5)),
        dataclasses.replace(CAUSAL, block=Block(feedforward=8, parallel=True)),
    ],
)
@pytest.mark.parametrize("pieces", [(1,) * 30, (9, 1, 12, 8), (30,)], ids=str)
def test_a_network_in_pieces_is_the_network_at_once(model: Model, pieces: tuple[int, ...]) -> None:
    net = net_of(model)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm1d) and module.running_mean is not None:
            module.running_mean += 0.5
    x = torch.randint(2, 10, (2, 30), generator=torch.Generator().manual_seed(0))
    state, parts = None, []
    for piece in x.split(pieces, dim=1):
        y, state = net.step(piece, state)
        parts.append(y)
        carried = sum(part[0].numel() for layer in state.layers for part in layer.values())
        assert carried == state_size(model, state.steps)
    torch.testing.assert_close(torch.cat(parts, 1), net.hidden_states(x, None), rtol=1e-9, atol=1e-9)


def test_values_go_on_too() -> None:
    net = net_of(dataclasses.replace(CAUSAL, positions="sinusoidal"), Masked(ratio=0.5), mask_flag=True)
    x = torch.randn(2, 9, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    first, state = net.step(x[:, :5], None)
    second, _ = net.step(x[:, 5:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), net.hidden_states(x, None), rtol=1e-9, atol=1e-9)


def test_what_cannot_go_on_from_a_state_is_refused() -> None:
    x = torch.full((1, 5), 3)
    with pytest.raises(UserError, match="set causal=True"):
        net_of(dataclasses.replace(CAUSAL, causal=False)).step(x, None)
    with pytest.raises(UserError, match="eval mode"):
        net_of(CAUSAL).train().step(x, None)
    with pytest.raises(UserError, match="not a recurrent layer"):
        net_of(dataclasses.replace(MODEL, causal=True)).step(x, None)
    bounded = net_of(dataclasses.replace(CAUSAL, positions="learned", max_positions=8))
    _, state = bounded.step(x, None)
    with pytest.raises(UserError, match="at most 8 steps, not 10"):
        bounded.step(x, state)


def test_a_hybrid_repeats_its_pattern():
    hybrid = Model((RunningMean(), RunningMean(dropout=0.5)), 5, 8)
    rates = [block.get_submodule("mixer.dropout").p for block in net_of(hybrid).blocks]  # pyright: ignore
    assert rates == [0.0, 0.5, 0.0, 0.5, 0.0]
