"""Compares a mixer of one's own with baselines, and audits data, from Python, in a notebook too.

    import levelfield
    found = levelfield.compare(MyMixer, tasks=["listops"], effort="smoke")
    found                      # in a notebook: the report
    found.verdict, found.rows, found.figures
    levelfield.audit(levelfield.OwnData("reviews.csv", text="body", label="stars")).verdict

Runs go one after another in this process, so the class may be defined anywhere; the same call again continues where
it was stopped. The command line (`levelfield compare my_mixer.py:MyMixer`) uses every core.
"""

from __future__ import annotations

import csv
import html
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from levelfield import report
from levelfield.engine import audit as auditing
from levelfield.engine import training, tuning
from levelfield.engine.find import choose, computed, find_task
from levelfield.engine.load import load as load
from levelfield.files import made
from levelfield.presets import arm_remarks, by_name, comparison
from levelfield.presets import audit as audits
from levelfield.presets.options import Equal, Options, names
from levelfield.report.audit import page, words
from levelfield.report.audit.reading import Reading
from levelfield.report.cells import NONE
from levelfield.run import execute
from levelfield.runs import store
from levelfield.runs.results import StudyIndex
from levelfield.spec import Effort, MixerConfig, Numerics, Row, Run, Study, Task, UserError, no_progress
from levelfield.spec.errors import plain, shortened
from levelfield.spec.numerics import PLAIN
from levelfield.user.mixer import changed_since, mixer_of
from levelfield.user.own_data import OwnData, report_name

if TYPE_CHECKING:
    from torch import nn

    Mixer = type[nn.Module] | type[MixerConfig] | MixerConfig | Callable[..., nn.Module] | str


