"""RULER's samples: ids against tokenising the text, lengths, answers in the text, and what flavours promise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_ruler import Blocks, Counting, Pairs, Prefixed, hotpot_file, squad_file

from levelfield.ruler import (
    RULER,
    TEMPLATES,
    Bytes,
    Needle,
    PromptOptions,
    Sample,
    Sources,
    Tokenizer,
    generate,
    named,
    sweep,
)
from levelfield.ruler.prompt.compose import Composer, text_of
from levelfield.spec import UserError

NAMES = [task.name for task in RULER]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    folder = tmp_path_factory.mktemp("ruler")
    essays = folder / "essays.txt"
    lines = [
        f"On the {i}th day Mr. Reed walked to the sea and back. It was a long way, the others said!" for i in range(400)
    ]
    essays.write_text("\n\n".join(lines))
    return Sources(essays=str(essays), squad=squad_file(folder), hotpot=hotpot_file(folder))


def some(name: str, length: int, tokenizer: Tokenizer, sources: Sources, count: int = 3, **named_: str) -> list[Sample]:
    flavour, template = named_.get("flavour", "sound"), named_.get("template", "base")
    options = PromptOptions(flavour, template, sources, check="all")
    return list(generate(named(name), length, tokenizer, options, count=count))


def length_of(name: str, tokenizer: Tokenizer) -> int:
    """Long enough for the task in letters."""
    return 3500 if name.startswith("qa") else 5000


@pytest.mark.parametrize("tokenizer", [Bytes(), Pairs(), Prefixed(), Blocks()], ids=lambda t: t.name)
@pytest.mark.parametrize("name", NAMES)
def test_ids_are_those_of_the_text_and_fill_the_length(name: str, tokenizer: Tokenizer, sources: Sources) -> None:
    """`Blocks` cannot be composed from pieces: its samples are tokenised whole, and as long."""
    for sample in some(name, length_of(name, tokenizer), tokenizer, sources, count=2):
        assert sample.ids.tolist() == tokenizer.encode(sample.text)
        left = sample.length - sample.answer_tokens - len(sample.ids)
        assert 0 <= left <= 8
        assert sample.ids.dtype == np.int32


@pytest.mark.parametrize("flavour", ["official", "paper"])
@pytest.mark.parametrize("name", NAMES)
def test_flavours_of_others_compose_exactly_too(name: str, flavour: str, sources: Sources) -> None:
    tokenizer = Pairs()
    for sample in some(name, 12_000, tokenizer, sources, count=1, flavour=flavour):
        assert sample.ids.tolist() == tokenizer.encode(sample.text)
        over = sample.answer_tokens if (name, flavour) == ("fwe", "paper") else 0
        assert len(sample.ids) <= sample.length - sample.answer_tokens + over


@pytest.mark.parametrize("template", list(TEMPLATES))
def test_templates_stand_around_the_task_and_before_the_answer(template: str, sources: Sources) -> None:
    (sample,) = some("niah_single_1", 4000, Bytes(), sources, count=1, template=template)
    before, after = TEMPLATES[template].split("{task}")
    assert sample.text.startswith(before + "A special magic number is hidden")
    query = re.search(r"special magic number for (\S+) mentioned", sample.text)
    assert query is not None
    asked = f"What is the special magic number for {query[1]} mentioned in the provided text?"
    answer = f" The special magic number for {query[1]} mentioned in the provided text is"
    assert sample.text.endswith(asked + after + answer)


def test_official_rewrites_the_template_with_the_task(sources: Sources) -> None:
    """A known fault of RULER: single answers turn "You are" into "You is"."""
    told = {
        f: some("niah_single_1", 6000, Bytes(), sources, 1, flavour=f, template="lwm-chat")[0].text
        for f in ("official", "sound")
    }
    assert told["official"].startswith("You is a helpful assistant.")
    assert told["sound"].startswith("You are a helpful assistant.")


NEEDLE = re.compile(r"One of the special magic (\w+) for (\S+) is: (\S+)\.")


@pytest.mark.parametrize("task", [t for t in RULER if isinstance(t, Needle)], ids=lambda t: t.name)
def test_needles_are_in_the_text_once_with_their_answers(task: Needle, sources: Sources) -> None:
    for sample in some(task.name, 6000, Pairs(), sources, count=4):
        question = sample.text[sample.text.rindex("\nWhat") :]
        pairs = [(key, value) for _, key, value in NEEDLE.findall(sample.text)]
        asked = [(key, value) for key, value in pairs if key in question]
        assert sorted(value for _, value in asked) == sorted(sample.references)
        assert len({key for key, _ in asked}) == task.queries
        assert len(sample.references) == task.queries * task.values == len(sample.depths)
        if task.haystack != "needles":
            assert len(pairs) == max(task.keys, task.queries) * task.values


@pytest.mark.parametrize("task", sweep(depths=(0, 0.3, 0.5, 1)), ids=lambda t: t.name)
def test_a_needle_stands_at_the_depth_that_was_asked_for(task: Needle, sources: Sources) -> None:
    """Within one sentence or line of it, by counting tokens in the text."""
    (sample,) = generate(task, 6000, Bytes(), PromptOptions(sources=sources), count=1)
    assert task.depth is not None
    begin, end = sample.text.index("\n") + 1, sample.text.rindex("\nWhat")
    place = sample.text.index("special magic " + task.value + "s for " + query(sample)) - 11
    size = 8 + len("One of the special magic numbers for is: .") + len(sample.references[0]) + len(query(sample))
    share = (place - begin) / (end - begin - size)
    assert abs(share - task.depth) < 130 / (end - begin)
    assert abs(sample.depths[0] - task.depth) < 130 / (end - begin)


def query(sample: Sample) -> str:
    found = re.search(r"for (\S+) mentioned", sample.text)
    assert found is not None
    return found[1]


def test_the_same_index_hides_the_same_needles_at_every_length_and_depth(sources: Sources) -> None:
    references = {
        next(generate(task, length, Bytes(), PromptOptions(sources=sources), start=5)).references
        for length in (3000, 6000)
        for task in (Needle(), Needle(depth=0.0), Needle(depth=1.0))
    }
    assert len(references) == 1


def test_samples_depend_on_seed_and_index_alone(sources: Sources) -> None:
    def keys(seed: int, start: int, count: int) -> list[str]:
        made = generate(named("vt"), 4000, Bytes(), PromptOptions(sources=sources), seed=seed, start=start, count=count)
        return [s.key for s in made]

    assert keys(1, 0, 4)[2:] == keys(1, 2, 2)
    assert not set(keys(1, 0, 4)) & set(keys(2, 0, 4))


def test_keys_of_content(sources: Sources) -> None:
    a, b = some("niah_single_1", 3000, Bytes(), sources, count=2)
    assert a.key == replace(a, slices=(("x", 1),)).key
    assert len({a.key, b.key, replace(a, references=("1",)).key, replace(a, answer_tokens=3).key}) == 4


def test_noise_and_essays_are_what_they_say(sources: Sources) -> None:
    noise = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
    (sample,) = some("niah_single_1", 4000, Bytes(), sources, count=1)
    lines = sample.text.split("\n")[1:-1]
    assert sum(line == noise for line in lines) == len(lines) - 2  # one needle, and a line cut short at the end
    assert all(line == noise or line.startswith("One of") or noise.startswith(line) for line in lines)
    (sample,) = some("niah_single_2", 4000, Bytes(), sources, count=1)
    text = " ".join(Path(sources.essays or "").read_text().split())
    before, _, after = sample.text.split("\n")[1].partition(" One of the special")
    assert before in text + " " + text
    assert after.partition(". ")[2].rsplit(" ", 1)[0] in text + " " + text


def test_chains_are_in_order_and_the_example_is_solved(sources: Sources) -> None:
    for flavour in ("sound", "official", "paper"):
        examples = set()
        for sample in some("vt", 8_000, Bytes(), sources, count=3, flavour=flavour):
            statements = re.findall(r"VAR ([A-Z]{5}) = (VAR [A-Z]{5}|\d{5})", sample.text)
            assert tuple(name for name, _ in statements) == sample.references
            assert [v for _, v in statements[1:]] == [f"VAR {name}" for name in sample.references[:-1]]
            assert sample.text.count(f"the value {statements[0][1]}") == 2
            example = re.findall(r"VAR ([A-Z]{3}) = ", sample.text)
            assert " ".join(example) in sample.text
            examples.add(tuple(example))
            assert ("assgined" in sample.text) == (flavour == "paper")
        assert len(examples) == (1 if flavour == "paper" else 3)


@pytest.mark.parametrize("flavour", ["sound", "official", "paper"])
def test_common_words_are_the_most_common(flavour: str, sources: Sources) -> None:
    patterns = set()
    for sample in some("cwe", 12_000, Bytes(), sources, count=2, flavour=flavour):
        listed = re.findall(
            r"(\d+)\. (\S+)", sample.text[sample.text.rindex("most often.\n") : sample.text.rindex("\nQ")]
        )
        assert [int(n) for n, _ in listed] == list(range(1, len(listed) + 1))
        counts = {w: sum(word == w for _, word in listed) for w in {word for _, word in listed}}
        top = sorted(counts, key=lambda w: -counts[w])[:10]
        assert set(top) == set(sample.references)
        assert {counts[w] for w in top} == {30}
        rest = [n for w, n in counts.items() if w not in top]
        assert max(rest) == 3 and sum(n < 3 for n in rest) <= (8 if flavour == "sound" else 0)
        patterns.add(tuple(i for i, (_, w) in enumerate(listed) if w == sample.references[0])[:30])
    assert len(patterns) == (2 if flavour == "sound" else 1)  # RULER's places are the same in every sample


def test_frequent_words_follow_the_zeta_law(sources: Sources) -> None:
    (sample,) = some("fwe", 16_000, Bytes(), sources, count=1)
    text = sample.text[sample.text.index("coded words. ") + 13 : sample.text.rindex("\nQuestion")].split(" ")
    counts = {w: text.count(w) for w in set(text)}
    ranked = sorted(counts, key=lambda w: -counts[w])
    assert ranked[0] == "..." and tuple(ranked[1:4]) == sample.references
    share = np.array([counts[w] for w in ranked[:5]]) / len(text)
    printed = np.array([0.608, 0.152, 0.068, 0.038, 0.024])  # 1/zeta(2) k^-2
    assert np.abs(share - printed / (printed.sum() / share.sum())).max() < 0.02


@pytest.mark.parametrize(("documents", "place"), [(5, 4), (8, 6), (20, 18), (25, 22), (50, 19)])
def test_official_gold_documents_have_one_place(documents: int, place: int) -> None:
    """Places recorded from the official generator."""
    from levelfield.ruler.prompt.draws import shuffled

    assert shuffled(documents, 42).tolist().index(0) == place


def test_official_needle_order() -> None:
    """Recorded: of four needles always the third key, the second, the fourth, the first."""
    from levelfield.ruler.prompt.draws import shuffled

    assert shuffled(4, 42).tolist() == [2, 1, 3, 0]


@pytest.mark.parametrize("name", ["qa_1", "qa_2"])
def test_documents_hold_what_the_answer_needs_at_places_that_vary(name: str, sources: Sources) -> None:
    places = set()
    for sample in some(name, 6000, Bytes(), sources, count=8):
        shown = re.split(r"\n\n(?=Document \d+:\n)", sample.text.rpartition("\n\nAnswer the")[0])[1:]
        assert [int(d.split(":")[0][9:]) for d in shown] == list(range(1, len(shown) + 1))
        asked = re.findall(r"Town\dx\d|Ship \d+ \d", sample.text[sample.text.rindex("Question:") :])
        for name_ in asked:
            assert any(d.partition("\n")[2].startswith(name_) for d in shown)
        slices = dict(sample.slices)
        assert slices["documents"] == len(shown) and any(name_ in shown[int(slices["gold"])] for name_ in asked)
        places.add(slices["gold"])
    assert len(places) > 2


def test_documents_that_do_not_reach_the_length_are_refused(sources: Sources) -> None:
    with pytest.raises(UserError, match="All 60 documents"):
        some("qa_1", 60_000, Bytes(), sources)


@pytest.mark.parametrize("name", ["niah_single_1", "vt", "cwe", "fwe", "qa_2"])
def test_a_length_that_holds_nothing_is_refused(name: str, sources: Sources) -> None:
    with pytest.raises(UserError, match=r"give a longer|longer length"):
        some(name, 300, Bytes(), sources)


def test_unknown_names_and_absent_files_are_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'sound'"):
        next(generate(Needle(), 2000, Bytes(), PromptOptions("sund")))
    with pytest.raises(UserError, match="did you mean 'base'"):
        next(generate(Needle(), 2000, Bytes(), PromptOptions(template="bas")))
    with pytest.raises(UserError, match=r"needs the official file dev-v2\.0\.json"):
        next(generate(named("qa_1"), 2000, Bytes()))
    with pytest.raises(UserError, match="niah_single_1"):
        named("niah_singel_1")
    with pytest.raises(UserError, match="haystack"):
        Needle(haystack="grass")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="depth"):
        Needle(depth=1.5)


def test_what_ships_is_read() -> None:
    """130,113 words of Emerson; a sample of them begins at a sentence."""
    from levelfield.ruler.sources import dictionary, essays, wonderwords_of

    assert len(essays(None)) == 130_113
    assert len(dictionary(None)) == 39_643 == len(set(dictionary(None)))
    assert [len(wonderwords_of(k)) for k in ("nouns", "adjectives", "verbs")] == [6782, 912, 1042]
    (sample,) = islice(generate(Needle(depth=1.0), 3000, Bytes()), 1)
    assert sample.text.split("\n")[1].split(" ")[0][0].isupper() or '"' in sample.text.split("\n")[1][:2]


@pytest.mark.parametrize(("name", "letters"), [("vt", 1600), ("niah_single_1", 900), ("niah_multikey_3", 2400)])
def test_of_a_long_sample_only_what_is_new_is_tokenised(name: str, letters: int, sources: Sources) -> None:
    """However long it is, and however often it is tried while its length is fitted."""
    tokenizer = Counting()
    samples = generate(named(name), 40_000, tokenizer, PromptOptions(sources=sources), count=6)
    next(samples)
    tokenizer.letters = 0
    assert len(list(samples)) == 5
    assert tokenizer.letters < 5 * letters


RECORDED = {"official": "da04d7702c46c734", "paper": "7956edb78d3376ee", "sound": "40cf44870edf2d6f"}


@pytest.mark.parametrize("flavour", list(RECORDED))
def test_samples_are_the_recorded_ones(flavour: str, sources: Sources) -> None:
    """Answers are stored under what was read, so that a change of any sample would ask everything again."""
    digest = sha256()
    for task in RULER:
        length = 3500 if task.name.startswith("qa") and flavour == "sound" else 12_000
        for sample in generate(task, length, Pairs(), PromptOptions(flavour, sources=sources), count=2, seed=7):
            digest.update(sample.key.encode())
    assert digest.hexdigest()[:16] == RECORDED[flavour]


@pytest.mark.parametrize("tokenizer", [Bytes(), Pairs(), Prefixed()], ids=lambda t: t.name)
def test_known_texts_and_joined_pieces_have_the_ids_of_their_text(tokenizer: Tokenizer) -> None:
    composer = Composer(tokenizer)
    text = "\nThe rest, in the same words for all samples, is known:"
    pieces = [
        "Here.",
        *composer.known(text),
        " 123456",
        *composer.known(" and again there are words that are known.\n"),
    ]
    assert len(pieces) == 8
    for some in (pieces, composer.joined(pieces), ["VAR 12 ", *composer.joined(pieces), "The end"]):
        assert composer.compose(some).tolist() == tokenizer.encode(text_of(some))
        assert composer.size(some) == len(tokenizer.encode(text_of(some)))
    assert len(composer.joined(pieces)) == 3
    assert Composer(Blocks()).known(text) == Composer(tokenizer, exact=False).known(text) == [text]


def test_a_sample_that_does_not_fit_is_told_and_the_others_are_made(sources: Sources) -> None:
    """The ten documents of the later questions are a little longer."""
    told: list[tuple[int, str]] = []

    def made(**more: Any) -> Iterator[Sample]:
        return generate(named("qa_2"), 3180, Bytes(), PromptOptions("official", sources=sources), count=14, **more)

    found = list(made(on_skipped=lambda index, why: told.append((index, why))))
    assert sorted([s.index for s in found] + [index for index, _ in told]) == list(range(14))
    assert found and told and all("longer" in why for _, why in told)
    with pytest.raises(UserError, match=re.escape(told[0][1])):
        list(made())
    with pytest.raises(UserError, match="dev-v2"):  # absent files are no misfits
        list(generate(named("qa_1"), 2000, Bytes(), on_skipped=lambda index, why: None))


@pytest.mark.parametrize("flavour", ["sound", "official", "paper"])
@pytest.mark.parametrize("name", NAMES)
def test_a_length_that_holds_nothing_leaves_every_sample_out(name: str, flavour: str, sources: Sources) -> None:
    told: list[int] = []
    some = generate(
        named(name),
        130,
        Bytes(),
        PromptOptions(flavour, sources=sources),
        count=3,
        on_skipped=lambda i, why: told.append(i),
    )
    assert (list(some), told) == ([], [0, 1, 2])


def test_more_needles_than_lines_are_refused(sources: Sources) -> None:
    six = Needle(haystack="noise", keys=6)
    with pytest.raises(UserError, match="6 needles need as many lines"):
        next(generate(six, 1500, Bytes(), PromptOptions("official", sources=sources)))
