"""Joins what several commands record of one study: comparisons of a mixer, each of which may name other tasks.

    index = joined(StudyIndex.of(study.name, "smoke", runs), store.read_index(path))
    of_last(index).runs          # those that tables may show together

Runs of one task stand beside each other only where they were trained alike. Different files of a user's own may have
one name, as a/reviews.csv and b/reviews.csv do: they are different tasks, and the record keeps the runs of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from levelfield.runs.names import arm_of, without_hash
from levelfield.runs.results import StudyIndex


def joined(index: StudyIndex, earlier: StudyIndex | None) -> StudyIndex:
    """Returns the index with the runs of an earlier one that it does not replace, and with their trials.

    Where the sizes or the recipe are others, or those recorded are not known, nothing is kept, since one record is
    judged as one. Where an arm has other settings now, or its task other content, nothing is kept of what was recorded
    on that task, since the arms of one task are trained alike; a file that was edited is the same task. The runs
    themselves stay.
    """
    if earlier is None or (index.sizes and earlier.sizes != index.sizes):
        return index
    again = {(index.contents.get(run_id), without_hash(run_id)): run_id for run_id in index.runs}
    stale = {name for name, was in earlier.shared.items() if index.shared.get(name, was) != was}
    stale |= {name_of(content) for content in index.contents.values()}  # of which earlier versions kept no content
    asked, contents = _unlike(spec["task"] for spec in index.runs.values()), set(index.contents.values())

    def replaced(run_id: str, spec: Mapping[str, Any]) -> bool:
        content = earlier.contents.get(run_id)
        edited = content is not None and content not in contents and spec["task"] in asked
        other = again.get((content, without_hash(run_id)), run_id) != run_id
        return other or edited or earlier.task(run_id) in stale

    task = {run_id: (earlier.contents.get(run_id), spec["task"]) for run_id, spec in earlier.runs.items()}
    changed = _unlike(task[run_id] for run_id, spec in earlier.runs.items() if replaced(run_id, spec))
    kept = {run_id: spec for run_id, spec in earlier.runs.items() if task[run_id] not in changed}
    runs, tuned = {**kept, **index.runs}, {trial["arm"] for trial in index.trials}
    tried = [trial for trial in trials_of(earlier, runs) if trial["arm"] not in tuned]
    probes = {run_id: each for run_id, each in {**earlier.probes, **index.probes}.items() if run_id in runs}
    before = {run_id: each for run_id, each in earlier.contents.items() if run_id in kept and run_id not in index.runs}
    return replace(
        index,
        runs=runs,
        trials=[*tried, *index.trials],
        shared={**earlier.shared, **index.shared},
        probes=probes,
        contents={**before, **index.contents},
    )


def trials_of(index: StudyIndex, run_ids: Iterable[str]) -> list[Mapping[str, Any]]:
    """Returns the trials of the arms of these runs.

    A trial is recorded by the first run of its arm, which need not be among these. It need not be among those of the
    record either, as where another seed alone was imported: there the names tell the arm.
    """
    asked, seeds = set(run_ids), dict[str, list[str]]()
    for run_id in asked.intersection(index.runs):
        seeds.setdefault(arm_of(run_id), []).append(run_id)

    def wanted(first: str) -> bool:
        alike = seeds.get(arm_of(first), ())
        return first in asked or any(first not in index.runs or _arm(index, first) == _arm(index, r) for r in alike)

    return [trial for trial in index.trials if wanted(trial["arm"])]


def _arm(index: StudyIndex, run_id: str) -> Any:
    """Returns what all seeds of an arm have in common."""
    return index.contents.get(run_id), {**index.runs[run_id], "seed": None}


def of_last(index: StudyIndex, asked: Iterable[str] = ()) -> StudyIndex:
    """Returns the index with one content of each name, for tables would take the scores of several for seeds of one.

    That is the content of the asked runs, by default the one that was asked for last.
    """
    contents = [index.contents[run_id] for run_id in (*index.contents, *asked) if run_id in index.contents]
    last = {name_of(content): content for content in contents}
    runs = {run_id: spec for run_id, spec in index.runs.items() if index.contents.get(run_id) in (None, *last.values())}
    return replace(index, runs=runs)


def name_of(content: str) -> str:
    """Returns the name of the task in what `StudyIndex.contents` calls it."""
    return content.partition("@")[0]


def _unlike(values: Iterable[Any]) -> list[Any]:
    """Returns values, which need not be hashable, each once."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