class _Reported:
    """A verdict and the files of its report, the page first, which a notebook shows."""

    verdict: str
    files: Sequence[Path]

    def __repr__(self) -> str:
        """Returns the verdict, what `told` adds and where the page is, for `print`."""
        return "\n".join([self.verdict, *self.told(), f"report: {self.page}"])

    def told(self) -> Iterable[str]:
        """Returns lines that `print` shows below the verdict."""
        return ()

    @property
    def page(self) -> Path:
        """The path of the report's page."""
        return self.files[0]

    @property
    def figures(self) -> list[Path]:
        """The paths of the report's figures, as PNG."""
        return [path for path in self.files if path.suffix == ".png"]

    def _repr_html_(self) -> str:
        page = html.escape(self.page.read_text(encoding="utf-8"), quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 900px; border: 0"></iframe>'


@dataclass(frozen=True, repr=False)
class Comparison(_Reported):
    """The verdict, a line for each task; the measured rows, and the files of their report: the page, tables and
    figures. remarks: sentences that whoever reads the scores must know, such as on unequal counts of parameters."""

    rows: Sequence[Row]
    ledgers: Mapping[str, Mapping[str, Any]]
    files: Sequence[Path]
    verdict: str
    remarks: Sequence[str] = ()

    def told(self) -> Iterable[str]:
        """Returns the remarks and a line for each arm."""
        scores: dict[tuple[str, str, str, str], list[float]] = {}
        for row in self.rows:
            if "at" not in row and row.get("split") == "test" and row.get("protocol") != NONE and "value" in row:
                key = (row.get("task", ""), row.get("protocol", ""), row.get("model", ""), row.get("metric", ""))
                scores.setdefault(key, []).append(row["value"])
        lines = [f"{'  '.join(key)}  {median(values):.3f}  n={len(values)}" for key, values in scores.items()]
        head = f"Comparison of {len(self.ledgers)} runs: median test scores, n seeds"
        return [*self.remarks, head, *lines]


class Places(TypedDict, total=False):
    """The keywords that `compare` and `audit` share.

    device: as of `execute`. runs_dir, data, report_dir: folders of the runs, of the prepared data and of the report, as
    text or any `os.PathLike`; by default `runs`, `data` and `report`. say: is called with a line before each run, and
    is by default `print`; `say=lambda line: None` is silent. out, to: earlier names of runs_dir and report_dir, which
    warn and go on working until the next release.
    """

    device: str
    runs_dir: str | PathLike[str]
    data: str | PathLike[str]
    report_dir: str | PathLike[str]
    say: Callable[[str], object]
    out: str | PathLike[str]
    to: str | PathLike[str]


class Choices(Places, total=False):
    """The keywords of `compare` that few comparisons need. A size that is left out or None is what the effort affords.

    seeds, steps, width, depth, lr, batch, equal: as of `options.Options`. numerics: how runs are computed, which is in
    this process alone. The others are those of `Places`.
    """

    seeds: int | None
    steps: int | None
    width: int | None
    depth: int | None
    lr: float | None
    batch: int | None
    equal: Equal
    numerics: Numerics


RENAMED = {"out": "runs_dir", "to": "report_dir"}


def compare(
    mixer: Mixer,
    tasks: Sequence[str | Task] | str | Task = (),
    protocols: Sequence[str] | str = (),
    effort: Effort = "minutes",
    *,
    settings: Mapping[str, Any] | None = None,
    baselines: Sequence[Mixer] | Mixer = (),
    trials: int = 0,
    **choices: Unpack[Choices],
) -> Comparison:
    """Trains a mixer beside baselines of equal parameters at equal budget, and reports.

    mixer: an nn.Module class mapping (B, T, D) to (B, T, D), a function of the width that returns a module, a
    `MixerConfig`, "FILE.py:Class", "package.module:Class" or the name of a mixer. settings: for the constructor of a
    class or for a function; a name has them in it, as "attention(heads=8)".
    tasks, protocols, baselines: names, or text with names between commas or blanks; a task may be an `OwnData` or any
    other task, which is taken as it is, and a baseline whatever the mixer may be. By default tasks are listops, recall
    and pathfinder, protocols scratch and spt_masked, baselines attention, s4 and conv.
    trials: recipes to try for every arm first, the mixer's and the baselines' alike; 0 is one untuned recipe for all.
    choices, all by keyword, as the type `levelfield.Choices` lists them. Sizes, by default what the effort affords, at
    "minutes" what stands behind each: seeds, runs of each arm, 2; steps of the optimizer in each run, all phases
    together, 1000; width, features of a step in the mixer's arm, 48; depth, blocks, 2; lr, the highest learning rate,
    0.002; batch, examples in a step, 32. equal: "steps" (the default) or "flops", what all arms are given alike.
    numerics: how a run computes, by default `Numerics()`, float32. device: "auto" (the default: the GPU where there is
    one), "cpu", "cuda" or "cuda:1". runs_dir, data, report_dir: folders of the runs, of the prepared data and of the
    report, by default "runs", "data" and "report". say: is called with a line before each run, by default `print`.
    Raises UserError, before any training, where an option cannot be or the contract check finds something wrong.
    """
    choices = _renamed("compare", choices, Choices.__annotations__)
    _require(settings is None or isinstance(settings, Mapping), "settings", settings, "a dict, such as {'layers': 2}")
    trials = plain(trials)
    _require(isinstance(trials, int), "trials", trials, "a whole number, 0 for none")
    numerics = choices.get("numerics", PLAIN)
    _require(isinstance(numerics, Numerics), "numerics", numerics, "Numerics(precision='bf16')")
    config = _config(mixer, dict(settings or {}))
    options = _options(tasks, protocols, baselines, choices)
    study = tuning.with_search(comparison.compare(config, options), trials)
    study, out = computed(study, numerics), Path(choices.get("runs_dir", "runs"))
    run_all = partial(_run_all, choices=choices)
    records: Sequence[Mapping[str, Any]] = ()
    if study.search is not None:
        run_all(tuning.trials(study), effort, out / tuning.FOLDER, tested=False)
        records, study = tuning.trial_records(study, effort, out), tuning.with_best_recipes(study, out)
    asked = choose(study, effort)
    sizes = comparison.shared(effort, options)
    index = StudyIndex.of(
        study.name, effort, asked, trials=records, asked_trials=trials, sizes=sizes, probes=study.probes
    )
    known = tuple(arm_remarks.sentences(asked))
    pages = _pages(choices) / report_name(study.name, effort, {run.task for run in asked})
    renewed = tuple(_renewed(pages, asked))
    told = (*known, *renewed)
    run_all(study, effort, out, told=told, opened=partial(store.write_index, out, index, adds=True))
    results = store.read(out, study.name, effort, runs=index.runs)
    study = replace(study, deviations=(*study.deviations, *known))
    files = report.build(study, effort, results, pages)
    verdict = "\n".join(report.verdict_lines(study, results)).removeprefix("Verdict: ")
    remarks = [*report.remarks(results), *_lost(asked, out), *_changed(asked), *told]
    return Comparison(results.rows, results.ledgers, files, verdict, remarks)


def _lost(runs: Iterable[Run], out: Path) -> Iterator[str]:
    """Yields a sentence on each run whose files cannot be read, and whose scores the report lacks."""
    for run in runs:
        if why := store.why_unreadable(out / run.id, len(run.protocol.phases)):
            yield f"{run.id} is left out: {why}"


def _changed(runs: Iterable[Run]) -> Iterator[str]:
    """Yields a sentence on each mixer that is no longer what it was when it was passed."""
    for mixer in dict.fromkeys(mixer for run in runs for mixer in run.model.mixers):
        if changed_since(mixer):
            yield (
                f"{mixer.label} changes something outside of its module when it is called, such as a dictionary that "
                "it fills. Passed again in this process it is another mixer, whose runs are trained anew: keep such "
                "things in the module, or behind functools.lru_cache."
            )


def _renewed(pages: Path, runs: Iterable[Run]) -> Iterator[str]:
    """Yields a sentence where the report in a folder is of other runs than these, which the new one leaves out."""
    if (earlier := pages / "rows.csv").is_file():
        with earlier.open(encoding="utf-8", errors="replace", newline="") as file:
            before = {row.get("run") for row in csv.DictReader(file)} - {None, ""}
        if others := before - {run.id for run in runs}:
            many = f"{len(others)} runs" if len(others) > 1 else "a run"
            yield (
                f"The report in {pages} is renewed: it was also of {many} that were not asked for now. They stay in "
                "the folder of runs; to keep a report, give another report_dir=."
            )


def _config(mixer: Mixer, settings: dict[str, Any]) -> MixerConfig:
    """Returns the mixer of a class, a function or a name. Raises UserError for a name with settings beside it."""
    if not isinstance(mixer, str):
        return mixer_of(mixer, settings)
    if settings:
        inside = ", ".join(f"{name}={value!r}" for name, value in settings.items())
        raise UserError(f"settings= is for a class: write them into the name, '{mixer.partition('(')[0]}({inside})'.")
    return by_name.mixer(mixer, comparison.NAMED)


def _renamed(function: str, choices: Choices | Places, known: Collection[str]) -> Choices:
    """Returns the keywords by their names of today, and warns of earlier ones. Raises TypeError for unknown ones."""
    if unknown := sorted(choices.keys() - set(known)):
        raise TypeError(f"{function}() got an unexpected keyword argument '{unknown[0]}'")
    now: dict[str, Any] = {name: value for name, value in choices.items() if name not in RENAMED}
    for old in sorted(choices.keys() & RENAMED.keys()):
        new = RENAMED[old]
        if new in choices:
            raise TypeError(f"{function}() got both '{new}' and its earlier name '{old}'")
        warnings.warn(f"{function}({old}=...) is now {function}({new}=...)", DeprecationWarning, stacklevel=3)
        now[new] = choices[old]
    return cast(Choices, now)


def _options(
    tasks: Sequence[str | Task] | str | Task,
    protocols: Sequence[str] | str,
    baselines: Sequence[Mixer] | Mixer,
    choices: Choices,
) -> Options:
    """Returns what is compared. Raises UserError for what is neither a name nor a task, protocol or mixer."""
    return Options(
        tasks=tuple(repr(each.pinned()) if isinstance(each, OwnData) else _task(each) for each in _listed(tasks)),
        protocols=tuple(map(_protocol, _listed(protocols))),
        baselines=tuple(each if isinstance(each, str) else mixer_of(each) for each in _listed(baselines)),
        seeds=choices.get("seeds"),
        steps=choices.get("steps"),
        width=choices.get("width"),
        depth=choices.get("depth"),
        lr=choices.get("lr"),
        batch=choices.get("batch"),
        equal=choices.get("equal", "steps"),
    )


def _pages(choices: Places) -> Path:
    return Path(choices.get("report_dir", "report")).absolute()


def _require(right: bool, name: str, given: object, fix: str) -> None:
    """Raises UserError for a keyword of another kind than `compare` takes."""
    if not right:
        raise UserError(f"{name}={_shown(given)} cannot be: give {fix}.")


def _listed(given: Any) -> tuple[Any, ...]:
    """Returns the parts of what was given, of text those between commas or blanks; none of None."""
    if given is None:
        return ()
    several = given if isinstance(given, Iterable) and not isinstance(given, (str, type)) else [given]
    return tuple(part for word in several for part in (names([word]) if isinstance(word, str) else [word]))


def _task(given: Any) -> str | Task:
    if not isinstance(given, str | Task):
        raise UserError(f"{_shown(given)} is no task: give a name, such as 'recall', or a task such as Recall().")
    return given


def _protocol(given: Any) -> str:
    if not isinstance(given, str):
        raise UserError(f"{_shown(given)} is no name of a protocol: give a name, such as 'scratch'.")
    return given


def _shown(given: Any) -> str:
    return shortened(" ".join(repr(given).split()), 60)


def _run_all(
    study: Study,
    effort: Effort,
    out: Path,
    *,
    choices: Places,
    tested: bool = True,
    told: Iterable[str] = (),
    opened: Callable[[], object] = lambda: None,
) -> None:
    """Executes the runs of a study one after another. opened: is called once that all of them have been checked.
    told: sentences to say before the first.

    Raises UserError, before any training, where a run, its data or the device will not do, and where another process
    has one of the runs.
    """
    runs = choose(study, effort)
    data, device = Path(choices.get("data", "data")), choices.get("device", "auto")
    say = choices.get("say", partial(print, flush=True))
    for sentence in (*training.checked(runs, out, data), *told):
        say(sentence)
    training.check_on(device, runs)
    made(_pages(choices), "report_dir=")
    opened()
    for number, run in enumerate(runs, 1):
        where = store.directory(out, run)
        say(f"{number} of {len(runs)}  {run.id}")
        execute(run, where, data, device=device, probes=study.probes(run), tested=tested)


@dataclass(frozen=True, repr=False)
class Audit(_Reported):
    """What an audit found: the verdict in a sentence, every row, and the files of the report, the page first."""

    verdict: str
    rows: Sequence[Row]
    files: Sequence[Path]


def audit(
    source: Task | str | PathLike[str],
    effort: Effort = "minutes",
    without_models: bool = False,
    **places: Unpack[Places],
) -> Audit:
    """Says how local, positional, trivial or leaky a dataset is.

    source: an `OwnData` or any other task, or what `levelfield audit` takes as a name. without_models: trains nothing.
    places, all by keyword: device, runs_dir, data, report_dir and say, as of `compare`; sizes are those of the effort.
    Runs go one after another in this process, and the same call continues where it was stopped. Raises UserError for
    data without a target.
    """
    choices = _renamed("audit", places, Places.__annotations__)
    task = find_task(fspath(source)) if isinstance(source, str | PathLike) else _task(source)
    assert isinstance(task, Task)
    task = task.pinned() if isinstance(task, OwnData) else task
    folders = auditing.Folders(Path(choices.get("runs_dir", "runs")), Path(choices.get("data", "data")))
    study = audits.study(task)
    choose(study, effort)  # or the reason why it cannot be audited
    auditing.measure(task, effort, folders, no_progress)
    if not without_models:
        _run_all(study, effort, folders.runs, choices=choices)
    rows = auditing.collect(task, effort, folders)
    files = page.build(rows, _pages(choices) / auditing.report_name(task, effort))
    return Audit(words.lead(Reading.of(rows)), rows, files)
