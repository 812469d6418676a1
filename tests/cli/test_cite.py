"""`levelfield cite`: every paper that is named has its entry, and a study's entries are those of what it uses."""

from __future__ import annotations

import re

import pytest

from levelfield import published
from levelfield.cli.app import main
from levelfield.mixers import classes


def test_every_mixers_paper_is_known() -> None:
    assert sorted({mixer.paper for mixer in classes() if mixer.paper} - published.library().keys()) == []


def test_entries_are_whole() -> None:
    for key, paper in published.library().items():
        entry = paper.bibtex
        assert entry.count("{") == entry.count("}") and re.match(rf"@(misc|inproceedings){{{key},\n", entry)
        assert paper.url.startswith("https://") and str(paper.year) in key, key
        if found := re.search(r"arxiv\.org/abs/(\d\d)(\d\d)\.\d{4,5}$", paper.url):
            assert 0 <= paper.year - 2000 - int(found[1]) <= 1, key


def test_a_study_cites_what_it_uses(capsys: pytest.CaptureFixture[str]) -> None:
    main(["cite", "amos2025_table2"])
    shown = capsys.readouterr().out
    keys = re.findall(r"^@\w+\{(\w+),", shown, re.MULTILINE)
    assert len(keys) == len(set(keys)) and {"levelfield", "amos2025", "vaswani2017", "gu2022"} <= set(keys)
    assert "beltagy2020" not in keys and "% data of listops: Nangia and Bowman 2018" in shown
