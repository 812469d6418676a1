"""Finds what the command line names: a study, those of its runs that match a pattern, the run behind a directory.

    Source("demo").load()                     the study of levelfield/studies/demo.py
    Source("mine/study.py").load()            a user's own file, which ends in `study = Study(...)`
    Source("mypackage.study").load()          a module that Python can import, which does
    Source("compare", mixer="mine.py:Mine", options=Options(tasks=("listops",))).load()

A `Source` is text throughout, so that a worker process can load for itself what the command line was given; its
`fingerprint` tells whether the worker found the same thing.
"""

from __future__ import annotations

import hashlib
import pkgutil
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from importlib import import_module
from itertools import product
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

from levelfield.engine import tuning
from levelfield.files import check_name, with_suffix
from levelfield.longcontext.survey import Survey
from levelfield.presets import by_name
from levelfield.presets.options import USUAL, Options
from levelfield.report.arms import Arm
from levelfield.runs.store import SPEC, TRIALS, index_file, missing, read_index
from levelfield.spec import (
    EFFORTS,
    Effort,
    ForeignWeights,
    Probe,
    Published,
    Run,
    Study,
    Task,
    UserError,
    closest,
    describe,
)
from levelfield.spec.numerics import PLAIN, Numerics
from levelfield.user import named, own_data, own_files, plugins, values
from levelfield.user.values import user_errors

PACKAGE = Path(__file__).parents[1]
LISTED = "levelfield list studies"
AUDIT = "audit"  # the study whose runs say how local a dataset is
REACH = "reach"  # the study whose ranges one mixer can be trained at, beside a few others
OF_A_MIXER = {
    "compare": ("the comparison of a mixer", "give the name of that mixer instead, as in {}"),
    REACH: ("the ranges that a mixer learns", "`levelfield reach {}` goes on with its runs and writes its report"),
}


def listing(folder: str) -> list[str]:
    """The public modules of one folder of levelfield, by name, without importing them."""
    return sorted(m.name for m in pkgutil.iter_modules([str(PACKAGE / folder)]) if not m.name.startswith("_"))


def listed() -> list[str]:
    """The studies that ship, then those of installed plug-ins, by name."""
    ours = listing("studies")
    return [*ours, *(name for name in plugins.plugins("studies") if name not in ours)]


def plugged_studies() -> Iterator[tuple[str, Study | Survey]]:
    """Yields the studies of plug-ins by name; a broken one is a warning, and so is one that is named like ours."""
    return by_name.added("studies", lambda where: Source(where.partition(":")[0]).find(), listing("studies"))


