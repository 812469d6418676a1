"""Finds what the command line names: a study, those of its runs that match a pattern, the run behind a directory.

    Source("demo").load()                     the study of levelfield/studies/demo.py
    Source("mine/study.py").load()            a user's own file, which ends in `study = Study(...)`
    Source("compare", mixer="mine.py:Mine", options=Options(tasks=("listops",))).load()

A `Source` is text throughout, so that a worker process can load for itself what the command line was given; its
`fingerprint` tells whether the worker found the same thing.
"""

from __future__ import annotations

import hashlib
import importlib.util
import pkgutil
import shlex
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from importlib import import_module
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

from levelfield.engine import tuning
from levelfield.files import read_json
from levelfield.longcontext.survey import Survey
from levelfield.presets.options import USUAL, Options
from levelfield.report.arms import Arm
from levelfield.runs.store import SPEC, check_name, read_index
from levelfield.spec import EFFORTS, Effort, Probe, Published, Run, Study, Task, UserError, closest, describe
from levelfield.spec.errors import format_error
from levelfield.spec.numerics import PLAIN, Numerics
from levelfield.spec.user_source import parsed
from levelfield.user import own_data

PACKAGE = Path(__file__).parents[1]
REACH = "reach"  # the study whose ranges one mixer can be trained at, beside a few others


def listing(folder: str) -> list[str]:
    """The public modules of one folder of levelfield, by name, without importing them."""
    return sorted(m.name for m in pkgutil.iter_modules([str(PACKAGE / folder)]) if not m.name.startswith("_"))


@dataclass(frozen=True)
class Source:
    """The origin of a study: the name of a shipped one or a file; for `compare` also what is compared, on what, and for
    `reach` whose reach is asked.

    With `trials`, every arm is tuned by so many before it runs, whatever the study says of a search. What `numerics`
    has other than its default stands in every run instead of what the study says.
    """

    study: str
    mixer: str = ""  # FILE.py:Class; for `reach` also the name of a mixer that ships
    options: Options = USUAL
    trials: int = 0
    numerics: Numerics = PLAIN

    @staticmethod
    def of(name: str, trials: int = 0, numerics: Numerics = PLAIN) -> Source:
        """Returns what STUDY on the command line means; FILE.py:Class is a comparison on the usual tasks."""
        study, mixer = ("compare", name) if ".py:" in name else (name, "")
        return Source(study, mixer, trials=trials, numerics=numerics)

    def find(self) -> Study | Survey:
        """Returns a study, which trains models, or a survey, which asks models that exist.

        Raises UserError, in one sentence, for an unknown name, a broken file or a file without either; so do the `runs`
        and `probes` of the study for whatever goes wrong in them.
        """
        if self.mixer:
            study = _guarded(_comparison(self), self.mixer, self.mixer.partition(":")[0])
            return self._asked(study)
        module = _module(self.study)
        found = _declared(module, self.study)
        if isinstance(found, Survey):
            return found
        return self._asked(_guarded(found, self.study, module.__file__ or ""))

    def _asked(self, study: Study) -> Study:
        """Returns the study as the other fields ask for it. Another name keeps what it measures apart."""
        study = tuning.with_search(study, self.trials)
        if not self.numerics.changes:
            return study
        return replace(study, name=f"{study.name}-{self.numerics}", runs=lambda effort: self._computed(study, effort))

    def _computed(self, study: Study, effort: Effort) -> tuple[Run, ...]:
        return tuple(replace(run, numerics=self.numerics.over(run.numerics)) for run in study.runs(effort))

    def load(self) -> Study:
        """Returns the study. Raises UserError where what is found is a survey, which trains nothing."""
        found = self.find()
        if isinstance(found, Survey):
            raise UserError(
                f"{found.name} trains nothing: ask a model with `levelfield ruler MODEL --table {found.name}`."
            )
        return found

    def recorded(self, study: Study, described: Mapping[str, Any]) -> Study:
        """Returns the study with all runs recorded for it: a comparison may have been run with other tasks too."""
        if not self.mixer or self.study == REACH:
            return study
        from levelfield.engine.restore import recorded
        from levelfield.user.mixer import load_user_mixer

        return recorded(study, described, load_user_mixer(self.mixer))

    def __str__(self) -> str:
        """Returns the words of the command line; a comparison is named without its tasks and protocols."""
        named = [REACH, self.mixer] if self.mixer and self.study == REACH else [self.mixer or self.study]
        return shlex.join([*named, *self.flags])

    @property
    def flags(self) -> list[str]:
        """The words of the command line besides the name."""
        given = {"trials": self.trials, **self.numerics.changes} if self.trials else self.numerics.changes
        return [word for k, v in given.items() for word in ([f"--{k}"] if v is True else [f"--{k}", str(v)])]

    def fingerprint(self, runs: Sequence[Run]) -> str:
        """Hashes the runs that were chosen, and the file that made them where it is the user's own."""
        path = Path(self.study)
        content = path.read_bytes() if path.suffix == ".py" and path.is_file() else b""
        return hashlib.sha256("\n".join(run.id for run in runs).encode() + content).hexdigest()


