"""Needles without a word of their question: no word in common, one answer, and a list of signs that finds it again."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest
from toy_ruler import Pairs

from levelfield.ruler import Association, Bytes, Sample, baselines, generate, named, score
from levelfield.ruler.beyond.associations import NAMES, SENTENCES, THEMES, Theme
from levelfield.ruler.sources import essays
from levelfield.spec import UserError

TASKS = (Association(1), Association(2))
FUNCTION_WORDS = set(re.findall(r"\w+", "the of is has a an in by for to which as from will been de la les"))


def stems(text: str) -> set[str]:
    """Content words without their endings, letter case and accents aside."""
    words = set(re.findall(r"[a-z]+", text.lower().replace("'s", ""))) - FUNCTION_WORDS
    return {re.sub(r"(ings?|ed|es|s|e)$", "", word) if len(word) > 3 else word for word in words}


def parts(sample: Sample) -> tuple[str, str]:
    before, _, question = sample.text.rpartition("\n\nQuestion: ")
    return before.rpartition("\n\nThe text:\n")[2], question.partition("?")[0] + "?"


def test_the_stems_see_what_words_have_in_common() -> None:
    assert stems("He walked past the towers") & stems("Which walk has a tower?") == {"walk", "tower"}


@pytest.mark.parametrize("theme", THEMES, ids=lambda t: t.name)
def test_no_sentence_shares_a_content_word_with_any_question_of_its_theme(theme: Theme) -> None:
    """Nor with one that asks for a decoy, so that no search for words tells them apart."""
    said = [form.format(name="", said=sign.said) for form, sign in product(theme.sentences, theme.signs)]
    asked = [theme.question(sign, hops) for sign, hops in product(theme.signs, (1, 2))]
    shared = {(s, q): stems(s) & stems(q) for s, q in product(said, asked)}
    assert {pair: both for pair, both in shared.items() if both} == {}


@pytest.mark.parametrize("theme", THEMES, ids=lambda t: t.name)
def test_every_question_has_one_sign(theme: Theme) -> None:
    for column in zip(*theme.signs):
        assert len(set(column)) == len(column)
    assert len(theme.signs) >= SENTENCES


def test_the_essays_have_neither_names_nor_signs_nor_what_they_stand_for() -> None:
    text = " ".join(re.findall(r"[\w']+", " ".join(essays(None))))
    words = [*NAMES, *(word for theme in THEMES for sign in theme.signs for word in sign)]
    found = [word for word in words if re.search(rf"\b{re.escape(word.removeprefix('the '))}\b", text)]
    assert found == []


@pytest.mark.parametrize("task", TASKS, ids=lambda t: t.name)
def test_the_answer_is_found_by_its_sign_and_stands_once(task: Association) -> None:
    tokenizer = Pairs()
    for sample in generate(task, 2600, tokenizer, count=6):
        context, question = parts(sample)
        meant = [sign for theme in THEMES for sign in theme.signs if question.endswith(f" {sign[task.hops]}?")]
        (sign,) = meant
        (sentence,) = [s for s in re.findall(r"[A-Z][^.]*\.", context) if f" {sign.said}" in s]
        (answer,) = [name for name in NAMES if name in sentence]
        assert sample.references == (answer,)
        assert context.count(answer) == context.count(sign.said) == 1
        assert sum(name in context for name in NAMES) == SENTENCES
        assert not stems(sentence) & stems(question)
        assert sample.depths == (pytest.approx(context.index(answer) / len(context), abs=0.1),)
        np.testing.assert_array_equal(sample.ids, tokenizer.encode(sample.text))
        assert 0 <= 2600 - sample.answer_tokens - len(sample.ids) <= 8


def test_the_question_is_the_same_at_every_length_and_with_two_hops_another() -> None:
    short, long = ([parts(s)[1] for s in generate(TASKS[0], n, Bytes(), count=4)] for n in (1800, 4000))
    assert short == long
    assert len(set(short)) == 4
    assert parts(next(generate(TASKS[0], 1800, Bytes(), start=3)))[1] == short[3]
    assert parts(next(generate(TASKS[0], 1800, Bytes(), seed=1)))[1] != short[0]


def test_guessing_is_right_as_often_as_there_are_people() -> None:
    samples = list(generate(TASKS[1], 1500, Bytes(), count=150))
    spread = 100 * np.sqrt(1 / SENTENCES * (1 - 1 / SENTENCES) / len(samples))
    found = baselines(TASKS[1], samples)
    assert found["guess"] == pytest.approx(100 / SENTENCES, abs=4 * spread)
    assert found["copy_last"] == pytest.approx(100 / SENTENCES, abs=4 * spread)


def test_one_name_counts_and_a_list_of_names_does_not() -> None:
    said = {" Goran": (1, 1), " It is goran.\nLeila": (1, 1), " Goran, Leila": (0, 1), " Leila, Goran": (0, 0)}
    for text, (match, strict) in said.items():
        found = score("associations_1", text, ("Goran",))
        assert (found.match, found.strict) == (match, strict)
    assert named("associations_2") == Association(2)
    with pytest.raises(UserError, match="1 or 2 hops"):
        Association(3)
