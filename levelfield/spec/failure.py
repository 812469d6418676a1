"""An answer of a language model that is not right, as evaluations find it and reports list it.

Failure("vt", 4096, 3, depth="", expected="ABCDE, FGHIJ", answered="ABCDE", score=50.0)
"""

from __future__ import annotations

from typing import NamedTuple


class Failure(NamedTuple):
    """An answer that is not wholly right. depth: of the needle, as a share of the text; "" without exactly one.

    length: of the prompt, in tokens. sample: its number. score: in percent. question: "" where it was not stored.
    """

    task: str
    length: int
    sample: int
    depth: str
    expected: str
    answered: str
    score: float
    question: str = ""
