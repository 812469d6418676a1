"""Writes docs/findings.md and its figure from committed results alone: what each paper claims and what was found here.

    python docs/scripts/findings.py           # writes docs/findings.md, its figure and what README says of it
    python docs/scripts/findings.py --check   # exit 1 if that would change the page

Every number on the page is computed from `results/STUDY-EFFORT/`: by the study's own rule, and from rows and ledgers.
What a claim is, and what would change our mind, is written in findings_subjects.py.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from statistics import median

import contents
import findings_figure
import findings_shown
import findings_summary as summary
import findings_tuning as tuning
import findings_words as words
import listops_levels
from findings_subjects import FIGURE, RECIPE, RESULTS, ROOT, RULE, SEEN, SUBJECTS, Answer, Subject, answer

from levelfield.engine.find import Source, references
from levelfield.report import committed
from levelfield.report.against_printed import PrintedSources, all_counterparts
from levelfield.report.axis_curves import curve
from levelfield.report.cells import gather
from levelfield.report.verdicts import Finding, Table, power
from levelfield.spec import Effort
from levelfield.spec.study import AT_CAP
from levelfield.tasks.listops import ListOps

PAGE, README = ROOT / "docs" / "findings.md", ROOT / "README.md"
VERDICTS = ROOT / "docs" / "verdicts.md"
ANSWERS = re.compile(r"(?<=figures/findings\.png\)\n\n)- .*?(?=\n\n)", re.DOTALL)
"""The list below the figure in the README."""


PRINTED: tuple[tuple[str, Effort], ...] = (("amos2025_table2", "minutes"), ("miralles2025_table1", "minutes"))


def page() -> str:
    answers = {subject: answer(subject) for subject in SUBJECTS}
    introduction = findings_figure.embedded(summary.INTRODUCTION, findings_figure.caption(pictured()))
    counts = _counted({subject: found.findings for subject, found in answers.items() if found})
    introduction = introduction.replace("@strict@", _strict())
    parts = [introduction.replace("@table@", "\n".join(_overview(answers))).replace("@counted@", counts)]
    for number, (subject, found) in enumerate(answers.items(), 1):
        parts += [f"## {_title(number, subject)}\n", f"**Claim.** {subject.claim}\n"]
        parts += _answered(found, subject) if found else ["**Answer.** None yet: no results are committed.\n"]
        if found and subject.axis:
            parts += [f"![Scores along {subject.axis} in {found.study.name}](figures/{subject.figure.name})\n"]
        if found and subject.shows:
            parts += subject.shows.table(found.results)
            parts += [f"![{subject.shows.ALT} in {found.study.name}](figures/{subject.figure.name})\n"]
            if subject.then and (more := answer(replace(subject, studies=subject.then))):
                parts += subject.shows.longer(more)
        parts += [f"**What would change our mind.** {subject.change}\n"]
    return contents.filled("\n".join([*parts, *_printed()]) + "\n")


def readme(text: str) -> str:
    """Returns the README with the figure's caption and the answers below it, a line each, as the rows have them."""
    asked = [(subject, found) for subject in SUBJECTS if subject.headline and (found := answer(subject))]
    answered = [f"- **{subject.headline}** {subject.in_short(found)}" for subject, found in asked]
    lines = "\n".join([*answered, f"- {listops_levels.headline()}"])
    lines = lines.replace("](", "](docs/")  # links of the page, which lies in docs/
    text = findings_figure.embedded(text, findings_figure.caption(pictured()))
    return ANSWERS.sub(lambda _: lines, text, count=1)


def _title(number: int, subject: Subject) -> str:
    return f"{number}. {subject.title} ({subject.paper})"


def _overview(answers: Mapping[Subject, Answer | None]) -> Iterator[str]:
    """Yields the table that a reader of five minutes wants: claim, answer, and what the answer rests on."""
    yield "| claim | our answer | questions | evidence |\n|---|---|---|---|"
    for number, (subject, found) in enumerate(answers.items(), 1):
        link = f"[{subject.title}](#{contents.anchor(_title(number, subject))}) ({subject.paper})"
        if found is None:
            yield f"| {link} | none yet | – | – |"
            continue
        asked, seeds = summary.counted(found.findings), findings_shown.counted(_seeds(found))
        rests = f"{len(found.results.ledgers)} runs, {seeds} an arm, {found.hours:.1f} core-hours"
        yield f"| {link} | {subject.in_short(found)} | {asked} | {rests} |"


def _seeds(found: Answer) -> list[int]:
    """Returns how many seeds each arm has, whatever it was trained at."""
    seeds: dict[tuple[str, ...], set[int]] = defaultdict(set)
    for row in found.results.rows:
        if "run" in row and "seed" in row:
            seeds[row.get("task", ""), row.get("model", ""), row.get("protocol", "")].add(row["seed"])
    return [len(found) for found in seeds.values()]


