"""Loads the trained network of a run from a folder, and finds the user's own code that such a folder is to hold.

    load("runs/recall-attention-scratch-0-1a2b3c4d5e")                 # on the CPU, in eval mode
    load("exported/recall-mine-...", "exported/recall-mine-.../source/mine.py:Mine")
    code(read_json(where / "spec.json"))                               # what `export` adds: {"mine.py": b"..."}

No code of a user's own, and nobody else's either, is executed before it is named: a folder may come from anyone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from levelfield.engine.restore import Unknown, restored
from levelfield.runs import share, store
from levelfield.runs.results import Described
from levelfield.runs.share_card import CODE
from levelfield.spec import UserError
from levelfield.spec.identity import release
from levelfield.spec.shapes import fault
from levelfield.user import named
from levelfield.user.mixer import UserMixer

if TYPE_CHECKING:
    from levelfield.model import Network


def load(folder: str | PathLike[str], mixer: Any = "") -> Network:
    """Returns the trained network of a complete run, on the CPU and in eval mode.

    folder: the run's own, as runs/RUN_ID, or one that `levelfield export` wrote, which needs no import. mixer: of a
    model that is made of a user's own class its place, "FILE.py:Class" or "package.module:Class", or the class or
    function itself; it has the settings that the run had. Naming it executes its file.
    `net.hidden_states(x, mask)` is (B, T, D) float32 for x of (B, T) int64 ids or (B, T, C) float32 values and a mask
    of (B, T) bool, True at real steps, or None; `net.head(name, hidden, mask)`, of a name in `net.heads`, is
    (B, outputs), or (B, T, outputs) where the head answers at every step.
    Raises UserError where the folder is no run's or is not complete, where the weights are damaged, where the class is
    to be named, and where the run would be another today, as after a change of that class, of its data or of a version.
    """
    from levelfield.run import load_net

    folder = Path(folder)
    if not (folder / store.SPEC).is_file():
        raise UserError(f"{folder} is no folder of a run: give runs/RUN_ID, or one that `levelfield export` wrote.")
    run_id = share.described(folder)[0] if share.is_packed(folder) else folder.absolute().name
    return load_net(restored(folder / store.SPEC, mixer, run_id, partial(_unnamed, folder)), folder)


def _unnamed(folder: Path, error: Unknown, run_id: str) -> str:
    """Returns which class is to be named, and how."""
    if error.passed:
        made = f"{error.passed}, which was passed from Python: pass it again"
        return f"{run_id} is made of {made}, levelfield.load({str(folder)!r}, {error.passed})."
    file, _, name = error.place.rpartition(":")
    if own := [each for each in (folder / CODE / Path(file).name,) if file and each.is_file()]:
        call = f"levelfield.load({str(folder)!r}, '{own[0]}:{name}')"
        return f"{run_id} is made of {name}, whose source is {own[0]}: read it, and {call} executes it."
    place = error.place or "FILE.py:Class"
    return (
        f"{run_id} is made of {error.place or error}, which is not of levelfield: name it, "
        f"levelfield.load({str(folder)!r}, '{place}')."
    )


def code(spec: Any) -> tuple[Mapping[str, bytes], str]:
    """Returns the files of the user's own that the classes of a described run are made of, by their names in a folder,
    and a sentence on where they come from; ({}, "") of a model of levelfield's own mixers."""
    if fault(spec, Described):  # which whoever packs the run reports
        return {}, ""
    for each in spec["model"].get("mixers", ()):
        if each.get("kind") == UserMixer.__name__:
            return _code_of(each["path"], each["name"], each["source_sha256"])
    return {}, ""


def _code_of(place: str, name: str, sha256: str) -> tuple[Mapping[str, bytes], str]:
    if not place:
        return {}, f"Its mixer is {name}, which was passed from Python and is not here: pass it to `levelfield.load`."
    made = f"Its mixer is {place}:{name}"
    try:
        found = named.source(place)
    except UserError:
        return {}, f"{made}, whose source was not found when this was exported."
    if found.sha256 != sha256:
        return {}, f"{made}, which had changed since the run when this was exported, so its source is not here."
    if not found.content:
        return {}, f"{made}, of {release(place) or 'Python'}."
    files = named.below(place, found)
    if not files:
        return {}, f"{made}, whose source is not here, as it imports files outside of its folder."
    where = f"`{CODE}/`, which `levelfield import` neither reads nor executes"
    if named.is_file(place):
        return (
            files,
            f"Its mixer is {name} of {Path(place).name}. The source is in {where}, and `load` does execute it.",
        )
    return files, f"{made}. The source is in {where}: have Python find it there, as by PYTHONPATH={CODE}."
