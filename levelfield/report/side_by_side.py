"""Reports two language models beside each other, on the questions that both were asked.

    build(("mamba2-2.7b", "transformerpp-2.7b"), [Part("sound", questions)], folder)
    # report.html, differences.csv, summary.md, groups.svg, differences.svg

A question is the same where task, length, number, seed, variant and expected answer are. Differences are those of
single questions, so that what makes a question hard cancels. Intervals are the bootstrap's: `levelfield.report.paired`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import NamedTuple

from levelfield.report import difference_plot, effective_length, group_curves, references
from levelfield.report.effective_length import BAR, TASKS, shared
from levelfield.report.failures import any_asked, chosen, folded, shown_answer
from levelfield.report.links import back, list_html, marked, return_link, slug
from levelfield.report.longcontext_rows import means
from levelfield.report.page import document, script
from levelfield.report.paired import ALPHA, Span, span
from levelfield.report.plain_lists import PlainList, plain_list
from levelfield.report.plots import Figure
from levelfield.report.style import inline
from levelfield.report.tables import Column, Link, Table, number, prose, signed, to_csv
from levelfield.report.write import write
from levelfield.spec import Row
from levelfield.spec.groups import counted

Models = tuple[str, str]
FIGURES = {"groups": "Scores by group of tasks", "differences": "Differences on the same questions"}
LEAD = (
    "RULER's match of both in percent; below it the first minus the second, with its 95 % interval over questions. "
    "Each interval is of its own cell, and among so many, some miss by luck."
)
RULES = (
    f"RULER's rule: the longest length at which the average is at least {BAR}. Ours: the longest at which the lower "
    "end of its 95 % interval is, there and at every shorter length."
)
BEHIND = (
    "A number in the table leads to its list here or to its line there: on how many questions which model does better, "
    "and the mean difference with the ends of its 95 % interval. An average counts every task alike."
)
AVERAGE = "average"


class PairedQuestion(NamedTuple):
    """A question that both models were asked. scores: match, from 0 to 1; depth: of all needles, "" without any."""

    task: str
    length: int
    sample: int
    depth: str
    expected: str
    answered: tuple[str, str]
    scores: tuple[float, float]
    question: str = ""

    @property
    def base_task(self) -> str:
        """The task without the depth that was chosen for its needle."""
        return self.task.partition("@")[0]

    @property
    def difference(self) -> float:
        return self.scores[0] - self.scores[1]


@dataclass(frozen=True)
class Part:
    """The questions of one variant and seed. notes: how they were put, and answers that have no counterpart."""

    name: str
    variant: str
    questions: Sequence[PairedQuestion]
    notes: Sequence[str] = ()

    @cached_property
    def cells(self) -> dict[int, dict[str, list[PairedQuestion]]]:
        """The questions by length and task, lengths in order, RULER's tasks first and in its order.

        A task whose needles were put at chosen depths has those at all depths, unless it was asked without, too, and
        those at each are a cell of their own: "niah_single_1" and "niah_single_1@0.5".
        """
        order = {task: place for place, task in enumerate(TASKS)}
        asked = {(q.length, q.task) for q in self.questions}
        found: dict[int, dict[str, list[PairedQuestion]]] = {}
        for one in sorted(self.questions, key=lambda q: (q.length, order.get(q.base_task, len(TASKS)))):
            for task in [one.task] if (one.length, one.base_task) in asked else [one.base_task, one.task]:
                found.setdefault(one.length, {}).setdefault(task, []).append(one)
        return found

    @cached_property
    def whole(self) -> dict[int, dict[str, list[PairedQuestion]]]:
        """The cells without those of one chosen depth."""
        return {n: {task: asked for task, asked in by.items() if "@" not in task} for n, by in self.cells.items()}

    @cached_property
    def shared(self) -> tuple[set[str], list[int]]:
        """The tasks that averages may be of, and the lengths that have all of them, as `shared` finds them."""
        return shared(self.whole)

    @cached_property
    def averaged(self) -> list[str]:
        """The tasks behind averages, of those that lengths share: RULER's where there are any of them."""
        common = [task for task in dict.fromkeys(q.base_task for q in self.questions) if task in self.shared[0]]
        return [task for task in TASKS if task in common] or common

    def rows(self, which: int) -> list[Row]:
        """The scores of one of the two models, as rows."""
        made = []
        for length, by_task in self.whole.items():
            for task, asked in by_task.items():
                scores = [q.scores[which] for q in asked]
                value = 100 * sum(scores) / len(asked)
                row = Row(task=task, at=f"length={length}", metric="accuracy", unit="percent", value=value)
                made.append(row | counted(scores, [q.sample for q in asked]))
        return made

    def average(self, length: int, alpha: float = ALPHA) -> Span | None:
        """The difference of the averages at one length; None where not all of their tasks were asked."""
        if length not in self.shared[1]:
            return None
        return span(*(_differences(self.whole[length][task]) for task in self.averaged), alpha=alpha)

    @cached_property
    def spans(self) -> dict[tuple[str, int], Span]:
        """The difference in every cell, averages first."""
        means = {(AVERAGE, n): found for n in self.cells if (found := self.average(n)) and len(self.averaged) > 1}
        return means | {
            (task, length): span(_differences(asked))
            for length, by_task in self.cells.items()
            for task, asked in by_task.items()
        }

    @property
    def printed(self) -> str:
        """What the anchors of printed averages begin with; "" where the page has none: a task of RULER is missing."""
        return slug("printed", self.name) if self.averaged == list(TASKS) else ""

    def averages(self, models: Models) -> tuple[list[PlainList], group_curves.Anchors]:
        """What is listed of each model's averages by group, and where each point of the curves leads."""
        panels = group_curves.panels({models[0]: self.rows(0), models[1]: self.rows(1)})
        return means(self.name, panels, {task: _anchor(self, task) for task, _ in self.spans})

    def figures(self, models: Models) -> dict[str, Figure]:
        """The figures that there is enough for, by name."""
        rows = {models[0]: self.rows(0), models[1]: self.rows(1)}
        places = {place: _anchor(self, *place) for place in self.spans}
        found = {
            "groups": group_curves.curves(rows, self.averages(models)[1], self.printed),
            "differences": difference_plot.draw(models, self.spans, places),
        }
        return {name: figure for name, figure in found.items() if figure is not None}


