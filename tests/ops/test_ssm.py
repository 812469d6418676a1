"""S4 and DLR against what they are defined to be: HiPPO's formula, the recurrence, causality, padding, start values."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from levelfield.mixers import s4
from levelfield.mixers.dlr import DLR, DLRLayer
from levelfield.mixers.s4 import S4, S4Layer
from levelfield.ops.ssm.dplr import bilinear, dplr_kernel
from levelfield.ops.ssm.hippo import legs_matrices, legs_nplr
from levelfield.spec import MixerConfig, UserError

FORMS = (
    S4(state=6),
    S4(state=8, copies=2),
    S4(state=6, form="diagonal", init="lin", discretisation="zoh"),
    S4(state=6, form="diagonal", init="inv"),
)


def _build(config: MixerConfig, width: int = 4, causal: bool = True, seed: int = 0) -> nn.Module:
    return config.build(width, causal=causal, layer=0, generator=Generator().manual_seed(seed))


def _input(length: int, width: int = 4) -> Tensor:
    return torch.randn(2, length, width, generator=Generator().manual_seed(5), dtype=torch.float64)


def test_hippo_projects_a_constant_on_the_constant() -> None:
    """x' = A x / t + b u / t keeps Legendre coefficients: for u = 1 they are (1, 0, 0, ...), so A e_0 + b = 0."""
    a, b = legs_matrices(12)
    assert torch.equal(a[:, 0] + b, torch.zeros(12, dtype=torch.float64))
    for n in range(12):
        for k in range(12):
            below = -math.sqrt((2 * n + 1) * (2 * k + 1))
            assert a[n, k].item() == pytest.approx(below if n > k else -(n + 1.0) if n == k else 0.0, abs=1e-12)


@pytest.mark.parametrize("state", [2, 4, 8, 64])
def test_nplr_form_is_hippo_in_another_basis(state: int) -> None:
    """Similar matrices share moments b^T A^k b (the basis is unitary) and, where they are computable, eigenvalues."""
    a, b = legs_matrices(state)
    poles, p, drive = (torch.cat([z, z.conj()]) for z in legs_nplr(state))
    matrix = torch.diag(poles) - torch.outer(p, p.conj())
    left, right = b.clone(), drive.clone()
    for _ in range(4):
        expected = torch.dot(b, left)
        torch.testing.assert_close(torch.vdot(drive, right), expected + 0j, rtol=1e-9, atol=1e-9)
        left, right = a @ left / state**2, matrix @ right / state**2
    if state <= 8:
        found = torch.linalg.eigvals(matrix).real.sort().values
        torch.testing.assert_close(found, -torch.arange(state, 0, -1.0, dtype=torch.float64), rtol=1e-6, atol=1e-6)


def test_starting_points_are_those_of_s4d() -> None:
    poles, _, drive = s4.starting_point(S4(state=6, form="diagonal", init="lin"))
    torch.testing.assert_close(poles, torch.tensor([-0.5, -0.5 + math.pi * 1j, -0.5 + 2j * math.pi]).to(poles))
    assert torch.equal(drive, torch.ones_like(drive))
    poles, _, _ = s4.starting_point(S4(state=6, form="diagonal", init="inv"))
    expected = [-0.5 + 6 / math.pi * (6 / (2 * n + 1) - 1) * 1j for n in range(3)]
    torch.testing.assert_close(poles, torch.tensor(expected).to(poles))
    poles, _, _ = s4.starting_point(S4(state=6, form="diagonal", init="real"))
    assert poles.real.tolist() == [-1, -2, -3] and not poles.imag.any()


def test_legs_kernels_are_legendre_polynomials_of_the_decay() -> None:
    """gu2023 (How to train your HiPPO): state n responds to an impulse with sqrt(2n + 1) e^-t P_n(2 e^-t - 1)."""
    poles, p, b = (z.unsqueeze(0) for z in legs_nplr(8))
    dt = torch.full((1, 1), 1e-4, dtype=torch.float64)
    kernel = dplr_kernel(poles, p, b, 2 * b.conj().unsqueeze(0), dt, 20000)[0, 0] / 1e-4  # read by b: all states
    decay = np.exp(-1e-4 * (np.arange(20000) + 0.5))
    exact = decay * np.polynomial.legendre.legval(2 * decay - 1, 2 * np.arange(8) + 1)
    assert np.abs(kernel.numpy() - exact).max() < 1e-3 * np.abs(exact).max()


