"""Reads and writes the answers in a model's folder, and scores them without the model.

    answers = Answers(folder)
    answers.known(sample.key)         # an answer to the same prompt, whenever it was generated
    answers.append(prediction)
    score(folder)                     # rows, baselines and gaps of every variant, template and seed

A prediction is stored under the hash of what the model read (`Sample.key`), so that a later evaluation of more lengths,
tasks or samples generates only what is missing. A task whose prompts change gets a new version. Answers to the earlier
version are shown as `outdated` until the model is evaluated again, which generates only those with a changed prompt.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, final

from levelfield.files import read_log, read_rows, to_line, write_rows
from levelfield.longcontext.cut_off import cut_lengths
from levelfield.longcontext.model_record import is_exact, positions, way_of
from levelfield.longcontext.predictions import (
    ENDED_BEFORE,
    LEFT_OUT,
    PREDICTIONS,
    WITHHELD,
    LeftOut,
    Prediction,
    Setting,
    settled,
)
from levelfield.longcontext.rows import by_setting, failures, middle_gaps, row_of, rows_of, score_cells
from levelfield.ruler import RulerTask, Sample, baselines
from levelfield.spec import Row, UserError
from levelfield.spec.failure import Failure
from levelfield.spec.gap import Gap

BASELINES = "baselines.jsonl"
CUT = "; at a length of {} far fewer tokens were counted than prompts have, and some may have been cut off"


def stored(folder: Path) -> list[Prediction]:
    """Reads every answer that was ever appended, except a last line that was cut off. Raises UserError."""
    return read_predictions(folder / PREDICTIONS)


def read_predictions(path: Path) -> list[Prediction]:
    """Reads a file of answers, except a last line that was cut off. Raises UserError where it is damaged."""
    try:
        return [Prediction.restored(record) for record in read_log(path)]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({error}): remove it and run again.") from error


def predictions(folder: Path) -> list[Prediction]:
    """Reads the last answer that was appended to each sample. Raises UserError.

    A sample's prompt changes with its texts and with the version of its task; answers to earlier prompts do not count,
    nor those to other essays or to another file than the last answer to the same task and length. Those that a content
    filter withheld are no answers (`with_left_out`).
    """
    return with_left_out(folder)[0]


def with_left_out(folder: Path) -> tuple[list[Prediction], list[LeftOut]]:
    """Reads what `predictions` does, and the samples that have no answer which counts.

    These are the skipped ones, and those whose answers a server's content filter withheld, which are stored. What was
    noted as not answered yet and has an answer by now is none of them.
    """
    found = stored(folder)
    texts = {p.cell: p.texts for p in found}
    latest = settled([p for p in {p.place: p for p in found}.values() if p.texts == texts[p.cell]])
    places = {p.place for p in latest}
    left = [one for one in left_out(folder) if not (one.unanswered and one.place in places)]
    withheld = [LeftOut.of(p, WITHHELD) for p in latest if p.withheld]
    return [p for p in latest if not p.withheld], [*left, *withheld]


@final
class Answers:
    """The answers in a folder, to which more are appended. An unfinished last line is removed first."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / PREDICTIONS
        found = stored(folder)
        self._by_key = {p.key: p for p in found}
        self._latest = {p.place: p for p in found}
        for name in (PREDICTIONS, BASELINES):
            repair(folder / name)

    def known(self, key: str) -> Prediction | None:
        """Returns the stored answer to the prompt with this hash; None where there is none."""
        return self._by_key.get(key)

    def append(self, one: Prediction) -> None:
        """Stores an answer, unless it is already the last one to its sample."""
        old = self._latest.get(one.place)
        if old is None or _mark(old) != _mark(one):
            _append(self.path, to_line(one.record()))
        self._by_key[one.key], self._latest[one.place] = one, one

    def replaced(self, by: Sequence[Prediction]) -> tuple[int, int]:
        """Counts the answers whose place these take with another text, and those in the same cells that stay."""
        places = {one.place for one in by}
        other = [one for one in by if one.place in self._latest and self._latest[one.place].text != one.text]
        cells = {one.cell for one in other}
        return len(other), sum(old.cell in cells and old.place not in places for old in self._latest.values())

    def sync(self) -> None:
        """Flushes what was appended to the disk."""
        with self.path.open("a") as file:
            os.fsync(file.fileno())


def _mark(one: Prediction) -> tuple[str, int, tuple[str, str], str]:
    """Returns what of an answer may change although it is to the same sample."""
    return one.key, one.version, one.texts, one.text


def repair(path: Path) -> None:
    """Removes a last line that was cut off when the process was killed, before more is appended."""
    if path.exists():
        with path.open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)


