"""The `ruler` command: loads the model that was named, asks it, and writes rows and figures.

asked = Asked("models/mamba2-2.7b")
ask(asked, exams(Wish(lengths=(1024,)), asked.name, Sources()), rescore=False, to=Path("report"), say=print)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console

from levelfield.cli.exam_screen import Board, board
from levelfield.cli.streams import Say
from levelfield.files import disk_errors, locked, write_json, write_rows
from levelfield.longcontext import exam as longcontext
from levelfield.longcontext.exam import Exam, LeftOut, Prediction
from levelfield.longcontext.survey import ANATOMY, BUG, Checkpoint
from levelfield.report import longcontext as context
from levelfield.ruler import RULER, Needle, Questions, RulerTask, Sources, named, score, sweep
from levelfield.ruler.prompt.flavours import flavoured
from levelfield.ruler.prompt.templates import split
from levelfield.runs import store
from levelfield.spec import Effort, UserError

if TYPE_CHECKING:
    from levelfield.pretrained import LanguageModel, Tokenizer
    from levelfield.pretrained.assemble import Precision

Number = TypeVar("Number", int, float)
LENGTHS, COUNT, SEED = (1024, 2048, 4096), 100, 42  # where the command line says nothing


@dataclass(frozen=True)
class Asked:
    """Who is asked, and how it computes."""

    name: str
    tokenizer: str = ""
    device: str = "auto"
    precision: Precision = "float32"
    published_bug: bool = False
    out: Path = Path("runs")

    @property
    def folder(self) -> Path:
        """Where its answers lie."""
        label = Checkpoint("", self.name).folder + BUG * self.published_bug
        store.check_name("model", label)
        return self.out / "ruler" / label


def numbers(words: Sequence[str], kind: Callable[[str], Number]) -> tuple[Number, ...]:
    """("1024,2048", "4096") -> (1024, 2048, 4096). Raises UserError for what is no number."""
    parts = [part for word in words for part in word.split(",") if part]
    try:
        return tuple(dict.fromkeys(kind(part) for part in parts))
    except ValueError as error:
        raise UserError(f"Not a number ({error}): give numbers with commas between them, such as 1024,2048.") from error


def tasks(words: Sequence[str], squad: bool, hotpot: bool) -> tuple[RulerTask, ...]:
    """Of names, "all", "needles" and "sweep". "all" leaves out the questions whose file was not given."""
    given = {"squad": squad, "hotpot": hotpot}
    groups: dict[str, tuple[RulerTask, ...]] = {
        "all": _at_hand(RULER, given),
        "needles": tuple(t for t in RULER if isinstance(t, Needle)),
        "sweep": sweep(),
    }
    parts = [part for word in words for part in word.split(",") if part]
    found = [task for part in parts for task in (groups[part] if part in groups else (named(part),))]
    for task in found:
        if isinstance(task, Questions) and not given[task.dataset]:
            raise UserError(f"{task.name} needs its official file: add --{task.dataset} FILE.")
    return tuple(dict.fromkeys(found))


def _at_hand(tasks: Sequence[RulerTask], given: Mapping[str, bool]) -> tuple[RulerTask, ...]:
    """Without the questions whose file was not given."""
    return tuple(task for task in tasks if not isinstance(task, Questions) or given[task.dataset])


@dataclass(frozen=True)
class Wish:
    """What the command line said of the exam; what it left open ("", (), None) is as usual, or as a table has it."""

    table: str = ""
    effort: Effort = "paper"
    lengths: tuple[int, ...] = ()
    tasks: tuple[str, ...] = ()
    depths: tuple[float, ...] = ()
    count: int | None = None
    seed: int = SEED
    flavour: str = ""
    template: str = ""


def exams(wish: Wish, model: str, texts: Sources) -> tuple[Exam, ...]:
    """The exam that was put together, or those of a printed table. Raises UserError."""
    if wish.table:
        return _of_table(wish, model, texts)
    return (
        Exam(
            tasks(wish.tasks or ("all",), bool(texts.squad), bool(texts.hotpot)),
            wish.lengths or LENGTHS,
            COUNT if wish.count is None else wish.count,
            wish.seed,
            wish.flavour or "sound",
            wish.template or "base",
            wish.depths,
            texts,
        ),
    )


def _of_table(wish: Wish, model: str, texts: Sources) -> tuple[Exam, ...]:
    """The exams of a study's tables for this model, without questions whose file was not given."""
    from levelfield.engine.find import load_survey

    survey = load_survey(wish.table)
    if wish.tasks or wish.depths:
        raise UserError("--table chooses tasks and depths itself: leave out --tasks and --depths.")
    given = {"squad": bool(texts.squad), "hotpot": bool(texts.hotpot)}
    made = []
    for exam in survey.exams(survey.find(model), wish.effort):
        known = _at_hand(exam.tasks, given)
        exam = replace(exam, tasks=known, sources=texts, seed=wish.seed, lengths=wish.lengths or exam.lengths)
        exam = exam if wish.count is None else replace(exam, count=wish.count)
        flavour, template = wish.flavour or exam.flavour, wish.template or exam.template
        made.append(replace(exam, flavour=flavour, template=template))
    return tuple(made)


