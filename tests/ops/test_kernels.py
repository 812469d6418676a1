"""Kernels of other packages: used where they agree with the naive twin, refused with a reason, silent where missing."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from levelfield.cli import listing
from levelfield.ops import kernel_cases
from levelfield.ops.arithmetic import Operations
from levelfield.ops.attention.softmax import attend_window, naive_attend_window
from levelfield.ops.conv.short import naive_short_conv, short_conv
from levelfield.ops.linear_attention.decayed import decayed_attention
from levelfield.ops.linear_attention.delta import delta_rule, naive_delta_rule
from levelfield.ops.ssm.selective import selective_scan
from levelfield.ops.vendor import adapters, dispatch
from levelfield.runs.ledger import all_kernels, new_kernels

CPU = torch.device("cpu")
Install = Callable[[str, str, Callable[..., Any]], None]


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels are considered on a CPU; nothing decided here outlives the test."""
    monkeypatch.setattr(dispatch, "DEVICES", {"cpu"})
    monkeypatch.delenv(dispatch.SWITCH, raising=False)
    dispatch.clear_cache()
    yield
    dispatch.clear_cache()


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """install(module, name, function) puts a package there that has it."""

    def put(module: str, name: str, function: Callable[..., Any]) -> None:
        parts = module.split(".")
        for size in range(1, len(parts) + 1):
            path = ".".join(parts[:size])
            if path not in sys.modules:
                made = ModuleType(path)
                made.__path__ = []
                made.__spec__ = importlib.machinery.ModuleSpec(path, None)
                monkeypatch.setitem(sys.modules, path, made)
        monkeypatch.setattr(sys.modules[module], name, function, raising=False)

    return put


def chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Written from the documentation of flash-linear-attention's function: steps before heads, scores scaled."""
    heads, scale = q.shape[2], q.shape[3] ** -0.5 if scale is None else scale
    state = q.new_zeros(q.shape[0], heads, q.shape[3], v.shape[3]) if initial_state is None else initial_state
    rows = []
    for t in range(q.shape[1]):
        state = state * g[:, t].exp()[..., None, None]
        error = v[:, t] - torch.einsum("bhk,bhkv->bhv", k[:, t], state)
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], beta[:, t, :, None] * error)
        rows.append(torch.einsum("bhk,bhkv->bhv", q[:, t] * scale, state))
    return torch.stack(rows, 1), state if output_final_state else None


GATED = "fla.ops.gated_delta_rule", "chunk_gated_delta_rule"


def inputs(length: int = 40, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    draw = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(1, 2, length, 8, generator=draw, dtype=dtype) for _ in range(3))
    beta, decay = torch.rand(1, 2, length, generator=draw), -torch.rand(1, 2, length, generator=draw)
    return [q, k / k.norm(dim=-1, keepdim=True), v, beta.to(dtype), decay.to(dtype)]


