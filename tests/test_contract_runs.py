"""`levelfield check` calls a fault whatever `compare` refuses to train, and says of each failure what may mend it."""

from __future__ import annotations

from pathlib import Path

import pytest

from levelfield.cli.app import main
from levelfield.contract import check, findings
from levelfield.mixers.gmlp import GMLP
from levelfield.spec.errors import LINE, format_error

pytestmark = pytest.mark.usefixtures("undrawn")

MIXERS = """
import torch
from torch import nn

class Plain(nn.Linear):
    def __init__(self, width):
        super().__init__(width, width)

class Tires(Plain):
    "Fails at its fifth call in training."
    calls = 0

    def forward(self, x):
        self.calls += self.training
        if self.calls > 4:
            raise RuntimeError("boom")
        return super().forward(x)

class Table(Plain):
    "Knows the positions of 64 steps."

    def __init__(self, width):
        super().__init__(width)
        self.positions = nn.Parameter(torch.zeros(64, width))

    def forward(self, x):
        return super().forward(x + self.positions[: x.shape[1]])

class Declared(Table):
    max_length = 64

class Short(Plain):
    def forward(self, x):
        if x.shape[1] > 100:
            raise RuntimeError("boom")
        return super().forward(x)

class Middling(Plain):
    "Takes what comparisons have, and not what is asked in bfloat16."

    def forward(self, x):
        if x.shape[1] > 400:
            raise RuntimeError("boom")
        return super().forward(x)

class InFloat32(Plain):
    def forward(self, x):
        if torch.is_autocast_enabled("cpu"):
            raise RuntimeError("boom")
        return super().forward(x)

class Wrong(Plain):
    def forward(self, x):
        return super().forward(x, size=3)

class Lines(Plain):
    def __init__(self, width):
        raise ValueError("one\\n  two\\nthree " + "and more " * 100)
"""
ADVICE = "declare the longest as `max_length` in its class"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MIXERS)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "rule", "hinted"),
    [
        ("Tires", findings.TRAINS, False),
        ("Table", findings.AS_ONE, True),
        ("Short", findings.AS_ONE, True),
        ("Middling", findings.RUNS, True),
        ("InFloat32", findings.RUNS, False),
        ("Wrong", findings.FINITE, False),
    ],
)
def test_what_fails_to_run_is_a_fault(
    here: Path, capsys: pytest.CaptureFixture[str], name: str, rule: str, hinted: bool
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["check", f"mine.py:{name}", "--width", "8"])
    shown = capsys.readouterr().out
    assert stop.value.code == 1 and shown.count("FAULT  ") == 1 and f"  FAULT  {rule}: {name.lower()} fails" in shown
    assert (ADVICE in shown) == hinted and "note " not in shown


@pytest.mark.parametrize("name", ["Tires", "Table", "Short"])
def test_what_a_comparison_refuses_is_what_a_check_calls_a_fault(
    here: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["compare", f"mine.py:{name}"])
    assert stop.value.code == 2 and f"{name.lower()} fails on an input" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["check", f"mine.py:{name}"])


@pytest.mark.parametrize("name", ["Plain", "Declared"])
def test_what_runs_holds(here: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    main(["check", f"mine.py:{name}", "--width", "8"])
    assert capsys.readouterr().out.endswith("All of it holds.\n")


def test_rounding_over_many_steps_is_no_sight_of_the_future() -> None:
    check(GMLP(), 32, causal=True, lengths=(256,))  # in float32 it is off by more than the tolerance


def test_the_lines_of_an_exception_are_one(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", "mine.py:Lines"])
    shown = capsys.readouterr().out
    assert "Lines(width=32) fails: ValueError: one two three and more " in shown and " [...]\n" in shown
    assert format_error(ValueError("word " * 100)) == f"ValueError: {'word ' * 99}word", "one line stays whole"
    assert len(format_error(ValueError("word\n" * 100))) <= LINE + len("ValueError:  [...]")
    assert format_error(ValueError(" \n")) == "ValueError"


def test_what_a_class_of_a_module_lacks_is_written_after_the_colon(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["check", "torch.nn:Conv1d"])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and "write Conv1d(out_channels=..., kernel_size=...) after the colon." in said