@dataclass(frozen=True)
class Source:
    """The origin of a study: a shipped one by name, or a file; for `compare`, `reach` and `audit` also their subject.

    trials: recipes to try for each arm first, in place of the study's own search; 0 keeps that search. numerics: those
    that differ from the default override the study's in every run.
    """

    study: str
    mixer: str = ""  # FILE.py:Class, package.module:Class, or the name of a mixer; for `audit` that of a task
    options: Options = USUAL
    trials: int = 0
    numerics: Numerics = PLAIN

    @staticmethod
    def of(name: str, trials: int = 0, numerics: Numerics = PLAIN, options: Options = USUAL) -> Source:
        """Returns what STUDY on the command line means; the name of a mixer, such as FILE.py:Class, is its comparison
        on the usual tasks, unless a study has the name. Raises UserError for options of a comparison with a study."""
        kind = by_name.without_settings(name)
        plain = not named.is_file(kind) and "." not in kind
        compared = named.is_named(name) or (plain and name not in listed() and by_name.is_mixer(name))
        if options != USUAL and not compared:
            usual = vars(USUAL)
            given = ", ".join(f"--{name}" for name, value in vars(options).items() if value != usual[name])
            raise UserError(f"{name} says itself what it runs, so {given} cannot change it: give them with a mixer.")
        study, mixer = ("compare", name) if compared else (name, "")
        return Source(study, mixer, options, trials, numerics)

    def find(self, ids: bool = True) -> Study | Survey:
        """Returns a study, which trains models, or a survey, which asks models that exist.

        ids: have `runs` make the id of every run, which takes most of its time, so that one that cannot be made is told
        here; a report of stored rows asks for none.
        Raises UserError, in one sentence, for an unknown name, a broken file or a file without either; so do the `runs`
        and `probes` of the study for whatever goes wrong in them.
        """
        if self.mixer:
            study = _guarded(
                _comparison(self), self.mixer, named.split(self.mixer)[0] if named.is_named(self.mixer) else "", ids
            )
            return self._asked(study)
        try:
            module = _module(self.study)
            found = _declared(module, self.study)
        except UserError as error:
            plugin = plugins.plugins("studies").get(self.study)
            raise plugins.refusal(plugin, error) if plugin else error
        if isinstance(found, Survey):
            return found
        return self._asked(_guarded(found, self.study, module.__file__ or "", ids))

    def _asked(self, study: Study) -> Study:
        """Returns the study as the other fields ask for it. Another name keeps what it measures apart."""
        return computed(tuning.with_search(study, self.trials), self.numerics)

    def load(self) -> Study:
        """Returns the study. Raises UserError where what is found is a survey, which trains nothing."""
        found = self.find()
        if isinstance(found, Survey):
            raise UserError(
                f"{found.name} trains nothing: ask a model with `levelfield ruler MODEL --table {found.name}`."
            )
        return found

    def sizes(self, effort: Effort) -> Any:
        """Returns what the arms of a comparison share besides their task, as its record keeps it."""
        from levelfield.presets import comparison

        return comparison.shared(effort, self.options)

    def recorded(self, study: Study, described: Mapping[str, Any]) -> Study:
        """Returns the study with all runs recorded for it: a comparison may have been run with several tasks."""
        if not self.mixer or self.study == REACH:
            return study
        from levelfield.engine.restore import recorded

        return recorded(study, described, by_name.mixer(self.mixer))

    def __str__(self) -> str:
        """Returns the words of the command line; a comparison is named without its tasks and protocols, and an audit of
        a user's own file, "audit of reviews.csv", without the flags that name columns."""
        if self.study == AUDIT and own_data.is_word(self.mixer):
            return shlex.join([AUDIT, "of", str(own_data.from_word(self.mixer).path)])
        words = [self.study, self.mixer] if self.study in (AUDIT, REACH) and self.mixer else [self.mixer or self.study]
        return shlex.join([*words, *self.flags])

    def title(self, study: Study) -> str:
        """Returns what to call the study where its name may be typed again, which of a comparison is its mixer's."""
        return str(self) if self.mixer else study.name

    @property
    def flags(self) -> list[str]:
        """The words of the command line besides the name."""
        given = {"trials": self.trials, **self.numerics.changes} if self.trials else self.numerics.changes
        return [
            word
            for k, v in given.items()
            for word in ([f"--{k.replace('_', '-')}"] if v is True else [f"--{k}", str(v)])
        ]

    def fingerprint(self, runs: Sequence[Run]) -> str:
        """Hashes the runs that were chosen, and the file that made them where it is the user's own."""
        own = named.is_file(self.study) or "." in self.study
        content = named.source(self.study).content if own else b""
        return hashlib.sha256("\n".join(run.id for run in runs).encode() + content).hexdigest()