class Counting:
    """A kernel that counts its calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.calls += 1
        return self.function(*given, **named)


def test_a_kernel_that_agrees_is_used_from_then_on(install: Install) -> None:
    kernel = Counting(chunk_gated_delta_rule)
    install(*GATED, kernel)
    for expected in (2, 3):  # the self-test and the call; then the call alone
        y, state = delta_rule(*inputs())
        assert kernel.calls == expected
    want = naive_delta_rule(*inputs())
    torch.testing.assert_close((y, state), want, rtol=1e-4, atol=1e-5)
    (note,) = dispatch.kernel_log()
    assert note.startswith("delta_rule: fla chunk_gated_delta_rule (off by ")


def test_other_widths_are_tested_anew(install: Install) -> None:
    kernel = Counting(chunk_gated_delta_rule)
    install(*GATED, kernel)
    delta_rule(*inputs())
    wide = inputs()
    wide[2] = torch.cat([wide[2], wide[2]], -1)
    delta_rule(*wide)
    assert kernel.calls == 4


class _HalfGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] * 0.97


def _other_sign(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, **named: Any) -> Any:
    return chunk_gated_delta_rule(q, k, v, -g.clamp(min=-0.5), beta, **named)


def _own_scale(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float, **named: Any) -> Any:
    return chunk_gated_delta_rule(q, k, v, g, beta, **named)


def _no_state(*given: Any, **named: Any) -> Any:
    y, state = chunk_gated_delta_rule(*given, **named)
    return y, torch.zeros_like(state)


def _wrong_pull(q: Tensor, k: Tensor, *given: Any, **named: Any) -> Any:
    return chunk_gated_delta_rule(q, _HalfGradient.apply(k), *given, **named)


def _no_pull(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, **named: Any) -> Any:
    return chunk_gated_delta_rule(q, k, v, g, beta.detach(), **named)


def _last_step_wrong(*given: Any, **named: Any) -> Any:
    y, state = chunk_gated_delta_rule(*given, **named)
    return torch.cat([y[:, :-1], y[:, -1:] * 0.5], 1), state


def _not_a_number(*given: Any, **named: Any) -> Any:
    y, state = chunk_gated_delta_rule(*given, **named)
    return y * torch.nan, state


def _turned(*given: Any, **named: Any) -> Any:
    y, state = chunk_gated_delta_rule(*given, **named)
    return y, state.mT[..., :4]


def _raising(*given: Any, **named: Any) -> Any:
    raise RuntimeError("no kernel image is available\nfor this device")


@pytest.mark.parametrize(
    "kernel, reason",
    [
        (_other_sign, "y off by"),
        (_own_scale, "y off by"),
        (_no_state, "state off by 1e+00"),
        (_wrong_pull, "gradient of k off by"),
        (_no_pull, "gradient of beta off by"),
        (_last_step_wrong, "y off by"),
        (_not_a_number, "y off by nan"),
        (_turned, "state off by inf"),
        (_raising, "RuntimeError no kernel image is available"),
    ],
)
def test_a_kernel_that_differs_is_refused_with_the_reason(
    install: Install, kernel: Callable[..., Any], reason: str
) -> None:
    install(*GATED, kernel)
    plain = _without(delta_rule, inputs())
    torch.testing.assert_close(delta_rule(*inputs()), plain, rtol=0, atol=0)
    (note,) = dispatch.kernel_log()
    assert note.startswith("delta_rule: plain; fla chunk_gated_delta_rule refused: ")
    assert reason in note
    assert "\n" not in note


def _without(function: Callable[..., Any], given: list[Tensor]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch, "DEVICES", {"cuda"})
        return function(*given)


def test_a_missing_package_says_nothing() -> None:
    for part in (p for p in ("fla", "mamba_ssm", "causal_conv1d") if p in sys.modules):
        pytest.skip(f"{part} is installed")
    plain = _without(delta_rule, inputs())
    torch.testing.assert_close(delta_rule(*inputs()), plain, rtol=0, atol=0)
    assert dispatch.kernel_log() == []


def test_a_package_that_cannot_be_imported_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> ModuleType:
        raise ImportError(f"{name}: undefined symbol")

    monkeypatch.setattr(dispatch.importlib, "import_module", broken)
    delta_rule(*inputs())
    assert dispatch.kernel_log() == [
        "delta_rule: plain; fla chunk_gated_delta_rule refused: ImportError fla.ops.gated_delta_rule: undefined symbol"
    ]


def test_a_kernel_that_fails_later_gives_way(install: Install) -> None:
    calls = []

    def failing(*given: Any, **named: Any) -> Any:
        calls.append(len(given))
        if len(calls) == 3:
            raise RuntimeError("out of shared memory")
        return chunk_gated_delta_rule(*given, **named)

    install(*GATED, failing)
    results = [delta_rule(*inputs())[0] for _ in range(3)]
    assert len(calls) == 3
    torch.testing.assert_close(results[1:], [results[0]] * 2, rtol=1e-4, atol=1e-5)
    assert any("then refused: RuntimeError out of shared memory" in note for note in dispatch.kernel_log())


def test_running_out_of_memory_is_not_hidden(install: Install) -> None:
    kernel = Counting(chunk_gated_delta_rule)
    install(*GATED, kernel)
    delta_rule(*inputs())

    def full(*given: Any, **named: Any) -> Any:
        raise torch.OutOfMemoryError("full")

    kernel.function = full
    with pytest.raises(torch.OutOfMemoryError):
        delta_rule(*inputs())


def test_kernels_stay_out_of_everything_else(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Counting(chunk_gated_delta_rule)
    install(*GATED, kernel)
    delta_rule(*inputs(dtype=torch.float64))
    delta_rule(*inputs(length=dispatch.FEWEST - 1))
    with Operations() as counter:
        delta_rule(*inputs())
    with monkeypatch.context() as patch:
        patch.setenv(dispatch.SWITCH, "plain")
        delta_rule(*inputs())
    with monkeypatch.context() as patch:
        patch.setattr(dispatch, "DEVICES", {"cuda"})
        delta_rule(*inputs())
        with Operations() as plain:
            delta_rule(*inputs())
    assert kernel.calls == 0
    assert counter.total == plain.total > 0
    delta_rule(*inputs())
    assert kernel.calls == 2


def test_a_self_test_draws_nothing_from_the_global_generator(install: Install) -> None:
    install(*GATED, chunk_gated_delta_rule)
    before = torch.get_rng_state()
    with torch.no_grad():
        delta_rule(*inputs())
    assert torch.equal(torch.get_rng_state(), before)
    assert "fla chunk_gated_delta_rule" in dispatch.kernel_log()[0]


def selective_scan_fn(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, return_last_state: bool = False
) -> Any:
    """Written from the documentation of mamba_ssm's function; its last state has no gradient."""
    state, rows = u.new_zeros(*u.shape[:2], A.shape[1]), []
    for t in range(u.shape[2]):
        step = delta[:, :, t, None]
        state = (step * A).exp() * state + step * B[:, None, :, t] * u[:, :, t, None]
        rows.append((state * C[:, None, :, t]).sum(-1))
    return (torch.stack(rows, 2), state.detach()) if return_last_state else torch.stack(rows, 2)