def _counted(answers: Mapping[Subject, Sequence[Finding]]) -> str:
    """Says how the questions were answered, and which of these answers could have come as a surprise."""
    every = [(finding, _why(subject, finding)) for subject, found in answers.items() for finding in found]
    said = Counter(findings_shown.WORDS[finding.decided] for finding, _ in every)
    marks = Counter(
        why if why in (SEEN, RULE, RECIPE) else "known" for finding, why in every if finding.decided and why
    )
    decided, unasked = said["yes"] + said["no"], sum(not finding.seen for finding, _ in every)
    return (
        f"Of {len(every)} questions {said['yes']} are answered yes, {said['no']} no, and {len(every) - decided} are "
        f"open, {unasked} of them because they presuppose what is missing: an arm that has learnt, that has lost "
        f"something, or that has been run. Of the {decided} answers {marks['known']} were known beforehand and test "
        "the harness. They are marked *control*, where an effect has to show; *proved*; or *known* from the work of "
        f"others. {marks[SEEN]} are marked *{SEEN}*: the question was "
        f"asked after rows that bear on it had been looked at. {marks[RULE]} are marked *{RULE}*: they were open until "
        "a [rule of the verdict](verdicts.md#what-was-changed-after-looking) was changed after all rows were known; so "
        f"were some of those marked *{SEEN}*. "
        f"{marks[RECIPE]} are marked *{RECIPE}*: they may reflect how these models were trained rather than the "
        f"claim. The other {decided - marks.total()} could have come out either way."
    )


def _strict() -> str:
    """Says how often the rules err in simulations, and what difference they need for it."""
    with (RESULTS / "false-alarms.csv").open(newline="", encoding="utf-8") as file:
        lines = [(int(line["false_alarms"]), int(line["reports"])) for line in csv.DictReader(file)]
    wrong, reports = map(sum, zip(*lines, strict=True))
    worst = max(alarms / made for alarms, made in lines)
    needs = re.search(r"^\| three \| [\d.]+ \| ([\d.]+) \|", VERDICTS.read_text(encoding="utf-8"), re.MULTILINE)
    assert needs, f"{VERDICTS} has no table of differences by seeds"
    return (
        "The other rules err less than that on average: of all [simulated reports](verdicts.md#how-often-it-is-wrong) "
        f"{100 * wrong / reports:.1f} % decide anything wrongly ({wrong:,} of {reports:,}), in the worst setting "
        f"{100 * worst:.1f} %. In return they miss much: to be told apart in eight of ten reports that ask six "
        "questions, arms with three seeds have to differ by "
        f"[{needs[1]} standard deviations](verdicts.md#how-large-a-difference-it-can-show) between seeds. So *open* "
        "does not mean that a difference is small."
    )


def _why(subject: Subject, finding: Finding) -> str:
    return _first(subject.known, finding.subject)


def _first(patterns: Sequence[tuple[str, str]], name: str) -> str:
    """Returns what stands beside the first pattern that a name fits, "" where it fits none."""
    return next((text for pattern, text in patterns if fnmatchcase(name, pattern)), "")


def _answered(found: Answer, subject: Subject) -> Iterator[str]:
    findings = found.findings
    yield f"**Our answer.** {subject.short(found)}\n"
    if subject.lead:
        yield f"{chr(10).join(subject.lead(found))}\n"
    yield f"The questions of `{found.study.name}` at effort `{found.effort}`:\n"
    decided, rest = ([f for f in findings if bool(f.decided) == sure] for sure in (True, False))
    if not findings:
        yield "None can be answered from the rows that are here so far."
    if decided:
        yield from _tables(decided, subject)
    elif rest:
        yield "None is decided."
    if rest:
        questions = f"The {len(rest)} open questions" if len(rest) > 1 else "The open question"
        yield f'\n<details markdown="1">\n<summary>{questions}</summary>\n'
        yield from _tables(rest, subject)
        yield "\n</details>"
    seen = "" if subject.paired else f" {words.spelt(power(Table.of(found.results.compared), len(findings)))}"
    yield f"\n**Evidence.** {_evidence(found)}{seen}\n"


def _tables(findings: Sequence[Finding], subject: Subject) -> Iterator[str]:
    """Yields a table of questions for each group of them, below what the group asks; one table where there is none."""
    for asks in dict.fromkeys(_first(subject.groups, finding.subject) for finding in findings):
        yield from [f"\n*{asks}*\n"] if asks else []
        yield from _table([finding for finding in findings if _first(subject.groups, finding.subject) == asks], subject)


def _table(findings: Sequence[Finding], subject: Subject) -> Iterator[str]:
    """Yields a table of questions. A column of which all cells are empty is left out."""
    spans = any(finding.span for finding in findings)
    beyond = ["beyond what a yes needs, in points (95 % interval)"] if spans else []
    head = ["claim", "answer", *beyond, "scores (medians)"]
    yield f"| {' | '.join(head)} |\n{'|---' * len(head)}|"
    for finding in findings:
        word = "open" if finding.seen else "nothing can be said"
        if finding.decided:
            known = _why(subject, finding)
            word = f"**{findings_shown.WORDS[finding.decided]}**{f' ({known})' if known else ''}"
        asks = "" if " " in finding.subject else subject.asks
        cells = [words.asked(f"{asks}{finding.subject}"), word]
        if spans:
            span = finding.span
            cells.append(f"{span.value:+z.1f} ({span.low:+z.1f} to {span.high:+z.1f})" if span else "–")
        told = filter(None, (words.scores(finding.facts), _first(subject.beside, finding.subject)))
        yield f"| {' | '.join([*cells, ' '.join(told)])} |"


