"""Decides whether more text could change a score. If not, generation may stop early, with the scores of a full answer.

is_final(named("niah_single_1"), " 7319284. The", ("7319284",))      # True: found, and the first number is closed
is_final(named("niah_single_1"), " 731928", ("7319284",))            # False
"""

from __future__ import annotations

from collections.abc import Sequence

from levelfield.ruler.question_set import CONTROL, QuestionSet
from levelfield.ruler.scores import SHAPES, asides, score, shape
from levelfield.ruler.tasks import Questions, RulerTask


def is_final(task: RulerTask, text: str, references: Sequence[str]) -> bool:
    """Whether `text`, generated so far, already has the scores of every longer answer. False if that is uncertain."""
    if isinstance(task, QuestionSet):
        return task.is_final(text)
    if score(task, text, references).match < 1:
        return False
    text = CONTROL.sub("\n", text.lstrip()).lstrip()  # cleaned but for its end, which may still grow
    if isinstance(task, Questions):
        return "\n" in text  # the first line, which the strict score reads, is complete
    aside, seen = asides(task, references), set[str]()
    for found in SHAPES[shape(task)].finditer(text):
        if found.end() + 1 >= len(text):  # it might go on: "7.5", "mid-day"
            break
        seen.add(found[0].lower())
    return len(seen - aside) >= len(references)
