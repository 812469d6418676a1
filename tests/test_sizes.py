"""The sizes to live by: short files, short functions, typed parameters. `tests/support/count.py` prints them."""

from __future__ import annotations

import statistics

import pytest
from count import ROOT, Count, count, functions, p90


@pytest.fixture(scope="module")
def source() -> Count:
    return count(ROOT / "levelfield")


@pytest.mark.parametrize("folder", ["levelfield", "tests", "benchmarks"])
def test_no_file_is_longer_than_400_lines(folder: str) -> None:
    assert {name: lines for name, lines in count(ROOT / folder).files.items() if lines > 400} == {}


def test_no_function_is_longer_than_60_lines(source: Count) -> None:
    assert [(f.where, f.lines) for f in source.functions if f.lines > 60] == []


def test_most_functions_are_short(source: Count) -> None:
    lines = [f.lines for f in source.functions]
    assert statistics.median(lines) <= 7
    assert p90(lines) <= 20


def test_most_files_are_short(source: Count) -> None:
    lines = list(source.files.values())
    assert statistics.median(lines) <= 120
    assert p90(lines) <= 265


def test_parameters_are_typed(source: Count) -> None:
    untyped = [f.where for f in source.functions if f.typed < f.parameters]
    assert source.typed >= 0.95, untyped


def test_tests_are_at_least_two_fifths_of_the_source(source: Count) -> None:
    assert count(ROOT / "tests").lines >= 0.4 * source.lines


def test_the_counting_itself() -> None:
    text = "class A:\n    def f(self, x: int, *y, z=1):\n        return x\n"
    (found,) = functions("a.py", text)
    assert (found.lines, found.parameters, found.typed) == (2, 3, 1)