def _append(path: Path, lines: str) -> None:
    """Appends whole lines, or nothing where the disk has room for a part of them. Raises OSError.

    A part that stayed would damage the line that is appended after it, once there is room again.
    """
    data = lines.encode()
    with path.open("ab", buffering=0) as file:
        before = file.tell()
        try:
            while data:
                data = data[file.write(data) :]
        except OSError:
            file.truncate(before)
            raise


def left_out(folder: Path) -> list[LeftOut]:
    """Reads the samples that were skipped when the folder's answers were generated."""
    return [LeftOut.restored(record) for record in read_rows(folder / LEFT_OUT)]


class Covers(Protocol):
    """What says whether a sample belongs to it, as an evaluation does."""

    def covers(self, found: LeftOut) -> bool: ...


def leave_out(folder: Path, evaluations: Sequence[Covers], left: Sequence[LeftOut]) -> None:
    """Stores the samples that these evaluations skipped, in place of those they skipped before."""
    kept = [old for old in left_out(folder) if not any(each.covers(old) for each in evaluations)]
    if kept or left or (folder / LEFT_OUT).exists():
        write_rows(folder / LEFT_OUT, [vars(one) for one in dict.fromkeys([*kept, *left])])


def await_answers(folder: Path, samples: Sequence[Sample], left: Sequence[LeftOut]) -> None:
    """Stores that these samples have no answer yet, before the first of them has one, so that scores say so even after
    a kill. left: samples that were skipped until then. What else was left out before stays."""
    waiting = [*left, *(LeftOut.of(sample, ENDED_BEFORE) for sample in samples)]
    places = {one.place for one in waiting}
    kept = [old for old in left_out(folder) if old.place not in places]
    write_rows(folder / LEFT_OUT, [vars(one) for one in (*kept, *waiting)])


def append_baselines(folder: Path, task: RulerTask, samples: Sequence[Sample]) -> None:
    """Stores what the trivial baselines score on the same samples."""
    append_lines(folder, baseline_lines(task, samples))


def append_lines(folder: Path, lines: Sequence[str]) -> None:
    """Stores lines of `baseline_lines`."""
    _append(folder / BASELINES, "".join(lines))


def baseline_lines(task: RulerTask, samples: Sequence[Sample]) -> list[str]:
    """Computes what the trivial baselines score on these samples, as the lines that are stored."""
    first, lines = samples[0], []
    setting = {"flavour": first.flavour, "template": first.template, "seed": first.seed}
    for name, value in baselines(task, samples).items():
        task_name, at = first.task.partition("@")[0], f"length={first.length}"
        row = row_of(name, task_name, at, metric="accuracy", values=[value], status="ok")
        lines.append(to_line({**row, "protocol": "none", "n": len(samples), "setting": setting}))
    return lines


def baseline_rows(folder: Path, setting: Setting | None = None) -> list[Row]:
    """Reads the last stored baselines of each task and length, of one setting or (None) of any."""
    last: dict[tuple[str, str, str], Row] = {}
    for row in read_log(folder / BASELINES):
        own = row.pop("setting", None)  # older lines have none
        if setting is None or own is None or tuple(own.values()) == setting:
            last[row["model"], row["task"], row["at"]] = Row(**row)
    return list(last.values())


@dataclass(frozen=True)
class SettingScores:
    """The scores of one variant, template and seed. name: these three; "" where the folder has no others.

    gaps: match in the outer thirds and in the middle one, by task and length (`middle_gaps`). misses: the answers that
    are not right. variant: of RULER.
    """

    name: str
    rows: Sequence[Row]
    baselines: Sequence[Row]
    gaps: Mapping[tuple[str, int], Gap]
    failures: Sequence[Failure] = ()
    variant: str = ""


def score(folder: Path) -> list[SettingScores]:
    """Scores all stored answers, setting by setting; where there are several, their rows say which."""
    answered, left = with_left_out(folder)
    made_for, settings = positions(folder), by_setting(answered)
    scores = []
    for setting, group in settings.items():
        name = "" if len(settings) == 1 else "-".join(map(str, setting))
        fewer = [one for one in left if one.setting == setting]
        cells = score_cells(group, fewer)
        made = rows_of(cells, f"{folder.name}-{name}".removesuffix("-"), fewer, made_for)
        if said := way_of(folder, setting[1]):
            short = {f"length={n}": CUT.format(n) for n in cut_lengths(group, is_exact(said))}
            made = [row | Row(asked=said + short.get(row.get("at", "").partition(",")[0], "")) for row in made]
        base = baseline_rows(folder, setting)
        scores.append(SettingScores(name, made, base, middle_gaps(cells), failures(cells), variant=setting[0]))
    return scores