def test_a_gradient_that_a_kernel_lacks_is_an_error_and_not_zero(install: Install) -> None:
    install("mamba_ssm.ops.selective_scan_interface", "selective_scan_fn", selective_scan_fn)
    x, dt, b = torch.randn(1, 20, 3, requires_grad=True), torch.rand(1, 20, 3), torch.randn(1, 20, 2)
    y, state = selective_scan(x, dt, -torch.rand(3, 2), b, b)
    assert "mamba_ssm selective_scan_fn (off by" in dispatch.kernel_log()[0]
    y.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="no gradient of its last state"):
        state.sum().backward()
    dispatch.clear_log()
    selective_scan(x, dt, -torch.rand(3, 2), b, b, torch.zeros(1, 3, 2))
    assert dispatch.kernel_log() == []


def causal_conv1d_fn(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str | None = None) -> Tensor:
    """Written from the documentation of causal_conv1d's function: (B, C, T)."""
    assert activation == "silu"
    padded = torch.nn.functional.pad(x, (weight.shape[1] - 1, 0))
    return torch.nn.functional.silu(torch.nn.functional.conv1d(padded, weight.unsqueeze(1), bias, groups=x.shape[1]))


@pytest.mark.parametrize("biased", [True, False])
def test_short_convolutions_come_from_causal_conv1d(install: Install, biased: bool) -> None:
    install("causal_conv1d", "causal_conv1d_fn", causal_conv1d_fn)
    x, weight, bias = torch.randn(2, 33, 6), torch.randn(6, 1, 4), torch.randn(6) if biased else None
    torch.testing.assert_close(short_conv(x, weight, bias), naive_short_conv(x, weight, bias), rtol=1e-5, atol=1e-5)
    (note,) = dispatch.kernel_log()
    assert note.startswith("short_conv: causal_conv1d causal_conv1d_fn (off by")
    dispatch.clear_log()
    short_conv(x, weight, bias, torch.randn(2, 3, 6))
    short_conv(x, torch.randn(6, 1, 5), bias)
    assert dispatch.kernel_log() == []


