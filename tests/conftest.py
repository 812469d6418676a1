"""What all tests share: one thread each, and where real data lies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; several test processes share the cores
os.environ.setdefault("MPLBACKEND", "Agg")


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of real data, laid out one subfolder per data set; skips the test where there is none."""
    folder = os.environ.get("LEVELFIELD_TEST_DATA")
    if not folder:
        pytest.skip("set LEVELFIELD_TEST_DATA to the folder of real test data to run this test")
    return Path(folder)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are composed and not drawn, which takes most of the time of a small report: for tests that see none."""
    from levelfield.report import style

    monkeypatch.setattr(style, "render", lambda figure, name: ("<svg></svg>", b""))
