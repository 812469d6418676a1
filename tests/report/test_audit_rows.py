"""Every number of an audit's page leads to its rows: each link is followed and compared with rows.csv, read by csv."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest
from read_page import Page, lines, stored, text
from repository import ROOT

from levelfield.report.audit import figures, page, words
from levelfield.report.audit.reading import Reading
from levelfield.report.plain_lists import PlainIndex
from levelfield.spec import Row

SPLITS = ("train", "val", "test")
FACTS = [
    *(Row(split=split, metric="examples", value=900.0) for split in SPLITS),
    *(Row(split=split, metric="steps", at="place=most", value=30.0) for split in SPLITS),
    Row(split="test", metric="leaked", value=0.12, n=900),
    Row(split="all", metric="near_duplicates", at="in=test in train", value=400.0),
    Row(split="all", metric="near_duplicates", at="in=test in test", value=0.0),
    Row(split="all", metric="shared_groups", at="in=train+test", value=3.0),
    Row(split="all", metric="contradictions", value=7.0),
    Row(split="all", metric="left_out", value=5.0),
    Row(split="all", metric="certified_range", value=16.0),
]  # fmt: skip
ERRORS = {
    "window1": (-0.9, 0.1),
    "window5": (-0.4, 0.6),
    "s4": (-0.15, 0.85),
    "unordered": (-0.8, 0.2),
    "length": (0, 1),
}


def regression() -> list[Row]:
    """An audit of numbers, whose scores are minus squared errors, and in which everything is found that can be."""
    rows = [fact | Row(model="data", protocol="none") for fact in FACTS]
    rows += [Row(model="guessing", metric="score", split="test", value=-1.0, n=900)]
    rows += [Row(model="length", metric="learnable", split="test", value=1.0, n=900)]
    for name, values in ERRORS.items():
        kind = {"s4": "free", "unordered": "disordered", "length": "rule"}.get(name, "window")
        at = f"{kind}={name.removeprefix('window')}"
        for metric, value in zip(("score", "share"), values, strict=True):
            for ending, apart in (("", 0.0), ("_low", -0.05), ("_high", 0.06)):
                rows.append(
                    Row(model=name, metric=metric + ending, split="test", at=at, value=round(value + apart, 3), n=900)
                )
    return [row | Row(task="mine", effort="minutes") for row in rows]


def given(name: str) -> list[Row]:
    return regression() if name == "numbers" else stored(ROOT / "results" / "audits" / f"{name}-minutes.csv")


@pytest.fixture(scope="module", params=["recall", "image8", "numbers"])
def audit(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """A page without figures, which no number here needs."""
    out = tmp_path_factory.mktemp("audit")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "draw", lambda _: {})
        page.build(given(request.param), out)
    return Page(out / "report.html", out / "rows.csv")


def tables(audit: Page) -> Iterator[tuple[str, Element]]:
    """Yields every row of the tables, with the section that it is in."""
    for name in ("scores", "data"):
        for table in audit.by_id[name].iter("table"):
            yield from ((name, row) for row in table.iterfind("tbody/tr"))


def exact(shown: str) -> float:
    return float(shown.replace(",", "").replace("−", "-"))


def of_line(audit: Page, line: Element) -> dict[str, str]:
    """Returns the row of the file to which a line of a list belongs: the one of the list's arm at the line's place."""
    (around,) = (each for each in audit.by_id["rows"].iter("div") if line in each.iter("tr") and each.get("id"))
    (table,) = around.iter("table")
    shown = next(each.texts for each, row in zip(lines(table), table.iterfind("tbody/tr"), strict=True) if row is line)
    value = exact(shown["Value"])
    names = {"at": shown.get("Where", "–"), "metric": shown["Metric"], "split": shown["Split"]}
    fits = [
        row
        for row in audit.rows
        if all((row[key].replace("_", " ") or "–") == name for key, name in names.items())
        and around.attrib["id"].startswith("rows-" + re.sub(r"[^\w.]+", "-", row["model"]))
        and float(row["value"]) == pytest.approx(value, rel=1e-5)
    ]
    assert len(fits) == 1
    return fits[0]


def test_every_number_of_the_tables_is_a_link_and_each_row_is_one_stop_of_the_tab_key(audit: Page) -> None:
    assert audit.lost() == []
    names = [each.get("id") for each in audit.root.iter() if each.get("id")]
    assert len(names) == len(set(names)), "no anchor is there twice"
    for _, row in tables(audit):
        numbers = [cell for cell in row if cell.get("class") == "number" and text(cell)]
        assert [len(list(cell.iter("a"))) for cell in numbers] == [1] * len(numbers) != []
        assert sum(link.get("tabindex") is None for link in row.iter("a")) == 1


def test_scores_and_shares_lead_to_the_rows_that_they_are(audit: Page) -> None:
    whole = 100 if "(%)" in text(next(audit.by_id["scores"].iter("table"))[0][0][1]) else 1
    arms = list(dict.fromkeys(row["model"] for row in audit.rows if row["metric"] == "score"))
    assert arms[0] == "guessing"
    rows = [row for name, row in tables(audit) if name == "scores"]
    assert len(rows) == len(arms)
    for row, arm in zip(rows, arms, strict=True):
        own = {each["metric"]: float(each["value"]) for each in audit.rows if each["model"] == arm}
        first, *_, last = row.iter("a")
        (table,) = audit.target(first).iter("table")
        listed = {each.texts["Metric"]: exact(each.texts["Value"]) for each in lines(table)}
        assert listed == {metric.replace("_", " "): pytest.approx(value, rel=1e-5) for metric, value in own.items()}
        assert float(text(row[1])) == pytest.approx(whole * own["score"], rel=0.006)
        if row[3] is not None and "to" in text(row[4]):
            line = of_line(audit, audit.target(last))
            assert (line["model"], line["metric"]) == (arm, "share")
            shown = [float(each) for each in (text(row[3]), *text(row[4]).split(" to "))]
            assert shown == pytest.approx([100 * own[f"share{end}"] for end in ("", "_low", "_high")], abs=0.051)
        back = next(link for link in audit.target(first).iter("a") if text(link) == "Back to the table")
        assert audit.target(back) is first


def test_a_share_says_of_which_scores_it_is_made_and_they_make_it(audit: Page) -> None:
    followed = 0
    for said in audit.by_id["rows"].iter("p"):
        if not text(said).startswith("The share is"):
            continue
        own, floor, best, *_ = (float(of_line(audit, audit.target(link))["value"]) for link in said)
        (table,) = next(each for each in audit.by_id["rows"].iter("div") if said in each).iter("table")
        share = next(exact(each.texts["Value"]) for each in lines(table) if each.texts["Metric"] == "share")
        assert (own - floor) / (best - floor) == pytest.approx(share, abs=0.011)
        assert re.match(r"The share is \((\S+) - (\S+)\) / \((\S+) - \2\), where \2 is guessing and \3 ", text(said))
        followed += 1
    assert followed >= 4


def test_facts_lead_to_their_rows(audit: Page) -> None:
    for name, row in tables(audit):
        if name != "data":
            continue
        target = audit.target(next(row.iter("a")))
        if text(row[0]) in SPLITS:
            here = {
                (each["metric"], each["at"])
                for each in audit.rows
                if each["model"] == "data" and each["split"] == text(row[0])
            }
            shown = [each.texts for each in lines(next(target.iter("table")))]
            assert {(each["Metric"].replace(" ", "_"), each.get("Where", "–").strip("–")) for each in shown} == here
            assert next(each["Value"] for each in shown if each["Metric"] == "examples") == text(row[1])
        else:
            found = of_line(audit, target)
            assert float(found["value"]) == exact(text(row[1]))
            assert found["at"].partition("=")[2] in text(row[0])


def test_numbers_of_the_verdict_lead_to_the_lines_of_their_rows(audit: Page) -> None:
    links = list(next(audit.root.iter("header")).iter("a"))
    assert len(links) >= 4
    for link in links:
        row = of_line(audit, audit.target(link))
        value = float(row["value"])
        if row["metric"] == "near_duplicates":
            value /= next(
                float(each["value"]) for each in audit.rows if (each["metric"], each["split"]) == ("examples", "test")
            )
        shown = text(link).split(" (")[0]
        if row["metric"] in ("share", "score", "leaked", "near_duplicates") and "steps" not in shown:
            told = float(shown.removesuffix(" %")) / (100 if "%" in shown else 1)
            window = re.fullmatch(r"window=(\d+)", row["at"])
            assert told == pytest.approx(value, abs=0.0051) or (
                window and shown in (window[1], f"more than {window[1]}")
            )
        else:
            assert exact(shown) == value


def test_what_is_told_elsewhere_has_no_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "draw", lambda _: {})
    rows = regression()
    page.build(rows, tmp_path)
    for name in ("report.html", "badge.svg", "datasheet.md"):
        assert not re.search("[\ue000-\uf8ff]", (tmp_path / name).read_text()), name
    assert words.paragraph(Reading.of(rows)).isprintable()
    assert "anchor" not in (tmp_path / "rows.csv").read_text()


def test_marks_of_figures_lead_to_the_lines_of_their_scores() -> None:
    rows = PlainIndex.of([(page.place(row), row) for row in regression()]).rows
    drawn = figures.draw(Reading.of(rows))
    scores = {str(row.get("anchor")): row.get("model") for row in rows if row.get("metric") == "score" and "at" in row}
    found = {name: re.findall(r'report\.html#([^"]*)"', figure.svg) for name, figure in drawn.items()}
    assert [scores[anchor] for anchor in found["windows"]] == ["window1", "window5", "s4", "unordered"]
    assert [scores[anchor] for anchor in found["rules"]] == ["length"]