def _differences(asked: Sequence[PairedQuestion]) -> list[float]:
    """Returns the difference on every sample: where it was asked at several depths, they are not independent.

    Their mean is that of all questions, so a sample that some depths lack weighs less.
    """
    totals: dict[int, float] = {}
    for one in asked:
        totals[one.sample] = totals.get(one.sample, 0.0) + one.difference
    return [total * (len(totals) / len(asked)) for total in totals.values()]


def build(models: Models, parts: Sequence[Part], to: Path) -> list[Path]:
    """Writes the report into the folder `to` and returns its files, the page first."""
    drawn = {part.name: part.figures(models) for part in parts}
    texts = {
        "report.html": page(models, parts, drawn),
        "differences.csv": to_csv([record for part in parts for record in _records(models, part)]),
        "summary.md": summary(models, parts),
    }
    several = len(parts) > 1
    figures = {
        f"{name}-{part}" if several else name: figure for part, found in drawn.items() for name, figure in found.items()
    }
    return write(to, texts, figures, [f"{name}*.{ending}" for name in FIGURES for ending in ("svg", "png")])


def page(models: Models, parts: Sequence[Part], drawn: Mapping[str, Mapping[str, Figure]]) -> str:
    """One document with all tables and figures in it."""
    first, second = map(escape, models)
    body = [f'<header><p class="kicker">levelfield · RULER</p>\n<h1>{first} and {second} on the same questions</h1>']
    for part in parts:
        if said := decided(models, part, led=True):
            body.append(f'<p class="lead">{prose(f"{part.name}: {said}" if len(parts) > 1 else said)}</p>')
    body.append("</header>")
    for part in parts:
        body.append(f"<h2>{escape(part.name)}</h2>")
        body += [f'<p class="note">{escape(note)}</p>' for note in part.notes]
        if effective := lengths(models, part):
            body += [effective.html(), f'<p class="note">{RULES}</p>']
        for name, figure in drawn[part.name].items():
            picture = f'<div class="scroll">{inline(figure.svg, figure.alt)}</div>'
            body.append(f"<figure><figcaption><b>{FIGURES[name]}</b></figcaption>{picture}</figure>")
        body += [f'<p class="note">{LEAD} {_size(part)}</p>', table(part).html(), _references(models, part)]
        body.append(apart(models, part))
    body.append(behind(models, parts))
    return document(f"{models[0]} and {models[1]}", body, script=script())


