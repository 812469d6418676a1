"""Implements `plan` and `report` for surveys, which evaluate language models and train none.

lines(survey, "paper", "", Path("runs"))                                     the commands, and what is done
write_report(survey, Path("runs"), Path("report"), print)                    printed tables and ours
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from levelfield import published
from levelfield.cli.streams import Say
from levelfield.longcontext.answers import predictions
from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.survey import Checkpoint, Survey
from levelfield.longcontext.survey_answers import ESSAYS, answers
from levelfield.report import printed_tables
from levelfield.ruler import Questions
from levelfield.spec import EFFORTS, Effort, Row, UserError
from levelfield.spec.study import MeasuredCell

FILES = {"squad": "dev-v2.0.json", "hotpot": "hotpot_dev_distractor_v1.json"}


def lines(survey: Survey, effort: Effort, pattern: str, out: Path) -> list[str]:
    """Returns the lines of a plan. pattern: of models; "" for all. Raises UserError where it matches none."""
    chosen = _chosen(survey, pattern)
    text = [f"{survey.name} at effort {effort}: asks {len(chosen)} language models and trains none"]
    for checkpoint in chosen:
        evaluations = survey.evaluations(checkpoint, effort)
        text += ["", *(f"{checkpoint.source}: {_about(each)}" for each in evaluations)]
        total, done = sum(each.prompts for each in evaluations), _done(evaluations, out / "ruler" / checkpoint.folder)
        text.append(f"  {done:,} of {total:,} answers are there; at most {_tokens(evaluations):,} tokens to read")
        said = command(survey.name, checkpoint, evaluations, effort)
        text += [f"  {said}", *([f"  {said} --reference-bug"] if checkpoint.bug else [])]
    text += [
        "",
        f"Any other model: levelfield ruler MODEL --table {survey.name} --effort {effort} [--lengths 512,1024]",
    ]
    others: list[Effort] = [e for e in EFFORTS if e != effort]
    sizes = (f"{e} {sum(x.prompts for x in survey.evaluations(chosen[0], e)):,}" for e in others)
    return [*text, f"Answers of {chosen[0].source} at other efforts: {', '.join(sizes)}"]


def to_json(survey: Survey, effort: Effort, pattern: str, out: Path) -> str:
    """Returns the same for other programs. Raises UserError where the pattern matches no model."""
    models = []
    for checkpoint in _chosen(survey, pattern):
        evaluations = survey.evaluations(checkpoint, effort)
        done, total = _done(evaluations, out / "ruler" / checkpoint.folder), sum(each.prompts for each in evaluations)
        models.append(
            {"model": checkpoint.source, "answers": total, "answered": done, "tokens": _tokens(evaluations)}
            | {"command": command(survey.name, checkpoint, evaluations, effort)}
        )
    return json.dumps({"study": survey.name, "effort": effort, "models": models}, indent=1)


def _chosen(survey: Survey, pattern: str) -> list[Checkpoint]:
    chosen = [c for c in survey.checkpoints if not pattern or fnmatchcase(c.source, pattern) or c.source == pattern]
    if not chosen:
        names = ", ".join(c.source for c in survey.checkpoints)
        raise UserError(f"{survey.name} has no model that matches '{pattern}': they are {names}.")
    return chosen


def _about(each: Evaluation) -> str:
    lengths = ", ".join(map(str, each.lengths))
    return (
        f"{len(each.tasks_at_depths)} prompts at each of {lengths} tokens, {each.count} samples each, "
        f"flavour {each.flavour}, template {each.template}, seed {each.seed}"
    )


def _tokens(evaluations: Sequence[Evaluation]) -> int:
    return sum(len(each.tasks_at_depths) * each.count * sum(each.lengths) for each in evaluations)


def _done(evaluations: Sequence[Evaluation], folder: Path) -> int:
    found = [p for p in predictions(folder) if not p.outdated]
    return sum(any(each.covers(p) for each in evaluations) for p in found)


def command(name: str, checkpoint: Checkpoint, evaluations: Sequence[Evaluation], effort: Effort) -> str:
    """Returns the command that evaluates a model. Files of the user are named as their authors name them."""
    words = ["levelfield ruler", checkpoint.source, "--table", name]
    words += ["--effort", effort] if effort != "paper" else []
    words += ["--tokenizer", checkpoint.tokenizer] if checkpoint.tokenizer else []
    sets = dict.fromkeys(t.dataset for each in evaluations for t in each.tasks if isinstance(t, Questions))
    words += [word for each in sets for word in (f"--{each}", FILES[each])]
    return " ".join([*words, "--essays", f"{ESSAYS}.json"])


def verdict(survey: Survey, found: Sequence[MeasuredCell], printed: Sequence[Row]) -> str:
    """Returns the verdict on the models evaluated here, if any, and on the printed ones by their numbers."""
    theirs = [MeasuredCell(row, row.get("model", ""), "printed", None) for row in printed]
    ours = f"Of the models asked here: {survey.verdict(found)} " if found else ""
    return f"{ours}By the printed numbers: {survey.verdict(theirs)}"


def contents(survey: Survey, out: Path) -> printed_tables.TableData:
    """Collects the printed tables, the cells measured in `out`, and the verdict."""
    printed = [row for p in survey.published for row in published.rows(p.paper, p.table)]
    found = answers(survey, out)
    return printed_tables.TableData(
        name=survey.name,
        claim=survey.claim,
        deviations=survey.deviations,
        printed=printed,
        recomputed={printed_tables.cell_key(row): row.get("value", 0.0) for row in survey.recomputed()},
        marks={printed_tables.cell_key(row): sign for row in printed if (sign := survey.marks(row))},
        legend=survey.legend,
        across=survey.across,
        measured=found,
        verdict=verdict(survey, found, printed),
    )


def write_report(survey: Survey, out: Path, to: Path, say: Say) -> None:
    """Prints the tables and writes them."""
    found = contents(survey, out)
    say(printed_tables.summary(found))
    if not found.measured:
        say(f"No model has been asked in {out} yet: `levelfield plan {survey.name}` says how.")
    for path in printed_tables.build(found, to / survey.name):
        say(f"Wrote {path}")
