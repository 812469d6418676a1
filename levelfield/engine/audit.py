"""Audits a dataset: states facts, scores rules, and joins both with the runs of the audit's study into rows.

    measure(task, "minutes", folders, progress)    # facts and rules; what is there already is not done again
    ...                                            # then the runs of presets.audit.study(task)
    rows = collect(task, "minutes", folders)       # everything, with shares and intervals

What is measured here lies beside the runs, each part written when it is done, so that a killed audit continues:

    runs/audits/own_reviews-3f2a91c0b4/
        facts.jsonl             what needs no model
        leaked.npy              whether each test example of the facts has a duplicate in train, (N,)
        rule-length.json        a rule's score on validation
        rule-length.npy         its score of every test example, (N,)
        later-latest-3.npy      what it and the commonest label score after the first 3 steps, (2, N)
        folds-length.npy        of data without a test split of its own, the rule's cross-validated scores of all
                                examples, (N,): those of train first, then of val and test
        sets.npy                the set of each of these that is kept in one fold, and that of its near duplicates,
                                (2, N)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from levelfield import tasks
from levelfield.data import copies, duplicates, prepared
from levelfield.data.audit import folds, shallow, steps
from levelfield.data.audit.facts import facts
from levelfield.data.audit.view import View
from levelfield.data.duplicates import Duplicates
from levelfield.files import atomic, disk_errors, read_json, read_rows, save_array, unreadable, write_json, write_rows
from levelfield.presets import audit
from levelfield.report.audit.shares import (
    DISORDERED,
    FEWEST_GROUPS,
    FREE,
    RULE,
    WINDOW,
    Scored,
    cross_validated,
    findings,
    unleaked,
)
from levelfield.runs import store
from levelfield.spec import (
    SPLITS,
    Effort,
    Examples,
    Label,
    LabelSet,
    Progress,
    Row,
    Run,
    SplitName,
    StepLabels,
    Task,
    UserError,
    Values,
    digest,
    label_sets,
    no_progress,
)
from levelfield.spec.groups import equal_groups
from levelfield.user.own_data import OwnData

FOLDER = "audits"
FACTS, LEAKED, SETS = "facts.jsonl", "leaked.npy", "sets.npy"
DATA = Row(source="levelfield", model="data", protocol="none")  # of a fact


class Folders(NamedTuple):
    """The folders of runs and of prepared data."""

    runs: Path
    data: Path


def folder(task: Task, effort: Effort, folders: Folders) -> Path:
    """Returns where the parts of an audit that are no runs lie."""
    return folders.runs / FOLDER / f"{task.name}-{digest((audit.seen(task, effort), shallow.VERSION))[:10]}"


def report_name(task: Task, effort: Effort) -> str:
    """Returns the name of the folder of an audit's report: "audit-listops-minutes".

    A part of the task's hash tells data of the user's own apart, and a task of ours whose settings are not the usual:
    "audit-reach-minutes-3f2a91".
    """
    usual = task.name not in tasks.names() or tasks.find(task.name) == task
    return "-".join([audit.study(task).name, effort, *([] if usual and not task.reads else [digest(task)[:6]])])


def measure(task: Task, effort: Effort, folders: Folders, progress: Progress) -> None:
    """States the facts and scores the rules that are not there yet. Raises UserError where data or disk fail."""
    base, where = audit.seen(task, effort), folder(task, effort, folders)
    with disk_errors(where, "--runs-dir"):
        where.mkdir(parents=True, exist_ok=True)
    if not (where / FACTS).exists():
        whole = task if task.archives or task.reads else base  # of what is generated, a part says as much
        splits = prepared.load(whole, folders.data, progress=progress)
        found = duplicates.of_task(whole, splits, progress)
        _save(where / LEAKED, found.leaked)
        write_rows(where / FACTS, _facts(whole, splits, progress, found))
    known, missing = rules(task), unscored(task, where)
    splits = prepared.load(base, folders.data, progress=progress) if missing else {}
    for done, name in enumerate(missing):
        progress("rules", done, len(missing))
        answer = known[name](base, splits)
        _save(_kept(where, "rule", name), answer.test.astype(np.float32))
        if answer.later is not None:
            _save(_kept(where, "later", name), answer.later.astype(np.float32))
        write_json(_rule(where, name), {"rule": answer.rule, "validation": answer.validation})
        progress("rules", done + 1, len(missing))
    _cross_validate(task, base, folders, where, progress)


def unscored(task: Task, where: Path) -> list[str]:
    """Returns the names of the rules for a task that are not scored yet in the audit's folder, simpler ones first."""
    return [name for name in rules(task) if not _rule(where, name).exists()]


