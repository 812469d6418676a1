"""Tells which models of a comparison see no order, so that a sequence is a bag of steps to them.

    for sentence in sentences(runs):
        print(sentence)

    No order is seen by linear, performer on listops: in two directions and without positions, ...

That is so of layers such as attention in two directions, where neither they nor the model know positions. Beside models
that see the order their scores say nothing of the layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from levelfield import contract
from levelfield.spec import MixerConfig, Run, Task

LONGEST = 1_024  # steps that are tried at most


def sentences(runs: Sequence[Run]) -> Iterator[str]:
    """Yields a sentence that names the models that see no order and the tasks; none where all models see it.

    Each layer is built once, at most.
    """
    asked = [run for run in runs if not run.model.causal and run.model.positions == "none"]
    widths: dict[MixerConfig, int] = {}
    lengths: dict[MixerConfig, set[int]] = {}
    for run in asked:
        for mixer in run.model.mixers:
            widths.setdefault(mixer, run.model.width)
            lengths.setdefault(mixer, set()).add(_steps(run.task))
    blind = {mixer: _blind(mixer, widths[mixer], frozenset(each)) for mixer, each in lengths.items()}
    places: dict[str, dict[str, None]] = {}
    for run in asked:
        if all(_steps(run.task) in blind[mixer] for mixer in run.model.mixers):
            places.setdefault(run.model.label, {})[run.task.name] = None
    alike: dict[tuple[str, ...], list[str]] = {}
    for label, tasks in places.items():
        alike.setdefault(tuple(tasks), []).append(label)
    found = [f"{', '.join(labels)} on {', '.join(tasks)}" for tasks, labels in alike.items()]
    if found:
        yield (
            f"No order is seen by {'; '.join(found)}: in two directions and without positions, a sequence is a bag of "
            "steps there. A fair comparison gives all models positions, in a study of your own: "
            'Model(positions="sinusoidal").'
        )


def _steps(task: Task) -> int:
    return min(task.max_length, LONGEST)


@cache
def _blind(mixer: MixerConfig, width: int, lengths: frozenset[int]) -> set[int]:
    return contract.order_blind(mixer, width, lengths)
