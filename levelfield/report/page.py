"""Makes the HTML page: one file that loads nothing and needs no JavaScript, for light, dark and small screens and
paper. Where there is JavaScript, tables are sorted by their headings, and long ones are filtered (`page.js`).

It answers in this order: what came out, what was claimed, the figures, the numbers with what they cost, what differs
between the arms, what failed, how every number was made, and the rows that it was made from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from levelfield import published
from levelfield.report import divergence, printed_lists, row_lists, tuning
from levelfield.report.against_printed import Counterpart
from levelfield.report.arms import Arm, differences, shared
from levelfield.report.cells import Cell, Cells, left_out, unequal
from levelfield.report.compute import unequal_compute
from levelfield.report.links import cited, marked, plain
from levelfield.report.plots import Figure
from levelfield.report.row_index import RowIndex
from levelfield.report.style import inline, led
from levelfield.report.tables import Column, Table, differences_table, main_tables, prose, shown_match
from levelfield.runs.results import Results
from levelfield.spec import Effort, Study

METHOD = (
    (
        "Median, min to max",
        "Over the seeds that have a score, failed ones included. They are what another reader should expect to see.",
    ),
    (
        "95 % interval",
        "Of the mean, over seeds by Student's t with one degree of freedom fewer than there are seeds, and over test "
        "examples by Wilson's interval; the two are joined as Newcombe joins two shares. With two seeds the factor is "
        "12.7 and the interval is very wide, as two seeds deserve; one seed has none. It takes seeds to scatter like a "
        "bell: where some of them fail they do not, so read the failures and the range first.",
    ),
    (
        "Test 95 %",
        "Wilson's interval of the mean of these seeds over the test examples: what another test set of the same size "
        "would change. It says nothing about other seeds.",
    ),
    (
        "Failed",
        "Seeds that diverged, did not finish, or ended at chance: no better than the higher of chance and the label "
        "prior, allowing two binomial standard errors.",
    ),
    (
        "Difference",
        "Our median minus the printed number, only where our run has every setting of the printed one: model, layers, "
        "task, budget and recipe. Else the table says what is not as printed. Printed numbers are mostly single runs, "
        "without a spread of their own; a difference inside our interval is not a proof of agreement, one outside it "
        "not a refutation.",
    ),
    (
        "Ledger",
        "Medians over seeds of one run, all its phases together. One function counts parameters, state, tokens and "
        "FLOPs for every model. Tuning trials are the settings tried per arm before these runs.",
    ),
)


@dataclass(frozen=True)
class FigureSection:
    """A figure with the words around it, which say why where there is none. `file` is its name without ending."""

    title: str
    note: str
    file: str
    figure: Figure | None


@dataclass(frozen=True)
class PageData:
    """All a page is made of."""

    study: Study
    effort: Effort
    results: Results
    tables: Sequence[Cells]  # one per metric
    counterparts: Mapping[str, Mapping[Arm, Sequence[Counterpart]]]  # metric -> arm -> printed numbers
    figures: Sequence[FigureSection]
    cost: Figure | None
    search: Figure | None  # of the trials that tuned the arms
    verdict: str | None
    files: Sequence[str]
    rows: RowIndex


def page(data: PageData) -> str:
    """The whole document."""
    study = data.study
    sections = [_top(data), _figures(data.figures), _scores(data), _arms(data)]
    sections += [_tuning(data), _cost(data.cost), _failures(data), _method(), _sources(data)]
    anchors = _cited(data)
    others = (tuning.lists(data.results), printed_lists.drawn(anchors))
    sections.append(row_lists.section(data.rows, anchors, others))
    return document(f"{study.name}, effort {data.effort}", sections, script=script())


def _cited(data: PageData) -> Set[str]:
    """Returns the anchors to which the verdict, the figures and printed numbers lead."""
    figures = (*(each.figure for each in data.figures), data.cost)
    drawn = (anchor for figure in figures if figure for anchor in led(figure.svg))
    beside = (m.anchor for by_arm in data.counterparts.values() for found in by_arm.values() for m in found)
    return dict.fromkeys([*cited(data.verdict or ""), *drawn, *beside]).keys()


def document(title: str, parts: Iterable[str], style: str = "", script: str = "") -> str:
    """Returns a page that loads nothing, with its style in it.

    parts: HTML; empty ones are left out. style, script: CSS and JavaScript that this page has besides.
    """
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}: levelfield</title>\n"
        f"<style>\n{_file('page.css')}{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main>\n"
        + (f"<script>\n{script}</script>\n" if script else "")
        + "</body>\n</html>\n"
    )


def script() -> str:
    """Returns JavaScript that sorts the tables of a page by their headings, and filters long ones."""
    return _file("page.js")


def _file(name: str) -> str:
    return files(__package__ or "levelfield.report").joinpath(name).read_text(encoding="utf-8")


def _section(anchor: str, title: str, *parts: str) -> str:
    return f'<section id="{anchor}">\n<h2>{escape(title)}</h2>\n' + "\n".join(p for p in parts if p) + "\n</section>"


def _list(items: Iterable[str], style: str = "") -> str:
    inside = "".join(f"<li>{prose(item)}</li>" for item in items)
    return f'<ul class="{style}">{inside}</ul>' if inside else ""


def _top(data: PageData) -> str:
    study, results = data.study, data.results
    done = len(results.ledgers)
    planned = max(len(results.specs), done)
    lead, rest = _first_sentence(data.verdict or f"Claim under test: {study.claim}")
    claim = f'<p class="claim">Claim: {prose(study.claim)}</p>' if data.verdict else ""
    different = "Knowingly different from the printed experiment:" if study.published else "Keep in mind:"
    deviations = f"<p>{different}</p>" + _list(study.deviations)
    links = (("figures", "Figures"), ("scores", "Scores"), ("arms", "Arms"), ("cost", "Cost"), ("method", "Method"))
    links += (("rows", "Rows"),)
    nav = "".join(f'<a href="#{anchor}">{text}</a>' for anchor, text in links)
    size = ' class="long"' if len(plain(lead)) > 110 else ""
    leads = [f'<p class="lead">{prose(part)}</p>' for part in paragraphs(rest)]
    headline = "\n".join([f"<h1{size}>{prose(lead)}</h1>", *leads])
    failed = len(_failed(data, of_begun=True))
    state = f'<a href="#rows">{done} of {planned} runs finished</a>'
    state += f', <a href="#failures">{failed} failed or at chance</a>' if failed else ""
    return (
        f'<header>\n<p class="kicker">levelfield · study {escape(study.name)} · effort {escape(data.effort)} · '
        f"{state}</p>\n{headline}\n{claim}\n{_warnings(data, failed, planned)}\n"
        f"{deviations if study.deviations else ''}\n<nav>{nav}</nav>\n</header>"
    )


def _warnings(data: PageData, failed: int, planned: int) -> str:
    """What a reader must know before any number."""
    found = []
    if 2 * failed > planned:
        words = "What has not learned the task says nothing about its architecture: read the verdict with that in mind."
        head = marked(f"{failed} of {planned} runs failed or ended at chance", "failures")
        found.append((f"{head}.", words))
    if data.study.published and data.effort != "paper":
        words = "Models, data or training are smaller, so a difference to a printed number is no finding about it."
        found.append((f"Not the printed recipe: effort {data.effort}.", words))
    banners = [f'<p class="banner"><b>{prose(head)}</b> {escape(words)}</p>' for head, words in found]
    notes = remarks(data.results, data.tables, data.rows.anchor)
    return "\n".join([*banners, *(f"<p>{prose(words)}</p>" for words in notes)])


def remarks(results: Results, tables: Sequence[Cells], anchor: Callable[[Arm], str] = lambda arm: "") -> list[str]:
    """Returns what whoever reads scores must know too: which arms diverged, whether parameter counts or, where these
    are equal, FLOPs are unequal, and which arms are left out. anchor: where a page has the rows of an arm."""
    unlike = (unequal(tables, anchor), unequal_compute(tables, anchor), left_out(results))
    return [*divergence.sentences(results, tables), *filter(None, unlike)]


def paragraphs(text: str) -> list[str]:
    """Returns the parts of a verdict: a line, or a sentence that begins with "On ", as of a task, begins another."""
    return re.split(r"\n|(?<=[.!?])\s+(?=On )", text) if text else []


def _first_sentence(text: str) -> tuple[str, str]:
    """The headline, and the rest."""
    first, *rest = re.split(r"(?<=[.!?])\s+(?=[A-Z])", text, maxsplit=1)
    return first, "".join(rest)


def _scores(data: PageData) -> str:
    parts = []
    for cells in data.tables:
        counterparts = data.counterparts.get(cells.metric, {})
        for task in cells.tasks:
            if not cells.of(task):
                continue
            tables = main_tables(cells, counterparts, task)
            scores, ledger = row_lists.with_links(tables, index=data.rows, cells=cells, task=task)
            parts.append(f"<h3>{escape(task)}: test {escape(cells.metric.replace('_', ' '))}</h3>")
            parts.append(_test_size(cells, task))
            parts += [scores.html(), ledger.html()]
            parts += [_not_as_printed(cells.of(task), counterparts), _caveats(cells.of(task), counterparts)]
    return _section("scores", "Scores, and what they cost", *parts)


def _not_as_printed(cells: Sequence[Cell], counterparts: Mapping[Arm, Sequence[Counterpart]]) -> str:
    """Every setting in which a run is not the printed one, arm by arm, behind a line that opens."""
    found = [
        f"{cell.arm}, {shown_match(match, 2)}: {'; '.join(match.unlike)}."
        for cell in cells
        for match in counterparts.get(cell.arm, ())
        if match.unlike
    ]
    lead = "<summary>All settings that are not as printed</summary>"
    return f"<details>{lead}{_list(found, 'note')}</details>" if found else ""


def _caveats(cells: Sequence[Cell], counterparts: Mapping[Arm, Sequence[Counterpart]]) -> str:
    """What no setting says: how the printed numbers themselves came about."""
    found = dict.fromkeys(
        f"{m.table_name}, {m.model}: {text}" for c in cells for m in counterparts.get(c.arm, ()) for text in m.caveats
    )
    return f'<p class="note">What else is to be known of the printed runs:</p>{_list(found, "note")}' if found else ""


def _test_size(cells: Cells, task: str) -> str:
    sizes = sorted({c.examples for c in cells.of(task) if c.examples})
    if not sizes:
        return ""
    fewest = min((c.independent for c in cells.of(task) if c.independent), default=sizes[0])
    said = f"{' or '.join(f'{n:,}' for n in sizes)} test examples."
    if fewest < sizes[0]:
        said += f" They come in groups: intervals count them as {fewest:,.0f} independent ones."
    return f'<p class="note">{said}</p>'


def _figure(title: str, note: str, figure: Figure | None) -> str:
    words = f"<b>{escape(title)}</b>" + (f'<span class="note">{prose(note)}</span>' if note else "")
    if figure is None:
        return f"<p>{words}</p>"
    svg = inline(figure.svg, figure.alt)
    return f'<figure>\n<figcaption>{words}</figcaption>\n<div class="scroll">{svg}</div>\n</figure>'


def _figures(sections: Sequence[FigureSection]) -> str:
    drawn = [_figure(p.title, p.note, p.figure) for p in sections]
    return _section("figures", "Figures", *drawn) if drawn else '<section id="figures"></section>'


def _arm_specs(data: PageData) -> dict[str, dict[Arm, Mapping[str, object]]]:
    """One description per arm, of its first seed, task by task; a task without any description has no arms."""
    specs: dict[str, dict[Arm, Mapping[str, object]]] = {}
    for run, arm in data.tables[0].arms.items():
        of_task = specs.setdefault(arm.task, {})
        if run in data.results.specs:
            of_task.setdefault(arm, data.results.specs[run])
    return specs


def _arms(data: PageData) -> str:
    """What differs, once for all tasks whose arms differ in the same way."""
    alike: dict[str, list[str]] = {}
    common: dict[str, list[str]] = {}
    for task, specs in _arm_specs(data).items():
        parts = shared(list(specs.values()))
        if parts:
            columns = (Column("All arms share"), Column("Settings", wrap=True))
            common.setdefault(Table(columns, tuple(parts.items())).html(), []).append(task)
        if found := differences(specs):
            alike.setdefault(differences_table(found, list(specs)).html(), []).append(task)
    lead = '<p class="note">Fields that are not listed are the same in every arm.</p>'
    blocks = [f"<h3>{escape(', '.join(tasks))}</h3>{table}" for table, tasks in alike.items()]
    same = "".join(f"<h3>{escape(', '.join(tasks))}</h3>{table}" for table, tasks in common.items())
    opened = f"<details><summary>What all arms share, field by field</summary>{same}</details>" if same else ""
    return _section(
        "arms", "What differs between the arms", *([lead, *blocks] if blocks else ["<p>Nothing.</p>"]), opened
    )


def _tuning(data: PageData) -> str:
    """What every arm tried before its runs."""
    if data.search is None:
        return ""
    words = (
        "Every arm tried the same multiples of its own recipe's rates, at one seed that no run uses, scored on "
        "validation; its runs use the trial that is ringed. The ledger of a run does not contain what its trials cost."
    )
    drawn = _figure("", words, data.search)
    return _section("tuning", "How the arms were tuned", drawn, tuning.table(data.results).html())


def _cost(figure: Figure | None) -> str:
    if figure is None:
        return ""
    note = "One run, median over seeds; phases before the last are paler."
    return _section("cost", "How long and how much compute", _figure("", note, figure))


def _failed(data: PageData, *, of_begun: bool = False) -> dict[str, str]:
    """Run id -> which seed failed and why. of_begun: not those that were never run, or stopped without an error."""
    found: dict[str, str] = {}
    for cells in data.tables:
        for cell in cells.cells:
            for score in cell.scores:
                if why := cell.failure(score):
                    reason = data.results.failures.get(score.run, "")
                    if of_begun and score.status == "unfinished":
                        continue
                    seed = marked(f"seed {score.seed}", data.rows.anchor(cell.arm, cells.metric))
                    text = f"{cell.arm.task}, {cell.arm}, {seed}: {why}. {reason}".strip()
                    found.setdefault(score.run, text)
    return found


def _failures(data: PageData) -> str:
    """Every seed that failed, by name: nothing is averaged away."""
    return _section("failures", "Runs that failed", _list(_failed(data).values()) or "<p>None.</p>")


def _method() -> str:
    inside = "".join(f"<dt>{escape(term)}</dt><dd>{prose(text)}</dd>" for term, text in METHOD)
    return _section("method", "How the numbers are made", f"<dl>{inside}</dl>")


def _sources(data: PageData) -> str:
    keys = dict.fromkeys(answer.paper for answer in data.study.published)
    for by_arm in data.counterparts.values():
        keys |= dict.fromkeys(m.origin for matches in by_arm.values() for m in matches)
    papers = [p for key in keys if (p := published.papers().get(key))]
    cited = "".join(
        f"<li><b>{escape(p.key)}</b> {escape(p.citation)} "
        f'<a href="{escape(p.url, quote=True)}">{escape(p.url)}</a></li>'
        for p in papers
    )
    devices = dict.fromkeys(
        " · ".join(f"{name} {ledger[name]}" for name in ("device", "threads", "torch") if ledger.get(name) is not None)
        for ledger in data.results.ledgers.values()
    )
    return _section(
        "sources",
        "Sources and files",
        f"<ul>{cited}</ul>" if cited else "",
        "<p>Data (<code>levelfield data verify TASK</code> counts what is in it):</p>" + _list(_data(data)),
        "<p>Measured with:</p>" + _list(d for d in devices if d),
        "<p>Beside this page:</p>" + _list(data.files),
    )


def _data(data: PageData) -> Iterator[str]:
    """Yields where each task's data come from and how they are split."""
    for name, task in {run.task.name: run.task for run in data.study.runs(data.effort)}.items():
        yield f"{name}: {' '.join(task.source.split())} Splits: {task.split_rule}"