def computed(study: Study, numerics: Numerics) -> Study:
    """Returns the study with the numerics that differ from the default in every run, under a name that says so."""
    if not numerics.changes:
        return study

    def runs(effort: Effort) -> tuple[Run, ...]:
        return tuple(replace(run, numerics=numerics.over(run.numerics)) for run in study.runs(effort))

    return replace(study, name=with_suffix(study.name, f"-{numerics}"), runs=runs)


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

    That is a task by its name, with other settings as in reach(range=64), FILE.py:Task, package.module:Task(setting=1),
    a user's own file as the text of an `OwnData`, or all tasks of a study, by its name, file or module, at that
    effort. A name that a task and a study share is the task's.
    """
    if not _is_study(name):
        return [by_name.task(name)]
    own_files.require_known(Path(name))
    if named.is_file(name) and not Path(name).exists() and not name.endswith(".py"):
        raise own_files.not_there(name)
    return list(dict.fromkeys(run.task for run in choose(load_study(name), effort)))


def find_weights(name: str, effort: Effort = "minutes") -> list[ForeignWeights]:
    """Returns the weights of others that runs of a study start from; none where `name` is a task, as `find_tasks` has
    it. Raises UserError."""
    if not _is_study(name):
        return []
    found = dict.fromkeys(run.protocol.foreign for run in choose(load_study(name), effort))
    return [weights for weights in found if weights is not None]


def _is_study(name: str) -> bool:
    """Tells whether a name that stands for tasks is that of a study or of its file."""
    from levelfield import tasks

    place = by_name.without_settings(name) if name.endswith(")") else name  # else a path, of whatever letters
    if named.is_file(place) and not named.is_named(name) and not own_data.is_word(name):
        return True
    studies = {*listing("studies"), *plugins.plugins("studies")}
    return name in studies and name not in (*tasks.names(), *plugins.plugins("tasks"))


def find_task(name: str | Task) -> Task:
    """Returns the one task that `find_tasks` finds, a task itself as it is. Raises UserError for a study of several."""
    found = [by_name.task(name)] if isinstance(name, Task) else find_tasks(name)
    if len(found) > 1:
        raise UserError(f"{name} has {len(found)} tasks: name one of them, such as {found[0].name}.")
    return found[0]


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
        raise UserError(f"There is no effort '{effort}': {closest(str(effort), EFFORTS)}")
    runs = {run.id: run for run in study.runs(effort)}
    chosen = [run for run in runs.values() if matches(run, pattern)]
    if not chosen and pattern and not set(pattern) & set("*?["):
        raise UserError(f"{study.name} has no run '{pattern}' at effort {effort}: {closest(pattern, list(runs))}")
    if not chosen and pattern:
        example = next(iter(runs), "none")
        raise UserError(
            f"No run of {study.name} matches '{pattern}': ids look like {example}, and * stands for anything."
        )
    if not chosen:
        raise UserError(f"{study.name} has no runs at effort {effort}: choose another --effort.")
    return chosen


def require_workable(study: Study, effort: Effort, out: Path) -> None:
    """Raises UserError where nothing of a study was started in a folder and its runs cannot work as they are asked for,
    so that no command is named to start them which would be refused."""
    from levelfield.run import check  # which imports torch

    if not any(index_file(each, study.name, effort).exists() for each in (out, out / TRIALS)):
        for run in choose(study, effort):
            check(run)


def find_run(run_id: str, out: str | PathLike[str], study: Any = "") -> Run:
    """Returns the run of a folder in `out`, made again from its own description.

    study: the file of a user's own study, FILE.py:Mixer of a comparison, or the class or function itself that was
    passed from Python, for what is not of levelfield is never executed unasked. Raises UserError for an unknown id, and
    where the run would be another today, with the reason.
    """
    out = Path(out)
    if not (out / run_id / SPEC).exists():
        raise missing(out, run_id)
    if isinstance(study, str) and study and not Source.of(study).mixer:
        return _of_study(run_id, out, study)
    from levelfield.engine.restore import restored

    return restored(out / run_id / SPEC, study)


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
    """Returns the module of a study that ships, of one's own by file or dotted name, or of a plug-in."""
    if named.is_file(name):
        if not Path(name).is_file():
            near = closest(Path(name).stem, listing("studies"), LISTED)
            raise UserError(f"There is no study file {name}: give a Python file, or the name of a study; {near}")
        if not name.endswith(".py"):
            raise UserError(f"{name} is not a Python file: give a file that ends in .py.")
        return values.module(name)
    if name in listing("studies"):
        return import_module(f"levelfield.studies.{name}")
    added = plugins.plugins("studies")
    if name not in added:
        named.require_colon(name)
    if name in added or "." in name:
        return values.module(added[name].where.partition(":")[0] if name in added else name)
    if kept := re.fullmatch(r"(compare|reach)-(.+?)(?:-[0-9a-f]{6}){1,2}", name):
        what, instead = OF_A_MIXER[kept[1]]
        raise UserError(f"{name} is what files call {what}, {kept[2]}: {instead.format(f'mine.py:{kept[2].title()}')}.")
    if alike := [study for study in listing("studies") if name and study.startswith(name)]:
        raise UserError(f"There is no study '{name}': choose one of {', '.join(alike)}.")
    file = f" (the file {name}.py is here: give it with its .py)" if Path(f"{name}.py").is_file() else ""
    near = closest(name, [*listing("studies"), *added], LISTED)
    raise UserError(f"There is no study '{name}'{file}: {near}")


def _declared(module: ModuleType, name: str) -> Study | Survey:
    for key, kind in (("study", Study), ("survey", Survey)):
        if isinstance(found := getattr(module, key, None), kind):
            return found
    place = name if named.is_file(name) else module.__name__
    raise UserError(
        f"{place} defines no study: end it with `study = Study(name=..., claim=..., runs=...)`, or write {place}:NAME "
        "for a mixer or task in it."
    )


def _guarded(study: Study, name: str, file: str, ids: bool) -> Study:
    """Returns the study with functions of which every failure is one sentence, with `ids` even that of a run's id."""
    check_name("study", study.name)

    def runs(effort: Effort) -> tuple[Run, ...]:
        with user_errors(name, file):
            return tuple(run for run in study.runs(effort) if not ids or run.id)  # one that cannot be made fails here

    def probes(run: Run) -> tuple[Probe, ...]:
        with user_errors(name, file):
            return tuple(study.probes(run))

    return replace(study, runs=runs, probes=probes)


def _comparison(source: Source) -> Study:
    """Returns the study that puts a mixer beside the baselines, on tasks or, of `reach`, at certified ranges; or that
    audits a task."""
    if source.study == AUDIT:
        from levelfield.presets import audit

        return audit.study(find_task(source.mixer))
    if source.study == REACH:
        from levelfield.presets import certified

        options, mixer = source.options, by_name.mixer(source.mixer, certified.NAMED)
        like = find_task(options.tasks[0]) if options.tasks else None
        return certified.beside(mixer, certified.asked(like, options.seeds, options.steps))
    from levelfield.presets import comparison

    return comparison.compare(by_name.mixer(source.mixer, comparison.NAMED), source.options)