def ask(asked: Asked, exams: Sequence[Exam], rescore: bool, to: Path, say: Say) -> None:
    """Generates what is missing, then writes the rows of everything that is stored, and their figures."""
    folder = asked.folder
    if rescore:
        if not longcontext.predictions(folder):
            raise UserError(f"There are no predictions in {folder}: leave out --rescore to make some.")
    else:
        for exam in exams:
            _check(exam)
        with disk_errors(folder, "--runs-dir"):
            folder.mkdir(parents=True, exist_ok=True)
        waits = f"Another process is asking in {folder}: waiting until it ends."
        with locked(folder / ".lock", "--runs-dir", lambda: say(waits)):
            most = reach(asked)
            for exam in exams:
                longcontext.check_lengths(asked.name, most, exam)
            loaded = load(asked)
            with disk_errors(folder, "--runs-dir"):
                _answer(asked, exams, folder, *loaded)
    found, left = longcontext.predictions(folder), longcontext.left_out(folder)
    say(f"Wrote {folder / longcontext.PREDICTIONS}: {len(found)} answers")
    for line in _told(left):
        say(line)
    parts = list(_parts(folder, found, left))
    rows = [row for part in parts for row in part.rows]
    with disk_errors(to, "--report-dir"):
        for path in context.build(folder.name, parts, to / f"ruler-{folder.name}"):
            say(f"Wrote {path}")
    with disk_errors(folder, "--runs-dir"):
        write_rows(folder / "rows.jsonl", rows)
    say(f"Wrote {folder / 'rows.jsonl'}")
    for line in (*_outdated(found), *_beyond(folder.name, longcontext.positions(folder), exams)):
        say(line)
    broken = sum(p.status == "diverged" for p in found)
    if broken:
        say(f"{broken} of {len(found)} answers ended in logits that are no numbers: try --precision float32.")


def _parts(folder: Path, found: Sequence[Prediction], left: Sequence[LeftOut]) -> Iterator[context.Part]:
    """What is shown of each flavour, template and seed. Where there are several, their rows say which."""
    settings = longcontext.by_setting(found)
    reach = longcontext.positions(folder)
    for setting, group in settings.items():
        own = "" if len(settings) == 1 else "-".join(map(str, setting))
        name = "-".join([folder.name, *([own] if own else [])])
        fewer = [x for x in left if (x.flavour, x.template, x.seed) == setting]
        rows = longcontext.rows(group, name, fewer, reach)
        yield context.Part(own, rows, longcontext.baseline_rows(folder, setting))


def _check(exam: Exam) -> None:
    """Raises UserError for what no tokenizer and no model could mend: names of flavours and templates, absent texts,
    lengths that an answer fills."""
    flavoured(exam.flavour)
    split(exam.template)
    least = min(task.answer_tokens for task in exam.tasks)
    if min(exam.lengths) <= least:
        raise UserError(
            f"A length of {min(exam.lengths)} has no room for a prompt, since answers may take {least} tokens: give "
            "longer --lengths."
        )
    exam.sources.check()


