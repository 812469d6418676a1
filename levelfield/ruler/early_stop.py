"""Whether more text could change a score: then generation may stop, and the scores are those of the whole budget.

settled("niah_single_1", " 7319284. The", ("7319284",))       # True: found, and the first number is closed
settled("niah_single_1", " 731928", ("7319284",))             # False
"""

from __future__ import annotations

from collections.abc import Sequence

from levelfield.ruler.scores import CONTROL, SHAPES, score, shape
from levelfield.ruler.tasks import Questions, RulerTask


def settled(task: RulerTask, text: str, references: Sequence[str]) -> bool:
    """text: what was generated so far. False wherever that is not sure."""
    if score(task, text, references).match < 1:
        return False
    text = CONTROL.sub("\n", text.lstrip()).lstrip()  # cleaned, but for its end, which is still open
    if isinstance(task, Questions):
        return "\n" in text  # the first line, which the strict score reads, is closed
    closed = 0
    seen: set[str] = set()
    for found in SHAPES[shape(task)].finditer(text):
        if found.end() + 1 >= len(text):  # it might go on: "7.5", "mid-day"
            break
        seen.add(found[0].lower())
        closed = len(seen)
    return closed >= len(references)
