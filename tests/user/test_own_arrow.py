"""Times of an Arrow file that Python has no value for are texts, and stop nobody from reading its other columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from levelfield import OwnData
from levelfield.spec import Label, UserError


@pytest.fixture
def pa() -> Any:
    return pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'levelfield[data]'")


def write(pa: Any, path: Path, seen: Any) -> str:
    """A text, a class and the column `seen` for each of 30 rows."""
    table = pa.table({"x": [f"text {n}" for n in range(30)], "y": [n % 2 for n in range(30)], "seen": seen})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    return str(path)


@pytest.mark.parametrize(("unit", "first"), [("ns", 1), ("s", 5 * 10**12)])
def test_times_too_fine_or_too_late_for_python_are_texts(tmp_path: Path, pa: Any, unit: str, first: int) -> None:
    path = write(pa, tmp_path / "a.arrow", pa.array([first + n % 3 for n in range(30)], pa.timestamp(unit)))
    assert OwnData(path, text="x", label="y").output == Label(2)
    of_times = OwnData(path, text="x", label="seen")
    assert of_times.output == Label(3) and len(set(of_times.classes)) == 3


def test_such_times_within_lists_are_named_by_their_column(tmp_path: Path, pa: Any) -> None:
    path = write(pa, tmp_path / "a.arrow", pa.array([[1]] * 30, pa.list_(pa.timestamp("ns"))))
    with pytest.raises(UserError, match=r"cells in the column seen that Python has no value for .*: write them in"):
        OwnData(path, text="x", label="y").build(None)