def load_study(name: str) -> Study:
    """Returns the study of that name or file, or the comparison of FILE.py:Class; see `Source.load`."""
    return Source.of(name).load()


def load_survey(name: str) -> Survey:
    """Returns the survey of that name or file. Raises UserError for a study, which trains its models."""
    found = Source(name).find()
    if isinstance(found, Survey):
        return found
    raise UserError(f"{found.name} trains its models: `levelfield run {found.name}`.")


def find_tasks(name: str, effort: Effort = "minutes") -> list[Task]:
    """Returns what TASK on the command line means. Raises UserError.

    That is a task by its name, with other settings as in reach(range=64), FILE.py:Task or FILE.py:Task(setting=1), a
    user's own file as the text of an `OwnData`, or all tasks of a study, by its name or file, at that effort. A name
    that a task and a study share is the task's.
    """
    if own_data.is_word(name):
        return [own_data.from_word(name)]
    path, colon, call = name.partition(":")
    if colon and path.endswith(".py"):
        return [_task_of(_module(path), path, call)]
    from levelfield import tasks

    if path.endswith(".py") or (name in listing("studies") and name not in tasks.names()):
        return list(dict.fromkeys(run.task for run in choose(load_study(name), effort)))
    kind, paren, _ = name.partition("(")
    if kind not in tasks.names():
        near = closest(kind, tasks.names()).removesuffix(".")
        raise UserError(f"There is no task '{kind}': {near} (or give FILE.py:Task, a file of data, or a study).")
    return [_with_settings(tasks.find(kind), name) if paren else tasks.find(kind)]


def _with_settings(task: Task, call: str) -> Task:
    """Returns the task with the settings of a call such as reach(range=64). Raises UserError for one it has not."""
    name, settings = parsed(call)
    known = [each.name for each in fields(task)]
    if unknown := next((key for key in settings if key not in known), None):
        raise UserError(f"The task {name} has no setting '{unknown}': {closest(unknown, known)}")
    return replace(task, **settings)


def _task_of(module: ModuleType, path: str, call: str) -> Task:
    """Returns the class of that name in a user's file, with the given settings, or an instance that has the name."""
    name, settings = parsed(call)
    found = getattr(module, name, None)
    if isinstance(found, Task) and not settings:
        return found
    if not (isinstance(found, type) and issubclass(found, Task)):
        own = [k for k, v in vars(module).items() if isinstance(v, type) and issubclass(v, Task) and v is not Task]
        raise UserError(f"{path} defines no task {name}: {closest(name, own) if own else 'write a subclass of Task.'}")
    with user_errors(f"{path}:{call}", module.__file__ or ""):
        return found(**settings)


def references(answers: Sequence[Published]) -> list[tuple[Arm, Mapping[str, Any]]]:
    """Returns the runs that have the settings of printed cells: those of the shipped studies that answer to the same
    tables, at effort `paper`, one of each arm."""
    asked, found = set(answers), []
    for study in (Source(name).find() for name in (listing("studies") if asked else ())):
        if isinstance(study, Study) and asked & set(study.published):
            once = dict.fromkeys(replace(run, seed=0) for run in study.runs("paper"))
            found += [(Arm(r.task.name, r.model.label, r.protocol.name), describe(r)) for r in once]
    return found


def matches(run: Run, pattern: str) -> bool:
    """Whether the run's id is `pattern`, or is like that pattern; "" is every run."""
    return not pattern or fnmatchcase(run.id, pattern) or run.id == pattern


def choose(study: Study, effort: Effort, pattern: str = "") -> list[Run]:
    """Returns the study's runs whose ids match the pattern `pattern`, each once. Raises UserError where none does."""
    if effort not in EFFORTS:
        raise UserError(f"There is no effort '{effort}': {closest(effort, EFFORTS)}")
    runs = {run.id: run for run in study.runs(effort)}
    chosen = [run for run in runs.values() if matches(run, pattern)]
    if not chosen and pattern:
        example = next(iter(runs), "none")
        raise UserError(
            f"No run of {study.name} matches '{pattern}': ids look like {example}, and * stands for anything."
        )
    if not chosen:
        raise UserError(f"{study.name} has no runs at effort {effort}: choose another --effort.")
    return chosen


