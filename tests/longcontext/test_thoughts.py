"""A thought before an answer: parted from it as a pattern would, told where it has no end, and read in little time."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from toy_reader import SINGLE, Saying, knows

from levelfield.longcontext.predictions import Prediction, settled
from levelfield.longcontext.runner import answered
from levelfield.longcontext.served.client import Address
from levelfield.longcontext.served.replies import parted, read, unopened
from levelfield.ruler import Bytes, generate
from levelfield.spec import UserError

WHOLE = re.compile(r"^\s*(?:<think>)?(.*?)</think>", re.DOTALL)
BEGUN = re.compile(r"^\s*<think>(.*)$", re.DOTALL)


def by_pattern(text: str) -> tuple[str, str, bool]:
    if found := WHOLE.match(text):
        return found[1].strip(), text[found.end() :], not BEGUN.match(text)
    return (begun[1].strip(), "", False) if (begun := BEGUN.match(text)) else ("", text, False)


def test_a_thought_is_parted_as_by_a_pattern() -> None:
    rng = random.Random(0)
    for _ in range(5_000):
        text = "".join(rng.choices(["<think>", "</think>", " ", "\n", "a", "12", "<"], k=rng.randrange(8)))
        assert (*parted(text), unopened(text)) == by_pattern(text), repr(text)


def test_blanks_without_an_end_take_no_time() -> None:
    """A pattern that begins with blanks tries all their numbers at every one: 400,000 took a quarter of an hour."""
    blanks = "\n" * 400_000
    assert parted(blanks) == ("", blanks) and not unopened(blanks)


@pytest.mark.parametrize(
    ("text", "answer"), [("\n\n</think>\n\n7 is it. The sky", "\n\n7 is it. The sky"), ("it may be 7", "")]
)
def test_an_answer_after_an_empty_thought_is_one_though_its_tokens_ran_out(text: str, answer: str) -> None:
    reply = read({"choices": [{"text": text, "finish_reason": "length"}]})
    assert reply.closed == ("</think>" in text) and reply.reasoning == ""
    stored = Prediction.of(next(generate(SINGLE, 700, Bytes(), count=1)), SINGLE, text=reply.text, made=9, status="ok")
    (found,) = settled([replace(stored, finish=reply.finish, think_open=True, think_closed=reply.closed)])
    assert found.text == answer


@pytest.mark.parametrize(
    "address",
    ["http://me:s3cr3t@127.0.0.1:99999/v1", "http://127.0.0.1:99999/v1?key=s3cr3t", "http://127.0.0.1:99999/v1#s3cr3t"],
)
def test_an_address_that_can_be_none_is_refused_without_a_password_or_a_key(address: str) -> None:
    with pytest.raises(UserError, match=r"http://127.0.0.1:99999/v1 is no address \(Port out of range") as error:
        Address.of(address)
    assert "s3cr3t" not in str(error.value)


class Counting(Bytes):
    decoded = 0  # tokens, in all calls

    def decode(self, ids: Sequence[int]) -> str:
        self.decoded += len(ids)
        return super().decode(ids)


def test_a_long_thought_is_not_read_from_its_beginning_at_every_token() -> None:
    sample, tokenizer = next(generate(SINGLE, 700, Bytes(), count=1)), Counting()
    model = Saying(lambda prompt: f"<think>{1500 * 'x '}</think>{knows(prompt)}")
    (found,) = answered(model, tokenizer, SINGLE, [replace(sample, thinking=4_000)])
    assert (found.text.strip(), found.finish, found.think_closed) == (sample.references[0], "stop", True)
    assert len(found.reasoning) == 2_999 and tokenizer.decoded < 100_000, "it was some 4.5 million"