def _cross_validate(task: Task, base: Task, folders: Folders, where: Path, progress: Progress) -> None:
    """Scores the rules that are not there yet on all examples, where the split is one of many that might have been."""
    missing = [name for name in shallow.PROBES if not _kept(where, "folds", name).exists()]
    whole = pooled(task, base, folders) if missing else None
    if whole is None:
        return
    if not (where / SETS).exists():
        _save(where / SETS, kept_together(task, base, folders, whole, progress))
    sets, _ = _array(where / SETS)
    if equal_groups(sets) < folds.FOLDS:
        return
    fold = folds.folds(sets)
    for done, name in enumerate(missing):

        def answering(number: int, before: int = done * folds.FOLDS) -> None:
            progress("rules in five folds", before + number, len(missing) * folds.FOLDS)

        scores = folds.held_out(task, whole, fold, shallow.PROBES[name], answering)
        _save(_kept(where, "folds", name), scores.astype(np.float32))
        answering(folds.FOLDS)


def pooled(task: Task, base: Task, folders: Folders) -> Examples | None:
    """Returns the examples of all splits that an audit has, where the test split is carved; None where the data bring
    one."""
    if not in_folds(task, base):
        return None
    splits = base.apart or prepared.load(base, folders.data)
    return folds.joined([splits[split] for split in SPLITS])


def in_folds(task: Task, base: Task) -> bool:
    """Tells whether rules are cross-validated too, as the test split of the user's own data is carved."""
    return isinstance(task, OwnData) and isinstance(base, View) and task.carved


def kept_together(
    task: Task, base: Task, folders: Folders, whole: Examples, progress: Progress = no_progress
) -> np.ndarray:
    """Returns two numbers for each of these examples, (2, N): of the set that is kept in one fold, of those that share
    a group or are duplicates, directly or by way of others; and of the set of its near duplicates as well.

    The two are the same where near duplicates can be kept together: of smooth signals nearly all may be near duplicates
    by way of others, and one set of them can be divided into no folds.
    """
    assert isinstance(task, OwnData) and isinstance(base, View)
    kinds = [duplicates.hashed(whole, whole.documents)]
    if groups := task.groups:
        of = prepared.load(task, folders.data)
        kinds.append(np.concatenate([groups[split][base.chosen(of[split], split)] for split in SPLITS]))
    exact = copies.kept_together(*kinds)
    near = copies.kept_together(exact, copies.sets(task.input, whole, progress, folded=task.folded(whole)))
    return np.stack([near if equal_groups(near) >= FEWEST_GROUPS else exact, near])


def _save(path: Path, array: np.ndarray) -> None:
    with disk_errors(path.parent), atomic(path) as unfinished:
        save_array(unfinished, array)


def rules(task: Task) -> Mapping[str, Callable[[Task, Mapping[SplitName, Examples]], shallow.Answer]]:
    """What scores each rule for answers such as the task's, by the rule's name."""
    if isinstance(task.output, StepLabels):
        return {name: partial(steps.score, context=each) for name, each in steps.contexts(task.output).items()}
    return {name: partial(shallow.score, probe=each) for name, each in shallow.PROBES.items()}


def _kept(where: Path, kind: str, name: str) -> Path:
    """Returns where numbers of a rule are kept. kind: "rule", "later" or "folds"."""
    return where / f"{kind}-{name.replace(' ', '-')}.npy"


def _rule(where: Path, name: str) -> Path:
    return _kept(where, "rule", name).with_suffix(".json")


def _facts(task: Task, splits: Mapping[SplitName, Examples], progress: Progress, found: Duplicates) -> Iterator[Row]:
    own = task if isinstance(task, OwnData) else None
    left_out = own.left_out if own else 0
    shared = own.shared_groups if own else None
    grouped = own.groups if own else None
    yield from facts(task, splits, shared, left_out=left_out, progress=progress, found=found, grouped=grouped)


