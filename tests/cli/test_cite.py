"""`levelfield cite`: every paper that is named has its entry, and a study's entries are those of what it uses."""

from __future__ import annotations

import re

import pytest
from repository import ROOT

from levelfield import published
from levelfield.cli import cite_command
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
    assert "beltagy2020" not in keys and "% " not in shown
    found = dict(zip(keys, shown.strip().split("\n\n"), strict=True))
    assert "note = {Nangia and Bowman 2018, ListOps" in found["data_listops"]
    assert "url = {https://arxiv.org/abs/1804.06028}" in found["data_listops"]
    assert "url = {https://ai.stanford.edu/~amaas/data/sentiment/}" in found["data_text"]
    assert {f"data_{task}" for task in ("pathfinder", "retrieval", "image")} <= set(keys)
    for entry in found.values():
        assert entry.count("{") == entry.count("}") and entry.endswith("\n}")


def test_levelfields_own_entry_agrees_with_its_citation_file(capsys: pytest.CaptureFixture[str]) -> None:
    main(["cite", "demo"])
    own = dict(re.findall(r"  (\w+) = \{+(.*?)\}+,\n", capsys.readouterr().out.split("\n\n")[0]))
    cited = (ROOT / "CITATION.cff").read_text()
    for name in ("title", "version", "license", "url"):
        (text,) = re.findall(rf'^{name}: "?(.*?)"?$', cited, re.MULTILINE)
        assert own[name] == text, name
    assert f"  - name: {own['author']}\n" in cited and re.fullmatch(r"20\d\d", own["year"])


def test_what_tex_takes_for_commands_is_escaped() -> None:
    assert cite_command._entry("misc", "a", {"note": cite_command._plain("50 % of a_b & {c}"), "url": ""}) == (
        "@misc{a,\n  note = {50 \\% of a\\_b \\& \\{c\\}},\n}"
    )
