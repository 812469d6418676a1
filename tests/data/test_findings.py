"""The examination of a task tells how far its arrays are while it builds them, and ends that before it says more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from levelfield.data.findings import examine
from levelfield.spec import Progress
from levelfield.tasks.listops import ListOps


def test_both_builds_tell_how_far_they_are_and_nothing_is_said_meanwhile() -> None:
    opened, closed = 0, 0
    told: list[set[tuple[str, int]]] = []

    @contextmanager
    def shown() -> Iterator[Progress]:
        nonlocal opened, closed
        opened += 1
        told.append(set())
        yield lambda what, done, total: told[-1].add((what, done)) if done == total else None
        closed += 1

    task = ListOps(minimum=10, length=60, max_depth=4, train=60, val=20, test=20)
    for _, fault in examine(task, None, shown):
        assert not fault and opened == closed
    ends = {("drawing test expressions", 20), ("drawing val expressions", 20), ("drawing train expressions", 60)}
    assert len(told) == 2 and ends <= told[0] == told[1]
