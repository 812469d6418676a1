"""Reduces the sampling rate of signals without aliasing.

    decimate(clips, 8)            # (N, 16000) -> (N, 2000): the band below 1 kHz of clips at 16 kHz, at 2 kHz

A linear-phase low-pass filter, a sinc under a Kaiser window (Kaiser 1974), is applied by FFT, and every `factor`-th
sample is kept. A signal counts as zero beyond its ends.
"""

from __future__ import annotations

import numpy as np

PERIODS = 32  # of the sinc on each side, so that the filter has 2 * 32 * factor + 1 taps
BETA = 8.0  # of the window: attenuates by at least 80 dB above the new Nyquist frequency
PASSED = 0.92  # cutoff as a share of the new Nyquist frequency; the amplitude is halved there


def low_pass(factor: int) -> np.ndarray:
    """Returns the taps of the filter, (2 * PERIODS * factor + 1,), which are symmetric and sum to 1."""
    steps = np.arange(-PERIODS * factor, PERIODS * factor + 1)
    taps = np.sinc(PASSED * steps / factor) * np.kaiser(len(steps), BETA)
    return taps / taps.sum()


def decimate(x: np.ndarray, factor: int) -> np.ndarray:
    """Reduces the sampling rate: (N, T) -> (N, ceil(T / factor)) float64. Sample k is at the time of x's k * factor."""
    if factor == 1:
        return x.astype(np.float64)
    taps, length = low_pass(factor), x.shape[1]
    size = length + len(taps) - 1
    full = np.fft.irfft(np.fft.rfft(x, size) * np.fft.rfft(taps, size), size)
    delay = len(taps) // 2
    return full[:, delay : delay + length : factor]
