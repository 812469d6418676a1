"""Every stored identity in one list: `python tests/support/ids.py` prints it, and with --write freezes it anew.

    run demo minutes listops-attention-scratch-0-5f0c9a1e2b
    probe demo minutes slices-3c1f09
    task listops 8f14e45fce...

Folders of finished runs and prepared arrays are found by these names. A change to the code that leaves what is measured
as it was leaves `ids.txt` as it was; one that does not raises a `version`, and `ids.txt` shows what it reaches.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from levelfield import tasks
from levelfield.engine.find import Source, listing
from levelfield.spec import EFFORTS, Study, digest

FILE = Path(__file__).with_name("ids.txt")


def identities() -> list[str]:
    """All of them, sorted within a study and effort."""
    lines = [line for name in listing("studies") for line in _of_study(name)]
    return lines + [f"task {name} {digest(tasks.find(name))}" for name in sorted(tasks.names())]


def _of_study(name: str) -> Iterator[str]:
    study = Source(name).find()
    if not isinstance(study, Study):
        return
    for effort in EFFORTS:
        runs = study.runs(effort)
        yield from sorted({f"run {name} {effort} {run.id}" for run in runs})
        probes = {f"{probe.name}-{digest(probe)[:6]}" for run in runs for probe in study.probes(run)}
        yield from sorted(f"probe {name} {effort} {probe}" for probe in probes)


if __name__ == "__main__":
    text = "\n".join(identities()) + "\n"
    if "--write" in sys.argv:
        FILE.write_text(text)
    else:
        print(text, end="")
