"""Tells what whoever plans a comparison, or reads its scores, must know of its arms, from the runs alone.

for sentence in sentences(runs):
    print(sentence)

mine takes no `causal` and looks ahead, so that all arms see both directions on recall. ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from levelfield import contract
from levelfield.presets import unordered
from levelfield.spec import MixerConfig, Run

MEANT = (
    "If it is meant to see earlier steps alone, let it take `causal`: `levelfield check` then names a step that sees "
    "later ones."
)


def sentences(runs: Sequence[Run]) -> Iterator[str]:
    """Yields a sentence for the models that see no order, for each mixer of unknown code that looks ahead and cannot be
    asked not to, and for each caution of the contract on such code. Each layer is built a few times, at most."""
    yield from unordered.sentences(runs)
    first: dict[tuple[MixerConfig, bool], Run] = {}
    tasks: dict[tuple[MixerConfig, bool], dict[str, int]] = {}
    for run in runs:
        for built in ((mixer, run.model.causal) for mixer in run.model.mixers if mixer.opaque):
            first.setdefault(built, run)
            tasks.setdefault(built, {})[run.task.name] = run.task.max_length
    steps = {built: min(contract.SHORT, max(each.values())) for built, each in tasks.items()}
    for (mixer, causal), run in first.items():
        if not causal and ahead(mixer, run.model.width, steps[mixer, causal]):
            yield (
                f"{run.model.label} takes no `causal` and looks ahead, so that all arms see both directions on "
                f"{', '.join(tasks[mixer, causal])}. {MEANT}"
            )
    told = (_cautions(*built, run.model.width, steps[built]) for built, run in first.items())
    yield from dict.fromkeys(said for several in told for said in several)


@cache
def ahead(mixer: MixerConfig, width: int, steps: int = contract.SHORT) -> bool:
    """Tells whether a mixer that takes no `causal` looks ahead, within some steps; one that fails shows nothing."""
    try:
        return not mixer.takes_causal and contract.looks_ahead(mixer, width, steps)
    except (Exception, SystemExit):  # whatever a user's own layer raises
        return False


@cache
def _cautions(mixer: MixerConfig, causal: bool, width: int, steps: int) -> tuple[str, ...]:
    return tuple(contract.cautions(mixer, width, causal, steps))
