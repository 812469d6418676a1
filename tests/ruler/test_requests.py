"""Equal requests: the text that is asked for is found again by counting requests in the prompt; scores are MRCR's."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

import numpy as np
import pytest
from toy_ruler import Pairs

from levelfield.ruler import Bytes, Requests, Sample, baselines, generate, named, score
from levelfield.ruler.early_stop import is_final
from levelfield.spec import UserError

TASKS = [Requests(2), Requests(4), Requests(8)]
NTH = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"]


def told(sample: Sample) -> list[tuple[str, str]]:
    """Requests and their texts, in order, as a reader splits the prompt."""
    context = sample.text.rpartition("\n\nQuestion: ")[0].partition("Requests and texts\n\n")[2]
    blocks = [block.partition("\n") for block in context.split("\n\n")]
    return [(request.removeprefix("Request: write a "), text) for request, _, text in blocks]


def asked(sample: Sample) -> tuple[list[int], int, str]:
    """Where the equal requests stand, which of them is meant, and the code."""
    found = re.search(r"Give the (\w+) (\w+ about \w+), .* the code (\w+)\. Answer:$", sample.text)
    assert found
    return [i for i, (what, _) in enumerate(told(sample)) if what == found[2]], NTH.index(found[1]), found[3]


def official(response: str, answer: str, code: str) -> float:
    """MRCR's own rule."""
    if not response.startswith(code):
        return 0.0
    return SequenceMatcher(None, response.removeprefix(code), answer.removeprefix(code)).ratio()


@pytest.mark.parametrize("task", TASKS, ids=lambda t: t.name)
def test_the_text_is_found_again_and_the_length_is_exact(task: Requests) -> None:
    for tokenizer in (Pairs(), Bytes()):
        for sample in generate(task, 4200, tokenizer, count=4):
            places, nth, code = asked(sample)
            texts = told(sample)
            assert len(places) == task.repeats
            assert sample.references == (f"{code}\n{texts[places[nth]][1]}",)
            assert len({texts[i][1] for i in places}) == task.repeats
            assert dict(sample.slices) == {"repeats": task.repeats, "nth": nth + 1, "texts": len(texts)}
            share = sample.text.index(texts[places[nth]][1]) / len(sample.text)
            assert sample.depths == (pytest.approx(share, abs=0.25),)
            np.testing.assert_array_equal(sample.ids, tokenizer.encode(sample.text))
            assert 0 <= 4200 - sample.answer_tokens - len(sample.ids) <= 8


def test_every_line_stands_once_and_what_is_asked_is_the_same_at_every_length() -> None:
    short, long = (list(generate(Requests(4), n, Bytes(), count=3)) for n in (3200, 9000))
    assert [s.references for s in short] == [s.references for s in long]
    assert len({s.references for s in short}) == 3
    assert next(generate(Requests(4), 3200, Bytes(), start=2)).references == short[2].references
    for sample in long:
        lines = [line for _, text in told(sample) for line in text.split("\n")]
        assert len(set(lines)) == len(lines)
        assert all(len(told(sample)[place][1]) > 200 for place in asked(sample)[0])
        assert sum(len(text.split("\n")) != 6 for _, text in told(sample)) <= 1


def test_where_the_texts_stand_and_which_one_is_meant_is_uniform() -> None:
    samples = list(generate(Requests(4), 6000, Bytes(), count=100))
    places = np.array([place / (len(told(s)) - 1) for s in samples for place in asked(s)[0]])
    assert abs(places.mean() - 0.5) < 4 * np.sqrt(1 / 12 / len(places))
    assert np.bincount([asked(s)[1] for s in samples]).min() > 25 - 4 * np.sqrt(25 * 0.75)


def test_scores_are_those_of_the_official_rule_where_an_answer_ends_with_the_text() -> None:
    (sample,) = generate(Requests(2), 3200, Bytes(), count=1)
    reference, code = sample.references[0], sample.references[0][:10]
    for said in (reference, reference[:-20], code + "\nNo text at all", "x" + reference, told(sample)[0][1]):
        expected = official(said, reference, code)
        found = score(Requests(2), said, (reference,))
        assert found.match == pytest.approx(expected, abs=0.01)  # spaces after the code aside
        assert found.strict == (said == reference)


def test_what_follows_an_empty_line_is_not_read_and_spaces_do_not_count() -> None:
    reference = "abcde12345\nA line\nAnother line"
    for said in (f" {reference}\n\nRequest: write", "abcde12345\r\n\r\nA line\r\nAnother line", f"{reference} \n"):
        found = score("requests_4", said, (reference,))
        assert (found.match, found.strict) == (1, 1)
    assert not is_final(Requests(), " abcde12345\n\n", (reference,))
    assert not is_final(Requests(), " abcde12345\n\nA line", (reference,))
    assert is_final(Requests(), " abcde12345\nA line\n\n", (reference,))


def test_a_guess_is_one_of_the_texts_for_the_request() -> None:
    samples = list(generate(Requests(4), 3200, Bytes(), count=80))
    ratios = []
    for sample in samples:
        places, nth, _ = asked(sample)
        texts = [told(sample)[i][1] for i in places]
        ratios.append([SequenceMatcher(None, text, texts[nth]).ratio() for text in texts])
    spread = 100 * np.mean(np.std(ratios, axis=1)) / np.sqrt(len(samples))
    assert baselines(Requests(4), samples)["guess"] == pytest.approx(100 * np.mean(ratios), abs=4 * spread)
    last = 100 * np.mean([each[-1] for each in ratios])
    assert baselines(Requests(4), samples)["copy_last"] == pytest.approx(last, abs=0.01)


def test_names_of_requests() -> None:
    assert named("requests_8") == Requests(8)
    with pytest.raises(UserError, match="2 to 8 times"):
        Requests(9)
