"""Recurrences along the steps, against loops over the steps: values and gradients, compiled and not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest
import torch
from torch import Generator, Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from levelfield.ops.arithmetic import Operations
from levelfield.ops.conv.depthwise import (
    causal_depthwise_conv,
    depthwise_conv,
    depthwise_conv_backward,
    shifted_conv,
    shifted_conv_backward,
)
from levelfield.ops.ssm.mimo import mimo, naive_mimo
from levelfield.ops.ssm.rglru import gated_scan, naive_gated_scan
from levelfield.ops.ssm.scan import naive_scan, paired_states, paired_states_backward, scan

KINDS = pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=["real", "complex"])


def _draw(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=Generator().manual_seed(seed))


def _with_gradients(function: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    """The result, and the gradients of something that depends on its every number."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    y = function(*leaves)
    loss = torch.view_as_real(y).sin().sum() if y.is_complex() else y.sin().sum()
    return [y, *torch.autograd.grad(loss, leaves, materialize_grads=True)]


def _same(ours: list[Tensor], theirs: list[Tensor]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


def _inputs(dtype: torch.dtype, constant: bool, length: int) -> tuple[Tensor, Tensor, Tensor]:
    a = _draw(*((5,) if constant else (3, length, 5)), dtype=dtype)
    return a / (0.1 + a.abs()), _draw(3, length, 5, dtype=dtype, seed=1), _draw(3, 5, dtype=dtype, seed=2)


@KINDS
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 2, 33, 101])
def test_a_scan_is_its_loop(dtype: torch.dtype, constant: bool, reverse: bool, length: int) -> None:
    inputs = _inputs(dtype, constant, length)
    loop = _with_gradients(lambda a, b, h: naive_scan(a, b, h, reverse), *inputs)
    _same(_with_gradients(lambda a, b, h: scan(a, b, h, reverse), *inputs), loop)

    a, b, initial = inputs
    h = paired_states(a, b, initial, reverse)  # what other devices than a CPU run
    (grad,) = torch.autograd.grad(
        (torch.view_as_real(y) if (y := h.detach().requires_grad_()).is_complex() else y).sin().sum(), y
    )
    _same([h, *paired_states_backward(a, h, initial, grad, reverse)], loop)


@pytest.fixture
def poisoned() -> Iterator[None]:
    """Memory that torch has allocated and nobody has written to is NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@KINDS
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.usefixtures("poisoned")
def test_a_single_step_of_a_single_sequence_is_its_loop(dtype: torch.dtype, constant: bool, reverse: bool) -> None:
    """Its coefficients are a single row, as those that all steps share."""
    a, b, initial = (x[:1] if x.ndim > 1 else x for x in _inputs(dtype, constant, 1))
    loop = _with_gradients(lambda a, b, h: naive_scan(a, b, h, reverse), a, b, initial)
    _same(_with_gradients(lambda a, b, h: scan(a, b, h, reverse), a, b, initial), loop)


@KINDS
def test_a_scan_goes_on_from_its_last_state(dtype: torch.dtype) -> None:
    a, b, _ = _inputs(dtype, False, 29)
    whole = scan(a, b)
    first = scan(a[:, :11], b[:, :11])
    torch.testing.assert_close(torch.cat([first, scan(a[:, 11:], b[:, 11:], first[:, -1])], 1), whole)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_threads_share_the_batch(threads: int) -> None:
    a, b, initial = _inputs(torch.float64, True, 40)
    expected, before = naive_scan(a, b, initial), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        torch.testing.assert_close(scan(a, b, initial), expected)
    finally:
        torch.set_num_threads(before)


def test_coefficients_may_be_zero_and_states_outlive_any_product_of_them() -> None:
    a, b = torch.full((1, 3000, 2), 1e-3), torch.ones(1, 3000, 2)
    a[:, 1500] = 0
    assert torch.equal(scan(a, b)[:, 1500], b[:, 0])
    torch.testing.assert_close(scan(a, b)[:, -1], torch.full((1, 2), 1 / (1 - 1e-3)))
    torch.testing.assert_close(paired_states(a, b, torch.zeros(1, 2), False), scan(a, b))


def test_inputs_of_any_layout() -> None:
    a, b = _draw(2, 5, 7).transpose(1, 2), _draw(2, 5, 7, seed=1).transpose(1, 2)
    _same(_with_gradients(scan, 0.5 * a, b), _with_gradients(naive_scan, 0.5 * a, b))
    turned = _draw(2, 6, 3, dtype=torch.complex128).conj()
    torch.testing.assert_close(scan(turned[0, 0], turned), naive_scan(turned[0, 0], turned))


def test_shapes_and_types_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"a \(N,\) or \(B, T, N\)"):
        scan(torch.ones(4), torch.ones(2, 3, 5))
    with pytest.raises(ValueError, match="one type"):
        scan(torch.ones(5), torch.ones(2, 3, 5).double())
    with pytest.raises(ValueError, match="one type"):
        scan(torch.ones(5).bfloat16(), torch.ones(2, 3, 5).bfloat16())


def test_work_is_counted_on_tensors_without_values() -> None:
    with FakeTensorMode():
        a, b = torch.rand(4, requires_grad=True), torch.randn(2, 9, 4, requires_grad=True)
        scan(a, b).sum().backward()
        assert a.grad is not None and b.grad is not None and b.grad.shape == (2, 9, 4)


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("length", [1, 34])
def test_shared_states_are_their_loop(directions: int, length: int) -> None:
    kind = torch.complex128
    a, drive = 0.5 * _draw(4, dtype=kind), _draw(4, 3, dtype=kind, seed=1)
    inputs = _draw(2, length, 3), a, drive, _draw(directions, 5, 4, dtype=kind, seed=2), _draw(2, 4, dtype=kind, seed=3)
    _same(_with_gradients(lambda *i: mimo(*i)[0], *inputs), _with_gradients(lambda *i: naive_mimo(*i)[0], *inputs))
    torch.testing.assert_close(mimo(*inputs)[1], naive_mimo(*inputs)[1])


@pytest.mark.parametrize("starts", [True, False])
@pytest.mark.parametrize("length", [1, 37])
def test_the_gated_scan_is_its_loop(starts: bool, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "levelfield.ops.ssm.rglru.CPU_BLOCK_ELEMENTS", 50
    )  # blocks that end within a sequence and span two
    shape = (3, length, 5)
    rate = torch.rand(5, dtype=torch.float64, generator=Generator().manual_seed(4)) + 0.1
    inputs = [_draw(*shape), _draw(*shape, seed=1), _draw(*shape, seed=2), rate]
    inputs += [] if starts else [_draw(3, 5, seed=3)]
    _same(_with_gradients(gated_scan, *inputs), _with_gradients(naive_gated_scan, *inputs))


def test_a_closed_gate_keeps_the_state_and_its_gradient_finite() -> None:
    """Far closed, the sigmoid is zero in float32, a is one, and the root's slope has no bound of its own."""
    u, gate = torch.randn(1, 5, 2, generator=Generator().manual_seed(0)), torch.full((1, 5, 2), -200.0)
    opening, rate = torch.zeros(1, 5, 2), torch.ones(2)
    leaves = [x.requires_grad_() for x in (u, opening, gate, rate)]
    h = gated_scan(u, opening, gate, rate, torch.full((1, 2), 3.0))
    assert torch.equal(h, torch.full((1, 5, 2), 3.0))
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(h.sum(), leaves))