def summary(models: Models, parts: Sequence[Part]) -> str:
    """The verdicts and tables as text."""
    text = f"# {models[0]} and {models[1]} on the same questions\n"
    for part in parts:
        effective = lengths(models, part)
        said = (decided(models, part), *part.notes, effective.markdown() + f"\n{RULES}" if effective else "")
        text += f"\n## {part.name}\n" + "".join(f"\n{line}\n" for line in said if line)
        text += f"\n{LEAD} {_size(part)}\n\n{table(part).markdown()}"
    return text


def decided(models: Models, part: Part, led: bool = False) -> str:
    """Says at which lengths one model finds more on average, at a false-alarm rate of 5 % for all lengths together.

    led: whether the numbers are to lead to their lines on the page.
    """
    averaged = part.shared[1]
    spans = {n: found for n in averaged if (found := part.average(n, ALPHA / len(averaged)))}
    what = f"Averaged over {_tasks(part.averaged)}, "
    said = []
    for sign, text in ((1, f"{models[0]} finds more at"), (-1, f"{models[1]} finds more at"), (0, "neither does at")):
        points = {n: _points(each, sign) for n, each in spans.items() if each.sign == sign}
        if led:
            points = {n: marked(shown, _anchor(part, _averages(part), n)) for n, shown in points.items()}
        places = [f"{n} ({shown})" for n, shown in points.items()]
        verb = "neither finds more at" if not (sign or said) else text
        said += [f"{verb} {', '.join(places)}"] if places else []
    together = ", all lengths together" if len(spans) > 1 else ""
    left = effective_length.left_out({n: part.whole[n].keys() for n in part.whole})
    return f"{what}{'; '.join(said)}. Intervals are at 95 %{together}. {left}".rstrip()


def _points(found: Span, sign: int) -> str:
    """Returns a difference from the side of the model that finds more."""
    if not sign:
        return f"{signed(100 * found.low)} to {signed(100 * found.high)} points"
    mean, *ends = (100 * sign * each for each in found)
    return f"by {number(mean)} points, {number(min(ends))} to {number(max(ends))}"


def _tasks(names: Sequence[str]) -> str:
    if list(names) == list(TASKS):
        return f"RULER's {len(TASKS)} tasks"
    if len(names) == 1:
        return names[0]
    return f"{len(names)} of RULER's {len(TASKS)} tasks" if set(names) <= set(TASKS) else f"{len(names)} tasks"


def lengths(models: Models, part: Part) -> Table | None:
    """The effective lengths of both on these questions; None where no task of RULER is among them."""
    rows = ([row for row in part.rows(which) if row.get("task") in part.averaged] for which in (0, 1))
    found = [effective_length.both(own) for own in rows]
    rows = tuple((model, *both) for model, both in zip(models, found, strict=True) if both)
    heads = Column("effective length of"), Column("by RULER's rule", number=True), Column("by ours", number=True)
    return Table(heads, rows, links=(Link(_anchor(part, _averages(part))),) * len(rows)) if rows else None


def table(part: Part) -> Table:
    """Both scores and their difference, by task and length."""
    rows, links = [], []
    for task in dict.fromkeys(task for task, _ in part.spans):
        to = _anchor(part, task)
        links.append(Link(to, back(to), {i: _anchor(part, task, n) for i, n in enumerate(part.cells, start=1)}))
        cells = []
        for length in part.cells:
            found = part.spans.get((task, length))
            cells.append("" if found is None else f"{' | '.join(_scores(part, task, length))}\n{_shown(found)}")
        rows.append((f"average of {len(part.averaged)}" if task == AVERAGE else task, *cells))
    return Table((Column("task"), *(Column(str(n), number=True) for n in part.cells)), tuple(rows), links=tuple(links))


def _averages(part: Part) -> str:
    """Returns what the averages are called in the table: the task itself where there is but one."""
    return AVERAGE if len(part.averaged) > 1 else part.averaged[0]


def _anchor(part: Part, task: str, length: int | None = None) -> str:
    """Returns the anchor of a task's list, or of a length's line in it."""
    return slug("rows", part.name, task, *([f"length={length}"] if length is not None else []))


