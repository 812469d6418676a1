"""Says what an audit will read and which rules it will score, before it does; `plan` says the same of its runs.

    for line in lines(task, "minutes", folders, progress):
        print(line)

    What is read: own_reviews, 900 examples (630 of train, 90 of val, 180 of test), at most 23 steps
    Facts that need no model: sizes, balance, duplicates and other leaks between splits
    Rules without a sequence model: 12 (length, first 1, ..., 5-grams), also in 5 folds; 3 of them scored before

Nothing is kept. What a user wrote, data or the code of a task, is built for it, so that whatever is wrong there is said
here as the audit would say it. A task that ships with levelfield is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from levelfield.data import prepared
from levelfield.data.audit.view import View
from levelfield.engine import audit as auditing
from levelfield.engine.audit import Folders
from levelfield.presets import audit
from levelfield.spec import SPLITS, Effort, Examples, Progress, SplitName, Task
from levelfield.user.own_data import OwnData


def lines(task: Task, effort: Effort, folders: Folders, progress: Progress) -> Iterator[str]:
    """Yields a line on what is read, one on facts and one on rules.

    Raises UserError for data that cannot be audited, as `auditing.measure` and what precedes it do.
    """
    base = audit.seen(task, effort)
    yield f"What is read: {_read(task, base, _known(task, folders, progress), folders)}"
    where = auditing.folder(task, effort, folders)
    before = ", stated before" if (where / auditing.FACTS).exists() else ""
    yield f"Facts that need no model: sizes, balance, duplicates and other leaks between splits{before}"
    missing = auditing.unscored(task, where)
    rules = list(auditing.rules(task))
    folded = f", also in {auditing.folds.FOLDS} folds" if auditing.in_folds(task, base) else ""
    scored = f"; {len(rules) - len(missing)} of them scored before" if len(missing) < len(rules) else ""
    yield f"Rules without a sequence model: {len(rules)} ({', '.join(rules)}){folded}{scored}"


def _read(task: Task, base: Task, splits: Mapping[SplitName, Examples] | None, folders: Folders) -> str:
    """Returns what is read, and how much of it rules and models take, which see `base`. splits: None if not known."""
    documents = f" in each of {task.documents} inputs" if task.documents > 1 else ""
    long = f"at most {task.max_length:,} steps{documents}"
    if splits is None:
        missing = prepared.wants_files(task, folders.data)
        of = f"whose {'official files are downloaded' if missing else 'examples are made'} first"
        most = f"; rules and models take at most {_numbers(base.most)}" if isinstance(base, View) and base.most else ""
        return f"{task.name}, {of}, {long}{most}"
    counts = [len(splits[split]) for split in SPLITS]
    whole = f"{task.name}, {sum(counts):,} examples ({_numbers(counts)}), {long}"
    if not isinstance(base, View):
        return whole
    taken = [len(base.chosen(splits[split], split)) for split in SPLITS]
    return whole if taken == counts else f"{whole}; rules and models take {_numbers(taken)}"


def _numbers(counts: list[int] | tuple[int, ...]) -> str:
    return ", ".join(f"{count:,} of {split}" for count, split in zip(counts, SPLITS, strict=True))


def _known(task: Task, folders: Folders, progress: Progress) -> Mapping[SplitName, Examples] | None:
    """Returns the splits where they are prepared, or built from what a user wrote; None of others."""
    if prepared.is_there(task, folders.data):
        return prepared.read(prepared.folder(task, folders.data))
    ships = type(task).__module__.startswith("levelfield.") and not isinstance(task, OwnData)
    if ships or prepared.wants_files(task, folders.data):
        return None
    return prepared.build(task, prepared.remembered(task, folders.data), progress)
