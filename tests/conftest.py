"""What all tests share: one thread each, draws and a process that do not depend on the tests before, real data."""

from __future__ import annotations

import csv
import gc
import os
import signal
import sys
import warnings
from collections.abc import Generator, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

# Before torch is imported, and whatever the environment says: the last digits of sums depend on the number of threads,
# and several test processes share the cores.
os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
os.environ.setdefault("MPLBACKEND", "Agg")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Garbage is not looked for while tests are found, and what was found, which stays, is not looked through later.

    Both took time, a third of the first where byte code is new; and tests make few cycles, so the search through all
    that is old comes more rarely, too.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, 50)


def pytest_collection_finish() -> None:
    """Figures have few dots, whose coding takes much of the time of tests that build a report."""
    if style := sys.modules.get("levelfield.report.style"):
        vars(style)["DOTS"] = 40


def pytest_unconfigure() -> None:
    gc.unfreeze()  # or extensions complain at the end of what was never freed


# All but that of pytest-timeout, which holds until a test fails.
SIGNALS = {f"signal {number}": number for number in signal.valid_signals() - {getattr(signal, "SIGALRM", None)}}
handler_of = import_module("_signal").getsignal  # what `signal` wraps in a search for a name, which takes most of it


def of_process() -> dict[str, Any]:
    """What a test could leave changed for those after it in the same process. Whoever has torch has it imported."""
    found: dict[str, Any] = {name: handler_of(number) for name, number in SIGNALS.items()}
    found |= {
        "folder": Path.cwd(),
        "limit of csv": csv.field_size_limit(),
        "sys.path": [path for path in sys.path if not path.endswith(VENDORED)],
    }
    found |= {"format of warnings": warnings.formatwarning}
    found |= {f"variable {name}": value for name, value in os.environ.items() if not name.startswith(OF_OTHERS)}
    if (torch := sys.modules.get("torch")) is not None:
        found |= {
            "torch's dtype": torch.get_default_dtype(),
            "torch's device": torch.get_default_device(),
            "torch's threads": torch.get_num_threads(),
            "torch's gradients": torch.is_grad_enabled(),
            "torch's determinism": torch.are_deterministic_algorithms_enabled(),
            "torch's precision of products": torch.get_float32_matmul_precision(),
        }
    return found


OF_OTHERS = ("PYTEST_", "TORCHINDUCTOR_", "_TORCHINDUCTOR_")  # variables that pytest and torch set for themselves
VENDORED = "_vendor"  # the end of a folder that setuptools adds to the path, which torch's compiler imports


@pytest.fixture(autouse=True)
def leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test changes of its process is as before at its end; else that test fails, and not one after it.

    Packages of others, beside which only tests marked `peers` run, change what they like.
    """
    before = of_process()
    yield
    if request.node.get_closest_marker("peers"):
        return
    after = of_process()
    changed = {name: (was, after.get(name)) for name, was in before.items() if after.get(name) != was}
    changed |= {name: (None, now) for name, now in after.items() if name not in before and name.startswith("variable")}
    assert changed == {}, "what was before the test, and after it"


@pytest.fixture(autouse=True)
def draws() -> Iterator[None]:
    """What a test draws from torch's own generator is the same in any order of tests."""
    if (torch := sys.modules.get("torch")) is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        yield


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