def behind(models: Models, parts: Sequence[Part]) -> str:
    """Lists what every number is made of, a list for each task with a line for each length, as HTML."""
    lists = [_list(models, part, task) for part in parts for task in dict.fromkeys(task for task, _ in part.spans)]
    lists += [plain_list(each) for part in parts for each in part.averages(models)[0]]
    note = f'<p class="note">{BEHIND} As a file: <a href="differences.csv">differences.csv</a>.</p>'
    return f'<section id="rows">\n<h2>The rows behind the numbers</h2>\n{note}\n' + "\n".join(lists) + "\n</section>"


def _list(models: Models, part: Part, task: str) -> str:
    lines, names = [], {}
    for record in (record for record in _records(models, part) if record["task"] == task):
        length = int(str(record["length"]))
        gaps = [q.difference for asked in _cells(part, task, length) for q in asked]
        names[len(lines)] = _anchor(part, task, length)
        numbers = (f"{float(str(record[name])):.3f}".replace("-", "−") for name in ("difference", "low", "high"))
        better = (f"{sum(gap > 0 for gap in gaps):,}", f"{sum(gap < 0 for gap in gaps):,}")
        scores = (str(record[model]) for model in models)
        lines.append((str(length), f"{len(gaps):,}", *scores, *better, *numbers))
    heads = ("length", "questions", *(f"{m} (%)" for m in models), *(f"{m} does better on" for m in models))
    columns = tuple(Column(name, number=True) for name in (*heads, "difference", "low", "high"))
    anchor, averaged = _anchor(part, task), f" of {', '.join(part.averaged)}" if task == AVERAGE else ""
    inside = f"<p>{return_link(anchor)}</p>{Table(columns, tuple(lines), names=names).html()}"
    return list_html(anchor, f"{part.name}: {task}{averaged}", inside)


def _cells(part: Part, task: str, length: int) -> list[list[PairedQuestion]]:
    """Returns the questions of a task, or of each that is averaged."""
    return [part.cells[length][each] for each in (part.averaged if task == AVERAGE else [task])]


def _scores(part: Part, task: str, length: int) -> list[str]:
    """Returns the scores of both models in percent."""
    shown = []
    for which in (0, 1):
        means = [sum(q.scores[which] for q in asked) / len(asked) for asked in _cells(part, task, length)]
        shown.append(number(100 * sum(means) / len(means)))
    return shown


def _shown(found: Span) -> str:
    return f"{signed(100 * found.mean)} ({signed(100 * found.low)} to {signed(100 * found.high)})"


def _size(part: Part) -> str:
    counts = sorted({len(asked) for by_task in part.cells.values() for asked in by_task.values()})
    many = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    return f"{many} questions in each cell."


def _references(models: Models, part: Part) -> str:
    if not part.printed:
        return ""
    own: dict[str, dict[int, float]] = {model: {} for model in models}
    for which, model in enumerate(models):
        for length, cells in effective_length.of_ruler(effective_length.cells_of(part.rows(which))).items():
            own[model][length] = 100 * effective_length.average(cells)[0]
    return references.section(list(part.cells), own, part.variant, anchor=_anchor(part, AVERAGE), named=part.printed)


def apart(models: Models, part: Part) -> str:
    """Lists the questions on which one model does better, as HTML that can be searched; "" where there is none."""
    found = [q for q in part.questions if q.difference]
    if not found:
        return ""
    heads = [Column("task"), *(Column(name, number=True) for name in ("length", "sample", "depth"))]
    heads += [Column(f"{model} (%)", number=True) for model in models]
    asked = any_asked(found)
    heads += [
        *(Column("question") for _ in range(asked)),
        Column("expected"),
        *(Column(f"{model} answered") for model in models),
    ]
    rows = tuple(
        (
            q.task,
            str(q.length),
            str(q.sample),
            q.depth,
            *(f"{100 * score:.0f}" for score in q.scores),
            *(q.question for _ in range(asked)),
            q.expected,
            *map(shown_answer, q.answered),
        )
        for q in chosen(found)
    )
    return folded("Questions on which one of them does better", Table(tuple(heads), rows), len(found))


def _records(models: Models, part: Part) -> Iterator[dict[str, object]]:
    for (task, length), found in part.spans.items():
        scores = _scores(part, task, length)
        yield {
            "part": part.name,
            "task": task,
            "length": length,
            "n": sum(map(len, _cells(part, task, length))),
            models[0]: scores[0],
            models[1]: scores[1],
            "difference": round(100 * found.mean, 3),
            "low": round(100 * found.low, 3),
            "high": round(100 * found.high, 3),
        }
