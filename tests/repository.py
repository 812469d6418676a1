"""Paths of the repository, for tests that read its files."""

from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