def find_run(run_id: str, out: Path, study: str = "") -> Run:
    """Returns the run of a folder in `out`, made again from its own description.

    study: the file of a user's own study, or FILE.py:Mixer of a comparison, for what is not of levelfield is never
    executed unasked. Raises UserError for an unknown id, and where the run would be another today.
    """
    path = out / run_id / SPEC
    if not path.exists():
        there = sorted(each.parent.name for each in out.glob(f"*/{SPEC}"))
        near = closest(run_id, there) if 0 < len(there) <= 12 else "ids are the names of its folders."
        raise UserError(f"There is no run '{run_id}' in {out}: {near}")
    described = read_json(path)
    if study and ".py:" not in study:
        return _of_study(run_id, out, study)
    from levelfield.engine.restore import Unknown, restore
    from levelfield.user.mixer import load_user_mixer

    mixer = load_user_mixer(study) if study else None
    try:
        run = restore(described, mixer)
    except Unknown as error:
        raise UserError(
            f"{run_id} is made of {error}, which is not of levelfield: add --study FILE.py or FILE.py:Mixer."
        ) from error
    except (TypeError, ValueError, LookupError, UserError):
        run = None
    if not isinstance(run, Run) or run.id != run_id:
        raise UserError(f"{study or 'levelfield'} no longer has the run {run_id}: it has changed since.")
    return run


def _of_study(run_id: str, out: Path, study: str) -> Run:
    """Returns the run as a study has it, at whatever effort, with the trials that are recorded for it."""
    asked: set[int] = {0}
    for path in (out / "studies").glob("*.json"):
        with suppress(UserError):
            index = read_index(path)
            asked |= {index.asked_trials} if run_id in index.runs else set()
    for trials, effort in product(sorted(asked, reverse=True), EFFORTS):
        with suppress(UserError):  # an effort that the study does not have, or trials that are not done
            runs = tuning.with_best_recipes(Source.of(study, trials).load(), out).runs(effort)
            if found := next((run for run in runs if run.id == run_id), None):
                return found
    Source.of(study).load()  # or the reason why there is none
    raise UserError(f"{study} no longer has the run {run_id}: it has changed since.")


def _module(name: str) -> ModuleType:
    if name.endswith(".py") or "/" in name:
        return _from_file(Path(name))
    if name not in listing("studies"):
        if alike := [study for study in listing("studies") if name and study.startswith(name)]:
            raise UserError(f"There is no study '{name}': choose one of {', '.join(alike)}.")
        file = f" (the file {name}.py is here: give it with its .py)" if Path(f"{name}.py").is_file() else ""
        raise UserError(f"There is no study '{name}'{file}: {closest(name, listing('studies'))}")
    return import_module(f"levelfield.studies.{name}")


def _declared(module: ModuleType, name: str) -> Study | Survey:
    for key, kind in (("study", Study), ("survey", Survey)):
        if isinstance(found := getattr(module, key, None), kind):
            return found
    raise UserError(f"{name} defines no study: end it with `study = Study(name=..., claim=..., runs=...)`.")


def _from_file(path: Path) -> ModuleType:
    """Executes a user's file. Whatever goes wrong in it becomes one sentence with the line."""
    if not path.is_file():
        raise UserError(
            f"There is no study file {path}: give a Python file or {closest(path.stem, listing('studies'))}"
        )
    name = f"levelfield_user_{path.stem}"
    full = str(path.resolve())
    spec = importlib.util.spec_from_file_location(name, full)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python file: give a file that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up by name
    with user_errors(str(path), full):
        spec.loader.exec_module(module)
    return module


def _guarded(study: Study, name: str, file: str) -> Study:
    """Returns the study with functions of which every failure, even of a run's id, is one sentence."""
    check_name("study", study.name)

    def runs(effort: Effort) -> tuple[Run, ...]:
        with user_errors(name, file):
            return tuple(run for run in study.runs(effort) if run.id)  # an id that cannot be made fails here

    def probes(run: Run) -> tuple[Probe, ...]:
        with user_errors(name, file):
            return tuple(study.probes(run))

    return replace(study, runs=runs, probes=probes)


@contextmanager
def user_errors(name: str, file: str) -> Iterator[None]:
    """Turns whatever a user's code raises into one sentence, with the line of `file` where it passed through it."""
    try:
        yield
    except UserError:
        raise
    except SyntaxError as error:
        raise UserError(f"{error.filename}, line {error.lineno}: {error.msg}.") from error
    except (Exception, SystemExit) as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
        where = f", line {lines[-1]}" if lines else ""
        if isinstance(error, SystemExit):
            raise UserError(f"{name}{where} ends the program with sys.exit: take that out.") from error
        raise UserError(f"{name}{where}: {format_error(error)}") from error


def _comparison(source: Source) -> Study:
    """Returns the study that puts a mixer beside the baselines, on tasks or, of `reach`, at certified ranges."""
    from levelfield.user.mixer import load_user_mixer

    if source.study == REACH:
        from levelfield.presets.certified import beside, shipped

        return beside(load_user_mixer(source.mixer) if ":" in source.mixer else shipped(source.mixer))
    from levelfield.presets.comparison import compare

    return compare(load_user_mixer(source.mixer), source.options)
