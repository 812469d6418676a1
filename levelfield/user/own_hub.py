"""Finds a dataset on the Hugging Face hub by its name; its files are downloaded once, into the hub's own cache.

    parsed("nyu-mll/glue/cola@main")    # Name("nyu-mll/glue", "cola", "main"): a folder or file of it, and a revision
    pinned("stanfordnlp/imdb")          # "stanfordnlp/imdb@e6281661ce1c48d982bc483cf8a173c1bbeb5d31"

Which files are read is decided by their names, as in a folder, before any of them is downloaded: a dataset of many
configurations is refused at once, and splits that are not read are not downloaded. Nothing of a dataset is executed.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache
from glob import escape
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from levelfield.spec import UserError
from levelfield.spec.errors import format_error
from levelfield.user.own_folders import SAVED, Dataset

FORM = re.compile(r"(?P<dataset>\w[\w.-]*/[\w.-]+)(?:/(?P<inside>[^@:()]+))?(?:@(?P<revision>[\w./-]+))?")
ABOUT = ("README.md", ".gitattributes", *(f"*{name}" for name in SAVED))  # small files, which are downloaded first
CONVERTED = "refs/convert/parquet"  # the revision in which the hub keeps its own conversion of many datasets
Locate = Callable[[Path], Dataset]


class Name(NamedTuple):
    """What is named: a dataset, OWNER/NAME, a folder or file inside it, or "", and a branch, tag or commit, or ""."""

    dataset: str
    inside: str
    revision: str

    @property
    def place(self) -> str:
        return f"{self.dataset}/{self.inside}" if self.inside else self.dataset


class Found(NamedTuple):
    """A dataset that was downloaded: the commit that it is of, and its files in the cache."""

    commit: str
    files: Dataset


def parsed(text: str, endings: Collection[str]) -> Name | None:
    """Returns what text names on the hub; None for what is there as a file or folder, and for text of no such form.

    endings: of files that can be read; OWNER/NAME.csv is a file that is not there.
    """
    found = FORM.fullmatch(text)
    if found is None or Path(text).exists():
        return None
    ending = PurePosixPath(text).suffix.lower()
    if ending == ".py" or (ending in endings and not found["inside"]):
        return None
    return Name(found["dataset"], (found["inside"] or "").strip("/"), found["revision"] or "")


@cache
def dataset(name: Name, locate: Locate, endings: tuple[str, ...]) -> Found:
    """Returns a dataset's files, after a download of those that the cache has not. Raises UserError.

    locate: finds what is read in a folder. endings: of files that can be read.
    """
    hub = _package(name)
    asked = {"repo_id": name.dataset, "repo_type": "dataset", "revision": name.revision or None}
    with _in_words(hub, name), _without_bars(hub):
        folder = Path(hub.snapshot_download(**asked, allow_patterns=list(ABOUT)))
        listed = hub.get_cached_repo_tree(**asked | {"revision": folder.name})
    wanted = _wanted(name, [each.path for each in listed], folder, (locate, endings))
    if absent := [escape(each.file.as_posix()) for each in wanted.shards if not (folder / each.file).exists()]:
        with _in_words(hub, name):
            hub.snapshot_download(**asked | {"revision": folder.name}, allow_patterns=absent)
    return Found(folder.name, Dataset(tuple(s._replace(file=folder / s.file) for s in wanted.shards), wanted.unused))


def _package(name: Name) -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.errors
        import huggingface_hub.utils  # neither of which comes with the first
    except ImportError as error:
        raise UserError(
            f"There is no file or folder {name.place}: give the path of your data, or, to download the dataset "
            f"{name.dataset} from the Hugging Face hub, install its package: pip install 'levelfield[hub]'."
        ) from error
    return huggingface_hub


@contextmanager
def _without_bars(hub: Any) -> Iterator[None]:
    """Shows no progress meanwhile, as of files that take no time."""
    shown = not hub.utils.are_progress_bars_disabled()
    hub.utils.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            hub.utils.enable_progress_bars()


@contextmanager
def _in_words(hub: Any, name: Name) -> Iterator[None]:
    """Raises UserError, in a sentence, for what the hub, the network, the disk or the name is at fault with."""
    try:
        yield
    except Exception as error:  # each of these has types of its own
        raise UserError(_sentence(hub.errors, name, error)) from error


def _sentence(errors: Any, name: Name, error: Exception) -> str:
    given, here = name.dataset, f"There is no file or folder {name.place} here, and"
    if isinstance(error, errors.GatedRepoError):
        return (
            f"The dataset {given} is gated: ask for access on its page on the Hugging Face hub, then log in with "
            "`hf auth login`."
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"The dataset {given} has no revision {name.revision}: give a branch, tag or commit after the @."
    status = getattr(getattr(error, "response", None), "status_code", 0)
    if status == 401 or isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"{here} the Hugging Face hub has no dataset {given}, or does not show it to you: check the name, and log "
            "in with `hf auth login` if it is private."
        )
    if isinstance(error, errors.LocalEntryNotFoundError):
        return (
            f"{here} the Hugging Face hub cannot be reached for the dataset {given}, of which its cache has no whole "
            "copy: try again with a network, or give the path of your data."
        )
    if isinstance(error, errors.HFValidationError):
        return f"{here} the Hugging Face hub gives no dataset such a name: give the path of your data."
    return f"The dataset {given} could not be downloaded ({format_error(error)}): run the same command again."


def _wanted(name: Name, listed: list[str], about: Path, reader: tuple[Locate, tuple[str, ...]]) -> Dataset:
    """Returns the files to be read, relative to the dataset's folder, as `locate` finds them among empty ones.

    listed: all files of the dataset. about: folder that has the small ones. reader: `locate`, and endings.
    """
    locate, endings = reader
    files = [each for each in map(PurePosixPath, listed) if ".." not in each.parts and not each.is_absolute()]
    read = [each for each in files if each.suffix.lower() in (*endings, ".npy")]
    if not read:
        raise _nothing_to_read(name, files, endings)
    with TemporaryDirectory() as made:
        root = Path(made)
        for each in [*read, *(each for each in files if each.name in SAVED)]:
            (root / each).parent.mkdir(parents=True, exist_ok=True)
            (shutil.copy(about / each, root / each) if each.name in SAVED else (root / each).touch())
        places = [root / name.inside, root / "data" / name.inside]
        place = next((each for each in places if each.exists()), None)
        if place is None:
            there = sorted({str(each.parent) for each in read} - {"."}) or sorted(map(str, read))
            more = ", and others" if len(there) > 5 else ""
            raise UserError(f"The dataset {name.dataset} has no {name.inside}: it has {', '.join(there[:5])}{more}.")
        try:
            found = locate(place)
        except UserError as error:
            raise UserError(str(error).replace(made, name.dataset)) from error
        return Dataset(tuple(s._replace(file=s.file.relative_to(root)) for s in found.shards), found.unused)


def _nothing_to_read(name: Name, files: list[PurePosixPath], endings: Collection[str]) -> UserError:
    others = sorted({each.suffix for each in files if each.suffix} - {".md"})
    kinds = f", only {', '.join(others[:5])}" if others else ""
    converted = f"{name.dataset}@{CONVERTED}"
    return UserError(
        f"The dataset {name.dataset} has no files that are read here ({', '.join(endings)}){kinds}, and a script is "
        f"not run: try {converted}, where the hub may have converted it, or convert it and give the path."
    )
