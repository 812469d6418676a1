"""Defines the kinds of argument that the command line takes: how each looks in --help, and how its words are read.

    --runs-dir runs                 a folder, there or not; what cannot be one is refused before anything else happens
    --tasks listops,recall pulse    names, separated by commas or blanks
    --seeds 3                       a whole number

Arguments that several commands share are dataclasses here, which tyro flattens into the flags of each command. Whatever
cannot be read raises UserError, in one sentence.
"""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from tyro.conf import Positional, arg
from tyro.constructors import PrimitiveConstructorSpec

from levelfield import files
from levelfield.cli.refusals import Unreadable
from levelfield.engine.placement import Placement
from levelfield.presets.options import MOST as MOST_OF
from levelfield.presets.options import Equal, Options, columns, names
from levelfield.spec import EFFORTS, Effort, Numerics, UserError, closest
from levelfield.spec.numerics import Precision

T = TypeVar("T", int, float)
MOST = 1_000_000_000
MOST_AT_ONCE = 1_000  # questions, each of which is a thread and a connection
LONGEST_S = 1_000_000  # that a socket can be told to wait on any system
MOST_THREADS = 1_024  # of a process; torch ends with a segmentation fault where they are very many
NO_HINT = arg(help_behavior_hint="")


def is_text(text: str) -> bool:
    """Tells whether a text can be written and sent: a word of the command line that is no UTF-8 cannot."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def check_text(words: Sequence[str]) -> None:
    """Raises UserError for a word that is not of UTF-8, such as the name of a file from an old system: no report, row
    or specification could hold it."""
    for word in words:
        if not is_text(word):
            shown = word.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            raise UserError(f"'{files.abridged(shown, 60)}' is not in UTF-8: rename the file, or set LC_ALL=C.UTF-8.")


def whole(text: str, least: int = 0, most: int = MOST, example: str = "") -> int:
    """Reads a number: whole("12") is 12. Raises UserError, with an example, for what is no whole number in that
    range."""
    shown = files.abridged(text, 60)
    try:
        number = int(text) if len(text) <= 20 else MOST + 1
    except ValueError:
        raise Unreadable(text, f"'{shown}' is no whole number: give one such as {example or max(1, least)}.") from None
    if not least <= number <= most:
        raise Unreadable(text, f"{shown} is out of range: give a whole number from {least} to {most:,}.")
    return number


def tokens(text: str, most: int = MOST) -> int:
    """Reads a length in tokens: tokens("4k") is 4096, tokens("1m") 1,048,576. Raises UserError for what is none."""
    found = re.fullmatch(r"(\d{1,9})([km])", text.lower())
    return whole(str(int(found[1]) * {"k": 1 << 10, "m": 1 << 20}[found[2]]) if found else text, 1, most, "4096 or 4k")


def _upto(name: str) -> PrimitiveConstructorSpec[Any]:
    """Returns the kind of argument that is a number of a comparison, with the limits that this number has."""
    return _one("N", partial(whole, least=1, most=MOST_OF[name]))


def _fraction(text: str, wrong: str, fits: Callable[[float], bool]) -> float:
    """Reads a number that fits. Raises UserError, with what is wrong of any other word and the fix."""
    with suppress(ValueError):
        if fits(number := float(text)):
            return number
    raise Unreadable(text, f"'{files.abridged(text, 60)}' is {wrong}.")


def real(text: str) -> float:
    """Reads a number: real("2e-3") is 0.002. Raises UserError for what is no number above zero."""
    return _fraction(text, "no number above 0: give one such as 0.001", lambda number: 0 < number < math.inf)


def decimal(text: str) -> float:
    """Reads a number: decimal("0.6") is 0.6. Raises UserError for what is none."""
    return _fraction(text, "no number: give one such as 0 or 0.6", lambda number: True)


def dollars(text: str) -> float:
    """Reads an amount: dollars("0.50") is 0.5. Raises UserError for what is no number from 0 on."""
    return _fraction(text, "no amount of dollars: give one such as 5 or 0.50", lambda number: 0 <= number < math.inf)


def effort(text: str) -> Effort:
    """Reads an effort. Raises UserError, with the nearest one, for a word that is none."""
    for known in EFFORTS:
        if text == known:
            return known
    raise UserError(f"--effort cannot be '{files.abridged(text, 60)}': {closest(text, EFFORTS)}")


def share(text: str) -> float:
    """Reads a number: share("0.5") is 0.5. Raises UserError for what is no number from 0 to 1."""
    return _fraction(text, "no number from 0 to 1: give one such as 0.5", lambda number: 0 <= number <= 1)


def numbers(words: Sequence[str], read: Callable[[str], T], flag: str = "") -> tuple[T, ...]:
    """Reads a list, without repetitions: numbers(["1024,2048", "1024 4096"], int) is (1024, 2048, 4096).

    flag: what the words were given to, which an error names.
    """
    try:
        return tuple(dict.fromkeys(read(part) for part in names(words)))
    except Unreadable as error:
        raise UserError(f"{flag} {error}".strip()) from error


def _one(metavar: str, read: Callable[[str], Any]) -> PrimitiveConstructorSpec[Any]:
    """Returns the kind of argument that is one word, which `read` understands."""
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: read(words[0]),
        is_instance=lambda value: True,
        str_from_instance=lambda value: [str(value)],
    )


def _some(metavar: str, read: Callable[[Sequence[str]], tuple[Any, ...]]) -> PrimitiveConstructorSpec[Any]:
    """Returns the kind of argument that is any number of words, which `read` understands together."""
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar=metavar,
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: list(map(str, value)),
    )


def data_folder(text: str) -> Path:
    """Reads the folder of prepared data. Raises UserError for what is none, and says where a file of data belongs."""
    from levelfield.user import own_files

    if os.path.isfile(text) and own_files.is_data(text):
        name = shlex.quote(text)
        raise UserError(
            f"--data is the folder of prepared data, and {text} is a file: give your own data with --own {name}, or "
            f"to `levelfield audit {name}` and `levelfield data prepare {name}` as their first word."
        )
    return folder(text)


def folder(text: str) -> Path:
    """Reads the name of a folder. Raises UserError for none, such as a variable that is not set leaves, and for what
    cannot be a folder's."""
    if not text.strip():
        raise UserError("A folder's name is empty: name one, such as . for this one, or leave the option out.")
    return files.folder(text)


