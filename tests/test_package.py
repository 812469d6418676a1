"""What is packaged is whole: the source distribution has what tests and pages read, and metadata agree."""

from __future__ import annotations

import re
import subprocess
import tomllib

import pytest
from repository import ROOT

from levelfield._version import __version__

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ADDED_BY_ITSELF = {"pyproject.toml", "LICENSE", ".gitignore"}  # hatchling takes these unasked


def test_the_source_distribution_takes_everything_that_is_tracked() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    tops = {name.partition("/")[0] for name in listed.stdout.splitlines()}
    taken = {name.removeprefix("/") for name in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]}
    assert tops - taken == ADDED_BY_ITSELF
    assert sorted(name for name in taken if not (ROOT / name).exists()) == []


def test_versions_agree() -> None:
    assert PROJECT["project"]["version"] == __version__
    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_types_are_announced_and_interpreters_are_those_of_ci() -> None:
    assert (ROOT / "levelfield" / "py.typed").exists()
    named = [re.search(r":: (3\.\d+)$", each) for each in PROJECT["project"]["classifiers"]]
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    matrix = re.search(r"python: \[(.*)\]", workflow)
    assert matrix is not None and re.findall(r"3\.\d+", matrix[1]) == [each[1] for each in named if each]


def test_links_of_the_long_description_lead_out_of_the_package() -> None:
    """The hook's rule, on the README; hatchling is not there when tests run."""
    source = (ROOT / ".ci" / "long_description.py").read_text()
    rule = re.search(r'LINK = re\.compile\(r"(.*)"\)', source)
    assert rule is not None
    left = re.sub(rule[1], "](https://x/)", (ROOT / "README.md").read_text())
    assert re.findall(r"\]\((?!https?:|#)", left) == []
    assert "](https://x/)" in left
