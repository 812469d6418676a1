"""Fewer samples of a signal without aliasing: a linear-phase low-pass filter, then every so many-th sample.

    decimate(clips, 8)            # (N, 16000) -> (N, 2000): what lies below 1 kHz of a 16 kHz clip, at 2 kHz

The filter is a sinc under a Kaiser window (Kaiser 1974), applied by FFT; beyond its ends a signal counts as zero.
"""

from __future__ import annotations

import numpy as np

PERIODS = 32  # zero crossings of the sinc on each side: the filter has 2 * 32 * factor + 1 taps
BETA = 8.0  # of the window: at least 80 dB down beyond the new Nyquist frequency
PASSED = 0.92  # the cut-off, as a share of the new Nyquist frequency; half of the amplitude is left there


def low_pass(factor: int) -> np.ndarray:
    """Taps of the filter, (2 * PERIODS * factor + 1,), summing to 1 and symmetric."""
    steps = np.arange(-PERIODS * factor, PERIODS * factor + 1)
    taps = np.sinc(PASSED * steps / factor) * np.kaiser(len(steps), BETA)
    return taps / taps.sum()


def decimate(x: np.ndarray, factor: int) -> np.ndarray:
    """x: (N, T) -> (N, ceil(T / factor)) float64; sample k of the result belongs to sample k * factor of x."""
    if factor == 1:
        return x.astype(np.float64)
    taps, length = low_pass(factor), x.shape[1]
    size = length + len(taps) - 1
    full = np.fft.irfft(np.fft.rfft(x, size) * np.fft.rfft(taps, size), size)
    delay = len(taps) // 2
    return full[:, delay : delay + length : factor]
