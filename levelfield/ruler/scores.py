"""Scores predictions as RULER does, and more strictly beside it.

    score("vt", "ABCDE, FGHIJ", ("ABCDE", "QRSTU"))      # Score(match=0.5, strict=0.5)

`match` is RULER's, exactly: the prediction with control characters as newlines, stripped, is searched for each
reference, letter case aside. Order does not matter, text around it never hurts, and a list of everything in the prompt
gets the full score. `strict` reads only as many answers as were asked for, the first ones of the right form (a number,
a UUID, a word, a variable), and requires them whole; "and" between words and "VAR" before a variable are no answers.
For questions it is SQuAD's exact match of the first line, where an answer of articles alone, such as the band The The,
is compared with them. The sets beside RULER's have scores of their own (`QuestionSet.score`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from levelfield.ruler.question_set import QuestionSet, Score, clean, normalised
from levelfield.ruler.tasks import CommonWords, FrequentWords, Needle, Questions, RulerTask, Tracking, named

SHAPES: dict[str, re.Pattern[str]] = {
    "number": re.compile(r"\d(?<![\w.]\d)\d*(?![\w]|\.\d)"),
    "uuid": re.compile(r"(?<![\w-])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![\w-])", re.I),
    "word": re.compile(r"(?<![\w-])[^\W\d_]+(?:-[^\W\d_]+)+(?![\w-])"),  # adjective-noun
    "variable": re.compile(r"[A-Z](?<![\w][A-Z])[A-Z]{2,}(?![\w])"),
    "plain": re.compile(r"[^\W\d_]+(?:[-'][^\W\d_]+)*"),
}
"""What answers look like. A long text is searched faster for a pattern that begins with a letter or a digit than for
one that begins by looking back, so two of these look back after it."""


ASIDES: dict[str, frozenset[str]] = {"plain": frozenset(["and"]), "variable": frozenset(["var"])}
"""What has the form of an answer but only leads to one, as in `a, b, and c` or `VAR ABCDE`."""


def string_match_all(prediction: str, references: Sequence[str]) -> float:
    """Returns the share of references that occur in the cleaned prediction."""
    text = clean(prediction).lower()
    return sum(r.lower() in text for r in references) / len(references)


def string_match_part(prediction: str, references: Sequence[str]) -> float:
    """Returns 1.0 if any reference occurs in the cleaned prediction."""
    text = clean(prediction).lower()
    return float(any(r.lower() in text for r in references))


def shape(task: RulerTask) -> str:
    """Names the pattern of this task's answers in `SHAPES`; "" for those that have none."""
    match task:
        case Needle():
            return task.value
        case Tracking():
            return "variable"
        case CommonWords() | FrequentWords():
            return "plain"
        case Questions() | QuestionSet():
            return ""


def candidates(task: RulerTask, text: str) -> list[str]:
    """Lists what in the text has the form of an answer, in order, with repetitions."""
    return SHAPES[shape(task)].findall(text)


def asides(task: RulerTask, references: Sequence[str]) -> frozenset[str]:
    """Returns the words, in lower case, that count as no answer of this task unless they are expected."""
    return ASIDES.get(shape(task), frozenset()).difference(r.lower() for r in references)


def score(task: RulerTask | str, prediction: str, references: Sequence[str]) -> Score:
    """Returns both scores of one prediction. Tables print 100 times their average over samples."""
    task = named(task) if isinstance(task, str) else task
    if isinstance(task, Questions):
        first = clean(prediction).partition("\n")[0]
        exact = any(_stripped(first) == _stripped(r) for r in references)
        return Score(string_match_part(prediction, references), float(exact))
    if isinstance(task, QuestionSet):
        return task.score(prediction, references)
    given = _given(task, prediction, references)
    return Score(
        string_match_all(prediction, references), sum(r.lower() in given for r in references) / len(references)
    )


def _stripped(answer: str) -> str:
    """Normalises an answer as SQuAD does, unless that leaves nothing, which an empty answer would be equal to."""
    return normalised(answer) or answer.strip().lower()


def scores_of_references(task: RulerTask, prediction: str, references: Sequence[str]) -> list[Score]:
    """Returns both scores of every reference by itself, 0.0 or 1.0, whose means are the scores of the prediction.

    They are of tasks whose answers have a form: needles, tracking, and lists of words.
    """
    given = _given(task, prediction, references)
    return [Score(string_match_all(prediction, [r]), float(r.lower() in given)) for r in references]


def _given(task: RulerTask, prediction: str, references: Sequence[str]) -> list[str]:
    """Returns the answers that the strict score reads, in lower case: as many as were asked for."""
    said = dict.fromkeys(c.lower() for c in candidates(task, clean(prediction)))
    aside = asides(task, references)
    return [c for c in said if c not in aside][: len(references)]
