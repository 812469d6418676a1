"""Walks on graphs: the answer is that of a naive search of the graph that stands in the prompt, at every length."""

from __future__ import annotations

import re

import numpy as np
import pytest
from toy_ruler import Pairs

from levelfield.ruler import Bytes, Sample, Walk, baselines, generate, named, score
from levelfield.ruler.beyond.walks import walk_score
from levelfield.spec import UserError

TASKS = (Walk("parents"), Walk("bfs"))
EDGE = re.compile(r"^(\w+) -> (\w+)$", re.MULTILINE)


def searched(sample: Sample) -> set[str]:
    """The answer to the question of a prompt, found by reading its edges."""
    text = sample.text.partition("following edges:\n")[2]
    edges = EDGE.findall(text)
    assert len(edges) == dict(sample.slices)["edges"] == len(text.partition("\n\n")[0].splitlines())
    if found := re.search(r"edge that leads to (\w+)\?", text):
        return {a for a, b in edges if b == found[1]}
    found = re.search(r"reached from (\w+) by (\d+) edges", text)
    assert found
    seen = layer = {found[1]}
    for _ in range(int(found[2])):
        layer = {b for a, b in edges if a in layer} - seen
        seen = seen | layer
    return layer


@pytest.mark.parametrize("task", [*TASKS, Walk("bfs", hops=1), Walk("bfs", hops=4)], ids=lambda t: t.name)
@pytest.mark.parametrize("length", [1500, 6000])
def test_the_answer_is_that_of_a_naive_search(task: Walk, length: int) -> None:
    for sample in generate(task, length, Bytes(), count=8):
        assert searched(sample) == set(sample.references)
        assert 2 <= len(set(sample.references)) == len(sample.references) <= 5
        assert 0 <= length - sample.answer_tokens - len(sample.ids) <= 17  # less than the shortest edge, in bytes


@pytest.mark.parametrize("task", TASKS, ids=lambda t: t.name)
def test_ids_are_those_of_the_text_and_the_length_is_filled(task: Walk) -> None:
    tokenizer = Pairs()
    for sample in generate(task, 2048, tokenizer, count=4):
        np.testing.assert_array_equal(sample.ids, tokenizer.encode(sample.text))
        assert 0 <= 2048 - sample.answer_tokens - len(sample.ids) <= 16


def test_a_sample_has_the_same_question_at_every_length_and_another_at_every_index() -> None:
    short, long = ([s.references for s in generate(Walk(), n, Bytes(), count=5)] for n in (2000, 5000))
    assert short == long
    assert len(set(short)) == 5


def test_where_decisive_edges_stand_is_uniform() -> None:
    """The places of an answer's edges, as shares of the list, have the mean and the spread of a uniform draw."""
    shares = []
    for sample in generate(Walk("parents"), 2500, Bytes(), count=60):
        edges = EDGE.findall(sample.text.partition("following edges:\n")[2])
        shares += [i / (len(edges) - 1) for i, (a, _) in enumerate(edges) if a in sample.references]
    assert len(shares) > 150
    assert abs(np.mean(shares) - 0.5) < 4 * np.sqrt(1 / 12 / len(shares))
    assert abs(np.std(shares) - np.sqrt(1 / 12)) < 0.04


@pytest.mark.parametrize(
    ("said", "f1", "strict"),
    [
        ("aa11, bb22]", 1.0, 1.0),
        (" bb22, aa11]\nThe graph has 12ab too.", 1.0, 1.0),
        ("I think 12ab.\nFinal Answer: [aa11, bb22]", 1.0, 1.0),
        ("The nodes are aa11 and bb22.", 1.0, 1.0),
        ("aa11]", 2 / 3, 0.0),
        ("aa11, bb22, cc33, dd44]", 2 / 3, 0.0),
        ("]", 0.0, 0.0),
        ("", 0.0, 0.0),
        ("beef, 1234, aa111111111]", 0.0, 0.0),
        ("aa11, bb22]\n\nFinal Answer: [", 1.0, 1.0),
        ("aa11, bb22]\n\nOperation: Which nodes lead to cc33? Final Answer: [cc33, dd44]", 1.0, 1.0),
        ("aa11, bb22\n\nFinal Answer: [", 1.0, 1.0),
        ("[aa11, bb22] is the Final Answer", 1.0, 1.0),
        ("The set [aa11, bb22] is the final answer.", 1.0, 1.0),
        ("From [cc33] one gets on.\n**Final answer:** [aa11, bb22]\n\nFinal Answer: [", 1.0, 1.0),
        ("Final Answer: [cc33]? No. Final Answer: [aa11, bb22]", 1.0, 1.0),
        ("] Final Answer: [aa11, bb22]", 1.0, 1.0),
        ("AA11, Bb22]", 1.0, 1.0),
    ],
)
def test_a_set_of_nodes_is_scored_in_whatever_form_it_comes(said: str, f1: float, strict: float) -> None:
    found = walk_score(said, ("aa11", "bb22"))
    assert (found.match, found.strict) == (pytest.approx(f1), strict)


@pytest.mark.parametrize(
    ("said", "f1"),
    [
        (" aa11, bb22]", 1.0),
        ("aa11,bb22,cc33,dd44]", 2 / 3),
        ("aa11, bb22", 0.0),
        ("Final Answer: [aa11, bb22]", 1.0),
        ("I think of cc33.\nFinal Answer: [bb22, aa11].", 1.0),
        ("I think of cc33.\nFinal Answer:[aa11]", 2 / 3),
        ("aa11, bb22]\nThe graph has 12ab too.", 0.0),
        ("Final Answer: [aa11, bb22]\n", 0.0),
        ("The nodes are aa11 and bb22.", 0.0),
        ("AA11, Bb22]", 0.0),
        ("]", 0.0),
        ("", 0.0),
    ],
)
def test_the_official_score_reads_the_list_in_the_last_line(said: str, f1: float) -> None:
    assert Walk().other_scores(said, ("aa11", "bb22")) == {"last_line_f1": pytest.approx(f1)}


def test_generation_ends_with_the_list_that_the_prompt_began() -> None:
    for said in (" aa11, bb22]", "[aa11]", "AA11]\n\nFinal"):
        assert Walk().is_final(said)
        for more in ("\n\nFinal Answer: [cc33]", ", [dd44]", "5e6f"):
            assert walk_score(said + more, ("aa11", "bb22")) == walk_score(said, ("aa11", "bb22"))
    for said in ("", "aa11, bb22", "]", "The set is [aa11]", "Final Answer: aa11]"):
        assert not Walk().is_final(said)


def test_guessing_is_near_what_a_set_drawn_from_all_nodes_scores() -> None:
    samples = list(generate(Walk("parents"), 3000, Bytes(), count=40))
    nodes = np.mean([dict(s.slices)["nodes"] for s in samples])
    wanted = np.mean([len(s.references) for s in samples])
    assert baselines(Walk("parents"), samples)["guess"] == pytest.approx(100 * wanted / nodes, abs=4)


def test_names_and_numbers_that_no_walk_has() -> None:
    assert named("walks_bfs") == Walk()
    assert score("walks_bfs", "aa11]", ("aa11",)).strict == 1
    with pytest.raises(UserError, match="1 to 8 hops"):
        Walk(hops=9)
    with pytest.raises(UserError, match="There is no walk"):
        Walk("parent")  # type: ignore[arg-type]