def reach(asked: Asked) -> int | None:
    """Steps that the model takes at most, where its positions are a table; no weight is read for it."""
    from levelfield.pretrained import positions_of

    trained_here = (asked.out / asked.name / "spec.json").exists()
    return None if trained_here else positions_of(asked.name).most


def _beyond(name: str, made_for: int | None, exams: Sequence[Exam]) -> Iterator[str]:
    """A line where the model was not made for some of the lengths."""
    past = sorted({n for exam in exams for n in exam.lengths if made_for is not None and n > made_for})
    if past:
        lengths = ", ".join(map(str, past))
        yield f"{name} was made for {made_for:,} positions: what it is asked at {lengths} tokens goes beyond them."


def _told(left: Sequence[LeftOut]) -> Iterator[str]:
    """A line for each cell."""
    cells: dict[tuple[str, int], list[LeftOut]] = {}
    for one in left:
        cells.setdefault((one.task, one.length), []).append(one)
    for (task, length), group in cells.items():
        yield f"Left out of {task} at {length}: {len(group)} samples. {group[0].why}"


def _outdated(found: Sequence[Prediction]) -> Iterator[str]:
    """A line for each task."""
    counts: dict[str, int] = {}
    for p in found:
        counts[p.task] = counts.get(p.task, 0) + p.outdated
    for task, count in counts.items():
        if count:
            yield (
                f"{count} answers of {task} are to prompts of an earlier version of it: ask again, without --rescore. "
                "Only those whose prompt has changed are read anew."
            )


def _answer(
    asked: Asked, exams: Sequence[Exam], folder: Path, model: LanguageModel, tokenizer: Tokenizer, mark: str
) -> None:
    from levelfield.pretrained.anatomy import anatomy

    for exam in exams:
        longcontext.check(model, exam)
    facts = {"model": mark, "tokenizer": tokenizer.name, "precision": asked.precision}
    longcontext.claim(folder, facts)
    longcontext.note_positions(folder, model.made_for)
    layers, parameters = anatomy(model)
    write_json(folder / ANATOMY, {"layers": layers, "parameters": parameters})
    names = tuple(dict.fromkeys(task.name for exam in exams for task in exam.tasks))
    lengths = sorted({length for exam in exams for length in exam.lengths})
    left: list[LeftOut] = []
    with board(Console(), names, lengths, sum(exam.prompts for exam in exams)) as shown:
        for exam in exams:
            left += longcontext.answer(model, tokenizer, exam, folder, lambda found, new: _show(shown, found, new))
    if left and len(left) == sum(exam.prompts for exam in exams):
        raise UserError(f"No prompt fits. {left[0].why}")
    longcontext.leave_out(folder, exams, left)


def _show(shown: Board, found: Prediction, new: bool) -> None:
    match = 100 * score(found.ruler_task, found.said, found.references).match
    shown.add(found.task.partition("@")[0], found.length, match, new)


def load(asked: Asked) -> tuple[LanguageModel, Tokenizer, str]:
    """Model, tokenizer, and what tells this model from another one of the same name."""
    from levelfield import pretrained
    from levelfield.engine.find import find_run
    from levelfield.pretrained import BYTES
    from levelfield.pretrained.from_run import trained
    from levelfield.pretrained.locate import find
    from levelfield.run import load_net, pick_device

    device = str(pick_device(asked.device))
    if (asked.out / asked.name / "spec.json").exists():
        run = find_run(asked.name, asked.out)
        where = store.directory(asked.out, run)
        if not store.complete(where):
            raise UserError(f"{run.id} is not complete: run its study first.")
        if asked.tokenizer not in ("", BYTES):
            raise UserError(f"{run.id} was trained here on bytes: leave out --tokenizer.")
        return *trained(run, load_net(run, where), device), run.id
    model, tokenizer = pretrained.load(
        asked.name, asked.tokenizer, device, asked.precision, published_bug=asked.published_bug
    )
    return model, tokenizer, longcontext.fingerprint(find(asked.name))