def _stepped(layer: S4Layer) -> tuple[Tensor, Tensor, Tensor]:
    """A: (D, M, M), b: (D, M), c: (S, D, M), complex, one feature and direction at a time from the definitions."""
    matrices, starts = [], []
    for h in range(layer.log_dt.shape[0]):
        k = h % layer.config.copies
        poles = torch.complex(-layer.log_decay[k].exp(), layer.frequency[k])
        drive = torch.view_as_complex(layer.drive[k])
        a = torch.diag(torch.cat([poles, poles.conj()]))
        if layer.config.form == "dplr":
            half = torch.view_as_complex(layer.low_rank[k])
            p = torch.cat([half, half.conj()])
            a = a - torch.outer(p, p.conj())
        b, dt, eye = torch.cat([drive, drive.conj()]), layer.log_dt[h].exp(), torch.eye(len(a), dtype=a.dtype)
        if layer.config.discretisation == "zoh":
            step = torch.linalg.matrix_exp(dt * a)
            start = torch.linalg.solve(a, (step - eye) @ b)
        else:
            step = torch.linalg.solve(eye - dt / 2 * a, eye + dt / 2 * a)
            start = torch.linalg.solve(eye - dt / 2 * a, dt * b)
        matrices.append(step)
        starts.append(start)
    readout = torch.view_as_complex(layer.readout)
    return torch.stack(matrices), torch.stack(starts), torch.cat([readout, readout.conj()], -1)


def _run(layer: S4Layer, x: Tensor) -> Tensor:
    """The layer as a recurrence, step by step, forwards and, from the step after, backwards."""
    a, b, c = _stepped(layer)
    y = layer.skip * x
    state = torch.zeros(x.shape[0], *b.shape, dtype=a.dtype)
    for t in range(x.shape[1]):
        state = torch.einsum("hmn,bhn->bhm", a, state) + b * x[:, t].unsqueeze(-1)
        y[:, t] += torch.einsum("hm,bhm->bh", c[0], state).real
    state = torch.zeros_like(state)
    for t in range(x.shape[1] - 1, -1, -1) if len(c) == 2 else ():
        y[:, t] += torch.einsum("hm,bhm->bh", c[1], state).real
        state = torch.einsum("hmn,bhn->bhm", a, state) + b * x[:, t].unsqueeze(-1)
    return F.glu(layer.output(F.gelu(y)), dim=-1)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [1, 2, 7, 33])
@pytest.mark.parametrize("config", FORMS, ids=str)
def test_s4_is_its_recurrence(config: S4, length: int, causal: bool) -> None:
    layer = _build(config, causal=causal).double()
    assert isinstance(layer, S4Layer)
    x = _input(length)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), _run(layer, x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [1, 2, 7, 33])
