"""The Python on the pages about mixers runs, from top to bottom, as a reader would run it."""

from __future__ import annotations

import ast
import csv
import dataclasses
import re
import sys
from functools import cache
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import pytest
import torch
from repository import ROOT, script

from levelfield.contract import check
from levelfield.mixers import NAMES, classes
from levelfield.ops.kernel_cases import CASES

DOCS = ROOT / "docs"


def _blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["mixers.md", "add-a-mixer.md"])
def test_the_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that begins with a file's name is that file; the others share one scope."""
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    blocks = _blocks(page)
    assert len(blocks) >= 2
    for block in blocks:
        if name := re.match(r"# (\S+\.py)\n", block):
            path = tmp_path / name[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block)
        else:
            exec(compile(block, page, "exec"), scope)


def test_the_mixer_for_everybody_keeps_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = [block for block in _blocks("add-a-mixer.md") if block.startswith("# levelfield/mixers/")]
    module = ModuleType("shift")
    monkeypatch.setitem(sys.modules, "shift", module)
    exec(source, vars(module))
    for config in module.EXAMPLES:
        for causal in (False, True):
            check(config, 8, causal)
        net = config.build(2, causal=True, layer=0, generator=torch.Generator().manual_seed(0))
        x = torch.eye(10)[:, :2].unsqueeze(0)
        assert torch.allclose(net(x, None)[0, config.by], net.out(x[0, 0]))


def test_the_gallery_is_what_the_command_makes() -> None:
    page = (DOCS / "mixers.md").read_text()
    assert script("gallery").filled(page) == page, "run python docs/scripts/gallery.py"


def test_every_mixer_has_a_section_with_its_equation_cost_settings_and_paper() -> None:
    page = (DOCS / "mixers.md").read_text()
    sections = dict(re.findall(r"^### (\w+)\n(.*?)<!-- end -->", page, re.MULTILINE | re.DOTALL))
    assert list(sections) == [config.label for config in classes()]
    for config in classes():
        text = sections[config.label]
        assert [field.name for field in dataclasses.fields(config) if f"`{field.name}=" not in text] == []
        assert f"- {config.paper}: " in text
        equation = next(part for part in text.split("\n\n") if part.startswith("    "))
        assert re.search(r"[\w)] = \S", equation), f"{config.label} has no equation in its file's docstring"
        assert f"- complexity: `{config.complexity}`" in text and "T" in config.complexity
        assert re.search(r"^- carries: .", text, re.MULTILINE)


def test_notes_are_kept_a_new_mixer_gets_a_section_and_a_lost_one_is_missed() -> None:
    gallery, page = script("gallery"), (DOCS / "mixers.md").read_text()
    start = page.index("<!-- mixer: conv -->")
    end = page.index("<!-- mixer: ", start + 1)
    without = page[:start] + page[end:]
    assert "### conv" not in without and "### conv" in gallery.filled(without)
    noted = page.replace("<!-- mixer: gmlp -->", "A note by hand.\n\n<!-- mixer: gmlp -->")
    assert gallery.filled(noted) == noted
    with pytest.raises(ValueError, match="notes on shift"):
        gallery.filled(page.replace("<!-- mixer: conv -->", "<!-- mixer: shift -->"))