def of_runs(text: str) -> str:
    """Reads the id of a run, or a pattern. Raises UserError for none, which would choose all runs."""
    if not text.strip():
        raise UserError("--only and --filter name runs, and this is empty: leave them out to choose all.")
    return text


Folder = Annotated[Path, _one("FOLDER", folder)]
DataFolder = Annotated[Path, _one("FOLDER", data_folder)]
Folders = Annotated[
    tuple[Path, ...],
    _some("FOLDER ...", lambda words: tuple(map(folder, words))),
    NO_HINT,
]
Paths = Annotated[tuple[Path, ...], _some("RUNS ...", lambda words: tuple(map(Path, words))), NO_HINT]
Page = Annotated[Path, _one("PAGE.html", Path)]
File = Annotated[Path | None, _one("PATH", Path), NO_HINT]
Number = Annotated[int, _one("N", whole)]
Positive = Annotated[int, _one("N", partial(whole, least=1))]
AtOnce = Annotated[int, _one("N", partial(whole, least=1, most=MOST_AT_ONCE))]
Seconds = Annotated[int, _one("N", partial(whole, least=1, most=LONGEST_S))]
Length = Annotated[int, _one("N", tokens)]
Trials = Annotated[int, _one("N", whole), NO_HINT]
Count = Annotated[int | None, _one("N", whole), NO_HINT]
PositiveIfAny = Annotated[int | None, _one("N", partial(whole, least=1)), NO_HINT]
Threads = Annotated[int, _one("N", partial(whole, least=1, most=MOST_THREADS))]
ThreadsIfAny = Annotated[int | None, _one("N", partial(whole, least=1, most=MOST_THREADS)), NO_HINT]
Width = Annotated[int, _upto("width")]
Share = Annotated[float, _one("X", share)]
Dollars = Annotated[float, _one("X", dollars)]
Decimal = Annotated[float, _one("X", decimal), NO_HINT]
Rate = Annotated[float | None, _one("X", real), NO_HINT]
Device = Annotated[str, _one("DEVICE", str)]
Text = Annotated[str, _one("TEXT", str), NO_HINT]
Pattern = Annotated[str, _one("PATTERN", of_runs), NO_HINT]
RunId = Annotated[str, _one("RUN_ID", of_runs), NO_HINT]
Column = Annotated[str, _one("COLUMN", str), NO_HINT]
Switch = Annotated[bool, NO_HINT]
Name = Annotated[str | None, _one("TEXT", str), NO_HINT]
Names = Annotated[tuple[str, ...], _some("NAME ...", names), NO_HINT]
Files = Annotated[tuple[str, ...], _some("FILE ...", tuple), NO_HINT]
ColumnNames = Annotated[tuple[str, ...], _some("COLUMN ...", columns), NO_HINT]
Cells = Annotated[tuple[str, ...], _some("CELL ...", columns), NO_HINT]
AnyEffort = Annotated[Effort | None, _one(f"{{{','.join(EFFORTS)}}}", effort), NO_HINT]
EngineName = Annotated[str, _one("ENGINE", str)]
Kind = Annotated[Positional[str], _one("KIND", str), NO_HINT]
StudyName = Annotated[Positional[str], arg(metavar="STUDY")]
TaskName = Annotated[Positional[str], arg(metavar="TASK")]


