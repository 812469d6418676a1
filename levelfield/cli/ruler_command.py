"""Implements the `ruler` command: asks the model that was named, and writes rows and figures.

choice = ModelChoice("models/mamba2-2.7b")
evaluate(choice, evaluations(EvalOptions(lengths=("1024",)), choice.name, Sources()), OutputOptions(), print)

Copies of the model that an engine places (`ruler_copies`) answer the same questions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from levelfield.cli.arguments import numbers, share, tokens
from levelfield.cli.console import Console
from levelfield.cli.ruler_options import EvalOptions, ModelChoice, OutputOptions, TextOptions
from levelfield.cli.ruler_tasks import ALL, at_hand, tasks, without_file
from levelfield.cli.score_table import ScoreTable, score_table
from levelfield.cli.streams import Say, say_all, several
from levelfield.engine.models import Loaded, Named
from levelfield.files import check_name, disk_errors, made, write_rows
from levelfield.longcontext import answers, damage, finite_logits, model_record, pace, runner
from levelfield.longcontext.evaluation import Evaluation, Overrides
from levelfield.longcontext.predictions import MOST_TOKENS, PREDICTIONS, LeftOut, Prediction, ended_thinking, settled
from levelfield.longcontext.reserved import reserved
from levelfield.longcontext.served import asking, wrappings
from levelfield.longcontext.served.way import Way
from levelfield.longcontext.served.wrappings import USUAL
from levelfield.longcontext.survey import BUG, Checkpoint, Survey
from levelfield.presets.options import names
from levelfield.report import longcontext as report
from levelfield.ruler import RULER, OfficialSet, Sources, Tokenizer, score
from levelfield.ruler.prompt.flavours import flavoured
from levelfield.runs import store
from levelfield.spec import UserError

SAID = "prompts to the model itself"


class Answerer(Protocol):
    """What has questions answered."""

    def answer(self, evaluations: Sequence[Evaluation], folder: Path, say: Say) -> bool:
        """Stores the answers that the folder lacks, and returns whether it has all of them then."""
        ...


@dataclass(frozen=True)
class Here:
    """A model in this process. threads: of the processor; None for as many as torch takes."""

    choice: ModelChoice
    runs_dir: Path
    threads: int | None = None

    def answer(self, evaluations: Sequence[Evaluation], folder: Path, say: Say) -> bool:
        if self.threads:
            import torch

            torch.set_num_threads(self.threads)
        loaded = load(self.choice, self.runs_dir, max(each.longest for each in evaluations))
        with disk_errors(folder, "--runs-dir"):
            _answer(loaded, named_model(self.choice, self.runs_dir), evaluations, folder)
        return True


def sources(texts: TextOptions) -> Sources:
    """Returns the texts that the options name."""
    return Sources(**{name: value or None for name, value in vars(texts).items()})


def evaluations(asked: EvalOptions, model: str, texts: Sources) -> tuple[Evaluation, ...]:
    """Makes the evaluations that the options describe: those of a printed table, or a free one. Raises UserError."""
    overrides = Overrides(
        lengths=numbers(asked.lengths, lambda text: tokens(text, MOST_TOKENS), "--lengths") or None,
        count=asked.count,
        seed=asked.seed,
        flavour=asked.flavour or None,
        template=asked.template or None,
        sources=texts,
    )
    return _of_table(asked, model, overrides) if asked.table else (_free(asked, overrides),)


def _free(asked: EvalOptions, overrides: Overrides) -> Evaluation:
    """Makes the default evaluation, with the fields that the options set."""
    chosen = tasks(asked.tasks or (ALL,), overrides.sources or Sources())
    depths = numbers(asked.depths, share, "--depths") or None
    return replace(overrides, tasks=chosen, depths=depths).apply(Evaluation())


def _of_table(asked: EvalOptions, model: str, overrides: Overrides) -> tuple[Evaluation, ...]:
    """Makes the evaluations of a survey's tables for this model, without questions whose file is not given."""
    if asked.tasks or asked.depths:
        raise UserError("--table chooses tasks and depths itself: leave out --tasks and --depths.")
    texts = overrides.sources or Sources()
    found = _printed(asked, model)
    return tuple(replace(overrides, tasks=at_hand(each.tasks, texts)).apply(each) for each in found)


def _printed(asked: EvalOptions, model: str) -> Sequence[Evaluation]:
    """Returns the evaluations of a survey's tables as they are, for this model. Raises UserError."""
    from levelfield.engine.find import load_survey

    survey: Survey = load_survey(asked.table or "")
    return survey.evaluations(survey.find(model), asked.effort)


def left_out(asked: EvalOptions, model: str, texts: Sources) -> Iterator[str]:
    """Yields a line that names tasks of "all" or of a printed table whose files are not given, where there are any."""
    if asked.table:
        yield from without_file([task for each in _printed(asked, model) for task in each.tasks], texts)
    elif ALL in (names(asked.tasks) or (ALL,)):
        yield from without_file(RULER, texts)


