"""Each fast operation against its naive twin: values and gradients in float64, at odd lengths and at length 1."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from levelfield.ops.compiled import fft
from levelfield.ops.conv import fft as fft_loops
from levelfield.ops.layers import glu
from levelfield.ops.ssm import diagonal, dplr

LENGTHS = (1, 2, 3, 7, 63, 64, 65, 257)


def _normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(seed), dtype=dtype).requires_grad_()


def _same(fast: Callable[..., Tensor], naive: Callable[..., Tensor], inputs: Sequence[Tensor]) -> None:
    """Both functions of the inputs have equal values and equal gradients under one random weighting."""
    ours, theirs = fast(*inputs), naive(*inputs)
    assert ours.shape == theirs.shape
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    weights = _normal(*ours.shape, seed=99).detach()
    pulls = [torch.autograd.grad(out, inputs, weights, allow_unused=True) for out in (ours, theirs)]
    for mine, its, given in zip(*pulls, inputs, strict=True):
        zero = torch.zeros_like(given)
        torch.testing.assert_close(zero if mine is None else mine, zero if its is None else its, rtol=1e-9, atol=1e-9)


@pytest.fixture(params=["compiled", "transformed"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a CPU runs, and what other devices run."""
    for module in (fft_loops, diagonal, dplr):
        monkeypatch.setattr(module, "COMPILED", "cpu" if request.param == "compiled" else "none")
    return request.param


@pytest.mark.parametrize("kernels", [1, 2, 6])
@pytest.mark.parametrize("length", (*LENGTHS, 1000))
def test_convolution_of_full_length(way: str, length: int, kernels: int) -> None:
    u, forward, backward = _normal(2, 6, length), _normal(kernels, length, seed=1), _normal(kernels, length, seed=2)
    _same(fft_loops.fft_conv, fft_loops.naive_conv, (u, forward))
    _same(fft_loops.fft_conv, fft_loops.naive_conv, (u, forward, backward))


@pytest.mark.parametrize("taps", [(1, 1), (3, 9), (9, 3), (40, 40), (60, 2)])
def test_convolution_with_kernels_shorter_and_longer_than_the_sequence(way: str, taps: tuple[int, int]) -> None:
    inputs = (_normal(3, 4, 41), _normal(2, taps[0], seed=1), _normal(2, taps[1], seed=2))
    _same(fft_loops.fft_conv, fft_loops.naive_conv, inputs)


def test_convolution_by_torch_does_not_depend_on_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fft_loops, "COMPILED", "none")
    monkeypatch.setattr(fft_loops, "BLOCK", 400)
    _same(fft_loops.fft_conv, fft_loops.naive_conv, (_normal(5, 6, 13), _normal(3, 13, seed=1), _normal(3, 13, seed=2)))


def test_threads_share_the_channels_and_change_nothing() -> None:
    """40 channels are three blocks of sixteen, the last one in part."""
    inputs, results = (_normal(2, 40, 50), _normal(20, 50, seed=1), _normal(20, 50, seed=2)), []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            y = fft_loops.fft_conv(*inputs)
            results.append([y, *torch.autograd.grad(y.square().sum(), inputs)])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
    torch.testing.assert_close(results[0][0], fft_loops.naive_conv(*inputs))


def test_convolution_in_float32_is_as_exact_as_float32(way: str) -> None:
    inputs = [_normal(2, 3, 999), _normal(3, 999, seed=1), _normal(3, 999, seed=2)]
    exact = fft_loops.naive_conv(*inputs)
    rounded = fft_loops.fft_conv(*(x.float() for x in inputs))
    assert rounded.dtype == torch.float32
    assert ((rounded - exact).abs().max() / exact.abs().max()).item() < 1e-6


def test_convolution_takes_inputs_that_are_not_contiguous(way: str) -> None:
    inputs = (_normal(2, 31, 4).transpose(1, 2), _normal(31, 4, seed=1).T, _normal(31, 4, seed=2).T)
    torch.testing.assert_close(fft_loops.fft_conv(*inputs), fft_loops.naive_conv(*inputs))


@pytest.mark.parametrize("shapes", [((2, 5, 8), (2, 8)), ((2, 4), (4, 8)), ((2, 4, 0), (4, 8)), ((2, 4, 8), (4, 0))])
def test_convolution_refuses_sizes_that_do_not_fit(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match="G dividing C"):
        fft_loops.fft_conv(torch.zeros(shapes[0]), torch.zeros(shapes[1]))