@pytest.mark.parametrize("length", [1, 2, 19, 130])
@pytest.mark.parametrize("number", [1, 4])
def test_taps_are_a_grouped_convolution(length: int, number: int) -> None:
    def theirs(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        padded = F.pad(x.transpose(1, 2), (number - 1, 0))
        return F.conv1d(padded, weight.unsqueeze(1), bias, groups=3).transpose(1, 2)

    inputs = _draw(2, length, 3), _draw(3, number, seed=1), _draw(3, seed=2)
    _same(_with_gradients(causal_depthwise_conv, *inputs), _with_gradients(theirs, *inputs))


@pytest.mark.parametrize("length", [1, 2, 70])
@pytest.mark.parametrize("number", [1, 4])
def test_compiled_taps_are_shifted_copies(length: int, number: int) -> None:
    """Going on from steps before, on inputs that lie apart in memory."""
    x, before, weight = _draw(2, length, 6)[..., 1:4], _draw(2, number - 1, 3, seed=1), _draw(number, 3, seed=2)
    bias, grad = _draw(3, seed=3), _draw(2, 3, length, seed=4).transpose(1, 2)
    _same([depthwise_conv(x, before, weight, bias)], [shifted_conv(x, before, weight, bias)])
    _same([*depthwise_conv_backward(x, before, weight, grad)], [*shifted_conv_backward(x, before, weight, grad)])


def test_taps_in_16_bits_are_rounded_once() -> None:
    x, weight, bias = _draw(2, 9, 3).bfloat16(), _draw(3, 4, seed=1).bfloat16(), _draw(3, seed=2).bfloat16()
    assert torch.equal(
        causal_depthwise_conv(x, weight, bias),
        causal_depthwise_conv(x.float(), weight.float(), bias.float()).bfloat16(),
    )


def test_taps_are_counted_with_values_and_without() -> None:
    counts = []
    for mode in (nullcontext(), FakeTensorMode()):
        with mode, Operations() as counter:
            x, weight = torch.ones(2, 9, 3, requires_grad=True), torch.ones(3, 4, requires_grad=True)
            causal_depthwise_conv(x, weight, torch.zeros(3)).sum().backward()
            assert x.grad is not None and x.grad.shape == x.shape
        counts.append(counter.total)
    assert counts[0] == counts[1] == pytest.approx(6 * 4 * 2 * 9 * 3, rel=0.1)


def test_of_an_empty_batch_there_is_nothing_to_compute() -> None:
    x, kernel, bias = torch.zeros(0, 5, 16), torch.randn(16, 3), torch.zeros(16)
    y, *gradients = _with_gradients(causal_depthwise_conv, x, kernel, bias)
    assert y.shape == x.shape
    assert [each.shape for each in gradients] == [x.shape, kernel.shape, bias.shape]
    assert not gradients[1].any()
