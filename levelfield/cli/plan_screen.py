"""Shows what a study comes to before anything is trained: `plan`, and `--dry-run` of `compare`, `reach` and `audit`.

show(Source("demo"), study, "minutes", "", (Path("runs"), Path("data")))
# demo at effort minutes: 6 runs, 2 done
# ...
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from levelfield.cli.streams import patiently, say
from levelfield.spec import Effort

if TYPE_CHECKING:
    from levelfield.engine.find import Source
    from levelfield.spec import Study


def show(
    source: Source, loaded: Study, effort: Effort, pattern: str, folders: tuple[Path, Path], *, json: bool = False
) -> None:
    """Prints what a study will train and cost, and trains nothing. folders: of runs and of prepared data.

    Raises UserError for runs that cannot work. Of an audit nothing is said of how its arms compare with a mixer.
    """
    from levelfield.engine import forecast, tuning
    from levelfield.engine import plan as planning
    from levelfield.engine.find import AUDIT, choose, matches
    from levelfield.presets import arm_remarks
    from levelfield.runs import store

    runs_dir, data = folders
    title = source.title(loaded)
    with patiently(f"Checking the models of {title}"):
        planned, tuned = tuning.progress(loaded, effort, runs_dir, lambda run: matches(run, pattern))
        runs = choose(planned, effort, "" if loaded.search_at(effort) else pattern)
    if json:
        say(planning.to_json(loaded.name, effort, {r: store.complete(store.directory(runs_dir, r)) for r in runs}))
        return
    done = sum(store.complete(store.directory(runs_dir, r)) for r in runs)
    told = source.mixer and source.study != AUDIT
    with patiently(f"Counting what the runs of {title} cost"):
        for line in planning.lines(runs, done, f"{title} at effort {effort}", data):
            say(line)
        for line in (*forecast.lines(runs, data), *(arm_remarks.sentences(runs) if told else ()), *tuned):
            say(line)