def _own(task: Task) -> Iterator[Row]:
    """Yields how many sequences of the user's own are read in part, and how many of test have unknown symbols."""
    if isinstance(task, OwnData) and task.cut:
        yield DATA | Row(metric="cut", split="all", value=float(task.cut))
    if isinstance(task, OwnData) and (unknown := task.unknown):
        yield DATA | Row(metric="unknown", split="test", value=float(unknown))


def collect(task: Task, effort: Effort, folders: Folders) -> list[Row]:
    """Returns every row of an audit: facts, scores, shares with intervals.

    Raises UserError where no run has finished and there is no rule.
    """
    base, where = audit.seen(task, effort), folder(task, effort, folders)
    splits = prepared.load(base, folders.data)
    arms = [*_models(audit.study(task).runs(effort), folders.runs), *_rules(task, where)]
    if not arms:
        raise UserError(f"No run of the audit of {task.name} has finished: run the same command again.")
    guessing = floor(base, splits["train"], splits["test"])
    alike = alike_of(task, base, splits["test"], folders)
    groups = alike and alike.number
    found = findings(arms, guessing, groups, constant(base, splits["test"]))
    found += unleaked(arms, guessing, groups, *_apart(task, base, where, folders))
    found += _cross_validated(task, base, folders, where)
    used = DATA | Row(metric="trained_on", split="train", value=float(len(splits["train"])))
    long = audit.training_steps(task, effort) if any(arm.kind != RULE for arm in arms) else 0
    trained = [DATA | Row(metric="training_steps", split="train", value=float(long))] if long else []
    rows = [*read_rows(where / FACTS), *_own(task), used, *trained, *_amount(alike), *found]
    own = Row(study=f"audit-{task.name}", effort=effort, task=task.name)
    return [Row(**{**row, **own}) for row in rows]


def _apart(task: Task, base: Task, where: Path, folders: Folders) -> tuple[np.ndarray, str]:
    """Returns which test examples that the audit has are not in train, (N,), and what tells: "copies", exact or near
    ones, or their "groups" as well, unless all groups are in train."""
    leaked, known = _array(where / LEAKED), task.trained_groups if isinstance(task, OwnData) else None
    if isinstance(base, View) and (task.archives or task.reads):  # whose facts are of all examples
        chosen = base.chosen(prepared.load(task, folders.data)["test"], "test")
        leaked, known = leaked[chosen], None if known is None else known[chosen]
    return (~leaked, "copies") if known is None or known.all() else (~(leaked | known), "groups")


def _cross_validated(task: Task, base: Task, folders: Folders, where: Path) -> Iterator[Row]:
    """Yields what each rule scores in five folds."""
    kept = {name: _array(path) for name in shallow.PROBES if (path := _kept(where, "folds", name)).exists()}
    if kept and (whole := pooled(task, base, folders)):
        sets, near = _array(where / SETS)
        yield from cross_validated(kept, floor(base, whole, whole), sets)
        if apart := folds.divided(near, folds.folds(sets)):
            yield DATA | Row(metric="near_apart", split="all", value=float(apart), n=len(near))


class Alike(NamedTuple):
    """What some test examples have in common, "groups" or "inputs", and the number of each one's, (N,)."""

    kind: str
    number: np.ndarray


def alike_of(task: Task, base: Task, test: Examples, folders: Folders) -> Alike | None:
    """Returns what makes scores of test examples alike: their groups or, where these tell more apart, equal inputs.
    None where no two have either in common, and the task has no groups."""
    test = (base.apart or {"test": test})["test"]
    inputs = Alike("inputs", np.unique(duplicates.hashed(test, test.documents), return_inverse=True)[1])
    groups = groups_of(task, base, folders)
    found = [inputs] if groups is None else [Alike("groups", groups), inputs]
    fewest = min(found, key=lambda each: equal_groups(each.number))
    return None if groups is None and inputs.number.max() + 1 == len(test) else fewest


def _amount(alike: Alike | None) -> Iterator[Row]:
    """Yields how many equally large groups, or equally frequent inputs, the test examples amount to."""
    if alike:
        yield DATA | Row(metric=f"equal_{alike.kind}", split="test", value=equal_groups(alike.number))


def groups_of(task: Task, base: Task, folders: Folders) -> np.ndarray | None:
    """Returns the number of the group of each test example that the audit has, (N,); None where rows have none."""
    groups = task.test_groups
    if groups is None or not isinstance(base, View):
        return groups
    return groups[base.chosen(prepared.load(task, folders.data)["test"], "test")]