def test_dlr_is_its_recurrence(length: int, causal: bool) -> None:
    layer = _build(DLR(state=5), causal=causal).double()
    assert isinstance(layer, DLRLayer)
    x, a = _input(length), torch.exp(torch.complex(-(layer.root_decay**2), layer.frequency))
    w = torch.view_as_complex(layer.readout)
    with torch.no_grad():
        y = layer.skip * x
        state = torch.zeros(2, 4, 5, dtype=a.dtype)
        for t in range(length):
            state = a * state + x[:, t].unsqueeze(-1)
            y[:, t] += (w[0] * state).sum(-1).real
        state = torch.zeros_like(state)
        for t in range(length - 1, -1, -1) if not causal else ():
            y[:, t] += (w[1] * state).sum(-1).real
            state = a * state + x[:, t].unsqueeze(-1)
        expected = F.glu(layer.output(F.gelu(y)), dim=-1)
        torch.testing.assert_close(layer(x), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("config", [*FORMS, DLR(state=5)], ids=str)
def test_no_gradient_flows_from_the_past_to_the_future(config: MixerConfig) -> None:
    """Exactly none would need exact FFTs: what leaks through rounding in float64 is below 1e-14 of what passes."""
    for causal in (True, False):
        layer, x = _build(config, causal=causal).double(), _input(21).requires_grad_()
        (pull,) = torch.autograd.grad(layer(x)[:, 10].square().sum(), x)
        size = pull.abs().amax((0, 2))
        assert size[:11].min() > 0
        assert (size[11:].max() < 1e-14 * size.max()) == causal


@pytest.mark.parametrize("config", [*FORMS, DLR(state=5)], ids=str)
@pytest.mark.parametrize("causal", [True, False])
def test_padding_changes_nothing_whatever_it_holds(config: MixerConfig, causal: bool) -> None:
    layer, x = _build(config, causal=causal).double(), _input(19)
    padded = F.pad(x, (0, 0, 0, 13), value=1e6)
    mask = (torch.arange(32) < 19).expand(2, 32)
    with torch.no_grad():
        torch.testing.assert_close(layer(padded, mask)[:, :19], layer(x), rtol=1e-10, atol=1e-12)


def test_s4_starts_as_documented() -> None:
    layer = _build(S4(state=64, copies=2), width=512, causal=False)
    assert isinstance(layer, S4Layer)
    assert layer.log_decay.shape == (2, 32) and layer.readout.shape == (2, 512, 32, 2)
    torch.testing.assert_close(layer.log_decay.exp(), torch.full((2, 32), 0.5))
    assert (layer.frequency > 0).all() and torch.equal(layer.frequency[0], layer.frequency[1])
    assert layer.frequency.max().item() == pytest.approx(64**2 / math.pi, rel=0.02)  # gu2022b: growth as N^2 / pi
    inside = layer.log_dt.detach()
    assert math.log(1e-3) <= inside.min() and inside.max() <= math.log(1e-1)
    uniform = ((inside - math.log(1e-3)) / math.log(100)).sort().values
    assert (uniform - torch.linspace(0, 1, 512)).abs().max() < 0.09  # Kolmogorov-Smirnov, p below 0.001
    assert layer.readout.var().item() == pytest.approx(0.5, rel=0.05)
    assert layer.skip.std().item() == pytest.approx(1, rel=0.15)


def test_dlr_starts_as_documented() -> None:
    layer = _build(DLR(), width=64, causal=False)
    assert isinstance(layer, DLRLayer)
    assert layer.readout.shape == (2, 64, 1024, 2)
    assert layer.readout.std().item() == pytest.approx(1 / 1024, rel=0.02)
    torch.testing.assert_close(layer.frequency, 2 * math.pi * torch.arange(1024) / 1024)
    dt = 2 * layer.root_decay.detach() ** 2
    assert dt.min() > 0.99e-4 and dt.max() < 1.01e-1
    assert dt.log().mean().item() == pytest.approx((math.log(1e-4) + math.log(1e-1)) / 2, abs=0.3)


@pytest.mark.parametrize("config", [S4(state=64, init="random"), DLR(state=64, init="random")], ids=str)
def test_the_random_start_redraws_everything(config: MixerConfig) -> None:
    layer = _build(config, width=64)
    values = torch.cat([p.detach().flatten() for p in layer.parameters()])
    assert values.mean().abs().item() < 0.005 and values.std().item() == pytest.approx(0.1, rel=0.03)
    if isinstance(layer, S4Layer):
        assert layer.log_dt.exp().mean().item() == pytest.approx(1, abs=0.1)
        assert layer.log_decay.exp().mean().item() == pytest.approx(1, abs=0.1)


def test_rates_and_decay() -> None:
    rules = S4(lr=5e-4).param_rules()
    assert {name for name, rule in rules.items() if rule.lr == 5e-4} == {
        "log_decay",
        "frequency",
        "low_rank",
        "drive",
    }
    assert rules["log_dt"].lr is None and all(rule.weight_decay == 0 for rule in rules.values())
    assert set(DLR().param_rules()) == {"root_decay", "frequency", "readout"}


def test_one_bilinear_step_never_grows_the_state() -> None:
    """Poles in the left half-plane make the step a contraction, for any p and dt: powers are safe at any length."""
    draw = Generator().manual_seed(3)
    poles = torch.complex(-torch.rand(50, 4, generator=draw), 10 * torch.randn(50, 4, generator=draw)).to(torch.cdouble)
    p, b = (torch.randn(50, 4, 2, generator=draw, dtype=torch.float64) * 3 for _ in range(2))
    dt = torch.rand(50, 1, generator=draw, dtype=torch.float64) * 5
    rotation, column, row, _ = bilinear(poles, torch.view_as_complex(p), torch.view_as_complex(b), dt)
    shrink, turn = (torch.diag_embed(part) for part in rotation.chunk(2, dim=1))
    pairs = torch.cat([torch.cat([shrink, -turn], 2), torch.cat([turn, shrink], 2)], 1)
    step = pairs - column.unsqueeze(2) * row.unsqueeze(1)
    assert torch.linalg.matrix_norm(step, 2).max() <= 1 + 1e-12


@pytest.mark.parametrize("length", [257, 4096, 1 << 16])
def test_float32_kernel_stays_near_the_float64_powers(length: int) -> None:
    """Taps of a fresh layer at a few steps, the last among them, against c A^t b in float64, over the largest."""
    layer, exact = (_build(S4(copies=2), width=8, causal=False) for _ in range(2))
    assert isinstance(layer, S4Layer) and isinstance(exact, S4Layer)
    with torch.no_grad():
        kernel, (a, b, c) = layer.kernel(length), _stepped(exact.double())
        for step in (0, 1, 100, length // 3, length - 1):
            power = torch.linalg.matrix_power(a, step)
            expected = torch.einsum("shm,hmn,hn->sh", c, power, b).real
            assert ((kernel[..., step] - expected).abs() / kernel.abs().amax(-1)).max() < 2e-5


@pytest.mark.parametrize("config", [S4(), S4(form="diagonal"), DLR(state=32)], ids=lambda c: f"{c.label}-{c}")
def test_sixteen_thousand_steps_train(config: MixerConfig) -> None:
    layer = _build(config, width=8, causal=False)
    layer(torch.randn(1, 16384, 8, generator=Generator().manual_seed(1))).square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in layer.parameters())


WRONG: list[tuple[Callable[[], MixerConfig], str]] = [
    (lambda: S4(state=5), "even state"),
    (lambda: S4(copies=3), "divisor"),
    (lambda: S4(init="lin"), "form='diagonal'"),
    (lambda: S4(discretisation="zoh"), "bilinearly"),
    (lambda: S4(dt_min=0.2), "dt_min <= dt_max"),
    (lambda: DLR(state=0), "at least one state"),
    (lambda: DLR(dt_min=0.0), "dt_min <= dt_max"),
]


@pytest.mark.parametrize("make, words", WRONG)
def test_settings_that_cannot_be_are_refused_with_the_remedy(make: Callable[[], MixerConfig], words: str) -> None:
    with pytest.raises(UserError, match=words):
        _build(make())
