"""Plans and reports of studies that ask language models instead of training any.

lines(survey, "paper", "", Path("runs"))                                     the commands, and what is done
write_report(survey, Path("runs"), Path("report"), print)                    printed tables and ours
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from levelfield import published
from levelfield.cli.streams import Say
from levelfield.files import read_json
from levelfield.longcontext import exam as longcontext
from levelfield.longcontext.exam import Exam, Prediction
from levelfield.longcontext.survey import ANATOMY, Checkpoint, Survey
from levelfield.report import printed_tables
from levelfield.ruler import Questions
from levelfield.spec import EFFORTS, Effort, Row, UserError
from levelfield.spec.study import MeasuredCell

ESSAYS = "PaulGrahamEssays"  # how the paper's own haystack is called
FILES = {"squad": "dev-v2.0.json", "hotpot": "hotpot_dev_distractor_v1.json"}


def lines(survey: Survey, effort: Effort, only: str, out: Path) -> list[str]:
    """The whole plan as text; `only` is a pattern of models. Raises UserError where it fits none."""
    chosen = [c for c in survey.checkpoints if not only or fnmatchcase(c.source, only) or c.source == only]
    if not chosen:
        names = ", ".join(c.source for c in survey.checkpoints)
        raise UserError(f"{survey.name} has no model that matches '{only}': they are {names}.")
    text = [f"{survey.name} at effort {effort}: asks {len(chosen)} language models and trains none"]
    for checkpoint in chosen:
        exams = survey.exams(checkpoint, effort)
        text += ["", *(f"{checkpoint.source}: {_about(exam)}" for exam in exams)]
        total, done = sum(exam.prompts for exam in exams), _done(exams, out / "ruler" / checkpoint.folder)
        text.append(f"  {done:,} of {total:,} answers are there; at most {_tokens(exams):,} tokens to read")
        said = command(survey.name, checkpoint, exams, effort)
        text += [f"  {said}", *([f"  {said} --published-bug"] if checkpoint.bug else [])]
    text += [
        "",
        f"Any other model: levelfield ruler MODEL --table {survey.name} --effort {effort} [--lengths 512,1024]",
    ]
    others: list[Effort] = [e for e in EFFORTS if e != effort]
    sizes = (f"{e} {sum(x.prompts for x in survey.exams(chosen[0], e)):,}" for e in others)
    return [*text, f"Answers of {chosen[0].source} at other efforts: {', '.join(sizes)}"]


def _about(exam: Exam) -> str:
    lengths = ", ".join(map(str, exam.lengths))
    return (
        f"{len(exam.variants)} prompts at each of {lengths} tokens, {exam.count} samples each, flavour {exam.flavour}, "
        f"template {exam.template}, seed {exam.seed}"
    )


def _tokens(exams: Sequence[Exam]) -> int:
    return sum(len(exam.variants) * exam.count * sum(exam.lengths) for exam in exams)


def _done(exams: Sequence[Exam], folder: Path) -> int:
    found = [p for p in longcontext.predictions(folder) if not p.outdated]
    return sum(any(exam.asks(p) for exam in exams) for p in found)


def command(name: str, checkpoint: Checkpoint, exams: Sequence[Exam], effort: Effort) -> str:
    """What asks a model all of it. Files that the user has to have are named as their authors name them."""
    words = ["levelfield ruler", checkpoint.source, "--table", name]
    words += ["--effort", effort] if effort != "paper" else []
    words += ["--tokenizer", checkpoint.tokenizer] if checkpoint.tokenizer else []
    sets = dict.fromkeys(t.dataset for exam in exams for t in exam.tasks if isinstance(t, Questions))
    words += [word for each in sets for word in (f"--{each}", FILES[each])]
    return " ".join([*words, "--essays", f"{ESSAYS}.json"])


def answers(survey: Survey, out: Path) -> list[MeasuredCell]:
    """Of everybody who was asked in `out`, in the places of the tables. What was asked in another way than the paper's
    has nothing printed beside it."""
    made: list[MeasuredCell] = []
    folders = sorted((out / "ruler").glob("*/")) if (out / "ruler").is_dir() else []
    for folder in folders:
        checkpoint, note = _recognised(survey, folder)
        wanted = {task.name for exam in survey.exams(checkpoint, "paper") for task in exam.variants}
        found = [p for p in longcontext.predictions(folder) if p.task in wanted]
        paper = survey.exams(checkpoint, "paper")[0]
        for (flavour, template, seed), group in longcontext.by_setting(found).items():
            same = (flavour, template) == (paper.flavour, paper.template)
            label = f"{folder.name} ({', '.join([flavour, template, *_size(group), *note])})"
            label += "" if seed == paper.seed else f", seed {seed}"
            for answer in survey.answers(checkpoint, longcontext.rows(group, label)):
                made.append(answer if same else replace(answer, printed=None))
    return made


def _recognised(survey: Survey, folder: Path) -> tuple[Checkpoint, list[str]]:
    """Which printed model answered in a folder, by what it is made of; where the folder is called like one that it is
    not, a note that says so."""
    named, path = survey.find(folder.name), folder / ANATOMY
    known = read_json(path) if path.exists() else {}
    layers, parameters = known.get("layers", ""), known.get("parameters", 0)
    found = survey.recognise(folder.name, layers, parameters)
    if found.printed or not named.printed:
        return found, []
    if not known:
        return found, [f"not beside {named.printed}: what the model is made of is not recorded"]
    return found, [
        f"not {named.printed}: {parameters:,} parameters in {layers} instead of {named.parameters:,} in {named.layers}"
    ]


def _size(group: Sequence[Prediction]) -> Iterator[str]:
    """How many samples a cell has, how many are to prompts of an earlier version, and whose essays they are where they
    are not the paper's."""
    counts: dict[tuple[str, int], int] = {}
    for p in group:
        counts[p.task, p.length] = counts.get((p.task, p.length), 0) + 1
    low, high = min(counts.values()), max(counts.values())
    yield f"n={low}" if low == high else f"n={low} to {high}"
    if outdated := sum(p.outdated for p in group):
        yield f"{outdated} outdated"
    yield from sorted({str(e) for p in group if (e := p.slices.get("essays")) and not str(e).startswith(ESSAYS)})


def verdict(survey: Survey, found: Sequence[MeasuredCell], printed: Sequence[Row]) -> str:
    """Of the models that were asked, if any; and of the printed ones by their numbers."""
    theirs = [MeasuredCell(row, row.get("model", ""), "printed", None) for row in printed]
    ours = f"Of the models asked here: {survey.verdict(found)} " if found else ""
    return f"{ours}By the printed numbers: {survey.verdict(theirs)}"


def write_report(survey: Survey, out: Path, to: Path, say: Say) -> None:
    """Says the tables and writes them."""
    printed = [row for p in survey.published for row in published.rows(p.paper, p.table)]
    data = printed_tables.TableData(
        survey.name,
        survey.claim,
        survey.deviations,
        printed,
        {printed_tables.cell_key(row): row.get("value", 0.0) for row in survey.recomputed()},
        {printed_tables.cell_key(row): sign for row in printed if (sign := survey.marks(row))},
        survey.legend,
        survey.across,
        found := answers(survey, out),
        verdict(survey, found, printed),
    )
    say(printed_tables.summary(data))
    if not data.measured:
        say(f"No model has been asked in {out} yet: `levelfield plan {survey.name}` says how.")
    for path in printed_tables.build(data, to / survey.name):
        say(f"Wrote {path}")