def _models(runs: Sequence[Run], out: Path) -> Iterator[Scored]:
    """Yields every arm of which all seeds are complete, in the order of the study."""
    arms: dict[str, list[Run]] = {}
    for run in runs:
        arms.setdefault(run.model.label, []).append(run)
    for name, seeds in arms.items():
        folders = [store.directory(out, run) for run in seeds]
        if not all(store.complete(where) for where in folders):
            continue
        scores = [store.read_scores(where) for where in folders]
        found = [row for where in folders for row in store.run_rows(where / store.ROWS)]
        held_out = [row["value"] for row in found if row.get("split") == "val" and "value" in row]
        if len(held_out) == len(seeds) and all(each is not None for each in scores):
            kind, place = _kind(name, seeds[0])
            stacked = np.stack([np.asarray(each, np.float32) for each in scores])
            yield Scored(name, kind, float(np.mean(held_out)), stacked, place)


def _kind(name: str, run: Run) -> tuple[str, str]:
    """Returns what kind of arm a run is of, and of a window its steps."""
    if run.model.receptive_field is not None:
        return WINDOW, str(run.model.receptive_field)
    return (FREE if name in {mixer.label for mixer in audit.FREE} else DISORDERED), ""


def _rules(task: Task, where: Path) -> Iterator[Scored]:
    for name in rules(task):
        path = _rule(where, name)
        if path.exists():
            scores, later = _array(_kept(where, "rule", name))[None], _kept(where, "later", name)
            yield Scored(name, RULE, _validation(path), scores, later=_array(later) if later.exists() else None)


def _validation(path: Path) -> float:
    """Returns a rule's score on validation. Raises UserError for a damaged file."""
    found = read_json(path, _remedy(path))
    if not isinstance(found, dict) or not isinstance(found.get("validation"), int | float):
        raise UserError(f"{path} is damaged (it has no score on validation): {_remedy(path)}.")
    return found["validation"]


def _array(path: Path) -> np.ndarray:
    """Returns what is kept of each test example, (N,). Raises UserError for a damaged file."""
    try:
        return np.load(path, allow_pickle=False)
    except OSError as error:
        raise unreadable(path, error, _remedy(path)) from error
    except (ValueError, EOFError) as error:
        raise UserError(f"{path} is damaged ({error}): {_remedy(path)}.") from error


def _remedy(path: Path) -> str:
    return f"remove {path.parent} and run the same command again"


def floor(task: Task, train: Examples, test: Examples) -> np.ndarray:
    """Returns what the best guess scores on each test example, (N,).

    For labels it is right or wrong about the commonest one, unless chance is higher, and for sets of labels the F1 of
    the commonest ones; for numbers it is minus the squared distance from their mean; where targets stand at steps, the
    same share for each example.
    """
    if isinstance(task.output, Values):
        middle = np.asarray(train.y, np.float64).reshape(len(train), -1).mean(0)
        return -np.square(np.asarray(test.y).reshape(len(test), -1) - middle).mean(1)
    if isinstance(task.output, LabelSet):
        scores = label_sets.f1(label_sets.commonest(np.asarray(train.y)), np.asarray(test.y) > 0)
        return scores if scores.mean() >= task.chance else np.full(len(test), task.chance)
    if isinstance(task.output, Label):
        values, counts = np.unique(train.y, return_counts=True)
        right = (np.asarray(test.y) == values[counts.argmax()]).astype(np.float64)
        return right if right.mean() >= task.chance else np.full(len(test), task.chance)
    prior = task.baselines(train, test).get("label_prior", task.chance)
    return np.full(len(test), max(prior, task.chance))


def constant(task: Task, test: Examples) -> np.ndarray | None:
    """Returns what the one answer that is best on these test examples scores on each, (N,); None without answers.

    It is the commonest class, the set of labels by which F1 is highest, or the mean number. Of labels at steps it is
    the share of an example's labelled steps, as models are scored.
    """
    y = np.asarray(test.y)
    if isinstance(task.output, Values | LabelSet):
        return floor(task, test, test)
    if not isinstance(task.output, Label | StepLabels):
        return None
    values, counts = np.unique(y[y >= 0], return_counts=True)
    right = y == values[counts.argmax()]
    return steps.shares(right, test) if test.stepwise else right.astype(np.float64)