def with_own_template(
    evaluations: tuple[Evaluation, ...], choice: ModelChoice, runs_dir: Path, way: Way
) -> tuple[Evaluation, ...]:
    """Returns evaluations with the chat template of the model's tokenizer where that is asked for. Raises UserError."""
    own = [each.template == wrappings.OWN for each in evaluations]
    if way != USUAL and not all(own):
        raise UserError("--system and --thinking need a chat template: add --template own, the tokenizer's.")
    if not any(own):
        return evaluations
    tokenizer = tokenizer_of(choice, runs_dir)
    return tuple(wrappings.with_own_template(each, tokenizer, way) for each in evaluations)


def tokenizer_of(choice: ModelChoice, runs_dir: Path) -> Tokenizer:
    """Reads a model's tokenizer without its weights. Raises UserError."""
    named = named_model(choice, runs_dir)
    if named.trained_here:
        return named.text().tokenizer
    from levelfield import pretrained
    from levelfield.pretrained.locate import resolve_model_path

    return pretrained.tokenizer_of(choice.tokenizer, resolve_model_path(choice.name, weights=False))


def evaluate(
    choice: ModelChoice,
    evaluations: Sequence[Evaluation],
    output: OutputOptions,
    say: Say,
    *,
    by: Answerer | None = None,
    way: Way = USUAL,
) -> bool:
    """Asks for the missing answers, scores all that are stored, writes rows and figures; whether nothing is missing.

    by: what answers; None for the model in this process. way: the system prompt and the tokens to think of chats.
    """
    folder, whole = folder_of(choice, output.runs_dir), True
    damage.check(folder)
    if output.rescore:
        check_stored(folder)
    else:
        check(evaluations)
        with reserved(folder, output.report_dir, say):
            check_lengths(choice, output.runs_dir, evaluations)
            made(output.report_dir, "--report-dir")  # before hours of answers, not after
            said = way.sentence(wrappings.OWN, SAID)
            asking.note_ways(folder, {each.template: said for each in evaluations if each.around})
            whole = (by or Here(choice, output.runs_dir)).answer(evaluations, folder, say)
    asked = () if output.rescore else evaluations
    found = conclude(folder, output.report_dir, say, asked=asked)
    here = named_model(choice, output.runs_dir).trained_here
    broken = list(diverged(found, "" if here else model_record.precision_of(folder)))
    say_all(broken, say)
    return whole and not broken


def conclude(folder: Path, report_dir: Path, say: Say, *, asked: Sequence[Evaluation] = ()) -> list[Prediction]:
    """Scores all answers of a folder, writes rows and report, and says what a reader must know. Returns the answers.

    asked: whose samples without an answer are named; () for all of the folder.
    """
    (found, left), scores = answers.with_left_out(folder), answers.score(folder)
    say(f"Wrote {folder / PREDICTIONS}: {len(found)} answers")
    say_all(skipped([one for one in left if not asked or any(each.covers(one) for each in asked)]), say)
    _draw(folder, scores, report_dir, say)
    _write(folder, scores, say)
    say_all((*ended_thinking(found), *_outdated(found), *_beyond(folder, found)), say)
    return found


def folder_of(choice: ModelChoice, runs_dir: Path) -> Path:
    """Returns the folder of a model's answers. Raises UserError for a name that cannot be that of a folder."""
    label = Checkpoint("", choice.name).folder + (BUG if choice.reference_bug else "")
    check_name("model", label)
    return runs_dir / "ruler" / label


def check_stored(folder: Path) -> None:
    if not answers.predictions(folder):
        raise UserError(f"There are no predictions in {folder}: leave out --rescore to make some.")


def check(evaluations: Sequence[Evaluation]) -> None:
    """Raises UserError for errors that can be found before a model is loaded.

    These are unknown variants and templates, missing source files, and lengths too short for an answer.
    """
    for each in evaluations:
        flavoured(each.flavour)
        if each.around is None:
            wrappings.check_template(each.template)
        least = min(task.answer_tokens for task in each.tasks)
        if min(each.lengths) <= least:
            raise UserError(
                f"A length of {min(each.lengths)} has no room for a prompt, since answers may take {least} tokens: "
                "give longer --lengths."
            )
        each.sources.check()
        for task in each.tasks:
            if isinstance(task, OfficialSet):
                task.check(each.sources, each.lengths)


def check_lengths(choice: ModelChoice, runs_dir: Path, evaluations: Sequence[Evaluation]) -> None:
    """Raises UserError for lengths beyond a table of positions, before a weight is read."""
    most = max_length(choice, runs_dir)
    for each in evaluations:
        runner.check_lengths(choice.name, most, each, each.thinking, ", or less --thinking" * bool(each.thinking))


def named_model(choice: ModelChoice, runs_dir: Path) -> Named:
    return Named(choice.name, runs_dir, choice.tokenizer, choice.precision, reference_bug=choice.reference_bug)


def max_length(choice: ModelChoice, runs_dir: Path) -> int | None:
    """Returns the most tokens that the model takes, if its positions are a table; None otherwise."""
    return named_model(choice, runs_dir).max_length()


