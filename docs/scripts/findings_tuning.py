"""Says of each answer of docs/findings.md which learning rates were tried, and which arms chose the highest of them.

    trials(found)       # ", after 36 trials of learning rates (0.001 and 0.0029; the highest, ...)"
    borrowed(found)     # " Learning rates are the best of 32 trials (...), in ..."
    positions(32)       # how positions that are random in training are asked, which is not as their authors do

Every number comes from trials.csv beside the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import findings_words as words

from levelfield.studies._huang2024_small import FARTHEST

if TYPE_CHECKING:
    from findings_subjects import Answer

RANDOM = "random-positions"


def trials(found: Answer) -> str:
    """Returns how many trials chose the rates of these runs, and which; "" where none did."""
    tried = found.results.trials
    return f", after {len(tried)} trials of learning rates ({_grid(found)})" if tried else ""


def borrowed(found: Answer) -> str:
    """Returns where the rates come from where no trials are of these runs themselves, or that none was tuned."""
    if found.tuned is None:
        rates = {phase.recipe.lr for run in found.planned for phase in run.protocol.phases}
        untuned = not found.results.trials and len(rates) == 1
        return f" All have a learning rate of {min(rates):.2g}, which was not tuned." if untuned else ""
    tried, theirs = found.tuned.results.trials, found.tuned.study
    models = dict.fromkeys(run.model.label for run in found.planned)
    own = theirs.name.partition("-")[0] == found.study.name
    untried = [words.named(model) for model in models if model not in {trial["model"] for trial in tried}]
    without = ""
    if own and untried:
        whose = "their" if len(untried) > 1 else "its"
        without = f" {words.capital(words.listed(untried))} had no trials of {whose} own."
    folder = f"{theirs.name}-{found.tuned.effort}"
    return (
        f" {'Learning' if own else 'No arm had trials of its own here: learning'} rates are the best of "
        f"{len(tried)} trials{'' if own else ' on needles'} ({_grid(found.tuned)}), in "
        f"[results/{folder}](../results/{folder}).{without}"
    )


def positions(trained: int) -> str:
    """Returns how the arm with random positions is asked. trained: words of its training, which are about as many
    steps."""
    return (
        f"{words.capital(words.named(RANDOM))} is tested at consecutive ones, whereas Ruoss et al. draw them in tests, "
        f"too: in training {trained} of {FARTHEST * trained} were drawn, some {FARTHEST} apart, so the test differs "
        f"from training even at {trained} words."
    )


def _grid(found: Answer) -> str:
    """Returns the rates that were tried, and for how many arms of each model the highest was the best."""
    tried = found.results.trials
    slowest = min(run.protocol.phases[-1].recipe.lr for run in found.planned)
    factors = sorted({float(trial["lr"]) for trial in tried})
    told = words.listed(f"{slowest * factor:.2g}" for factor in factors)
    every, edge = _arms(tried), _arms([trial for trial in tried if float(trial["lr"]) == factors[-1]])
    told_edge = [_share(words.named(model), count, every[model]) for model, count in edge.items()]
    if not told_edge:
        return f"{told}; the highest was best for no arm"
    return f"{told}; the highest tried was best for {words.listed(told_edge)}"


def _share(model: str, count: int, every: int) -> str:
    """Returns "all arms of S4", "2 of 9 arms of S4", or the name alone of a model with one arm."""
    if every == 1:
        return model
    return f"{'all' if count == every else f'{count} of {every}'} arms of {model}"


def _arms(tried: Sequence[Mapping[str, Any]]) -> Counter[str]:
    """Returns how many arms of each model chose one of these trials."""
    chosen = {(trial["model"], trial["task"], trial["protocol"]) for trial in tried if str(trial["chosen"]) == "True"}
    return Counter(model for model, *_ in sorted(chosen))