def test_transform_sizes_are_the_smallest_smooth_ones() -> None:
    smooth = [2**a * 3**b * 5**c for a in range(1, 13) for b in range(3) for c in range(2)]
    for least in range(1, 2000):
        assert fft_loops.transform_size(least) == min(size for size in smooth if size >= least)


@pytest.mark.parametrize(
    "length, expected", [(1, 1), (2, 2), (3, 3), (4, 4), (5, 6), (1024, 1024), (1025, 1536), (1537, 2048)]
)
def test_compiled_transforms_take_two_and_three_times_powers_of_two(length: int, expected: int) -> None:
    assert fft.size_for(length) == expected


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 48, 64, 96, 128, 2048, 3072])
def test_compiled_transform_is_the_fourier_transform_and_back(size: int) -> None:
    """Sixteen complex columns; the spectrum is in another order, so its values are compared sorted."""
    x = np.random.default_rng(size).standard_normal((size, 2, 16))
    tables = fft.plan(size, x.dtype)
    work = x.flatten()
    fft.forward_fft(work, tables)
    found, expected = work.reshape(x.shape), np.fft.fft(x[:, 0] + 1j * x[:, 1], axis=0)
    order = [np.abs(expected[:, :1] - row).argmin() for row in (found[:, 0] + 1j * found[:, 1])[:, :1]]
    assert sorted(order) == list(range(size))
    np.testing.assert_allclose(found[:, 0] + 1j * found[:, 1], expected[order], rtol=0, atol=1e-12 * size)
    fft.inverse_fft(work, tables)
    np.testing.assert_allclose(work.reshape(x.shape) / size, x, rtol=0, atol=1e-14)


@pytest.mark.parametrize("length, block", [(1, 1024), (7, 3), (64, 16), (65, 64)])
def test_gated_output_is_its_three_operations(monkeypatch: pytest.MonkeyPatch, length: int, block: int) -> None:
    monkeypatch.setattr(glu, "CPU_BLOCK_STEPS", block)
    _same(glu.gelu_glu, glu.naive_gelu_glu, (_normal(2, 5, length), _normal(6, 5, seed=1), _normal(6, seed=2)))


def _system() -> list[Tensor]:
    """log decay, frequency, p, b: (H, N[, 2]); readout: (S, H, N, 2); log dt: (H, 1)."""
    shapes = ((3, 4), (3, 4), (3, 4, 2), (3, 4, 2), (2, 3, 4, 2), (3, 1))
    decay, frequency, p, b, c, log_dt = (_normal(*shape, seed=i).detach() for i, shape in enumerate(shapes))
    parts = (0.3 * decay - 1, 3 * frequency, p, b, c, 0.5 * log_dt - 1.5)
    return [part.requires_grad_() for part in parts]


def _poles(decay: Tensor, frequency: Tensor) -> Tensor:
    return torch.complex(-decay.exp(), frequency)


