"""Tells runs to a tracker: `levelfield track RUNS --to TRACKER`, and beside training `--track TRACKER`.

    track([Path("runs")], "tensorboard", say)                           # what it has not been told yet, then ends
    with alongside("wandb", Path("runs/studies/demo-minutes.json"), say):
        ...                                                             # trains; another process tells what is written

Training does not know of it. The other process reads the folders of the runs until its standard input ends, which it
does with this one, however that ends. Whatever befalls it comes to one warning after the runs.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from levelfield.cli.streams import Say
from levelfield.engine.environment import environment
from levelfield.runs import store
from levelfield.runs.trackers import address, check, open_sink
from levelfield.runs.trackers.replay import Replayer
from levelfield.spec import UserError
from levelfield.spec.errors import format_error

FOLDER = "trackers"  # in the folder of runs: what trackers keep on this machine, and how far each is
EVERY_S = 15.0
PATIENCE_S = 60.0  # for the other process, once the runs have ended
SOON_S = 2.0  # after which it is said what is waited for
SLOW_S = 5.0  # failures in a row that took longer together are of a server that does not answer
NAMED = 3  # runs of a kind that a message names


def run_folders(path: Path) -> list[Path]:
    """Returns the folders of runs that a folder holds, a run's own, or those that the index of a study names.

    An index that is not there yet names none. Raises UserError where there is no folder of that name, or the file is
    no index: it may be anything of the user's, so that nothing is advised which would change it.
    """
    if path.is_file():
        try:
            found = [path.parent.parent / run_id for run_id in store.read_index(path).runs]
        except UserError as error:
            raise UserError(
                f"{path} is no folder of runs, and no index of a study that can be read: name a folder of runs, such "
                "as runs, one run's, or an index, such as runs/studies/demo-minutes.json."
            ) from error
        return [where for where in found if where.is_dir()]
    if path.suffix == ".json" and not path.exists():
        return []
    if not path.is_dir():
        raise UserError(f"There is no folder {path}: name a folder of runs, such as runs, or one run's.")
    if (path / store.SPEC).exists():
        return [store.with_name(path)]
    return sorted(spec.parent for spec in path.glob(f"*/{store.SPEC}"))


@dataclass
class Telling:
    """What has been told to one tracker. failures: of the last time, run -> why; untried: the runs after the last."""

    name: str
    replayers: dict[Path, Replayer] = field(default_factory=dict)  # folder of runs -> its own
    records: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    untried: Sequence[str] = ()

    def catch_up(self, folders: Sequence[Path]) -> None:
        """Tells what is new of each run. What the tracker raises is a failure, which the next time may mend.

        Where the tracker cannot be opened, or failures in a row took long, no other is tried: it would take as long.
        """
        self.failures, self.untried, lost_s = {}, (), 0.0
        for number, where in enumerate(folders, start=1):
            replayer, began = None, time.monotonic()
            try:
                replayer, began = self._replayer(where.parent), time.monotonic()
                self.records += replayer.catch_up(where)
                lost_s = 0.0
            except UserError as error:
                self.failures[where.name] = str(error)
            except Exception as error:  # whatever another package raises
                self.failures[where.name] = format_error(error)
                lost_s += time.monotonic() - began
                if replayer is None or lost_s > SLOW_S:
                    self.untried = [each.name for each in folders[number:]]
                    return

    def _replayer(self, out: Path) -> Replayer:
        if out not in self.replayers:
            kept = out / FOLDER / self.name
            self.replayers[out] = Replayer(open_sink(self.name, kept), kept / "state")
        return self.replayers[out]

    def close(self) -> None:
        for replayer in self.replayers.values():
            try:
                replayer.close()
            except Exception as error:
                self.failures.setdefault("its end", format_error(error))

    def looks(self) -> list[str]:
        """Returns the commands that show what was told."""
        return [replayer.sink.look for replayer in self.replayers.values() if replayer.sink.look]


def track(paths: Sequence[Path], name: str, say: Say, ended: threading.Event | None = None) -> bool:
    """Tells the runs to a tracker, and returns whether it has taken all.

    ended: until this is set, new records are looked for. Raises UserError where a path holds no runs, or the tracker
    cannot be used.
    """
    check(name)
    if not paths:
        raise UserError("Name what to tell: a folder of runs, such as runs, one run's, or the index of a study.")
    if ended is None and not any(run_folders(path) for path in paths):
        raise UserError(f"There are no runs in {' '.join(map(str, paths))}: name a folder of runs, or one run's.")
    telling = Telling(name)
    while ended is not None and not ended.wait(EVERY_S):
        telling.catch_up([where for path in paths for where in run_folders(path)])
    folders = [where for path in paths for where in run_folders(path)]
    with _waiting(name, say if ended is None else lambda _: None):
        telling.catch_up(folders)
        telling.close()
    for why in list(telling.failures.values())[:1]:
        untried = f", and was not told of {_few(telling.untried)}" if telling.untried else ""
        say(f"{name} did not take {_few([*telling.failures])}{untried}: {why}")
    if not telling.failures:
        records = f"{telling.records:,} new {'record' if telling.records == 1 else 'records'}"
        say(f"Told {name} {records} of {len(folders)} {'run' if len(folders) == 1 else 'runs'}.")
        for look in telling.looks():
            say(f"  {look}")
    return not telling.failures


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


@contextmanager
def _waiting(name: str, say: Say) -> Iterator[None]:
    """Says, where the block takes longer than a moment, what is waited for."""
    late = threading.Timer(SOON_S, say, [f"Waiting for {name}{address(name)}; Ctrl-C is safe."])
    late.daemon = True
    late.start()
    try:
        yield
    finally:
        late.cancel()


def end_of_input() -> threading.Event:
    """Returns what is set when standard input ends."""
    ended = threading.Event()

    def wait() -> None:
        for _ in sys.stdin:
            pass
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended


@contextmanager
def alongside(name: str, index: Path, say: Say) -> Iterator[None]:
    """Tells the runs of a study to a tracker while the block runs; nothing where `name` is empty.

    index: the file that names the runs. What goes wrong is one sentence after the block.
    """
    if not name:
        yield
        return
    words = ["levelfield", "track", str(index), "--to", name]
    again = f"catch up with: {shlex.join(words)}"
    log = index.parent.parent / FOLDER / f"{name}.log"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as kept:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", *words, "--follow"],
                stdin=subprocess.PIPE,
                stdout=kept,
                stderr=kept,
                env=os.environ | environment(threads=1),
                start_new_session=True,  # Ctrl-C reaches this process alone
            )
    except OSError as error:
        say(f"{name} is not told anything ({error}); {again}")
        yield
        return
    assert process.stdin is not None
    try:
        yield
    except BaseException:
        process.stdin.close()  # it tells the rest, and ends by itself
        threading.Thread(target=process.wait, daemon=True).start()
        raise
    process.stdin.close()
    with _waiting(name, say):
        why = _outcome(process, log)
    if why:
        say(f"--track {name}: {why} The runs are as they are without it; {again}")


def _outcome(process: subprocess.Popen[bytes], log: Path) -> str:
    """Returns what went wrong, one sentence; "" where nothing did."""
    try:
        code = process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return f"it had not taken everything {PATIENCE_S:.0f} s after the runs."
    if code == 0:
        return ""
    said = log.read_text(errors="replace").strip().splitlines()
    why = said[-1].removeprefix("levelfield: ") if said else f"its process ended with code {code}"
    return why if why.endswith((".", "?")) else f"{why}."
