"""RULER's flavours against the text that the original makes, built here in its plain way."""

from __future__ import annotations

import math
import random
import re
import string
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from toy_ruler import WORDS, Pairs, hotpot_file

from levelfield.ruler import Bytes, PromptOptions, Sources, Tokenizer, generate, named
from levelfield.tokenizer import SlowTokenizer

LINE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."


def chain_lines(context: str) -> tuple[list[str], list[int], int]:
    """The statements of a context, how many lines of noise stand before each, and how many there are."""
    statements = re.findall(r"VAR [A-Z]+ = (?:\d+|VAR [A-Z]+ )", context)
    places = [context[: context.index(statement)].count(LINE) for statement in statements]
    return statements, places, context.count(LINE)


def inserted(statements: list[str], places: list[int], lines: int, paper: bool) -> str:
    """The context as the original makes it: statements put into a list of lines one after the other, then joined."""
    text = [LINE + "\n" if paper else LINE] * lines
    for number, (statement, place) in enumerate(zip(statements, places, strict=True)):
        text.insert(place + number, statement)
    return (" " if paper else "\n").join(text).replace(". \n", ".\n")


@pytest.mark.parametrize("flavour", ["official", "paper", "sound"])
def test_statements_stand_among_the_lines_as_the_original_puts_them(flavour: str) -> None:
    """At line 0 too, where a blank line before the first statement would take a token; in the example as well."""
    at_line_0 = set()
    for sample in generate(named("vt"), 2600, Bytes(), PromptOptions(flavour, check="all"), count=40):
        parts = sample.text.split("hidden in the following text.")[1:]
        for part, example in zip(parts, (True, False), strict=True):
            begin, end = (" ", " Question:") if flavour == "paper" and example else ("\n\n", "\nQuestion:")
            assert part.startswith(begin)
            context = part[len(begin) : part.index(end)]
            statements, places, lines = chain_lines(context)
            expected = inserted(statements, places, lines, flavour == "paper")
            if flavour == "sound" and not example:  # a part of one more line fills the length
                assert LINE.startswith(context.removeprefix(expected).removeprefix("\n"))
            assert len(statements) == 5 and context.startswith(expected)
            assert context == expected or flavour == "sound"
            at_line_0.add((example, places[0] == 0))
    assert {(False, True), (False, False)} <= at_line_0


@pytest.mark.parametrize(("length", "tokenizer"), [(1600, Bytes()), (1300, Pairs()), (2600, Bytes())])
def test_a_statement_behind_fewer_lines_than_statements_is_at_the_end(length: int, tokenizer: Tokenizer) -> None:
    """Its depth is the share of the lines before it, which is none above 1. RULER draws places for five statements
    among five lines where fewer fit, and a stored answer of a depth of 2 is damaged."""
    fewest = 99
    for sample in generate(named("vt"), length, tokenizer, PromptOptions("paper", check="all"), count=10):
        context = sample.text.split("hidden in the following text.")[-1]
        _, places, lines = chain_lines(context[: context.index("Question:")])
        assert sample.depths == pytest.approx([place / lines for place in places])
        assert max(sample.depths) <= 1
        fewest = min(fewest, lines)
    assert fewest < 5 or length == 2600


def test_questions_that_the_original_would_draw_for_ever_are_left_out(tmp_path: Path) -> None:
    """Where ten documents fewer than fitted the first question are fewer than a question has of its own, it draws
    again without end. Whatever is made has RULER's order: the first own document where its shuffle puts it."""
    told: list[str] = []
    sources = Sources(hotpot=hotpot_file(tmp_path))
    for length in range(3600, 6400, 400):
        samples = generate(
            named("qa_2"),
            length,
            Bytes(),
            PromptOptions("official", sources=sources),
            count=20,
            on_skipped=lambda index, why: told.append(why),
        )
        for sample in samples:
            shown = re.findall(r"Document \d+:\n(Ship \d+ \d)\n", sample.text)
            order = list(range(len(shown)))
            random.Random(42).shuffle(order)
            asked = re.findall(r"Which ship had more men, Ship (\d+)", sample.text)
            assert len(shown) >= 10 and shown[order.index(0)] == f"Ship {asked[0]} 0"
    assert any("RULER would try for ever" in why for why in told)


class Letters:
    """So many letters to a token within a word and the space before it: with four, all coded words take two tokens."""

    def __init__(self, count: int) -> None:
        self.name, self.piece = f"letters-{count}", re.compile(rf"(?s).{{1,{count}}}")

    def encode(self, text: str) -> list[int]:
        parts = [part for word in WORDS.findall(text) for part in self.piece.findall(word)]
        return [int.from_bytes(part.encode()) % 2**31 for part in parts]

    def decode(self, ids: Sequence[int]) -> str:
        raise NotImplementedError


class Far(Letters, SlowTokenizer):
    """The same behind a server, so that whole prompts are tokenised."""

    estimate = Letters(4)


CODED = (
    "Read the following coded text and track the frequency of each coded word. Find the three most frequently appeared "
    "coded words. {context}\nQuestion: Do not provide any explanation. Please ignore the dots '....'. What are the "
    "three most frequently appeared words in the above coded text? Answer: According to the coded text above, the "
    "three most frequently appeared words are:"
)