@pytest.mark.parametrize("length", LENGTHS)
def test_dplr_kernel_is_the_recurrence(way: str, length: int) -> None:
    def through(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def kernel(decay: Tensor, frequency: Tensor, p: Tensor, b: Tensor, c: Tensor, log_dt: Tensor) -> Tensor:
            low_rank, drive, readout = (torch.view_as_complex(part) for part in (p, b, c))
            return function(_poles(decay, frequency), low_rank, drive, readout, log_dt.exp(), length)

        return kernel

    _same(through(dplr.dplr_kernel), through(dplr.naive_dplr_kernel), _system())


@pytest.mark.parametrize("length", LENGTHS)
def test_diagonal_kernel_is_the_recurrence(way: str, length: int) -> None:
    def through(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def kernel(decay: Tensor, frequency: Tensor, _: Tensor, __: Tensor, c: Tensor, log_dt: Tensor) -> Tensor:
            return function(_poles(decay, frequency) * log_dt.exp(), torch.view_as_complex(c), length)

        return kernel

    _same(through(diagonal.diagonal_kernel), through(diagonal.naive_diagonal_kernel), _system())


@pytest.mark.parametrize("table", [8, 40, 1 << 21])
@pytest.mark.parametrize("length", LENGTHS)
def test_shared_kernel_is_the_recurrence(monkeypatch: pytest.MonkeyPatch, length: int, table: int) -> None:
    monkeypatch.setattr(diagonal, "SHARED_TABLE", table)

    def through(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def kernel(decay: Tensor, frequency: Tensor, c: Tensor) -> Tensor:
            return function(_poles(decay[0], frequency[0]) / 10, torch.view_as_complex(c), length)

        return kernel

    decay, frequency, _, _, c, _ = _system()
    _same(through(diagonal.shared_kernel), through(diagonal.naive_diagonal_kernel), (decay, frequency, c))


@pytest.mark.parametrize("block", [1, 130])
def test_kernels_do_not_depend_on_the_block(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(dplr, "COMPILED", "none")
    monkeypatch.setattr(diagonal, "COMPILED", "none")
    decay, frequency, p, b, c, log_dt = (part.detach() for part in _system())
    low_rank, drive, readout = (torch.view_as_complex(part) for part in (p, b, c))
    poles, dt = _poles(decay, frequency), log_dt.exp()

    def both() -> tuple[Tensor, Tensor]:
        whole = dplr.dplr_kernel(poles, low_rank, drive, readout, dt, 75)
        return whole, diagonal.diagonal_kernel(poles * dt, readout, 75)

    before = both()
    monkeypatch.setattr(dplr, "CPU_BLOCK_ELEMENTS", block)
    monkeypatch.setattr(diagonal, "CPU_BLOCK_ELEMENTS", block)
    torch.testing.assert_close(both(), before)


def test_kernels_of_more_channels_than_a_register_holds() -> None:
    """Forty channels, in three blocks, that decay past what is taken as zero."""
    log_a = torch.complex(-torch.linspace(0, 2, 120).reshape(40, 3), torch.linspace(-3, 3, 120).reshape(40, 3))
    weight = torch.view_as_complex(_normal(2, 40, 3, 2))
    kernel = diagonal.diagonal_kernel(log_a.to(weight.dtype), weight, 200)
    torch.testing.assert_close(kernel, diagonal.naive_diagonal_kernel(log_a.to(weight.dtype), weight, 200))


def test_long_kernels_keep_their_phase_in_float32(way: str) -> None:
    """At step 65,535 a slowly decaying mode of 3 radians a step is still exact, and nothing has overflowed."""
    length = 1 << 16
    log_a = torch.complex(torch.full((1, 1), -1e-6, dtype=torch.float64), torch.full((1, 1), 3.0, dtype=torch.float64))
    weight = torch.ones(1, 1, 1, dtype=torch.complex64)
    times = torch.arange(length, dtype=torch.float64)
    exact = torch.exp(-1e-6 * times) * torch.cos(3.0 * times)
    for kernel in (diagonal.diagonal_kernel(log_a, weight, length), diagonal.shared_kernel(log_a[0], weight, length)):
        assert kernel.dtype == torch.float32
        assert (kernel[0, 0] - exact).abs().max().item() < 1e-5


def test_convolution_keeps_the_input_and_the_kernels_and_nothing_else() -> None:
    kept: list[int] = []

    def note(x: Tensor) -> Tensor:
        kept.append(x.numel())
        return x

    u, forward = _normal(4, 16, 100), _normal(16, 100, seed=1)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        fft_loops.fft_conv(u, forward, forward)
    assert sum(kept) <= u.numel() + 2 * forward.numel()


@pytest.mark.parametrize("length", [96, 6_000])
def test_what_is_compiled_counts_as_what_it_replaces(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a third of the operations of torch's own transforms, with values and without."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from levelfield.ops.arithmetic import Operations
    from levelfield.ops.conv import fft as fft_loops

    def counted(device: str, fake: bool) -> int:
        monkeypatch.setattr(fft_loops, "COMPILED", device)
        with FakeTensorMode(allow_non_fake_inputs=True) if fake else contextlib.nullcontext(), Operations() as counter:
            u = torch.zeros(3, 16, length, requires_grad=True)
            kernel = torch.zeros(16, length, requires_grad=True)
            fft_loops.fft_conv(u, kernel).sum().backward()
        return counter.total

    ours = counted("cpu", fake=True)
    assert ours == counted("cpu", fake=False)
    assert ours == pytest.approx(counted("none", fake=False), rel=1 / 3)
