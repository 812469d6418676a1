"""Prepares the arrays of tasks, checks them and describes them: `levelfield data prepare`, `verify` and `croissant`.

prepare("all", Path("data"), Sources(), say)
verify("recall", Path("data"), say)                 # every prepared folder of recall
verify("recall(pairs=6)", Path("data"), say)        # the folder of exactly that task
describe("recall", Path("data"), say)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from rich.progress import Progress as Bars
from rich.progress import TaskID

from levelfield import tasks
from levelfield.cli.console import Console, redraws
from levelfield.cli.streams import Say
from levelfield.data import card as cards
from levelfield.data import croissant, download, prepared
from levelfield.data.audit.view import View
from levelfield.engine.find import find_tasks, find_weights
from levelfield.files import write_text
from levelfield.spec import Effort, ForeignWeights, Progress, Task, UserError
from levelfield.user import own_data


@dataclass(frozen=True)
class Sources:
    """The places that official files come from.

    folder: of files that are here already; nothing is downloaded then. mirrors: addresses to ask first, to which the
    name of a file is appended.
    """

    folder: Path | None = None
    mirrors: Sequence[str] = ()


def prepare(name: str, root: Path, sources: Sources, say: Say, effort: Effort = "minutes") -> bool:
    """Builds the arrays of a task, of all tasks of a study at an effort, or of "all"; returns whether all were built.

    The weights of others that a study starts from are fetched, too, unless `sources` names a folder. Where one of
    several cannot be built, that is said and the others are built all the same; a single one raises UserError.
    """
    common = {"root": root, "sources": sources, "say": say}
    wanted = [(called, partial(prepare_one, called, task, **common)) for called, task in _called(name, effort)]
    if name != "all" and sources.folder is None:
        weights = find_weights(name, effort)
        wanted += [(each.name, partial(fetch_weights, each, **common)) for each in weights]
    if len(wanted) == 1:
        wanted[0][1]()
        return True
    built = [_built(called, build, say) for called, build in wanted]
    return all(built)


def _called(name: str, effort: Effort) -> list[tuple[str, Task]]:
    """Returns the tasks of that name, a study's or all, each with what it is called where that is said."""
    if name == "all":
        return [(each, tasks.find(each)) for each in tasks.names()]
    found = find_tasks(name, effort)
    return [(task.name if len(found) > 1 or task.reads else name, task) for task in found]


def _built(called: str, build: Callable[[], None], say: Say) -> bool:
    """Builds one of several; says why, and returns False, where it cannot be built."""
    try:
        build()
    except UserError as error:
        say(f"{called}: {error}")
        return False
    return True


def prepare_one(name: str, task: Task, root: Path, sources: Sources, say: Say) -> None:
    """Builds the arrays of one task, which is called `name` where that is said. Raises UserError."""
    folder = sources.folder
    with bars() as bar:
        show = shown(bar)
        if folder is None and prepared.wants_files(task, root):
            folder = download.fetch(task.archives, prepared.downloads(task, root), sources.mirrors, show)
        at = prepared.prepare(task, root, folder, show)
    say(f"{name}: {at}")


def describe(name: str, root: Path, say: Say, published: croissant.Publication, effort: Effort = "minutes") -> None:
    """Writes the Croissant file of a task, or of all tasks of a study, beside the arrays that are prepared in `root`.

    Raises UserError where there is no such task, or its arrays are not there or damaged.
    """
    found = find_tasks(name, effort)
    for task in found:
        at = prepared.folder(task, root)
        if not (at / prepared.MANIFEST).exists():
            raise UserError(f"{task.name} is not prepared in {root}: start with {_preparing(name, root)}.")
        say(f"Wrote {croissant.write(task, at, published)}")


def _preparing(name: str, root: Path) -> str:
    """Returns the command that prepares what is named in a folder; of a user's own file the flags that name columns are
    as they were given."""
    flags = ""
    if own_data.is_word(name):
        task = own_data.from_word(name)
        name = str(task.path)
        flags = " with the same flags" if task.text or task.symbols or task.channels else ""
    return f"`{prepared.command(name, root)}`{flags}"


def fetch_weights(weights: ForeignWeights, root: Path, sources: Sources, say: Say) -> None:
    """Downloads the files of weights that others trained, unless they are there. Raises UserError."""
    with bars() as bar:
        archives, target = download.archives_of(weights), prepared.downloads(weights, root)
        at = download.fetch(archives, target, sources.mirrors, shown(bar))
    say(f"{weights.name}: {at}")


def bars() -> Bars:
    """Returns bars for a terminal; elsewhere nothing, where an empty line would stand for them."""
    console = Console(stderr=True)
    return Bars(console=console, transient=True, disable=not redraws(console))


def shown(bar: Bars) -> Progress:
    """Returns a callable that shows progress as rows of `bar`; a total of 0 is not known."""
    rows: dict[str, TaskID] = {}

    def show(what: str, done: int, total: int) -> None:
        if what not in rows:
            rows[what] = bar.add_task(what, total=None)
        bar.update(rows[what], completed=done, total=total or None)

    return show


def verify(name: str, root: Path, say: Say, effort: Effort = "minutes") -> bool:
    """Checks every prepared folder of a task, whatever its settings, of the tasks of a study, or of "all", and says
    what is in it; returns whether all are sound. A task with settings, such as reach(range=16), is checked alone.

    Where several things are checked, the last line counts those that are sound and names the others. Raises UserError
    where there is no such task or nothing of it is prepared.
    """
    given = [] if name == "all" else find_tasks(name, effort)
    own = {task.name for task in given}
    at = [_folder(name, given[0], root)] if _has_settings(name) else _folders(name, root, own)
    folders = {each: verify_folder(each, given, say) for each in at}
    weights = [] if name == "all" else find_weights(name, effort)
    files = verify_downloads(own, root, say, weights)
    if len(folders) + len(files) > 1:
        say(f"\n{_summary(folders, files)}")
    return all(folders.values()) and all(files.values())