@dataclass(frozen=True)
class Execution:
    """The folders of runs and of data, and what executes the runs.

    Args:
        runs_dir: folder of run directories
        data: folder of prepared data
        device: auto, cpu, cuda or cuda:1
        jobs: worker processes (default: what the cores suffice for, or one per GPU; on a cluster one a run, at most 32)
        track: show the runs in tensorboard, trackio, wandb or mlflow too, while they train (default: none)
    """

    runs_dir: Folder = Path("runs")
    data: DataFolder = Path("data")
    device: Device = "auto"
    jobs: PositiveIfAny = None
    track: Annotated[Text, arg(metavar="TRACKER")] = ""

    def checked_tracker(self) -> str:
        """Returns the tracker that is named, "" for none. Raises UserError for one that cannot be used here."""
        if self.track:
            from levelfield.runs import trackers

            trackers.check(self.track)
        return self.track

    @property
    def here(self) -> Placement:
        """The placement unless an engine is named: this machine."""
        return Placement(jobs=self.jobs)


@dataclass(frozen=True)
class ClusterOptions:
    """What each worker of a cluster asks for.

    Args:
        gpus: GPUs of each worker, for ray and slurm; with ray also a part of one, such as 0.5 (default: none)
        partition: slurm's partition (default: as slurm says)
        account: slurm's account (default: as slurm says)
        time: limit of one slurm job, such as 4:00:00; the next job continues a run (default: as slurm says)
    """

    gpus: Rate = None
    partition: Text = ""
    account: Text = ""
    time: Text = ""

    def placement(self, engine: str, jobs: int | None) -> Placement:
        """Returns the same as a value of the package."""
        return Placement(engine, jobs, self.gpus or 0.0, self.partition, self.account, time=self.time)


