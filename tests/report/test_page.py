"""How a page reads: colours that are told apart, rows with headers, short heads, code as code."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import fixtures_rows as fixtures

from levelfield import report
from levelfield.report import style
from levelfield.report.tables import prose
from levelfield.spec import ReportView

LEAST_APART = 18  # CIE 1976 distance between the colours of any two models, in light and in dark


def lab(colour: str) -> tuple[float, float, float]:
    """CIE L*a*b* of "#rrggbb" under D65."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
              for c in (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))]  # fmt: skip
    rows = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    xyz = [sum(w * c for w, c in zip(row, linear, strict=True)) for row in rows]
    x, y, z = (v ** (1 / 3) if v > 216 / 24389 else (24389 / 27 * v + 16) / 116
               for v in (xyz[0] / 0.9505, xyz[1], xyz[2] / 1.0888))  # fmt: skip
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def test_colours_of_models_are_told_apart_in_light_and_in_dark():
    light = dict.fromkeys([*style.COLOURS.values(), *style.SPARE])
    css = (Path(report.__file__).parent / "page.css").read_text()
    dark = {f"#{name}": shade for name, shade in re.findall(r"--c([0-9a-f]{6}): (#[0-9a-f]{6})", css)}
    assert dark.keys() == light.keys()
    for shades in (list(light), list(dark.values())):
        nearest = min((math.dist(lab(a), lab(b)), a, b) for i, a in enumerate(shades) for b in shades[:i])
        assert nearest[0] >= LEAST_APART, nearest


def test_rows_have_headers_and_backticks_are_code(tmp_path: Path):
    study, results = fixtures.gap()
    report.build(replace(study, views=(ReportView("gap", "Gap"),)), "minutes", results, tmp_path)
    text = (tmp_path / "report.html").read_text()
    assert "<th scope=row>attention</th>" in text
    assert prose("as `a < b` says, `") == "as <code>a &lt; b</code> says, `"
    table = text[text.index("<table") : text.index("</table>")]
    heads = re.findall(r"<th scope=.col.[^>]*>([^<]*)<", table)
    assert heads[:3] == ["Model", "Protocol", "Median\u00a0%"] and max(map(len, heads)) <= 16


def test_unequal_parameters_are_said_once_with_their_ratio(tmp_path: Path):
    study, results = fixtures.gap()
    sentence = "Parameter counts are not equal: on listops, conv has 409,162, 3.33 times as many as s4 with 122,890."
    results = replace(results, unbegun=("recall-conv-scratch",))
    apart = "Asked for by earlier commands and not begun, so not counted here: recall-conv-scratch."
    assert report.remarks(results)[1:] == [sentence, apart]
    report.build(study, "minutes", results, tmp_path)
    text = re.sub("<[^>]*>", "", (tmp_path / "report.html").read_text())
    assert (text.count(sentence), text.count(apart)) == (1, 1)
    near = {
        run: {**ledger, "parameters": 100_000 + 9_000 * (i % 2), "flops": 1e9, "steps": 50}
        for i, (run, ledger) in enumerate(results.ledgers.items())
    }
    assert report.remarks(replace(results, ledgers=near))[1:] == [apart], "a tenth is as near as widths come"


def test_unequal_flops_of_a_step_are_said_where_parameters_are_equal(tmp_path: Path) -> None:
    """Per step, as arms that stop by themselves take more or fewer; parameters that differ are told by themselves."""
    study, results = fixtures.gap()

    def told(dearer: float, parameters: int = 100_000, steps: int = 100) -> list[str]:
        nonlocal results
        ledgers = {
            run: {**ledger, "parameters": 100_000, "steps": 50, "flops": 1e9}
            | ({"parameters": parameters, "steps": steps, "flops": dearer} if "listops-conv-scratch" in run else {})
            for run, ledger in results.ledgers.items()
        }
        results = replace(results, ledgers=ledgers)
        return [said for said in report.remarks(results) if said.startswith("Compute is not equal")]

    assert told(5.8e9) == told(24e9, parameters=120_000) == []
    assert told(1e9, steps=4) == [], "as many in all, in fewer steps"
    (said,) = told(24e9, parameters=105_000)
    assert said == (
        "Compute is not equal at equal parameters: on listops (scratch), a step of conv takes 240 MFLOP, 12 times as "
        "many as one of attention with 20.0 MFLOP."
    )
    report.build(study, "minutes", results, tmp_path)
    assert said in re.sub("<[^>]*>", "", (tmp_path / "report.html").read_text().partition("</header>")[0])


def test_an_arm_that_diverged_is_named_with_the_step(tmp_path: Path) -> None:
    """On the terminal too, where its score would read like any other."""
    study, results = fixtures.gap()
    (run,) = (
        row.get("run", "") for row in results.rows if row.get("status") == "diverged" and row.get("split") == "test"
    )
    assert report.remarks(results)[0] == "s4 gave outputs that are NaN or infinite in 1 of 3 seeds of image (scratch)."
    budget = results.specs[run]["protocol"]["phases"][0]["recipe"]["budget"]
    assert budget["unit"] == "steps"
    stopped = {**results.ledgers[run], "phases": [{"steps": 3, "stopped": "diverged"}]}
    said = report.remarks(replace(results, ledgers={**results.ledgers, run: stopped}))[0]
    where = f"s4 diverged at step 3 of {budget['value']:,} in 1 of 3 seeds of image (scratch)"
    assert (
        said == f"{where}: its loss or its weights were NaN or infinite, and its score is of the weights kept before."
    )
    report.build(study, "minutes", replace(results, ledgers={**results.ledgers, run: stopped}), tmp_path)
    head = (tmp_path / "report.html").read_text().partition("</header>")[0]
    assert said in re.sub("<[^>]*>", "", head), "beside the verdict, not in the table alone"
