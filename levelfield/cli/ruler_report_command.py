"""Implements `report ruler`: writes reports of stored answers, of one model or of two beside each other.

    report(("mamba2-2.7b", "transformerpp-2.7b"), Path("runs"), Path("report"), print)

Nothing is asked again, and no model is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from levelfield.cli import ruler_command
from levelfield.cli.streams import Say, say_all
from levelfield.files import disk_errors
from levelfield.longcontext import damage
from levelfield.longcontext.model_record import precision_of, tokenizer_of
from levelfield.longcontext.pairing import Pairing, pairings
from levelfield.longcontext.predictions import PREDICTIONS, Prediction
from levelfield.report import side_by_side
from levelfield.spec import UserError, closest


def report(names: Sequence[str], runs_dir: Path, report_dir: Path, say: Say) -> None:
    """Writes the report of one model, or of two on the questions that both were asked. Raises UserError."""
    if not 1 <= len(names) <= 2:
        raise UserError("Name one model that was asked, or two to set them beside each other.")
    folders = [find(name, runs_dir) for name in names]
    if len(folders) == 1:
        stored = ruler_command.conclude(folders[0], report_dir, say)
        say_all(ruler_command.diverged(stored, precision_of(folders[0])), say)
        return
    first, second = folders
    if first == second:
        raise UserError(f"{names[0]} and {names[1]} are the same answers: name two models.")
    found, models = pairings(first, second), labels(first, second)
    if not found:
        raise UserError(
            f"{models[0]} and {models[1]} were asked no question in common: ask both with the same tasks, lengths, "
            "seed, variant, essays and official files."
        )
    parts = [part(pairing, models, (first, second)) for pairing in found]
    for each in parts:
        say(f"{each.name}: {len(each.questions):,} questions in common. {side_by_side.decided(models, each)}")
        say_all(each.notes, say)
    to = report_dir / f"ruler-{models[0]}-and-{models[1]}".replace("/", "-")
    with disk_errors(report_dir, "--report-dir"):
        for path in side_by_side.build(models, parts, to):
            say(f"Wrote {path}")


def find(name: str, runs_dir: Path) -> Path:
    """Returns the folder of a model's answers, by its name in the folder of runs or by its path. Raises UserError."""
    for folder in (runs_dir / "ruler" / name, Path(name)):
        if (folder / PREDICTIONS).is_file():
            damage.check(folder)
            return folder.resolve()
    known = sorted(path.parent.name for path in (runs_dir / "ruler").glob(f"*/{PREDICTIONS}"))
    fix = closest(name, known) if known else "`levelfield ruler MODEL` asks one."
    raise UserError(f"There are no answers of '{name}' in {runs_dir / 'ruler'}: {fix}")


def labels(first: Path, second: Path) -> side_by_side.Models:
    """Names two folders by what tells them apart: a/ruler/m and a/ruler/n are m and n; b/ruler/m is b/m beside a/m."""
    apart = next(pair for pair in zip(reversed(first.parts), reversed(second.parts), strict=False) if len({*pair}) > 1)
    if apart == (first.name, second.name):
        return apart
    return f"{apart[0]}/{first.name}", f"{apart[1]}/{second.name}"


def part(pairing: Pairing, models: side_by_side.Models, folders: tuple[Path, Path]) -> side_by_side.Part:
    """Returns what the report shows of questions in common. models: what the two are called."""
    templates = pairing.templates[0] if len(set(pairing.templates)) == 1 else " and ".join(pairing.templates)
    questions = [
        side_by_side.PairedQuestion(
            task=pair.first.task,
            length=pair.first.length,
            sample=pair.first.index,
            depth=pair.first.shown_depths,
            expected=", ".join(pair.first.references),
            answered=(pair.first.scored_text, pair.second.scored_text),
            scores=pair.scores,
            question=pair.first.question or pair.second.question,
        )
        for pair in pairing.pairs
    ]
    name = f"{pairing.variant}, {templates}, seed {pairing.seed}"
    return side_by_side.Part(name, pairing.variant, questions, [*_notes(pairing, models), *_counted(folders)])


def _notes(pairing: Pairing, models: tuple[str, str]) -> Iterator[str]:
    if not pairing.put_alike:
        yield (
            f"{models[0]} was asked by the template {pairing.templates[0]} and {models[1]} by {pairing.templates[1]}: "
            "differences are those of a model with its template."
        )
    for model, way in zip(models, pairing.ways, strict=True):
        if way:
            yield f"{model}: asked by {way}."
    for model, alone in zip(models, pairing.alone, strict=True):
        if alone:
            yield f"{alone:,} answers of {model} have no counterpart, or an outdated one, and are left out here."
    yield from _diverged(models[0], [pair.first for pair in pairing.pairs])
    yield from _diverged(models[1], [pair.second for pair in pairing.pairs])


def _diverged(model: str, answers: Sequence[Prediction]) -> Iterator[str]:
    if broken := sum(answer.status == "diverged" for answer in answers):
        yield (
            f"The logits of {model} were NaN or infinite in {broken:,} of these {len(answers):,} answers, "
            "which count as wrong."
        )


def _counted(folders: tuple[Path, Path]) -> Iterator[str]:
    """Yields a sentence where two tokenizers count lengths."""
    counted = [tokenizer_of(folder) for folder in folders]
    if len(set(counted)) > 1 and all(counted):
        yield "Lengths are in tokens of each model's own tokenizer, so the text around what is asked for may differ."
