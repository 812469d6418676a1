"""Says what docs/findings.md has on models that went on training at a longer length: `huang2024_longer`.

    went_on.short(found)         # "Do models find again, once trained at 128 words, what they lose there? Yes for ..."

Every number and every word about what is shown is computed from the rows and ledgers, so that new runs change it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import findings_summary as summary
import findings_words as words

from levelfield.report.cells import NONE
from levelfield.report.decisions import Seeds
from levelfield.report.verdicts import Finding
from levelfield.spec import Row
from levelfield.studies._huang2024_beyond import FALL, LengthScores
from levelfield.studies.huang2024_longer import BACK, EXTENDED, LONGER, length_scores

if TYPE_CHECKING:
    from findings_subjects import Answer

HARD = ",format=pairs"  # the haystack in which most is lost
PILOT = "needle-rotary-scratch-9-de8e98fefa"


def short(found: Answer) -> str:
    """For whom training at the longer length gives back what is lost there, after how many steps; who falls beyond."""
    old, new = _scores(found)
    beyond = "; ".join(f"at {times} times it, {summary.fallen(_falls(found, times))}" for times in new.multiples)
    return (
        f"{_back(found)}. Training at {new.trained} words took {_steps(found)} steps, after that at {old.trained}. "
        f"Beyond {new.trained} words: {beyond}."
    )


def brief(found: Answer) -> str:
    """The same in a line."""
    _, new = _scores(found)
    falls = _falls(found, last := new.multiples[-1])
    lost = sum(finding.decided > 0 for finding in falls)
    return f"{_back(found)}. At {last} times that length, {lost} of {len(falls)} lose over half."


def regained(found: Answer) -> str:
    """How many of the models that lose something at the longer length regain most of it, once trained there."""
    asked = [
        finding for finding in found.findings if finding.subject.startswith(BACK.partition("{")[0]) and finding.seen
    ]
    back = sum(finding.decided > 0 for finding in asked)
    return f"Trained further at {LONGER} times the length, {back} of {len(asked)} that lose some there regain most."


@cache
def _scores(found: Answer) -> tuple[LengthScores, LengthScores]:
    """The scores of both lengths of training, in that order."""
    return length_scores(found.results.rows)


def _back(found: Answer) -> str:
    old, new = _scores(found)
    models = [model for model in old.models if new.cell(model, new.trained)]
    answers = summary.by_question(found)
    parts = []
    for word, sign in (("yes", 1), ("no", -1), ("open", 0)):
        named = [model for model in models if answers.get(BACK.format(LONGER, model), 0) == sign]
        told = [
            f"{words.named(model)} ({_mean(old, model, new.trained)} to {_mean(new, model, new.trained)} %)"
            for model in named
        ]
        parts += [f"{word} for {words.listed(told)}"] if told else []
    return (
        f"Once trained at {new.trained} words as well, do models regain what they lose there? "
        f"{words.capital('; '.join(parts))}"
    )


def lead(found: Answer) -> Iterator[str]:
    """What is found among look-alike pairs at each length, before and after, and what it took."""
    old, new = _scores(found)
    lengths = _lengths(old, new)
    yield (
        f"Models of section 8 train further: after the same training at {old.trained} words they keep all weights and "
        f"train at {new.trained}, at the same rate, until nothing improves. If they regain what they had lost, the "
        f"text was not too long for them. A pilot of rotary attention trained at {new.trained} words from fresh "
        f"weights had {_pilot()}, which is guessing, so the shorter length comes first. The table only describes: it "
        "shows what is found among look-alike pairs, where most is lost (medians, %).\n"
    )
    yield f"| model | trained at | {' | '.join(f'{length:,} words' for length in lengths)} |"
    yield "|---" * (2 + len(lengths)) + "|"
    for model in old.models:
        for asked in (old, new):
            if asked.cell(model, asked.trained):
                at = f"{old.trained}, then {new.trained}" if asked is new else f"{old.trained}"
                cells = [_median(asked.cell(model, length, HARD)) for length in lengths]
                yield f"| {words.named(model)} | {at} | {' | '.join(cells)} |"
    yield ""
    guesses = words.listed(
        f"{old.floor(length, ''):.0f} % at {length:,}" for length in (lengths[0], new.trained, lengths[-1])
    )
    yield (
        "Falls beyond the longer length are judged by the rule of section 8, and what is regained is counted in scores "
        "corrected for guessing. The arms that trained further have had more steps; the others had stopped improving "
        "at their own length. The figure is of all haystacks together, in which guessing has "
        f"{guesses} words."
    )


def guesses(found: Answer) -> Iterator[Row]:
    """Rows of what guessing has at each length, in all haystacks together."""
    old, new = _scores(found)
    for length in _lengths(old, new):
        yield Row(
            task=found.planned[0].task.name,
            model="guessing",
            protocol=NONE,
            metric="accuracy",
            at=f"length={length}",
            value=old.floor(length, "") / 100,
        )


def _lengths(*asked: LengthScores) -> list[int]:
    """The lengths of training and those beyond them, in order."""
    return sorted({length for each in asked for length in (each.trained, *each.farther)})


def _falls(found: Answer, times: int) -> list[Finding]:
    new = _scores(found)[1]
    asked = {FALL.format(times, model) for model in new.models}
    return [finding for finding in found.findings if finding.subject in asked]


def _pilot() -> str:
    """Returns what the pilot came to, whose seed no run has."""
    with (Path(__file__).resolve().parents[2] / "results" / "pilots.csv").open(newline="", encoding="utf-8") as file:
        (pilot,) = (line for line in csv.DictReader(file) if line["run"] == PILOT)
    return f"{100 * float(pilot['val_accuracy']):.0f} % on validation after {int(pilot['steps']):,} steps"


def _mean(asked: LengthScores, model: str, length: int) -> str:
    cell = asked.cell(model, length)
    return f"{cell.mean:.0f}" if cell else "–"


def _median(cell: Seeds | None) -> str:
    return f"{cell.median:.1f}" if cell else "–"


def _steps(found: Answer) -> str:
    """Returns the fewest and the most steps at the longer length, of arms.

    Ledgers count the steps of both phases together, and their words, of which a longer text has more.
    """
    old, new = (asked.trained for asked in _scores(found))
    counts = []
    for key, cost in found.results.ledgers.items():
        if f"-{EXTENDED}-" in key:
            examples = (float(cost["tokens"]) - old * float(cost["examples"])) / (new - old)
            counts.append(round(examples * float(cost["steps"]) / float(cost["examples"])))
    return f"{min(counts):,} to {max(counts):,}" if len(set(counts)) > 1 else f"{counts[0]:,}"