@pytest.mark.parametrize("columns", ["group", "mixer"])
def test_speeds_and_parity_are_looked_up(columns: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gallery = script("gallery")
    assert gallery.parity("no such mixer") == [
        "with the paper's equations, written out in its test; with no other implementation"
    ]
    assert gallery.parity("lru") == [
        "`LRU`, NicolasZucchet/minimal-LRU, commit bbd71b1, JAX 0.10 (the paper's code is not public): 5e-15"
    ]
    assert gallery.parity("s4")[-1].endswith('; only with `form="diagonal"`, `init="legs"`: 9e-7 relative')
    rows = ["s4,1024,ours,2.345", "s4,4096,theirs,9", "s4,4096,ours,", "s5,4096,ours,7", "s4,16384,ours,12.0"]
    path = tmp_path / "speed.csv"
    path.write_text("\n".join([f"{columns},length,side,us_per_token", *rows]))
    monkeypatch.setattr(gallery, "SPEED", path)
    assert gallery.speed("s4").startswith("2.35 at T = 1,024, 12 at T = 16,384 (")
    assert gallery.speed("conv") == "not measured"


def test_what_was_measured_is_what_the_rows_say() -> None:
    """Medians are worked out anew from the files, and every mixer has its scores or says that there are none."""
    found = script("gallery").measured.scores(ROOT / "results")
    needles = _kept("huang2024_small-overnight", task="needle", at="length=512", metric="accuracy")
    kernels = _kept("miralles2025_small-overnight", task="image8", at="", metric="accuracy", split="test")
    for kept, place, label, model in (
        (needles, "512 steps", "alibi", "alibi"),
        (needles, "512 steps", "attention", "no-positions"),
        (kernels, "", "conv", "conv61"),
    ):
        (score,) = [s for s in found if (s.model, s.column.place) == (model, place) and s.runs <= kept[model].keys()]
        assert score.mixers == (label,) and score.value == pytest.approx(100 * median(kept[model].values()))
    text, shown = (DOCS / "mixers.md").read_text(), {label for score in found for label in score.mixers}
    assert text.count("- measured here: nothing yet") == len({mixer.label for mixer in classes()} - shown) > 0


def _kept(folder: str, **wanted: str) -> dict[str, dict[str, float]]:
    """Model -> run -> value, of the rows that hold these."""
    kept: dict[str, dict[str, float]] = {}
    for row in csv.DictReader((ROOT / "results" / folder / "rows.csv").read_text().splitlines()):
        if row["run"] and all(row[key] == value for key, value in wanted.items()):
            kept.setdefault(row["model"], {})[row["run"]] = float(row["value"])
    return kept


def test_good_and_bad_are_told_only_where_somebody_has_learnt_the_task() -> None:
    measured = script("gallery").measured

    def score(task: str, label: str, value: float, model: str = "") -> Any:
        column = measured.Column("study", "minutes", "scratch", task)
        run = frozenset({f"{task}-{label}-{model}"})
        return measured.Score(column, (label,), model or label, value, "accuracy", "percent", 50.0, run, old=False)

    found = [score("near", "gru", 98.5), score("near", "s4", 100), score("far", "gru", 80, "small")]
    found += [
        score("far", "gru", 85, "large"),
        score("far", "s4", 99),
        score("nobody", "gru", 51),
        score("nobody", "s4", 50),
    ]
    assert measured.facts("gru", found) == [
        "among the best here: `near` in `study`",
        "far from the best here: `far` in `study`",
        "`study` at `minutes`, `scratch`: `near` 98.5 %, guessing 50.0 %, the most is 100.0 % of s4; `far` 80.0 % "
        "(`small`) to 85.0 % (`large`), guessing 50.0 %, the most is 99.0 % of s4; `nobody` 51.0 %, guessing 50.0 %",
    ]
    assert measured.facts("kda", found) == [
        "measured here: nothing yet; `levelfield compare kda` measures it beside attention, S4 and conv"
    ]


@pytest.mark.parametrize("twin", sorted({case.twin.__name__ for case in CASES}))
def test_kernels_are_listed_with_every_mixer_whose_code_reaches_their_operator(twin: str) -> None:
    """Names are followed through the sources, whatever the settings under which a mixer comes there."""
    cases = [case for case in CASES if case.twin.__name__ == twin]
    place = (cases[0].twin.__module__, twin.removeprefix("naive_"))
    reaching = {name for name in NAMES if place in _reached(f"levelfield.mixers.{name}")}
    assert {word for case in cases for word in re.findall(r"\w+", case.serves) if word in NAMES} == reaching
    table = re.findall(r"^\| `(\w+)` \| (.*?) \|", (DOCS / "kernels.md").read_text(), re.MULTILINE)
    told = " ".join(mixers for operator, mixers in table if operator in {case.operator for case in cases})
    assert {word for word in re.findall(r"\w+", told) if word in NAMES} == reaching


def _reached(module: str) -> set[tuple[str, str]]:
    """All that a module's code names, as pairs of module and name: what is imported, and what that names in turn."""
    found: set[tuple[str, str]] = set()
    left = [(module, name) for name in _named(module)]
    while left:
        if (place := left.pop()) not in found:
            found.add(place)
            ours = place[0].startswith(("levelfield.mixers.", "levelfield.ops."))
            left += _named(place[0]).get(place[1], ()) if ours else ()
    return found


@cache
def _named(module: str) -> dict[str, list[tuple[str, str]]]:
    """For each name that a module defines or imports, what stands behind it: modules and names."""
    body = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text()).body
    behind = {
        each.asname or each.name: [(node.module or "", each.name)]
        for node in body
        if isinstance(node, ast.ImportFrom)
        for each in node.names
    }
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign):
            used = [(module, each.id) for each in ast.walk(node) if isinstance(each, ast.Name)]
            stored = [
                each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            ]
            for name in [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else stored:
                behind.setdefault(name, []).extend(used)
    return behind
