"""Says how scores stand to rules that do a part of what a task asks (`levelfield.spec.study.PARTS`).

beside_parts(table, "listops", {"the gMLP": free, "kernel 11": short})
# " Reading one level of the expressions gives 42.4 %: the gMLP has more, kernel 11 less."
"""

from __future__ import annotations

from collections.abc import Mapping

from levelfield.report.decisions import ALPHA, Seeds, difference
from levelfield.report.verdicts import Table
from levelfield.spec.study import PARTS

GIVES = {"one_level": "Reading one level of the expressions gives"}
SAID = {1: "more", -1: "less", 0: "neither more nor less beyond noise"}


def beside_parts(table: Table, task: str, arms: Mapping[str, Seeds]) -> str:
    """Returns a sentence for each such rule of the task, or "": who is shown to have more than it, and who less.

    arms: what they are called and their scores. Each is asked by itself; the sentence is no part of a verdict.
    """
    told = ""
    for rule in table.rules.get(task, ()):
        if rule.name in PARTS:
            answers = {name: difference(arm, rule.score).decide(ALPHA) for name, arm in arms.items()}
            groups = [([name for name in answers if answers[name] == sign], said) for sign, said in SAID.items()]
            parts = [
                f"{' and '.join(names)} {'have' if names[1:] else 'has'} {said}" for names, said in groups if names
            ]
            told += f" {GIVES[rule.name]} {rule.score}: {', '.join(parts)}."
    return told
