"""An answer of a language model that is not right, as evaluations find it and reports list it.

Failure("vt", 4096, 3, depth="", expected="ABCDE, FGHIJ", answered="ABCDE", score=50.0)
"""

from __future__ import annotations

from typing import NamedTuple


class Failure(NamedTuple):
    """An answer that is not wholly right. depth: of each needle, as shares of the text; "" without any.

    length: of the prompt, in tokens. sample: its number. score: in percent. question: "" where it was not stored.
    reasoning: what was written before the answer; "" without any.
    """

    task: str
    length: int
    sample: int
    depth: str
    expected: str
    answered: str
    score: float
    question: str = ""
    reasoning: str = ""
