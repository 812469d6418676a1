"""Finds the tasks that `levelfield ruler` is asked for by name, and says which of them lack their official file.

tasks(("needles", "vt"), Sources())              # the eight tasks of needles, and vt
without_file(RULER, Sources(squad="dev.json"))   # the line "Left out: qa_2 (add --hotpot)."
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from levelfield.presets.options import names
from levelfield.ruler import BEYOND, OFFICIAL, RULER, Needle, OfficialSet, Questions, RulerTask, Sources, sweep
from levelfield.spec import UserError, closest

ALL = "all"


def tasks(words: Sequence[str], texts: Sources) -> tuple[RulerTask, ...]:
    """Finds tasks by name, or "all", "needles", "sweep" and "beyond", or one set, such as "walks" or "helmet".

    "all" has no questions whose file is not given. Raises UserError for an unknown name, and for questions without
    their file.
    """
    groups: dict[str, tuple[RulerTask, ...]] = {
        ALL: at_hand(RULER, texts),
        "needles": tuple(t for t in RULER if isinstance(t, Needle)),
        "sweep": sweep(),
        "beyond": BEYOND,
    }
    for task in (*BEYOND, *OFFICIAL):
        family = task.name.partition("_")[0]
        groups[family] = (*groups.get(family, ()), task)
    known = {task.name: (task,) for task in (*RULER, *BEYOND, *OFFICIAL)} | groups
    asked = names(words)
    if unknown := [part for part in asked if part not in known]:
        near = closest(unknown[0], [*known], "levelfield ruler --help")
        sets = f"choose one of the sets {', '.join(groups)}, or tasks such as niah_single_1 and vt."
        raise UserError(f"RULER has no task '{unknown[0]}': {near if near.endswith('?') else sets}")
    found = [task for part in asked for task in known[part]]
    for task in found:
        if isinstance(task, Questions) and not _files(texts)[task.dataset]:
            raise UserError(f"{task.name} needs its official file: add --{task.dataset} FILE.")
        if isinstance(task, OfficialSet):
            task.named(texts)
    return tuple(dict.fromkeys(found))


def _files(texts: Sources) -> Mapping[str, bool]:
    """Tells which sets of questions have a file."""
    return {"squad": bool(texts.squad), "hotpot": bool(texts.hotpot)}


def at_hand(tasks: Sequence[RulerTask], texts: Sources) -> tuple[RulerTask, ...]:
    """Returns the tasks, except questions whose file is not given."""
    return tuple(task for task in tasks if not isinstance(task, Questions) or _files(texts)[task.dataset])


def without_file(tasks: Iterable[RulerTask], texts: Sources) -> Iterator[str]:
    """Yields a line that names the questions whose file is not given, and their options, where there are any."""
    files = _files(texts)
    asked = [task for task in dict.fromkeys(tasks) if isinstance(task, Questions) and not files[task.dataset]]
    if asked:
        options = ", ".join(f"--{task.dataset}" for task in asked)
        yield f"Left out: {', '.join(task.name for task in asked)} (add {options})."
