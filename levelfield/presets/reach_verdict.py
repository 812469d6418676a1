"""Reads the reach of each model off the rows of a study of certified ranges.

    reached(rows)["s4"]       # Reached(ranges={16: 3 of 3 seeds, 64: 3 of 3, 256: 0 of 3}) -> 64

A reach is a count, not an estimate: the longest range of training at which more than half of the seeds score 95 %. A
score of 95 % on a thousand sequences is far outside what guessing gives, so no interval is needed to tell it from 50 %.
Other seeds may count otherwise (docs/reach.md), so the verdict names shorter ranges that fail, and tells how many seeds
there are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from levelfield.report.certified_ranges import PASSED, Gap, asked, declared, gaps, refuted, seen_by
from levelfield.report.decisions import FEWEST
from levelfield.report.verdicts import Finding
from levelfield.spec import Row

EXACT = 0.002  # of 50 %: what rounding in single precision may move

Scores = Mapping[str, Mapping[int, Sequence[float]]]


def by_range(rows: Sequence[Row]) -> dict[str, dict[int, list[float]]]:
    """Returns the test scores of each model at each range that it was trained at, one per seed; NaN of a seed that
    diverged, which has not learnt it."""
    return {
        model: {apart: [row.get("value", math.nan) for row in mine[apart]] for apart, mine in trained.items()}
        for model, trained in asked(rows, diverged=True).items()
    }


def reach(scores: Mapping[int, Sequence[float]]) -> int | None:
    """Returns the longest range at which more than half of the seeds pass; None where there is none."""
    return max((apart for apart, values in scores.items() if _passed(values)), default=None)


def _passed(values: Sequence[float]) -> bool:
    return 2 * sum(value >= PASSED for value in values) > len(values)


def verdict(rows: Sequence[Row]) -> str:
    """Says whether the certificate is seen in the scores, and how far each model reaches."""
    found, seen = by_range(rows), seen_by(rows)
    if not found:
        return "Nothing can be said yet: no run has been asked at its range."
    return " ".join(part for part in (*_proof(rows, found, seen), _reaches(found, seen)) if part)


def findings(rows: Sequence[Row]) -> list[Finding]:
    """The three parts of the study's claim: what is proved, what more sight brings, and what training leaves of it.

    Counts need no intervals, as above. Nothing is found before every model has been asked at every range, with three
    seeds at least, and where no range is as long as the widest window.
    """
    found, seen = by_range(rows), seen_by(rows)
    ranges = {apart for scores in found.values() for apart in scores}
    free = {model: reach(scores) or 0 for model, scores in found.items() if model not in seen}
    if not free or len(free) == len(found) or any(scores.keys() != ranges for scores in found.values()):
        return []
    if any(len(values) < FEWEST for scores in found.values() for values in scores.values()):
        return []
    widest = max(seen[model] for model in found if model in seen)
    if max(ranges) < widest:
        return []
    further = sorted(model for model, longest in free.items() if longest > widest)
    short = sorted(model for model, longest in free.items() if longest < max(ranges))
    proved = -1 if _broken(found, seen) or refuted(rows) else 1
    proof = " ".join(part for part in _proof(rows, found, seen) if part)
    return [
        Finding("windows no wider than the range score one half", proved, proved, proof),
        _some("some models that see everything reach further than any window", further, len(free), ""),
        _some("some of them reach less far than they were asked", short, len(free), _reaches(found, seen)),
    ]


def _some(subject: str, models: Sequence[str], of: int, facts: str) -> Finding:
    """Yes where there is such a model, and no where there is none."""
    answer = 1 if models else -1
    said = f"{len(models)} of {of}" + (f": {', '.join(models)}." if models else ".")
    return Finding(subject, answer, answer, f"{said} {facts}".rstrip())


def _bound(found: Scores, seen: Mapping[str, int]) -> list[tuple[str, int, float]]:
    """Returns model, range and score of every run of which one half is proved, but of those that diverged."""
    return [
        (model, apart, value)
        for model, scores in found.items()
        for apart, values in scores.items()
        for value in values
        if model in seen and seen[model] <= apart and math.isfinite(value)
    ]


def _broken(found: Scores, seen: Mapping[str, int]) -> list[tuple[str, int, float]]:
    return [(model, apart, value) for model, apart, value in _bound(found, seen) if abs(value - 0.5) > EXACT]


def _proof(rows: Sequence[Row], found: Scores, seen: Mapping[str, int]) -> tuple[str, str, str]:
    """Returns which declarations are wrong, whether the others' scores are what is proved, and how these were checked;
    "" for what there is not."""
    alike = [gap for gap in gaps(rows) if gap.model in seen and gap.asked == gap.trained]
    return _refuted(rows), _certificate(found, seen, alike), _checked(alike, len(_bound(found, seen)))


def _refuted(rows: Sequence[Row]) -> str:
    """Names the models that a trained network contradicts in what they declare."""
    fields = declared(rows)
    return " ".join(
        f"What {model} declares is wrong of a trained model, unless `levelfield data verify reach` finds a fault: "
        f"seeing {fields[model]} steps, and doing the same at each, it would answer alike to twins at range "
        f"{gap.asked:,}, but in double precision an output differs by {gap.value:.2g} of the largest one. So it counts "
        "as seeing everything."
        for model, gap in refuted(rows).items()
    )


def _checked(alike: Sequence[Gap], bound: int) -> str:
    """Says how far apart outputs for twins lie. bound: the runs of which one half is proved."""
    if not alike:
        return ""
    worst, sizes = max(gap.value for gap in alike), sorted({gap.classes for gap in alike})
    classes = " to ".join(f"{size:,}" for size in dict.fromkeys((sizes[0], sizes[-1])))
    doubt = (
        ", where a layer computes a part in single precision, so that seeing a little of the rest is not excluded"
        if any(gap.single for gap in alike)
        else ""
    )
    all_of = len(alike) == bound
    return (
        f"In double precision, outputs for twins ({classes} classes a run) differ by at most {worst:.2g} of the "
        f"largest one in {'all' if all_of else len(alike)} of these runs{doubt}."
        f"{'' if all_of else ' What the others declare was not checked.'}"
    )


def _certificate(found: Scores, seen: Mapping[str, int], alike: Sequence[Gap]) -> str:
    """Says whether the scores are what is proved. alike: of models that answer alike to twins."""
    bound = _bound(found, seen)
    if not bound:
        return ""
    if broken := _broken(found, seen):
        model, apart, value = broken[0]
        places = {(gap.model, gap.asked) for gap in alike if not gap.single}
        cause = (
            "its answers to twins are the same in double precision, so rounding tells them apart."
            if (model, apart) in places
            else "check the data with `levelfield data verify reach`, and of a mixer of your own the `receptive_field` "
            "that it declares."
        )
        return (
            f"Something is wrong: {model}, which sees {seen[model]} steps, has {100 * value:.2f} % at range {apart}, "
            f"where exactly 50 % is proved; {cause}"
        )
    worst = max(abs(value - 0.5) for _, _, value in bound)
    exactly = "exactly 50 %" if worst == 0 else f"50 % within {100 * worst:.2f} points, which is rounding"
    return f"As proved, every run of a model that sees no more than the range, {len(bound)} in all, has {exactly}."


def _reaches(found: Scores, seen: Mapping[str, int]) -> str:
    parts = []
    for model, scores in found.items():
        last, longest = reach(scores), max(scores)
        short = f" (it sees {seen[model]} steps)" if model in seen else ""
        far = "none that was tried" if last is None else f"{last:,}" + (" or more" if last == longest else "")
        missed = [f"{apart:,}" for apart in sorted(scores) if apart < (last or 0) and not _passed(scores[apart])]
        but = f", but not {' or '.join(missed)}" if missed else ""
        parts.append(f"{model} {far}{but}{short}")
    counts = {len(values) for scores in found.values() for values in scores.values()}
    seeds = " to ".join(map(str, sorted({min(counts), max(counts)})))
    so_far = " that are there" if len(counts) > 1 else ""
    lost = sum(math.isnan(value) for scores in found.values() for values in scores.values() for value in values)
    diverged = f" {lost} of these runs diverged and {'counts' if lost == 1 else 'count'} as guessing." if lost else ""
    return (
        f"Reach, the longest range with 95 % in most of {seeds} seed{'s' * (max(counts) > 1)}{so_far}: "
        f"{'; '.join(parts)}.{diverged}"
    )
