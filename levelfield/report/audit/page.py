"""Writes an audit: the page, its rows, the figures, the badge and the paragraph for a datasheet, from rows alone.

build(rows, Path("report/audit-listops-minutes"))     # report.html, rows.csv, badge.svg, datasheet.md, figures
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import NamedTuple

from levelfield.report.audit import words
from levelfield.report.audit.figures import draw, order_words
from levelfield.report.audit.reading import GUESSING, Number, Reading
from levelfield.report.audit.shares import RULE, WINDOW
from levelfield.report.audit.terms import rule_words
from levelfield.report.links import back, plain
from levelfield.report.page import document, script
from levelfield.report.plain_lists import ListLine, PlainIndex, PlainList, section
from levelfield.report.plots import Figure
from levelfield.report.style import inline
from levelfield.report.tables import Column, Link, Table, prose, to_csv
from levelfield.report.write import write
from levelfield.spec import SPLITS, Row

FIGURES = {
    "windows": (
        "How local it is",
        "Each point is a model whose layers together see so many steps; the band is its 95 % interval. Lines are "
        "models that see everything, dashed where they were trained and tested on steps whose order was destroyed.",
    ),
    "rules": (
        "What needs no sequence",
        "Naive Bayes or ridge regression, chosen on validation, on what is named at the left; where answers stand at "
        "steps, the label that is commonest in training given that. Lines are 95 % intervals over test examples.",
    ),
}
LONG = ' class="long"'  # of a heading
METHOD = (
    "Guessing is the rule that always answers the commonest label, or the set of the commonest ones where an example "
    "may have several, or chance where that is higher; of numbers, the mean of training. Numbers are divided by their "
    "standard deviation in training, and so are errors. The reference is the arm, model or rule, that is best on "
    "validation; a share is (score - guessing) / (reference - guessing) on the test examples. Intervals of scores are "
    "Wilson's, or of the logarithm of squared errors, with Student's t over groups, and those of shares the "
    "bootstrap's over test examples, the same for all arms; both widened by what seeds differ. Of fewer than some "
    "twenty groups, and where few groups or errors are unlike all others, they are too narrow. Whether anything is "
    "learnable is decided first, at 1 %, on at least 100 test examples, of 20 groups or more; without it there are no "
    "shares. A share is above 100 % where an arm was better on test than the reference, which was better on validation."
)
READING = (
    "A number in a table leads to its list here, one in a sentence to its line there. A line is a row of the file, in "
    "which shares are fractions, and so are accuracies; what is called low and high are the ends of their 95 % "
    "intervals. A score is a mean over seeds and test examples; validation says which arm is the reference."
)


def build(rows: Sequence[Row], to: Path) -> list[Path]:
    """Writes everything into the folder `to`, and returns the files, the page first."""
    found, index = Reading.of(rows), PlainIndex.of([(place(row), row) for row in rows])
    figures = draw(Reading.of(index.rows))
    texts = {
        "report.html": page(index, figures),
        "rows.csv": to_csv([dict(row) for row in rows]),
        "badge.svg": words.badge_svg(found),
        "datasheet.md": words.paragraph(found) + "\n",
    }
    return write(to, texts, {f"figures/{name}": figure for name, figure in figures.items()}, ("figures/*.*",))


def place(row: Row) -> ListLine:
    """Returns the list and the line of a row: a list for each arm, and one for the facts about each split."""
    metric, split = row.get("metric", ""), row.get("split", "")
    if (arm := row.get("model", "")) == "data":
        return ListLine(("data", split), (metric, row.get("at", "").partition("=")[2]))
    return ListLine((arm,), (metric,))


def page(index: PlainIndex, figures: Mapping[str, Figure]) -> str:
    """Returns the whole document."""
    found = Reading.of(index.rows)
    lead = words.lead(found)
    tables = [scores(found, index), sizes(found, index), overlaps(found, index)]
    measured, *of_data = (table.html() for table in tables)
    parts = [
        f'<header>\n<p class="kicker">levelfield · audit of {escape(found.task)} · effort {escape(found.effort)}</p>\n'
        f"<h1{LONG if len(plain(lead)) > 110 else ''}>{prose(lead)}</h1>\n{words.badge_svg(found)}",
        _items(words.details(found)),
        "</header>",
    ]
    for name, figure in figures.items():
        title, note = FIGURES[name]
        parts.append(
            f'<section id="{name}">\n<h2>{title}</h2>\n<p class="note">{note}</p>\n<figure><div class="scroll">'
            f"{inline(figure.svg, figure.alt)}</div></figure>\n</section>"
        )
    parts += [
        f'<section id="scores">\n<h2>Every score</h2>\n{_note(words.five_folds(found))}{measured}</section>',
        f'<section id="data">\n<h2>The data</h2>\n{"".join(of_data)}</section>',
        f'<section id="not-tried">\n<h2>What was not tried</h2>\n{_items(words.not_tried(found))}</section>',
        '<section id="datasheet">\n<h2>For a datasheet</h2>\n'
        f"<blockquote>{escape(plain(words.paragraph(found)))}</blockquote></section>",
        f'<section id="method">\n<h2>How it was measured</h2>\n<p>{escape(METHOD)}</p></section>',
        section(_lists(found, index), reading=READING, tables=tables),
    ]
    return document(f"audit of {found.task}", parts, script=script())


def _note(sentence: str) -> str:
    return f'<p class="note">{prose(sentence)}</p>\n' if sentence else ""


def _items(sentences: Sequence[str]) -> str:
    inside = "".join(f"<li>{prose(sentence)}</li>" for sentence in sentences)
    return f"<ul>{inside}</ul>" if inside else ""


def _lists(found: Reading, index: PlainIndex) -> Iterator[PlainList]:
    """Yields the lists of rows in the order of the tables, each under the name that the tables have."""
    for (name, *rest), each in sorted(index.lists.items(), key=lambda item: item[0][0] == "data"):
        if name in found.scores:
            yield replace(each, title=_label(name, found.scores[name]), told=_told(found, name))
        else:
            yield replace(each, title=f"the data: {rest[0]}" if rest else name)


def _told(found: Reading, name: str) -> tuple[str, ...]:
    """Says how the share of an arm is computed from three scores, each of which leads to its row."""
    if name not in found.shares:
        return ()
    if name == found.reference:
        return ("This arm is the reference of all shares.",)
    factor = 100 if found.in_percent else 1
    own, best = (each.led(f"{factor * each.value:.4g}") for each in (found.scores[name], found.scores[found.reference]))
    floor = found.led(f"{factor * found.guessing:.4g}", *GUESSING)
    reference = _label(found.reference, found.scores[found.reference])
    return (f"The share is ({own} - {floor}) / ({best} - {floor}), where {floor} is guessing and {best} {reference}.",)


class Pair(NamedTuple):
    """A column of numbers and one of their intervals.

    guessing: what guessing has. cells: by arm. anchors: by arm the line of its number, where that is not a score.
    """

    title: str
    guessing: str
    cells: Mapping[str, tuple[str, str]]
    anchors: Mapping[str, str] = {}


def _pair(title: str, guessing: float, numbers: Mapping[str, Number], factor: int) -> Pair:
    cells = {name: _cells(number, factor) for name, number in numbers.items()}
    return Pair(title, f"{factor * guessing:.3g}", cells, {name: number.anchor for name, number in numbers.items()})


def scores(found: Reading, index: PlainIndex) -> Table:
    """A line for every arm: its score, of a rule that of five folds, and its share where anything is learnable."""
    factor = 100 if found.in_percent else 1
    unit = " (%)" if factor == 100 else ""
    pairs = [_pair(f"score{unit}", found.guessing, found.scores, factor)._replace(anchors={})]
    if found.folds:
        pairs.append(_pair(f"five folds{unit}", found.folded.guessing, found.folds, factor))
    shares = {name: _share(found, name) for name in found.scores}
    anchors = {name: share.anchor for name, share in found.shares.items()}
    pairs.append(Pair("share of what is learnt (%)", "0", shares, anchors))
    if found.unleaked:
        pairs.append(_pair("not in train", found.fresh.guessing, found.unleaked, factor))
    heads = [Column(name, number=True) for pair in pairs for name in (pair.title, "95 %")]
    lines = [("guessing", *(cell for pair in pairs for cell in (pair.guessing, "")))]
    links = [_link(index, "guessing")]
    for name, number in found.scores.items():
        lines.append((_label(name, number), *(cell for pair in pairs for cell in pair.cells.get(name, ("", "")))))
        led = {2 * at + side: pair.anchors.get(name, "") for at, pair in enumerate(pairs) for side in (1, 2)}
        links.append(_link(index, name)._replace(cells={place: to for place, to in led.items() if to}))
    return Table((Column("arm"), *heads), tuple(lines), links=tuple(links))


def _link(index: PlainIndex, *key: str) -> Link:
    """Returns the link of a line of a table to its list."""
    return Link(anchor, back(anchor)) if (anchor := index.anchor(*key)) else Link("")


def _share(found: Reading, name: str) -> tuple[str, str]:
    """Returns the share of an arm and its interval, which the reference has none of; blanks where nothing has one."""
    if name not in found.shares:
        return "", ""
    return ("100", "the reference") if name == found.reference else _cells(found.shares[name], 100)


def _label(name: str, number: Number) -> str:
    if number.kind == RULE:
        return f"rule: {rule_words(name)}"
    return f"windows of {number.place}" if number.kind == WINDOW else order_words(name)


def _cells(number: Number, factor: float) -> tuple[str, str]:
    value, low, high = (factor * each for each in number[:3])
    return (
        (f"{value:.1f}", f"{low:.1f} to {high:.1f}") if factor == 100 else (f"{value:.3g}", f"{low:.3g} to {high:.3g}")
    )


def sizes(found: Reading, index: PlainIndex) -> Table:
    """Examples and steps of each split."""
    sets = ("labels", "test", "") in found.facts
    last = "labels of an example" if sets else "largest class (%)"
    heads = (
        Column("split"),
        *(Column(text, number=True) for text in ("examples", "least steps", "median", "95 %", "most", last)),
    )
    lines = []
    for split in SPLITS:
        steps = [f"{found.fact('steps', split, place):,.0f}" for place in ("least", "median", "95 %", "most")]
        share, mean = found.fact("largest_class", split), found.fact("labels", split)
        told = f"{mean:.2f}" if sets else f"{100 * share:.1f}" if share else ""
        lines.append((split, f"{found.fact('examples', split):,.0f}", *steps, told))
    return Table(heads, tuple(lines), links=tuple(_link(index, "data", split) for split in SPLITS))


def overlaps(found: Reading, index: PlainIndex) -> Table:
    """Duplicates within and across splits, contradictions, groups, and what was left out."""
    names = {
        "exact_duplicates": "exact duplicates",
        "near_duplicates": "examples with a near duplicate",
        "not_compared": "examples too short to tell near duplicates from chance",
        "shared_groups": "groups on both sides",
        "groups_with_one_target": "groups of several rows that have one label or target",
        "contradictions": "inputs with different labels",
        "left_out": "rows left out",
        "cut": "sequences that were cut",
    }
    facts = {key: count for key, count in found.facts.items() if key[0] in names}
    lines = [
        (" ".join(filter(None, (names[metric], place))), f"{count:,.0f}") for (metric, _, place), count in facts.items()
    ]
    links, led = [], set[str]()
    for metric, split, place in facts:
        whole = _link(index, "data", split)
        links.append(Link(found.anchors.get((metric, split, place), ""), "" if whole.name in led else whole.name))
        led.add(whole.name)
    return Table((Column("found"), Column("count", number=True)), tuple(lines), links=tuple(links))
