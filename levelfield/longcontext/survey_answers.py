"""Collects the scores of every evaluated model, as cells of a survey's printed tables.

answers(survey, Path("runs"))      # a measured number beside each printed one that it can be compared with
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from levelfield.files import read_json
from levelfield.longcontext.answers import predictions
from levelfield.longcontext.predictions import Prediction
from levelfield.longcontext.rows import by_setting, rows
from levelfield.longcontext.survey import ANATOMY, Checkpoint, Survey
from levelfield.spec.study import MeasuredCell

ESSAYS = "PaulGrahamEssays"  # the name of the paper's own haystack


def answers(survey: Survey, out: Path) -> list[MeasuredCell]:
    """Returns the measured cells of every model with answers in `out`.

    A cell that was not evaluated as in the paper has no printed counterpart.
    """
    made: list[MeasuredCell] = []
    folders = sorted((out / "ruler").glob("*/")) if (out / "ruler").is_dir() else []
    for folder in folders:
        checkpoint, note = _recognised(survey, folder)
        evaluations = survey.evaluations(checkpoint, "paper")
        wanted = {task.name for each in evaluations for task in each.tasks_at_depths}
        found = [p for p in predictions(folder) if p.task in wanted]
        paper = evaluations[0]
        for (flavour, template, seed), group in by_setting(found).items():
            same = (flavour, template) == (paper.flavour, paper.template)
            label = f"{folder.name} ({', '.join([flavour, template, *_size(group), *note])})"
            label += "" if seed == paper.seed else f", seed {seed}"
            for answer in survey.answers(checkpoint, rows(group, label)):
                made.append(answer if same else replace(answer, printed=None))
    return made


def _recognised(survey: Survey, folder: Path) -> tuple[Checkpoint, list[str]]:
    """Finds the printed model of a folder's answers, by its layers and size.

    A note says if the folder has the name of a printed model but the answers of another.
    """
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
    """Yields notes: samples per cell, answers to prompts of an earlier version, and essays other than the paper's."""
    counts: dict[tuple[str, int], int] = {}
    for p in group:
        counts[p.task, p.length] = counts.get((p.task, p.length), 0) + 1
    low, high = min(counts.values()), max(counts.values())
    yield f"n={low}" if low == high else f"n={low} to {high}"
    if outdated := sum(p.outdated for p in group):
        yield f"{outdated} outdated"
    yield from sorted({str(e) for p in group if (e := p.slices.get("essays")) and not str(e).startswith(ESSAYS)})
