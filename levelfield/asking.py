"""The `ruler` command: loads the model that was named, asks it, and writes rows and figures.

ask(Asked("models/mamba2-2.7b"), Exam(lengths=(1024,)), rescore=False, to=Path("report"), say=print)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console

from levelfield import longcontext, store
from levelfield.board import Board, board
from levelfield.disk import explained, locked
from levelfield.longcontext import Exam, Prediction
from levelfield.report import context
from levelfield.ruler import RULER, Needle, Questions, RulerTask, named, score, sweep
from levelfield.spec import UserError

if TYPE_CHECKING:
    from levelfield.foreign import LanguageModel, Tokenizer
    from levelfield.foreign.assemble import Precision

Say = Callable[[str], None]
Number = TypeVar("Number", int, float)


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
        label = self.name.rstrip("/").rsplit("/", 1)[-1]
        label += "-published-bug" if self.published_bug else ""
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
        "all": tuple(t for t in RULER if not isinstance(t, Questions) or given[t.dataset]),
        "needles": tuple(t for t in RULER if isinstance(t, Needle)),
        "sweep": sweep(),
    }
    parts = [part for word in words for part in word.split(",") if part]
    found = [task for part in parts for task in (groups[part] if part in groups else (named(part),))]
    for task in found:
        if isinstance(task, Questions) and not given[task.dataset]:
            raise UserError(f"{task.name} needs its official file: add --{task.dataset} FILE.")
    return tuple(dict.fromkeys(found))


def ask(asked: Asked, exam: Exam, rescore: bool, to: Path, say: Say) -> None:
    """Generates what is missing, then writes the rows of everything that is stored, and their figures."""
    folder = asked.folder
    if rescore:
        if not longcontext.predictions(folder):
            raise UserError(f"There are no predictions in {folder}: leave out --rescore to make some.")
    else:
        with explained(folder, "--out"):
            folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / ".lock", "--out"), explained(folder, "--out"):
            _answer(asked, exam, folder)
    found = longcontext.predictions(folder)
    rows = longcontext.rows(found, folder.name)
    store.write_rows(folder / "rows.jsonl", rows)
    say(f"Wrote {folder / longcontext.PREDICTIONS}: {len(found)} answers")
    say(f"Wrote {folder / 'rows.jsonl'}")
    for path in context.build(rows, longcontext.baseline_rows(folder), to / f"ruler-{folder.name}"):
        say(f"Wrote {path}")
    broken = sum(p.status == "diverged" for p in found)
    if broken:
        say(f"{broken} of {len(found)} answers ended in logits that are no numbers: try --precision float32.")


def _answer(asked: Asked, exam: Exam, folder: Path) -> None:
    model, tokenizer, mark = load(asked)
    facts = {"model": mark, "tokenizer": tokenizer.name, "precision": asked.precision}
    longcontext.claim(folder, facts)
    names = tuple(dict.fromkeys(task.name for task in exam.tasks))
    with board(Console(), names, sorted(exam.lengths), exam.prompts) as shown:
        wanted = {(name, length) for name in names for length in exam.lengths}
        for old in longcontext.predictions(folder):
            if (old.task.partition("@")[0], old.length) in wanted and old.index < exam.count and _same(old, exam):
                _show(shown, old, new=False)
        longcontext.answer(model, tokenizer, exam, folder, lambda new: _show(shown, new))


def _same(old: Prediction, exam: Exam) -> bool:
    return (old.seed, old.flavour, old.template) == (exam.seed, exam.flavour, exam.template)


def _show(shown: Board, found: Prediction, new: bool = True) -> None:
    match = 100 * score(found.ruler_task, found.text, found.references).match
    shown.add(found.task.partition("@")[0], found.length, match, new)


def load(asked: Asked) -> tuple[LanguageModel, Tokenizer, str]:
    """Model, tokenizer, and what tells this model from another one of the same name."""
    from levelfield import foreign
    from levelfield.foreign.places import find
    from levelfield.foreign.trained import trained
    from levelfield.loading import find_run
    from levelfield.run import load_net, pick_device

    device = str(pick_device(asked.device))
    if (asked.out / asked.name / "spec.json").exists():
        run = find_run(asked.name, asked.out)
        where = store.directory(asked.out, run)
        if not store.complete(where):
            raise UserError(f"{run.id} is not complete: run its study first.")
        return *trained(run, load_net(run, where), device), run.id
    model, tokenizer = foreign.load(
        asked.name, asked.tokenizer, device, asked.precision, published_bug=asked.published_bug
    )
    return model, tokenizer, longcontext.fingerprint(find(asked.name))