def _has_settings(name: str) -> bool:
    """Tells whether a task is named with settings in brackets. A user's file of data is not: its flags are its name."""
    return name.endswith(")") and not own_data.is_word(name) and "(" in name


def _folder(name: str, task: Task, root: Path) -> Path:
    """Returns the folder of exactly this task, called `name`. Raises UserError where it is not prepared."""
    at = prepared.folder(task, root)
    if at.is_dir():
        return at
    kind = name.partition("(")[0]
    others = f", or check those with other settings: `levelfield data verify {kind}`"
    some = any(root.glob(f"{task.name}-*"))
    raise UserError(f"{name} is not prepared in {root}: start with {_preparing(name, root)}{others if some else ''}.")


def _summary(folders: Mapping[Path, bool], files: Mapping[Path, bool]) -> str:
    """Returns "Sound: 2 of 3 folders and 1 of 1 downloaded files. Not sound: data/reach-3f2a." of what was checked."""
    kinds = {"folders": folders, "downloaded files": files}
    counts = [f"{sum(each.values())} of {len(each)} {kind}" for kind, each in kinds.items() if each]
    bad = [str(at) for each in kinds.values() for at, sound in each.items() if not sound]
    return f"Sound: {' and '.join(counts)}." + (f" Not sound: {', '.join(bad)}." if bad else "")


def _folders(name: str, root: Path, own: set[str]) -> list[Path]:
    """Returns the prepared folders of the tasks called `own`, or of all where that is empty. Raises UserError where
    there are none."""
    folders = [at for at in sorted(root.glob("*-*")) if at.is_dir() and not at.name.startswith(".")]
    folders = [at for at in folders if not own or at.name.rsplit("-", 1)[0] in own]
    if not folders:
        what = name if not own_data.is_word(name) else min(own)
        raise UserError(f"Nothing of {what} is prepared in {root}: start with {_preparing(name, root)}.")
    return folders


def verify_folder(at: Path, given: Sequence[Task], say: Say) -> bool:
    """Checks one prepared folder, then makes, keeps and says its card; returns whether it is sound. given: tasks that
    it may be of, beside those of levelfield."""
    errors = prepared.verify(at)
    card = None if errors else make_card(at, given)
    if card is not None:
        errors = [f"{error} (in {at.name})" for error in card.faults]
    other = "" if card is not None or not given else ", but made with other settings, code or files than it has now"
    other = ", a part that an audit made" if other and any(_is_part(at, task) for task in given) else other
    say(f"{at}: {f'sound{other}' if not errors else ''.join(f'{chr(10)}  {error}' for error in errors)}")
    if card is not None:
        say(f"\n{cards.markdown(card)}")
    return not errors


def make_card(at: Path, given: Sequence[Task]) -> cards.Card | None:
    """Makes a folder's card and keeps it there; None where its task is of another version, or a user's own and not
    among the `given` ones."""
    about = prepared.manifest(at)
    known = [task for task in (*given, _restore(about["settings"])) if task and _is_of(at, task)]
    if not known:
        return None
    task, kept = known[0], about.get("notes", ())
    notes = task.notes if isinstance(task, own_data.OwnData) else kept  # which may lack what older versions did not say
    with bars() as bar:
        card = cards.make(task, prepared.read(at), notes, bool(about.get("files")), shown(bar))
    with suppress(UserError):  # data in a folder that cannot be written is checked as well
        write_text(at / cards.CARD, cards.to_json(card))
    return card


def _is_of(at: Path, task: Task) -> bool:
    """Tells whether a folder holds this task's arrays; of one whose own files are gone nobody can."""
    try:
        return prepared.folder(task, at.parent) == at
    except UserError:
        return False


def _is_part(at: Path, task: Task) -> bool:
    """Tells whether a folder holds what an audit has made of this task's arrays."""
    settings = prepared.manifest(at)["settings"]
    if settings["kind"] != View.__name__:
        return False
    most = settings.get("most")
    return _is_of(at, View(task, most and tuple(most), settings.get("order"), settings.get("block")))


def _restore(settings: Mapping[str, Any]) -> Task | None:
    """Returns the task of levelfield that a manifest describes, if there is one."""
    known = {type(task).__name__: type(task) for task in map(tasks.find, tasks.names())}
    if settings["kind"] not in known:
        return None
    kind = known[settings["kind"]]
    names = {field.name for field in fields(kind)}
    later = {field.name for field in fields(kind) if field.metadata.get("added")}  # which older manifests lack
    given = {name: tuple(v) if isinstance(v, list) else v for name, v in settings.items() if name in names}
    return kind(**given) if names - later <= given.keys() else None


def verify_downloads(own: set[str], root: Path, say: Say, weights: Sequence[ForeignWeights] = ()) -> dict[Path, bool]:
    """Checks downloaded official files against their checksums, those of the tasks called `own` or of all where that
    is empty, and those of `weights`; returns, file by file, whether it is right."""
    right: dict[Path, bool] = {}
    readers = [task for task in map(tasks.find, tasks.names()) if not own or task.name in own]
    known = {prepared.downloads(task, root): task.archives for task in readers}
    known |= {prepared.downloads(each, root): download.archives_of(each) for each in weights}
    for folder, archives in known.items():
        for archive in archives if folder.is_dir() else ():
            errors = download.verify(archive, folder)
            if (folder / archive.name).exists():
                right[folder / archive.name] = not errors
                say(f"{folder / archive.name}: {errors[0] if errors else 'sound'}")
    return right