def test_the_tail_of_a_short_convolution_is_never_longer_than_what_was_read() -> None:
    """A kernel sees no fewer steps than FEWEST and no more taps than it takes."""
    (_, kernel), x = adapters.OPERATORS["short_conv"].kernels, torch.randn(2, dispatch.FEWEST, 6)
    for taps in (2, adapters.MOST_TAPS):
        weight = torch.randn(6, 1, taps)
        assert kernel.takes((x, weight, None, None))
        assert torch.equal(adapters._tail(x, taps), naive_short_conv(x, weight, None)[1])
    assert not kernel.takes((x, torch.randn(6, 1, dispatch.FEWEST + 2), None, None))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("past, shared, first", [(0, 1, 0), (7, 1, 3), (0, 2, 0), (50, 2, 2)])
@pytest.mark.parametrize("causal", [True, False])
def test_windows_are_flex_attentions(past: int, shared: int, first: int, causal: bool) -> None:
    """In value: uncompiled, on a CPU, it has no gradient."""
    draw = torch.Generator().manual_seed(past)
    q = torch.randn(2, 2 * shared, 45, 8, generator=draw)
    k, v = (torch.randn(2, 2, 45 + past, 8, generator=draw) for _ in range(2))
    (kernel,) = adapters.OPERATORS["attend_window"].kernels
    got = kernel.adapt(flex_attention, q, k, v, None, causal, 12, first)
    want = naive_attend_window(q, k, v, None, causal, 12, first)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(_without(attend_window, [q, k, v, None, causal, 12, first]), want, rtol=1e-4, atol=1e-5)


def test_attention_with_padding_stays_plain() -> None:
    q = torch.randn(1, 2, 20, 4)
    attend_window(q, q, q, torch.ones(1, 20, dtype=torch.bool), False, 5)
    assert dispatch.kernel_log() == []


def test_every_operator_of_the_table_has_a_case_whose_twin_takes_its_samples() -> None:
    assert {case.operator for case in kernel_cases.CASES} == set(adapters.OPERATORS)
    for case in (one for c in kernel_cases.CASES for one in (c, kernel_cases.from_state(c)) if one is not None):
        given = case.inputs(CPU, torch.float32)
        sample = case.table.sample(given, 5, torch.Generator().manual_seed(0))
        assert len(case.table.arguments) == len(sample) == len(given), case.name
        out = case.twin(*sample)
        assert len(out if isinstance(out, tuple) else (out,)) == len(case.table.results)
        assert case.table.widths(sample) == case.table.widths(given) or "window" in case.operator


def test_decays_reach_the_operator_by_their_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    name = "levelfield.ops.linear_attention.decayed.try_kernel"
    monkeypatch.setattr(name, lambda operator, *_: asked.append(operator))
    q, by_head, by_key = torch.randn(1, 2, 20, 4), -torch.rand(1, 2, 20), -torch.rand(1, 2, 20, 4)
    decayed_attention(q, q, q, by_head)
    decayed_attention(q, q, q, by_key)
    decayed_attention(q, q, q, by_key, bonus=torch.rand(2, 4))
    assert asked == ["decay_by_head", "decay_by_key", "decay_by_key_with_bonus"]


def test_the_ledger_names_what_ran_in_any_phase_and_reads_phases_without_the_field(install: Install) -> None:
    assert all_kernels([{"steps": 3}]) == "plain"
    install(*GATED, chunk_gated_delta_rule)
    delta_rule(*inputs())
    first = {"steps": 3, "kernels": new_kernels()}
    assert new_kernels() == []
    install(*GATED, _raising)
    dispatch.clear_cache()
    delta_rule(*inputs())
    told = all_kernels([{"steps": 3}, first])
    assert "chunk_gated_delta_rule (off by" in told
    assert "RuntimeError no kernel image" in told


def test_the_list_of_kernels_says_what_each_does_not_take() -> None:
    told = {name.partition(" ")[0]: about for name, about in listing.kernels()}
    assert "causal_conv1d_fn (not for inputs to start from, or other than 2 to 4 taps), fla" in told["short_conv"]
    assert told["attend_window"].endswith("flex_attention (not for padding)")
    assert told["decay_by_key"].endswith("candidates: fla chunk_gla")
