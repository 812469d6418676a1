"""Makes runs again from their descriptions, which `spec.json` and the record of a study hold.

    restore(read_json(out / run_id / "spec.json"))      # a Run, whose id is `run_id` if nothing has changed since

No file is executed: classes are those of levelfield and of installed plug-ins, by their names, and a user's own mixer
is the one that is given. Whoever asks compares the id: another version or another default gives another one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from levelfield import mixers, objectives, spec, tasks
from levelfield.data.audit import view
from levelfield.files import read_json
from levelfield.presets import by_name
from levelfield.spec import ForeignWeights, MixerConfig, Objective, Run, Study, Task, UserError, describe
from levelfield.spec.errors import format_error
from levelfield.spec.identity import HEAD
from levelfield.user import own_data
from levelfield.user.mixer import UserMixer, user_mixer


class Unknown(LookupError):
    """The error for a class that is neither of levelfield nor of a plug-in.

    place: FILE.py:Name or package.module:Name that the description says it is of, "" where it says none. name: of the
    class or function. passed: the name, where it was passed from Python, else "".
    """

    def __init__(self, described: Mapping[str, Any]) -> None:
        super().__init__(str(described.get("kind")))
        path, name = described.get("path"), described.get("name")
        text = isinstance(path, str) and isinstance(name, str)
        self.place = f"{path}:{name}" if path and text else ""
        self.name = str(name)
        self.passed = str(name) if text and not path else ""

    def sentence(self, run_id: str) -> str:
        """Returns what a run is made of, and how to say where that is."""
        again = f"find_run('{run_id}', runs_dir, {self.passed or 'MyClass'}) of levelfield.engine.find"
        if self.passed:
            return f"{run_id} is made of {self.passed}, which was passed from Python: pass it again, as in {again}."
        made = f"{run_id} is made of {self.place or self}, which is not of levelfield"
        where = f"such as --study {self.place}" if self.place else f"or in Python pass its class, as in {again}"
        return f"{made}: add --study FILE.py or FILE.py:Mixer, {where}."


def restore(described: Any, mixer: Any = None) -> Any:
    """Makes what `spec.describe` described. mixer: stands for the user's own, with the settings that are described: a
    `MixerConfig`, or the class or function that was passed from Python.

    Raises Unknown for a class that is neither of levelfield nor of a plug-in, and TypeError or ValueError for fields
    that a class no longer has or takes.
    """
    if isinstance(described, list):
        return tuple(restore(each, mixer) for each in described)
    if not isinstance(described, Mapping):
        return described
    kind = described.get("kind")
    own = mixer if isinstance(mixer, type) else type(mixer)
    if kind == UserMixer.__name__ and isinstance(mixer, UserMixer):
        return replace(mixer, settings=restore(described["settings"]))
    if kind == UserMixer.__name__ and mixer is not None and not issubclass(own, MixerConfig):
        return user_mixer(mixer, dict(restore(described["settings"])))
    made = _class_of(described, () if mixer is None else (own,))
    return made(**{k: restore(v, mixer) for k, v in described.items() if k not in HEAD})


def restored(
    path: Path, given: Any = "", run_id: str = "", unknown: Callable[[Unknown, str], str] = Unknown.sentence
) -> Run:
    """Returns the run that a file describes. given: its mixer, where that is a user's own: its name, class or function.
    run_id: its id, by default the name of the file's folder. unknown: says that a class is to be named.

    Raises UserError where it would be another run today, with the reason.
    """
    described, run_id = read_json(path), run_id or path.parent.name
    mixer = by_name.mixer(given) if isinstance(given, str) and given else given or None
    who = getattr(given, "__name__", given) or "levelfield"
    gone = f"{who} no longer has the run {run_id}: it has changed since"
    try:
        run = restore(described, mixer)
    except Unknown as error:
        raise UserError(unknown(error, run_id)) from error
    except UserError as error:  # which says how to mend it
        raise UserError(f"{gone}. {error}") from error
    except (TypeError, ValueError, LookupError) as error:
        raise UserError(f"{gone} ({format_error(error)}).") from error
    if not isinstance(run, Run):
        raise UserError(f"{path} describes no run: remove {path.parent} and run its study again.")
    if run.id != run_id:
        raise UserError(_of_another(described, run, run_id) or f"{gone}, and would be {run.id} today.")
    return run


def _of_another(described: Any, run: Run, run_id: str) -> str:
    """Returns a sentence where a run is made of another class or function of its user's than it was made again with
    now, else "". What was named by its place has another id than the same class passed from Python."""
    was, now = (
        [Unknown(each) for each in model["mixers"] if each["kind"] == UserMixer.__name__]
        for model in (described["model"], describe(run)["model"])
    )
    for there, here in zip(was, now, strict=True):
        if (there.name, there.passed) != (here.name, here.passed):
            given = f"{here.passed}, passed from Python" if here.passed else here.place
            right = f"pass {there.passed} itself, from Python" if there.passed else f"give '{there.place}'"
            return f"{run_id} is made of {there.passed or there.place} and not of {given}: {right}."
    return ""


def _class_of(described: Mapping[str, Any], own: tuple[type, ...]) -> type:
    """Returns the class that is described: one of the user's own, else of levelfield, else of a plug-in. Where the
    description says in which module it is, another of its name is none."""
    kind, module = described.get("kind"), described.get("module")
    for classes in (lambda: own, kinds, plugged_kinds):  # plug-ins are loaded where the others do not know it
        for each in classes():
            if each.__name__ == kind and module in (None, each.__module__):
                return each
    raise Unknown(described)


def another_id(described: Any, run_id: str) -> str | None:
    """Returns the id of the run that is described, where it is another than `run_id`; else None.

    It is None, too, where no id can be made of the description here: of what is not of levelfield, of a run that reads
    files of its user's, and of one that was made by versions other than today's, whose ids differ.
    """
    try:
        run = restore(described)
        if not isinstance(run, Run) or run.task.reads or run.id == run_id:
            return None
        return run.id if _as_today(described, describe(run)) else None
    except (UserError, OSError, TypeError, ValueError, LookupError, AttributeError):
        return None


def _as_today(described: Any, today: Any) -> bool:
    """Tells whether the versions in a description are those of what was made from it."""
    if isinstance(described, list):
        return all(map(_as_today, described, today))
    if not isinstance(described, Mapping):
        return True
    return described.get("version") == today.get("version") and all(
        _as_today(each, today[name]) for name, each in described.items() if name in today
    )


def recorded(study: Study, described: Mapping[str, Any], mixer: MixerConfig) -> Study:
    """Returns the comparison of `mixer` with the runs of all commands that added to its record, as far as they are the
    same today. One that reads a file which is no longer there is not."""
    runs: list[Run] = []
    for run_id, each in described.items():
        with suppress(UserError, OSError, LookupError, TypeError, ValueError):
            run = restore(each, mixer)
            runs += [run] if isinstance(run, Run) and run.id == run_id else []
    return replace(study, runs=lambda effort: tuple(runs))


def compared(study: str, described: Any) -> str:
    """Returns the name of the mixer, as the command line takes it, whose comparison has this name; "" where the run
    that is described is not of that mixer. Nothing of a user's own is executed.
    """
    from levelfield.presets import comparison

    for each in described["model"].get("mixers", ()):
        with suppress(Unknown, UserError, LookupError, TypeError, ValueError):
            if each["kind"] == UserMixer.__name__:
                mixer = UserMixer(**{name: restore(value) for name, value in each.items() if name not in HEAD})
                given = ", ".join(f"{key}={value!r}" for key, value in mixer.settings)
                name = f"{mixer.path}:{mixer.name}" + (f"({given})" if given else "")
                known = bool(mixer.path)
            else:
                mixer = restore(each)
                name, known = mixer.label, by_name.mixer(mixer.label, comparison.NAMED) == mixer
            if known and comparison.study_name(mixer) == study:
                return name
    return ""


@cache
def kinds() -> tuple[type, ...]:
    """Returns the classes that a run may be made of. Raises ValueError where two of them have one name.

    Values are those of `spec`. A mixer, task, objective or weights to start from is found in its file; a file besides
    those of mixers and tasks is named here.
    """
    from levelfield.pretrained import trunk

    files = (objectives, view, own_data, trunk, *tasks.modules().values())
    values = [each for each in vars(spec).values() if isinstance(each, type) and dataclasses.is_dataclass(each)]
    defined = [each for file in files for each in vars(file).values() if isinstance(each, type)]
    below = [each for each in defined if issubclass(each, Task | Objective | ForeignWeights)]
    known = {each for each in (*values, *mixers.classes(), *below) if each.__module__.startswith("levelfield.")}
    if twice := known - set({each.__name__: each for each in known}.values()):
        raise ValueError(f"A run may be made of two classes of one name: {', '.join(map(repr, twice))}.")
    return tuple(known)


@cache
def plugged_kinds() -> tuple[type, ...]:
    """Returns the classes of mixers and tasks that installed plug-ins add."""
    found = [each for _, each in (*by_name.plugged_mixers(), *by_name.plugged_tasks())]
    return tuple(type(each) for each in found if not (isinstance(each, MixerConfig) and each.opaque))
