"""Says of an audit's data what is repeated, leaks, contradicts itself, or was left out, a sentence each.

list(faults(found))     # ["12 % of the test examples are in the training split too, which can inflate scores."]
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from levelfield.report.audit.reading import ALIKE, Reading
from levelfield.report.audit.terms import arm, plain, score_of
from levelfield.spec import SPLITS

BY = {"copies": "exactly or nearly", "groups": "exactly, nearly or by their group"}
"""How test examples may be in the training split, by the place of the fact that says how many are."""
FEW = 20  # test examples that are not in train, of fewer of which a score says next to nothing
LEAK = 0.01  # share of test examples from which a leak is named
MANY = 0.05  # share from which it stands in the verdict itself


def amount(found: Reading) -> str:
    """Returns how many groups or inputs the test examples amount to, such as "34 equally large groups"."""
    amount = found.fact(found.alike, "test")
    return f"{found.led(f'{amount:,.0f}', found.alike, 'test')} {ALIKE[found.alike]}"


def nearly(found: Reading) -> float:
    """Returns the share of test examples that have a near duplicate in training beside those that have an exact one."""
    near = found.fact("near_duplicates", "all", "test in train") / max(1.0, found.fact("examples", "test"))
    return near - found.fact("leaked", "test")


def leaky(found: Reading) -> str:
    """Returns what a verdict adds where many test examples are in train, exactly or nearly; "" where few are."""
    leaked, more = found.fact("leaked", "test"), max(0.0, nearly(found))
    if leaked + more < MANY:
        return ""
    row = ("near_duplicates", "all", "test in train") if more else ("leaked", "test")
    return f" {found.led(f'{100 * (leaked + more):.0f} %', *row)} of the test examples are in train, exactly or nearly."


def faults(found: Reading) -> Iterator[str]:
    """Yields what makes scores worth less than they seem, a sentence each."""
    again = found.fact("exact_duplicates", "all", "test") / max(1.0, found.fact("examples", "test"))
    if again >= LEAK:
        share = found.led(f"{100 * again:.0f} %", "exact_duplicates", place="test")
        yield f"{share} of the test examples repeat another one of them."
    if found.alike and not found.too_small and found.fact(found.alike, "test") < (1 - LEAK) * found.tested:
        yield f"The test examples amount to {amount(found)}, over which intervals are taken."
    if unseen := found.fact("unseen", "test"):
        share = found.led(f"{100 * unseen:.1f} %", "unseen", "test")
        yield f"{share} of the test examples have a class that no training example has, which no model can know."
    if moved := found.fact("shifted", "test"):
        share = found.led(f"{100 * moved:.0f} %", "shifted", "test")
        yield f"Classes are not as frequent in test as in train: {share} of the test examples would need another one."
    if unknown := found.fact("unknown", "test"):
        some = f"{found.led(f'{unknown:,.0f}', 'unknown', 'test')} of {found.fact('examples', 'test'):,.0f}"
        yield f"{some} test sequences have a symbol that no training sequence has."
    for split in SPLITS:
        if lone := found.fact("outlier", split):
            share = found.led(f"over {max(50, math.ceil(100 * lone) - 1)} %", "outlier", split)
            whole = f"{share} of a target's variance there"
            yield f"One example of {split} makes up {whole}: see whether its number is right."
    leaked = found.fact("leaked", "test")
    if leaked >= LEAK:
        share = found.led(f"{100 * leaked:.0f} %", "leaked", "test")
        yield f"{share} of the test examples are in the training split too, which can inflate scores."
    if nearly(found) >= LEAK:
        share = found.led(f"{100 * (nearly(found) + leaked):.0f} %", "near_duplicates", place="test in train")
        yield f"{share} of the test examples have a near duplicate in the training split."
    yield from _unleaked(found)
    if short := found.fact("not_compared"):
        examples = f"{found.led(f'{short:,.0f}', 'not_compared')} {'example has' if short == 1 else 'examples have'}"
        yield f"{examples} too few steps to tell near duplicates from chance, so that only exact ones were counted."
    if conflicts := found.fact("contradictions"):
        inputs = "input comes" if conflicts == 1 else "inputs come"
        yield f"{found.led(f'{conflicts:,.0f}', 'contradictions')} {inputs} with different labels."
    for (metric, split, pair), count in found.facts.items():
        if metric == "shared_groups" and count:
            both = pair.replace("+", " and ")
            groups = found.led(f"{count:,.0f}", metric, split, pair)
            have = "group has" if count == 1 else "groups have"
            yield f"{groups} {have} rows in both {both}: a score there is no score on new groups."
    if alike := found.fact("groups_with_one_target"):
        several = found.fact("groups_of_several")
        count = found.led(f"In {'all' if alike == several else f'{alike:,.0f} of'}", "groups_with_one_target")
        yield (
            f"{count} {several:,.0f} groups of several rows, every row has the same "
            f"{'label' if found.in_percent else 'target'}: only as many of these are independent as there are groups, "
            "and a model may recognise a group instead of what is asked."
        )
    if left := found.fact("left_out"):
        rows, were = ("row", "was") if left == 1 else ("rows", "were")
        yield f"{found.led(f'{left:,.0f}', 'left_out')} {rows} without input or label, or broken, {were} left out."
    if cut := found.cut:
        whole = sum(found.fact("examples", split) for split in SPLITS)
        counts = f"{found.led(f'{cut:,.0f}', 'cut')} of {whole:,.0f} sequences {'was' if cut == 1 else 'were'} cut"
        yield f"{counts} at {found.longest:,.0f} steps, and what follows was not read: --longest keeps more."


def _unleaked(found: Reading) -> Iterator[str]:
    """What is scored on test examples that training has no copy and no near duplicate of, and none of their group."""
    by = next((by for by in BY if ("in_train", "test", by) in found.facts), "")
    if not by or found.fact("in_train", "test", by) < LEAK:
        return
    if not found.unleaked:
        share = found.led("All", "in_train", "test", by)
        yield f"{share} of the test examples that were scored are in train, {BY[by]}: no score is one on new examples."
        return
    if found.fresh.tested < FEW:
        left = found.led(f"Only {found.fresh.tested:,} of {found.tested:,}", "in_train", "test", by)
        are = "is" if found.fresh.tested == 1 else "are"
        yield f"{left} test examples {are} not in train, {BY[by]}: too few to say what is scored on new examples."
        return
    arms = dict.fromkeys(filter(None, (found.reference, found.best_rule())))
    scores = (f"{arm(found, name)} scores {score_of(found, found.unleaked[name])}" for name in arms)
    guessing = found.fresh.led(plain(found, found.fresh.guessing))
    left = found.led(f"{found.fresh.tested:,} of {found.tested:,}", "in_train", "test", by)
    yield (
        f"On the {left} test examples that are not in train, {BY[by]}, {' and '.join(scores)}, where guessing scores "
        f"{guessing}."
    )