def coded_tokens(length: int, encode: Callable[[str], list[int]]) -> int:
    """How many tokens the prompts of frequent words have in jhuang265/RULER d573689: by its loop, in which they may
    take the whole length, since the answer's 50 tokens are forgotten."""
    shares = [rank**-2.0 / (math.pi**2 / 6) for rank in range(1, length // 50 + 1)]

    def total(words: int) -> int:
        dots, *others = (int(words * share) for share in shares)
        return len(encode(CODED.format(context=" ".join(["..."] * dots + ["qwkzub"] * sum(others)))))

    words = length // 6
    while total(words) < length:
        words += length // 32
    return total(words - length // 32)


def test_the_fork_fills_the_whole_length_with_coded_words() -> None:
    """However near to the length a prompt comes, whether it is put together from pieces or tokenised as a whole."""
    expected = {length: coded_tokens(length, Letters(4).encode) for length in (1024, 1500, 2048, 3000, 4096)}
    assert sum(tokens > length - 50 for length, tokens in expected.items()) >= 2
    for tokenizer in (Letters(4), Far(4)):
        for length, tokens in expected.items():
            made = generate(named("fwe"), length, tokenizer, PromptOptions("paper", check="all"), count=3)
            assert [len(sample.ids) for sample in made] == [tokens] * 3


EXAMPLE = (
    "Memorize and track the chain(s) of variable assignment hidden in the following text. {context} Question: Find all "
    "variables that are assigned the value {value} in the text Answer: According to the chain(s) of variable "
    "assignment in the text above, 5 variables are assgined the value {value}, they are: "
)


def example_lines(tokenizer: Tokenizer, rng: random.Random) -> int:
    """How many lines the example of variable tracking has in jhuang265/RULER d573689, by its loop at 500 tokens."""
    lines, total = 5, 0
    while total + 30 < 500:
        names = ["".join(rng.choices(string.ascii_uppercase, k=3)) for _ in range(5)]
        value = str(rng.randrange(10_000, 99_999))
        statements = [f"VAR {names[0]} = {value}", *(f"VAR {b} = VAR {a} " for a, b in pairwise(names))]
        context = inserted(statements, sorted(rng.sample(range(lines), 5)), lines, paper=True)
        total = len(tokenizer.encode(EXAMPLE.format(context=context, value=value) + f" {names}"))
        if total + 30 > 500:
            return lines - 5
        lines += 5
    return lines


@pytest.mark.parametrize("tokenizer", [Bytes(), *map(Letters, range(3, 9))], ids=lambda tokenizer: tokenizer.name)
def test_the_example_of_the_fork_has_as_many_lines(tokenizer: Tokenizer) -> None:
    """But for tokenizers with which the fork finds none that fit, and tries for ever: those have five."""
    rng = random.Random(0)
    theirs = {max(5, example_lines(tokenizer, rng)) for _ in range(40)}
    for seed in range(4):
        (sample,) = generate(named("vt"), 4096, tokenizer, PromptOptions("paper"), seed=seed, count=1)
        example = sample.text.split("hidden in the following text.")[1]
        assert example.count(LINE) in theirs
    assert len(theirs) == 1


def listed(text: str) -> list[str]:
    return re.findall(r"\d+\. ?([a-z]+)", text)


@pytest.mark.parametrize("length", [4000, 9000])
def test_common_words_of_ours_leak_no_answer(length: int) -> None:
    """No answer is a part of another word of the prompt, so that naming that word would count, and none is in the
    example, so that copying it would."""
    for sample in generate(named("cwe"), length, Bytes(), count=40):
        example = sample.text[: sample.text.rindex("Below is a numbered list")]
        words = set(listed(sample.text))
        assert set(sample.references) <= words and not set(sample.references) & set(listed(example))
        assert [w for w in words for answer in sample.references if answer in w and answer != w] == []


NEEDLE = re.compile(r"One of the special magic \w+ for (\S+) is: (\S+)\.")


@pytest.mark.parametrize("name", ["niah_multikey_2", "niah_multikey_3"])
def test_samples_of_ours_hardly_share_keys_and_ask_for_keys_like_any_other(name: str) -> None:
    """Parts of an asked key are found in the other lines of some sample, as parts of other keys are, and the same
    needle is hidden at every length."""
    samples = list(generate(named(name), 60_000, Bytes(), count=6))
    lines = [NEEDLE.findall(sample.text) for sample in samples]
    keys = [{key for key, _ in found} for found in lines]
    assert all(len(found) == len(own) for found, own in zip(lines, keys, strict=True))
    assert all(len(a & b) <= 0.01 * len(a) for a, b in combinations(keys, 2))  # of six million, some come twice
    asked = [
        next(key for key, value in found if value in s.references) for found, s in zip(lines, samples, strict=True)
    ]
    elsewhere = {part for own in keys for key in own - set(asked) for part in key.split("-")}
    assert sum(part in elsewhere for key in asked for part in key.split("-")) >= 0.4 * sum(
        k.count("-") + 1 for k in asked
    )
    again = generate(named(name), 20_000, Bytes(), count=6)
    assert [s.references for s in again] == [s.references for s in samples]