def load(choice: ModelChoice, runs_dir: Path, length: int = 1) -> Loaded:
    """Loads a run that was trained here, or a checkpoint. length: of the longest question, which has to fit, too.

    Raises UserError where it cannot be read or does not fit.
    """
    return named_model(choice, runs_dir).load(choice.device, length)


def _answer(loaded: Loaded, named: Named, evaluations: Sequence[Evaluation], folder: Path) -> None:
    """Records the model, and generates the answers that the folder does not have yet, with a table of scores."""
    from levelfield.pretrained.anatomy import anatomy

    model, tokenizer, mark, batching = loaded
    for each in evaluations:
        runner.check(model, each)
    known = answers.stored(folder)
    finite_logits.check(model, tokenizer, evaluations, known, named.precision, trained_here=named.trained_here)
    model_record.claim(folder, model=mark, tokenizer=tokenizer.name, precision=named.precision)
    layers, parameters = anatomy(model)
    model_record.note_anatomy(folder, layers, parameters, model.made_for)
    with shown_scores(evaluations) as show, pace.noted(folder, show) as watched:
        runner.evaluate(model, tokenizer, evaluations, folder, watched, batching=batching)


@contextmanager
def shown_scores(evaluations: Sequence[Evaluation]) -> Iterator[Callable[[Prediction, bool], None]]:
    """Yields a function that shows an answer, in a table of scores so far."""
    names = tuple(dict.fromkeys(task.name for each in evaluations for task in each.tasks))
    lengths = sorted({length for each in evaluations for length in each.lengths})
    seen: list[Prediction] = []

    def show(found: Prediction, new: bool) -> None:
        seen.append(found)
        _show(shown, found, new)

    with score_table(Console(), names, lengths, sum(each.prompts for each in evaluations)) as shown:
        yield show
        if any(found.think_open for found in seen):
            shown.clear()
            for found in settled(seen):
                _show(shown, found, new=False)


def _show(shown: ScoreTable, found: Prediction, new: bool) -> None:
    if found.withheld:
        return
    broken = found.status == "diverged"
    match = None if broken else 100 * score(found.ruler_task, found.scored_text, found.references).match
    shown.add(found.base_task, found.length, match, new)


def _draw(folder: Path, scores: Sequence[answers.SettingScores], report_dir: Path, say: Say) -> None:
    """Writes the report: page, tables and figures."""
    to = report_dir / f"ruler-{folder.name}"
    stored = Path(os.path.relpath((folder / PREDICTIONS).resolve(), to.resolve())).as_posix()
    parts = [
        report.Part(s.name, s.rows, s.baselines, s.gaps, s.failures, variant=s.variant, stored=stored) for s in scores
    ]
    with disk_errors(report_dir, "--report-dir"):
        for path in report.build(folder.name, parts, to):
            say(f"Wrote {path}")


def _write(folder: Path, scores: Sequence[answers.SettingScores], say: Say) -> None:
    """Writes the rows beside the answers."""
    path = folder / store.ROWS
    with disk_errors(folder, "--runs-dir"):
        write_rows(path, [row for each in scores for row in each.rows])
    say(f"Wrote {path}")


def skipped(left: Sequence[LeftOut]) -> Iterator[str]:
    """Yields a line for each task and length with samples that cannot have an answer, and one for those that may."""
    cells: dict[tuple[str, int, bool], list[LeftOut]] = {}
    for one in left:
        cells.setdefault((one.task, one.length, one.unanswered), []).append(one)
    for (task, length, _), group in cells.items():
        yield f"Left out of {task} at {length}: {several(len(group), 'sample')}. {group[0].why}"


def _outdated(found: Sequence[Prediction]) -> Iterator[str]:
    """Yields a line for each task with answers to prompts of an earlier version."""
    counts: dict[str, int] = {}
    for p in found:
        counts[p.task] = counts.get(p.task, 0) + p.outdated
    for task, count in counts.items():
        if count:
            yield (
                f"{count} answers of {task} are to prompts of an earlier version of it: run again without --rescore. "
                "Only those whose prompt has changed are generated again."
            )


def _beyond(folder: Path, found: Sequence[Prediction]) -> Iterator[str]:
    """Yields a line if the model was not made for some of the lengths of these answers."""
    made_for = model_record.positions(folder)
    past = sorted({p.length for p in found if made_for is not None and p.length > made_for})
    if past:
        lengths = ", ".join(map(str, past))
        made = f"{folder.name} was made for {made_for:,} positions"
        yield f"{made}: lengths of {lengths} tokens exceed them."


def diverged(found: Sequence[Prediction], precision: str) -> Iterator[str]:
    """Yields a line if logits were not finite. precision: of the answers."""
    broken = sum(p.status == "diverged" for p in found)
    if broken:
        yield (
            f"The model's logits were NaN or infinite in {broken} of {len(found)} answers, which are marked: "
            f"{finite_logits.remedy(precision, stored=True)}."
        )