@dataclass(frozen=True)
class CompareOptions:
    """The arms of a comparison and what they share.

    Args:
        tasks: names of tasks (default: listops recall pathfinder), or standard: recall, words, reach and digits; or
            mad: the six of MAD
        protocols: names of protocols (default: scratch spt_masked)
        baselines: names of mixers (default: attention s4 conv)
        seeds: runs of each arm (default: as the effort affords, 2 at minutes)
        steps: optimizer steps of each run, all phases together (default: as the effort affords, 1,000 at minutes)
        width: features of a step in your model (default: as the effort affords, 48 at minutes); baselines get the width
            that gives them as many parameters
        depth: blocks of each model (default: as the effort affords, 2 at minutes)
        lr: learning rate of every arm (default: as the effort affords, 0.002 at minutes)
        batch: sequences of each optimizer step (default: as the effort affords, 32 at minutes)
        equal: what is equal for all arms, optimizer steps or FLOPs, which are those that your mixer takes for its steps
            on sequences of the task's greatest length (default: steps)
    """

    tasks: Names = ()
    protocols: Names = ()
    baselines: Names = ()
    seeds: Annotated[int | None, _upto("seeds"), NO_HINT] = None
    steps: Annotated[int | None, _upto("steps"), NO_HINT] = None
    width: Annotated[int | None, _upto("width"), NO_HINT] = None
    depth: Annotated[int | None, _upto("depth"), NO_HINT] = None
    lr: Rate = None
    batch: Annotated[int | None, _upto("batch"), NO_HINT] = None
    equal: Annotated[Equal, NO_HINT] = "steps"

    def options(self) -> Options:
        """Returns the same as a value of the package. Raises UserError for a number that no run can have."""
        return Options(**vars(self))


@dataclass(frozen=True)
class ReachOptions:
    """What is asked at every certified range, and how long is trained for it.

    Args:
        task: the task reach with other marks or filler: reach_parity has three marks, and the filler of
            "reach(symbols=256, text='book.txt')" is a text (default: two marks among random symbols)
        seeds: runs of each arm at each range (default: as the effort affords, 3 at minutes)
        steps: optimizer steps of each run (default: as the effort affords, 3,000 at minutes)
    """

    task: Annotated[str | None, arg(metavar="TASK"), NO_HINT] = None
    seeds: Annotated[int | None, _upto("seeds"), NO_HINT] = None
    steps: Annotated[int | None, _upto("steps"), NO_HINT] = None

    def options(self) -> Options:
        """Returns the same as a value of the package. Raises UserError for a number that no run can have."""
        return Options(tasks=() if self.task is None else (self.task,), seeds=self.seeds, steps=self.steps)


@dataclass(frozen=True)
class NumericsOptions:
    """How runs are computed. What is given stands instead of what the study says, and makes runs of other ids.

    Args:
        precision: float32, tf32 or bf16, in which most of a model is computed (default: as the study says, float32 if
            it says nothing)
        compile: let torch compile the blocks of every model
        accumulate: parts that every batch is split into, one after the other, for less memory
        recompute: compute activations again in the backward pass, for less memory
        nproc: processes that train each run together, each on its share of every batch and on a GPU of its own
        shard: have each of these processes hold a share of the parameters and of the optimizer state, too, for less
            memory
        by_length: in training, compute the examples of each length in a batch by themselves, so that nothing is padded
    """

    precision: Annotated[Precision, NO_HINT] = "float32"
    compile: Switch = False
    accumulate: Annotated[Positive, NO_HINT] = 1
    recompute: Switch = False
    nproc: Annotated[Positive, NO_HINT] = 1
    shard: Switch = False
    by_length: Switch = False

    def numerics(self) -> Numerics:
        """Returns the same as a value of the package. Raises UserError for a number that cannot be."""
        return Numerics(**vars(self))


EXECUTION, COMPARE_OPTIONS, REACH_OPTIONS = Execution(), CompareOptions(), ReachOptions()
NUMERICS, CLUSTER = NumericsOptions(), ClusterOptions()