def _evidence(found: Answer) -> str:
    runs, rows = len(found.results.ledgers), found.results.rows
    failed = sum(cell.failures.total() for cell in gather(found.results).cells)
    capped_runs = {row.get("run") for row in rows if row.get("metric") == AT_CAP and row.get("value", 0.0) > 0}
    patient = {row.get("run") for row in rows if row.get("metric") == AT_CAP}
    of = f"{runs}" if len(patient) == runs else f"the {len(patient)} with patience"
    verb, whose = ("was", "its") if len(capped_runs) == 1 else ("were", "their")
    stopped = f" {len(capped_runs)} of {of} {verb} still improving at {whose} cap of steps." if patient else ""
    return (
        f"{runs} of {len(found.planned)} planned runs{tuning.trials(found)}; {found.hours:.1f} core-hours; {failed} "
        f"runs failed or stayed at chance.{stopped}{tuning.borrowed(found)}{_missing(found)}{_expressions(found)} Rows "
        "and ledger: "
        f"[results/{found.study.name}-{found.effort}](../results/{found.study.name}-{found.effort})."
    )


def _expressions(found: Answer) -> str:
    """Names the lengths of ListOps, which differ between studies, so that scores of one are not those of another."""
    if all(run.task.name != ListOps.name for run in found.planned):
        return ""
    return f" Scores are on {findings_shown.sized(found, ListOps.name)}."


def _missing(found: Answer) -> str:
    """Names the planned runs that have not been made, by model and task; nothing where all have been."""
    made = {tuple(row.get(field) for field in ("task", "model", "protocol", "seed")) for row in found.results.rows}
    planned = [(run.task.name, run.model.label, run.protocol.name, run.seed) for run in found.planned]
    absent = [run for run in planned if run not in made]  # a tuned run has another id than the planned one
    counts = Counter(f"{words.named(model)} on {words.named(task)}" for task, model, _, _ in absent)
    listed = words.listed(f"{count} of {arm}" for arm, count in counts.items()) if counts else ""
    return f" Not run: {listed}." if listed else ""


def _printed() -> Iterator[str]:
    yield "## Cells measured beside printed ones\n"
    yield "Two seeds after minutes of training beside models and tasks of the printed size: these rows show that the"
    yield "printed cells have runs, and no difference between the columns means anything.\n"
    yield "| study, effort | task | model | protocol | seeds | ours (%) | printed (%) |\n|---|---|---|---|---|---|---|"
    for name, effort in PRINTED:
        study = Source(name).load()
        folder = committed.find(RESULTS, study.name, effort)
        if folder is None:
            continue
        results = committed.read(folder, study, effort)
        cells = gather(results)
        printed = all_counterparts(cells, results, PrintedSources(study.published, references(study.published)))
        for cell in cells.cells:
            values = [score.value for score in cell.scores if score.value is not None]
            theirs = [c for c in printed.get(cell.arm, ()) if c.value is not None]
            if values and theirs:
                arm, said = cell.arm, ", ".join(f"{c.value:g} ({c.where})" for c in theirs)
                ours = f"{median(values):.1f}"
                yield (
                    f"| `{name}`, {effort} | {arm.task} | {arm.model_label} | {arm.protocol} | {len(values)} | {ours} "
                    f"| {said} |"
                )


def pictured() -> dict[str, Answer | None]:
    """Returns the answers that the figure shows, by study."""
    by_study = {subject.studies[0][0]: subject for subject in SUBJECTS}
    return {study: answer(by_study[study]) for study in findings_figure.PANELS}


def draw_curve(subject: Subject, found: Answer) -> bytes:
    """Draws the scores of every model of a study along the subject's axis, as its report does."""
    results, cells = found.results, gather(found.results)
    if subject.rules:
        results = replace(results, rows=[*results.rows, *subject.rules(found)])
    figure = curve(results, cells, subject.axis, cells.metric, PrintedSources((), ()))
    assert figure, f"{found.study.name} has no scores along {subject.axis}"
    return figure.png


def main() -> int:
    text = page()
    if "--check" in sys.argv:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    FIGURE.write_bytes(findings_figure.draw(pictured()))
    README.write_text(readme(README.read_text(encoding="utf-8")), encoding="utf-8")
    for subject in SUBJECTS:
        if subject.axis and (found := answer(subject)):
            subject.figure.write_bytes(draw_curve(subject, found))
        if subject.shows and (found := answer(subject)):
            for end, drawn in subject.shows.figures(found.results).items():
                subject.figure.with_stem(subject.figure.stem + end).write_bytes(drawn)
            if more := answer(replace(subject, studies=subject.then)):
                for name, drawn in subject.shows.longer_figures(more.results).items():
                    subject.figure.with_name(name).write_bytes(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
